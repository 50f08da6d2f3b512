"""Sends from finalizers and signal handlers, wherever they run: none hangs, and no record is lost, doubled or leaked.

The same tests run with the compiled modules, where sending a record runs no Python code, and with the interpreted ones,
where a handler may run between any two instructions.
"""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.interruptions import Garbage, Interruption, every_point, signals
from support.waiting import know, memory_comes_back

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.broker.controller.controller_api import MorePartitions
from headrace.network.clock import Clock
from headrace.network.latch_cy import Latch
from headrace.network.sections import here, interrupted
from headrace.producer import KafkaProducer, RecordFuture, errors

PARTITIONS = 3


class Boom(Exception):
    """Raised by the signal handlers."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, config={"num.partitions": PARTITIONS}) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]


def in_log(cluster: EmbeddedCluster, topic: str) -> Counter[bytes]:
    return Counter(record.value for number in range(PARTITIONS) for record in cluster.records(topic, number))


def is_whole(producer: KafkaProducer) -> None:
    """Check that no section is open, no lock is held and no memory is missing."""
    assert not interrupted()
    assert not gc.garbage
    producer.flush(60)
    memory_comes_back(producer)
    assert producer._engine.accumulator.has_incomplete is False


#: What the producer does when it is interrupted -> settings with which `send` does just that.
SITUATIONS: dict[str, dict[str, Any]] = {
    "the batch has room": {"linger_ms": 1000},
    "every record needs a batch": {"batch_size": 0},
    "memory has to be waited for": {"batch_size": 400, "buffer_memory": 400, "linger_ms": 0},
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_send_at_every_point_of_a_send(cluster: EmbeddedCluster, topic: str, situation: str) -> None:
    futures: list[RecordFuture] = []
    sent: Counter[bytes] = Counter()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **SITUATIONS[situation]) as producer:
        know(producer, topic)

        def send(value: bytes) -> None:
            futures.append(producer.send(topic, value * 10, key=b"k"))
            sent[value * 10] += 1

        for point in every_point():
            with Interruption(point, lambda point=point: send(b"inner %d " % point)) as interruption:
                send(b"outer %d " % point)
            if not interruption.happened:
                break
            if not point % 50:
                producer.flush(60)
        assert point >= 1
        producer.flush(60)
        assert all(future.succeeded() for future in futures)
        is_whole(producer)
    assert in_log(cluster, topic) == sent


def encoded(topic: str, headers: list[tuple[str, bytes]], data: str) -> bytes:
    """A serializer, whose instructions are no points: it isn't the producer's."""
    headers.append(("size", b"%d" % len(data)))
    return data.encode()


def test_a_send_with_headers_and_a_serializer_at_every_point_of_one(cluster: EmbeddedCluster, topic: str) -> None:
    futures: list[RecordFuture] = []
    sent: list[tuple] = []
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, linger_ms=1000, value_serializer=encoded, key_serializer="string"
    ) as producer:
        know(producer, topic)

        def send(name: str, number: int) -> None:
            headers = [("name", name.encode())]
            futures.append(producer.send(topic, "x" * number, name, headers, number % PARTITIONS, number))
            sent.append((number, name.encode(), b"x" * number, tuple(headers)))

        for point in every_point():
            with Interruption(point, lambda point=point: send("inner", point)) as interruption:
                send("outer", point)
            if not interruption.happened:
                break
        producer.flush(60)
        assert all(future.succeeded() for future in futures)
        is_whole(producer)
    log = [
        (record.timestamp, record.key, record.value, tuple(record.headers))
        for number in range(PARTITIONS)
        for record in cluster.records(topic, number)
    ]
    assert sorted(log) == sorted(sent)


def test_a_send_at_every_point_of_the_first_send_to_a_topic(cluster: EmbeddedCluster) -> None:
    futures: list[RecordFuture] = []
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        # only every 23rd point, because each needs a topic
        for point in every_point(step=23):
            topic = f"first-{point}"

            def send(topic: str = topic) -> None:
                futures.append(producer.send(topic, b"inner", key=b"k"))

            with Interruption(point, send) as interruption:
                producer.send(topic, b"outer").get(60)
            if not interruption.happened:
                break
        producer.flush(60)
        assert point > 23
        assert all(future.succeeded() for future in futures)
        is_whole(producer)


def test_records_of_one_thread_stay_in_order_where_a_handler_sends_too(cluster: EmbeddedCluster, topic: str) -> None:
    sent: list[bytes] = []
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, batch_size=300) as producer:
        know(producer, topic)

        def send(value: bytes) -> None:
            producer.send(topic, value, key=b"k")
            sent.append(value)

        for point in every_point():
            with Interruption(point, lambda point=point: send(b"inner %d" % point)) as interruption:
                producer.send(topic, b"outer %d" % point, key=b"k")
            send(b"after %d" % point)
            if not interruption.happened:
                break
        producer.flush(60)
    log = [record.value for number in range(PARTITIONS) for record in cluster.records(topic, number)]
    assert [value for value in log if not value.startswith(b"outer")] == sent


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_exception_at_every_point_of_a_send_leaves_nothing_taken(
    cluster: EmbeddedCluster, topic: str, situation: str
) -> None:
    def boom() -> None:
        raise Boom

    possible: set[bytes] = set()
    certain: set[bytes] = set()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **SITUATIONS[situation]) as producer:
        know(producer, topic)
        for point in every_point():
            value = b"%d " % point * 10
            try:
                with Interruption(point, boom, raises=True) as interruption:
                    producer.send(topic, value)
                certain.add(value)
            except Boom:
                possible.add(value)
                # the exception is gone with its traceback, which may have referred to leased memory
            if not interruption.happened:
                break
            if not point % 20:
                is_whole(producer)
        is_whole(producer)
    log = in_log(cluster, topic)
    assert not [value for value, count in log.items() if count > 1]
    assert certain <= set(log) <= certain | possible


CALLS: dict[str, Callable[[KafkaProducer, RecordFuture], object]] = {
    "done": lambda producer, future: future.done(),
    "add_callback": lambda producer, future: future.add_callback(lambda metadata: None),
    "flush": lambda producer, future: producer.flush(60),
    "get": lambda producer, future: future.get(60),
    "metrics": lambda producer, future: producer.metrics(),
    "partitions_for": lambda producer, future: producer.partitions_for("calls"),
    "send_many": lambda producer, future: producer.send_many("calls", [b"v"] * 2, [b"k"] * 2, [[("h", b"1")], None]),
    "abort": lambda producer, future: producer.abort(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_send_and_a_callback_at_every_point_of_other_calls(cluster: EmbeddedCluster, call: str) -> None:
    futures: list[RecordFuture] = []
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        know(producer, "calls")
        for point in every_point(step=301 if call == "metrics" else 7):
            outer = producer.send("calls", b"outer")

            def act(outer: RecordFuture = outer) -> None:
                futures.append(producer.send("calls", b"inner", key=b"k", callback=lambda *_: None))
                futures[-1].add_callback(lambda metadata: None)
                outer.add_errback(lambda error: None)
                outer.done()

            with Interruption(point, act) as interruption:
                CALLS[call](producer, outer)
            if not interruption.happened:
                break
        is_whole(producer)
        assert all(future.done() for future in futures)


@pytest.mark.parametrize("call", CALLS)
def test_an_exception_at_every_point_of_other_calls(cluster: EmbeddedCluster, call: str) -> None:
    def boom() -> None:
        raise Boom

    # reading metrics takes tens of thousands of instructions, most of them repetitions
    step = 301 if call == "metrics" else 3
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        know(producer, "calls")
        for point in every_point(step=step):
            outer = producer.send("calls", b"outer")
            try:
                with Interruption(point, boom, raises=True) as interruption:
                    CALLS[call](producer, outer)
            except Boom:
                pass
            if not interruption.happened:
                break
            is_whole(producer)
        is_whole(producer)


WAITS: dict[str, Callable[[KafkaProducer, RecordFuture], object]] = {
    "get": lambda producer, future: future.get(),
    "flush": lambda producer, future: producer.flush(),
    "close": lambda producer, future: producer.close(),
    "send_many": lambda producer, future: producer.send_many("calls", [b"v"]),
    "partitions_for": lambda producer, future: producer.partitions_for("a topic nobody knows".replace(" ", "-")),
}


class InterruptedClock(Clock):
    """The machine's clocks. `interruption` is called where a thread is about to wait for memory, in a section."""

    interruption: Callable[[], object] | None = None

    def await_latch(self, latch: Latch, end_ms: float) -> bool:
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            interruption()
        return super().await_latch(latch, end_ms)


