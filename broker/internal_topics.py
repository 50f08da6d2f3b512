"""The topics in which coordinators keep their state. The leader of a key's partition coordinates the key."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from ..network.protocol.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    TopicAlreadyExistsError,
)
from .metadata import ClusterImage, TopicState
from .replica.manager import ReplicaManager
from .replica.partition import Partition

_log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


class TopicMaker(Protocol):
    """The part of the controller that creates topics."""

    @property
    def image(self) -> ClusterImage: ...

    def create_topic(
        self, name: str, *, num_partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> TopicState: ...


class NewInternalTopic(NamedTuple):
    """How an internal topic is created. It has fewer replicas if there are fewer brokers."""

    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def partition_for(key: str, count: int) -> int:
    """The partition of a key, by Java's string hash, as in Kafka."""
    value = 0
    for unit in struct.iter_unpack(">H", key.encode("utf-16-be")):
        value = (value * 31 + unit[0]) & 0xFFFFFFFF
    if value >= 2**31:
        value -= 2**32
    return (0 if value == -(2**31) else abs(value)) % count


class InternalTopic:
    """One of these topics, as one broker sees it. Any thread.

    name: the topic. key: what its keys are called in messages. replicas: this broker's replicas. controller: creates
    the topic. new: how it is created.
    """

    def __init__(
        self,
        name: str,
        key: str,
        replicas: ReplicaManager,
        controller: TopicMaker,
        new: Callable[[], NewInternalTopic],
    ) -> None:
        self.name = name
        self._key = key
        self._replicas = replicas
        self._controller = controller
        self._new = new

    def state(self, *, make: bool) -> TopicState:
        """The topic; with `make`, created if needed. Raises CoordinatorNotAvailableError."""
        state = self._replicas.image.topics.get(self.name)
        if state is not None:
            return state
        if make:
            new = self._new()
            alive = len(self._controller.image.brokers)
            try:
                return self._controller.create_topic(
                    self.name,
                    num_partitions=new.num_partitions,
                    replication_factor=max(min(new.replication_factor, alive), 1),
                    configs=new.configs,
                )
            except TopicAlreadyExistsError:
                _log.debug("another broker has just created %s", self.name)
            except KafkaError as failed:
                raise CoordinatorNotAvailableError(f"{self.name} can't be created: {failed}") from failed
        raise CoordinatorNotAvailableError(f"{self.name} does not exist yet; try again")

    def index_of(self, key: str) -> int:
        """The partition of a key, also before the topic is created."""
        state = self._replicas.image.topics.get(self.name)
        return partition_for(key, self._new().num_partitions if state is None else len(state.partitions))

    def leader_of(self, key: str, *, make: bool = True) -> int:
        """The broker that coordinates a key. Raises CoordinatorNotAvailableError."""
        state = self.state(make=make)
        leader = state.partitions[partition_for(key, len(state.partitions))].leader
        if leader not in self._replicas.image.brokers:
            raise CoordinatorNotAvailableError(f"the partition of the {self._key} {key!r} has no leader; try again")
        return leader

    def led_partition(self, key: str) -> Partition:
        """The partition of a key on this broker, which leads it. Raises NotCoordinatorError,
        CoordinatorNotAvailableError."""
        index = partition_for(key, len(self.state(make=False).partitions))
        try:
            partition = self._replicas.partition((self.name, index))
        except BrokerResponseError:
            raise NotCoordinatorError(
                f"this broker doesn't coordinate the {self._key} {key!r}; find its coordinator"
            ) from None
        if not partition.is_leader:
            raise NotCoordinatorError(f"broker {partition.leader_id} coordinates the {self._key} {key!r}")
        return partition
