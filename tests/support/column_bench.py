"""An accumulator for columns without a broker, and a producer around it whose deliveries the test decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.network.clock import Clock, MockClock
from headrace.network.cluster import Cluster, Node, PartitionInfo
from headrace.network.records.batch import RecordBatch
from headrace.network.records.columns_cy import Columns
from headrace.network.records.compression import Compression
from headrace.producer import ProducerConfig
from headrace.producer.accumulator.accumulator_cy import RecordAccumulator
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.accumulator.buffer_pool_cy import BufferPool
from headrace.producer.accumulator.queues_cy import TopicQueues
from headrace.producer.columns.arrow import ColumnNames, send_arrow
from headrace.producer.columns.column_send import ColumnSender
from headrace.producer.columns.lists import send_many
from headrace.producer.columns.rows_cy import Rows
from headrace.producer.columns.rows_future import RowsFuture, RowsOfTopic

PARTITIONS = 3
NOW_MS = 1_700_000_000_000
NODE = Node(0, "a", 1)


def cluster_of(topic: str) -> Cluster:
    """A cluster of one broker in which the topic has three partitions."""
    infos = tuple(
        PartitionInfo(topic, index, leader=NODE, leader_id=0, leader_epoch=0, replicas=(), isr=(), offline=())
        for index in range(PARTITIONS)
    )
    return Cluster(nodes=[NODE], partitions={topic: infos})


class Bench:
    """An accumulator with topic t."""

    def __init__(self, batch_size: int = 300, memory: int = 10_000_000) -> None:
        self.clock = MockClock(1000, NOW_MS)
        self.pool = BufferPool(memory, batch_size, self.clock)
        self.accumulator = RecordAccumulator(
            pool=self.pool,
            batch_size=batch_size,
            compression=Compression.NONE,
            linger_ms=5,
            retry_backoff=lambda attempts: 100.0,
            delivery_timeout_ms=1000,
            clock=self.clock,
        )
        self.queues = self.accumulator.topic_queues("t", lambda: cluster_of("t"))

    def append(
        self, columns: Columns, future: RowsFuture | None = None, subset: Any = None, keys_choose: bool = True
    ) -> RowsFuture:
        future = future or RowsFuture(columns.length if subset is None else len(subset))
        rows = Rows(columns, subset, PARTITIONS, keys_choose)
        target = RowsOfTopic(future, rows.order_array, 0)
        rows.append_to(self.accumulator, self.queues, target, 0.0)
        return future

    def batches(self) -> list[ProducerBatch]:
        return self.accumulator.take_everything()


def records_of(batch: ProducerBatch) -> list[tuple]:
    found = RecordBatch(batch.builder.finish())
    return [(each.timestamp, each.key, each.value, tuple(each.headers)) for each in found.records()]


class FakeProducer:
    """The parts of a `KafkaProducer` that the columnar path uses, over a `Bench` whose topics have three partitions.

    `flush` completes the sent batches: it calls `fate` with each one, which delivers it by default.
    """

    def __init__(self, config: ProducerConfig | None = None, bench: Bench | None = None) -> None:
        self.config = config or ProducerConfig.resolve(bootstrap_servers="h:1", max_block_ms=0)
        self.bench = bench or Bench(batch_size=100_000)
        self.fate: Callable[[ProducerBatch], object] = self.deliver
        self.offsets: dict[tuple[str, int], int] = {}
        self.sent: dict[tuple[str, int], list[tuple]] = {}
        self.closed_with: float | None = None

    def column_sender(self) -> ColumnSender:
        return ColumnSender(self, None, self._nothing_row_by_row)  # type: ignore[arg-type]  # it is its own engine

    def _nothing_row_by_row(self, *record: Any) -> Any:
        raise AssertionError("the row-by-row path must not be used here")

    # --- As an engine ---

    is_own_thread = False

    @property
    def accumulator(self) -> RecordAccumulator:
        return self.bench.accumulator

    @property
    def clock(self) -> Clock:
        return self.bench.clock

    def run_callback(self, function: Callable[[], object]) -> None:
        function()

    @property
    def topics(self) -> FakeProducer:
        return self

    def partitions_of(self, topic: str, partition: int) -> tuple[TopicQueues, int]:
        queues = self.bench.accumulator.topic_queues(topic, lambda: cluster_of(topic))
        return queues, queues.partition_count

    # --- As a producer ---

    def send_arrow(self, topic: str | None, data: Any) -> RowsFuture:
        names = ColumnNames("value", "key", "headers", "topic", "partition", "timestamp")
        return send_arrow(self.column_sender(), topic, data, names)

    def send_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp: Any = None,
    ) -> RowsFuture:
        return send_many(self.column_sender(), topic, values, keys, headers, partition, timestamp)

    def flush(self) -> None:
        for batch in self.bench.batches():
            self.fate(batch)

    def deliver(self, batch: ProducerBatch) -> None:
        place = (batch.topic, batch.partition)
        self.sent.setdefault(place, []).extend(records_of(batch))
        first = self.offsets.get(place, 0)
        self.offsets[place] = first + batch.count
        batch.complete(first)

    def records(self) -> list[tuple]:
        """Everything delivered: topic, partition, then timestamp, key, value, headers."""
        return [(*place, *record) for place, records in sorted(self.sent.items()) for record in records]

    def close(self, timeout: float | None = None) -> None:
        self.closed_with = timeout