@pytest.mark.parametrize("wait", WAITS)
def test_what_could_never_return_raises(cluster: EmbeddedCluster, topic: str, wait: str) -> None:
    raised: list[BaseException] = []
    settings = {"batch_size": 400, "buffer_memory": 400, "linger_ms": 1000}
    clock = InterruptedClock()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, clock=clock, **settings) as producer:
        know(producer, topic)
        pending = producer.send(topic, b"x" * 100)

        def call() -> None:
            assert interrupted()
            with pytest.raises(errors.IllegalStateError, match="finalizer or signal handler") as error:
                WAITS[wait](producer, pending)
            raised.append(error.value)

        clock.interruption = call
        # an answer at once would leave nothing to wait for
        with cluster.inject(ApiKey.PRODUCE, Fault(delay_ms=300)):
            # memory is free when the pending record is acknowledged
            producer.send(topic, b"y" * 300)
        assert len(raised) == 1
        is_whole(producer)


@pytest.mark.parametrize(
    "settings", [{}, {"buffer_memory": 200_000}, {"batch_size": 0}], ids=["defaults", "memory", "small"]
)
def test_finalizers_that_send(cluster: EmbeddedCluster, topic: str, settings: dict[str, Any]) -> None:
    count, futures, refused = 1500, [], []
    threshold = gc.get_threshold()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:

        def send() -> None:
            try:
                futures.append(producer.send(topic, b"finalizer", callback=lambda *_: None))
            except errors.BufferExhaustedError as full:
                refused.append(full)

        def run() -> None:
            for number in range(count):
                Garbage(send)
                future = producer.send(topic, b"plain", callback=lambda *_: None)
                if not number % 500:
                    future.get(60)

        threads = [threading.Thread(target=run) for _ in range(2)]
        # collects at each tracked allocation, on 3.10 and 3.11 in the middle of C code
        gc.set_threshold(1)
        try:
            for thread in threads:
                thread.start()
            run()
            for thread in threads:
                thread.join()
        finally:
            gc.set_threshold(*threshold)
        while len(futures) + len(refused) < 3 * count:
            # does nothing while another thread collects
            gc.collect()
        is_whole(producer)
        assert all(future.succeeded() for future in futures)
    assert in_log(cluster, topic) == {b"finalizer": len(futures), b"plain": 3 * count}


