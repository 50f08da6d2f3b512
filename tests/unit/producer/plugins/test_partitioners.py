from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import mmh3
import pytest
from kafka.partitioner import DefaultPartitioner, StickyPartitioner

from headrace.network.cluster import Cluster, Node, PartitionInfo
from headrace.network.protocol.errors import KafkaConfigurationError, PartitionerError
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.accumulator.queues_cy import TopicQueues
from headrace.producer.plugins.partitioners import (
    Murmur3Partitioner,
    Partitioner,
    PartitionerCluster,
    RoundRobinPartitioner,
    compile_partitioner,
    resolve_partitioner,
)

NODE = Node(1, "localhost", 9092)


def cluster(*available: bool, topic: str = "t") -> Cluster:
    infos = tuple(
        PartitionInfo(topic, number, NODE if leads else None, leader_id=1) for number, leads in enumerate(available)
    )
    return Cluster(nodes=[NODE], partitions={topic: infos})


FOUR = cluster(True, True, True, True)
QUEUES = TopicQueues("t")


def queues_of(snapshot: Cluster, topic: str = "t") -> TopicQueues:
    queues = TopicQueues(topic)
    queues.update(snapshot)
    return queues


class TakesTurns(RoundRobinPartitioner):
    """A subclass, which the producer calls like any other partitioner."""


def choose(partitioner: Any, key: Any = None, snapshot: Cluster = FOUR, topic: str = "t") -> int:
    function = compile_partitioner(resolve_partitioner(partitioner))
    assert function is not None
    return function(topic, key, key, b"value", b"value", snapshot, QUEUES, 0)


@pytest.mark.parametrize("value", [None, "default"])
def test_the_built_in_partitioning_is_not_here(value: object) -> None:
    assert resolve_partitioner(value) is None
    assert compile_partitioner(None) is None


@pytest.mark.parametrize(
    "value",
    [
        "round_robin",
        "Round_Robin",
        RoundRobinPartitioner,
        RoundRobinPartitioner(),
        "headrace.producer.plugins.partitioners:RoundRobinPartitioner",
        "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        TakesTurns,
    ],
)
def test_round_robin_takes_turns(value: object) -> None:
    function = compile_partitioner(resolve_partitioner(value))
    queues = queues_of(FOUR)
    assert function is not None
    choices = [function("t", None, b"same key", None, None, FOUR, queues, 0) for _ in range(8)]
    assert choices == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("partitioner", [RoundRobinPartitioner, TakesTurns])
def test_round_robin_counts_each_topic_for_itself(partitioner: type[RoundRobinPartitioner]) -> None:
    function = compile_partitioner(partitioner())
    assert function is not None
    others = cluster(True, True, topic="u")
    assert [
        function("t", None, None, None, None, FOUR, queues_of(FOUR), 0),
        function("u", None, None, None, None, others, queues_of(others, "u"), 0),
    ] == [0, 0]


@pytest.mark.parametrize("partitioner", [RoundRobinPartitioner, TakesTurns])
def test_round_robin_passes_over_partitions_without_a_leader(partitioner: type[RoundRobinPartitioner]) -> None:
    function = compile_partitioner(partitioner())
    assert function is not None
    half = cluster(True, False, True, False)
    queues = queues_of(half)
    assert [function("t", None, None, None, None, half, queues, 0) for _ in range(4)] == [0, 2, 0, 2]
    # the leaders change: the turn goes on
    other = cluster(False, True, False, True)
    queues.update(other)
    assert [function("t", None, None, None, None, other, queues, 0) for _ in range(4)] == [1, 3, 1, 3]


@pytest.mark.parametrize("partitioner", [RoundRobinPartitioner, TakesTurns])
def test_round_robin_without_any_leader_takes_all(partitioner: type[RoundRobinPartitioner]) -> None:
    function = compile_partitioner(partitioner())
    assert function is not None
    none = cluster(False, False)
    queues = queues_of(none)
    assert [function("t", None, None, None, None, none, queues, 0) for _ in range(3)] == [0, 1, 0]


@pytest.mark.parametrize("partitioner", [RoundRobinPartitioner, TakesTurns])
def test_round_robin_is_even_under_threads(partitioner: type[RoundRobinPartitioner]) -> None:
    function = compile_partitioner(partitioner())
    assert function is not None
    queues = queues_of(FOUR)
    choices: list[int] = []

    def send() -> None:
        choices.extend([function("t", None, None, None, None, FOUR, queues, 0) for _ in range(1000)])

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(choices) == {0: 1000, 1: 1000, 2: 1000, 3: 1000}


