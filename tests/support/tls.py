"""TLS without a network: two transports joined by a relay that records and fragments what passes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.broker.config.broker_tls_config import BrokerTlsConfig
from headrace.broker.security.certificates import ThrowAwayAuthority
from headrace.network.security.tls import TlsContexts, TlsSettings
from headrace.network.security.tls_config import SecurityConfig
from headrace.network.sockets.tls_transport_cy import TlsTransport

_CHUNK_BYTES = 1 << 16
_TRUST = ("truststore_location", "truststore.location", "ca.location", "ca.pem", "cafile", "context")


class Credentials:
    """The files of an authority: a server's and a client's certificate, as keys of the configuration."""

    def __init__(self, directory: Path) -> None:
        self.authority = ThrowAwayAuthority(directory)
        self.ca = str(self.authority.ca_path)
        self.server = str(self.authority.issue_server())
        self.client = str(self.authority.issue_client("alice"))

    def server_contexts(self, **keys: Any) -> TlsContexts:
        """A listener's TLS, with the server's certificate unless `keys` has another."""
        if not any("keystore" in name for name in keys):
            keys["ssl_keystore_location"] = self.server
        config = BrokerTlsConfig.resolve_from(keys, {}, {})
        return TlsContexts(TlsSettings(config, server_side=True, client_auth=config.ssl_client_auth))

    def client_contexts(self, **keys: Any) -> TlsContexts:
        """A client's TLS, which trusts the authority unless `keys` has another truststore."""
        if not any(name.endswith(_TRUST) for name in keys):
            keys["ssl_truststore_location"] = self.ca
        config = SecurityConfig.resolve_from({"security.protocol": "SSL", **keys}, {}, {})
        return TlsContexts(TlsSettings.of_client(config))


class TlsPair:
    """A client's and a server's transport. `relay` carries what they send; `wire` has all of it, per direction."""

    def __init__(self, client: TlsContexts, server: TlsContexts, host: str = "localhost") -> None:
        ours, self._client_end = socket.socketpair()
        theirs, self._server_end = socket.socketpair()
        self._client_end.setblocking(False)
        self._server_end.setblocking(False)
        self.client: TlsTransport = client.transport(ours, host)
        self.server: TlsTransport = server.transport(theirs, "")
        self.wire = (bytearray(), bytearray())  # from the client, from the server
        self._held = (bytearray(), bytearray())

    def relay(self, sizes: Iterator[int] | None = None) -> int:
        """Carry what was sent, both ways, at most the next of `sizes` bytes each. Returns how many were carried."""
        carried = 0
        for way, (source, sink) in enumerate(
            ((self._client_end, self._server_end), (self._server_end, self._client_end))
        ):
            held = self._held[way]
            try:
                data = source.recv(_CHUNK_BYTES)
            except (BlockingIOError, ConnectionResetError):
                data = b""
            held += data
            self.wire[way].extend(data)
            part = held[: len(held) if sizes is None else next(sizes)]
            try:
                sent = sink.send(part) if part else 0
            except (BlockingIOError, BrokenPipeError):
                sent = 0
            del held[:sent]
            carried += sent
        return carried

    def shake_hands(self, sizes: Iterator[int] | None = None) -> None:
        """Complete the handshake on both ends. Raises the first error of either, once both have seen the other's."""
        errors: list[Exception] = []
        for _ in range(100_000):
            for end in (self.client, self.server):
                if not end.ready and len(errors) < 2:
                    try:
                        end.handshake()
                    except Exception as error:
                        if not any(type(error) is type(each) and str(error) == str(each) for each in errors):
                            errors.append(error)
            if not self.relay(sizes) and (errors or (self.client.ready and self.server.ready)):
                break
        if errors:
            raise errors[0]

    def transfer(self, buffers: list[bytes], *, to_client: bool = False, sizes: Iterator[int] | None = None) -> bytes:
        """Write a gather list at one end, and read until all of it has arrived at the other."""
        source, sink = (self.server, self.client) if to_client else (self.client, self.server)
        data = b"".join(buffers)
        views = [memoryview(each) for each in buffers]
        received = bytearray()
        scratch = memoryview(bytearray(50_000))
        while len(received) < len(data):
            taken = source.write(views)
            while views and taken >= len(views[0]):
                taken -= len(views.pop(0))
            if taken:
                views[0] = views[0][taken:]
            self.relay(sizes)
            while count := sink.read_into(scratch):
                received += scratch[:count]
                if not sink.has_buffered_reads:
                    break
        return bytes(received)

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self._client_end.close()
        self._server_end.close()
