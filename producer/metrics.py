"""The producer's metrics, with Kafka's groups and names. Recorded by the sender thread, once a batch or request.

Source: Kafka's SenderMetricsRegistry, BufferPool and KafkaProducerMetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from importlib import metadata as distribution

from ..network.clock import Clock
from ..network.metrics import MetricName, Metrics, Reading, Sensor, Tags
from ..network.records.batch import RECORD_BATCH_OVERHEAD
from .accumulator.batch_cy import ProducerBatch
from .accumulator.buffer_pool_cy import BufferPool

PRODUCER = "producer-metrics"
TOPIC = "producer-topic-metrics"

_AVG, _MAX, _RATE, _TOTAL = Sensor.average, Sensor.maximum, Sensor.rate, Sensor.total

_RETRIES = (
    Reading("record-retry-rate", _RATE, "Records sent again per second"),
    Reading("record-retry-total", _TOTAL, "Records sent again"),
)
_ERRORS = (
    Reading("record-error-rate", _RATE, "Records that failed per second"),
    Reading("record-error-total", _TOTAL, "Records that failed"),
)
_RECORDS = (
    Reading("record-send-rate", _RATE, "Records sent per second, those sent again included"),
    Reading("record-send-total", _TOTAL, "Records sent, those sent again included"),
)
_BYTES = (
    Reading("byte-rate", _RATE, "Bytes of batches sent per second"),
    Reading("byte-total", _TOTAL, "Bytes of batches sent"),
)
_COMPRESSION = "Compressed size over uncompressed size of batches, on average"


def _wait_ratio(sensor: Sensor) -> float:
    """Of a sensor that is told milliseconds: milliseconds waited per millisecond, of all threads together."""
    return sensor.rate() / 1000.0


#: sensor -> its metrics, for the producer ...
_OVERALL: dict[str, tuple[Reading, ...]] = {
    "batch_size": (
        Reading("batch-size-avg", _AVG, "Bytes of a batch as it was sent, on average"),
        Reading("batch-size-max", _MAX, "Bytes of the largest batch that was sent"),
    ),
    "compression": (Reading("compression-rate-avg", _AVG, _COMPRESSION),),
    "queue_time": (
        Reading("record-queue-time-avg", _AVG, "Milliseconds that batches waited before they were sent, on average"),
        Reading("record-queue-time-max", _MAX, "Milliseconds that a batch waited before it was sent, at most"),
    ),
    "latency": (
        Reading("request-latency-avg", _AVG, "Milliseconds from a produce request to its answer, on average"),
        Reading("request-latency-max", _MAX, "Milliseconds from a produce request to its answer, at most"),
    ),
    "throttle": (
        Reading("produce-throttle-time-avg", _AVG, "Milliseconds for which brokers throttled requests, on average"),
        Reading("produce-throttle-time-max", _MAX, "Milliseconds for which a broker throttled a request, at most"),
    ),
    "records": _RECORDS,
    "records_per_request": (Reading("records-per-request-avg", _AVG, "Records in a request, on average"),),
    "bytes": _BYTES,
    "retries": _RETRIES,
    "errors": _ERRORS,
    "record_size": (
        Reading("record-size-avg", _AVG, "Bytes of a record before compression, on average"),
        Reading("record-size-max", _MAX, "Bytes of the largest record, before compression"),
    ),
    "splits": (
        Reading("batch-split-rate", _RATE, "Batches split per second because a broker found them too large"),
        Reading("batch-split-total", _TOTAL, "Batches split"),
    ),
    "flush_time": (Reading("flush-time-ns-total", _TOTAL, "Nanoseconds that threads spent in flush"),),
    "metadata_wait": (Reading("metadata-wait-time-ns-total", _TOTAL, "Nanoseconds that threads waited for metadata"),),
    "pool_wait": (
        Reading("bufferpool-wait-ratio", _wait_ratio, "Share of time that threads waited for memory, added up"),
    ),
    "pool_exhausted": (Reading("buffer-exhausted-rate", _RATE, "Sends per second that got no memory in time"),),
}

#: ... and for each topic.
_PER_TOPIC: dict[str, tuple[Reading, ...]] = {
    "records": _RECORDS,
    "bytes": _BYTES,
    "compression": (Reading("compression-rate", _AVG, _COMPRESSION),),
    "retries": _RETRIES,
    "errors": _ERRORS,
}


class ProducerMetrics:
    """Everything one producer measures, but for its network client, which records into the same registry.

    The recording methods belong to the sender thread, except the two named for callers' waits. Bounded by the topics
    that the metadata hold.
    """

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
        """The two callables are asked on readers' threads."""
        self.registry = Metrics(clock, window_ms=window_ms, samples=samples)
        #: What every metric is tagged with.
        self.tags = (("client-id", client_id),)
        self._clock = clock
        self._all = self.registry.add_sensors(PRODUCER, self.tags, _OVERALL)
        self._topics: dict[str, dict[str, Sensor]] = {}
        self._unconfirmed: set[str] = set()
        pool.wait_sensor = self._all["pool_wait"]
        pool.exhausted_sensor = self._all["pool_exhausted"]
        for name, measure, description in (
            ("requests-in-flight", lambda: float(requests_in_flight()), "Requests without an answer"),
            ("metadata-age", metadata_age_seconds, "Seconds since the metadata in use were fetched"),
            ("buffer-total-bytes", lambda: float(pool.total_bytes), "buffer.memory, in bytes"),
            ("buffer-available-bytes", lambda: float(pool.available_bytes), "Bytes of buffer.memory nobody holds"),
            ("bufferpool-wait-time-ns-total", lambda: pool.wait_time_ms * 1e6, "Nanoseconds threads waited for memory"),
            ("buffer-exhausted-total", lambda: float(pool.exhausted_count), "Sends that got no memory in time"),
            ("waiting-threads", lambda: float(pool.waiting), "Threads that wait for memory"),
        ):
            self.registry.add(MetricName(name, PRODUCER, description, self.tags), measure)
        version, started_ms = distribution.version("headrace"), float(clock.wall_ms())
        for name, value, description in (
            ("version", version, "Version of this library"),
            ("start-time-ms", started_ms, "When this producer began, in milliseconds since 1970"),
        ):
            self.registry.add(MetricName(name, "app-info", description, self.tags), lambda value=value: value)

    def _topic(self, topic: str) -> dict[str, Sensor]:
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = self.registry.add_sensors(TOPIC, self._tags_of(topic), _PER_TOPIC)
            self._unconfirmed.add(topic)
        return known

    def _tags_of(self, topic: str) -> Tags:
        return (*self.tags, ("topic", topic))

    def keep_topics(self, topics: Container[str], changed: Iterable[str]) -> None:
        """Forget what the metadata no longer hold: `changed` are the topics that may have come or gone."""
        # and those measured since, which may have been gone already
        self._unconfirmed.update(changed)
        gone = [topic for topic in self._unconfirmed if topic not in topics and topic in self._topics]
        self._unconfirmed.clear()
        for topic in gone:
            del self._topics[topic]
        self.registry.remove(map(self._tags_of, gone))

    # --- What happens to batches and requests ---

    def sent(self, batches: Iterable[ProducerBatch], now_ms: float) -> None:
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
            every["record_size"].record_all(
                count, batch.raw_bytes - RECORD_BATCH_OVERHEAD, batch.max_record_bytes, now_ms
            )
            topic["compression"].record(ratio, now_ms)
            topic["records"].record(count, now_ms)
            topic["bytes"].record(size_bytes, now_ms)
            records += count
            size += size_bytes
        every["records"].record(records, now_ms)
        every["records_per_request"].record(records, now_ms)
        every["bytes"].record(size, now_ms)

    def answered(self, latency_ms: float, throttle_ms: float, now_ms: float) -> None:
        """A produce request was answered."""
        self._all["latency"].record(latency_ms, now_ms)
        self._all["throttle"].record(throttle_ms, now_ms)

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

    # --- Callers' threads ---

    def flushed(self, duration_ms: float) -> None:
        """A thread was in `flush` for that long."""
        self._all["flush_time"].record(duration_ms * 1e6, self._clock.now_ms())

    def waited_for_metadata(self, duration_ms: float) -> None:
        """A thread waited for a topic's metadata for that long."""
        self._all["metadata_wait"].record(duration_ms * 1e6, self._clock.now_ms())
