"""Keystores and truststores: PEM, PKCS12, inline; what OpenSSL never sees on a disk."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificates
from support.tls import Credentials, TlsPair

from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.network.security import stores


def parts(path: str) -> tuple[str, str]:
    """The key and the chain in a PEM file."""
    text = Path(path).read_text()
    return "".join(stores.pem_blocks(text, "PRIVATE KEY")), "".join(stores.pem_blocks(text, "CERTIFICATE"))


def write_pkcs12(source: str, target: Path, password: str) -> str:
    """The identity in a PEM file as a PKCS12 file."""
    key, chain = parts(source)
    first, *rest = load_pem_x509_certificates(chain.encode())
    private: Any = load_pem_private_key(key.encode(), None)
    encryption = BestAvailableEncryption(password.encode())
    target.write_bytes(pkcs12.serialize_key_and_certificates(b"me", private, first, rest, encryption))
    return str(target)


def encrypted_key(source: str, password: str) -> str:
    private: Any = load_pem_private_key(parts(source)[0].encode(), None)
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())).decode()


def agree(credentials: Credentials, client: dict[str, Any], server: dict[str, Any] | None = None) -> None:
    """Shake hands with a server that demands a client certificate."""
    keys = {"ssl_client_auth": "required", "ssl_truststore_location": credentials.ca, **(server or {})}
    pair = TlsPair(credentials.client_contexts(**client), credentials.server_contexts(**keys))
    try:
        pair.shake_hands()
        assert pair.transfer([b"hello"]) == b"hello"
    finally:
        pair.close()


def test_a_pem_file_with_key_and_chain(credentials: Credentials) -> None:
    agree(credentials, {"ssl.keystore.location": credentials.client})


def test_a_certificate_and_a_key_in_two_files(credentials: Credentials) -> None:
    key_path = credentials.client.replace(".pem", ".key.pem")
    agree(credentials, {"ssl_certfile": credentials.client, "ssl_keyfile": key_path})


def test_inline_keys(credentials: Credentials) -> None:
    key, chain = parts(credentials.client)
    agree(
        credentials,
        {"ssl.keystore.key": key, "ssl.certificate.pem": chain, "ssl.ca.pem": Path(credentials.ca).read_text()},
    )


def test_inline_keys_on_one_line(credentials: Credentials) -> None:
    """A value of a properties file has no line breaks (KIP-651)."""
    key, chain = parts(credentials.client)
    agree(credentials, {"ssl.keystore.key": key.replace("\n", " "), "ssl.certificate.pem": chain.replace("\n", "")})


def test_an_encrypted_key(credentials: Credentials) -> None:
    _, chain = parts(credentials.client)
    key = encrypted_key(credentials.client, "hush")
    agree(credentials, {"ssl.key.pem": key, "ssl.certificate.pem": chain, "ssl.key.password": "hush"})


@pytest.mark.parametrize("password", [None, "wrong-hush"])
def test_an_encrypted_key_without_its_password(credentials: Credentials, password: str | None) -> None:
    _, chain = parts(credentials.client)
    key = encrypted_key(credentials.client, "hush")
    with pytest.raises(KafkaConfigurationError, match=r"ssl\.key\.password") as caught:
        credentials.client_contexts(**{"ssl.key.pem": key, "ssl.certificate.pem": chain, "ssl.key.password": password})
    assert "hush" not in str(caught.value)


def test_pkcs12_on_both_ends(credentials: Credentials, tmp_path: Path) -> None:
    client = write_pkcs12(credentials.client, tmp_path / "client.p12", "hush")
    server = write_pkcs12(credentials.server, tmp_path / "server.p12", "hush")
    agree(
        credentials,
        {"ssl.keystore.location": client, "ssl.keystore.password": "hush"},
        {"ssl.keystore.location": server, "ssl.keystore.password": "hush"},
    )


def test_a_pkcs12_truststore(credentials: Credentials, tmp_path: Path) -> None:
    store = tmp_path / "trust.p12"
    certificates = load_pem_x509_certificates(Path(credentials.ca).read_bytes())
    trusted = [pkcs12.PKCS12Certificate(each, b"ca") for each in certificates]
    store.write_bytes(
        pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(b"hush"))
        if hasattr(pkcs12, "serialize_java_truststore")
        else pkcs12.serialize_key_and_certificates(b"t", None, None, certificates, NoEncryption())
    )
    agree(
        credentials,
        {
            "ssl.keystore.location": credentials.client,
            "ssl.truststore.location": str(store),
            "ssl.truststore.password": "hush",
        },
    )


@pytest.mark.parametrize("password", [None, "wrong-hush"])
def test_pkcs12_without_its_password(credentials: Credentials, tmp_path: Path, password: str | None) -> None:
    path = write_pkcs12(credentials.client, tmp_path / "client.p12", "hush")
    with pytest.raises(KafkaConfigurationError, match=r"ssl\.keystore\.password") as caught:
        credentials.client_contexts(**{"ssl.keystore.location": path, "ssl.keystore.password": password})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("magic", [b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"])
def test_a_java_keystore_is_refused_with_the_command_that_converts_it(
    credentials: Credentials, tmp_path: Path, magic: bytes
) -> None:
    path = tmp_path / "client.jks"
    path.write_bytes(magic + bytes(100))
    for key in ("ssl.keystore.location", "ssl.truststore.location"):
        with pytest.raises(KafkaConfigurationError, match=r"keytool -importkeystore -srckeystore .*client.jks .*p12"):
            credentials.client_contexts(**{key: str(path)})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "neither a PEM file nor a PKCS12 file"),
        (b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "has no private key"),
    ],
)
def test_a_file_that_is_no_keystore(credentials: Credentials, tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "client.pem"
    path.write_bytes(content)
    with pytest.raises(KafkaConfigurationError, match=text):
        credentials.client_contexts(**{"ssl.keystore.location": str(path)})


def test_a_missing_file(credentials: Credentials) -> None:
    for key in ("ssl.keystore.location", "ssl.truststore.location", "ssl.crlfile"):
        with pytest.raises(KafkaConfigurationError, match=r"/nowhere.pem can't be read"):
            credentials.client_contexts(**{key: "/nowhere.pem"})


def test_the_declared_type_must_be_that_of_the_file(credentials: Credentials) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"is a PEM file, but ssl\.keystore\.type is PKCS12"):
        credentials.client_contexts(**{"ssl.keystore.location": credentials.client, "ssl.keystore.type": "PKCS12"})


def test_a_key_of_another_certificate(credentials: Credentials) -> None:
    _, chain = parts(credentials.client)
    key, _ = parts(credentials.server)
    with pytest.raises(KafkaConfigurationError, match="does not belong to the first certificate"):
        credentials.client_contexts(**{"ssl.key.pem": key, "ssl.certificate.pem": chain})


@pytest.mark.parametrize("has_memfd", [True, False])
def test_no_file_remains(
    credentials: Credentials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_memfd: bool
) -> None:
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    open_before = set(os.listdir("/proc/self/fd"))
    seen: list[str] = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, certfile: Any, *arguments: Any, **options: Any) -> None:
            seen.append(str(certfile))
            assert os.stat(certfile).st_mode & 0o077 == 0 or has_memfd
            super().load_cert_chain(certfile, *arguments, **options)

    key, chain = parts(credentials.client)
    stores.load_identity(Context(ssl.PROTOCOL_TLS_CLIENT), stores.Identity(key + chain, None, "test"))
    assert seen[0].startswith("/proc/self/fd/" if has_memfd else str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert set(os.listdir("/proc/self/fd")) == open_before
