"""Channels without a network: a socketpair joins two of them, or one and a raw socket that plays the peer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from headrace.network.sockets.channel_cy import SCRATCH_BYTES, ChannelState, KafkaChannel, NetworkReceive, NetworkSend
from headrace.network.sockets.plaintext_transport_cy import PlaintextTransport
from headrace.network.sockets.transport import Transport


def frame(payload: bytes | bytearray | memoryview) -> bytes:
    """A payload with its length prefix, as sent over the wire."""
    return len(payload).to_bytes(4, "big") + bytes(payload)


def ready_channel(
    channel_id: str,
    sock: socket.socket,
    *,
    initiated: bool = True,
    max_receive_bytes: int = 100 * 1024 * 1024,
    scratch_bytes: int = SCRATCH_BYTES,
    transport: Callable[[socket.socket], Transport] = PlaintextTransport,
) -> KafkaChannel:
    """A channel over a connected socket, without a selector."""
    channel = KafkaChannel(
        channel_id,
        sock,
        transport(sock),
        peer=f"{channel_id}.test:9092",
        initiated=initiated,
        scratch=bytearray(scratch_bytes),
        max_receive_bytes=max_receive_bytes,
    )
    channel.state = ChannelState.PREPARING
    channel.prepare()
    return channel


class ConnectionPair:
    """Two ready channels joined by a socketpair: each receives what the other sends. One thread drives both."""

    def __init__(self, **options: Any) -> None:
        """`options` are those of `ready_channel`, for both."""
        ours, theirs = socket.socketpair()
        self.client = ready_channel("client", ours, initiated=True, **options)
        self.server = ready_channel("server", theirs, initiated=False, **options)

    def transfer(self, buffers: Iterable[Any], *, to_client: bool = False) -> list[NetworkReceive]:
        """Send a gather list from one end, and read at the other end until all of it has been sent and read."""
        source, sink = (self.server, self.client) if to_client else (self.client, self.server)
        send = NetworkSend(source.id, buffers)
        source.sends.append(send)
        completed: list[NetworkSend] = []
        receives: list[NetworkReceive] = []
        bytes_read = 0
        while not completed or bytes_read < send.size_bytes:
            source.write(completed)
            bytes_read += sink.read(receives)
        return receives

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def __enter__(self) -> ConnectionPair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
