# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The state of a client's connection to each node (Kafka's ClusterConnectionStates)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..addresses import Address
from ..backoff import ExponentialBackoff
from ..clock import LONG_AGO_MS, NEVER_MS
from ..protocol.errors import IllegalStateError, KafkaError
from ..sockets.name_lookups import RESOLVE_PATIENCE_MS
from ..sockets.resolver import ResolvedAddress, Resolver

if TYPE_CHECKING:
    from .connection_snapshot import ConnectionSnapshot

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

#: After this time another node is preferred where any node will do, as for metadata.
SLOW_NAME_MS = 100.0


class ConnectionState(enum.Enum):
    """DISCONNECTED -> CONNECTING -> CHECKING_API_VERSIONS -> READY, and from each of them back to DISCONNECTED.

    RESOLVING comes between the first two while the host name is looked up. With SASL, AUTHENTICATING comes before
    READY. A session that is to be renewed is LAPSED while no request is in flight or wanted, and REAUTHENTICATING for
    the round trips of its renewal. AUTHENTICATION_FAILED is a DISCONNECTED that waiting alone does not resolve.
    """

    DISCONNECTED = "disconnected"
    RESOLVING = "resolving"
    CONNECTING = "connecting"
    CHECKING_API_VERSIONS = "checking API versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    LAPSED = "lapsed"
    REAUTHENTICATING = "re-authenticating"
    AUTHENTICATION_FAILED = "authentication failed"

    @property
    def is_disconnected(self) -> bool:
        return self in (ConnectionState.DISCONNECTED, ConnectionState.AUTHENTICATION_FAILED)

    @property
    def is_connected(self) -> bool:
        return self in _CONNECTED

    @property
    def was_ready(self) -> bool:
        """Whether requests have been sent on the connection."""
        return self in _WAS_READY


_CONNECTED = frozenset(
    (
        ConnectionState.CHECKING_API_VERSIONS,
        ConnectionState.AUTHENTICATING,
        ConnectionState.READY,
        ConnectionState.LAPSED,
        ConnectionState.REAUTHENTICATING,
    )
)
_WAS_READY = frozenset((ConnectionState.READY, ConnectionState.LAPSED, ConnectionState.REAUTHENTICATING))
#: The states that the connection setup timeout bounds.
_IN_SETUP = frozenset((ConnectionState.CONNECTING, ConnectionState.AUTHENTICATING))


_DISCONNECTED = ConnectionState.DISCONNECTED
_READY = ConnectionState.READY


@cython.final
@cython.cclass
class _NodeConnection:
    """One node's connection: its state, its backoff and timeouts, and the host address to use."""

    if not cython.compiled:
        # for type checkers; connection_states_cy.pxd has the C types
        state: ConnectionState
        _addresses: Sequence[ResolvedAddress]
        _last_address: ResolvedAddress | None

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
        self._addresses = ()
        self._address_index = 0
        self._last_address = None

    def current_address(self, resolver: Resolver) -> ResolvedAddress | None:
        if not self._addresses:
            addresses = resolver(self.host, self.port)
            if addresses is None:
                return None
            self._addresses = addresses
            self._address_index = 0
            # The name is resolved again after a disconnection. Do not go straight back to the address that failed:
            # it may be an instance of a load balancer that is down (KIP-602).
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


