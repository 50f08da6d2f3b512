"""Builds TLS contexts from the configuration, and the transports that use them.

`TlsContexts` is one end's TLS: a client's, or that of one listener. The context is built when the object is made, on
the thread that makes it, so that a missing file or a wrong password is an error there and then. It is rebuilt when its
files have changed, by `refresh`: a client calls it on the thread that looks up names, before each connection, so that
the sender thread never reads a file. A broker calls it when it accepts a connection.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..protocol.errors import KafkaConfigurationError
from ..sockets.resolver import ResolvedAddress
from ..sockets.tls_transport_cy import TlsTransport
from .stores import Identity, authorities, certificates_of, key_of, keystore, load_identity, read_file
from .tls_config import SecurityConfig, TlsConfig
from .tls_errors import tls_error

_log = logging.getLogger(__name__)

#: Resolves a host and a port; may block.
LookUp = Callable[[str, int], Sequence[ResolvedAddress]]

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
#: The suites of TLS 1.3 that OpenSSL offers unless it is configured otherwise.
_DEFAULT_13 = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
_SUITES_13 = _DEFAULT_13 | {"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"}


@dataclass(frozen=True)
class TlsSettings:
    """What a context is built from. Pickles unless it has the user's own context."""

    config: TlsConfig
    server_side: bool = False
    verify: bool = True
    check_name: bool = True
    client_auth: str = "none"
    context: Any = field(default=None, repr=False)

    @classmethod
    def of_client(cls, config: SecurityConfig) -> TlsSettings:
        """The settings of a client's configuration."""
        verify = config.enable_ssl_certificate_verification
        return cls(
            config,
            verify=verify,
            check_name=verify and config.ssl_endpoint_identification_algorithm == "https",
            context=config.ssl_context,
        )

    @property
    def has_certificate(self) -> bool:
        """Whether this end has a certificate, as far as is known."""
        config = self.config
        given = (
            *(config.ssl_keystore_location, config.ssl_certificate_location, config.ssl_keystore_certificate_chain),
            self.context,
        )
        return any(each is not None for each in given)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths that the context is read from."""
        config = self.config
        given = (
            *(config.ssl_truststore_location, config.ssl_keystore_location, config.ssl_certificate_location),
            *(config.ssl_key_location, config.ssl_crlfile),
        )
        return tuple(os.path.expanduser(path) for path in given if path is not None)


class TlsContexts:
    """One end's TLS: its context, kept up to date with its files, and the transports that use it. Any thread."""

    def __init__(self, settings: TlsSettings) -> None:
        """Build the context. Blocks on the disk. Raises KafkaConfigurationError."""
        self._settings = settings
        self._lock = threading.Lock()
        self._signature = self._sign()
        self._context, self._trust = _build(settings)

    def refresh(self) -> None:
        """Rebuild the context if its files have changed. If that fails, log why and keep the old one."""
        if self._settings.context is not None or self._sign() == self._signature:
            return
        with self._lock:
            signature = self._sign()
            if signature == self._signature:
                return
            # also if it fails: the files are tried again once they change again
            self._signature = signature
            try:
                self._context, self._trust = _build(self._settings)
            except KafkaConfigurationError as error:
                _log.warning("The TLS files have changed, but can't be used; the previous ones stay in use: %s", error)
            else:
                _log.info("The TLS files have changed: new connections use them")

    def _sign(self) -> tuple[Any, ...]:
        signature = []
        for path in self._settings.files:
            try:
                found = os.stat(path)
                signature.append((found.st_ino, found.st_size, found.st_mtime_ns))
            except OSError:
                signature.append(None)
        return tuple(signature)

    def refreshing(self, look_up: LookUp) -> LookUp:
        """A name lookup that refreshes the context first, on the thread of the lookup."""

        def refresh_and_look_up(host: str, port: int) -> Sequence[ResolvedAddress]:
            self.refresh()
            return look_up(host, port)

        return refresh_and_look_up

    def transport(self, sock: socket.socket, host: str) -> TlsTransport:
        """The transport of a socket, which it owns from then on. `host` is the name to verify; "" on a broker."""
        # never None on a client: an SSL object without a name verifies none, whatever the context says
        name = None if self._settings.server_side else _name_to_verify(host)
        context, trust = self._context, self._trust
        return TlsTransport(
            sock,
            context,
            server_side=self._settings.server_side,
            server_name=name,
            explain=partial(
                tls_error,
                name=name,
                trust=trust,
                server_side=self._settings.server_side,
                has_certificate=self._settings.has_certificate,
            ),
        )


