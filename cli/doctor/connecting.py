"""The steps of one connection: name, TCP, TLS, ApiVersions, SASL, and a first request."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from ...network.addresses import Address
from ...network.client.api_versions import CLIENT_SOFTWARE_NAME
from ...network.client.blocking_connection import BlockingConnection, BlockingSocket, OpenSocket, open_plaintext_socket
from ...network.client.tls_socket import TlsSocket, tls_opener
from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import (
    AuthenticationError,
    DisconnectedError,
    KafkaError,
    NotKafkaError,
    SslAuthenticationError,
    UnresolvableHostError,
    UnsupportedSaslMechanismError,
)
from ...network.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ...network.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ...network.security.mechanism import Credentials
from ...network.security.sasl_config import SASL_PROTOCOLS, credentials_of
from ...network.security.tls import TlsContexts, TlsSettings
from ...network.sockets.channel_cy import connect_error
from ...network.sockets.resolver import ResolvedAddress, resolve_host
from ...producer.config import ProducerConfig
from ..client import metadata_request
from ..parallel import within
from .certificates import report_certificates, tls_version_of
from .findings import Findings, Step, Stopwatch
from .kafka_release import release_of

_MAX_RESPONSE_BYTES = 256 * 2**20
_NO_ANSWER_ADVICE = "check the address, the network and its firewalls: something drops the packets"
_ONE_OF_SEVERAL_ADVICE = (
    "a client that tries this address first loses time; remove it from the name service, or let the broker listen there"
)


class Connector:
    """Makes connections step by step. `close` ends the fetching of credentials."""

    def __init__(self, config: ProducerConfig, timeout_ms: float) -> None:
        """Read the files of TLS and make the credentials. Raises KafkaConfigurationError.

        `timeout_ms` bounds each step.
        """
        self.config = config
        self.timeout_ms = timeout_ms
        self._contexts = TlsContexts(TlsSettings.of_client(config)) if config.uses_tls else None
        self._open: OpenSocket = open_plaintext_socket if self._contexts is None else tls_opener(self._contexts)
        self.credentials: Credentials | None = credentials_of(config, SYSTEM_CLOCK)
        if self.credentials is not None:
            self.credentials.start(lambda: None)

    def close(self) -> None:
        if self.credentials is not None:
            self.credentials.close()

    def connect(self, address: Address, findings: Findings) -> tuple[BlockingConnection, MetadataResponse] | None:
        """A connection that has answered a request for metadata; None if a step failed. Adds a finding per step."""
        resolved = self._resolve(address, findings)
        sock = self._reach(address, resolved, findings) if resolved else None
        opened = self._secure(address, sock, findings) if sock is not None else None
        if opened is None:
            return None
        connection = self._greet(address, opened, findings)
        if connection is not None and self.credentials is not None:
            connection.close()
            connection = self._authenticate(address, self.credentials, findings)
        return None if connection is None else self._ask(address, connection, findings)

    def _new_connection(
        self, address: Address, open_socket: OpenSocket, credentials: Credentials | None
    ) -> BlockingConnection:
        return BlockingConnection(
            address,
            client_id=CLIENT_SOFTWARE_NAME,
            timeout_ms=self.timeout_ms,
            max_response_bytes=_MAX_RESPONSE_BYTES,
            open_socket=open_socket,
            credentials=credentials,
        )

    # --- The steps ---

    def _resolve(self, address: Address, findings: Findings) -> Sequence[ResolvedAddress]:
        host, port = address
        why = ""
        resolved: Sequence[ResolvedAddress] = ()
        with Stopwatch() as watch:
            try:
                resolved = within(lambda: resolve_host(host, port), self.timeout_ms / 1000.0)
            except TimeoutError:
                why = f"the name service did not answer within {self.timeout_ms:.0f} ms"
            except UnresolvableHostError as error:
                why = str(error.__cause__ or error)
        if not resolved:
            findings.fail(
                Step.NAME,
                str(address),
                f"{host} has no address: {why}",
                "check the spelling, this machine's hosts file and its name servers",
            )
            return ()
        found = [str(each.sockaddr[0]) for each in resolved]
        text = f"{host} is {', '.join(found)}" if found != [host] else f"{host} is an address"
        findings.ok(Step.NAME, str(address), text, addresses=found, elapsed_ms=watch.ms)
        return resolved

    def _reach(self, address: Address, resolved: Sequence[ResolvedAddress], findings: Findings) -> socket.socket | None:
        """The first connection that is accepted. Tries every address of the name."""
        connected: socket.socket | None = None
        failures: list[tuple[str, str]] = []
        for family, sockaddr in resolved:
            shown = str(Address(sockaddr[0], sockaddr[1]))
            sock: socket.socket | None = None
            with Stopwatch() as watch:
                try:
                    sock = socket.socket(family, socket.SOCK_STREAM)
                    sock.settimeout(self.timeout_ms / 1000.0)
                    sock.connect(sockaddr)
                except OSError as error:
                    if sock is not None:
                        sock.close()
                    if isinstance(error, TimeoutError):
                        failures.append((f"{shown} did not answer within {self.timeout_ms:.0f} ms", _NO_ANSWER_ADVICE))
                    else:
                        failures.append((str(connect_error(shown, error)), ""))
                    continue
            findings.ok(Step.TCP, str(address), f"{shown} accepts connections, in {watch.ms:g} ms", elapsed_ms=watch.ms)
            if connected is None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected = sock
            else:
                sock.close()
        for text, advice in failures:
            if connected is None:
                findings.fail(Step.TCP, str(address), text, advice)
            else:
                findings.warn(Step.TCP, str(address), text, _ONE_OF_SEVERAL_ADVICE)
        return connected

    def _secure(self, address: Address, sock: socket.socket, findings: Findings) -> BlockingSocket | None:
        contexts = self._contexts
        if contexts is None:
            findings.skip(Step.TLS, str(address), f"security.protocol={self.config.security_protocol} has no TLS")
            return sock
        opened: list[Any] = []
        with Stopwatch() as watch:
            try:
                opened.append(tls_opener(contexts, lambda *_: sock)(address, self.timeout_ms / 1000.0))
            except KafkaError as error:
                advice = self._plaintext_advice(address) if isinstance(error, DisconnectedError) else ""
                findings.fail(Step.TLS, str(address), _without_address(error, address), advice, elapsed_ms=watch.ms)
                return None
        (tls,) = opened
        assert isinstance(tls, TlsSocket)
        report_certificates(tls.ssl_object, self.config, str(address), watch.ms, findings)
        return tls

    def _greet(self, address: Address, opened: BlockingSocket, findings: Findings) -> BlockingConnection | None:
        """Ask for the API versions on the opened socket. Later connections are opened as usual."""
        sockets = [opened]
        connection = self._new_connection(
            address, lambda *given: sockets.pop() if sockets else self._open(*given), None
        )
        with Stopwatch() as watch:
            try:
                versions = connection.api_versions()
            except KafkaError as error:
                connection.close()
                # with TLS 1.3 a missing client certificate is rejected after the handshake
                step = Step.TLS if isinstance(error, SslAuthenticationError) else Step.API_VERSIONS
                findings.fail(
                    step, str(address), _without_address(error, address), self._protocol_advice(error, address)
                )
                return None
        release = release_of(versions)
        findings.ok(
            Step.API_VERSIONS,
            str(address),
            f"it looks like Kafka {release}; answered in {watch.ms:g} ms",
            kafka=release,
            features=dict(versions.finalized_features),
            elapsed_ms=watch.ms,
        )
        return connection

    def _protocol_advice(self, error: KafkaError, address: Address) -> str:
        if isinstance(error, NotKafkaError):
            return "check the host and the port, and security.protocol"
        if isinstance(error, DisconnectedError) and self._contexts is None:
            version = tls_version_of(address, self.timeout_ms / 1000.0)
            if version is not None:
                return f"the listener speaks {version}: set security.protocol to SSL or SASL_SSL"
        return ""

    def _plaintext_advice(self, address: Address) -> str:
        """What to do about a listener that closed the connection during the TLS handshake."""
        connection = self._new_connection(address, open_plaintext_socket, None)
        try:
            release = release_of(connection.api_versions())
        except KafkaError:
            return ""
        finally:
            connection.close()
        return (
            f"without TLS, Kafka {release} answers there: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use "
            "the port of an SSL listener"
        )

    def _authenticate(
        self, address: Address, credentials: Credentials, findings: Findings
    ) -> BlockingConnection | None:
        connection = self._new_connection(address, self._open, credentials)
        with Stopwatch() as watch:
            try:
                connection.api_versions()
            except KafkaError as error:
                connection.close()
                findings.fail(Step.SASL, str(address), _without_address(error, address), _sasl_advice(error))
                return None
        findings.ok(
            Step.SASL,
            str(address),
            f"authenticated with {credentials.mechanism} in {watch.ms:g} ms",
            mechanism=credentials.mechanism,
            elapsed_ms=watch.ms,
        )
        return connection

    def _ask(
        self, address: Address, connection: BlockingConnection, findings: Findings
    ) -> tuple[BlockingConnection, MetadataResponse] | None:
        try:
            metadata = connection.request(metadata_request([], connection.usable_version(MetadataRequest)))
        except KafkaError as error:
            connection.close()
            offered = self._offered_mechanisms(address) if self.credentials is None else None
            if offered is None:
                findings.fail(Step.BROKERS, str(address), _without_address(error, address))
                return None
            protocol = "SASL_SSL" if self._contexts is not None else "SASL_PLAINTEXT"
            findings.fail(
                Step.SASL,
                str(address),
                f"the listener demands SASL (it offers {', '.join(offered) or 'no mechanism'}), but "
                f"security.protocol={self.config.security_protocol} has none",
                f"set security.protocol={protocol}, sasl.mechanism and the credentials",
                offered=offered,
            )
            return None
        if self.credentials is None:
            findings.skip(Step.SASL, str(address), f"security.protocol={self.config.security_protocol} has no SASL")
        return connection, metadata

    def _offered_mechanisms(self, address: Address) -> list[str] | None:
        """The SASL mechanisms of the listener; None if it has no SASL."""
        connection = self._new_connection(address, self._open, None)
        try:
            # no mechanism has this name, so that the broker lists its own
            answer = connection.request(SaslHandshakeRequest(mechanism="HEADRACE-DOCTOR"))
        except KafkaError:
            return None
        finally:
            connection.close()
        return list(answer.mechanisms) if answer.error_code == UnsupportedSaslMechanismError.code else None


def _sasl_advice(error: KafkaError) -> str:
    if isinstance(error, UnsupportedSaslMechanismError):
        return "set sasl.mechanism to one that the listener offers"
    if isinstance(error, AuthenticationError):
        return f"check the credentials, and that security.protocol ({' or '.join(SASL_PROTOCOLS)}) is the listener's"
    if isinstance(error, DisconnectedError):
        return "some brokers reject credentials by closing the connection; check them, and the broker's log"
    return ""


def _without_address(error: KafkaError, address: Address) -> str:
    """The error's text without the address at its beginning, which the finding names."""
    return str(error).removeprefix(f"{address}: ").removeprefix(f"{address} ")
