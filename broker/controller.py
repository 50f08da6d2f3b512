"""The controller of an embedded cluster: the one place where topics, leaders and in-sync replicas are decided.

It runs in the process of the cluster. Brokers call it through the methods of `Controller` and hear of each change
through `on_image`, so that the same broker works with a controller in another process.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ..network.protocol.errors import (
    FencedLeaderEpochError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    KafkaConfigurationError,
    KafkaStorageError,
    NotControllerError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from .config import BrokerConfig
from .log.files import decode_uuid, encode_uuid, replace_file
from .metadata import NO_LEADER, BrokerEndpoint, ClusterImage, PartitionState, TopicState

TOPIC_NAME_BYTES = 249
PRODUCER_ID_BLOCK = 1000
MAX_PARTITIONS_PER_REQUEST = 10_000
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_STATE_VERSION = 1


#: Takes an image, and returns what is to be done once every broker has it.
ImageListener = Callable[[ClusterImage], Callable[[], None]]


class ControllerApi(Protocol):
    """What a broker calls, whichever process its controller is in; documented at `Controller`."""

    @property
    def image(self) -> ClusterImage: ...

    def create_topic(
        self,
        name: str,
        *,
        num_partitions: int = -1,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicState: ...

    def delete_topic(self, name: str | None, topic_id: uuid.UUID | None = None) -> TopicState: ...

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> None: ...

    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None: ...

    def alter_isr(
        self, topic: str, index: int, leader: int, leader_epoch: int, partition_epoch: int, isr: Sequence[int]
    ) -> PartitionState: ...

    def allocate_producer_ids(self) -> tuple[int, int]: ...


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError unless Kafka takes the name."""
    if not name:
        raise InvalidTopicError("a topic needs a name")
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic can't be called {name!r}")
    if len(name) > TOPIC_NAME_BYTES:
        raise InvalidTopicError(f"a topic's name has at most {TOPIC_NAME_BYTES} characters, this one has {len(name)}")
    if _TOPIC_NAME.fullmatch(name) is None:
        raise InvalidTopicError(
            f"the topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
        )