def _name_to_verify(host: str) -> str:
    """A host name or address as certificates have it: without the trailing dot and without an IPv6 zone."""
    return host.partition("%")[0] if ":" in host else host.rstrip(".")


# --- Building a context ---


def _build(settings: TlsSettings) -> tuple[Any, str]:
    """The context, and a description of the authorities that it trusts."""
    if settings.context is not None:
        return settings.context, "the authorities of ssl.context"
    config = settings.config
    context, trust = _trusting_server(settings) if settings.server_side else _trusting_client(settings)
    _set_versions_and_ciphers(context, config)
    context.options |= getattr(ssl, "OP_NO_RENEGOTIATION", 0) | ssl.OP_NO_COMPRESSION
    identity = _identity(config)
    if identity is not None:
        load_identity(context, identity)
    elif settings.server_side:
        raise KafkaConfigurationError("an SSL listener needs a certificate: give ssl.keystore.location")
    if config.ssl_crlfile is not None:
        _load_crl(context, config.ssl_crlfile)
    return context, trust


def _trusting_client(settings: TlsSettings) -> tuple[Any, str]:
    config = settings.config
    given = config.ssl_truststore_location is not None or config.ssl_truststore_certificates is not None
    if not given and settings.verify:
        context, trust = _system_store()
    else:
        context, trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ""
    context.check_hostname = settings.check_name
    if not settings.verify:
        context.verify_mode = ssl.CERT_NONE
        return context, "nothing"
    if given:
        trust = _load_authorities(context, config)
    return context, trust


def _trusting_server(settings: TlsSettings) -> tuple[Any, str]:
    config = settings.config
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth == "none":
        return context, "nothing"
    if config.ssl_truststore_location is None and config.ssl_truststore_certificates is None:
        raise KafkaConfigurationError(
            f"ssl.client.auth={settings.client_auth} needs the authorities of the clients' certificates: give "
            "ssl.truststore.location"
        )
    return context, _load_authorities(context, config)


def _system_store() -> tuple[Any, str]:
    try:
        import truststore  # noqa: PLC0415 - an extra
    except ImportError:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()
        paths = ssl.get_default_verify_paths()
        where = " and ".join(path for path in (paths.cafile, paths.capath) if path) or (
            f"which is missing: neither {paths.openssl_cafile} nor {paths.openssl_capath} exists"
        )
        return context, f"the system's store ({where})"
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "the system's store (through truststore)"


def _load_authorities(context: Any, config: TlsConfig) -> str:
    path = config.ssl_truststore_location
    # As in Java, any certificate of the truststore is an anchor, whether or not it signed itself.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if path is not None and os.path.isdir(os.path.expanduser(path)):
        context.load_verify_locations(capath=os.path.expanduser(path))
        return f"the certificates in the directory {path} (ssl.truststore.location)"
    if path is not None:
        trust = f"the certificates in {path} (ssl.truststore.location)"
        pem = authorities(path, config.ssl_truststore_password, config.ssl_truststore_type)
    else:
        trust = "the certificates of ssl.truststore.certificates"
        pem = certificates_of(config.ssl_truststore_certificates or "", "ssl.truststore.certificates")
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:
        raise KafkaConfigurationError(f"{trust} can't be used: {getattr(error, 'reason', None) or error}") from None
    return trust