@cython.final
@cython.cclass
class ClusterConnectionStates:
    """Connection states by node id, with their reconnect backoff, setup timeout, throttling and addresses.

    Belongs to the client's I/O thread. An unknown node has no entry and may be connected to at once. The entries are
    bounded by the nodes of the cluster, because the client calls `retain` after each metadata change.
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
        """Start without any node.

        `reconnect_backoff_ms` and `reconnect_backoff_max_ms` are reconnect.backoff.ms and reconnect.backoff.max.ms.
        `connection_setup_timeout_ms` and `connection_setup_timeout_max_ms` are socket.connection.setup.timeout.ms and
        socket.connection.setup.timeout.max.ms.
        `resolver` resolves host and port to addresses, without blocking.
        `random_unit` returns numbers in [0, 1) for jitter.
        """
        if not cython.compiled:
            # for type checkers; connection_states_cy.pxd has the C types
            self._nodes: dict[int, _NodeConnection] = {}
            self._connecting: set[int] = set()
            self._resolving: set[int] = set()
        self._reconnect_backoff = ExponentialBackoff(
            reconnect_backoff_ms, reconnect_backoff_max_ms, random_unit=random_unit
        )
        self._setup_timeout = ExponentialBackoff(
            connection_setup_timeout_ms, connection_setup_timeout_max_ms, random_unit=random_unit
        )
        self._resolver = resolver
        self._nodes = {}
        self._connecting = set()  # includes _resolving
        self._resolving = set()

    # --- Questions ---

    @cython.ccall
    def state(self, node_id: Any) -> ConnectionState:
        """The node's state; DISCONNECTED for a node never connected to."""
        node: _NodeConnection | None = self._nodes.get(node_id)
        return _DISCONNECTED if node is None else node.state

    def can_connect(self, node_id: int, now_ms: float) -> bool:
        """Whether a connection may be started now: there is none, and the reconnect backoff has elapsed."""
        node = self._nodes.get(node_id)
        if node is None:
            return True
        return node.state.is_disconnected and now_ms - node.last_attempt_ms >= node.reconnect_backoff_ms

    def connection_delay_ms(self, node_id: int, now_ms: float) -> float:
        """How long until the node is worth checking again.

        That is the rest of the backoff if the node is disconnected, of the setup timeout if it is connecting or
        authenticating, and of RESOLVE_PATIENCE_MS if it is resolving. It is infinity if the node is connected: I/O
        wakes the client then.
        """
        node = self._nodes.get(node_id)
        if node is None:
            return 0.0
        if node.state is ConnectionState.RESOLVING:
            return max(node.last_attempt_ms + RESOLVE_PATIENCE_MS - now_ms, 0.0)
        if node.state in _IN_SETUP:
            return max(node.last_attempt_ms + node.setup_timeout_ms - now_ms, 0.0)
        if node.state.is_disconnected:
            return max(node.last_attempt_ms + node.reconnect_backoff_ms - now_ms, 0.0)
        return NEVER_MS

    def throttle_delay_ms(self, node_id: int, now_ms: float) -> float:
        """How much longer the node throttles this client (KIP-219); 0 if it does not."""
        node = self._nodes.get(node_id)
        return 0.0 if node is None else max(node.throttled_until_ms - now_ms, 0.0)

    def poll_delay_ms(self, node_id: int, now_ms: float) -> float:
        """The rest of a connected node's throttle time, if it is throttled; else `connection_delay_ms`."""
        throttle_ms = self.throttle_delay_ms(node_id, now_ms)
        if throttle_ms > 0 and self.state(node_id).is_connected:
            return throttle_ms
        return self.connection_delay_ms(node_id, now_ms)

    @cython.ccall
    def is_ready(self, node_id: Any, now_ms: cython.double) -> cython.bint:
        """Whether requests may be sent to the node: it is READY and not throttled."""
        node: _NodeConnection | None = self._nodes.get(node_id)
        return node is not None and node.state is _READY and node.throttled_until_ms <= now_ms

    def is_preparing(self, node_id: int) -> bool:
        """Whether the connection is open or being opened, but not READY: it is being set up or renewed, or its session
        has lapsed."""
        state = self.state(node_id)
        return not state.is_disconnected and state is not ConnectionState.READY

    def address(self, node_id: int) -> str:
        """`host:port` of the node's last connection, as in the metadata or the configuration."""
        node = self._node(node_id)
        return str(Address(node.host, node.port))

    def host(self, node_id: int) -> str:
        """The host name of the node's last connection."""
        return self._node(node_id).host

    def last_attempt_ms(self, node_id: int) -> float:
        """When a connection was last tried or lost; minus infinity if never."""
        node = self._nodes.get(node_id)
        return LONG_AGO_MS if node is None else node.last_attempt_ms

    def setup_timeout_ms(self, node_id: int) -> float:
        """How long the connection attempt may take (KIP-601)."""
        return self._node(node_id).setup_timeout_ms

    @cython.ccall
    @cython.exceptval(check=False)
    def is_connecting(self) -> cython.bint:
        """Whether any node is being connected, or its name looked up."""
        return len(self._connecting) > 0

    def nodes_with_setup_timeout(self, now_ms: float) -> list[int]:
        """The nodes that have been CONNECTING or AUTHENTICATING past their setup timeout, or RESOLVING past
        RESOLVE_PATIENCE_MS."""
        if not self._connecting:
            return []
        return [node_id for node_id in self._connecting if self.connection_delay_ms(node_id, now_ms) <= 0.0]

    def resolving(self) -> list[int]:
        """The nodes whose names are being looked up."""
        return list(self._resolving)

    def is_resolving_slowly(self, node_id: int, now_ms: float) -> bool:
        """Whether the node's name has been looked up for SLOW_NAME_MS or longer."""
        return node_id in self._resolving and now_ms - self._node(node_id).last_attempt_ms >= SLOW_NAME_MS

    def next_setup_timeout_ms(self, now_ms: float) -> float:
        """How long until the first of `nodes_with_setup_timeout`, or until a name becomes slow; infinity if no node is
        connecting."""
        if not self._connecting:
            return NEVER_MS
        delays = [self.connection_delay_ms(node_id, now_ms) for node_id in self._connecting]
        for node_id in self._resolving:
            if not self.is_resolving_slowly(node_id, now_ms):
                delays.append(self._node(node_id).last_attempt_ms + SLOW_NAME_MS - now_ms)
        return min(delays, default=NEVER_MS)

    def snapshot(
        self,
        waiting: Callable[[int, float], tuple[int, float | None]],
        errors: Mapping[int, KafkaError],
        now_ms: float,
    ) -> list[ConnectionSnapshot]:
        """The connections. Any thread.

        `waiting`: returns the requests in flight to a node and the age of the oldest. `errors`: the last one of a node.
        """
        from .connection_snapshot import ConnectionSnapshot  # noqa: PLC0415 - few programs look into a producer

        node: _NodeConnection
        found: list = []
        for node_id, node in list(self._nodes.items()):
            backoff_ms = node.last_attempt_ms + node.reconnect_backoff_ms - now_ms
            in_flight, oldest_ms = waiting(node_id, now_ms)
            found.append(
                ConnectionSnapshot(
                    node_id=node_id,
                    address=str(Address(node.host, node.port)),
                    state=node.state.value,
                    failed_attempts=node.failed_attempts,
                    retry_in_ms=max(backoff_ms, 0.0) if node.state.is_disconnected else 0.0,
                    throttled_ms=max(node.throttled_until_ms - now_ms, 0.0),
                    requests_in_flight=in_flight,
                    oldest_request_ms=oldest_ms,
                    error=errors.get(node_id),
                )
            )
        return found

    # --- Transitions ---

    def connecting(self, node_id: int, now_ms: float, host: str, port: int) -> None:
        """Start a connection attempt at the host's next address. If all were tried, the name is resolved again."""
        node = self._nodes.get(node_id)
        if node is not None and (node.host, node.port) == (host, port):
            node.state = ConnectionState.CONNECTING
            node.last_attempt_ms = now_ms
            node.move_to_next_address()
        else:
            # The node is new or has moved: the history of the old address says nothing about the new one.
            self._nodes[node_id] = _NodeConnection(
                host,
                port,
                now_ms=now_ms,
                backoff_ms=self._reconnect_backoff.backoff_ms(0),
                setup_timeout_ms=self._setup_timeout.backoff_ms(0),
            )
        self._connecting.add(node_id)

    def current_address(self, node_id: int) -> ResolvedAddress | None:
        """The address to connect to; None while the name is looked up, which makes the node RESOLVING.

        Raises UnresolvableHostError if the name has no address.
        """
        node = self._node(node_id)
        address = node.current_address(self._resolver)
        if address is None:
            node.state = ConnectionState.RESOLVING
            self._resolving.add(node_id)
        return address

    def attempt_started(self, node_id: int, now_ms: float) -> None:
        """Restart the setup timeout: resolving the name is not part of it."""
        node = self._node(node_id)
        node.state = ConnectionState.CONNECTING
        node.last_attempt_ms = now_ms
        self._resolving.discard(node_id)

    def checking_api_versions(self, node_id: int) -> None:
        """Record that the socket is connected and the ApiVersions request is in flight."""
        node = self._node(node_id)
        node.state = ConnectionState.CHECKING_API_VERSIONS
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def authenticating(self, node_id: int, now_ms: float) -> None:
        """Record that the node has answered ApiVersions and SASL begins. The setup timeout begins again."""
        node = self._node(node_id)
        node.state = ConnectionState.AUTHENTICATING
        node.last_attempt_ms = now_ms
        self._connecting.add(node_id)

    def lapsed(self, node_id: int) -> None:
        """Record that the session is to be renewed before the next request, whenever that is."""
        self._node(node_id).state = ConnectionState.LAPSED

    def is_lapsed(self, node_id: int) -> bool:
        """Whether the next request has to renew the session first."""
        return self.state(node_id) is ConnectionState.LAPSED

    def reauthenticating(self, node_id: int) -> None:
        """Record that no request may be sent until the session is renewed."""
        self._node(node_id).state = ConnectionState.REAUTHENTICATING

    def ready(self, node_id: int) -> None:
        """Record that requests may be sent: the node has answered ApiVersions and SASL.

        Only this resets the backoff of earlier failures.
        """
        node = self._node(node_id)
        node.state = ConnectionState.READY
        node.failed_attempts = 0
        node.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(0)
        self._reset_setup_timeout(node)
        self._connecting.discard(node_id)

    def disconnected(self, node_id: int, now_ms: float, *, name_is_slow: bool = False) -> None:
        """Record that the connection failed or was lost. Each failure in a row doubles the backoff, up to its limit.

        An attempt that ended because the `name_is_slow` to resolve says nothing about the broker, and doubles nothing.
        """
        node = self._node(node_id)
        if name_is_slow:
            node.last_attempt_ms = now_ms
            node.reconnect_backoff_ms = self._reconnect_backoff.backoff_ms(0)
        else:
            self._back_off(node, now_ms)
        if node.state is ConnectionState.CONNECTING:
            node.failed_connect_attempts += 1
            node.setup_timeout_ms = self._setup_timeout.backoff_ms(node.failed_connect_attempts)
        else:
            self._reset_setup_timeout(node)
            if node.state.is_connected:
                # the broker may come back with another address behind the same name
                node.forget_addresses()
        node.state = ConnectionState.DISCONNECTED
        self._connecting.discard(node_id)
        self._resolving.discard(node_id)

    def authentication_failed(self, node_id: int, now_ms: float) -> None:
        """Record that the node rejected this client's credentials."""
        node = self._node(node_id)
        self._back_off(node, now_ms)
        self._reset_setup_timeout(node)
        node.state = ConnectionState.AUTHENTICATION_FAILED
        self._connecting.discard(node_id)

    def throttle(self, node_id: int, until_ms: float) -> None:
        """Send nothing to the node before `until_ms`. An earlier time never replaces a later one."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.throttled_until_ms = max(node.throttled_until_ms, until_ms)

    def retain(self, node_ids: Collection[int], now_ms: float) -> None:
        """Forget the nodes that are not in `node_ids`, unless they are connected or backing off."""
        for node_id in [known for known in self._nodes if known not in node_ids]:
            if self.can_connect(node_id, now_ms):
                del self._nodes[node_id]

    @cython.cfunc
    def _node(self, node_id: Any) -> _NodeConnection:
        node: _NodeConnection | None = self._nodes.get(node_id)
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
