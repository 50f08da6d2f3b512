"""Every failure of a network and a broker, on real sockets: no record is lost or duplicated, and order is kept."""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.fault_proxy import Direction, FaultProxy
from support.producer_storm import KINDS, Storm, parse_seeds, run_storm
from support.waiting import JumpingClock, wait_until

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.network.records.batch import RecordBatch
from headrace.producer import KafkaProducer, RecordFuture
from headrace.producer.sender.delivery import Verdict, action_for

#: Small batches, so that a few hundred records take many requests, and short timeouts, so that the tests are fast.
IMPATIENT = {
    "batch_size": 250,
    "batch_max_size": 250,
    "linger_ms": 0,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "request_timeout_ms": 30_000,
    "max_block_ms": 60_000,
}
PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"t-{abs(hash(request.node.name))}"
    cluster.create_topic(name, 1)
    yield name
    cluster.control.clear()


@pytest.fixture
def proxy(cluster: EmbeddedCluster) -> Iterator[FaultProxy]:
    host, port = cluster.bootstrap_servers.split(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


def producer_of(address: FaultProxy | EmbeddedCluster, **options: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=address.bootstrap_servers, **{**IMPATIENT, **options})


def send_numbers(producer: KafkaProducer, topic: str, start: int, stop: int) -> list[RecordFuture]:
    return [producer.send(topic, b"%06d" % number, partition=0) for number in range(start, stop)]


def assert_exactly_once(cluster: EmbeddedCluster, topic: str, futures: list[RecordFuture], partition: int = 0) -> None:
    """Check that every record is in the log once, in the order of the sends, and that each future has its offset."""
    metadata = [future.get(PATIENCE_S) for future in futures]
    log = cluster.records(topic, partition)
    assert [record.value for record in log] == [b"%06d" % number for number in range(len(futures))]
    known = [(number, found.offset) for number, found in enumerate(metadata) if found.has_offset]
    assert [number for number, offset in known] == [offset for number, offset in known]
    assert all(log[offset].timestamp == metadata[number].timestamp for number, offset in known)


# --- Connections ---


def test_without_faults(cluster: EmbeddedCluster, topic: str, proxy: FaultProxy) -> None:
    with producer_of(proxy) as producer:
        futures = send_numbers(producer, topic, 0, 500)
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)
    assert all(future.get(0).has_offset for future in futures)


def test_refused_at_first(cluster: EmbeddedCluster, topic: str, proxy: FaultProxy) -> None:
    proxy.refuse()
    with producer_of(proxy) as producer:
        futures: list[RecordFuture] = []
        thread = threading.Thread(target=lambda: futures.extend(send_numbers(producer, topic, 0, 100)))
        thread.start()
        proxy.heal()
        thread.join(PATIENCE_S)
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


def test_refused_later(cluster: EmbeddedCluster, topic: str, proxy: FaultProxy) -> None:
    with producer_of(proxy) as producer:
        futures = send_numbers(producer, topic, 0, 100)
        producer.flush(PATIENCE_S)
        proxy.refuse()
        proxy.reset()
        futures += send_numbers(producer, topic, 100, 200)
        with pytest.raises(errors.KafkaTimeoutError):
            producer.flush(0.2)
        proxy.heal()
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


@pytest.mark.parametrize("how", ["reset", "close", "half-close to client", "half-close to broker"])
def test_connections_that_end_again_and_again(
    cluster: EmbeddedCluster, topic: str, proxy: FaultProxy, how: str
) -> None:
    end: Callable[[], None] = {
        "reset": proxy.reset,
        "close": proxy.close_connections,
        "half-close to client": lambda: proxy.half_close(Direction.TO_CLIENT),
        "half-close to broker": lambda: proxy.half_close(Direction.TO_BROKER),
    }[how]
    with producer_of(proxy) as producer:
        futures = []
        for round_ in range(10):
            futures += send_numbers(producer, topic, 50 * round_, 50 * (round_ + 1))
            end()
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("step", [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE])
@pytest.mark.parametrize("which", ["request", "response"])
def test_the_connection_ends_within_a_message_of_each_kind(
    cluster: EmbeddedCluster, topic: str, proxy: FaultProxy, which: str, step: ApiKey, how: Any
) -> None:
    trigger = getattr(proxy, which)
    faults = [trigger(step, nth=1).cut(at=0, how=how), trigger(step, nth=2).cut(at=5, how=how)]
    with producer_of(proxy) as producer:
        futures = send_numbers(producer, topic, 0, 100)
        producer.flush(PATIENCE_S)
    assert all(fault.happened for fault in faults)
    assert_exactly_once(cluster, topic, futures)


