"""The producer's metrics, with Kafka's groups and names. The sender thread records them, per batch or request.

Source: Kafka's SenderMetricsRegistry, BufferPool and KafkaProducerMetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial

from ..network._build import VERSION
from ..network.clock import Clock
from ..network.metrics import MetricName, Metrics, Reading, Sensor, Tags
from .accumulator.batch_cy import ProducerBatch
from .accumulator.buffer_pool_cy import BufferPool
from .sent_metrics_cy import record_answered, record_sent

PRODUCER = "producer-metrics"
TOPIC = "producer-topic-metrics"

_AVG, _MAX, _RATE, _TOTAL = Sensor.average, Sensor.maximum, Sensor.rate, Sensor.total

_RETRIES = (
    Reading("record-retry-rate", _RATE, "Records retried per second"),
    Reading("record-retry-total", _TOTAL, "Records retried"),
)
_ERRORS = (
    Reading("record-error-rate", _RATE, "Records that failed per second"),
    Reading("record-error-total", _TOTAL, "Records that failed"),
)
_RECORDS = (
    Reading("record-send-rate", _RATE, "Records sent per second, including retries"),
    Reading("record-send-total", _TOTAL, "Records sent, including retries"),
)
_BYTES = (
    Reading("byte-rate", _RATE, "Bytes of batches sent per second"),
    Reading("byte-total", _TOTAL, "Bytes of batches sent"),
)
_COMPRESSION = "Average ratio of compressed to uncompressed batch size"


def _wait_ratio(sensor: Sensor) -> float:
    """The fraction of time waited, summed over all threads, from a sensor of waits in milliseconds."""
    return sensor.rate() / 1000.0


#: Sensor -> its metrics, for the whole producer.
_OVERALL: dict[str, tuple[Reading, ...]] = {
    "batch_size": (
        Reading("batch-size-avg", _AVG, "Average size of a batch as sent, in bytes"),
        Reading("batch-size-max", _MAX, "Maximum size of a batch as sent, in bytes"),
    ),
    "compression": (Reading("compression-rate-avg", _AVG, _COMPRESSION),),
    "queue_time": (
        Reading("record-queue-time-avg", _AVG, "Average time a batch waited before it was sent, in milliseconds"),
        Reading("record-queue-time-max", _MAX, "Maximum time a batch waited before it was sent, in milliseconds"),
    ),
    "latency": (
        Reading("request-latency-avg", _AVG, "Average time from a produce request to its response, in milliseconds"),
        Reading("request-latency-max", _MAX, "Maximum time from a produce request to its response, in milliseconds"),
    ),
    "throttle": (
        Reading("produce-throttle-time-avg", _AVG, "Average time a broker throttled a request, in milliseconds"),
        Reading("produce-throttle-time-max", _MAX, "Maximum time a broker throttled a request, in milliseconds"),
    ),
    "records": _RECORDS,
    "records_per_request": (Reading("records-per-request-avg", _AVG, "Average number of records per request"),),
    "bytes": _BYTES,
    "retries": _RETRIES,
    "errors": _ERRORS,
    "record_size": (
        Reading("record-size-avg", _AVG, "Average size of a record before compression, in bytes"),
        Reading("record-size-max", _MAX, "Maximum size of a record before compression, in bytes"),
    ),
    "splits": (
        Reading("batch-split-rate", _RATE, "Batches split per second because a broker rejected them as too large"),
        Reading("batch-split-total", _TOTAL, "Batches split because a broker rejected them as too large"),
    ),
    "flush_time": (Reading("flush-time-ns-total", _TOTAL, "Total time threads spent in flush, in nanoseconds"),),
    "metadata_wait": (
        Reading("metadata-wait-time-ns-total", _TOTAL, "Total time threads waited for metadata, in nanoseconds"),
    ),
    **{
        f"txn_{name}": (Reading(f"txn-{kafkas}-time-ns-total", _TOTAL, f"Total time spent in {call}, in nanoseconds"),)
        for name, kafkas, call in (
            ("init", "init", "init_transactions"),
            ("begin", "begin", "begin_transaction"),
            ("send_offsets", "send-offsets", "send_offsets_to_transaction"),
            ("commit", "commit", "commit_transaction"),
            ("abort", "abort", "abort_transaction"),
        )
    },
    "pool_wait": (
        Reading("bufferpool-wait-ratio", _wait_ratio, "Fraction of time waited for buffer memory, summed over threads"),
    ),
    "pool_exhausted": (
        Reading("buffer-exhausted-rate", _RATE, "Sends per second that timed out waiting for buffer memory"),
    ),
}

#: The sensors into which callers' threads record.
_OF_CALLERS = frozenset(
    {"flush_time", "metadata_wait", "pool_wait", "pool_exhausted"}
    | {f"txn_{call}" for call in ("init", "begin", "send_offsets", "commit", "abort")}
)

#: Sensor -> its metrics, per topic.
_PER_TOPIC: dict[str, tuple[Reading, ...]] = {
    "records": _RECORDS,
    "bytes": _BYTES,
    "compression": (Reading("compression-rate", _AVG, _COMPRESSION),),
    "retries": _RETRIES,
    "errors": _ERRORS,
}


class ProducerMetrics:
    """All metrics of a producer except those of its network client, which records into the same registry.

    The sender thread calls the recording methods, except `flushed` and `waited_for_metadata`, which callers' threads
    call. The topics in the metadata bound the number of metrics.
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
        """Register the producer's metrics.

        `clock`: the time source.
        `client_id`: the value of the tag ``client-id``.
        `pool`: the buffer pool, which gets the sensors for its waits and timeouts.
        `window_ms`: milliseconds of a sample (``metrics.sample.window.ms``).
        `samples`: the samples kept per metric (``metrics.num.samples``).
        `requests_in_flight`: returns the number of requests without a response. Called on readers' threads.
        `metadata_age_seconds`: returns the age of the metadata. Called on readers' threads.
        """
        self.registry = Metrics(clock, window_ms=window_ms, samples=samples)
        #: The tags of every metric.
        self.tags = (("client-id", client_id),)
        self._clock = clock
        self._all = self.registry.add_sensors(PRODUCER, self.tags, _OVERALL, shared=_OF_CALLERS)
        self._topics: dict[str, dict[str, Sensor]] = {}
        self._unconfirmed: set[str] = set()
        #: ``sent(batches, now_ms)``: a produce request with these batches was sent. Sender thread.
        self.sent = partial(record_sent, self._all, self._topics, self._topic)
        #: ``answered(latency_ms, throttle_ms, now_ms)``: the response to a produce request arrived. Sender thread.
        self.answered = partial(record_answered, self._all)
        pool.wait_sensor = self._all["pool_wait"]
        pool.exhausted_sensor = self._all["pool_exhausted"]
        for name, measure, description in (
            ("requests-in-flight", lambda: float(requests_in_flight()), "Requests awaiting a response"),
            ("metadata-age", metadata_age_seconds, "Age of the metadata in use, in seconds"),
            ("buffer-total-bytes", lambda: float(pool.total_bytes), "Total buffer memory, in bytes"),
            ("buffer-available-bytes", lambda: float(pool.available_bytes), "Unused buffer memory, in bytes"),
            (
                "bufferpool-wait-time-ns-total",
                lambda: pool.wait_time_ms * 1e6,
                "Total time threads waited for buffer memory, in nanoseconds",
            ),
            (
                "buffer-exhausted-total",
                lambda: float(pool.exhausted_count),
                "Sends that timed out waiting for buffer memory",
            ),
            ("waiting-threads", lambda: float(pool.waiting), "Threads waiting for buffer memory"),
        ):
            self.registry.add(MetricName(name, PRODUCER, description, self.tags), measure)
        started_ms = float(clock.wall_ms())
        for name, value, description in (
            ("version", VERSION, "Version of this library"),
            ("start-time-ms", started_ms, "Start time of this producer, in milliseconds since the Unix epoch"),
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
        """Remove the metrics of topics missing in `topics`. `changed`: the topics that may have come or gone."""
        # Also check the topics first recorded since the last call: they may have been gone by then.
        self._unconfirmed.update(changed)
        gone = [topic for topic in self._unconfirmed if topic not in topics and topic in self._topics]
        self._unconfirmed.clear()
        for topic in gone:
            del self._topics[topic]
        self.registry.remove(map(self._tags_of, gone))

    def counts(self) -> dict[str, int]:
        """The numbers of records sent (``records``), sent again (``retries``) and failed (``errors``). Any thread."""
        return {name: int(self._all[name].total()) for name in ("records", "retries", "errors")}

    # --- Sender thread ---

    def retried(self, batch: ProducerBatch, now_ms: float) -> None:
        """A batch will be retried."""
        self._all["retries"].record(batch.count, now_ms)
        self._topic(batch.topic)["retries"].record(batch.count, now_ms)

    def failed(self, batch: ProducerBatch, now_ms: float) -> None:
        """A batch failed."""
        self._all["errors"].record(batch.count, now_ms)
        self._topic(batch.topic)["errors"].record(batch.count, now_ms)

    def split(self, now_ms: float) -> None:
        """A batch was split."""
        self._all["splits"].record(1, now_ms)

    # --- Callers' threads ---

    def flushed(self, duration_ms: float) -> None:
        """A thread spent `duration_ms` in `flush`."""
        self._all["flush_time"].record(duration_ms * 1e6, self._clock.now_ms())

    def ran_transaction_call(self, call: str, duration_ms: float) -> None:
        """A thread spent `duration_ms` in a transaction's call: init, begin, send_offsets, commit or abort."""
        self._all[f"txn_{call}"].record(duration_ms * 1e6, self._clock.now_ms())

    def waited_for_metadata(self, duration_ms: float) -> None:
        """A thread waited `duration_ms` for a topic's metadata."""
        self._all["metadata_wait"].record(duration_ms * 1e6, self._clock.now_ms())
