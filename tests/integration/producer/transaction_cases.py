"""What a transactional producer has to do on any cluster: the test functions, for modules that define the fixtures.

A module imports everything from here and defines the fixture `servers`, the bootstrap servers of a cluster in which
transactions that expired are noticed within a second. `tests/integration` runs them on the embedded broker,
`tests/interop` on releases of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pyarrow as pa
import pytest
from support.confluent import PATIENCE_S, check_committed, committed_values, create_topic, read_committed

from headrace.producer import KafkaProducer, ProducerRecord
from headrace.producer.blocking_cluster import BlockingCluster
from headrace.producer.config import ProducerConfig
from headrace.producer.errors import (
    ApplicationRecoverableError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from headrace.producer.resumption import AbandonedTransactions, PreparedTransaction


def unique(prefix: str = "id") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(servers: str) -> str:
    return create_topic(servers, partitions=3)


def transactional(servers: str, transactional_id: str = "", **options: Any) -> KafkaProducer:
    """A producer that has been initialized."""
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id or unique(), **options)
    producer.init_transactions()
    return producer


@pytest.fixture
def producer(servers: str) -> Iterator[KafkaProducer]:
    with transactional(servers) as producer:
        yield producer


# --- Records ---


def test_committed_records_are_read_and_aborted_ones_are_not(servers: str, topic: str, producer: KafkaProducer) -> None:
    for number in range(4):
        producer.begin_transaction()
        futures = [producer.send(topic, b"%d-%d" % (number, each)) for each in range(20)]
        if number % 2:
            futures[0].get(PATIENCE_S)
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            # a commit waits for every record
            assert all(future.is_done and future.succeeded() for future in futures)
    expected = sorted(b"%d-%d" % (number, each) for number in (0, 2) for each in range(20))
    check_committed(servers, topic, expected)


def test_records_of_an_open_transaction_are_not_read(servers: str, topic: str, producer: KafkaProducer) -> None:
    producer.begin_transaction()
    producer.send(topic, b"open").get(PATIENCE_S)
    check_committed(servers, topic, [])
    producer.commit_transaction()
    check_committed(servers, topic, [b"open"])


def test_the_block_commits_or_aborts(servers: str, topic: str, producer: KafkaProducer) -> None:
    with producer.transaction():
        producer.send(topic, b"committed")

    def fails() -> None:
        with producer.transaction():
            producer.send(topic, b"aborted")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with producer.transaction():
        producer.send(topic, b"committed, too")
    check_committed(servers, topic, [b"committed", b"committed, too"])


def test_empty_transactions(servers: str, topic: str, producer: KafkaProducer) -> None:
    for _ in range(3):
        with producer.transaction():
            pass
        producer.begin_transaction()
        producer.abort_transaction()
    with producer.transaction():
        producer.send(topic, b"v")
    check_committed(servers, topic, [b"v"])


def test_many_batches_to_many_partitions_keep_their_order(servers: str) -> None:
    topic = create_topic(servers, partitions=8)
    with transactional(servers, batch_size=500, batch_max_size=500, linger_ms=0) as producer:
        for number in range(3):
            with producer.transaction():
                for each in range(2_000):
                    producer.send(topic, b"%d-%06d" % (number, each), partition=each % 8)
    read: dict[int, list[bytes]] = {}
    for message in read_committed(servers, topic):
        read.setdefault(message.partition(), []).append(message.value())
    assert {partition: values == sorted(values) for partition, values in read.items()} == dict.fromkeys(range(8), True)
    assert sum(map(len, read.values())) == 6_000


def test_every_way_to_send(servers: str, topic: str) -> None:
    acknowledged: list[bytes] = []

    with transactional(servers) as producer:
        with producer.transaction():
            producer.send(topic, b"send")
            producer.send(ProducerRecord(topic, b"record"))
            producer.send(topic, b"callback", callback=lambda metadata, error: acknowledged.append(b"callback"))
            rows = producer.send_arrow(topic, pa.record_batch({"value": [b"arrow-1", b"arrow-2"]}))
            many = producer.send_many(topic, [b"many-1", b"many-2"])
            assert many.get(PATIENCE_S).rows == 2

            async def waited() -> None:
                await producer.send(topic, b"await")

            asyncio.run(waited())
        assert rows.get(PATIENCE_S).rows == 2
        producer.flush(PATIENCE_S)
        assert acknowledged == [b"callback"]
        producer.begin_transaction()
        dropped = producer.send_arrow(topic, pa.record_batch({"value": [b"aborted"]}))
        producer.abort_transaction()
        with pytest.raises(Exception, match="aborted") as caught:
            dropped.get(PATIENCE_S)
        assert isinstance(caught.value.__cause__, TransactionAbortedError)
    values = [b"send", b"record", b"callback", b"arrow-1", b"arrow-2", b"many-1", b"many-2", b"await"]
    check_committed(servers, topic, sorted(values))


class Seen:
    """An interceptor that counts."""

    def __init__(self) -> None:
        self.sent = 0
        self.outcomes: list[type | None] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent += 1
        return record

    def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
        self.outcomes.append(None if exception is None else type(exception))


def test_interceptors_serializers_and_partitioners(servers: str, topic: str) -> None:
    seen = Seen()
    with transactional(
        servers, interceptor_classes=[seen], value_serializer="string", partitioner=lambda *_: 1, linger_ms=60_000
    ) as producer:
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send(topic, "outside")
        with producer.transaction():
            producer.send(topic, "inside")
        producer.begin_transaction()
        future = producer.send(topic, "aborted")
        producer.abort_transaction()
        assert isinstance(future.exception(PATIENCE_S), TransactionAbortedError)
    assert [(message.value(), message.partition()) for message in read_committed(servers, topic)] == [(b"inside", 1)]
    # the one outside was rejected before it was intercepted
    assert (seen.sent, seen.outcomes) == (2, [None, TransactionAbortedError])


def test_calls_out_of_order_say_what_to_do(servers: str, topic: str) -> None:
    with (
        KafkaProducer(bootstrap_servers=servers) as producer,
        pytest.raises(IllegalStateError, match=r"transactional.id"),
    ):
        producer.init_transactions()
    with KafkaProducer(bootstrap_servers=servers, transactional_id=unique()) as producer:
        with pytest.raises(IllegalStateError, match="call init_transactions first"):
            producer.begin_transaction()
        producer.init_transactions()
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send(topic, b"v")
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.send_arrow(topic, pa.record_batch({"value": [b"v"]}))
        with pytest.raises(IllegalStateError, match="call begin_transaction first"):
            producer.commit_transaction()
        with pytest.raises(IllegalStateError, match="was called before"):
            producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="commit or abort it first"):
            producer.begin_transaction()
        refused: list[BaseException] = []

        def in_callback(metadata: Any, error: Any) -> None:
            try:
                producer.commit_transaction()
            except IllegalStateError as wrong:
                refused.append(wrong)

        producer.send(topic, b"v", callback=in_callback)
        producer.commit_transaction()
        producer.flush(PATIENCE_S)
        assert "in a callback" in str(refused[0])


def test_the_time_in_calls_is_measured(topic: str, producer: KafkaProducer) -> None:
    with producer.transaction():
        producer.send_offsets_to_transaction({(topic, 0): 1}, unique("group"))
    producer.begin_transaction()
    producer.abort_transaction()
    measured = producer.metrics()["producer-metrics"]
    for call in ("init", "send-offsets", "commit"):
        assert measured[f"txn-{call}-time-ns-total"] > 0
    assert measured["txn-begin-time-ns-total"] >= 0
    assert measured["txn-abort-time-ns-total"] >= 0


# --- Offsets ---


def offset_of(servers: str, group: str, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        return consumer.committed([confluent_kafka.TopicPartition(topic, 0)], PATIENCE_S)[0].offset
    finally:
        consumer.close()


def test_offsets_are_committed_with_the_transaction_only(servers: str, topic: str, producer: KafkaProducer) -> None:
    group = unique("group")
    producer.begin_transaction()
    producer.send_offsets_to_transaction({(topic, 0): 3}, group)
    producer.abort_transaction()
    assert offset_of(servers, group, topic) == confluent_kafka.OFFSET_INVALID
    with producer.transaction():
        producer.send_offsets_to_transaction({(topic, 0): 5}, group)
        producer.send_offsets_to_transaction({}, group)
    assert offset_of(servers, group, topic) == 5


def test_the_group_metadata_of_confluent_kafka_and_kafka_python(
    servers: str, topic: str, producer: KafkaProducer
) -> None:
    with producer.transaction():
        for number in range(6):
            producer.send(topic, b"%d" % number, partition=0)
    group = unique("group")
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    theirs.subscribe([topic])
    assert len(theirs.consume(3, PATIENCE_S)) == 3
    with producer.transaction():
        producer.send_offsets_to_transaction(theirs.position(theirs.assignment()), theirs.consumer_group_metadata())
    theirs.close()
    assert offset_of(servers, group, topic) == 3
    other = kafka.KafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, enable_auto_commit=False, consumer_timeout_ms=60_000
    )
    assert next(other).value == b"3"
    partition = kafka.TopicPartition(topic, 0)
    with producer.transaction():
        producer.send_offsets_to_transaction(
            {partition: kafka.OffsetAndMetadata(other.position(partition), "m", -1)}, other.group_metadata()
        )
    other.close()
    assert offset_of(servers, group, topic) == 4


def test_a_consumer_that_its_group_has_replaced(servers: str, topic: str, producer: KafkaProducer) -> None:
    group = unique("group")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    stale = kafka.structs.ConsumerGroupMetadata(group, 99, "replaced", None)
    producer.begin_transaction()
    producer.send(topic, b"twice")
    with pytest.raises(TransactionAbortableError, match="TxnOffsetCommit"):
        producer.send_offsets_to_transaction({(topic, 0): 5}, stale)
    producer.abort_transaction()
    with producer.transaction():
        producer.send_offsets_to_transaction({(topic, 0): 5}, consumer.consumer_group_metadata())
    consumer.close()
    check_committed(servers, topic, [])


# --- Failures ---


def test_a_batch_that_fails_fails_the_commit(servers: str) -> None:
    topic = create_topic(servers, config={"max.message.bytes": "1000"})
    with transactional(servers) as producer:
        producer.begin_transaction()
        good = producer.send(topic, b"good")
        good.get(PATIENCE_S)
        producer.send(topic, b"x" * 5_000)
        with pytest.raises(TransactionAbortableError) as caught:
            producer.commit_transaction()
        assert isinstance(caught.value.__cause__, MessageSizeTooLargeError)
        with pytest.raises(TransactionAbortableError):
            producer.send(topic, b"later")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next")
    check_committed(servers, topic, [b"next"])


def test_the_block_aborts_after_a_commit_that_failed(servers: str) -> None:
    topic = create_topic(servers, config={"max.message.bytes": "1000"})
    with transactional(servers) as producer:

        def fails() -> None:
            with producer.transaction():
                producer.send(topic, b"x" * 5_000)

        for _ in range(3):
            with pytest.raises(TransactionAbortableError):
                fails()
        with producer.transaction():
            producer.send(topic, b"next")
    check_committed(servers, topic, [b"next"])


def test_an_abort_while_records_wait(servers: str, topic: str) -> None:
    with transactional(servers, linger_ms=60_000) as producer:
        producer.begin_transaction()
        futures = [producer.send(topic, b"%d" % number) for number in range(100)]
        producer.abort_transaction()
        assert all(isinstance(future.exception(0), TransactionAbortedError) for future in futures)
        with producer.transaction():
            producer.send(topic, b"next")
    check_committed(servers, topic, [b"next"])


def test_a_producer_with_the_same_id_fences_the_first(servers: str, topic: str) -> None:
    transactional_id = unique()
    first = transactional(servers, transactional_id)
    first.begin_transaction()
    first.send(topic, b"unfinished").get(PATIENCE_S)
    second = transactional(servers, transactional_id)
    late = first.send(topic, b"late")

    def goes_on() -> None:
        with pytest.raises(TransactionAbortableError):
            first.commit_transaction()
        first.abort_transaction()

    assert isinstance(late.exception(PATIENCE_S), InvalidProducerEpochError)
    with pytest.raises(ProducerFencedError, match=transactional_id):
        goes_on()
    with pytest.raises(ApplicationRecoverableError):
        first.begin_transaction()
    with second.transaction():
        second.send(topic, b"second")
    first.close()
    second.close()
    check_committed(servers, topic, [b"second"])


def test_a_fenced_producer_whose_commit_finds_out(servers: str, topic: str) -> None:
    transactional_id = unique()
    with transactional(servers, transactional_id) as first:
        first.begin_transaction()
        first.send(topic, b"unfinished").get(PATIENCE_S)
        with transactional(servers, transactional_id) as second:
            with pytest.raises(ProducerFencedError):
                first.commit_transaction()
            with second.transaction():
                second.send(topic, b"second")
    check_committed(servers, topic, [b"second"])


def wait_until_expired(servers: str, topic: str, count: int) -> None:
    """Wait until a marker has ended the open transaction: a record after it is readable."""
    with KafkaProducer(bootstrap_servers=servers) as plain:
        plain.send(topic, b"after", partition=0).get(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while len(committed_values(servers, topic)) < count:
        assert time.monotonic() < deadline, "the transaction does not expire"
        time.sleep(0.2)


@pytest.mark.parametrize("how", ["commit", "send"])
def test_a_transaction_that_expired_is_aborted_and_the_producer_goes_on(servers: str, topic: str, how: str) -> None:
    with transactional(servers, transaction_timeout_ms=1_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"expires", partition=0).get(PATIENCE_S)
        wait_until_expired(servers, topic, 1)
        if how == "send":
            error = producer.send(topic, b"late", partition=0).exception(PATIENCE_S)
            assert isinstance(error, InvalidProducerEpochError)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next", partition=0)
    check_committed(servers, topic, [b"after", b"next"])


def test_an_abort_of_a_transaction_that_expired_on_the_broker(servers: str, topic: str) -> None:
    with transactional(servers, transaction_timeout_ms=1_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"expires", partition=0).get(PATIENCE_S)
        wait_until_expired(servers, topic, 1)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next", partition=0)
    check_committed(servers, topic, [b"after", b"next"])


def test_a_timeout_above_the_brokers_maximum_is_refused(servers: str) -> None:
    with KafkaProducer(
        bootstrap_servers=servers, transactional_id=unique(), transaction_timeout_ms=3_600_000
    ) as producer:
        with pytest.raises(InvalidTransactionTimeoutError, match=r"transaction.timeout.ms=3600000"):
            producer.init_transactions()
        with pytest.raises(InvalidConfigurationError):
            producer.init_transactions()


def test_closing_within_a_transaction_aborts_it_on_the_broker(servers: str, topic: str) -> None:
    producer = transactional(servers)
    producer.begin_transaction()
    producer.send(topic, b"sent").get(PATIENCE_S)
    producer.send(topic, b"waiting")
    producer.close(PATIENCE_S)
    # the last stable offset has moved on, which the default timeout of a minute has not done
    with transactional(servers) as other, other.transaction():
        other.send(topic, b"next")
    check_committed(servers, topic, [b"next"])


# --- Ending a transaction from another process ---


def prepared_in(servers: str, topic: str, value: bytes, **options: Any) -> PreparedTransaction:
    producer = transactional(servers, **options)
    producer.begin_transaction()
    future = producer.send(topic, value, partition=0)
    prepared = producer._hand_over_transaction()
    assert future.succeeded()
    with pytest.raises(IllegalStateError, match="handed its transaction over"):
        producer.send(topic, b"later")
    producer.close(PATIENCE_S)
    assert prepared is not None
    return prepared


@contextlib.contextmanager
def abandoned(servers: str, timeout_ms: float = PATIENCE_S * 1000) -> Iterator[AbandonedTransactions]:
    config = ProducerConfig.resolve(bootstrap_servers=servers, client_id="driver")
    with BlockingCluster(config, timeout_ms=timeout_ms) as cluster:
        yield AbandonedTransactions(cluster)


def end(servers: str, prepared: PreparedTransaction, *, commit: bool) -> None:
    with abandoned(servers) as transactions:
        transactions.end(prepared, commit=commit)


def test_a_transaction_that_was_handed_over_is_committed_or_aborted(servers: str, topic: str) -> None:
    first = prepared_in(servers, topic, b"committed")
    second = prepared_in(servers, topic, b"aborted")
    check_committed(servers, topic, [])
    for _ in range(3):
        end(servers, first, commit=True)
        end(servers, second, commit=False)
    check_committed(servers, topic, [b"committed"])
    # the id can be used again, which ends the idempotence
    with transactional(servers, first.transactional_id) as producer, producer.transaction():
        producer.send(topic, b"next")
    with pytest.raises((ProducerFencedError, InvalidTxnStateError)):
        end(servers, first, commit=True)
    check_committed(servers, topic, [b"committed", b"next"])


def test_the_other_outcome_is_an_error(servers: str, topic: str) -> None:
    prepared = prepared_in(servers, topic, b"committed")
    end(servers, prepared, commit=True)
    with pytest.raises(InvalidTxnStateError, match="EndTxn"):
        end(servers, prepared, commit=False)


def test_a_transaction_that_was_handed_over_and_expired(servers: str, topic: str) -> None:
    prepared = prepared_in(servers, topic, b"expires", transaction_timeout_ms=1_000)
    wait_until_expired(servers, topic, 1)
    with pytest.raises((ProducerFencedError, InvalidTxnStateError)):
        end(servers, prepared, commit=True)


def test_a_transaction_without_records_has_nothing_to_hand_over(producer: KafkaProducer) -> None:
    producer.begin_transaction()
    assert producer._hand_over_transaction() is None


def test_transactions_that_are_left_behind_are_listed_and_fenced(servers: str, topic: str) -> None:
    prefix = unique("left")
    left = [prepared_in(servers, topic, b"left", transactional_id=f"{prefix}-{number}") for number in range(3)]
    prepared_in(servers, topic, b"of another", transactional_id=f"{prefix}x-1")
    with abandoned(servers) as transactions:
        ids = [prepared.transactional_id for prepared in left]
        pattern = f"{prefix}-[0-9]+"
        try:
            assert transactions.ongoing(pattern) == ids
        except UnsupportedVersionError:
            pytest.skip("ListTransactions needs Kafka 3.0")
        found = transactions.describe([*ids, unique()])
        assert {
            name: None if each is None else (each.transaction_state, each.producer_id, each.producer_epoch)
            for name, each in found.items()
            if name in ids
        } == {each.transactional_id: ("Ongoing", each.producer_id, each.producer_epoch) for each in left}
        assert [name for name, each in found.items() if each is None] == list(found.keys() - set(ids))
        transactions.end(left[0], commit=True)
        transactions.fence(ids[1])
        assert transactions.ongoing(pattern) == ids[2:]
        with pytest.raises((ProducerFencedError, InvalidTxnStateError, InvalidProducerEpochError)):
            transactions.end(left[1], commit=True)
        with pytest.raises(InvalidTransactionTimeoutError):
            transactions.fence(ids[1], 2**31 - 1)
        transactions.fence(ids[2])
        transactions.fence(f"{prefix}x-1")
    check_committed(servers, topic, [b"left"])


def test_no_coordinator_answers() -> None:
    with (
        abandoned("127.0.0.1:1", timeout_ms=50) as transactions,
        pytest.raises(KafkaTimeoutError, match="within 50 ms"),
    ):
        transactions.end(PreparedTransaction("id", 1, 0), commit=True)