def test_the_answer_to_produce_is_cut_at_every_byte(cluster: EmbeddedCluster, topic: str, proxy: FaultProxy) -> None:
    with producer_of(proxy, max_in_flight_requests_per_connection=1) as producer:
        futures = send_numbers(producer, topic, 0, 1)
        producer.flush(PATIENCE_S)
        # up to beyond the end of the response, where nothing is cut
        for at in range(120):
            fault = proxy.response(ApiKey.PRODUCE).cut(at=at, how="close" if at % 2 else "reset")
            futures += send_numbers(producer, topic, 1 + 2 * at, 3 + 2 * at)
            producer.flush(PATIENCE_S)
            fault.wait()
            proxy.heal()
    assert_exactly_once(cluster, topic, futures)


def test_the_request_to_produce_is_cut_at_every_byte(cluster: EmbeddedCluster, topic: str, proxy: FaultProxy) -> None:
    with producer_of(proxy, max_in_flight_requests_per_connection=1) as producer:
        futures = send_numbers(producer, topic, 0, 1)
        producer.flush(PATIENCE_S)
        for at in range(150):
            fault = proxy.request(ApiKey.PRODUCE).cut(at=at, how="close" if at % 2 else "reset")
            futures += send_numbers(producer, topic, 1 + 2 * at, 3 + 2 * at)
            producer.flush(PATIENCE_S)
            fault.wait()
            proxy.heal()
    assert_exactly_once(cluster, topic, futures)


@pytest.mark.parametrize("direction", list(Direction))
def test_one_byte_at_a_time(cluster: EmbeddedCluster, topic: str, proxy: FaultProxy, direction: Direction) -> None:
    proxy.trickle(direction)
    with producer_of(proxy) as producer:
        futures = send_numbers(producer, topic, 0, 100)
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


def test_a_slow_link(cluster: EmbeddedCluster, topic: str, proxy: FaultProxy) -> None:
    proxy.delay(20)
    with producer_of(proxy) as producer:
        futures = send_numbers(producer, topic, 0, 200)
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


@pytest.mark.parametrize("direction", list(Direction))
def test_a_link_that_stalls_until_requests_time_out(
    cluster: EmbeddedCluster, topic: str, proxy: FaultProxy, direction: Direction
) -> None:
    with producer_of(proxy, request_timeout_ms=300, delivery_timeout_ms=120_000) as producer:
        futures = send_numbers(producer, topic, 0, 50)
        producer.flush(PATIENCE_S)
        proxy.stall(direction)
        futures += send_numbers(producer, topic, 50, 150)
        with pytest.raises(errors.KafkaTimeoutError):
            producer.flush(1)
        proxy.heal()
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


# --- Answers ---


@pytest.mark.parametrize(
    "fault",
    [
        Fault(lose_answer=True),
        Fault(close=True),
        Fault(cut_after_bytes=7),
        Fault(error=errors.NotLeaderOrFollowerError),
        Fault(error=errors.RequestTimedOutError),
        Fault(delay_ms=30),
    ],
    ids=["answer lost", "closed", "cut", "not leader", "timed out", "late"],
)
def test_every_second_request_to_produce_goes_wrong(cluster: EmbeddedCluster, topic: str, fault: Fault) -> None:
    turn = iter(range(10**9))
    hits = cluster.on_request(ApiKey.PRODUCE, lambda context, message: fault if next(turn) % 2 else None)
    with producer_of(cluster) as producer:
        futures = send_numbers(producer, topic, 0, 300)
        producer.flush(PATIENCE_S)
    assert hits.hits > 3
    assert_exactly_once(cluster, topic, futures)


