"""TLS of a broker's listeners, and of its connections to other brokers."""

from __future__ import annotations

from typing import Any

from ...network.client.blocking_connection import OpenSocket
from ...network.security.tls_config import TLS_PROTOCOLS
from ...network.sockets.transport import Transport
from ..config.broker_config import BrokerConfig
from ..config.broker_tls_config import BrokerTlsConfig, overrides_of
from ..config.principal import ANONYMOUS
from ..config.principal_rules import map_principal


class ListenerTls:
    """TLS of one listener: the transports of its connections, and the principals of its clients' certificates."""

    def __init__(self, config: BrokerTlsConfig) -> None:
        """Load the certificates. Blocks on the disk. Raises KafkaConfigurationError."""
        from ...network.security.tls import TlsContexts, TlsSettings  # noqa: PLC0415 - it imports ssl

        self._rules = config.ssl_principal_mapping_rules
        self._contexts = TlsContexts(TlsSettings(config, server_side=True, client_auth=config.ssl_client_auth))

    def transport(self, sock: Any) -> Transport:
        """The transport of an accepted socket, with the certificates that are in the files now. Any thread."""
        self._contexts.refresh()
        return self._contexts.transport(sock, "")

    def principal(self, transport: Any) -> str:
        """The principal of a connection whose handshake is complete."""
        from ...network.security.tls_errors import distinguished_name  # noqa: PLC0415 - it imports ssl

        certificate = transport.ssl_object.getpeercert()
        if not certificate:
            return ANONYMOUS
        name = map_principal(self._rules, distinguished_name(certificate.get("subject", ())))
        return ANONYMOUS if name is None else f"User:{name}"


def tls_of_listener(config: BrokerConfig, listener: str) -> ListenerTls | None:
    """TLS of a listener; None if it is not encrypted. Raises KafkaConfigurationError."""
    if config.protocol_of(listener) not in TLS_PROTOCOLS:
        return None
    return ListenerTls(config.tls_with(overrides_of(listener, config.listener_settings)))


def inter_broker_opener(config: BrokerConfig, listener: str, open_socket: OpenSocket) -> OpenSocket:
    """What opens connections to other brokers' `listener`: `open_socket`, with TLS if the listener has it.

    Raises KafkaConfigurationError.
    """
    if config.protocol_of(listener) not in TLS_PROTOCOLS:
        return open_socket
    from ...network.client.tls_socket import tls_opener  # noqa: PLC0415 - it imports ssl
    from ...network.security.tls import TlsContexts, TlsSettings  # noqa: PLC0415

    tls = config.tls_with(overrides_of(listener, config.listener_settings))
    settings = TlsSettings(tls, check_name=tls.ssl_endpoint_identification_algorithm == "https")
    return tls_opener(TlsContexts(settings), open_socket)
