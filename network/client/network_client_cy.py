# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Sends requests to brokers and receives the responses, over connections it keeps open (Kafka's NetworkClient)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..chance import random_unit as any_unit
from ..clock import NEVER_MS
from ..cluster import Node
from ..metadata import Metadata
from ..protocol.api_keys import ApiKey
from ..protocol.errors import (
    AuthenticationError,
    CorrelationIdError,
    DisconnectedError,
    EncodeError,
    IllegalStateError,
    KafkaError,
    ProtocolError,
    UnresolvableHostError,
    UnsupportedVersionError,
    make_error,
)
from ..protocol.frames import decode_response, encode_request
from ..protocol.message import Request, first_version_with
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..protocol.messages.records.produce import ProduceRequest
from ..protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ..repeats import Repeats
from ..sockets.resolver import Resolver
from .api_versions import NodeApiVersions, handshake_fallback, handshake_request
from .connection_errors import (
    MAYBE_TOO_OLD,
    authentication_timed_out,
    explained,
    not_answered,
    setup_timed_out,
    undecodable,
)
from .connection_states_cy import ClusterConnectionStates, ConnectionState
from .in_flight_cy import InFlightRequest, InFlightRequests
from .metadata_updater import MetadataRecoveryStrategy, MetadataUpdater
from .node_choice import least_loaded
from .request_cy import ClientResponse

if TYPE_CHECKING:
    from ..security.mechanism import Credentials
    from .connection_snapshot import ConnectionSnapshot

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ..clock import Clock
    from ..protocol.produce_cy import frame_of, response_in
    from ..sockets.selector_base_cy import ClientSelector
    from .client_metrics_cy import ClientMetrics
    from .connection_states_cy import ClusterConnectionStates
    from .in_flight_cy import InFlightRequest, InFlightRequests
    from .request_cy import ClientRequest, KafkaClient, call_back
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.client.client_metrics_cy import ClientMetrics
    from cython.cimports.headrace.network.client.connection_states_cy import ClusterConnectionStates
    from cython.cimports.headrace.network.client.in_flight_cy import InFlightRequest, InFlightRequests
    from cython.cimports.headrace.network.client.request_cy import ClientRequest, KafkaClient, call_back
    from cython.cimports.headrace.network.protocol.produce_cy import frame_of, response_in
    from cython.cimports.headrace.network.sockets.selector_base_cy import ClientSelector
    from cython.cimports.headrace.network.time_cy import Clock

_log = logging.getLogger(__name__)
_READY = ConnectionState.READY
_OF_SASL = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


@cython.cfunc
def _correlation_id_in(payload: memoryview) -> cython.longlong:
    """The correlation id that a response begins with; of a shorter one, what there is of it."""
    number: cython.longlong = 0
    byte: cython.longlong
    place: cython.Py_ssize_t
    size: cython.Py_ssize_t = min(len(payload), 4)
    for place in range(size):
        byte = payload[place]
        number = number << 8 | byte
    return number - (1 << 32) if number >= 1 << 31 else number


