"""A NetworkClient over a MockSelector and a MockClock, and the steps that all of its tests take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.network.client.network_client_cy import NetworkClient
from headrace.network.client.request import ClientRequest, ClientResponse
from headrace.network.clock import MockClock
from headrace.network.cluster import Node
from headrace.network.metadata import Metadata
from headrace.network.protocol.api import requests as known_requests
from headrace.network.protocol.errors import UnresolvableHostError
from headrace.network.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from headrace.network.sockets.resolver import ResolvedAddress
from support.mock_client import metadata_response
from support.mock_selector import MockSelector

REQUEST_TIMEOUT_MS = 30_000
REFRESH_BACKOFF_MS = 100
MAX_AGE_MS = 300_000


def no_jitter() -> float:
    """The middle of [0, 1): jitter factors become 1."""
    return 0.5


def api_versions_response(
    overrides: Mapping[int, tuple[int, int] | None] | None = None, **fields: Any
) -> ApiVersionsResponse:
    """A broker that supports everything the client does, except for `overrides` by API key (None: not supported)."""
    ranges: dict[int, tuple[int, int] | None] = {
        int(key): (request.versions.min, request.versions.max) for key, request in known_requests.items()
    }
    ranges.update(overrides or {})
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=bounds[0], max_version=bounds[1])
            for key, bounds in ranges.items()
            if bounds is not None
        ],
        **fields,
    )


class Names:
    """A name service: `addresses` by name, 10.0.0.1 for any other. Names that begin with "nowhere" don't resolve, and
    lookups of names in `slow` are pending."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.slow: set[str] = set()
        self.on_ask: Callable[[], None] = lambda: None

    def __call__(self, host: str, port: int) -> Sequence[ResolvedAddress] | None:
        if host in self.slow:
            return None
        self.asked.append(host)
        self.on_ask()
        found = self.addresses.get(host, [] if host.startswith("nowhere") else ["10.0.0.1"])
        if not found:
            raise UnresolvableHostError(f"cannot resolve host name {host!r}")
        return [ResolvedAddress(2, (address, port)) for address in found]


class Waiter:
    """A thread that awaits metadata. It is waiting when the constructor returns."""

    def __init__(self, metadata: Metadata, clock: WatchedClock, timeout_ms: float = 60_000) -> None:
        self._error: BaseException | None = None
        self._metadata = metadata
        self._version = metadata.version
        self._timeout_ms = timeout_ms
        waiting = clock.waiting_count()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        while self._thread.is_alive() and clock.waiting_count() == waiting:
            self._thread.join(0.001)

    def _run(self) -> None:
        try:
            self._metadata.await_update(self._version, self._timeout_ms)
        except BaseException as error:
            self._error = error

    def result(self) -> None:
        """Raise the error that `await_update` raised, if any."""
        self._thread.join(30)
        assert not self._thread.is_alive(), "still waiting"
        if self._error is not None:
            raise self._error

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()


class WatchedClock(MockClock):
    """A MockClock that counts the threads that wait on it."""

    def waiting_count(self) -> int:
        return len(self._waiting) + len(self._latches)


class ClientHarness:
    """`step` polls once; `start` brings the client to its first metadata."""

    def __init__(
        self,
        *,
        bootstrap: Sequence[tuple[str, int]] = (("host0", 9000),),
        random_unit: Callable[[], float] = no_jitter,
        allow_auto_topic_creation: bool = True,
        max_age_ms: float = MAX_AGE_MS,
        client_id: str | None = "test",
        **settings: Any,
    ) -> None:
        self.clock = WatchedClock()
        self.selector = MockSelector()
        self.names = Names()
        self.metadata = Metadata(
            clock=self.clock,
            bootstrap_servers=bootstrap,
            refresh_backoff_ms=REFRESH_BACKOFF_MS,
            refresh_backoff_max_ms=1000,
            max_age_ms=max_age_ms,
            max_idle_ms=300_000,
            allow_auto_topic_creation=allow_auto_topic_creation,
            random_unit=random_unit,
        )
        options: dict[str, Any] = {
            "max_in_flight_requests_per_connection": 5,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 1000,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "connection_setup_timeout_ms": 10_000,
            "connection_setup_timeout_max_ms": 30_000,
            **settings,
        }
        self.client = NetworkClient(
            selector=self.selector,
            metadata=self.metadata,
            clock=self.clock,
            client_id=client_id,
            resolver=self.names,
            random_unit=random_unit,
            **options,
        )

    @property
    def now_ms(self) -> float:
        return self.clock.now_ms()

    def step(self, timeout_ms: float = 1000) -> list[ClientResponse]:
        return self.client.poll(timeout_ms, self.now_ms)

    def node(self, node_id: int) -> Node:
        return self.metadata.cluster.nodes[node_id]

    def ready(self, node_id: int) -> bool:
        return self.client.ready(self.node(node_id), self.now_ms)

    def handshake(self, channel_id: str, response: ApiVersionsResponse | None = None) -> None:
        """Complete the connection and answer ApiVersions."""
        self.selector.complete_connect(channel_id)
        self.step()
        assert isinstance(self.selector.unanswered(channel_id)[0].message, ApiVersionsRequest)
        self.selector.respond(channel_id, response or api_versions_response())
        self.step()

    def start(self, metadata: MetadataResponse | None = None, versions: ApiVersionsResponse | None = None) -> None:
        """Bootstrap from the first address until the first metadata arrives."""
        self.step()
        self.handshake("-1", versions)
        self.step()
        self.answer_metadata("-1", metadata or metadata_response())

    def answer_metadata(self, channel_id: str, response: MetadataResponse) -> MetadataRequest:
        """Answer the pending metadata request of the node. Returns the request."""
        request = self.selector.unanswered(channel_id)[0].message
        assert isinstance(request, MetadataRequest)
        self.selector.respond(channel_id, response)
        self.step()
        return request

    def connect(self, node_id: int, versions: ApiVersionsResponse | None = None) -> None:
        """Make the node ready."""
        assert not self.ready(node_id)
        self.handshake(str(node_id), versions)
        assert self.ready(node_id)

    def send(self, node_id: int, message: Any, **options: Any) -> ClientRequest:
        request = self.client.new_request(node_id, message, now_ms=self.now_ms, **options)
        self.client.send(request, self.now_ms)
        return request
