"""A Sender over a MockClient and a MockClock with all its parts, and the steps that its tests take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.network.client.request import ClientRequest
from headrace.network.clock import MockClock
from headrace.network.cluster import TopicPartition
from headrace.network.metadata import Metadata
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.network.protocol.messages.records.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.network.records.batch import RecordBatch
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.accumulator_cy import RecordAccumulator
from headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
from headrace.producer.accumulator.buffer_pool_cy import BufferPool
from headrace.producer.metrics import ProducerMetrics
from headrace.producer.sender.callbacks import Memory
from headrace.producer.sender.compressors import Compressors
from headrace.producer.sender.sender_cy import Sender
from headrace.producer.sender.telemetry import Telemetry
from headrace.producer.sender.telemetry_metrics import TelemetryMetrics
from headrace.producer.sender.telemetry_reporter import TelemetryReporter
from headrace.producer.sender.transaction import Transaction
from headrace.producer.sender.transaction_manager_cy import TransactionManager
from headrace.producer.sender.transaction_requests import TransactionRequests
from support.mock_client import MockClient, metadata_response

BATCH_SIZE = 400
MEMORY = 100_000
LINGER_MS = 5
BACKOFF_MS = 100
REQUEST_TIMEOUT_MS = 30_000
DELIVERY_TIMEOUT_MS = 120_000
PRODUCER_ID = 1000
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
BATCHES_REMEMBERED = 5


class InlineCallbacks:
    """Runs callbacks on the thread that steps the sender, so that a test sees them at once."""

    def settle(self, batch: ProducerBatch, memory: Memory | None) -> None:
        if not batch.settled:
            batch.run_callbacks()
        if memory is not None:
            memory.release(batch)

    def finish(self) -> None:
        pass


class SenderHarness:
    """One producer's engine, stepped by hand. `topic` has `partitions` on `brokers` nodes, all known at the start."""

    def __init__(
        self,
        *,
        topic: str = "t",
        partitions: int = 1,
        brokers: int = 1,
        idempotent: bool = True,
        acks: int = -1,
        retries: int = 2**31 - 1,
        batch_size: int = BATCH_SIZE,
        memory: int = MEMORY,
        linger_ms: float = LINGER_MS,
        max_in_flight: int = 5,
        max_request_bytes: int = 1_048_576,
        compression: Compression = Compression.NONE,
        helpers: int = 0,
        delivery_timeout_ms: float = DELIVERY_TIMEOUT_MS,
        backoff: Callable[[int], float] = lambda attempts: BACKOFF_MS,
        topic_ids: Mapping[str, Any] | None = None,
        with_producer_id: bool = True,
        established: bool = True,
        transactional_id: str | None = None,
        telemetry: bool = False,
    ) -> None:
        """`transactional_id`: of a producer with transactions, which gets no producer id here.

        `telemetry`: push metrics, encoded inline, to the nodes, which all serve telemetry.

        `established`: treat the partitions as if batches had been acknowledged, so that several may be in flight."""
        self.topic = topic
        # a monotonic clock starts anywhere: 0 must not be special
        self.clock = MockClock(-1_000_000)
        self.metadata = Metadata(
            clock=self.clock,
            bootstrap_servers=[("localhost", 9092)],
            refresh_backoff_ms=100,
            refresh_backoff_max_ms=1000,
            max_age_ms=300_000,
            max_idle_ms=300_000,
            random_unit=lambda: 0.5,
        )
        self.client = MockClient(
            self.clock,
            self.metadata,
            max_in_flight_requests_per_connection=max_in_flight,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self.pool = BufferPool(memory, batch_size, self.clock)
        self.transactions = TransactionManager() if idempotent else None
        self.accumulator = RecordAccumulator(
            pool=self.pool,
            batch_size=batch_size,
            compression=compression,
            linger_ms=linger_ms,
            retry_backoff=backoff,
            delivery_timeout_ms=delivery_timeout_ms,
            clock=self.clock,
            transactions=self.transactions,
        )
        self.metrics = ProducerMetrics(
            self.clock,
            "harness",
            self.pool,
            window_ms=30_000,
            samples=2,
            requests_in_flight=self.client.in_flight_request_count,
            metadata_age_seconds=lambda: 0.0,
        )
        requests = None
        if transactional_id is not None:
            assert self.transactions is not None
            # a call that has to wait times out at once and goes on: a test steps the sender and repeats the call
            self.transaction = Transaction(
                transactional_id,
                clock=self.clock,
                max_block_ms=0,
                wakeup=lambda: self.sender.wakeup(),  # noqa: PLW0108
            )
            requests = self.transactions.gate = TransactionRequests(
                self.transaction,
                client=self.client,
                metadata=self.metadata,
                accumulator=self.accumulator,
                manager=self.transactions,
                clock=self.clock,
                timeout_ms=60_000,
                max_block_ms=60_000,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                retry_backoff=backoff,
            )
            with_producer_id = established = False
        self.telemetry = Telemetry(
            client=self.client, metadata=self.metadata, clock=self.clock, start=self._telemetry_reporter
        )
        self.sender = Sender(
            client=self.client,
            metadata=self.metadata,
            accumulator=self.accumulator,
            transactions=self.transactions,
            transaction=requests,
            clock=self.clock,
            acks=acks,
            compressors=(
                None
                if compression is Compression.NONE
                else Compressors(self.accumulator, compression, None, "harness", helpers)
            ),
            max_request_bytes=max_request_bytes,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=delivery_timeout_ms,
            retries=retries,
            keep_order=max_in_flight == 1 and not idempotent,
            retry_backoff_ms=BACKOFF_MS,
            metrics=self.metrics,
            callbacks=InlineCallbacks(),
            telemetry=self.telemetry if telemetry else None,
        )
        self.accumulator.wakeup = self.sender.wakeup
        self.metadata.add_listener(self.accumulator.update_metadata)
        self.metadata.add_topic(topic, self.clock.now_ms())
        self.client.update_metadata(metadata_response({topic: partitions}, brokers=brokers, topic_ids=topic_ids))
        if idempotent and with_producer_id:
            assert self.transactions is not None
            self.transactions.asking()
            self.transactions.assign(PRODUCER_ID, 0)
        if self.transactions is not None and established:
            for partition in range(partitions):
                # one before the next sequence number, which is 0
                self.transactions._sequences(TopicPartition(topic, partition)).last_acked_sequence = 2**31 - 1

    def _telemetry_reporter(self, telemetry: Telemetry) -> TelemetryReporter:
        self.reporter = TelemetryReporter(
            telemetry,
            client=self.client,
            metadata=self.metadata,
            metrics=TelemetryMetrics(self.metrics.registry, self.clock, {"client_rack": "r"}),
            name="harness",
            random_unit=lambda: 0.25,
            run=lambda function, name: function(),
        )
        return self.reporter

    # --- Appending ---

    def append(
        self,
        value: bytes | None = b"v",
        *,
        key: bytes | None = None,
        partition: int = 0,
        callback: Callable | None = None,
        max_block_ms: float = 0,
    ) -> RecordFuture:
        """Append a record to the partition's open batch."""
        queues = self.accumulator.topic_queues(self.topic, lambda: self.metadata.cluster)
        return self.accumulator.append(
            queues, partition, self.clock.wall_ms(), key, value, None, callback, max_block_ms
        )

    def request(
        self, *values: bytes, partition: int = 0, callback: Callable | None = None
    ) -> tuple[list[RecordFuture], ClientRequest]:
        """Send these records in a batch of their own. Returns their futures and the request in flight."""
        futures = [self.append(value, partition=partition, callback=callback) for value in values]
        (request,) = self.send()
        assert values_of(request) == list(values)
        return futures, request

    # --- Steps ---

    def step(self, advance_ms: float = 0) -> None:
        """Advance the clock, then run one turn of the sender."""
        if advance_ms:
            self.clock.advance(advance_ms)
        self.sender.run_once()

    def send(self) -> list[ClientRequest]:
        """Let linger expire, and run turns until nothing more is sent; returns the new produce requests."""
        before = len(self.client.sent)
        self.clock.advance(LINGER_MS)
        seen = -1
        while seen != len(self.client.sent):
            seen = len(self.client.sent)
            self.sender.run_once()
        return [request for request in self.client.sent[before:] if isinstance(request.message, ProduceRequest)]

    def retry(self) -> list[ClientRequest]:
        """Let the backoff expire, and send."""
        self.clock.advance(BACKOFF_MS)
        return self.send()

    # --- Responses ---

    def response(
        self,
        request: ClientRequest,
        error_code: int = 0,
        base_offset: int = 0,
        **fields: Any,
    ) -> ProduceResponse:
        """The same response for all partitions of a request."""
        topics = []
        for topic in request.message.topic_data:
            answers = [
                PartitionProduceResponse(
                    index=data.index,
                    error_code=error_code,
                    base_offset=base_offset if error_code == 0 else -1,
                    **fields,
                )
                for data in topic.partition_data
            ]
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        return ProduceResponse(responses=topics)

    def answer(
        self, request: ClientRequest, error_code: int = 0, base_offset: int = 0, *, step: bool = True, **fields: Any
    ) -> None:
        """Answer a request in flight, and let the sender process the response."""
        self.client.respond(self.response(request, error_code, base_offset, **fields), request=request)
        if step:
            self.sender.run_once()

    def lose(self, *requests: ClientRequest, step: bool = True) -> None:
        """Disconnect before these requests are answered."""
        for request in requests:
            self.client.respond(request=request, disconnected=True)
        if step:
            self.sender.run_once()

    def answer_producer_id(self, producer_id: int = PRODUCER_ID, epoch: int = 0, error_code: int = 0) -> None:
        """Answer the pending InitProducerId request."""
        self.client.respond(
            InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch, error_code=error_code),
            matcher=lambda request: isinstance(request.message, InitProducerIdRequest),
        )
        self.sender.run_once()

    # --- State ---

    @property
    def free_bytes(self) -> int:
        return self.pool.available_bytes

    def run_to_the_end(self, *, force: bool = False) -> None:
        """Close, and run the thread's body on this thread."""
        self.sender.close(force=force)
        self.sender.run()


