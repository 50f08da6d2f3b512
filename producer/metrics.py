"""The producer's metrics, with Kafka's groups and names. Recorded by the sender thread, once a batch or request.

Source: Kafka's SenderMetricsRegistry, BufferPool and KafkaProducerMetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import metadata as distribution

from ..network.clock import Clock
from ..network.metrics import MetricName, Metrics, Sensor
from .batch_cy import ProducerBatch
from .buffer_pool import BufferPool

PRODUCER = "producer-metrics"
TOPIC = "producer-topic-metrics"
NODE = "producer-node-metrics"

Measure = Callable[[Sensor], float]
_AVG: Measure = Sensor.average
_MAX: Measure = Sensor.maximum
_RATE: Measure = Sensor.rate
_TOTAL: Measure = Sensor.total

#: sensor -> its metrics: name, how it is read, what it tells. One table for the whole producer ...
_SENSORS: dict[str, tuple[tuple[str, Measure, str], ...]] = {
    "batch_size": (
        ("batch-size-avg", _AVG, "Bytes of a batch as it was sent, on average"),
        ("batch-size-max", _MAX, "Bytes of the largest batch that was sent"),
    ),
    "compression": (("compression-rate-avg", _AVG, "Compressed size over uncompressed size of batches, on average"),),
    "queue_time": (
        ("record-queue-time-avg", _AVG, "Milliseconds that batches waited before they were sent, on average"),
        ("record-queue-time-max", _MAX, "Milliseconds that a batch waited before it was sent, at most"),
    ),
    "latency": (
        ("request-latency-avg", _AVG, "Milliseconds from a request to its answer, on average"),
        ("request-latency-max", _MAX, "Milliseconds from a request to its answer, at most"),
    ),
    "throttle": (
        ("produce-throttle-time-avg", _AVG, "Milliseconds for which brokers throttled requests, on average"),
        ("produce-throttle-time-max", _MAX, "Milliseconds for which a broker throttled a request, at most"),
    ),
    "records": (
        ("record-send-rate", _RATE, "Records sent per second"),
        ("record-send-total", _TOTAL, "Records sent"),
    ),
    "records_per_request": (("records-per-request-avg", _AVG, "Records in a request, on average"),),
    "bytes": (
        ("byte-rate", _RATE, "Bytes of batches sent per second"),
        ("byte-total", _TOTAL, "Bytes of batches sent"),
    ),
    "retries": (
        ("record-retry-rate", _RATE, "Records sent again per second"),
        ("record-retry-total", _TOTAL, "Records sent again"),
    ),
    "errors": (
        ("record-error-rate", _RATE, "Records that failed per second"),
        ("record-error-total", _TOTAL, "Records that failed"),
    ),
    "record_size": (("record-size-avg", _AVG, "Bytes of a record before compression, averaged over batches"),),
    "largest_record": (("record-size-max", _MAX, "Bytes of the largest record, before compression"),),
    "splits": (
        ("batch-split-rate", _RATE, "Batches split per second because a broker found them too large"),
        ("batch-split-total", _TOTAL, "Batches split"),
    ),
    "flush_time": (("flush-time-ns-total", _TOTAL, "Nanoseconds that threads spent in flush"),),
    "metadata_wait": (("metadata-wait-time-ns-total", _TOTAL, "Nanoseconds that threads waited for metadata"),),
}

#: ... and which of its sensors there are per topic and per node.
_TOPIC_SENSORS = ("records", "bytes", "compression", "retries", "errors")
_NODE_SENSORS = ("latency", "bytes", "records_per_request")
_TOPIC_NAMES = {"compression-rate-avg": "compression-rate"}


class _SensorSet:
    """One sensor of each kind, for the producer, a topic or a node."""

    __slots__ = ("sensors",)

    def __init__(self, metrics: Metrics, group: str, tags: tuple[tuple[str, str], ...], kinds: Iterable[str]) -> None:
        self.sensors: dict[str, Sensor] = {}
        for kind in kinds:
            sensor = self.sensors[kind] = metrics.sensor()
            for name, measure, description in _SENSORS[kind]:
                shown = _TOPIC_NAMES.get(name, name) if group == TOPIC else name
                metrics.add(MetricName(shown, group, description, tags), _reader(measure, sensor))


def _reader(measure: Measure, sensor: Sensor) -> Callable[[], float]:
    return lambda: measure(sensor)


class ProducerMetrics:
    """Everything one producer measures. The recording methods belong to the sender thread, except the two named for
    callers' waits; what is shared with readers is in `Metrics`."""

    def __init__(
        self,
        clock: Clock,
        client_id: str,
        pool: BufferPool,
        *,
        window_ms: float,
        samples: int,
        requests_in_flight: Callable[[], int],
        metadata_age_seconds: Callable[[], float],
    ) -> None:
        self.registry = Metrics(clock, window_ms=window_ms, samples=samples)
        self._clock = clock
        self._tags = (("client-id", client_id),)
        self._all = _SensorSet(self.registry, PRODUCER, self._tags, _SENSORS).sensors
        self._topics: dict[str, dict[str, Sensor]] = {}
        self._nodes: dict[int, dict[str, Sensor]] = {}
        self._pool = pool
        self._pool_wait = self.registry.sensor()
        self._pool_exhausted = self.registry.sensor()
        self._pool_seen = (0.0, 0)
        for name, measure, description in (
            ("requests-in-flight", lambda: float(requests_in_flight()), "Requests without an answer"),
            ("metadata-age", metadata_age_seconds, "Seconds since the metadata in use were fetched"),
            ("buffer-total-bytes", lambda: float(pool.total_bytes), "buffer.memory, in bytes"),
            ("buffer-available-bytes", lambda: float(pool.available_bytes), "Bytes of buffer.memory nobody holds"),
            ("waiting-threads", lambda: float(pool.waiting), "Threads that wait for memory"),
            ("bufferpool-wait-time-ns-total", lambda: pool.wait_time_ms * 1e6, "Nanoseconds waited for memory"),
            ("bufferpool-wait-ratio", self._wait_ratio, "Share of time that threads waited for memory"),
            ("buffer-exhausted-rate", self._exhausted_rate, "Sends per second that got no memory in time"),
            ("buffer-exhausted-total", lambda: float(pool.exhausted_count), "Sends that got no memory in time"),
        ):
            self.registry.add(MetricName(name, PRODUCER, description, self._tags), measure)
        started_ms = clock.wall_ms()
        for name, value, description in (
            ("version", distribution.version("headrace"), "Version of this library"),
            ("start-time-ms", float(started_ms), "When this producer began, in milliseconds since 1970"),
        ):
            self.registry.add(MetricName(name, "app-info", description, self._tags), lambda value=value: value)

    def _look_at_pool(self) -> None:
        """Take over what the pool has counted since the last look: it doesn't pay for sensors on its own path."""
        now_ms = self._clock.now_ms()
        waited_ms, exhausted = self._pool_seen
        self._pool_seen = (self._pool.wait_time_ms, self._pool.exhausted_count)
        self._pool_wait.record(max(self._pool_seen[0] - waited_ms, 0.0), now_ms)
        self._pool_exhausted.record(self._pool_seen[1] - exhausted, now_ms)

    def _wait_ratio(self) -> float:
        self._look_at_pool()
        return self._pool_wait.rate() / 1000.0

    def _exhausted_rate(self) -> float:
        self._look_at_pool()
        return self._pool_exhausted.rate()

    def _topic(self, topic: str) -> dict[str, Sensor]:
        known = self._topics.get(topic)
        if known is None:
            tags = (*self._tags, ("topic", topic))
            known = self._topics[topic] = _SensorSet(self.registry, TOPIC, tags, _TOPIC_SENSORS).sensors
        return known

    def _node(self, node_id: int) -> dict[str, Sensor]:
        known = self._nodes.get(node_id)
        if known is None:
            tags = (*self._tags, ("node-id", f"node-{node_id}"))
            known = self._nodes[node_id] = _SensorSet(self.registry, NODE, tags, _NODE_SENSORS).sensors
        return known

    def keep_topics(self, topics: Iterable[str]) -> None:
        """Forget the topics that the metadata no longer hold."""
        for topic in self._topics.keys() - set(topics):
            del self._topics[topic]
            self.registry.remove_tagged("topic", topic)

    # What happens to batches and requests.

    def sent(self, node_id: int, batches: Iterable[ProducerBatch], now_ms: float) -> None:
        """A produce request goes out."""
        every = self._all
        records = 0
        size = 0
        for batch in batches:
            count, size_bytes = batch.count, batch.size_bytes
            topic = self._topic(batch.topic)
            every["batch_size"].record(size_bytes, now_ms)
            every["queue_time"].record(batch.drained_ms - batch.created_ms, now_ms)
            ratio = size_bytes / max(batch.raw_bytes, 1)
            every["compression"].record(ratio, now_ms)
            every["record_size"].record(batch.raw_bytes / count, now_ms)
            every["largest_record"].record(batch.max_record_bytes, now_ms)
            topic["compression"].record(ratio, now_ms)
            topic["records"].record(count, now_ms)
            topic["bytes"].record(size_bytes, now_ms)
            records += count
            size += size_bytes
        every["records"].record(records, now_ms)
        every["records_per_request"].record(records, now_ms)
        every["bytes"].record(size, now_ms)
        node = self._node(node_id)
        node["bytes"].record(size, now_ms)
        node["records_per_request"].record(records, now_ms)

    def answered(self, node_id: int, latency_ms: float, throttle_ms: float, now_ms: float) -> None:
        """A produce request was answered."""
        self._all["latency"].record(latency_ms, now_ms)
        self._all["throttle"].record(throttle_ms, now_ms)
        self._node(node_id)["latency"].record(latency_ms, now_ms)

    def retried(self, batch: ProducerBatch, now_ms: float) -> None:
        """A batch will be sent again."""
        self._all["retries"].record(batch.count, now_ms)
        self._topic(batch.topic)["retries"].record(batch.count, now_ms)

    def failed(self, batch: ProducerBatch, now_ms: float) -> None:
        """A batch was given up."""
        self._all["errors"].record(batch.count, now_ms)
        self._topic(batch.topic)["errors"].record(batch.count, now_ms)

    def split(self, now_ms: float) -> None:
        """A batch was split."""
        self._all["splits"].record(1, now_ms)

    # Callers' threads.

    def flushed(self, duration_ms: float) -> None:
        """A thread was in `flush` for that long."""
        self._all["flush_time"].record(duration_ms * 1e6, self._clock.now_ms())

    def waited_for_metadata(self, duration_ms: float) -> None:
        """A thread waited for a topic's metadata for that long."""
        self._all["metadata_wait"].record(duration_ms * 1e6, self._clock.now_ms())
