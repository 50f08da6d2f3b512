"""Contexts: who is trusted, under which names, in which versions; files that change; the errors."""

from __future__ import annotations

import datetime
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from support.tls import Credentials, TlsPair

from headrace.network.protocol.errors import DisconnectedError, KafkaConfigurationError, SslAuthenticationError
from headrace.network.security.tls import openssl_name

LONG_AGO = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
FAR_AHEAD = datetime.datetime(2999, 1, 1, tzinfo=datetime.timezone.utc)

Agree = Callable[..., TlsPair]


@pytest.fixture
def pairs() -> Any:
    opened: list[TlsPair] = []
    yield opened
    for each in opened:
        each.close()


@pytest.fixture
def connect(credentials: Credentials, pairs: list[TlsPair]) -> Agree:
    """Shakes hands between a client and a server with these keys; raises what either raises first."""

    def connect(
        client: dict[str, Any] | None = None, server: dict[str, Any] | None = None, host: str = "localhost"
    ) -> TlsPair:
        pair = TlsPair(
            credentials.client_contexts(**(client or {})), credentials.server_contexts(**(server or {})), host
        )
        pairs.append(pair)
        pair.shake_hands()
        return pair

    return connect


# --- Names ---


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST", "127.0.0.1", "::1"])
def test_names_that_the_certificate_has(connect: Agree, host: str) -> None:
    connect(host=host)


@pytest.mark.parametrize("host", ["example.com", "127.0.0.2", "::2", "localhost.example.com"])
def test_names_that_it_does_not_have(connect: Agree, host: str) -> None:
    with pytest.raises(SslAuthenticationError, match=r"names: localhost, 127\.0\.0\.1") as caught:
        connect(host=host)
    assert repr(host) in str(caught.value)
    connect({"ssl_check_hostname": False}, host=host)


@pytest.mark.parametrize("host", ["", "a..b", ".com"])
def test_names_that_no_certificate_can_have(connect: Agree, host: str) -> None:
    with pytest.raises(SslAuthenticationError, match="can't verify the host name"):
        connect(host=host)


@pytest.mark.parametrize(("host", "sent"), [("localhost.", "localhost"), ("127.0.0.1", None)])
def test_the_name_that_the_server_is_told(
    credentials: Credentials, pairs: list[TlsPair], host: str, sent: str | None
) -> None:
    seen: list[str | None] = []
    server = credentials.server_contexts()
    server._context.sni_callback = lambda _object, name, _context: seen.append(name)
    for client in (credentials.client_contexts(), credentials.client_contexts(ssl_check_hostname=False)):
        pairs.append(TlsPair(client, server, host))
        pairs[-1].shake_hands()
    assert seen == [sent, sent]


# --- Trust ---


def test_no_truststore_is_the_systems_store(connect: Agree) -> None:
    with pytest.raises(SslAuthenticationError, match=r"verified with the system's store") as caught:
        connect({"ssl.ca.pem": None})
    assert "Headrace throw-away authority" in str(caught.value)
    assert "ssl.truststore.location" in str(caught.value)


def test_the_store_that_was_tried_is_named(connect: Agree, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    with pytest.raises(SslAuthenticationError, match=r"verified with the certificates in .*other.pem"):
        connect({"ssl_cafile": str(other)})


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ({"not_after": LONG_AGO}, "has expired.*valid from .* to Jan  1 00:00:00 2001"),
        ({"not_before": FAR_AHEAD}, "not yet valid.*valid from Jan  1 00:00:00 2999"),
    ],
)
def test_certificates_outside_their_time(
    credentials: Credentials, connect: Agree, bounds: dict[str, Any], text: str
) -> None:
    path = credentials.authority.issue_server(name="outside", **bounds)
    with pytest.raises(SslAuthenticationError, match=text):
        connect(server={"ssl.keystore.location": str(path)})


def test_any_certificate_of_the_truststore_is_trusted(credentials: Credentials, connect: Agree, tmp_path: Path) -> None:
    """As in Java: also the server's own, which did not sign itself."""
    text = Path(credentials.server).read_text()
    own = tmp_path / "own.pem"
    own.write_text(text[text.index("-----BEGIN CERTIFICATE") :])
    connect({"ssl_cafile": str(own)})


def test_without_verification_anything_is_accepted(connect: Agree) -> None:
    connect({"ssl.ca.pem": None, "enable.ssl.certificate.verification": "false"}, host="example.com")


