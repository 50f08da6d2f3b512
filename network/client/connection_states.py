"""The state of a client's connection to each node (Kafka's ClusterConnectionStates)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence

from ..addresses import Address
from ..backoff import ExponentialBackoff
from ..clock import LONG_AGO_MS, NEVER_MS
from ..protocol.errors import IllegalStateError
from ..sockets.resolver import ResolvedAddress, Resolver


class ConnectionState(enum.Enum):
    """DISCONNECTED -> CONNECTING -> CHECKING_API_VERSIONS -> READY, and from each of them back to DISCONNECTED.

    AUTHENTICATION_FAILED is a DISCONNECTED that waiting alone won't mend.
    """

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking API versions"
    READY = "ready"
    AUTHENTICATION_FAILED = "authentication failed"

    @property
    def is_disconnected(self) -> bool:
        return self in (ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED)

    @property
    def is_connected(self) -> bool:
        return self in (ConnectionState.CHECKING_API_VERSIONS, ConnectionState.READY)


class _NodeConnection:
    """One node's connection: its state, its waits, and which address of its host is in turn."""

    __slots__ = (
        "_address_index",
        "_addresses",
        "_last_address",
        "failed_attempts",
        "failed_connect_attempts",
        "host",
        "last_attempt_ms",
        "port",
        "reconnect_backoff_ms",
        "setup_timeout_ms",
        "state",
        "throttled_until_ms",
    )

    def __init__(self, host: str, port: int, *, now_ms: float, backoff_ms: float, setup_timeout_ms: float) -> None:
        self.host = host
        self.port = port
        self.state = ConnectionState.CONNECTING
        self.last_attempt_ms = now_ms
        self.failed_attempts = 0
        self.failed_connect_attempts = 0
        self.reconnect_backoff_ms = backoff_ms
        self.setup_timeout_ms = setup_timeout_ms
        self.throttled_until_ms = LONG_AGO_MS
        self._addresses: Sequence[ResolvedAddress] = ()
        self._address_index = 0
        self._last_address: ResolvedAddress | None = None

    def current_address(self, resolver: Resolver) -> ResolvedAddress:
        if not self._addresses:
            self._addresses = resolver(self.host, self.port)
            self._address_index = 0
            # after a disconnection the name is resolved anew; don't go straight back to the address that failed,
            # it may be a load balancer's instance which is down (KIP-602)
            if len(self._addresses) > 1 and self._addresses[0] == self._last_address:
                self._address_index = 1
        self._last_address = self._addresses[self._address_index]
        return self._last_address

    def move_to_next_address(self) -> None:
        if self._addresses:
            self._address_index += 1
            if self._address_index == len(self._addresses):
                self.forget_addresses()

    def forget_addresses(self) -> None:
        self._addresses = ()