def _identity(config: TlsConfig) -> Identity | None:
    """This end's certificate chain and key; None if it has none."""
    if config.ssl_keystore_location is not None:
        return keystore(
            config.ssl_keystore_location,
            config.ssl_keystore_password,
            config.ssl_key_password,
            config.ssl_keystore_type,
        )
    chain, chain_source = _chain(config)
    if chain is None:
        return None
    text, source = chain, chain_source  # one file may have both
    if config.ssl_key_location is not None:
        source = f"ssl.key.location: {config.ssl_key_location}"
        text = read_file(config.ssl_key_location, "ssl.key.location").decode("utf-8", "replace")
    elif config.ssl_keystore_key is not None:
        text, source = config.ssl_keystore_key, "ssl.keystore.key"
    return Identity(key_of(text, source) + certificates_of(chain, chain_source), config.ssl_key_password, chain_source)


def _chain(config: TlsConfig) -> tuple[str | None, str]:
    path = config.ssl_certificate_location
    if path is not None:
        text = read_file(path, "ssl.certificate.location").decode("utf-8", "replace")
        return text, f"ssl.certificate.location: {path}"
    return config.ssl_keystore_certificate_chain, "ssl.keystore.certificate.chain"


def _load_crl(context: Any, path: str) -> None:
    if b"-----BEGIN X509 CRL-----" not in read_file(path, "ssl.crlfile"):
        raise KafkaConfigurationError(f"ssl.crlfile: {path} has no revocation list (-----BEGIN X509 CRL-----)")
    try:
        context.load_verify_locations(cafile=os.path.expanduser(path))
    except ssl.SSLError as error:
        raise KafkaConfigurationError(f"ssl.crlfile: {path} can't be used: {error.reason}") from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _set_versions_and_ciphers(context: Any, config: TlsConfig) -> None:
    versions = set(config.ssl_enabled_protocols)
    suites_13 = [name for name in config.ssl_cipher_suites if name.upper() in _SUITES_13]
    suites_12 = [name for name in config.ssl_cipher_suites if name.upper() not in _SUITES_13]
    if config.ssl_cipher_suites:
        versions -= {"TLSv1.3"} if not suites_13 else set()
        versions -= {"TLSv1.2"} if not suites_12 else set()
        if not versions:
            raise KafkaConfigurationError(
                f"ssl.cipher.suites ({', '.join(config.ssl_cipher_suites)}) has no suite of "
                f"{' or '.join(config.ssl_enabled_protocols)}, which is all that ssl.enabled.protocols and "
                "ssl.protocol allow"
            )
    if suites_13 and "TLSv1.3" in versions:
        _choose_13(context, suites_13)
    if suites_12 and "TLSv1.2" in versions:
        try:
            context.set_ciphers(":".join(map(openssl_name, suites_12)))
        except ssl.SSLError:
            raise KafkaConfigurationError(
                f"ssl.cipher.suites: OpenSSL knows none of {', '.join(suites_12)}; `openssl ciphers -stdname` lists "
                "the names"
            ) from None
    context.minimum_version = _VERSIONS[min(versions)]
    context.maximum_version = _VERSIONS[max(versions)]


def _choose_13(context: Any, suites: list[str]) -> None:
    names = [name.upper() for name in suites]
    choose = getattr(context, "set_ciphersuites", None)  # since Python 3.15
    if choose is not None:
        choose(":".join(names))
    elif set(names) != _DEFAULT_13:
        raise KafkaConfigurationError(
            f"ssl.cipher.suites: this Python can't choose among the suites of TLS 1.3 ({', '.join(suites)}), which "
            f"needs Python 3.15; name all of {', '.join(sorted(_DEFAULT_13))}, or set ssl.enabled.protocols=TLSv1.2 "
            "and name suites of TLS 1.2"
        )


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite, from that of the standard, which Java uses. Any other is returned as it is."""
    name = suite.upper()
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return suite
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("ARIA_", "ARIA")
    cipher = cipher.replace("CAMELLIA_128", "CAMELLIA128").replace("CAMELLIA_256", "CAMELLIA256")
    cipher = cipher.replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    if "_CCM" in cipher:
        cipher = cipher.replace("_CCM_8", "_CCM8")
    parts = [] if exchange == "RSA" else exchange.split("_")
    return "-".join([*parts, *cipher.split("_")])
