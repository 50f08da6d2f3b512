"""A selector without sockets: the test stages what happens on the connections, and `poll` reports it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.network.protocol.errors import IllegalStateError, KafkaError
from headrace.network.protocol.frames import RequestHeader, encode_response
from headrace.network.protocol.message import Response
from headrace.network.sockets.channel_cy import NetworkReceive
from headrace.network.sockets.selector_base_cy import ClientSelector
from support.requests import decode_request


class Connect(NamedTuple):
    """A connection that the client has started."""

    channel_id: str
    family: int
    address: Any


class MockSend:
    """A frame that the client has sent, decoded."""

    def __init__(self, channel_id: str, frame: bytes) -> None:
        self.channel_id = channel_id
        self.frame = frame
        self.size_bytes = self.remaining_bytes = len(frame)
        self.header: RequestHeader
        self.header, self.message = decode_request(memoryview(frame)[4:])


class MockSelector(ClientSelector):
    """The methods of `Selector` that a client uses. The next `poll` reports what a test has staged.

    `connects` and `sent` hold everything ever started and sent; `polls` holds the timeouts of all polls.
    """

    def __init__(self) -> None:
        self.connected: list[str] = []
        self.completed_sends: list[MockSend] = []
        self.completed_receives: list[NetworkReceive] = []
        self.disconnected: dict[str, KafkaError] = {}
        self.connects: list[Connect] = []
        self.sent: list[MockSend] = []
        self.polls: list[float] = []
        self.wakeups = 0
        self.closed = False
        self.open: set[str] = set()
        #: While True, sent frames stay in the socket's buffer, unwritten, until `write_all`.
        self.hold_sends = False
        self._connecting: set[str] = set()
        self._unanswered: dict[str, deque[MockSend]] = {}
        self._staged_connected: list[str] = []
        self._staged_sends: list[MockSend] = []
        self._staged_receives: list[NetworkReceive] = []
        self._staged_disconnected: dict[str, KafkaError] = {}

    # --- For the client ---

    def connect(
        self,
        channel_id: str,
        family: int,
        address: Any,
        *,
        host: str = "",
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        if channel_id in self.open or channel_id in self._connecting:
            raise IllegalStateError(f"channel {channel_id} exists")
        self.connects.append(Connect(channel_id, family, address))
        self._connecting.add(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        return channel_id in self.open

    def is_in_handshake(self, channel_id: str) -> bool:
        return False

    def send(self, channel_id: str, buffers: Iterable[Any]) -> MockSend:
        if channel_id not in self.open:
            raise IllegalStateError(f"channel {channel_id} is not open")
        send = MockSend(channel_id, b"".join(buffers))
        self.sent.append(send)
        self._unanswered.setdefault(channel_id, deque()).append(send)
        if not self.hold_sends:
            self._write(send)
        return send

    def take_completed_sends(self) -> list[MockSend]:
        sends, self._staged_sends = self._staged_sends, []
        return sends

    def poll(self, timeout_ms: float) -> None:
        self.polls.append(timeout_ms)
        self.connected, self._staged_connected = self._staged_connected, []
        self.completed_sends, self._staged_sends = self._staged_sends, []
        self.completed_receives, self._staged_receives = self._staged_receives, []
        self.disconnected, self._staged_disconnected = self._staged_disconnected, {}

    def wakeup(self) -> None:
        self.wakeups += 1

    def close_channel(self, channel_id: str) -> None:
        self._forget(channel_id)

    def close(self) -> None:
        self.closed = True

    # --- For the test ---

    def complete_connect(self, channel_id: str) -> None:
        """The connection is established."""
        self._connecting.remove(channel_id)
        self.open.add(channel_id)
        self._staged_connected.append(channel_id)

    def fail(self, channel_id: str, reason: KafkaError) -> None:
        """The connection, or the attempt to connect, has failed."""
        assert channel_id in self.open | self._connecting
        self._forget(channel_id)
        self._staged_disconnected[channel_id] = reason

    def write_all(self) -> None:
        """Write the frames that were held back."""
        self.hold_sends = False
        for send in self.sent:
            if send.remaining_bytes and send.channel_id in self.open:
                self._write(send)

    def unanswered(self, channel_id: str) -> list[MockSend]:
        """The node's unanswered requests, oldest first."""
        return list(self._unanswered.get(channel_id, ()))

    def respond(self, channel_id: str, response: Response) -> MockSend:
        """Answer the node's oldest request. Returns the request."""
        return self.respond_in_version(channel_id, response, self._unanswered[channel_id][0].header.api_version)

    def respond_in_version(self, channel_id: str, response: Response, version: int) -> MockSend:
        """As `respond`, but encoded in another version than the requested one."""
        send = self._unanswered[channel_id].popleft()
        frame = b"".join(encode_response(response, version=version, correlation_id=send.header.correlation_id))
        self.receive(channel_id, frame[4:])
        return send

    def receive(self, channel_id: str, payload: bytes) -> None:
        """Deliver these bytes as a frame."""
        self._staged_receives.append(NetworkReceive(channel_id, memoryview(payload)))

    def _write(self, send: MockSend) -> None:
        send.remaining_bytes = 0
        self._staged_sends.append(send)

    def _forget(self, channel_id: str) -> None:
        self.open.discard(channel_id)
        self._connecting.discard(channel_id)
        self._unanswered.pop(channel_id, None)