def batches_of(request: ClientRequest) -> list[tuple[str, int, RecordBatch]]:
    """The (topic, partition, batch) triples of a produce request, decoded as a broker would."""
    return [
        (topic.name, data.index, RecordBatch(b"".join(data.records)))
        for topic in request.message.topic_data
        for data in topic.partition_data
    ]


def batch_of(request: ClientRequest) -> RecordBatch:
    """The only batch of a produce request."""
    ((_, _, batch),) = batches_of(request)
    return batch


def values_of(requests: ClientRequest | Iterable[ClientRequest]) -> list[bytes]:
    """The values of all records of these requests, in order."""
    if isinstance(requests, ClientRequest):
        requests = [requests]
    return [record.value for request in requests for _, _, batch in batches_of(request) for record in batch.records()]


def sequence_of(request: ClientRequest) -> tuple[int, int, int]:
    """Producer id, epoch and first sequence number of the request's only batch."""
    batch = batch_of(request)
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


class FakeLeader:
    """The sequence checks of one partition's leader (Kafka's ProducerStateManager) for requests that a test delivers to
    it; `log` has the appended values."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self._epoch = -1
        self._remembered: dict[tuple[int, int], int] = {}

    def has(self, request: ClientRequest) -> bool:
        """Whether it would treat the request's batch as a duplicate."""
        batch = batch_of(request)
        last = (batch.base_sequence + batch.count - 1) & 0x7FFFFFFF
        return batch.producer_epoch == self._epoch and (batch.base_sequence, last) in self._remembered

    def append(self, request: ClientRequest) -> tuple[int, int]:
        """The error code and the base offset for a request with one batch."""
        batch = batch_of(request)
        first, last = batch.base_sequence, (batch.base_sequence + batch.count - 1) & 0x7FFFFFFF
        if batch.producer_epoch < self._epoch:
            return INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > self._epoch:
            if first != 0 and self._epoch >= 0:
                return OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self._remembered.clear()
        elif (first, last) in self._remembered:
            # a duplicate gets the response of the original
            return 0, self._remembered[first, last]
        elif self._remembered and first != (max(self._remembered)[1] + 1) & 0x7FFFFFFF:
            return OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self._epoch = batch.producer_epoch
        offset = self._remembered[first, last] = len(self.log)
        while len(self._remembered) > BATCHES_REMEMBERED:
            del self._remembered[min(self._remembered)]
        self.log += [record.value for record in batch.records()]
        return 0, offset
