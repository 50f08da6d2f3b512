"""Typed errors for what goes wrong in TLS, with what the certificate says and what to check."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

from ..protocol.errors import DisconnectedError, KafkaError, SslAuthenticationError

_SELF_SIGNED, _SELF_SIGNED_IN_CHAIN = 18, 19  # X509_V_ERR_*, as in ssl.SSLCertVerificationError.verify_code
_NOT_YET_VALID, _EXPIRED, _REVOKED, _NO_CRL = 9, 10, 23, 3
_WRONG_NAME, _WRONG_ADDRESS = 62, 64
_UNKNOWN_ISSUER = (2, _SELF_SIGNED, _SELF_SIGNED_IN_CHAIN, 20, 21)

_VERSIONS_DIFFER = "the two ends have no TLS version in common; check ssl.enabled.protocols on both"
_CIPHERS_DIFFER = "the two ends have no cipher suite in common; check ssl.cipher.suites and the keys on both"
_REJECTED = "the {peer} rejected the certificate of this {own}: {why}"

#: Alerts of the peer (as OpenSSL names them) that are about this end's certificate.
_CERTIFICATE_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority that issued it; check the peer's truststore",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it finds it bad; check its names, its dates and its issuer",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it could not verify it; check its names, its dates and its issuer",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it was revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "its kind or its use is not accepted",
    "TLSV1_ALERT_DECRYPT_ERROR": "a signature made with its key is wrong; check that the key belongs to it",
    "TLSV1_ALERT_ACCESS_DENIED": "its owner has no access",
}
_VERSION_REASONS = (
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "WRONG_SSL_VERSION",
    "VERSION_TOO_LOW",
    "VERSION_TOO_HIGH",
)
_PLAINTEXT_REASONS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",
    "UNKNOWN_PROTOCOL",
    "PACKET_LENGTH_TOO_LONG",
    "BAD_RECORD_TYPE",
    "RECORD_LAYER_FAILURE",
    "ENCRYPTED_LENGTH_TOO_LONG",
)


def tls_error(
    error: Exception,
    ssl_object: Any,
    is_established: bool,
    *,
    name: str | None,
    trust: str,
    server_side: bool,
    has_certificate: bool,
) -> KafkaError:
    """The error to raise for `error`, which a transport's SSL object has raised, `is_established` after its handshake.

    `name` is the host name that a client verifies. `trust` describes the certificate authorities that were tried.
    `has_certificate` is false if this end is known to have none. A failed handshake is an SslAuthenticationError, which
    is not retried for callers that wait, and a connection that was cut is a DisconnectedError, which is.
    """
    peer, own = ("client", "broker") if server_side else ("broker", "client")
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return SslAuthenticationError(_rejection(error, ssl_object, peer, name, trust))
    if isinstance(error, (EOFError, ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return DisconnectedError("the TLS connection was cut" if is_established else _cut(server_side))
    if not isinstance(error, ssl.SSLError):
        if isinstance(error, OSError):
            return DisconnectedError(f"the connection broke during the TLS handshake: {error.strerror or error}")
        return SslAuthenticationError(f"TLS can't verify the host name {name!r}: {error}")
    reason = error.reason or str(error)
    why = _CERTIFICATE_ALERTS.get(reason)
    if why is not None and has_certificate:
        return SslAuthenticationError(_REJECTED.format(peer=peer, own=own, why=why))
    # Java complains about a missing certificate in TLS 1.2 as about a bad one
    if why is not None or reason in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        return SslAuthenticationError(
            "the client gave no certificate, which ssl.client.auth=required demands"
            if server_side
            else "the broker demands a client certificate; give ssl.keystore.location, or ssl.certificate.location "
            "and ssl.key.location"
        )
    if reason in _VERSION_REASONS:
        return SslAuthenticationError(_VERSIONS_DIFFER)
    if reason == "NO_SHARED_CIPHER":
        return SslAuthenticationError(_CIPHERS_DIFFER)
    if reason in ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_HANDSHAKE_FAILURE"):
        return SslAuthenticationError(
            f"the {peer} rejected the TLS handshake: it may demand a certificate of this {own}, or {_CIPHERS_DIFFER}"
        )
    if reason in _PLAINTEXT_REASONS and not is_established:
        return SslAuthenticationError(
            "the client does not speak TLS; set its security.protocol to SSL or SASL_SSL, or send it to a PLAINTEXT "
            f"listener ({reason})"
            if server_side
            else "the server answers without TLS; set security.protocol to PLAINTEXT or SASL_PLAINTEXT for this "
            f"listener, or use the broker's SSL listener ({reason})"
        )
    if is_established:
        return DisconnectedError(f"the TLS connection broke: {reason}")
    return SslAuthenticationError(f"the TLS handshake failed: {reason}")


def _cut(server_side: bool) -> str:
    if server_side:
        return "the client closed the connection during the TLS handshake; does it trust this broker's certificate?"
    return (
        "it closed the connection during the TLS handshake: check that the listener there is an SSL or SASL_SSL one (a "
        "PLAINTEXT listener ends connections like this), and the broker's log"
    )


def _rejection(error: ssl.SSLCertVerificationError, ssl_object: Any, peer: str, name: str | None, trust: str) -> str:
    code = getattr(error, "verify_code", 0)
    reason = (getattr(error, "verify_message", "") or str(error)).rstrip(".")
    text = [f"the certificate of the {peer} is rejected: {reason}"]
    described = describe_certificate(_unverified_certificate(ssl_object))
    if described:
        text.append(f"it is {described}")
    if code in _UNKNOWN_ISSUER:
        text.append(f"it was verified with {trust}")
        text.append("set ssl.truststore.location to a PEM file with the authority that issued it")
    elif code in (_WRONG_NAME, _WRONG_ADDRESS) or "ostname" in reason:
        text.append(
            f"connect to one of its names instead of {name!r} (brokers name themselves in advertised.listeners), or "
            "have it issued for this one"
        )
    elif code in (_EXPIRED, _NOT_YET_VALID):
        text.append("renew it, or set this machine's clock right")
    elif code == _NO_CRL:
        text.append("ssl.crlfile has no revocation list of its issuer")
    elif code != _REVOKED:
        text.append(f"it was verified with {trust}")
    return "; ".join(text)


def _unverified_certificate(ssl_object: Any) -> dict[str, Any] | None:
    """The peer's certificate after a failed verification. Python has no public way to its fields."""
    try:
        chain: Iterable[Any] | None = ssl_object._sslobj.get_unverified_chain()
        return next((each.get_info() for each in chain or ()), None)
    except (AttributeError, ValueError, ssl.SSLError):
        return None  # another implementation of SSL objects: the error goes without


def describe_certificate(fields: dict[str, Any] | None) -> str:
    """What a certificate says, from the dict of `getpeercert`: subject, names, issuer and validity."""
    if not fields:
        return ""
    names = ", ".join(str(value) for _, value in fields.get("subjectAltName", ()))
    return (
        f"for {distinguished_name(fields.get('subject', ())) or 'no subject'}"
        + (f" (names: {names})" if names else " (without names)")
        + f", issued by {distinguished_name(fields.get('issuer', ())) or 'no issuer'}"
        + f", valid from {fields.get('notBefore', '?')} to {fields.get('notAfter', '?')}"
    )


_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "1.2.840.113549.1.9.1",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "serialNumber": "2.5.4.5",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SPECIAL = ',+"\\<>;'


def distinguished_name(subject: Iterable[Iterable[tuple[str, str]]]) -> str:
    """A subject of `getpeercert` as RFC 2253 text, as Java's `X500Principal.getName`: the last part first."""
    parts = []
    for relative in subject:
        parts.append("+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in relative))
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    text = "".join(f"\\{each}" if each in _SPECIAL else each for each in value)
    if text[:1] in (" ", "#"):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(text) > 1 and text.endswith(" ") else text