@cython.final
@cython.cclass
class NetworkClient(KafkaClient):
    """Connections to the nodes of a cluster, the requests in flight on each, and metadata updates.

    Everything except `wakeup` and `connections` belongs to one thread, the sender's. Only `poll` blocks; names are
    resolved on other threads.

    Each connection begins with ApiVersions. The node is ready once it has answered, and has accepted the credentials if
    there are any (`authentications`). Requests then use the highest version that both sides support. A node answers in
    the order of its requests. A response that does not match the oldest request closes the connection and fails all
    requests in flight on it, and so does a request that times out.
    """

    def __init__(
        self,
        *,
        selector: ClientSelector,
        metadata: Metadata,
        clock: Clock,
        client_id: str | None,
        max_in_flight_requests_per_connection: int,
        reconnect_backoff_ms: float,
        reconnect_backoff_max_ms: float,
        request_timeout_ms: float,
        connection_setup_timeout_ms: float,
        connection_setup_timeout_max_ms: float,
        resolver: Resolver,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        metadata_recovery_strategy: MetadataRecoveryStrategy = MetadataRecoveryStrategy.REBOOTSTRAP,
        metadata_recovery_rebootstrap_trigger_ms: float = 300_000,
        canonical_names: Callable[[str, int], Sequence[str] | None] | None = None,
        random_unit: Callable[[], float] = any_unit,
        metrics: ClientMetrics | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Store the settings; no connection is opened yet.

        `selector` does the socket I/O, and `metadata` says which nodes exist and when an update is due.
        `clock` is read after each poll.
        `resolver` turns host and port into addresses.
        `canonical_names` turns a bootstrap server into the names to connect to instead; None keeps the server's name.
        `random_unit` returns numbers in [0, 1) for jitter and for the choice of the first node.
        `metrics` records connections, requests and responses, if given.
        `credentials` are what connections authenticate with over SASL, if given. The client starts and closes them.
        The others are the configuration keys of those names (`connection_setup_timeout_ms` and its maximum are
        socket.connection.setup.timeout.ms and its maximum); a buffer size of -1 leaves the system's default.

        Neither `resolver` nor `canonical_names` blocks: each returns None while its lookup runs and calls `wakeup`
        when the result is available (`NameLookups`).
        """
        self._selector = selector
        self._metadata = metadata
        self._clock = clock
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._random_unit = random_unit
        self._metrics = metrics
        self._repeats = Repeats()
        self._states = ClusterConnectionStates(
            reconnect_backoff_ms=reconnect_backoff_ms,
            reconnect_backoff_max_ms=reconnect_backoff_max_ms,
            connection_setup_timeout_ms=connection_setup_timeout_ms,
            connection_setup_timeout_max_ms=connection_setup_timeout_max_ms,
            resolver=resolver,
            random_unit=random_unit,
        )
        self._in_flight = InFlightRequests(max_in_flight_requests_per_connection)
        self._updater = MetadataUpdater(
            metadata,
            self,
            recovery_strategy=metadata_recovery_strategy,
            rebootstrap_trigger_ms=metadata_recovery_rebootstrap_trigger_ms,
            canonical_names=canonical_names,
        )
        self._api_versions = {}
        self._connection_errors = {}
        self._aborted = []
        self._next_correlation_id = 0
        #: The nodes that have answered nothing since they were ready.
        self._unproven = set()
        self._handshakes = {}  # version of the ApiVersions request still to be sent, by node
        self._closed = False
        self._credentials = credentials
        self._authentications = None
        if credentials is not None:
            from .authentications import Authentications  # noqa: PLC0415 - most clients do without SASL

            self._authentications = Authentications(credentials, self, random_unit, self._repeats)
            credentials.start(self._selector.wakeup)

    # --- Connections ---

    @cython.ccall
    def ready(self, node: Node, now_ms: cython.double) -> cython.bint:
        """Whether a request can be sent to the node now.

        If not, starts a connection once the backoff allows it, or renews the session if it has lapsed.
        """
        if self.is_ready(node, now_ms):
            return True
        if self.can_connect(node.id, now_ms):
            error = self.connect(node, now_ms)
            if error is not None:
                self._updater.handle_unresolvable(now_ms, error)
            # a session that cannot be renewed yet is used to its end
            return self.is_ready(node, now_ms)
        return False

    @cython.ccall
    def is_ready(self, node: Node, now_ms: cython.double) -> cython.bint:
        """Whether a request can be sent now. Never while a metadata update is due, which goes first, but not twice."""
        if not self.can_send(node.id, now_ms):
            return False
        return self._metadata_is_quiet(now_ms) or not self._updater.goes_first(now_ms)

    @cython.cfunc
    def _metadata_is_quiet(self, now_ms: cython.double) -> cython.bint:
        """Whether no metadata update is requested or due, as `MetadataUpdater` found, without its calls."""
        quiet_until_ms: cython.double = self._updater.quiet_until_ms
        metadata = self._metadata
        return now_ms < quiet_until_ms and not (metadata.needs_full_update or metadata.needs_partial_update)

    def connection_delay_ms(self, node: Node, now_ms: float) -> float:
        """How long until the node is worth trying again; infinity if it is connected: I/O wakes the client then."""
        return self._states.connection_delay_ms(node.id, now_ms)

    def poll_delay_ms(self, node: Node, now_ms: float) -> float:
        """The rest of a connected node's throttle time, if it is throttled; else `connection_delay_ms`."""
        return self._states.poll_delay_ms(node.id, now_ms)

    def throttle_delay_ms(self, node: Node, now_ms: float) -> float:
        """How much longer the node throttles this client (KIP-219); 0 if it does not."""
        return self._states.throttle_delay_ms(node.id, now_ms)

    def connection_error(self, node_id: int) -> KafkaError | None:
        """The last connection error of the node since it was last ready."""
        return self._connection_errors.get(node_id)

    def authentication_error(self) -> AuthenticationError | None:
        """The error of the nodes that reject this client's credentials; None if a node is ready or being connected."""
        found = None
        for node_id in self._metadata.cluster.nodes:
            if not self._states.state(node_id).is_disconnected:
                return None
            error = self._connection_errors.get(node_id)
            if isinstance(error, AuthenticationError):
                found = error
        return found

    def least_loaded_node(self, now_ms: float) -> Node | None:
        """The node to use if any node will do; None if there is none.

        That is the usable node with the fewest requests in flight, else a node being connected, else the node tried
        longest ago among those whose backoff has elapsed.
        """
        return self.least_loaded(now_ms)[0]

    def disconnect(self, node_id: int, now_ms: float) -> None:
        """Close the connection to the node. The next poll completes its requests with DisconnectedError."""
        if self._states.state(node_id).is_disconnected:
            return
        error = DisconnectedError(f"this client closed the connection to {self._states.address(node_id)}")
        self._fail_connection(node_id, error, now_ms, self._aborted)

    @cython.ccall
    def api_versions(self, node_id: Any) -> NodeApiVersions | None:
        """The versions that the node supports; None while it is not ready."""
        return self._api_versions.get(node_id)

    # --- Requests ---

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
        """Create a request for `send`.

        `timeout_ms` defaults to request.timeout.ms. `min_version` and `max_version` narrow the versions that the
        message declares. `callback` runs inside `poll`.
        """
        correlation_id: cython.longlong = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        return ClientRequest(
            node_id,
            message,
            correlation_id,
            now_ms,
            self._request_timeout_ms if timeout_ms is None else timeout_ms,
            expect_response,
            callback,
            min_version,
            max_version,
        )

    @cython.ccall
    def send(self, request: ClientRequest, now_ms: cython.double) -> object:
        """Send a request to a ready node.

        A request that cannot be encoded in a version the node supports is not sent. The next poll completes it with
        UnsupportedVersionError or EncodeError. Raises IllegalStateError if the node is not ready.
        """
        self._ensure_open()
        if not self.can_send(request.node_id, now_ms):
            raise IllegalStateError(f"{request} cannot be sent, because the node is not ready; call ready() first")
        self._updater.others_were_sent = True
        error = self._send(request, now_ms)
        if error is not None:
            self._aborted.append(request.ended(now_ms, None, None, error))
        return None

    @cython.ccall
    def poll(self, timeout_ms: cython.double, now_ms: cython.double) -> list:
        """Do I/O for at most `timeout_ms`, and whatever is due: metadata updates, timeouts and handshakes.

        Calls the callback of each completed request and returns the responses. If callbacks raise, the others are
        still called, and then the first exception is raised.
        """
        responses: list = []
        self._ensure_open()
        if self._aborted:
            responses, self._aborted = self._aborted, []
            call_back(responses)
            return responses
        selector: ClientSelector = self._selector
        due_ms: cython.double
        if self._metadata_is_quiet(now_ms) and not self._updater.others_are_next:
            due_ms = self._updater.quiet_until_ms - now_ms
        else:
            due_ms = self._updater.maybe_update(now_ms)
        wait_ms: cython.double = min(timeout_ms, due_ms)
        sent = selector.take_completed_sends()
        if sent:
            self._handle_completed_sends(sent, responses, now_ms)
            if responses:
                wait_ms = 0.0
        wait_ms = min(wait_ms, self._in_flight.next_timeout_ms(now_ms))
        if self._states.is_connecting():
            due_ms = self._states.next_setup_timeout_ms(now_ms)
            wait_ms = min(wait_ms, due_ms)
        if self._authentications is not None:
            wait_ms = min(wait_ms, self._authentications.delay_ms(now_ms))
        started_ms = 0.0 if self._metrics is None else self._clock.now_ms()
        selector.poll(max(wait_ms, 0.0))
        now_ms = self._clock.now_ms()
        if self._metrics is not None:
            self._metrics.polled(now_ms - started_ms, now_ms)
        self._handle_completed_sends(selector.completed_sends, responses, now_ms)
        self._handle_completed_receives(responses, now_ms)
        if selector.disconnected:
            self._handle_disconnections(responses, now_ms)
        if selector.connected or self._handshakes:
            self._handle_connections(responses, now_ms)
        if self._authentications is not None:
            for node_id, error in self._authentications.turn(now_ms):
                self._fail_connection(node_id, error, now_ms, responses)
        if self._states.is_connecting():
            self._handle_resolved_names(now_ms)
            self._handle_setup_timeouts(responses, now_ms)
        if self._in_flight.may_have_timed_out(now_ms):
            self._handle_request_timeouts(responses, now_ms)
        if self._updater.attempts_since_ms is not None:
            self._handle_rebootstrap(responses, now_ms)
        if responses:
            call_back(responses)
        return responses

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """The number of requests in flight to one node or to all, including handshakes and metadata requests."""
        return self._in_flight.count(node_id)

    def connections(self, now_ms: float) -> list[ConnectionSnapshot]:
        """Every node that a connection was started to. Any thread, which may see a connection between two steps."""
        return self._states.snapshot(self._in_flight.waiting, self._connection_errors, now_ms)

    def wakeup(self) -> None:
        """Make `poll` return early. Any thread."""
        self._selector.wakeup()

    def close(self) -> None:
        """Close all connections. Idempotent.

        Requests in flight are never completed. Callers waiting for metadata get ProducerClosedError.
        """
        if not self._closed:
            self._closed = True
            if self._credentials is not None:
                self._credentials.close()
            self._selector.close()
            self._metadata.close()

    # --- For the authentications ---

    def send_sasl_request(self, node_id: int, message: Request, now_ms: float) -> KafkaError | None:
        """Send the request. Returns the error if it cannot be encoded in a version that the node supports."""
        # a node that throttles this client answers late
        timeout_ms = self._request_timeout_ms + self._states.throttle_delay_ms(node_id, now_ms)
        return self._send(self.new_request(node_id, message, now_ms, timeout_ms), now_ms, True)

    def let_lapse(self, node_id: int) -> None:
        """Call `Authentications.renew` before the next request to the node."""
        self._states.lapsed(node_id)

    def hold_requests(self, node_id: int) -> None:
        """Send nothing but SASL requests to the node until `authenticated`."""
        self._states.reauthenticating(node_id)

    def authenticated(self, node_id: int) -> None:
        """The node is ready, for the first time or again."""
        is_new = not self._states.state(node_id).was_ready
        self._connection_errors.pop(node_id, None)
        self._states.ready(node_id)
        if is_new:
            self._unproven.add(node_id)
            _log.debug("Node %d (%s) is ready", node_id, self._states.address(node_id))

    # --- For the metadata updater ---

    @property
    def connection_errors(self) -> Mapping[int, KafkaError]:
        """The last connection error of each node since it was last ready."""
        return self._connection_errors

    def least_loaded(self, now_ms: float) -> tuple[Node | None, bool]:
        """The node of `least_loaded_node`, and whether any node of the cluster is connected."""
        nodes = tuple(self._metadata.cluster.nodes.values())
        offset = int(self._random_unit() * len(nodes))
        return least_loaded(nodes[offset:] + nodes[:offset], self._states, self._in_flight, self.can_send, now_ms)

    @cython.ccall
    def can_send(self, node_id: Any, now_ms: cython.double) -> cython.bint:
        """Whether the node is connected, not throttled and has room for a request."""
        return (
            self._states.is_ready(node_id, now_ms)
            and self._in_flight.can_send_more(node_id)
            and self._selector.is_channel_ready(str(node_id))
        )

    def can_connect(self, node_id: int, now_ms: float) -> bool:
        """Whether a connection to the node may be started now, or its session renewed."""
        return self._states.is_lapsed(node_id) or self._states.can_connect(node_id, now_ms)

    def time_to_usable_node(self, now_ms: float) -> float:
        """How long until a node's backoff or throttling ends; infinity if only I/O can change anything."""
        delays = (self._states.poll_delay_ms(node_id, now_ms) for node_id in self._metadata.cluster.nodes)
        return min(delays, default=NEVER_MS)

    def connect(self, node: Node, now_ms: float) -> KafkaError | None:
        """Start a connection, or renew the session of one that has lapsed.

        Returns the error if the name is known to have no address.
        """
        if self._authentications is not None and self._states.is_lapsed(node.id):
            failed = self._authentications.renew(node.id, now_ms)
            if failed is not None:
                self._fail_connection(node.id, failed, now_ms, self._aborted)
            return None
        self._states.connecting(node.id, now_ms, node.host, node.port)
        return self._go_on_connecting(node.id, now_ms)

    def _go_on_connecting(self, node_id: int, now_ms: float) -> UnresolvableHostError | None:
        name = self._states.address(node_id)
        try:
            resolved = self._states.current_address(node_id)
        except UnresolvableHostError as error:
            self._states.disconnected(node_id, self._clock.now_ms())
            self._connection_errors[node_id] = error
            level = self._repeats.level((node_id, logging.WARNING), logging.WARNING, now_ms)
            _log.log(level, "Cannot connect to node %d (%s): %s", node_id, name, error)
            return error
        if resolved is None:
            self._metadata.record_progress(f"the name of {name} is being resolved")
            return None
        family, address = resolved
        # the time of the lookup does not count as connecting
        self._states.attempt_started(node_id, self._clock.now_ms())
        _log.debug("Connecting to node %d (%s) at %s", node_id, name, address)
        self._metadata.record_progress(f"{name} is being connected to")
        self._selector.connect(
            str(node_id),
            family,
            address,
            host=self._states.host(node_id),
            send_buffer_bytes=self._send_buffer_bytes,
            receive_buffer_bytes=self._receive_buffer_bytes,
        )
        return None

    def send_metadata_request(self, node_id: int, message: MetadataRequest, now_ms: float) -> KafkaError | None:
        """Send the request. Returns the error if it cannot be encoded in a version that the node supports."""
        self._metadata.record_progress(f"{self._states.address(node_id)} has not answered the request for metadata yet")
        if message.allow_auto_topic_creation:
            return self._send(self.new_request(node_id, message, now_ms), now_ms, True)
        oldest = first_version_with(MetadataRequest, "allow_auto_topic_creation")
        request = self.new_request(node_id, message, now_ms, None, None, True, oldest)
        error = self._send(request, now_ms, True)
        if not isinstance(error, UnsupportedVersionError):
            return error
        return UnsupportedVersionError(f"{error}; allow.auto.create.topics=false needs version {oldest} of METADATA")

    # --- Inside a poll ---

    @cython.cfunc
    def _send(
        self,
        request: ClientRequest,
        now_ms: cython.double,
        is_internal: cython.bint = False,
        version: Any = None,
    ) -> KafkaError | None:
        try:
            if version is None:
                versions = self._api_versions[request.node_id]
                version = versions.usable.get((type(request.message), request.min_version, request.max_version))
                if version is None:
                    version = versions.usable_version(
                        type(request.message), min_version=request.min_version, max_version=request.max_version
                    )
            buffers = None
            if type(request.message) is ProduceRequest:
                buffers = frame_of(request.message, version, request.correlation_id, self._client_id)
            if buffers is None:
                buffers = encode_request(
                    request.message, version=version, correlation_id=request.correlation_id, client_id=self._client_id
                )
        except (UnsupportedVersionError, EncodeError) as error:
            _log.debug("Not sending %s: %s", request, error)
            return error
        send = self._selector.send(str(request.node_id), buffers)
        self._in_flight.add(InFlightRequest(request, version, now_ms, send, is_internal))
        return None

    @cython.cfunc
    def _handle_completed_sends(self, sends: Any, responses: list, now_ms: cython.double) -> object:
        request: InFlightRequest | None
        for send in sends:
            node_id = int(send.channel_id)
            if self._metrics is not None:
                self._metrics.sent(node_id, send.size_bytes, now_ms)
            request = self._in_flight.complete_sent(node_id, send)
            if request is not None:
                responses.append(request.request.ended(now_ms, None, request.version))
        return None

    @cython.cfunc
    def _handle_completed_receives(self, responses: list, now_ms: cython.double) -> object:
        for receive in self._selector.completed_receives:
            node_id = int(receive.channel_id)
            state = self._states.state(node_id)
            if state is not _READY and not state.is_connected:
                continue  # an earlier receive of this poll has closed the connection
            try:
                self._handle_receive(node_id, receive.payload, responses, now_ms)
            except ProtocolError as error:
                self._handle_undecodable(node_id, error, responses, now_ms)
        return None

    @cython.cfunc
    def _handle_receive(self, node_id: Any, payload: Any, responses: list, now_ms: cython.double) -> object:
        in_flight: InFlightRequest | None = self._in_flight.oldest(node_id)
        correlation_id: cython.longlong = _correlation_id_in(payload)
        if in_flight is None:
            raise CorrelationIdError(f"a response with correlation id {correlation_id} arrived without a request")
        request = in_flight.request
        if len(payload) >= 4 and correlation_id != request.correlation_id:
            raise CorrelationIdError(
                f"a response has correlation id {correlation_id}, but the oldest request is {request}"
            )
        message = None
        if type(request.message) is ProduceRequest:
            message = response_in(in_flight.version, payload)
        if message is None:
            _, message = decode_response(type(request.message), in_flight.version, payload)
        self._in_flight.complete_next(node_id)
        if self._unproven and node_id in self._unproven:
            self._unproven.discard(node_id)
            if self._repeats.over((node_id, logging.WARNING)):
                _log.info("Node %d (%s) answers again", node_id, self._states.address(node_id))
        if self._metrics is not None:
            self._metrics.answered(node_id, len(payload) + 4, now_ms - request.created_ms, now_ms)
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_ms > 0 and in_flight.version in message.client_throttles:
            _log.debug("%s throttles this client for %d ms", self._states.address(node_id), throttle_ms)
            self._in_flight.add_throttle_time(node_id, throttle_ms)
            self._states.throttle(node_id, now_ms + throttle_ms)
        if not in_flight.is_internal:
            responses.append(request.ended(now_ms, message, in_flight.version))
        elif self._authentications is not None and message.api_key in _OF_SASL:
            error = self._authentications.handle(node_id, message, now_ms)
            if error is not None:
                self._fail_connection(node_id, error, now_ms, responses)
        elif isinstance(message, ApiVersionsResponse):
            self._handle_api_versions(node_id, message, in_flight.version, responses, now_ms)
        elif isinstance(message, MetadataResponse):
            self._updater.handle_response(message, in_flight.version, now_ms)
            self._forget_unknown_nodes(now_ms)
        return None

    def _handle_undecodable(
        self, node_id: int, error: ProtocolError, responses: list[ClientResponse], now_ms: float
    ) -> None:
        failure = undecodable(error, self._states.address(node_id), self._states.state(node_id))
        in_flight: InFlightRequest | None = self._in_flight.oldest(node_id)
        if in_flight is not None and not in_flight.is_internal:
            self._in_flight.complete_next(node_id)
            responses.append(in_flight.request.ended(now_ms, None, None, failure, True))
        self._fail_connection(node_id, failure, now_ms, responses)

    def _handle_api_versions(
        self,
        node_id: int,
        response: ApiVersionsResponse,
        version: int,
        responses: list[ClientResponse],
        now_ms: float,
    ) -> None:
        if response.error_code == 0:
            address = self._states.address(node_id)
            self._api_versions[node_id] = versions = NodeApiVersions.from_response(response, name=address)
            _log.debug("Node %d (%s) supports %r", node_id, address, versions)
            if self._authentications is None:
                self.authenticated(node_id)
            else:
                self._states.authenticating(node_id, now_ms)
                self._metadata.record_progress(f"{address} is authenticating this client")
                self._authentications.begin(node_id, self._states.host(node_id), address)
            return
        fallback = handshake_fallback(response, version)
        if fallback is not None:
            self._handshakes[node_id] = fallback
            return
        error = make_error(response.error_code)
        failure = type(error)(f"{self._states.address(node_id)} answered ApiVersions with: {error}")
        self._fail_connection(node_id, failure, now_ms, responses)

    def _handle_disconnections(self, responses: list[ClientResponse], now_ms: float) -> None:
        for channel_id, reason in self._selector.disconnected.items():
            node_id = int(channel_id)
            # If it is disconnected already, its channel was closed earlier in this poll, with a more specific error.
            if not self._states.state(node_id).is_disconnected:
                error = explained(
                    reason,
                    self._states.address(node_id),
                    self._states.state(node_id),
                    maybe_sasl=self._credentials is None and node_id in self._unproven,
                )
                self._process_disconnection(node_id, error, now_ms, responses)

    def _handle_connections(self, responses: list[ClientResponse], now_ms: float) -> None:
        for channel_id in self._selector.connected:
            self._handshakes[int(channel_id)] = ApiVersionsRequest.versions.max
        # This follows the disconnections of this poll, so that no request goes to a lost connection.
        handshakes, self._handshakes = self._handshakes, {}
        for node_id, version in handshakes.items():
            if self._selector.is_channel_ready(str(node_id)):
                self._states.checking_api_versions(node_id)
                request = self.new_request(node_id, handshake_request(), now_ms)
                error = self._send(request, now_ms, True, version)
                self._metadata.record_progress(
                    f"{self._states.address(node_id)} accepted the connection, but has not answered anything yet "
                    f"({MAYBE_TOO_OLD})"
                )
                if error is not None:
                    # only a client id that is too long can cause this, and waiting does not help
                    self._fail_connection(node_id, error, now_ms, responses)
                    self._metadata.fatal_error(error)

    def _handle_resolved_names(self, now_ms: float) -> None:
        for node_id in self._states.resolving():
            error = self._go_on_connecting(node_id, now_ms)
            if error is not None:
                self._updater.handle_unresolvable(now_ms, error)

    def _handle_setup_timeouts(self, responses: list[ClientResponse], now_ms: float) -> None:
        for node_id in self._states.nodes_with_setup_timeout(now_ms):
            address, timeout_ms = self._states.address(node_id), self._states.setup_timeout_ms(node_id)
            state = self._states.state(node_id)
            if state is ConnectionState.AUTHENTICATING and self._authentications is not None:
                error = authentication_timed_out(address, self._authentications.waits_for(node_id), timeout_ms)
            else:
                in_handshake = self._selector.is_in_handshake(str(node_id))
                error = setup_timed_out(address, state, timeout_ms, in_handshake=in_handshake)
            self._fail_connection(node_id, error, now_ms, responses, timed_out=True)

    def _handle_request_timeouts(self, responses: list[ClientResponse], now_ms: float) -> None:
        for node_id in self._in_flight.nodes_with_timed_out_requests(now_ms):
            late: InFlightRequest | None = self._in_flight.oldest(node_id)
            waited = "" if late is None else f": {late.request} waited {now_ms - late.sent_ms:.0f} ms"
            error = not_answered(self._states.address(node_id), self._states.state(node_id), waited)
            self._fail_connection(node_id, error, now_ms, responses, timed_out=True)

    def _handle_rebootstrap(self, responses: list[ClientResponse], now_ms: float) -> None:
        if not self._updater.needs_rebootstrap(now_ms):
            return
        error = DisconnectedError("this client closed the connection to bootstrap again")
        for node_id in self._metadata.cluster.nodes:
            if not self._states.state(node_id).is_disconnected:
                self._fail_connection(node_id, error, now_ms, responses)
        self._updater.rebootstrap(now_ms)

    def _fail_connection(
        self,
        node_id: int,
        error: KafkaError,
        now_ms: float,
        responses: list[ClientResponse],
        *,
        timed_out: bool = False,
    ) -> None:
        self._selector.close_channel(str(node_id))
        self._process_disconnection(node_id, error, now_ms, responses, timed_out=timed_out)

    def _process_disconnection(
        self,
        node_id: int,
        error: KafkaError,
        now_ms: float,
        responses: list[ClientResponse],
        *,
        timed_out: bool = False,
    ) -> None:
        state = self._states.state(node_id)
        level = logging.WARNING
        if state.was_ready and not isinstance(error, AuthenticationError):
            level = logging.ERROR if isinstance(error, ProtocolError) else logging.INFO
            if node_id in self._unproven:
                level = max(level, logging.WARNING)
        if level > logging.INFO:
            # a broker that is down for minutes is retried every second
            level = self._repeats.level((node_id, level), level, now_ms)
        _log.log(level, "Disconnected from node %d while %s: %s", node_id, state.value, error)
        if isinstance(error, AuthenticationError):
            self._states.authentication_failed(node_id, now_ms)
        else:
            self._states.disconnected(node_id, now_ms, name_is_slow=state is ConnectionState.RESOLVING)
        self._api_versions.pop(node_id, None)
        self._unproven.discard(node_id)
        if self._authentications is not None:
            self._authentications.forget(node_id)
        self._connection_errors[node_id] = error
        in_flight: InFlightRequest
        for in_flight in self._in_flight.clear(node_id):
            request = in_flight.request
            if not in_flight.is_internal:
                failure = error
                if not isinstance(error, DisconnectedError):
                    failure = DisconnectedError(f"{request} was not answered: {error}")
                    failure.__cause__ = error
                responses.append(request.ended(now_ms, None, None, failure, True, timed_out))
            elif isinstance(request.message, MetadataRequest):
                self._updater.handle_failure(now_ms, error)
        self._updater.handle_disconnection(now_ms, error)

    def _forget_unknown_nodes(self, now_ms: float) -> None:
        nodes = self._metadata.cluster.nodes
        self._states.retain(nodes, now_ms)
        if self._metrics is not None:
            self._metrics.keep_nodes(nodes)
        for node_id in [known for known in self._connection_errors if known not in nodes]:
            del self._connection_errors[node_id]

    @cython.cfunc
    def _ensure_open(self) -> object:
        if self._closed:
            raise IllegalStateError("this client is closed")
        return None
