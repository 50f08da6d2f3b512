"""The requests and responses of a client, and the protocols of the client and its selector."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..cluster import Node
from ..protocol.errors import KafkaError
from .api_versions import NodeApiVersions

_log = logging.getLogger(__name__)


class ClientRequest:
    """One request to one node, not yet encoded: its version depends on what the node supports when it is sent.

    `min_version` and `max_version` narrow the versions that the message declares; None leaves them.
    """

    __slots__ = (
        "callback",
        "correlation_id",
        "created_ms",
        "expect_response",
        "max_version",
        "message",
        "min_version",
        "node_id",
        "timeout_ms",
    )

    def __init__(
        self,
        node_id: int,
        message: Any,
        correlation_id: int,
        created_ms: float,
        timeout_ms: float,
        expect_response: bool = True,
        callback: Callable[[ClientResponse], None] | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.message = message
        self.correlation_id = correlation_id
        self.created_ms = created_ms
        self.timeout_ms = timeout_ms
        self.expect_response = expect_response
        self.callback = callback
        self.min_version = min_version
        self.max_version = max_version

    def ended(
        self,
        now_ms: float,
        *,
        message: Any | None = None,
        version: int | None = None,
        error: KafkaError | None = None,
        disconnected: bool = False,
        timed_out: bool = False,
    ) -> ClientResponse:
        """The ClientResponse for this request, completed at `now_ms`."""
        return ClientResponse(self, message, version, error, disconnected, timed_out, now_ms)

    def __str__(self) -> str:
        return f"{type(self.message).__name__} {self.correlation_id} to node {self.node_id}"


class ClientResponse:
    """The outcome of a request. Exactly one of these is true:

    - `message` is the decoded response, and `version` is its API version;
    - the request expected no response and was written to the socket: `message` and `error` are None;
    - `error` is the reason for the failure. With `disconnected` the node may have processed the request. With
      `timed_out`, which implies `disconnected`, this client stopped waiting.
    """

    __slots__ = ("disconnected", "error", "message", "received_ms", "request", "timed_out", "version")

    def __init__(
        self,
        request: ClientRequest,
        message: Any | None,
        version: int | None,
        error: KafkaError | None,
        disconnected: bool,
        timed_out: bool,
        received_ms: float,
    ) -> None:
        self.request = request
        self.message = message
        self.version = version
        self.error = error
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.received_ms = received_ms

    @property
    def latency_ms(self) -> float:
        """Milliseconds from the creation of the request to its completion."""
        return self.received_ms - self.request.created_ms

    @property
    def node_id(self) -> int:
        return self.request.node_id


class KafkaClient(Protocol):
    """The part of `NetworkClient` that a sender uses. Tests pass a fake.

    Everything belongs to the sender thread, except `wakeup`, which any thread may call.
    """

    def ready(self, node: Node, now_ms: float) -> bool: ...

    def is_ready(self, node: Node, now_ms: float) -> bool: ...

    def connection_delay_ms(self, node: Node, now_ms: float) -> float: ...

    def poll_delay_ms(self, node: Node, now_ms: float) -> float: ...

    def throttle_delay_ms(self, node: Node, now_ms: float) -> float: ...

    def least_loaded_node(self, now_ms: float) -> Node | None: ...

    def new_request(
        self,
        node_id: int,
        message: Any,
        *,
        now_ms: float,
        expect_response: bool = True,
        timeout_ms: float | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> ClientRequest: ...

    def send(self, request: ClientRequest, now_ms: float) -> object: ...

    def poll(self, timeout_ms: float, now_ms: float) -> list[ClientResponse]: ...

    @property
    def connection_errors(self) -> Mapping[int, KafkaError]: ...

    def in_flight_request_count(self, node_id: int | None = None) -> int: ...

    def api_versions(self, node_id: int) -> NodeApiVersions | None: ...

    def disconnect(self, node_id: int, now_ms: float) -> None: ...

    def wakeup(self) -> None: ...

    def close(self) -> None: ...


class ClientSelector(Protocol):
    """The part of `Selector` that a client uses. Tests pass a fake."""

    connected: list[str]
    completed_sends: list[Any]
    completed_receives: list[Any]
    disconnected: dict[str, KafkaError]

    def connect(
        self,
        channel_id: str,
        family: int,
        address: Any,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None: ...
    def is_channel_ready(self, channel_id: str) -> bool: ...
    def send(self, channel_id: str, buffers: Iterable[Any]) -> Any: ...
    def take_completed_sends(self) -> Sequence[Any]: ...
    def poll(self, timeout_ms: float) -> None: ...
    def wakeup(self) -> None: ...
    def close_channel(self, channel_id: str) -> None: ...
    def close(self) -> None: ...


def call_back(responses: Iterable[ClientResponse]) -> None:
    """Run the callback of each request. If callbacks raise, all run, and then the first exception is raised."""
    failure: BaseException | None = None
    for response in responses:
        callback = response.request.callback
        if callback is not None:
            try:
                callback(response)
            except Exception as error:
                _log.exception("The callback of %s raised", response.request)
                failure = failure or error
    if failure is not None:
        raise failure
