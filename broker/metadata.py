"""What a broker knows of its cluster: an immutable image, replaced as a whole at each change (Kafka's
`MetadataImage`)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

NO_LEADER = -1

#: A partition as the broker's tables have it: topic and number.
PartitionKey = tuple[str, int]


class BrokerEndpoint(NamedTuple):
    """Where a broker listens."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class PartitionState(NamedTuple):
    """Who holds a partition and who leads it. `leader_epoch` grows with each election, `partition_epoch` with each
    change."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, its partitions by number, and the configuration that it overrides (dotted names, as text)."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in ("__consumer_offsets", "__transaction_state")

    def with_partition(self, index: int, state: PartitionState) -> TopicState:
        partitions = list(self.partitions)
        partitions[index] = state
        return replace(self, partitions=tuple(partitions))


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The cluster at one moment. `version` grows with each change; `brokers` are those that are alive."""

    cluster_id: str
    version: int = 0
    controller_id: int = -1
    brokers: Mapping[int, BrokerEndpoint] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    topic_names: Mapping[uuid.UUID, str] = field(default_factory=dict)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self.topics.get(topic)
        return state.partitions[index] if state is not None and 0 <= index < len(state.partitions) else None

    def with_topics(self, topics: Mapping[str, TopicState]) -> ClusterImage:
        """The next image, with these topics instead."""
        names = {state.topic_id: name for name, state in topics.items()}
        return replace(self, version=self.version + 1, topics=topics, topic_names=names)

    def with_brokers(self, brokers: Mapping[int, BrokerEndpoint]) -> ClusterImage:
        """The next image, with these brokers instead; the one with the least id is told to be the controller."""
        return replace(self, version=self.version + 1, brokers=brokers, controller_id=min(brokers, default=-1))