def test_a_directory_of_authorities(credentials: Credentials, connect: Agree, tmp_path: Path) -> None:
    subject = x509.load_pem_x509_certificate(Path(credentials.ca).read_bytes())
    assert subject
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(credentials.ca)
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command")
    shutil.copy(credentials.ca, tmp_path / "ca.pem")
    assert os.spawnl(os.P_WAIT, openssl, "openssl", "rehash", str(tmp_path)) == 0
    connect({"ssl.ca.location": str(tmp_path)})


def revocations(directory: Path, authority: Any, *serials: int) -> str:
    """A revocation list of an authority of trustme."""
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateRevocationListBuilder(
        x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject, now, now + datetime.timedelta(days=1)
    )
    for serial in serials:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        )
    key: Any = load_pem_private_key(authority.private_key_pem.bytes(), None)
    path = directory / "revoked.crl"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return str(path)


def test_revoked_certificates(credentials: Credentials, connect: Agree, tmp_path: Path) -> None:
    authority = credentials.authority._authority
    serial = x509.load_pem_x509_certificate(
        Path(credentials.server).read_bytes()[Path(credentials.server).read_bytes().index(b"-----BEGIN CERT") :]
    ).serial_number
    connect({"ssl_crlfile": revocations(tmp_path, authority)})
    with pytest.raises(SslAuthenticationError, match="certificate revoked"):
        connect({"ssl_crlfile": revocations(tmp_path, authority, serial)})


def test_a_revocation_list_of_another_authority(connect: Agree, tmp_path: Path) -> None:
    with pytest.raises(SslAuthenticationError, match=r"ssl\.crlfile has no revocation list of its issuer"):
        connect({"ssl_crlfile": revocations(tmp_path, trustme.CA(organization_name="other"))})


def test_a_file_without_revocation_lists(credentials: Credentials, connect: Agree) -> None:
    with pytest.raises(KafkaConfigurationError, match="has no revocation list"):
        connect({"ssl_crlfile": credentials.ca})


# --- Client certificates ---

REQUIRED = {"ssl_client_auth": "required"}


def trusting(credentials: Credentials, **keys: Any) -> dict[str, Any]:
    return {"ssl_truststore_location": credentials.ca, **keys}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_required_client_certificate_that_is_missing(
    credentials: Credentials, pairs: list[TlsPair], version: str
) -> None:
    pair = TlsPair(
        credentials.client_contexts(ssl_enabled_protocols=version),
        credentials.server_contexts(**trusting(credentials, **REQUIRED)),
    )
    pairs.append(pair)
    with pytest.raises(SslAuthenticationError, match=r"gave no certificate|demand"):
        pair.shake_hands()
    if version == "TLSv1.3":
        # the client's own handshake is complete before the server has seen that there is no certificate
        pair.relay()
        with pytest.raises(SslAuthenticationError, match=r"demands a client certificate; give ssl\.keystore"):
            pair.client.read_into(memoryview(bytearray(100)))


def test_a_client_certificate_of_an_unknown_authority(credentials: Credentials, connect: Agree, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().issue_cert("x@y.z").private_key_and_cert_chain_pem.write_to_path(str(stranger))
    with pytest.raises(SslAuthenticationError, match="certificate of the client is rejected"):
        connect({"ssl_keystore_location": str(stranger)}, trusting(credentials, **REQUIRED))


def test_client_auth_needs_a_truststore(credentials: Credentials) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"ssl\.client\.auth=required needs the authorities"):
        credentials.server_contexts(**REQUIRED)


def test_a_listener_needs_a_certificate(credentials: Credentials) -> None:
    with pytest.raises(KafkaConfigurationError, match="an SSL listener needs a certificate"):
        credentials.server_contexts(ssl_keystore_location=None)


# --- Versions and suites ---


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_versions(connect: Agree, version: str) -> None:
    pair = connect({"ssl_enabled_protocols": version})
    assert pair.client.ssl_object.version() == version
    for size in (1, 16_384, 300_000):
        assert pair.transfer([b"x" * size]) == b"x" * size
        assert pair.transfer([b"y" * size], to_client=True) == b"y" * size


def test_no_version_in_common(connect: Agree) -> None:
    with pytest.raises(SslAuthenticationError, match="no TLS version in common"):
        connect({"ssl_enabled_protocols": "TLSv1.3"}, {"ssl_enabled_protocols": "TLSv1.2"})


