"""The partitioner interface and the partitioners that can be named in `partitioner.class`.

The default partitioning is not here: it is part of the compiled send path, and applies unless `partitioner.class` is
set.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from operator import index
from typing import Any

from ...network.cluster import Cluster, PartitionInfo
from ...network.protocol.errors import KafkaConfigurationError, PartitionerError
from ..accumulator.queues_cy import TopicQueues
from ..peer_keys import MURMUR2, OTHER_HASH_NOTE, OTHER_HASHES
from .loading import accepts, name_of, resolve_plugin

PartitionFunction = Callable[[str, Any, "bytes | None", Any, "bytes | None", Cluster, TopicQueues, int], int]


class PartitionerCluster:
    """The cluster as seen by partitioners: kafka-python's method names over an immutable snapshot.

    Any thread. Callers may keep the returned sets but must not change them.
    """

    def __init__(self, snapshot: Cluster) -> None:
        #: the complete metadata
        self.snapshot = snapshot
        self._partitions: dict[str, set[int]] = {}
        self._available: dict[str, set[int]] = {}

    def topics(self) -> set[str]:
        """The topics whose partitions are known, including the record's topic."""
        return set(self.snapshot.topics)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The topic's partitions; None for an unknown topic."""
        numbers = self._partitions.get(topic)
        if numbers is None:
            infos = self.snapshot.partitions_for(topic)
            if infos is None:
                return None
            numbers = self._partitions[topic] = _numbers(infos)
        return numbers

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """The topic's partitions that currently have a leader; None for an unknown topic."""
        numbers = self._available.get(topic)
        if numbers is None:
            if self.snapshot.partitions_for(topic) is None:
                return None
            numbers = self._available[topic] = _numbers(self.snapshot.available_partitions_for(topic))
        return numbers


def _numbers(infos: tuple[PartitionInfo, ...]) -> set[int]:
    return {info.partition for info in infos}


class Partitioner(ABC):
    """Base class of partitioners. All threads that send share one instance and use it concurrently."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: PartitionerCluster,
    ) -> int:
        """Return the partition of a record that names none.

        `key` and `value` are the arguments of `send`. If this method raises, `send` raises a PartitionerError.
        """

    def on_new_batch(self, topic: str, cluster: PartitionerCluster, prev_partition: int) -> None:  # noqa: B027
        """Called when a record without a key is about to open a batch in `prev_partition`; `partition` is called again.

        For partitioners that stay with a partition until its batch is full (KIP-480).
        """

    def close(self) -> None:  # noqa: B027  (there is rarely anything to release)
        """Release the partitioner's resources; called once when the producer is closed."""


class RoundRobinPartitioner(Partitioner):
    """Sends each record of a topic to the next of its available partitions, regardless of its key.

    If no partition is available, to the next of all. A producer whose partitioner is exactly this class takes the turns
    of its own queues, which costs less and chooses the same. Source: Kafka's class of that name.
    """

    def __init__(self) -> None:
        self._counters: dict[str, itertools.count[int]] = {}

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: PartitionerCluster,
    ) -> int:
        counter = self._counters.get(topic)
        if counter is None:
            counter = self._counters.setdefault(topic, itertools.count())
        snapshot = cluster.snapshot
        infos = snapshot.available_partitions_for(topic) or snapshot.partitions_for(topic) or ()
        return infos[next(counter) % len(infos)].partition


class Murmur3Partitioner(RoundRobinPartitioner):
    """Sends equal keys to the same partition, by their murmur3 hash; records without a key round-robin.

    The hash is the 32-bit x86 variant with `seed`, made positive as Kafka does for murmur2.
    """

    def __init__(self, seed: int = 0) -> None:
        import mmh3  # noqa: PLC0415 - only this partitioner needs it

        super().__init__()
        self._seed = seed
        self._hash = mmh3.hash

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: PartitionerCluster,
    ) -> int:
        if serialized_key is None:
            return super().partition(topic, key, serialized_key, value, serialized_value, cluster)
        infos = cluster.snapshot.partitions_for(topic) or ()
        positive = self._hash(serialized_key, self._seed, signed=False) & 0x7FFFFFFF
        return infos[positive % len(infos)].partition


class _CallablePartitioner(Partitioner):
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: PartitionerCluster,
    ) -> int:
        return self.function(topic, key, serialized_key, value, serialized_value, cluster)


class _ShortCallablePartitioner(_CallablePartitioner):
    """Adapts a callable (serialized key, all partitions, available partitions), as in kafka-python 2 and aiokafka."""

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: PartitionerCluster,
    ) -> int:
        everything = sorted(cluster.partitions_for_topic(topic) or ())
        return self.function(serialized_key, everything, sorted(cluster.available_partitions_for_topic(topic) or ()))


_PARAMETERS = 6
_SHORT_PARAMETERS = 3
_BUILT_IN: dict[str, type[Partitioner]] = {
    "round_robin": RoundRobinPartitioner,
    "murmur3": Murmur3Partitioner,
}
_JAVA_NAMES = {
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
}


