"""`KafkaProducer` over an engine that is stepped by hand: construction, what `send` rejects, lifecycle."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from support.sender_harness import BATCH_SIZE, SenderHarness, values_of

from headrace.network.clock import Clock
from headrace.network.protocol import errors
from headrace.producer import KafkaProducer, ProducerRecord, RecordFuture, kafka_producer
from headrace.producer.config import ProducerConfig
from headrace.producer.kafka_producer import KafkaProducer as Producer
from headrace.producer.topics import Topics

ENGINES: list[SteppedEngine] = []
#: Kept until the test ends, because a dropped producer warns about undelivered records.
PRODUCERS: list[Producer] = []


class SteppedEngine:
    """The `Engine` of a producer, without threads and sockets: topic "t" with four partitions is known."""

    def __init__(self, config: ProducerConfig, clock: Clock, reporters: Iterable[Any] = ()) -> None:
        self.harness = SenderHarness(partitions=4, batch_size=min(config.batch_size, BATCH_SIZE))
        self.harness.accumulator.topic_queues("t", lambda: self.harness.metadata.cluster, 3)
        self.clock = self.harness.clock
        self.metadata = self.harness.metadata
        self.accumulator = self.harness.accumulator
        self.sender = self.harness.sender
        self.transaction = None
        self.metrics = self.harness.metrics
        self.reporters = tuple(reporters)
        self.client_id = config.client_id
        self.process_id = os.getpid()
        self.is_own_thread = False
        self.topics = Topics(
            config,
            self.clock,
            self.metadata,
            self.accumulator,
            self.metrics,
            self.sender.wakeup,
            lambda: self.is_own_thread,
        )
        self.is_alive = True
        self.closed_with: list[float | None] = []
        self.began_to_close = 0
        self.close_raises: Exception | None = None
        ENGINES.append(self)

    def begin_close(self) -> None:
        self.began_to_close += 1
        self.sender.close()

    def close(self, timeout_seconds: float | None) -> None:
        self.closed_with.append(timeout_seconds)
        self.accumulator.close()
        if self.close_raises is not None:
            raise self.close_raises

    @property
    def waiting(self) -> list[bytes]:
        """The values of the waiting records, by partition and age."""
        return [value for request in self.harness.send() for value in values_of(request)]


@pytest.fixture(autouse=True)
def stepped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kafka_producer, "Engine", SteppedEngine)
    yield
    for engine in ENGINES:
        engine.is_alive = False
    ENGINES.clear()
    PRODUCERS.clear()


def producer_of(**options: Any) -> Producer:
    producer = KafkaProducer(**{"bootstrap_servers": "localhost:1", "max_block_ms": 0, **options})
    PRODUCERS.append(producer)
    return producer


def engine_of(producer: Producer) -> SteppedEngine:
    engine = producer._engine
    assert isinstance(engine, SteppedEngine)
    return engine


# --- Construction ---


class Plugin:
    """A serializer, partitioner and interceptor that records its calls."""

    def __init__(self) -> None:
        self.closed = 0
        self.acknowledged: list[BaseException | None] = []

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return b"<%s>" % str(data).encode()

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
        self.acknowledged.append(exception)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"linger": 5}, "linger.ms"),
        ({"bootstrap_servers": []}, "bootstrap.servers"),
        ({"acks": 2}, "acks"),
        ({"acks": 1, "enable_idempotence": True}, "acks"),
        ({"max_in_flight_requests_per_connection": 6, "enable_idempotence": True}, "in.flight"),
        ({"delivery_timeout_ms": 100}, "delivery.timeout.ms"),
        ({"compression_type": "rar"}, "compression.type"),
        ({"value_serializer": "no such one"}, "serializer"),
        ({"key_serializer": 7}, "serializer"),
        ({"partitioner_class": 7}, "partitioner"),
        ({"interceptor_classes": [7]}, "interceptor"),
        ({"metric_reporters": [7]}, "reporter"),
    ],
)
def test_configuration_that_can_not_work_is_refused_before_anything_runs(options: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.KafkaConfigurationError, match=text):
        producer_of(**options)
    assert ENGINES == []


def test_keywords_and_a_dictionary_mean_the_same() -> None:
    by_keywords = producer_of(linger_ms=20, client_id="c")
    by_keys = KafkaProducer({"bootstrap.servers": "localhost:1", "linger.ms": 20, "client.id": "c", "max.block.ms": 0})
    assert by_keywords.config == by_keys.config
    assert by_keywords.client_id == by_keys.client_id == "c"


def test_a_resolved_configuration_is_taken_as_it_is_and_not_beside_keywords() -> None:
    config = ProducerConfig.resolve(bootstrap_servers="localhost:1", client_id="made elsewhere")
    producer = KafkaProducer(config)
    assert producer.config is config
    with pytest.raises((TypeError, errors.KafkaConfigurationError)):
        KafkaProducer(config, linger_ms=1)
    assert len(ENGINES) == 1


def test_names_are_told_and_pickling_says_what_to_do() -> None:
    producer = producer_of(client_id="c")
    assert repr(producer) == "<KafkaProducer c, open>"
    with pytest.raises(TypeError, match="create the producer where it is used"):
        pickle.dumps(producer)
    producer.close()
    assert repr(producer) == "<KafkaProducer c, closed>"


# --- What send accepts and rejects ---


def test_bytes_take_the_short_way_and_come_out_as_they_went_in() -> None:
    producer = producer_of()
    first = producer.send("t", b"1", b"key")
    futures = [producer.send("t", value, b"key") for value in (b"2", b"", None)]
    assert all(type(future) is RecordFuture for future in futures)
    assert {future.topic_partition for future in [first, *futures]} == {first.topic_partition}
    assert engine_of(producer).waiting == [b"1", b"2", b"", None]


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    *[
        ({"topic": topic}, errors.InvalidTopicError, "can't be the name of a topic")
        for topic in ("", ".", "..", "a b", "ä", "x" * 250, None, b"t", 7)
    ],
    *[
        ({"value": value}, errors.SerializationError, "the value of a record for topic 't'")
        for value in ("text", 5, ["list"], object())
    ],
    ({"key": "text"}, errors.SerializationError, "the key of a record for topic 't'"),
    *[
        ({"partition": partition}, errors.IllegalArgumentError, "a partition is a number")
        for partition in (-1, 1.0, "1", True)
    ],
    *[
        ({"timestamp_ms": timestamp}, errors.IllegalArgumentError, "milliseconds since 1970")
        for timestamp in (-1, 1.5, "now", True, 2**63)
    ],
    *[
        ({"headers": headers}, errors.SerializationError, "headers of a record for topic 't'")
        for headers in ([("a", "text")], [("a",)], 7, [(b"a", b"b")])
    ],
    ({"callback": 7}, errors.IllegalArgumentError, "can't be called"),
    ({"value": b"x" * 2_000_000}, errors.MessageSizeTooLargeError, "max.request.size"),
    ({"topic": ProducerRecord("t", b"v"), "key": b"beside"}, errors.IllegalArgumentError, "callback only"),
    ({"topic": ProducerRecord("t", b"v", partition=-7)}, errors.IllegalArgumentError, "a partition is a number"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), REFUSED)
@pytest.mark.parametrize("with_interceptor", [False, True])
def test_what_can_not_be_sent_is_refused_at_once_and_leaves_nothing_behind(
    arguments: dict[str, Any], kind: type[Exception], text: str, with_interceptor: bool
) -> None:
    plugin = Plugin()
    producer = producer_of(interceptor_classes=[plugin] if with_interceptor else [])
    record = {"topic": "t", "value": b"v", **arguments}
    if isinstance(record["topic"], ProducerRecord) and "value" not in arguments:
        del record["value"]
    with pytest.raises(kind, match=text) as raised:
        producer.send(**record)
    assert not engine_of(producer).accumulator.has_incomplete
    if with_interceptor and "callback only" not in text:
        assert plugin.acknowledged == [raised.value]


def test_without_time_to_wait_an_unknown_topic_and_full_memory_say_so() -> None:
    producer = producer_of()
    with pytest.raises(errors.KafkaTimeoutError, match=r"no metadata of topic 'other' within max\.block\.ms"):
        producer.send("other", b"v")
    with pytest.raises(errors.KafkaTimeoutError, match="no metadata of topic 'other'"):
        producer.partitions_for("other")
    engine = engine_of(producer)
    while engine.harness.free_bytes >= BATCH_SIZE:
        producer.send("t", b"v" * 300, partition=0)
    with pytest.raises(errors.BufferExhaustedError, match=r"buffer\.memory"):
        producer.send("t", b"v" * 300, partition=0)
    assert producer.partitions_for("t") == {0, 1, 2, 3}


def test_serializers_and_a_partitioner_are_asked_once_a_record() -> None:
    chosen: list[Any] = []

    def partitioner(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        chosen.append((key, list(partitions)))
        return 2

    producer = producer_of(value_serializer=Plugin(), key_serializer=str.encode, partitioner_class=partitioner)
    future = producer.send("t", 5, "k")
    assert future.topic_partition.partition == 2
    assert chosen == [(b"k", [0, 1, 2, 3])]
    assert engine_of(producer).waiting == [b"<5>"]
    assert producer.column_sender().row_by_row == "a serializer"


# --- Closing ---


def test_closing_hands_on_its_timeout_and_closes_what_is_the_users_once() -> None:
    serializer, interceptor = Plugin(), Plugin()
    producer = producer_of(value_serializer=serializer, interceptor_classes=[interceptor])
    producer.close(7)
    producer.close()
    producer.close(0)
    assert engine_of(producer).closed_with == [7.0]
    assert (serializer.closed, interceptor.closed) == (1, 1)


def test_a_plugin_whose_close_raises_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Plugin):
        def close(self) -> None:
            super().close()
            raise OSError("no such file")

    failing, serializer = Failing(), Plugin()
    producer = producer_of(key_serializer=failing, value_serializer=serializer)
    producer.close()
    assert (failing.closed, serializer.closed) == (1, 1)
    assert "Failing.close failed" in caplog.text


def test_what_was_made_for_a_producer_that_can_not_be_is_closed() -> None:
    serializer, interceptor = Plugin(), Plugin()
    with pytest.raises(errors.KafkaConfigurationError):
        producer_of(value_serializer=serializer, interceptor_classes=[interceptor], metric_reporters=[7])
    assert (serializer.closed, interceptor.closed) == (1, 1)


def test_a_close_whose_time_passes_still_closes_what_is_the_users() -> None:
    serializer = Plugin()
    producer = producer_of(value_serializer=serializer)
    engine_of(producer).close_raises = errors.KafkaTimeoutError("3 records not acknowledged")
    with pytest.raises(errors.KafkaTimeoutError, match="3 records"):
        producer.close(1)
    assert serializer.closed == 1
    producer.close()


@pytest.mark.parametrize("timeout", [-1, "soon", True, float("nan")])
def test_a_timeout_that_is_none_leaves_the_producer_open(timeout: Any) -> None:
    producer = producer_of()
    for wait in (producer.close, producer.flush):
        with pytest.raises(errors.IllegalArgumentError, match="number of seconds"):
            wait(timeout)
    producer.send("t", b"v")
    assert engine_of(producer).closed_with == []


def test_after_the_close_everything_says_so_but_what_only_looks() -> None:
    producer = producer_of()
    producer.send("t", b"v")
    producer.close()
    for use in (
        lambda: producer.send("t", b"v"),
        lambda: producer.send(ProducerRecord("t", b"v")),
        producer.abort,
        lambda: producer.partitions_for("t"),
        producer.bootstrap_connected,
        lambda: producer.send_arrow("t", None),
    ):
        with pytest.raises(errors.ProducerClosedError, match="create a new one"):
            use()
    assert producer.metrics()
    assert producer.config.linger_ms >= 0


def test_a_flush_while_it_closes_waits_and_a_flush_afterwards_has_nothing_to_wait_for() -> None:
    producer = producer_of()
    engine = engine_of(producer)
    producer.send("t", b"v")
    producer.close()
    with pytest.raises(errors.KafkaTimeoutError, match="1 records in 1 batches"):
        producer.flush(0)
    engine.is_own_thread = True
    with pytest.raises(errors.IllegalStateError, match="flush can't be called in a callback"):
        producer.flush()
    engine.is_own_thread = False
    engine.process_id = -1
    producer.flush()
    engine.process_id = os.getpid()
    engine.sender.close(force=True)
    engine.sender.run()
    producer.flush()
    with pytest.raises(errors.IllegalArgumentError):
        producer.flush(-1)


def test_leaving_a_with_block_by_an_exception_closes_patiently_and_hides_nothing() -> None:
    producer = producer_of()
    with pytest.raises(ZeroDivisionError), producer:
        producer.send("t", b"%d" % (1 // 0))
    assert engine_of(producer).closed_with == [None]


def test_a_dropped_producer_lets_its_engine_deliver_and_warns_where_there_is_something() -> None:
    producer = producer_of()
    engine = engine_of(producer)
    producer.send("t", b"v")
    with pytest.warns(ResourceWarning, match="dropped without close"):
        producer.__del__()
    assert engine.began_to_close == 1
    # and nothing happens for a producer that never got an engine
    Producer.__new__(Producer).__del__()


def test_abort_waits_for_the_sender_and_not_for_a_dead_one() -> None:
    producer = producer_of()
    engine = engine_of(producer)
    future = producer.send("t", b"v")
    thread = threading.Thread(target=producer.abort)
    thread.start()
    while not future.done():
        engine.sender.run_once()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(future.exception(0), errors.RecordAbortedError)
    engine.is_alive = False
    producer.abort()


def test_a_dead_sender_is_named_by_all_that_would_need_it() -> None:
    producer = producer_of()
    engine_of(producer).sender.death = death = MemoryError("no more")
    engine_of(producer).accumulator.close()
    for use in (
        lambda: producer.send("t", b"v", headers=[("h", b"1")]),
        producer.flush,
        producer.abort,
        lambda: producer.partitions_for("t"),
    ):
        with pytest.raises(errors.IllegalStateError, match="sender thread of this producer died") as raised:
            use()
        assert raised.value.__cause__ is death
    producer.close()


def test_within_its_own_callback_nothing_waits() -> None:
    producer = producer_of(max_block_ms=60_000)
    engine = engine_of(producer)
    engine.is_own_thread = True
    with pytest.raises(errors.IllegalStateError, match="flush can't be called in a callback"):
        producer.flush()
    with pytest.raises(errors.IllegalStateError, match="send_arrow can't be called in a callback"):
        producer.send_arrow("t", None)
    with pytest.raises(errors.KafkaTimeoutError, match="a callback can't wait for it"):
        producer.send("other", b"v")
    producer.abort()
    producer.send("t", b"v")


# --- Fork ---


def test_in_a_forked_child_the_first_use_begins_anew() -> None:
    producer = producer_of()
    parents = engine_of(producer)
    parents.process_id = -1
    producer._leave_direct_path()
    producer.send("t", b"child")
    childs = engine_of(producer)
    assert childs is not parents
    assert childs.waiting == [b"child"]
    assert not parents.accumulator.has_incomplete
    producer.close()
    assert (childs.closed_with, parents.closed_with) == ([None], [])


def test_in_a_forked_child_closing_what_was_never_used_there_touches_nothing_of_the_parents() -> None:
    serializer = Plugin()
    producer = producer_of(value_serializer=serializer)
    parents = engine_of(producer)
    parents.process_id = -1
    producer.close()
    assert len(ENGINES) == 1
    assert parents.closed_with == []
    assert serializer.closed == 0
    with pytest.raises(errors.ProducerClosedError):
        producer.send("t", b"v")
