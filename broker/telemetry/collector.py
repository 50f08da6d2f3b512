"""A broker's side of client telemetry."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from ...network.clock import LONG_AGO_MS, Clock
from ...network.protocol.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from ...network.protocol.messages.telemetry.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from ...network.protocol.messages.telemetry.push_telemetry import PushTelemetryRequest
from ...network.protocol.types import ZERO_UUID
from ...network.records.compression import Compression, decompress
from ...network.records.crc import crc32c
from ..config.client_metrics_config import ClientMetricsConfig, parse_patterns
from ..metadata import CLIENT_METRICS, ClusterImage
from .push import TelemetryPush

#: The codecs in the order of preference (Kafka's SUPPORTED_COMPRESSION_TYPES).
ACCEPTED = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)

#: The most client instances that a broker remembers (Kafka's CACHE_MAX_SIZE).
MAX_INSTANCES = 16_384

#: The most pushes that a broker keeps, and the most bytes that they have. The oldest are dropped first.
MAX_PUSHES = 1_000
MAX_PUSHED_BYTES = 64 * 2**20

#: How much larger than `telemetry.max.bytes` decompressed metrics may be.
_MAX_RATIO = 32


class Client(NamedTuple):
    """Who sent a request."""

    client_id: str | None
    software_name: str
    software_version: str
    address: str


class _Instance:
    """A client instance: the subscription that it has, and when it sent what."""

    __slots__ = ("got_ms", "id", "interval_ms", "is_terminated", "prefixes", "pushed_ms", "subscription_id", "version")

    def __init__(self, instance_id: uuid.UUID) -> None:
        self.id = instance_id
        self.version = -1
        self.prefixes: tuple[str, ...] = ()
        self.interval_ms = 0
        self.subscription_id = 0
        self.got_ms = LONG_AGO_MS
        self.pushed_ms = LONG_AGO_MS
        self.is_terminated = False


class Collector:
    """The subscriptions, the client instances and the pushes of one broker. Any thread; one lock, a leaf.

    A client instance may ask for its subscription, and push, once per interval; the first push after a subscription may
    come at any time. The subscription's id changes with the subscription, so a client whose subscription has changed
    gets UNKNOWN_SUBSCRIPTION_ID for its next push, and asks again.
    """

    def __init__(self, node_id: int, clock: Clock, max_bytes: int, image: Callable[[], ClusterImage]) -> None:
        """`max_bytes`: of a compressed push (``telemetry.max.bytes``). `image`: the broker's view of the cluster."""
        self._node_id = node_id
        self._clock = clock
        self._max_bytes = max_bytes
        self._image = image
        self._lock = threading.Lock()
        self._configs: object = None
        self._version = 0
        self._instances: OrderedDict[uuid.UUID, _Instance] = OrderedDict()
        self._pushes: deque[TelemetryPush] = deque()
        self._pushed_bytes = 0

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster has a subscription, so that the two APIs are advertised."""
        return any(kind == CLIENT_METRICS for kind, _ in self._image().configs)

    def pushes(self) -> list[TelemetryPush]:
        """What was pushed to this broker, in order."""
        with self._lock:
            return list(self._pushes)

    def clear(self) -> None:
        """Forget the pushes, for tests that share a broker."""
        with self._lock:
            self._pushes.clear()
            self._pushed_bytes = 0

    def subscribe(self, instance_id: uuid.UUID, client: Client) -> GetTelemetrySubscriptionsResponse:
        """The subscription of a client instance, or of a new one for ZERO_UUID. Raises ThrottlingQuotaExceededError."""
        now_ms = self._clock.now_ms()
        with self._lock:
            instance = self._instance(uuid.uuid4() if instance_id == ZERO_UUID else instance_id, client)
            if now_ms - max(instance.got_ms, instance.pushed_ms) < instance.interval_ms:
                raise ThrottlingQuotaExceededError(f"client {instance.id} asked before the end of its interval")
            instance.got_ms = now_ms
            return GetTelemetrySubscriptionsResponse(
                client_instance_id=instance.id,
                subscription_id=instance.subscription_id,
                accepted_compression_types=list(ACCEPTED),
                push_interval_ms=instance.interval_ms,
                telemetry_max_bytes=self._max_bytes,
                delta_temporality=True,
                requested_metrics=list(instance.prefixes),
            )

    def push(self, request: PushTelemetryRequest, client: Client) -> None:
        """Keep what a client pushed. Raises the errors that KIP-714 lists for PushTelemetry."""
        now_ms = self._clock.now_ms()
        if request.client_instance_id == ZERO_UUID:
            raise InvalidRequestError("the push names no client instance")
        with self._lock:
            instance = self._instance(request.client_instance_id, client)
            try:
                self._check(instance, request, now_ms)
            finally:
                instance.is_terminated = request.terminating
        codec = Compression(request.compression_type)
        try:
            data = bytes(decompress(codec, request.metrics, self._max_bytes * _MAX_RATIO))
        except CorruptRecordError as wrong:
            raise InvalidRecordError(f"the metrics of client {instance.id} can't be decompressed: {wrong}") from wrong
        if not data:
            return
        push = TelemetryPush(
            self._node_id,
            instance.id,
            client.client_id,
            client.software_name,
            client.software_version,
            request.subscription_id,
            request.terminating,
            codec.label,
            data,
            now_ms,
        )
        with self._lock:
            self._pushes.append(push)
            self._pushed_bytes += len(data)
            while len(self._pushes) > MAX_PUSHES or (self._pushed_bytes > MAX_PUSHED_BYTES and len(self._pushes) > 1):
                self._pushed_bytes -= len(self._pushes.popleft().data)

    def _check(self, instance: _Instance, request: PushTelemetryRequest, now_ms: float) -> None:
        if instance.is_terminated:
            raise InvalidRequestError(f"client {instance.id} has sent its last push already")
        if instance.got_ms > instance.pushed_ms or now_ms - instance.pushed_ms >= instance.interval_ms:
            instance.pushed_ms = now_ms
        elif not request.terminating:
            raise ThrottlingQuotaExceededError(f"client {instance.id} pushed before the end of its interval")
        if request.subscription_id != instance.subscription_id:
            raise UnknownSubscriptionIdError(f"client {instance.id} has another subscription by now")
        if request.compression_type not in frozenset(Compression):
            raise UnsupportedCompressionTypeError(f"there is no codec {request.compression_type}")
        if len(request.metrics) > self._max_bytes:
            raise TelemetryTooLargeError(f"{len(request.metrics)} bytes of metrics; the limit is {self._max_bytes}")

    def _instance(self, instance_id: uuid.UUID, client: Client) -> _Instance:
        """A client instance with the current subscription. The caller holds the lock."""
        configs = self._image().configs
        if configs is not self._configs:
            self._configs = configs
            self._version += 1
        instance = self._instances.get(instance_id)
        if instance is None:
            if len(self._instances) >= MAX_INSTANCES:
                self._instances.popitem(last=False)
            instance = self._instances[instance_id] = _Instance(instance_id)
        self._instances.move_to_end(instance_id)
        if instance.version != self._version:
            before = instance.subscription_id
            self._choose(instance, client)
            instance.version = self._version
            if instance.subscription_id != before:
                # with another subscription, it may ask and push at once
                instance.got_ms = instance.pushed_ms = LONG_AGO_MS
        return instance

    def _choose(self, instance: _Instance, client: Client) -> None:
        """Combine the subscriptions that match a client: all their metrics, at the shortest interval."""
        texts = {
            "client_instance_id": str(instance.id),
            "client_id": client.client_id or "",
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.address,
        }
        instance.interval_ms = ClientMetricsConfig.resolve_from({}, {}, {}).interval_ms
        prefixes: set[str] = set()
        for (kind, _), overrides in self._image().configs.items():
            if kind != CLIENT_METRICS:
                continue
            config = ClientMetricsConfig.resolve_from(overrides, {}, {})
            if all(pattern.fullmatch(texts[name]) for name, pattern in parse_patterns(config.match).items()):
                prefixes.update(config.metrics)
                instance.interval_ms = min(instance.interval_ms, config.interval_ms)
        instance.prefixes = ("*",) if "*" in prefixes else tuple(sorted(prefixes))
        content = f"{instance.prefixes}{instance.interval_ms}".encode()
        number = (crc32c(content) ^ instance.id.int) & 0xFFFFFFFF
        instance.subscription_id = number - (number >> 31 << 32)