def test_a_broker_that_appends_and_never_answers(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster, request_timeout_ms=300, delivery_timeout_ms=120_000) as producer:
        futures = send_numbers(producer, topic, 0, 10)
        producer.flush(PATIENCE_S)
        silent = cluster.inject(ApiKey.PRODUCE, Fault(silent=True), times=3)
        futures += send_numbers(producer, topic, 10, 60)
        producer.flush(PATIENCE_S)
    assert silent.hits == 3
    assert_exactly_once(cluster, topic, futures)


def test_a_broker_that_never_answers_at_all_fails_the_records_in_time(cluster: EmbeddedCluster, topic: str) -> None:
    clock = JumpingClock()
    with producer_of(cluster, clock=clock) as producer:
        first = send_numbers(producer, topic, 0, 1)
        producer.flush(PATIENCE_S)
        silent = cluster.inject(ApiKey.PRODUCE, Fault(silent=True), times=None)
        lost = send_numbers(producer, topic, 1, 10)
        wait_until(lambda: silent.hits)
        clock.ahead_ms += producer.config.delivery_timeout_ms
        producer.flush(PATIENCE_S)
        for future in lost:
            assert isinstance(future.exception(0), errors.DeliveryTimeoutError)
        silent.remove()
        later = [producer.send(topic, b"later", partition=0)]
        producer.flush(PATIENCE_S)
        assert first[0].get(0).offset == 0
        assert later[0].exception(0) is None
    values = [record.value for record in cluster.records(topic, 0)]
    # records that were reported as failed may be in the log, once and in order
    assert values[0] == b"000000"
    assert values[-1] == b"later"
    assert values[1:-1] == sorted(set(values[1:-1]))


RETRIABLE = sorted(
    {
        kind
        for kind in (errors.error_for(code) for code in range(1, 200))
        if kind is not None
        and issubclass(kind, errors.RetriableError)
        and action_for(kind).verdict is Verdict.RETRY
        and kind is not errors.UnrecognizedBrokerError
    },
    key=lambda kind: kind.code,
)


def test_every_retriable_error_once(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster) as producer:
        futures = send_numbers(producer, topic, 0, 10)
        producer.flush(PATIENCE_S)
        for kind in RETRIABLE:
            hits = cluster.inject(ApiKey.PRODUCE, Fault(error=kind))
            futures += send_numbers(producer, topic, len(futures), len(futures) + 20)
            producer.flush(PATIENCE_S)
            assert hits.hits == 1, kind
    assert_exactly_once(cluster, topic, futures)


def test_a_refused_batch_among_five_in_flight_takes_no_other_along(cluster: EmbeddedCluster, topic: str) -> None:
    with producer_of(cluster) as producer:
        send_numbers(producer, topic, 0, 1)
        producer.flush(PATIENCE_S)
        cluster.inject(ApiKey.PRODUCE, Fault(error=errors.InvalidRecordError))
        futures = send_numbers(producer, topic, 1, 101)
        producer.flush(PATIENCE_S)
        failed = [number for number, future in enumerate(futures, 1) if future.exception(0) is not None]
        assert 0 < len(failed) < 100
        futures = send_numbers(producer, topic, 101, 201)
        producer.flush(PATIENCE_S)
        assert all(future.exception(0) is None for future in futures)
    values = [int(record.value) for record in cluster.records(topic, 0)]
    assert values == [number for number in range(201) if number not in failed]