class ClusterConnectionStates:
    """Connection states by node id, with their reconnect backoff, set-up timeout, throttling and addresses.

    Belongs to the client's I/O thread. A node that was never heard of has no entry and may be connected to at once.
    Entries are bounded by the nodes of the cluster: the client calls `retain` after each change of the metadata.
    """

    def __init__(
        self,
        *,
        reconnect_backoff_ms: float,
        reconnect_backoff_max_ms: float,
        connection_setup_timeout_ms: float,
        connection_setup_timeout_max_ms: float,
        resolver: Resolver,
        random_unit: Callable[[], float],
    ) -> None:
        self._reconnect_backoff = ExponentialBackoff(
            reconnect_backoff_ms, reconnect_backoff_max_ms, random_unit=random_unit
        )
        self._setup_timeout = ExponentialBackoff(
            connection_setup_timeout_ms, connection_setup_timeout_max_ms, random_unit=random_unit
        )
        self._resolver = resolver
        self._nodes: dict[int, _NodeConnection] = {}
        self._connecting: set[int] = set()

    # --- Questions ---

    def state(self, node_id: int) -> ConnectionState:
        """The node's state; DISCONNECTED for a node that was never tried."""
        node = self._nodes.get(node_id)
        return ConnectionState.DISCONNECTED if node is None else node.state

    def can_connect(self, node_id: int, now_ms: float) -> bool:
        """Whether a connection may be started now: there is none, and the reconnect backoff has passed."""
        node = self._nodes.get(node_id)
        if node is None:
            return True
        return node.state.is_disconnected and now_ms - node.last_attempt_ms >= node.reconnect_backoff_ms

    def connection_delay_ms(self, node_id: int, now_ms: float) -> float:
        """How long until it is worth looking at the node again: the rest of the backoff when disconnected, of the
        set-up timeout when connecting, for ever (until I/O wakes the client) when connected."""
        node = self._nodes.get(node_id)
        if node is None:
            return 0.0
        if node.state is ConnectionState.CONNECTING:
            return max(node.last_attempt_ms + node.setup_timeout_ms - now_ms, 0.0)
        if node.state.is_disconnected:
            return max(node.last_attempt_ms + node.reconnect_backoff_ms - now_ms, 0.0)
        return NEVER_MS

    def throttle_delay_ms(self, node_id: int, now_ms: float) -> float:
        """How much longer the node asked to be left alone (KIP-219)."""
        node = self._nodes.get(node_id)
        return 0.0 if node is None else max(node.throttled_until_ms - now_ms, 0.0)

    def poll_delay_ms(self, node_id: int, now_ms: float) -> float:
        """`connection_delay_ms`, or what is left of the throttling of a connected node."""
        throttle_ms = self.throttle_delay_ms(node_id, now_ms)
        if throttle_ms > 0 and self.state(node_id).is_connected:
            return throttle_ms
        return self.connection_delay_ms(node_id, now_ms)

    def is_ready(self, node_id: int, now_ms: float) -> bool:
        """Whether requests may be sent to the node: READY, and not throttled."""
        node = self._nodes.get(node_id)
        return node is not None and node.state is ConnectionState.READY and node.throttled_until_ms <= now_ms

    def is_preparing(self, node_id: int) -> bool:
        """Whether the connection is being made: the socket isn't connected or the API versions aren't known yet."""
        return self.state(node_id) in (ConnectionState.CONNECTING, ConnectionState.CHECKING_API_VERSIONS)

    def address(self, node_id: int) -> str:
        """`host:port` of the node's last connection, as the metadata or the configuration has it."""
        node = self._node(node_id)
        return str(Address(node.host, node.port))

    def last_attempt_ms(self, node_id: int) -> float:
        """When a connection was last tried or lost; minus infinity when never."""
        node = self._nodes.get(node_id)
        return LONG_AGO_MS if node is None else node.last_attempt_ms

    def setup_timeout_ms(self, node_id: int) -> float:
        """How long the connection that is being made may take (KIP-601)."""
        return self._node(node_id).setup_timeout_ms

    def nodes_with_setup_timeout(self, now_ms: float) -> list[int]:
        """The nodes that have been CONNECTING for longer than their set-up timeout."""
        return [node_id for node_id in self._connecting if self.connection_delay_ms(node_id, now_ms) <= 0.0]

    def next_setup_timeout_ms(self, now_ms: float) -> float:
        """How long until the first of `nodes_with_setup_timeout`, infinity when nothing is connecting."""
        return min((self.connection_delay_ms(node_id, now_ms) for node_id in self._connecting), default=NEVER_MS)

    # --- Transitions ---

    def connecting(self, node_id: int, now_ms: float, host: str, port: int) -> None:
        """Start a connection attempt: on to the host's next address, or resolve anew when all were tried."""
        node = self._nodes.get(node_id)
        if node is not None and (node.host, node.port) == (host, port):
            node.state = ConnectionState.CONNECTING
            node.last_attempt_ms = now_ms
            node.move_to_next_address()
        else:
            # never seen, or the broker has moved: what was learnt about the old address says nothing about the new
            self._nodes[node_id] = _NodeConnection(
                host,
                port,
                now_ms=now_ms,
                backoff_ms=self._reconnect_backoff.backoff_ms(0),
                setup_timeout_ms=self._setup_timeout.backoff_ms(0),
            )
        self._connecting.add(node_id)

    def current_address(self, node_id: int) -> ResolvedAddress:
        """The address to connect to now. May block in name resolution; raises UnresolvableHostError."""
        return self._node(node_id).current_address(self._resolver)

    def attempt_started(self, node_id: int, now_ms: float) -> None:
        """The attempt begins only now: what resolving the name took is not part of its timeout."""
        self._node(node_id).last_attempt_ms = now_ms

    def checking_api_versions(self, node_id: int) -> None:
        """The socket is connected and the ApiVersions request is on its way."""
        node = self._node(node_id)
        node.state = ConnectionState.CHECKING_API_VERSIONS
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def ready(self, node_id: int) -> None:
        """The node speaks Kafka with us: only now do earlier failures count no longer."""
        node = self._node(node_id)
        node.state = ConnectionState.READY
        node.failed_attempts = 0
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(0)
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def disconnected(self, node_id: int, now_ms: float) -> None:
        """The connection failed or was lost: each such time in a row doubles the wait until the next attempt."""
        node = self._node(node_id)
        self._back_off(node, now_ms)
        if node.state is ConnectionState.CONNECTING:
            node.failed_connect_attempts += 1
            node.setup_timeout_ms = self._setup_timeout.backoff_ms(node.failed_connect_attempts)
            self._connecting.discard(node_id)
        else:
            self._reset_setup_timeout(node)
            if node.state.is_connected:
                # the broker may come back with another address behind the same name
                node.forget_addresses()
        node.state = ConnectionState.DISCONNECTED

    def authentication_failed(self, node_id: int, now_ms: float) -> None:
        """The node refused this client's identity."""
        node = self._node(node_id)
        self._back_off(node, now_ms)
        node.state = ConnectionState.AUTHENTICATION_FAILED
        self._connecting.discard(node_id)

    def throttle(self, node_id: int, until_ms: float) -> None:
        """The node asked not to be sent anything before `until_ms`; an earlier time never replaces a later one."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.throttled_until_ms = max(node.throttled_until_ms, until_ms)

    def retain(self, node_ids: Collection[int], now_ms: float) -> None:
        """Forget the nodes that are neither in `node_ids` nor connected nor backing off."""
        for node_id in [known for known in self._nodes if known not in node_ids]:
            if self.can_connect(node_id, now_ms):
                del self._nodes[node_id]

    def _node(self, node_id: int) -> _NodeConnection:
        node = self._nodes.get(node_id)
        if node is None:
            raise IllegalStateError(f"no connection to node {node_id} was ever started")
        return node

    def _back_off(self, node: _NodeConnection, now_ms: float) -> None:
        node.last_attempt_ms = now_ms
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(node.failed_attempts)
        node.failed_attempts += 1

    def _reset_setup_timeout(self, node: _NodeConnection) -> None:
        node.failed_connect_attempts = 0
        node.setup_timeout_ms = self._setup_timeout.backoff_ms(0)