@pytest.mark.parametrize("settings", [{}, {"buffer_memory": 100_000, "batch_size": 1000}], ids=["defaults", "memory"])
def test_signal_handlers_that_send(cluster: EmbeddedCluster, topic: str, settings: dict[str, Any]) -> None:
    futures: list[RecordFuture] = []
    refused: list[errors.BufferExhaustedError] = []
    count = 0
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:

        def send() -> None:
            try:
                futures.append(producer.send(topic, b"handler"))
            except errors.BufferExhaustedError as full:
                refused.append(full)

        with signals(send):
            while len(futures) < 300:
                future = producer.send(topic, b"plain" * 20)
                count += 1
                if not count % 1000:
                    future.get(60)
        is_whole(producer)
        assert all(future.succeeded() for future in futures)
    assert in_log(cluster, topic) == {b"handler": len(futures), b"plain" * 20: count}


def test_signal_handlers_that_raise_out_of_sends(cluster: EmbeddedCluster, topic: str) -> None:
    booms = 0

    def boom() -> None:
        if armed:
            raise Boom

    armed = False
    settings = {"buffer_memory": 20_000, "batch_size": 500, "max_block_ms": 60_000}
    certain: Counter[bytes] = Counter()
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer:
        know(producer, topic)
        number = 0
        with signals(boom):
            while booms < 300:
                number += 1
                value = b"%d" % number + b"x" * 80
                try:
                    armed = True
                    producer.send(topic, value)
                    armed = False
                    certain[value] += 1
                except Boom:
                    armed = False
                    booms += 1
        is_whole(producer)
    log = in_log(cluster, topic)
    assert not [value for value, count in log.items() if count > 1]
    assert not certain.keys() - log.keys()


def test_a_stash_that_is_full_refuses_and_recovers(cluster: EmbeddedCluster, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        know(producer, topic)
        futures: list[RecordFuture] = []

        def send_many() -> None:
            while len(futures) < 2000:
                futures.append(producer.send(topic, b"x" * 10_000))

        # as in a finalizer that interrupted a section of this thread
        with here.section, pytest.raises(errors.BufferExhaustedError, match="finalizers or signal handlers sent"):
            send_many()
        assert 1 < len(futures) < 2000, "the sender thread processes some of them meanwhile"
        assert [future.get(60).partition for future in futures]
        is_whole(producer)
        producer.send(topic, b"on").get(60)


def test_a_send_within_a_call_of_the_controller_does_not_wait_for_it(topic: str) -> None:
    """No memory becomes free before there is a producer id, and a new broker gets its first one from the controller."""
    futures: list[RecordFuture] = []
    settings: dict[str, Any] = {"buffer_memory": 20_000, "batch_size": 2_000, "linger_ms": 0, "max_block_ms": 5_000}
    with (
        EmbeddedCluster(brokers=1, config={"num.partitions": PARTITIONS}) as cluster,
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **settings) as producer,
    ):
        know(producer, topic)

        def more() -> Iterator[MorePartitions]:
            # a finalizer could run here
            futures.extend(producer.send(topic, b"x" * 900) for _ in range(40))
            yield MorePartitions(topic, PARTITIONS + 1)

        cluster.controller.create_partitions(more())  # type: ignore[arg-type]
        assert all(future.get(60).offset >= 0 for future in futures)
        is_whole(producer)
