"""The requests of client telemetry: a state machine, stepped by the sender thread.

    SUBSCRIPTION_NEEDED      the next step that finds a node ready sends GetTelemetrySubscriptions
    SUBSCRIPTION_IN_PROGRESS it awaits the response: which metrics, how often, in which form
    PUSH_NEEDED              at the end of the interval the metrics are collected, on a thread of their own, because
                             reading and encoding thousands of metrics would delay the batches
    ENCODING                 that thread runs; when it has ended, PushTelemetry is sent
    PUSH_IN_PROGRESS         it awaits the response
    ENDED                    nothing is pushed any longer

The first push comes after half to one and a half times the interval, so that clients that were started together do not
push together; the others come after one interval. A subscription without metrics is requested again after its interval.
A response with an error leads back to SUBSCRIPTION_NEEDED, immediately or after the interval, or ends telemetry. All
requests go to one node as long as it is ready. When the producer closes, one push more is sent, marked as the last.

Source: Kafka's ClientTelemetryReporter. Differences: metrics are encoded on another thread; the increase of a counter
is carried over if a push is rejected; a codec that a broker rejects is not used again; the payload is limited to
`telemetry_max_bytes`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ...network.client.request import KafkaClient
from ...network.client.request_cy import ClientResponse
from ...network.clock import LONG_AGO_MS, NEVER_MS
from ...network.cluster import Node
from ...network.metadata import Metadata
from ...network.protocol import errors
from ...network.protocol.messages.telemetry.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ...network.protocol.messages.telemetry.push_telemetry import PushTelemetryRequest
from ...network.protocol.types import ZERO_UUID
from ...network.records.compression import Compression
from ...network.repeats import Repeats
from .telemetry import LOOK_AGAIN_MS, Telemetry
from .telemetry_metrics import Payload, Subscription, TelemetryMetrics

if TYPE_CHECKING:
    import uuid

_log = logging.getLogger(__name__)

#: Milliseconds before a request that got no response is sent again.
RETRY_MS = 10_000.0

#: Milliseconds after which the reporter checks again a node that is being connected, or for a node to connect.
CONNECT_MS = 50.0
RECONNECT_MS = 1_000.0

#: The most milliseconds that closing a producer is prolonged by its last push.
LAST_PUSH_MS = 1_000.0

#: The interval if a broker gives none.
DEFAULT_INTERVAL_MS = 300_000

_KNOWN_CODECS = frozenset(Compression)
_AT_ONCE = (errors.UnknownSubscriptionIdError, errors.UnsupportedCompressionTypeError)


class State(Enum):
    """The states, which the module describes."""

    SUBSCRIPTION_NEEDED = 1
    SUBSCRIPTION_IN_PROGRESS = 2
    PUSH_NEEDED = 3
    ENCODING = 4
    PUSH_IN_PROGRESS = 5
    ENDED = 6


class _Encoded(NamedTuple):
    """What the encoding thread leaves: the payload, or why there is none."""

    payload: Payload | None
    error: BaseException | None


def run_aside(function: Callable[[], None], name: str) -> None:
    """Run a function on a daemon thread of its own, or here if no thread can be started, as at the interpreter's
    exit."""
    try:
        threading.Thread(target=function, name=name, daemon=True).start()
    except RuntimeError:
        function()


class TelemetryReporter:
    """Requests the subscription and pushes the metrics. Belongs to the sender thread.

    Invariant: at most one request is in flight, and none while the metrics are being encoded. `_encoded` is written by
    the encoding thread, once per ENCODING, and taken by the sender thread.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        client: KafkaClient,
        metadata: Metadata,
        metrics: TelemetryMetrics,
        name: str,
        random_unit: Callable[[], float],
        run: Callable[[Callable[[], None], str], None] = run_aside,
    ) -> None:
        """Create a reporter that needs a subscription.

        `telemetry`: takes the client instance id.
        `client`: the connections to the brokers.
        `metadata`: names the nodes.
        `metrics`: collects and encodes the metrics.
        `name`: the name of the encoding thread.
        `random_unit`: returns numbers in [0, 1), for the time of the first push.
        `run`: runs a function on a thread with a name.
        """
        self._telemetry = telemetry
        self._client = client
        self._metadata = metadata
        self._metrics = metrics
        self._name = name
        self._random_unit = random_unit
        self._run = run
        self._repeats = Repeats()
        self.state = State.SUBSCRIPTION_NEEDED
        self._due_ms = LONG_AGO_MS
        self._node_id: int | None = None
        self._instance_id: uuid.UUID = ZERO_UUID
        self._subscription: Subscription | None = None
        self._refused: set[int] = set()
        self._encoded: _Encoded | None = None
        #: When the last push has to be done; None before the producer closes.
        self._end_ms: float | None = None

    # --- The sender's calls ---

    def step(self, now_ms: float) -> float:
        """Do what is due. Returns the time of the next call, as `Telemetry.step` does."""
        if self.state is State.ENCODING and self._encoded is not None:
            return self._push(self._encoded, now_ms)
        if self.state is State.ENDED:
            return NEVER_MS
        if self.state not in (State.SUBSCRIPTION_NEEDED, State.PUSH_NEEDED):
            return LONG_AGO_MS
        if now_ms < self._due_ms:
            return self._due_ms
        node, again_ms = self._ready_node(now_ms)
        if node is None:
            return again_ms
        if self.state is State.PUSH_NEEDED:
            self._encode()
        else:
            self.state = State.SUBSCRIPTION_IN_PROGRESS
            message = GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id)
            self._send(node, message, now_ms, self._on_subscription)
        return LONG_AGO_MS

    def begin_close(self, now_ms: float) -> None:
        """Send the last push as soon as the current one has ended; without a subscription, end."""
        if self.state in (State.SUBSCRIPTION_NEEDED, State.SUBSCRIPTION_IN_PROGRESS):
            self.state = State.ENDED
            return
        self._end_ms = now_ms + LAST_PUSH_MS
        self._due_ms = LONG_AGO_MS

    def ending_ms(self, now_ms: float) -> float:
        """How many milliseconds the last push may still take; 0 when it has ended."""
        if self._end_ms is None or self.state is State.ENDED:
            return 0.0
        return max(self._end_ms - now_ms, 0.0)

    # --- Requests ---

    def _ready_node(self, now_ms: float) -> tuple[Node | None, float]:
        """A node that can take a request: the same one as long as possible. Without one, when to look again."""
        node = None if self._node_id is None else self._metadata.cluster.nodes.get(self._node_id)
        if node is None or not self._client.is_ready(node, now_ms):
            node = self._client.least_loaded_node(now_ms)
        if node is None:
            return None, now_ms + RECONNECT_MS
        if self._client.ready(node, now_ms):
            return node, now_ms
        return None, now_ms + CONNECT_MS

    def _send(
        self,
        node: Node,
        message: GetTelemetrySubscriptionsRequest | PushTelemetryRequest,
        now_ms: float,
        callback: Callable[[ClientResponse], None],
    ) -> None:
        self._node_id = node.id
        self._client.send(self._client.new_request(node.id, message, now_ms=now_ms, callback=callback), now_ms)

    def _encode(self) -> None:
        assert self._subscription is not None
        subscription = self._subscription
        self.state = State.ENCODING
        self._encoded = None

        def encode() -> None:
            try:
                encoded = _Encoded(self._metrics.payload(subscription), None)
            except Exception as failed:
                # another library encodes, and it may be missing
                encoded = _Encoded(None, failed)
            self._encoded = encoded
            self._client.wakeup()

        self._run(encode, self._name)

    def _push(self, encoded: _Encoded, now_ms: float) -> float:
        payload, subscription = encoded.payload, self._subscription
        assert subscription is not None
        if payload is None:
            self._end_without_payload(encoded.error)
            return NEVER_MS
        if payload.left_out:
            level = self._repeats.level("too large", logging.WARNING, now_ms)
            _log.log(
                level,
                "%d of this producer's metrics are not pushed: the broker accepts %d bytes (telemetry.max.bytes)",
                payload.left_out,
                subscription.max_bytes,
            )
        node, again_ms = self._ready_node(now_ms)
        if node is None:
            return again_ms
        self._encoded = None
        self.state = State.PUSH_IN_PROGRESS
        is_last = self._end_ms is not None
        message = PushTelemetryRequest(
            client_instance_id=self._instance_id,
            subscription_id=subscription.id,
            terminating=is_last,
            compression_type=payload.compression,
            metrics=payload.data,
        )
        self._send(node, message, now_ms, lambda response: self._on_pushed(response, payload, is_last))
        return LONG_AGO_MS

    def _end_without_payload(self, error: BaseException | None) -> None:
        self.state = State.ENDED
        if isinstance(error, ImportError):
            warn_of_missing_package("a broker asks for this producer's metrics (KIP-714)")
        else:
            _log.warning("the metrics that a broker asks for can't be encoded; none are pushed", exc_info=error)

    # --- Responses ---

    def _on_subscription(self, response: ClientResponse) -> None:
        if self.state is not State.SUBSCRIPTION_IN_PROGRESS:
            # closed meanwhile
            return
        self.state = State.SUBSCRIPTION_NEEDED
        now_ms = response.received_ms
        if response.message is None:
            self._failed_request(response, now_ms)
            return
        message = response.message
        if message.error_code:
            self._rejected(errors.make_error(message.error_code), now_ms)
            return
        if message.client_instance_id != ZERO_UUID:
            self._instance_id = message.client_instance_id
        self._telemetry.assigned(self._instance_id)
        interval_ms = message.push_interval_ms if message.push_interval_ms > 0 else DEFAULT_INTERVAL_MS
        known = [codec for codec in message.accepted_compression_types if codec in _KNOWN_CODECS]
        accepted = [codec for codec in known if codec not in self._refused]
        self._subscription = Subscription(
            message.subscription_id,
            tuple(message.requested_metrics),
            interval_ms,
            Compression(accepted[0]) if accepted else Compression.NONE,
            message.delta_temporality,
            message.telemetry_max_bytes,
        )
        if message.requested_metrics:
            _log.debug("%s pushes metrics as client instance %s", self._name, self._instance_id)
            self.state = State.PUSH_NEEDED
            self._due_ms = now_ms + interval_ms * (0.5 + self._random_unit())
        else:
            self._due_ms = now_ms + interval_ms

    def _on_pushed(self, response: ClientResponse, payload: Payload, is_last: bool) -> None:
        now_ms = response.received_ms
        assert self._subscription is not None
        self.state = State.PUSH_NEEDED
        self._due_ms = now_ms + self._subscription.interval_ms
        if response.message is not None and response.message.error_code:
            self._metrics.rejected(payload)
            error = errors.make_error(response.message.error_code)
            if isinstance(error, errors.UnsupportedCompressionTypeError):
                self._refused.add(payload.compression)
            self._rejected(error, now_ms)
            if isinstance(error, _AT_ONCE):
                self._due_ms = LONG_AGO_MS
        elif response.message is None and not response.disconnected:
            # it was not sent; a push whose response is lost may have arrived, so its counters are not pushed again
            self._metrics.rejected(payload)
            self._failed_request(response, now_ms)
        if is_last:
            self.state = State.ENDED
        elif self._end_ms is not None:
            # the producer began to close while this push was in flight
            self._due_ms = LONG_AGO_MS
            if self.state is not State.PUSH_NEEDED:
                self.state = State.ENDED

    def _rejected(self, error: errors.BrokerResponseError, now_ms: float) -> None:
        """A broker answered with an error: request the subscription again, or end."""
        if isinstance(error, (*_AT_ONCE, errors.RetriableError, errors.TelemetryTooLargeError)):
            _log.debug("%s: the broker rejected telemetry: %s", self._name, error)
            self.state = State.SUBSCRIPTION_NEEDED
            interval_ms = DEFAULT_INTERVAL_MS if self._subscription is None else self._subscription.interval_ms
            self._due_ms = now_ms + interval_ms
            return
        _log.warning("no metrics are pushed any longer, because a broker rejects them: %s", error)
        self._end(error)

    def _failed_request(self, response: ClientResponse, now_ms: float) -> None:
        """A request got no response: the connection was lost, or the node does not serve telemetry."""
        self.state = State.SUBSCRIPTION_NEEDED
        self._node_id = None
        self._due_ms = now_ms + (RETRY_MS if response.disconnected else LOOK_AGAIN_MS)

    def _end(self, error: errors.KafkaError) -> None:
        self.state = State.ENDED
        self._telemetry.unavailable(error)


class _Warned:
    """Whether this process has warned about the missing package."""

    once = False


def warn_of_missing_package(reason: str) -> None:
    """Log a warning, once per process, that opentelemetry-proto is missing."""
    if not _Warned.once:
        _Warned.once = True
        _log.warning(
            "%s, but opentelemetry-proto can't be imported, so none are pushed: pip install 'headrace[telemetry]', or "
            "set enable.metrics.push=false",
            reason,
        )