def test_a_batch_too_large_for_the_topic_is_split_and_every_record_told(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("small-messages", 1, configs={"max.message.bytes": "1000"})
    with producer_of(cluster, batch_size=16_000, batch_max_size=16_000, linger_ms=50) as producer:
        called: list[tuple[int, int]] = []
        futures = [
            producer.send(
                "small-messages",
                b"%06d" % number,
                headers=[("padding", b"x" * (2000 if number == 57 else 40))],
                callback=lambda metadata, error, number=number: called.append((number, metadata.offset)),
            )
            for number in range(150)
        ]
        producer.flush(PATIENCE_S)
    assert isinstance(futures.pop(57).exception(0), errors.MessageSizeTooLargeError)
    expected = [number for number in range(150) if number != 57]
    assert [int(record.value) for record in cluster.records("small-messages", 0)] == expected
    assert [future.get(0).offset for future in futures] == list(range(149))
    assert [call for call in called if call[0] != 57] == list(zip(expected, range(149), strict=True))
    assert (57, -1) in called


def test_a_throttled_producer_loses_nothing(cluster: EmbeddedCluster, topic: str) -> None:
    throttled = cluster.inject(ApiKey.PRODUCE, Fault(throttle_ms=30), times=5)
    with producer_of(cluster) as producer:
        futures = send_numbers(producer, topic, 0, 200)
        producer.flush(PATIENCE_S)
    assert throttled.hits == 5
    assert_exactly_once(cluster, topic, futures)


def test_an_answer_lost_while_another_batch_is_refused_does_not_double_a_record(
    cluster: EmbeddedCluster, topic: str
) -> None:
    # rejected batches begin a new epoch, under which batches that were appended without a response must not be sent
    with producer_of(cluster) as producer:
        send_numbers(producer, topic, 0, 1)
        producer.flush(PATIENCE_S)
        faults = iter([Fault(error=errors.InvalidRecordError), None, Fault(lose_answer=True)] * 6)
        seen: set[bytes | None] = set()

        def refuse_or_lose(context: Any, message: Any) -> Fault | None:
            (record, *_) = RecordBatch(message.topic_data[0].partition_data[0].records).records()
            if record.value in seen:
                # retries are not rejected: they may be in the log
                return None
            seen.add(record.value)
            return next(faults, None)

        cluster.on_request(ApiKey.PRODUCE, refuse_or_lose)
        futures = send_numbers(producer, topic, 1, 301)
        producer.flush(PATIENCE_S)
    failed = {number for number, future in enumerate(futures, 1) if future.exception(0) is not None}
    assert failed
    values = [int(record.value) for record in cluster.records(topic, 0)]
    assert values == [number for number in range(301) if number not in failed]


# --- The cluster ---


def test_leaders_move_while_records_flow() -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("moving", 2, replication_factor=3)
        with producer_of(cluster) as producer:
            futures: tuple[list[RecordFuture], list[RecordFuture]] = ([], [])
            for round_ in range(12):
                for number in range(50 * round_, 50 * (round_ + 1)):
                    for partition in (0, 1):
                        futures[partition].append(producer.send("moving", b"%06d" % number, partition=partition))
                for partition in (0, 1):
                    cluster.move_leader("moving", partition, 1 + (round_ + partition) % 3)
            producer.flush(PATIENCE_S)
            for partition in (0, 1):
                assert_exactly_once(cluster, "moving", futures[partition], partition)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_brokers_end_and_return_one_after_the_other(how: str) -> None:
    with EmbeddedCluster(brokers=3, min_insync_replicas=1) as cluster:
        cluster.create_topic("rolling", 1, replication_factor=3)
        with producer_of(cluster) as producer:
            futures: list[RecordFuture] = []
            for node_id in (1, 2, 3, 1):
                futures += send_numbers(producer, "rolling", len(futures), len(futures) + 200)
                (cluster.stop_broker if how == "stop" else cluster.kill_broker)(node_id)
                futures += send_numbers(producer, "rolling", len(futures), len(futures) + 200)
                producer.flush(PATIENCE_S)
                cluster.start_broker(node_id)
                _wait_for_replicas(cluster, "rolling", 3)
            producer.flush(PATIENCE_S)
            assert_exactly_once(cluster, "rolling", futures)


def _wait_for_replicas(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    gate = threading.Event()
    for _ in range(int(PATIENCE_S / 0.02)):
        state = cluster.controller.image.partition(topic, 0)
        if state is not None and len(state.isr) == count:
            return
        gate.wait(0.02)
    raise AssertionError("the replicas did not get in sync")


def test_the_only_broker_restarts_while_records_wait() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic("alone", 1)
        with producer_of(cluster) as producer:
            futures = send_numbers(producer, "alone", 0, 100)
            producer.flush(PATIENCE_S)
            cluster.stop_broker(1)
            futures += send_numbers(producer, "alone", 100, 200)
            with pytest.raises(errors.KafkaTimeoutError):
                producer.flush(0.2)
            cluster.start_broker(1)
            producer.flush(PATIENCE_S)
            assert_exactly_once(cluster, "alone", futures)


def test_a_topic_that_is_deleted_and_created_again_goes_on() -> None:
    with EmbeddedCluster(auto_create_topics_enable=False) as cluster:
        cluster.create_topic("phoenix", 1)
        with producer_of(cluster) as producer:
            send_numbers(producer, "phoenix", 0, 10)
            producer.flush(PATIENCE_S)
            cluster.controller.delete_topic("phoenix")
            waiting = send_numbers(producer, "phoenix", 0, 10)
            cluster.create_topic("phoenix", 1)
            producer.flush(PATIENCE_S)
            assert_exactly_once(cluster, "phoenix", waiting)


def test_metadata_and_handshakes_that_fail_now_and_then(cluster: EmbeddedCluster, topic: str) -> None:
    dice = random.Random(20)
    for api in (ApiKey.METADATA, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID):
        cluster.on_request(api, lambda context, message: Fault(close=True) if dice.random() < 0.3 else None)
    lost = iter(range(10**9))
    cluster.on_request(
        ApiKey.PRODUCE, lambda context, message: Fault(lose_answer=True) if next(lost) % 5 == 0 else None
    )
    with producer_of(cluster, metadata_max_age_ms=20) as producer:
        futures = send_numbers(producer, topic, 0, 300)
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


def test_without_idempotence_and_with_one_in_flight_nothing_is_lost_and_order_is_kept(
    cluster: EmbeddedCluster, topic: str
) -> None:
    turn = iter(range(10**9))
    cluster.on_request(
        ApiKey.PRODUCE,
        lambda context, message: Fault(error=errors.NotLeaderOrFollowerError) if next(turn) % 3 else None,
    )
    with producer_of(cluster, enable_idempotence=False, max_in_flight_requests_per_connection=1) as producer:
        futures = send_numbers(producer, topic, 0, 200)
        producer.flush(PATIENCE_S)
    assert_exactly_once(cluster, topic, futures)


def test_all_together_under_many_threads(cluster: EmbeddedCluster, proxy: FaultProxy) -> None:
    cluster.create_topic("storm", 4)
    proxy.response(ApiKey.PRODUCE, nth=3, times=math.inf).delay(1)
    with producer_of(proxy, buffer_memory=20_000) as producer:
        futures: list[list[RecordFuture]] = [[] for _ in range(4)]

        def send(partition: int) -> None:
            for number in range(400):
                futures[partition].append(producer.send("storm", b"%06d" % number, partition=partition))

        threads = [threading.Thread(target=send, args=(partition,)) for partition in range(4)]
        for thread in threads:
            thread.start()
        for nth in (2, 5, 9, 14, 20):
            proxy.response(ApiKey.PRODUCE, nth=nth).cut(at=nth)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        producer.flush(PATIENCE_S)
    for partition in range(4):
        assert_exactly_once(cluster, "storm", futures[partition], partition)


#: For more seeds: HEADRACE_STORM_SEEDS=0:500, or `python tests/support/producer_storm.py 0:500`.
STORM_SEEDS = parse_seeds(os.environ.get("HEADRACE_STORM_SEEDS", "0:2"))


@pytest.mark.parametrize("seed", STORM_SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_storms_of_faults(kind: str, seed: int) -> None:
    result = run_storm(Storm.of(seed, kind))
    assert result.findings == [], "\n".join(result.trace[-200:])
    assert result.told["delivered"]
