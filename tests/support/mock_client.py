"""A NetworkClient without connections, for stepping a sender by hand (modeled on Kafka's MockClient).

client = MockClient(clock, metadata)
client.prepare_response(ProduceResponse(...))                       # for the next request that is sent
client.prepare_response(lambda request: ProduceResponse(...), matcher=lambda request: ...)
client.prepare_response(disconnected=True)
sender.run_once(clock.now_ms())
client.requests          # in flight: answer them with respond()
client.sent              # all requests ever sent
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.network.client.api_versions import NodeApiVersions
from headrace.network.client.request import ClientRequest, ClientResponse, KafkaClient
from headrace.network.clock import MockClock
from headrace.network.cluster import Node
from headrace.network.metadata import Metadata, MetadataFetch
from headrace.network.protocol.api import requests as known_requests
from headrace.network.protocol.errors import (
    AuthenticationError,
    DisconnectedError,
    EncodeError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
)
from headrace.network.protocol.frames import encode_request
from headrace.network.protocol.messages.topics.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.network.protocol.types import ZERO_UUID

Matcher = Callable[[ClientRequest], bool]
Body = Any  # a response message, or a callable that makes one from the ClientRequest


def latest_api_versions(overrides: Mapping[int, tuple[int, int]] | None = None) -> NodeApiVersions:
    """A node that supports everything the client does, except for `overrides` by API key."""
    ranges = {int(key): (request.versions.min, request.versions.max) for key, request in known_requests.items()}
    return NodeApiVersions({**ranges, **(overrides or {})}, name="the mock broker")


def metadata_response(
    topics: Mapping[str, int] | None = None,
    *,
    brokers: int = 1,
    errors: Mapping[str, int] | None = None,
    topic_ids: Mapping[str, Any] | None = None,
    leader_epoch: int = 0,
    cluster_id: str = "mock-cluster",
) -> MetadataResponse:
    """A cluster of nodes 0 to `brokers` - 1 on ports 9092 and up. `topics` maps names to partition counts; node i
    modulo `brokers` leads partition i. `errors` are error codes of topics without partitions."""
    nodes = list(range(brokers))

    def partition(index: int) -> MetadataResponsePartition:
        return MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=index % brokers,
            leader_epoch=leader_epoch,
            replica_nodes=nodes,
            isr_nodes=nodes,
        )

    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=id_, host="localhost", port=9092 + id_) for id_ in nodes],
        cluster_id=cluster_id,
        controller_id=0,
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=(topic_ids or {}).get(name, ZERO_UUID),
                partitions=[partition(index) for index in range(count)],
            )
            for name, count in (topics or {}).items()
        ]
        + [MetadataResponseTopic(error_code=code, name=name, partitions=[]) for name, code in (errors or {}).items()],
    )


@dataclass
class _Prepared:
    body: Body
    matcher: Matcher | None
    node_id: int | None
    disconnected: bool
    error: KafkaError | None


class MockClient(KafkaClient):
    """The methods of NetworkClient (`KafkaClient`), which answer what the test has prepared.

    The first `ready` connects a node unless `set_unreachable` or `backoff` is in effect. Prepared responses are used in
    order, each by the next request for its node; a matcher that rejects the request fails the test. Requests without a
    prepared response wait in `requests`. `poll` answers metadata requests with the next of `prepare_metadata`, or with
    the last one again.
    """

    def __init__(
        self,
        clock: MockClock,
        metadata: Metadata,
        *,
        max_in_flight_requests_per_connection: int = 5,
        request_timeout_ms: float = 30_000,
    ) -> None:
        self.clock = clock
        self.metadata = metadata
        self.max_in_flight = max_in_flight_requests_per_connection
        self.request_timeout_ms = request_timeout_ms
        self.requests: deque[ClientRequest] = deque()
        self.sent: list[ClientRequest] = []
        self.metadata_fetches: list[MetadataFetch] = []
        self.polls: list[float] = []
        self.wakeups = 0
        self.closed = False
        #: What `authentication_error` returns.
        self.refused: AuthenticationError | None = None
        self.default_api_versions = latest_api_versions()
        self.node_api_versions: dict[int, NodeApiVersions] = {}
        self.connected: set[int] = set()
        self._prepared: deque[_Prepared] = deque()
        self._ended: list[ClientResponse] = []
        self._prepared_metadata: deque[MetadataResponse | KafkaError] = deque()
        self._last_metadata: MetadataResponse | None = None
        self._backoff_until_ms: dict[int, float] = {}
        self._unreachable_until_ms: dict[int, float] = {}
        self._throttled_until_ms: dict[int, float] = {}
        self._connection_errors: dict[int, KafkaError] = {}
        self._last_errors: dict[int, KafkaError] = {}
        self._correlation_id = 0

    # --- For the test ---

    def prepare_response(
        self,
        body: Body = None,
        *,
        matcher: Matcher | None = None,
        node_id: int | None = None,
        disconnected: bool = False,
        error: KafkaError | None = None,
    ) -> None:
        """Answer the next request (to `node_id`) with `body`, a disconnection, or an error such as
        UnsupportedVersionError."""
        self._prepared.append(_Prepared(body, matcher, node_id, disconnected, error))

    def prepare_metadata(self, *responses: MetadataResponse | KafkaError) -> None:
        """Answer the next metadata fetches with these; an error fails the fetch."""
        self._prepared_metadata.extend(responses)

    def update_metadata(self, response: MetadataResponse) -> None:
        """Update the metadata now, and answer later fetches with the same response."""
        self._last_metadata = response
        self.metadata.update(response, self.clock.now_ms())

    def respond(
        self,
        body: Body = None,
        *,
        request: ClientRequest | None = None,
        matcher: Matcher | None = None,
        node_id: int | None = None,
        disconnected: bool = False,
        timed_out: bool = False,
        error: KafkaError | None = None,
    ) -> ClientRequest:
        """Answer a waiting request: `request`, or the oldest one (for `node_id`) that `matcher` accepts. The next poll
        reports it. Returns the request."""
        for waiting in self.requests:
            if (
                (request is None or waiting is request)
                and (node_id is None or waiting.node_id == node_id)
                and (matcher is None or matcher(waiting))
            ):
                self.requests.remove(waiting)
                self._end(waiting, body, disconnected=disconnected, timed_out=timed_out, error=error)
                return waiting
        raise AssertionError(f"no such request is in flight, but {[str(waiting) for waiting in self.requests]}")

    def backoff(self, node_id: int, duration_ms: float) -> None:
        """Disconnect the node, and reject connection attempts to it for `duration_ms`."""
        self.disconnect(node_id, self.clock.now_ms())
        self._backoff_until_ms[node_id] = self.clock.now_ms() + duration_ms

    def set_unreachable(self, node_id: int, duration_ms: float, error: KafkaError | None = None) -> None:
        """Fail every attempt to connect to the node for `duration_ms`."""
        self.disconnect(node_id, self.clock.now_ms())
        self._unreachable_until_ms[node_id] = self.clock.now_ms() + duration_ms
        self._connection_errors[node_id] = error or DisconnectedError(f"node {node_id} is unreachable")

    def throttle(self, node_id: int, duration_ms: float) -> None:
        """Make the node not ready for `duration_ms`."""
        self._throttled_until_ms[node_id] = self.clock.now_ms() + duration_ms

    # --- KafkaClient ---

    def ready(self, node: Node, now_ms: float) -> bool:
        if node.id not in self.connected and self._can_connect(node.id, now_ms):
            if now_ms < self._unreachable_until_ms.get(node.id, now_ms):
                self._last_errors[node.id] = self._connection_errors[node.id]
                self._backoff_until_ms[node.id] = now_ms + 100
                self.metadata.request_update()
            else:
                self.connected.add(node.id)
                self._connection_errors.pop(node.id, None)
                self._last_errors.pop(node.id, None)
        return self.is_ready(node, now_ms)

    def is_ready(self, node: Node, now_ms: float) -> bool:
        return (
            node.id in self.connected
            and self._throttled_until_ms.get(node.id, now_ms) <= now_ms
            and self.in_flight_request_count(node.id) < self.max_in_flight
        )

    def connection_delay_ms(self, node: Node, now_ms: float) -> float:
        if node.id in self.connected:
            return float("inf")
        return max(self._backoff_until_ms.get(node.id, now_ms) - now_ms, 0.0)

    def poll_delay_ms(self, node: Node, now_ms: float) -> float:
        throttle_ms = self.throttle_delay_ms(node, now_ms)
        return throttle_ms if throttle_ms and node.id in self.connected else self.connection_delay_ms(node, now_ms)

    def throttle_delay_ms(self, node: Node, now_ms: float) -> float:
        return max(self._throttled_until_ms.get(node.id, now_ms) - now_ms, 0.0)

    def connection_error(self, node_id: int) -> KafkaError | None:
        return self._connection_errors.get(node_id)

    def authentication_error(self) -> AuthenticationError | None:
        return self.refused

    def least_loaded_node(self, now_ms: float) -> Node | None:
        nodes = self.metadata.cluster.nodes.values()
        usable = [node for node in nodes if node.id in self.connected or self._can_connect(node.id, now_ms)]
        return min(usable, key=lambda node: self.in_flight_request_count(node.id), default=None)

    def new_request(
        self,
        node_id: int,
        message: Any,
        now_ms: float,
        timeout_ms: float | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
        expect_response: bool = True,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> ClientRequest:
        self._correlation_id += 1
        return ClientRequest(
            node_id=node_id,
            message=message,
            correlation_id=self._correlation_id,
            created_ms=now_ms,
            timeout_ms=self.request_timeout_ms if timeout_ms is None else timeout_ms,
            expect_response=expect_response,
            callback=callback,
            min_version=min_version,
            max_version=max_version,
        )

    def send(self, request: ClientRequest, now_ms: float) -> None:
        if self.closed or request.node_id not in self.connected:
            raise IllegalStateError(f"{request} cannot be sent: the node is not ready")
        try:
            version = self._version(request)
            encode_request(request.message, version=version, correlation_id=request.correlation_id, client_id="mock")
        except (UnsupportedVersionError, EncodeError) as error:
            self._end(request, error=error)
            return
        self.sent.append(request)
        for prepared in self._prepared:
            if prepared.node_id is None or prepared.node_id == request.node_id:
                assert prepared.matcher is None or prepared.matcher(request), f"unexpected request {request}"
                self._prepared.remove(prepared)
                self._end(request, prepared.body, disconnected=prepared.disconnected, error=prepared.error)
                return
        if request.expect_response:
            self.requests.append(request)
        else:
            self._end(request)

    def poll(self, timeout_ms: float, now_ms: float) -> list[ClientResponse]:
        if self.closed:
            raise IllegalStateError("this client is closed")
        self.polls.append(timeout_ms)
        for request in list(self.requests):
            if now_ms - request.created_ms >= request.timeout_ms and request in self.requests:
                self._disconnect(request.node_id, timed_out=True)
        self._update_metadata_if_due(now_ms)
        ended, self._ended = self._ended, []
        for response in ended:
            if response.request.callback is not None:
                response.request.callback(response)
        return ended

    @property
    def connection_errors(self) -> Mapping[int, KafkaError]:
        return self._last_errors

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        return sum(node_id is None or request.node_id == node_id for request in self.requests)

    def api_versions(self, node_id: int) -> NodeApiVersions | None:
        if node_id not in self.connected:
            return None
        return self.node_api_versions.get(node_id, self.default_api_versions)

    def disconnect(self, node_id: int, now_ms: float) -> None:
        self._disconnect(node_id, timed_out=False)

    def wakeup(self) -> None:
        self.wakeups += 1

    def close(self) -> None:
        self.closed = True
        self.metadata.close()

    # --- Internal ---

    def _can_connect(self, node_id: int, now_ms: float) -> bool:
        return self._backoff_until_ms.get(node_id, now_ms) <= now_ms

    def _version(self, request: ClientRequest) -> int:
        return self.node_api_versions.get(request.node_id, self.default_api_versions).usable_version(
            type(request.message), min_version=request.min_version, max_version=request.max_version
        )

    def _disconnect(self, node_id: int, *, timed_out: bool) -> None:
        self.connected.discard(node_id)
        for request in [waiting for waiting in self.requests if waiting.node_id == node_id]:
            self.requests.remove(request)
            self._end(request, disconnected=True, timed_out=timed_out)

    def _end(
        self,
        request: ClientRequest,
        body: Body = None,
        *,
        disconnected: bool = False,
        timed_out: bool = False,
        error: KafkaError | None = None,
    ) -> None:
        message = version = None
        if disconnected or timed_out:
            error = error or DisconnectedError(f"{request} was not answered")
            self.connected.discard(request.node_id)
        elif error is None:
            version = self._version(request)
            message = body(request) if callable(body) else body
        self._ended.append(
            request.ended(
                self.clock.now_ms(),
                message=message,
                version=version,
                error=error,
                disconnected=disconnected or timed_out,
                timed_out=timed_out,
            )
        )

    def _update_metadata_if_due(self, now_ms: float) -> None:
        if self.metadata.time_to_next_update(now_ms) > 0:
            return
        answer = self._prepared_metadata.popleft() if self._prepared_metadata else self._last_metadata
        if answer is None:
            return
        fetch = self.metadata.next_fetch(now_ms)
        self.metadata_fetches.append(fetch)
        if isinstance(answer, KafkaError):
            self.metadata.failed_update(now_ms, answer)
            return
        self._last_metadata = answer
        self.metadata.update(answer, now_ms, fetch=fetch)
