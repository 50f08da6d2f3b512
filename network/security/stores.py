"""Reads certificates and private keys: PEM and PKCS12 files, and inline PEM.

OpenSSL, as Python wraps it, loads a certificate chain only from a path. `load_identity` gives it that of a file in
memory, so that inline keys and those of a PKCS12 file are never on a disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..protocol.errors import KafkaConfigurationError
from .tls_config import how_to_convert

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARACTERS = 64


class Identity(NamedTuple):
    """A certificate chain with its private key, in PEM format, and the password of the key."""

    pem: str
    password: str | None
    source: str

    def __repr__(self) -> str:
        return f"Identity(source={self.source!r})"


def read_file(path: str, key: str) -> bytes:
    """The content of the file that `key` names. Blocks on the disk. Raises KafkaConfigurationError."""
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise KafkaConfigurationError(f"{key}: the file {path} can't be read ({error.strerror})") from error


def pem_blocks(text: str, label: str) -> list[str]:
    """The PEM blocks whose label ends in `label`, each with line breaks as OpenSSL expects them.

    KIP-651 allows any whitespace for them, because a value in a properties file is one line.
    """
    blocks = []
    for name, body in _BLOCK.findall(text):
        if name.endswith(label):
            # headers ("Proc-Type: 4,ENCRYPTED") are kept with their lines
            data = body if ":" in body else f"\n{_wrapped(''.join(body.split()))}\n"
            blocks.append(f"-----BEGIN {name}-----{data}-----END {name}-----\n")
    return blocks


def _wrapped(data: str) -> str:
    return "\n".join(data[at : at + _LINE_CHARACTERS] for at in range(0, len(data), _LINE_CHARACTERS))


def _as_pem(data: bytes, path: str, key: str, declared: str | None) -> str | None:
    """The text of a PEM file; None for a PKCS12 file. Raises KafkaConfigurationError for any other."""
    if data.startswith(_JKS_MAGIC):
        raise KafkaConfigurationError(f"{key}: {path} is a Java keystore (JKS). {how_to_convert(path)}")
    found = PEM if b"-----BEGIN " in data else PKCS12 if data[:1] == b"\x30" else None
    if found is None:
        raise KafkaConfigurationError(f"{key}: {path} is neither a PEM file nor a PKCS12 file ({len(data)} bytes)")
    if declared not in (None, found):
        type_key = f"{key.removesuffix('location')}type"
        raise KafkaConfigurationError(f"{key}: {path} is a {found} file, but {type_key} is {declared}; leave that out")
    return data.decode("utf-8", "replace") if found == PEM else None


def _open_pkcs12(data: bytes, password: str | None, path: str, key: str) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - an extra
    except ImportError:
        raise KafkaConfigurationError(
            f"{key}: {path} is a PKCS12 file, which needs the cryptography package: pip install 'headrace[pkcs12]', or "
            f"convert it: openssl pkcs12 -in {path} -out store.pem"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        password_key = f"{key.removesuffix('location')}password"
        reason = f"{password_key} is not set" if password is None else f"{password_key} is wrong, or it is damaged"
        raise KafkaConfigurationError(f"{key}: the PKCS12 file {path} can't be opened: {reason}") from error


def authorities(path: str, password: str | None, declared: str | None, key: str = "ssl.truststore.location") -> str:
    """The certificates of a truststore, as PEM text. Blocks on the disk. Raises KafkaConfigurationError."""
    data = read_file(path, key)
    text = _as_pem(data, path, key, declared)
    if text is not None:
        return certificates_of(text, f"{key}: {path}")
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - an extra, which is there

    store = _open_pkcs12(data, password, path, key)
    found = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    if not found:
        raise KafkaConfigurationError(f"{key}: {path} has no certificate")
    return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in found)


def certificates_of(text: str, source: str) -> str:
    """The certificates in PEM text. Raises KafkaConfigurationError if it has none."""
    found = pem_blocks(text, "CERTIFICATE")
    if not found:
        raise KafkaConfigurationError(f"{source} has no certificate (-----BEGIN CERTIFICATE-----)")
    return "".join(found)


def key_of(text: str, source: str) -> str:
    """The private key in PEM text. Raises KafkaConfigurationError if it has none."""
    found = pem_blocks(text, "PRIVATE KEY")
    if not found:
        raise KafkaConfigurationError(f"{source} has no private key (-----BEGIN PRIVATE KEY-----)")
    return found[0]


def keystore(path: str, store_password: str | None, key_password: str | None, declared: str | None) -> Identity:
    """The identity in a PEM or PKCS12 file. Blocks on the disk. Raises KafkaConfigurationError."""
    key = "ssl.keystore.location"
    data = read_file(path, key)
    text = _as_pem(data, path, key, declared)
    source = f"{key}: {path}"
    if text is not None:
        return Identity(key_of(text, source) + certificates_of(text, source), key_password or store_password, source)
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an extra, which is there

    store = _open_pkcs12(data, store_password, path, key)
    if store.key is None or store.cert is None:
        raise KafkaConfigurationError(f"{source} has no private key with its certificate")
    # even the file in memory has the key only encrypted
    password = secrets.token_urlsafe(16)
    private = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    chain = [store.cert, *store.additional_certs]
    pem = b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in chain)
    return Identity((private + pem).decode(), password, source)


def load_identity(context: Any, identity: Identity) -> None:
    """Load the chain and the key into a context. Raises KafkaConfigurationError."""
    asked = False

    def password() -> str:
        # without a function, OpenSSL would ask on the terminal
        nonlocal asked
        asked = True
        return identity.password or ""

    with _file_in_memory(identity.pem.encode()) as path:
        try:
            context.load_cert_chain(path, password=password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            if asked and not identity.password:
                reason = "the private key is encrypted, but ssl.key.password is not set"
            elif asked:
                reason = f"the private key can't be decrypted; is ssl.key.password right? ({reason})"
            elif reason == "KEY_VALUES_MISMATCH":
                reason = "the private key does not belong to the first certificate of the chain"
            raise KafkaConfigurationError(f"{identity.source} can't be used: {reason}") from None


@contextlib.contextmanager
def _file_in_memory(data: bytes) -> Iterator[str]:
    """The path of a file with this content, which no other user can open and which is gone afterwards."""
    create = getattr(os, "memfd_create", None)
    if create is not None and os.path.isdir("/proc/self/fd"):
        fd = create("headrace")
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    fd, path = tempfile.mkstemp(prefix="headrace-")  # for this user only
    try:
        os.write(fd, data)
        os.close(fd)
        yield path
    finally:
        os.unlink(path)