@pytest.mark.parametrize("key", [b"", b"a", b"hello, world", bytes(range(256))])
def test_murmur3_goes_by_the_key(key: bytes) -> None:
    assert choose("murmur3", key) == (mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF) % 4
    assert choose(Murmur3Partitioner(seed=7), key) == (mmh3.hash(key, 7, signed=False) & 0x7FFFFFFF) % 4


def test_murmur3_of_a_published_vector() -> None:
    # MurmurHash3_x86_32("hello", seed 0) = 0x248bfa47
    assert choose("murmur3", b"hello", cluster(*[True] * 1000)) == 0x248BFA47 % 1000


def test_murmur3_counts_partitions_without_a_leader_too() -> None:
    assert choose("murmur3", b"hello", cluster(False, False, False, False)) == 0x248BFA47 % 4


def test_murmur3_without_a_key_takes_turns() -> None:
    function = compile_partitioner(Murmur3Partitioner())
    assert function is not None
    assert [function("t", None, None, None, None, FOUR, QUEUES, 0) for _ in range(5)] == [0, 1, 2, 3, 0]


class Recording(Partitioner):
    def __init__(self, choice: Any = 2) -> None:
        self.choice = choice
        self.seen: list[Any] = []

    def partition(
        self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: PartitionerCluster
    ) -> int:
        self.seen.append((topic, key, serialized_key, value, serialized_value))
        assert cluster.topics() == {"t"}
        assert cluster.partitions_for_topic("t") == {0, 1, 2}
        assert cluster.available_partitions_for_topic("t") == {0, 2}
        assert cluster.partitions_for_topic("u") is None
        assert cluster.available_partitions_for_topic("u") is None
        return self.choice


def test_a_partitioner_sees_all_of_the_record_and_the_cluster() -> None:
    partitioner = Recording()
    function = compile_partitioner(resolve_partitioner(partitioner))
    assert function is not None
    assert function("t", "key", b"key", 5, b"5", cluster(True, False, True), QUEUES, 0) == 2
    assert partitioner.seen == [("t", "key", b"key", 5, b"5")]


def test_a_partitioner_sees_the_newest_cluster() -> None:
    function = compile_partitioner(
        resolve_partitioner(
            lambda topic, key, key_bytes, value, value_bytes, seen: max(seen.partitions_for_topic(topic))
        )
    )
    assert function is not None
    choices = [function("t", None, None, None, None, cluster(*[True] * count), QUEUES, 0) for count in (1, 2, 2, 5)]
    assert choices == [0, 1, 1, 4]


def test_a_partitioner_need_not_derive_from_ours() -> None:
    class Foreign:
        def partition(self, *arguments: Any) -> int:
            return 3

    assert choose(Foreign()) == choose(Foreign) == 3


def test_kafka_pythons_partitioners_run() -> None:
    # Java's own vectors: murmur2 of "21" is -973932308
    assert choose(DefaultPartitioner(), b"21") == (-973932308 & 0x7FFFFFFF) % 4
    assert choose(StickyPartitioner()) in range(4)


def test_a_callable_may_take_what_a_method_takes() -> None:
    def by_value(topic: str, key: Any, key_bytes: Any, value: bytes, value_bytes: Any, cluster: Any) -> int:
        return len(value) % 4

    assert choose(by_value) == 1
    assert choose(lambda *everything: len(everything) - 3) == 3


def test_a_callable_may_take_three_as_in_kafka_python_2_and_aiokafka() -> None:
    seen: list[Any] = []

    def last_available(key: Any, everything: list[int], available: list[int]) -> int:
        seen.append((key, everything, available))
        return available[-1]

    assert choose(last_available, b"k", cluster(True, True, False)) == 1
    assert seen == [(b"k", [0, 1, 2], [0, 1])]


class DefaultPartitioner2:
    """As in kafka-python 2.0 to 2.3."""

    @classmethod
    def __call__(cls, key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        return all_partitions[len(key or b"")]


class StaticCall:
    @staticmethod
    def __call__(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        return all_partitions[len(key or b"")]


@pytest.mark.parametrize("partitioner", [DefaultPartitioner2(), StaticCall()])
def test_a_callable_whose_call_belongs_to_its_class(partitioner: Any) -> None:
    assert choose(partitioner) == 0
    assert choose(partitioner, b"k") == 1


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (None, "Recording returned None for topic t; it has to return the number of a partition"),
        (True, "returned True"),
        (1.0, "returned 1.0"),
        ("1", "returned '1'"),
        (-1, "Recording chose partition -1 of topic t, which has 3 partitions, numbered from 0"),
        (3, "chose partition 3 of topic t"),
        (2**70, "chose partition 1180591620717411303424"),
    ],
)
def test_a_choice_that_is_no_partition_is_refused(choice: object, says: str) -> None:
    with pytest.raises(PartitionerError) as caught:
        choose(Recording(choice), snapshot=cluster(True, False, True))
    assert says in str(caught.value)


