"""A broker's view of its cluster: an immutable image, replaced as a whole at each change (Kafka's `MetadataImage`)."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .config.listeners import Listener
from .security.acls import AclBinding
from .security.users import Users

NO_LEADER = -1

#: Dynamic configurations, as text, by the resource's type (`BROKER`, `CLIENT_METRICS`, `GROUP`) and name. The empty
#: broker name stands for all brokers.
ResourceConfigs = Mapping[tuple[int, str], Mapping[str, str]]
BROKER = 4
CLIENT_METRICS = 16
GROUP = 32

#: The feature that decides about the protocol of transactions (KIP-890): 0 and 1 are the classic one, 2 the newer one.
TRANSACTION_VERSION = "transaction.version"
#: Feature -> the highest level that brokers support, which is the default.
FEATURES: Mapping[str, int] = {TRANSACTION_VERSION: 2}

#: A partition as the key of the broker's tables: topic and number.
PartitionKey = tuple[str, int]


def advertised_host(host: str) -> str:
    """The host that clients connect to: the machine's name if the broker listens on all addresses."""
    return socket.gethostname() if host in ("", "0.0.0.0", "::") else host


class BrokerEndpoint(NamedTuple):
    """The addresses of a broker. Other brokers use `host` and `port`, clients the address of the listener they
    connected to, from `listeners`."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    listeners: tuple[Listener, ...] = ()

    def at(self, listener: str) -> BrokerEndpoint:
        """This endpoint with the address that clients of a listener receive."""
        for name, host, port in self.listeners:
            if name == listener:
                return self._replace(host=host, port=port)
        return self


class PartitionState(NamedTuple):
    """The replicas of a partition and its leader. `leader_epoch` grows with each election, `partition_epoch` with each
    change. `adding` and `removing` are the replicas that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, its partitions by number, and its configuration overrides (dotted names, values as text)."""

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
    """The cluster at one moment.

    version: grows by one with each change. brokers: those that are alive. changed: the topics that differ from the
    previous image. deleted: the topics that are gone but whose logs may remain on brokers that are down. configs: those
    of brokers, telemetry subscriptions and groups, by the resource's type and name. acls: the access control entries;
    the same object as in the previous image unless they have changed. broker_token: by which brokers know each other's
    connections. users: those of SASL. features: the finalized level of each feature (KIP-584).
    """

    cluster_id: str
    version: int = 0
    controller_id: int = -1
    brokers: Mapping[int, BrokerEndpoint] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    topic_names: Mapping[uuid.UUID, str] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    deleted: frozenset[uuid.UUID] = frozenset()
    configs: ResourceConfigs = field(default_factory=dict)
    acls: frozenset[AclBinding] = frozenset()
    broker_token: str = field(default="", repr=False)
    users: Users = field(default_factory=Users)
    features: Mapping[str, int] = field(default_factory=dict)

    @property
    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`; 0 if the feature is absent."""
        return self.features.get(TRANSACTION_VERSION, 0)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        state = self.topics.get(topic)
        return state.partitions[index] if state is not None and 0 <= index < len(state.partitions) else None

    def with_changes(
        self, topics: Mapping[str, TopicState | None], brokers: Mapping[int, BrokerEndpoint] | None = None
    ) -> ClusterImage:
        """The next image: with these topics changed (None removes one) and, if given, with these brokers.

        The broker with the lowest id is reported as the controller. Costs O(changed topics), plus one shallow copy of
        the tables.
        """
        all_topics = dict(self.topics)
        names = dict(self.topic_names)
        for name, state in topics.items():
            before = all_topics.get(name)
            if before is not None:
                names.pop(before.topic_id, None)
            if state is None:
                all_topics.pop(name, None)
            else:
                all_topics[name] = state
                names[state.topic_id] = name
        return ClusterImage(
            self.cluster_id,
            self.version + 1,
            self.controller_id if brokers is None else min(brokers, default=-1),
            self.brokers if brokers is None else brokers,
            all_topics,
            names,
            frozenset(topics),
            self.deleted,
            self.configs,
            self.acls,
            self.broker_token,
            self.users,
            self.features,
        )

    def changed_since(self, before: ClusterImage) -> Collection[str]:
        """The topics that differ from an earlier image or no longer exist."""
        if before.version == self.version - 1:
            return self.changed
        names = {*self.topics, *before.topics}
        return [name for name in names if self.topics.get(name) is not before.topics.get(name)]
