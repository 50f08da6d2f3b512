"""What the TLS step reports about a broker's certificate."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from ...network.addresses import Address
from ...network.clock import SYSTEM_CLOCK
from ...network.security.tls_errors import distinguished_name
from ...producer.config import ProducerConfig
from .findings import Findings, Step

_SOON_DAYS = 30


def report_certificates(
    ssl_object: Any, config: ProducerConfig, target: str, elapsed_ms: float, findings: Findings
) -> None:
    """Report the chain, the names and the expiry of the certificates of an established connection."""
    version, cipher = ssl_object.version(), (ssl_object.cipher() or ("?",))[0]
    fields = ssl_object.getpeercert()
    if not fields:
        findings.warn(
            Step.TLS,
            target,
            f"{version}, {cipher}, in {elapsed_ms:g} ms; the certificate is not verified",
            "enable.ssl.certificate.verification=false lets anybody pose as the broker; set it to true",
            version=version,
            cipher=cipher,
        )
        return
    names = [str(value) for _, value in fields.get("subjectAltName", ())]
    subject, issuer = (distinguished_name(fields.get(name, ())) for name in ("subject", "issuer"))
    chain = _chain_of(ssl_object)
    facts = {
        "version": version,
        "cipher": cipher,
        "subject": subject,
        "issuer": issuer,
        "names": names,
        "not_after": fields.get("notAfter"),
        "chain": chain,
        "elapsed_ms": elapsed_ms,
    }
    findings.ok(
        Step.TLS,
        target,
        f"{version}, {cipher}, in {elapsed_ms:g} ms; the certificate is for {', '.join(names) or subject}, issued by "
        f"{issuer or 'no issuer'}, valid until {fields.get('notAfter', '?')}",
        **facts,
    )
    if config.ssl_endpoint_identification_algorithm != "https":
        findings.warn(
            Step.TLS,
            target,
            "the host name is not compared with the certificate",
            "an empty ssl.endpoint.identification.algorithm accepts any certificate of a trusted authority",
        )
    for described, not_after in chain:
        days = _days_left(not_after)
        if days is not None and days < _SOON_DAYS:
            findings.warn(
                Step.TLS, target, f"the certificate of {described} expires in {days:.0f} days", "renew it soon"
            )


def tls_version_of(address: Address, timeout_s: float) -> str | None:
    """The TLS version that a server speaks, whatever its certificate; None if it speaks none or can't be reached."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, timeout_s) as sock,
            context.wrap_socket(sock, server_hostname=address.host) as tls,
        ):
            return tls.version()
    except (OSError, ValueError):
        return None


def _chain_of(ssl_object: Any) -> list[tuple[str, str]]:
    """The subject and the expiry of each verified certificate, the broker's first."""
    try:
        # public only since Python 3.13, and not on an SSLObject of older ones
        verified = ssl_object._sslobj.get_verified_chain()
        fields = [each.get_info() for each in verified or ()]
    except (AttributeError, ValueError, ssl.SSLError):
        # another implementation of SSL objects: only the broker's certificate is described
        fields = [ssl_object.getpeercert()]
    return [
        (distinguished_name(each.get("subject", ())) or "no subject", str(each.get("notAfter", ""))) for each in fields
    ]


def _days_left(not_after: str) -> float | None:
    try:
        return (ssl.cert_time_to_seconds(not_after) - SYSTEM_CLOCK.wall_ms() / 1000.0) / 86_400.0
    except ValueError:
        return None