def test_numbers_of_other_libraries_are_partitions() -> None:
    class Whole:
        def __index__(self) -> int:
            return 2

    choice = choose(Recording(Whole()), snapshot=cluster(True, False, True))
    assert choice == 2
    assert type(choice) is int


def test_a_partitioner_that_raises_is_the_cause() -> None:
    def broken(key: Any, everything: Any, available: Any) -> int:
        raise ZeroDivisionError("oh")

    with pytest.raises(PartitionerError, match=r"broken failed for topic t: ZeroDivisionError: oh") as caught:
        choose(broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class OneParameter:
    def partition(self, topic: str) -> int:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            "murmur4",
            "partitioner.class='murmur4' is neither one of the built-in round_robin, murmur3 nor an import path",
        ),
        (
            OneParameter,
            "OneParameter.partition has to take (topic, key, serialized_key, value, serialized_value, cluster)",
        ),
        (
            lambda key: 0,
            "has to take (topic, key, serialized_key, value, serialized_value, cluster), or (serialized_key",
        ),
        (5, "partitioner.class is of type int, which has no method partition"),
        (str, "str.partition has to take"),
    ],
)
def test_what_is_no_partitioner_is_refused(value: object, says: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve_partitioner(value)
    assert says in str(caught.value)


class Staying(Partitioner):
    """Stays with a partition until a new batch begins there."""

    def __init__(self) -> None:
        self.at = 0
        self.told: list[tuple[str, int]] = []

    def partition(self, topic: str, *rest: Any) -> int:
        return self.at

    def on_new_batch(self, topic: str, cluster: PartitionerCluster, prev_partition: int) -> None:
        assert cluster.topics() == {"t"}
        self.told.append((topic, prev_partition))
        self.at += 1


def queues_with_a_batch(*partitions: int) -> TopicQueues:
    queues = TopicQueues("t")
    queues.update(FOUR)
    for partition in partitions:
        queues.queues[partition].add(ProducerBatch("t", partition, bytearray(1000), 0.0))
    return queues


def test_a_partitioner_is_told_when_a_batch_begins_and_asked_anew() -> None:
    partitioner = Staying()
    function = compile_partitioner(partitioner)
    assert function is not None
    queues = queues_with_a_batch(1)
    # no batch in 0, so on to 1, which has one with room in it
    assert function("t", None, None, None, None, FOUR, queues, 100) == 1
    assert function("t", None, None, None, None, FOUR, queues, 900) == 1
    assert partitioner.told == [("t", 0)]
    # no room for this record
    assert function("t", None, None, None, None, FOUR, queues, 1000) == 2
    assert partitioner.told == [("t", 0), ("t", 1)]
    # a record with a key goes to its key's partition
    assert function("t", "k", b"k", None, None, FOUR, queues, 100) == 2
    assert len(partitioner.told) == 2


def test_a_batch_that_takes_no_more_is_none() -> None:
    partitioner = Staying()
    function = compile_partitioner(partitioner)
    assert function is not None
    queues = queues_with_a_batch(0)
    queues.queues[0].batches[0].closed = True
    assert function("t", None, None, None, None, FOUR, queues, 100) == 1


@pytest.mark.parametrize("choice", [-9, 9, None, "x"])
def test_a_bad_choice_is_told_as_such_although_a_batch_would_begin(choice: Any) -> None:
    partitioner = Staying()
    partitioner.at = choice
    partitioner.on_new_batch = lambda *arguments: None
    with pytest.raises(PartitionerError):
        choose(partitioner)


def test_who_does_not_care_for_batches_is_asked_once() -> None:
    partitioner = Recording()
    assert choose(partitioner, snapshot=cluster(True, False, True)) == 2
    assert len(partitioner.seen) == 1


@pytest.mark.parametrize("name", ["murmur2", "murmur2_random"])
def test_librdkafkas_names_of_the_default_partitioning(name: str) -> None:
    assert resolve_partitioner(name) is None


@pytest.mark.parametrize("name", ["consistent", "consistent_random", "fnv1a", "fnv1a_random"])
def test_librdkafkas_other_hashes_are_rejected_with_the_reason(name: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"is not supported: .* go to another partition than before"):
        resolve_partitioner(name)