def resolve_partitioner(value: Any, key: str = "partitioner.class") -> Partitioner | None:
    """Return the partitioner that the configured `value` stands for; None for the default partitioning.

    librdkafka's names of the murmur2 hash stand for the default partitioning, which has it. `value` may also be a
    callable with the parameters of `Partitioner.partition`, or with three: (serialized key, all partitions, available
    partitions). The result has `partition`; it has `close` and `on_new_batch(topic, cluster, prev_partition)` only if
    the user's class has them. Raises KafkaConfigurationError.
    """
    if value is None or value == "default" or value in MURMUR2:
        return None
    if value in OTHER_HASHES:
        raise KafkaConfigurationError(f"{key}={value!r} is not supported: {OTHER_HASH_NOTE}. Leave it out")
    found = resolve_plugin(
        _JAVA_NAMES.get(value, value) if isinstance(value, str) else value, key, _BUILT_IN, ("partition",)
    )
    method = getattr(found, "partition", None)
    if callable(method):
        if not accepts(method, _PARAMETERS):
            raise KafkaConfigurationError(
                f"{key}: {type(found).__name__}.partition has to take (topic, key, serialized_key, value, "
                "serialized_value, cluster)"
            )
        return found
    if isinstance(found, type):
        raise KafkaConfigurationError(
            f"{key} is the class {found.__name__}, which has no method partition; give an instance, if it can be called"
        )
    if callable(found):
        if accepts(found, _PARAMETERS):
            return _CallablePartitioner(found)
        if accepts(found, _SHORT_PARAMETERS):
            return _ShortCallablePartitioner(found)
        raise KafkaConfigurationError(
            f"{key}: {name_of(found)} has to take (topic, key, serialized_key, value, serialized_value, cluster), or "
            "(serialized_key, all_partitions, available_partitions)"
        )
    raise KafkaConfigurationError(f"{key} is of type {type(found).__name__}, which has no method partition")


def compile_partitioner(partitioner: Partitioner | None) -> PartitionFunction | None:
    """Return a function that calls a resolved partitioner and checks its choice; None for the default partitioning.

    Its parameters are (topic, key, serialized key, value, serialized value, cluster snapshot, the topic's queues, the
    record's size); the snapshot has the topic. The threads that send call it. It raises PartitionerError if the
    partitioner raises, or chooses something that is not a partition of the topic.
    """
    if partitioner is None:
        return None
    if type(partitioner) is RoundRobinPartitioner:
        return _in_turn
    partition = partitioner.partition
    # a user's class need not have it, and the base class's, which does nothing, need not be called
    on_new_batch = getattr(partitioner, "on_new_batch", None)
    if getattr(type(partitioner), "on_new_batch", None) is Partitioner.on_new_batch:
        on_new_batch = None
    adapted = isinstance(partitioner, _CallablePartitioner)
    name = name_of(partitioner.function) if adapted else type(partitioner).__name__
    view = PartitionerCluster(Cluster())

    def chosen(
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Cluster,
        queues: TopicQueues,
        size: int,
    ) -> int:
        nonlocal view
        # one view per snapshot; threads that race here create two equal ones
        seen = view
        if seen.snapshot is not cluster:
            seen = view = PartitionerCluster(cluster)
        try:
            choice = partition(topic, key, serialized_key, value, serialized_value, seen)
            if on_new_batch is not None and serialized_key is None and _opens_batch(queues, choice, size):
                on_new_batch(topic, seen, choice)
                choice = partition(topic, key, serialized_key, value, serialized_value, seen)
        except Exception as error:
            raise PartitionerError(
                f"the partitioner {name} failed for topic {topic}: {type(error).__name__}: {error}"
            ) from error
        numbers = seen.partitions_for_topic(topic) or ()
        if type(choice) is int and choice in numbers:
            return choice
        if isinstance(choice, bool):
            raise _bad_choice(name, topic, choice)
        try:
            number = index(choice)
        except Exception as error:
            raise _bad_choice(name, topic, choice) from error
        if number not in numbers:
            raise PartitionerError(
                f"the partitioner {name} chose partition {number} of topic {topic}, which has "
                f"{cluster.partition_count(topic)} partitions, numbered from 0"
            )
        return number

    return chosen


def _in_turn(
    topic: str,
    key: Any,
    serialized_key: bytes | None,
    value: Any,
    serialized_value: bytes | None,
    cluster: Cluster,
    queues: TopicQueues,
    size: int,
) -> int:
    """What `RoundRobinPartitioner` chooses."""
    return queues.next_in_turn().partition


def _opens_batch(queues: TopicQueues, partition: Any, size: int) -> bool:
    """Whether a record of `size` bytes needs a new batch there; an estimate, as other threads send too."""
    try:
        batch = queues.queues[partition].batches[-1]
    except (IndexError, TypeError):
        # no batch; the caller rejects a choice that is not a partition
        return True
    return batch.closed or batch.size_bytes + size > batch.capacity_bytes


def _bad_choice(name: str, topic: str, choice: Any) -> PartitionerError:
    return PartitionerError(
        f"the partitioner {name} returned {choice!r} for topic {topic}; it has to return the number of a partition"
    )