class Controller:
    """Decides, keeps the decisions in `state_path`, and tells the brokers.

    Any thread. One lock: held while an image is made, kept and told, so brokers hear of images in order. A broker
    therefore never calls the controller while it holds a lock that its own `on_image` takes.
    """

    def __init__(self, cluster_id: str, config: BrokerConfig, state_path: Path | None) -> None:
        self.config = config
        self._lock = threading.RLock()
        self._listeners: dict[int, ImageListener] = {}
        self._state_path = state_path
        self._next_producer_id = 0
        self._placement = itertools.count()
        self.image = ClusterImage(cluster_id)

    # State across restarts

    def load(self, known_topics: Mapping[str, TopicState]) -> None:
        """Take up the kept topics, and those `known_topics` (from log directories) that nothing was kept about."""
        with self._lock:
            topics = dict(known_topics)
            if self._state_path is not None and self._state_path.exists():
                try:
                    state = json.loads(self._state_path.read_text())
                    self._next_producer_id = state["next_producer_id"]
                    for entry in state["topics"]:
                        topics[entry["name"]] = _topic_from_json(entry)
                except (ValueError, KeyError, TypeError) as wrong:
                    raise KafkaStorageError(f"{self._state_path} is damaged ({wrong}); restore or remove it") from wrong
            self.image = self.image.with_topics(topics)

    def _keep(self, image: ClusterImage) -> None:
        if self._state_path is None:
            return
        state = {
            "version": _STATE_VERSION,
            "cluster_id": image.cluster_id,
            "next_producer_id": self._next_producer_id,
            "topics": [_topic_to_json(topic) for topic in image.topics.values()],
        }
        try:
            replace_file(self._state_path, json.dumps(state).encode(), sync=False)
        except OSError as failed:
            raise KafkaStorageError(f"can't keep the topics in {self._state_path}: {failed.strerror}") from failed

    def _publish(self, image: ClusterImage) -> None:
        self._keep(image)
        self.image = image
        # Every leader knows of its role before the first follower asks it.
        followers = [listener(image) for listener in list(self._listeners.values())]
        for follow in followers:
            follow()

    # Brokers

    def register_brokers(self, brokers: Sequence[tuple[BrokerEndpoint, ImageListener]]) -> None:
        """Brokers are alive: they hear of every image from now on, and lead what only waits for them.

        Those that start together come together, or the first would take over what the next ones lead.
        """
        with self._lock:
            alive = dict(self.image.brokers)
            for endpoint, on_image in brokers:
                self._listeners[endpoint.node_id] = on_image
                alive[endpoint.node_id] = endpoint
            self._publish(self._with_elections(self.image.with_brokers(alive)))

    def unregister_broker(self, node_id: int) -> None:
        """A broker is gone: others take over what it led."""
        with self._lock:
            self._listeners.pop(node_id, None)
            if node_id not in self.image.brokers:
                return
            brokers = {key: value for key, value in self.image.brokers.items() if key != node_id}
            self._publish(self._with_elections(self.image.with_brokers(brokers)))

    def _with_elections(self, image: ClusterImage) -> ClusterImage:
        """Elect leaders for the partitions whose leader isn't alive; take dead brokers out of the in-sync replicas."""
        topics = dict(image.topics)
        changed = False
        for name, topic in image.topics.items():
            for index, partition in enumerate(topic.partitions):
                elected = self._elect(image, topics[name], partition)
                if elected is not partition:
                    topics[name] = topics[name].with_partition(index, elected)
                    changed = True
        return image.with_topics(topics) if changed else image

    def _elect(self, image: ClusterImage, topic: TopicState, partition: PartitionState) -> PartitionState:
        """The partition with a leader that is alive, the old one where it is; the first in-sync replica otherwise.

        The last in-sync replica stays in the set although it is dead: only it has every acknowledged record.
        """
        alive = image.brokers
        if partition.leader in alive and all(broker in alive for broker in partition.isr):
            return partition
        isr = tuple(broker for broker in partition.isr if broker in alive)
        leader = partition.leader
        if leader not in alive or leader not in isr:
            leader = next((broker for broker in partition.replicas if broker in isr), NO_LEADER)
        if leader == NO_LEADER and self.config.topic_config(dict(topic.configs)).unclean_leader_election_enable:
            leader = next((broker for broker in partition.replicas if broker in alive), NO_LEADER)
            isr = (leader,) if leader != NO_LEADER else ()
        if not isr:
            isr = partition.isr
        if leader == partition.leader and isr == partition.isr:
            return partition
        return PartitionState(
            partition.replicas,
            isr,
            leader,
            partition.leader_epoch + (leader != partition.leader),
            partition.partition_epoch + 1,
        )

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make an in-sync replica the leader. Raises UnknownTopicOrPartitionError, InvalidRequestError."""
        with self._lock:
            state, partition = self._partition(topic, index)
            if node_id not in partition.isr or node_id not in self.image.brokers:
                raise InvalidRequestError(f"broker {node_id} is no in-sync replica of {topic}-{index}: {partition.isr}")
            if node_id == partition.leader:
                return
            moved = partition._replace(
                leader=node_id,
                leader_epoch=partition.leader_epoch + 1,
                partition_epoch=partition.partition_epoch + 1,
            )
            self._replace_topic(state.with_partition(index, moved))

    def alter_isr(
        self, topic: str, index: int, leader: int, leader_epoch: int, partition_epoch: int, isr: Sequence[int]
    ) -> PartitionState:
        """The leader's new in-sync replicas (AlterPartition). Raises where the leader's view is out of date."""
        with self._lock:
            state, partition = self._partition(topic, index)
            if leader != partition.leader or leader_epoch != partition.leader_epoch:
                raise FencedLeaderEpochError(
                    f"broker {leader} doesn't lead {topic}-{index} in epoch {leader_epoch} any more"
                )
            if partition_epoch != partition.partition_epoch:
                raise InvalidUpdateVersionError(f"{topic}-{index} has changed since epoch {partition_epoch}")
            in_sync = tuple(broker for broker in partition.replicas if broker in isr and broker in self.image.brokers)
            changed = partition._replace(isr=in_sync, partition_epoch=partition.partition_epoch + 1)
            self._replace_topic(state.with_partition(index, changed))
            return changed

    def _partition(self, topic: str, index: int) -> tuple[TopicState, PartitionState]:
        state = self.image.topics.get(topic)
        if state is None or not 0 <= index < len(state.partitions):
            raise UnknownTopicOrPartitionError(f"there is no partition {topic}-{index}")
        return state, state.partitions[index]

    def _replace_topic(self, state: TopicState) -> None:
        self._publish(self.image.with_topics({**self.image.topics, state.name: state}))

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        num_partitions: int = -1,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicState:
        """Make a topic. Raises InvalidTopicError, TopicAlreadyExistsError, InvalidPartitionsError,
        InvalidReplicationFactorError, InvalidReplicationAssignmentError, InvalidConfigurationError."""
        with self._lock:
            check_topic_name(name)
            if name in self.image.topics:
                raise TopicAlreadyExistsError(f"the topic {name!r} exists already")
            collision = next((other for other in self.image.topics if _collide(name, other)), None)
            if collision is not None:
                raise InvalidTopicError(f"the topic {name!r} differs from {collision!r} only by '.' and '_'")
            self.check_topic_configs(configs or {})
            if not self.image.brokers:
                raise NotControllerError("no broker is alive to hold the topic")
            if assignments:
                partitions = self._assigned(name, assignments, num_partitions, replication_factor)
            else:
                partitions = self._placed(num_partitions, replication_factor)
            state = TopicState(name, uuid.uuid4(), partitions, dict(configs or {}))
            if not validate_only:
                self._replace_topic(state)
            return state

    def _placed(self, num_partitions: int, replication_factor: int) -> tuple[PartitionState, ...]:
        count = self.config.num_partitions if num_partitions == -1 else num_partitions
        if not 0 < count <= MAX_PARTITIONS_PER_REQUEST:
            raise InvalidPartitionsError(
                f"a topic is made with 1 to {MAX_PARTITIONS_PER_REQUEST} partitions, not {count}"
            )
        factor = self.config.default_replication_factor if replication_factor == -1 else replication_factor
        return tuple(self._place(factor) for _ in range(count))

    def _place(self, factor: int) -> PartitionState:
        """Replicas on the next brokers round the ring, so that leaders and replicas are spread evenly."""
        alive = sorted(self.image.brokers)
        if not 0 < factor <= len(alive):
            raise InvalidReplicationFactorError(
                f"replication factor {factor} needs as many brokers; {len(alive)} are alive"
            )
        first = next(self._placement)
        replicas = tuple(alive[(first + at) % len(alive)] for at in range(factor))
        return PartitionState(replicas, replicas, replicas[0])

    def _assigned(
        self, name: str, assignments: Mapping[int, Sequence[int]], num_partitions: int, replication_factor: int
    ) -> tuple[PartitionState, ...]:
        if num_partitions != -1 or replication_factor != -1:
            raise InvalidRequestError("with replica assignments, leave the numbers of partitions and replicas at -1")
        if sorted(assignments) != list(range(len(assignments))):
            raise InvalidReplicationAssignmentError(f"the assignments of {name!r} don't number its partitions from 0")
        return tuple(self._assign(assignments[index]) for index in range(len(assignments)))

    def _assign(self, replicas: Sequence[int]) -> PartitionState:
        if (
            not replicas
            or len(set(replicas)) != len(replicas)
            or any(node not in self.image.brokers for node in replicas)
        ):
            raise InvalidReplicationAssignmentError(
                f"replicas {list(replicas)} must be different brokers that are alive: {sorted(self.image.brokers)}"
            )
        return PartitionState(tuple(replicas), tuple(replicas), replicas[0])

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> None:
        """Raise a topic's number of partitions to `count`. Raises UnknownTopicOrPartitionError, InvalidPartitionsError,
        InvalidReplicationAssignmentError."""
        with self._lock:
            state = self.image.topics.get(name)
            if state is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
            added = count - len(state.partitions)
            if added <= 0 or added > MAX_PARTITIONS_PER_REQUEST:
                raise InvalidPartitionsError(
                    f"the topic has {len(state.partitions)} partitions already, {count} were asked for"
                )
            if assignments is not None and len(assignments) != added:
                raise InvalidReplicationAssignmentError(
                    f"{added} new partitions need as many assignments, not {len(assignments)}"
                )
            factor = len(state.partitions[0].replicas)
            new = [self._place(factor) if assignments is None else self._assign(assignments[at]) for at in range(added)]
            if not validate_only:
                self._replace_topic(replace(state, partitions=(*state.partitions, *new)))

    def delete_topic(self, name: str | None, topic_id: uuid.UUID | None = None) -> TopicState:
        """Delete a topic by name or id. Raises UnknownTopicOrPartitionError, UnknownTopicIdError."""
        with self._lock:
            if name is None:
                name = self.image.topic_names.get(topic_id or uuid.UUID(int=0))
                if name is None:
                    raise UnknownTopicIdError(f"there is no topic with the id {topic_id}")
            state = self.image.topics.get(name)
            if state is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
            self._publish(
                self.image.with_topics({key: value for key, value in self.image.topics.items() if key != name})
            )
            return state

    def check_topic_configs(self, configs: Mapping[str, str | None]) -> None:
        """Raise InvalidConfigurationError unless a topic can have this configuration."""
        try:
            self.config.topic_config(dict(configs))
        except KafkaConfigurationError as wrong:
            raise InvalidConfigurationError(str(wrong)) from wrong

    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace a topic's overrides. Raises UnknownTopicOrPartitionError, InvalidConfigurationError."""
        with self._lock:
            state = self.image.topics.get(name)
            if state is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
            self.check_topic_configs(configs)
            if not validate_only:
                self._replace_topic(replace(state, configs=dict(configs)))

    def skip_producer_ids(self, last: int) -> None:
        """Give no producer id up to `last`: logs that came from elsewhere know producers with such ids."""
        with self._lock:
            self._next_producer_id = max(self._next_producer_id, last + 1)

    def allocate_producer_ids(self) -> tuple[int, int]:
        """A block of producer ids that no other broker gets: first id and number."""
        with self._lock:
            first = self._next_producer_id
            self._next_producer_id += PRODUCER_ID_BLOCK
            self._keep(self.image)
            return first, PRODUCER_ID_BLOCK


def _collide(name: str, other: str) -> bool:
    # Kafka's metric names turn '.' into '_', so it refuses topics that differ in nothing else.
    return name != other and name.replace(".", "_") == other.replace(".", "_")


def _topic_to_json(topic: TopicState) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": encode_uuid(topic.topic_id),
        "configs": dict(topic.configs),
        "partitions": [
            [
                list(partition.replicas),
                list(partition.isr),
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
            ]
            for partition in topic.partitions
        ],
    }


def _topic_from_json(entry: dict) -> TopicState:
    partitions = tuple(
        PartitionState(tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch)
        for replicas, isr, leader, leader_epoch, partition_epoch in entry["partitions"]
    )
    return TopicState(entry["name"], decode_uuid(entry["topic_id"]), partitions, entry["configs"])