def test_no_suite_in_common(connect: Agree) -> None:
    with pytest.raises(SslAuthenticationError, match="no cipher suite in common"):
        connect(
            {"ssl_cipher_suites": "ECDHE-ECDSA-AES128-GCM-SHA256"},
            {"ssl_cipher_suites": "ECDHE-ECDSA-AES256-GCM-SHA384"},
        )


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"])
def test_suites_of_tls_12_switch_tls_13_off(connect: Agree, suite: str) -> None:
    assert connect({"ssl_cipher_suites": suite}).client.ssl_object.cipher()[:2] == (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLSv1.2",
    )


def test_suites_of_tls_13_are_all_or_an_error(connect: Agree) -> None:
    all_of_them = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    assert connect({"ssl_cipher_suites": all_of_them}).client.ssl_object.version() == "TLSv1.3"
    if not hasattr(ssl.SSLContext, "set_ciphersuites"):
        with pytest.raises(KafkaConfigurationError, match=r"needs Python 3\.15"):
            connect({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"})


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"ssl_cipher_suites": "NO-SUCH"}, "OpenSSL knows none of NO-SUCH"),
        ({"ssl_cipher_suites": "AES128-SHA", "ssl_enabled_protocols": "TLSv1.3"}, "has no suite of TLSv1.3"),
    ],
)
def test_suites_that_cannot_be_used(connect: Agree, keys: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=text):
        connect(keys)


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8", "ECDHE-ECDSA-AES256-CCM8"),
        ("HIGH", "HIGH"),
    ],
)
def test_suites_have_two_names(standard: str, openssl: str) -> None:
    assert openssl_name(standard) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers(f"{openssl}:@SECLEVEL=0")


# --- The user's own context ---


def test_a_context_of_the_users(credentials: Credentials, connect: Agree) -> None:
    context = ssl.create_default_context(cafile=credentials.ca)
    pair = connect({"ssl_context": context})
    assert pair.transfer([b"hello"]) == b"hello"


# --- Files that change ---


def test_changed_files_are_used_for_new_connections(
    credentials: Credentials, pairs: list[TlsPair], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    other = Credentials(tmp_path)
    path = tmp_path / "current.pem"
    shutil.copy(credentials.server, path)
    server = credentials.server_contexts(ssl_keystore_location=str(path))

    def connect(trusting: Credentials) -> None:
        server.refresh()
        pairs.append(TlsPair(trusting.client_contexts(), server))
        pairs[-1].shake_hands()

    connect(credentials)
    established = pairs[-1]
    path.write_text("half a file")
    connect(credentials)
    connect(credentials)
    assert [record.message for record in caplog.records if "can't be used" in record.message] == [
        f"The TLS files have changed, but can't be used; the previous ones stay in use: ssl.keystore.location: {path} "
        "is neither a PEM file nor a PKCS12 file (11 bytes)"
    ]
    shutil.copy(other.server, path)
    connect(other)
    assert established.transfer([b"still there"]) == b"still there"


# --- Peers that do not speak TLS, or stop ---


def test_a_server_that_answers_in_plaintext(credentials: Credentials, pairs: list[TlsPair]) -> None:
    pair = TlsPair(credentials.client_contexts(), credentials.server_contexts())
    pairs.append(pair)
    pair.client.handshake()
    pair._client_end.sendall(b"\x00\x00\x00\x10" + bytes(16))
    with pytest.raises(SslAuthenticationError, match=r"the server answers without TLS; set security.protocol"):
        pair.client.handshake()


def test_a_client_that_speaks_plaintext(credentials: Credentials, pairs: list[TlsPair]) -> None:
    pair = TlsPair(credentials.client_contexts(), credentials.server_contexts())
    pairs.append(pair)
    pair._server_end.sendall(b"\x00\x00\x00\x20\x00\x12\x00\x04" + bytes(28))
    with pytest.raises(SslAuthenticationError, match="the client does not speak TLS"):
        pair.server.handshake()


def test_a_connection_that_is_cut_in_the_handshake(credentials: Credentials, pairs: list[TlsPair]) -> None:
    pair = TlsPair(credentials.client_contexts(), credentials.server_contexts())
    pairs.append(pair)
    pair.client.handshake()
    pair._client_end.close()
    with pytest.raises(DisconnectedError, match=r"closed the connection during the TLS handshake|broke during the TLS"):
        pair.client.handshake()
