"""The protocols of a client and of its selector, which are all that a sender and a client know of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..cluster import Node
from ..protocol.errors import AuthenticationError, KafkaError
from .api_versions import NodeApiVersions
from .request_cy import ClientRequest, ClientResponse


class KafkaClient(Protocol):
    """The part of `NetworkClient` that a sender uses. Tests pass a fake.

    Everything belongs to the sender thread, except `wakeup`, which any thread may call.
    """

    def ready(self, node: Node, now_ms: float) -> bool: ...

    def is_ready(self, node: Node, now_ms: float) -> bool: ...

    def connection_delay_ms(self, node: Node, now_ms: float) -> float: ...

    def poll_delay_ms(self, node: Node, now_ms: float) -> float: ...

    def throttle_delay_ms(self, node: Node, now_ms: float) -> float: ...

    def connection_error(self, node_id: int) -> KafkaError | None: ...

    def authentication_error(self) -> AuthenticationError | None: ...

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
        host: str = "",
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None: ...
    def is_channel_ready(self, channel_id: str) -> bool: ...
    def is_in_handshake(self, channel_id: str) -> bool: ...
    def send(self, channel_id: str, buffers: Iterable[Any]) -> Any: ...
    def take_completed_sends(self) -> Sequence[Any]: ...
    def poll(self, timeout_ms: float) -> None: ...
    def wakeup(self) -> None: ...
    def close_channel(self, channel_id: str) -> None: ...
    def close(self) -> None: ...
