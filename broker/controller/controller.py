"""The controller of an embedded cluster. It alone decides about topics, leaders and in-sync replicas.

It runs in the process of the cluster. Brokers call it through the methods of `Controller` and receive each change
through `on_image`, so the same broker also works with a controller in another process.
"""

from __future__ import annotations

import itertools
import json
import secrets
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...network.protocol.errors import (
    BrokerResponseError,
    FencedLeaderEpochError,
    InvalidConfigurationError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaStorageError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from ...network.protocol.other_errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidUpdateVersionError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
)
from ...network.sections import here
from ...network.topic_names import validate_topic_name
from ..config.broker_config import BrokerConfig
from ..config.client_metrics_config import ClientMetricsConfig, parse_patterns
from ..config.group_config import GroupConfig
from ..log.files import decode_uuid, encode_uuid, replace_file_over_spare
from ..metadata import (
    BROKER,
    CLIENT_METRICS,
    FEATURES,
    GROUP,
    NO_LEADER,
    BrokerEndpoint,
    ClusterImage,
    PartitionState,
    TopicState,
)
from ..security.acls import AclBinding, AclFilter
from ..security.users import Users, scram_from_json, scram_to_json
from . import acl_changes, reassignment, scram_changes
from .controller_api import (
    ControllerApi,
    ElectionOutcome,
    IsrChange,
    MorePartitions,
    NewTopic,
    Reassignment,
    ScramDeletion,
    ScramUpsertion,
    TopicRef,
)
from .kept_topics import KeptTopic, keep_topic, topic_from_json

PRODUCER_ID_BLOCK = 1000
MAX_PARTITIONS_PER_REQUEST = 10_000
_STATE_VERSION = 1


#: Applies an image. Returns a function to call once every broker has the image.
ImageListener = Callable[[ClusterImage], Callable[[], None]]


class Controller(ControllerApi):
    """Decides, stores its decisions in `state_path`, and publishes them to the brokers.

    Any thread may call it. One lock is held while an image is created, stored and published, so brokers receive images
    in order. A broker therefore never calls the controller while it holds a lock that its own `on_image` acquires.
    The lock is a section, because a producer in the same process waits for brokers that wait for it.
    """

    def __init__(self, cluster_id: str, config: BrokerConfig, state_path: Path | None) -> None:
        self._static_config = config
        #: Includes the dynamic configuration of all brokers.
        self.config = config
        self._lock = threading.RLock()
        self._listeners: dict[int, ImageListener] = {}
        self._state_path = state_path
        self._next_producer_id = 0
        self._placement = itertools.count()
        self._kept: dict[str, KeptTopic] = {}
        #: Deleted topic -> the brokers with replicas, until all of these have received the deletion.
        self._deleted: dict[uuid.UUID, frozenset[int]] = {}
        self.image = ClusterImage(cluster_id, broker_token=secrets.token_hex(), features=dict(FEATURES))

    # --- State across restarts ---

    def load(self, known_topics: Mapping[str, TopicState]) -> None:
        """Load the stored topics, and those `known_topics` (from log directories) that are not stored."""
        with here.section, self._lock:
            topics: dict[str, TopicState] = {}
            configs: dict[tuple[int, str], Mapping[str, str]] = {}
            acls: frozenset[AclBinding] = frozenset()
            users = Users()
            features: Mapping[str, int] = self.image.features
            if self._state_path is not None and self._state_path.exists():
                try:
                    state = json.loads(self._state_path.read_text())
                    self._next_producer_id = state["next_producer_id"]
                    for entry in state["topics"]:
                        topics[entry["name"]] = topic_from_json(entry)
                    configs = {(kind, name): of for kind, name, of in state.get("configs", ())}
                    acls = frozenset(AclBinding(*fields) for fields in state.get("acls", ()))
                    users = Users(scram=scram_from_json(state.get("scram", [])))
                    features = state.get("features", features)
                    self._deleted = {decode_uuid(each): frozenset(of) for each, of in state.get("deleted", {}).items()}
                except (ValueError, KeyError, TypeError) as wrong:
                    raise KafkaStorageError(f"{self._state_path} is damaged ({wrong}); restore or remove it") from wrong
            for name, topic in known_topics.items():
                if topic.topic_id not in self._deleted:
                    topics.setdefault(name, topic)
            image = self.image.with_changes(topics)
            users = users.with_passwords(self._static_config.users)
            changed = replace(image, deleted=frozenset(self._deleted), configs=configs)
            self.image = replace(changed, acls=acls, users=users, features=features)
            self.config = self._static_config.with_dynamic(configs.get((BROKER, ""), {}), {})

    def _keep(self, image: ClusterImage, deleted: Mapping[uuid.UUID, frozenset[int]]) -> None:
        if self._state_path is None:
            return
        state = {
            "version": _STATE_VERSION,
            "cluster_id": image.cluster_id,
            "next_producer_id": self._next_producer_id,
            "features": dict(image.features),
            "configs": [[*resource, dict(configs)] for resource, configs in image.configs.items()],
            "acls": sorted(image.acls),
            "scram": scram_to_json(image.users.scram),
            "deleted": {encode_uuid(topic_id): sorted(holders) for topic_id, holders in deleted.items()},
        }
        # All topics are written at each change, but only those that have changed are encoded again.
        kept = {}
        for name, topic in image.topics.items():
            known = self._kept.get(name)
            kept[name] = known if known is not None and known.state is topic else keep_topic(topic)
        self._kept = kept
        text = f'{json.dumps(state)[:-1]}, "topics": [{", ".join(each.text for each in kept.values())}]}}'
        try:
            replace_file_over_spare(self._state_path, text.encode())
        except OSError as failed:
            raise KafkaStorageError(f"can't write the topics to {self._state_path}: {failed.strerror}") from failed

    def _publish(self, image: ClusterImage) -> None:
        deleted = {**self._deleted, **self._deleted_by(image)}
        image = replace(image, deleted=frozenset(deleted))
        self._keep(image, deleted)
        self.image = image
        # Every leader has its role before the first follower fetches from it.
        followers = [listener(image) for listener in list(self._listeners.values())]
        for follow in followers:
            follow()
        self._deleted = {topic_id: of for topic_id, of in deleted.items() if not of.issubset(image.brokers)}

    def _deleted_by(self, image: ClusterImage) -> dict[uuid.UUID, frozenset[int]]:
        gone = {}
        for name in image.changed:
            before, after = self.image.topics.get(name), image.topics.get(name)
            if before is not None and (after is None or after.topic_id != before.topic_id):
                gone[before.topic_id] = frozenset(each for part in before.partitions for each in part.replicas)
        return gone

    # --- Brokers ---

    def register_brokers(self, brokers: Sequence[tuple[BrokerEndpoint, ImageListener]]) -> None:
        """Add brokers. They receive every image from now on, and lead the partitions that wait for them.

        Brokers that start together are registered together. Otherwise the first would take over partitions of the rest.
        """
        with here.section, self._lock:
            alive = dict(self.image.brokers)
            for endpoint, on_image in brokers:
                self._listeners[endpoint.node_id] = on_image
                alive[endpoint.node_id] = endpoint
            self._publish(self._with_elections(alive))

    def unregister_broker(self, node_id: int) -> None:
        """Remove a broker. Others take over its partitions."""
        with here.section, self._lock:
            self._listeners.pop(node_id, None)
            if node_id not in self.image.brokers:
                return
            brokers = {key: value for key, value in self.image.brokers.items() if key != node_id}
            self._publish(self._with_elections(brokers))

    def _with_elections(self, alive: Mapping[int, BrokerEndpoint]) -> ClusterImage:
        """The next image with these brokers: leaders are elected for partitions whose leader isn't alive, and dead
        brokers are removed from the in-sync replicas."""
        changes: dict[str, TopicState | None] = {}
        for name, topic in self.image.topics.items():
            elected = tuple(self._elect(alive, topic, partition) for partition in topic.partitions)
            if any(one is not other for one, other in zip(elected, topic.partitions, strict=True)):
                changes[name] = replace(topic, partitions=elected)
        return self.image.with_changes(changes, alive)

    def _elect(
        self, alive: Mapping[int, BrokerEndpoint], topic: TopicState, partition: PartitionState
    ) -> PartitionState:
        """The partition with a leader that is alive: the old one if possible, otherwise the first in-sync replica.

        The last in-sync replica stays in the set even if it is dead: only it has every acknowledged record.
        """
        if partition.leader in alive and all(broker in alive for broker in partition.isr):
            return partition
        isr = tuple(broker for broker in partition.isr if broker in alive)
        leader = partition.leader
        if leader not in alive or leader not in isr:
            leader = next((broker for broker in partition.replicas if broker in isr), NO_LEADER)
        if leader == NO_LEADER and self.config.topic_config(topic.configs).unclean_leader_election_enable:
            leader = next((broker for broker in partition.replicas if broker in alive), NO_LEADER)
            isr = (leader,) if leader != NO_LEADER else ()
        if not isr:
            isr = partition.isr
        if leader == partition.leader and isr == partition.isr:
            return partition
        elected = partition._replace(
            isr=isr,
            leader=leader,
            leader_epoch=partition.leader_epoch + (leader != partition.leader),
            partition_epoch=partition.partition_epoch + 1,
        )
        return reassignment.complete(elected, alive)

    def move_leader(self, topic: str, index: int, node_id: int) -> None:
        """Make an in-sync replica the leader. Raises UnknownTopicOrPartitionError, InvalidRequestError."""
        with here.section, self._lock:
            state, partition = self._partition(topic, index)
            if node_id not in partition.isr or node_id not in self.image.brokers:
                raise InvalidRequestError(
                    f"broker {node_id} is not an in-sync replica of {topic}-{index}: {partition.isr}"
                )
            if node_id == partition.leader:
                return
            self._replace_topic(state.with_partition(index, _led_by(partition, node_id)))

    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]] | None, *, is_unclean: bool = False
    ) -> list[ElectionOutcome]:
        with here.section, self._lock:
            asked = partitions
            if asked is None:
                asked = [(name, at) for name, topic in self.image.topics.items() for at in range(len(topic.partitions))]
            changed: dict[str, list[PartitionState]] = {}
            outcomes: list[ElectionOutcome] = []
            for topic, index in asked:
                try:
                    state, partition = self._partition(topic, index)
                    partition = changed[topic][index] if topic in changed else partition
                    leader = self._wanted_leader(partition, is_unclean)
                    isr = partition.isr if leader in partition.isr else (leader,)
                    elected = _led_by(partition, leader)._replace(isr=isr)
                    changed.setdefault(topic, list(state.partitions))[index] = elected
                    outcomes.append(ElectionOutcome(topic, index, None))
                except BrokerResponseError as refused:
                    if partitions is not None or not isinstance(refused, ElectionNotNeededError):
                        outcomes.append(ElectionOutcome(topic, index, refused))
            failed = self._publish_partitions(changed)
            return outcomes if failed is None else [each._replace(error=each.error or failed) for each in outcomes]

    def _wanted_leader(self, partition: PartitionState, is_unclean: bool) -> int:
        preferred = partition.replicas[0]
        if partition.leader == preferred or (is_unclean and partition.leader != NO_LEADER):
            raise ElectionNotNeededError(f"broker {partition.leader} is already the leader")
        alive = self.image.brokers
        if not is_unclean:
            if preferred in alive and preferred in partition.isr:
                return preferred
            raise PreferredLeaderNotAvailableError(f"broker {preferred} is not in sync: {list(partition.isr)}")
        candidates = [node for node in partition.replicas if node in alive]
        if not candidates:
            raise EligibleLeadersNotAvailableError(f"none of the replicas {list(partition.replicas)} is alive")
        return next((node for node in candidates if node in partition.isr), candidates[0])

    def alter_reassignments(
        self, changes: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> list[PartitionState | BrokerResponseError]:
        with here.section, self._lock:
            changed: dict[str, list[PartitionState]] = {}
            outcomes: list[PartitionState | BrokerResponseError] = []
            for topic, index, replicas in changes:
                try:
                    state, partition = self._partition(topic, index)
                    partition = changed[topic][index] if topic in changed else partition
                    moved = self._reassign(partition, replicas, allow_factor_change)
                    changed.setdefault(topic, list(state.partitions))[index] = moved
                    outcomes.append(moved)
                except BrokerResponseError as refused:
                    outcomes.append(refused)
            failed = self._publish_partitions(changed)
            return outcomes if failed is None else [_or_failed(each, failed) for each in outcomes]

    def _reassign(
        self, partition: PartitionState, replicas: Sequence[int] | None, allow_factor_change: bool
    ) -> PartitionState:
        alive = self.image.brokers
        if replicas is None:
            return reassignment.cancel(partition, alive)
        known = {*alive, *partition.replicas}
        if not replicas or len(set(replicas)) != len(replicas) or any(node not in known for node in replicas):
            raise InvalidReplicationAssignmentError(
                f"replicas {list(replicas)} must be different brokers that are alive: {sorted(alive)}"
            )
        factor = len(partition.replicas) - len(partition.adding)
        if not allow_factor_change and len(replicas) != factor:
            raise InvalidReplicationFactorError(f"the partition has {factor} replicas, but {len(replicas)} were given")
        return reassignment.begin(partition, replicas, alive)

    def _publish_partitions(self, changed: Mapping[str, Sequence[PartitionState]]) -> KafkaStorageError | None:
        """Publish topics with changed partitions. Returns the error if that failed."""
        if changed:
            topics = self.image.topics
            states = {name: replace(topics[name], partitions=tuple(parts)) for name, parts in changed.items()}
            try:
                self._publish(self.image.with_changes(states))
            except KafkaStorageError as failed:
                return failed
        return None

    def alter_isrs(self, changes: Sequence[IsrChange]) -> list[PartitionState | BrokerResponseError]:
        with here.section, self._lock:
            changed: dict[str, list[PartitionState]] = {}
            outcomes: list[PartitionState | BrokerResponseError] = []
            for change in changes:
                try:
                    outcomes.append(self._alter_isr(change, changed))
                except BrokerResponseError as refused:
                    outcomes.append(refused)
            failed = self._publish_partitions(changed)
            return outcomes if failed is None else [_or_failed(each, failed) for each in outcomes]

    def _alter_isr(self, change: IsrChange, changed: dict[str, list[PartitionState]]) -> PartitionState:
        topic, index, leader, leader_epoch, partition_epoch, isr = change
        state, partition = self._partition(topic, index)
        if topic in changed:
            partition = changed[topic][index]
        if leader != partition.leader or leader_epoch != partition.leader_epoch:
            raise FencedLeaderEpochError(f"broker {leader} no longer leads {topic}-{index} in epoch {leader_epoch}")
        if partition_epoch != partition.partition_epoch:
            raise InvalidUpdateVersionError(f"{topic}-{index} has changed since partition epoch {partition_epoch}")
        in_sync = tuple(broker for broker in partition.replicas if broker in isr and broker in self.image.brokers)
        altered = reassignment.complete(
            partition._replace(isr=in_sync, partition_epoch=partition.partition_epoch + 1), self.image.brokers
        )
        changed.setdefault(topic, list(state.partitions))[index] = altered
        return altered

    def _partition(self, topic: str, index: int) -> tuple[TopicState, PartitionState]:
        state = self.image.topics.get(topic)
        if state is None or not 0 <= index < len(state.partitions):
            raise UnknownTopicOrPartitionError(f"there is no partition {topic}-{index}")
        return state, state.partitions[index]

    def _replace_topic(self, state: TopicState) -> None:
        self._publish(self.image.with_changes({state.name: state}))

    # --- Topics ---

    def _decide(
        self, decisions: Iterable[Callable[[_Changes], TopicState]], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        """Apply decisions about topics in order, each seeing the previous ones, and publish them together."""
        with here.section, self._lock:
            changes = _Changes(self.image)
            outcomes: list[TopicState | BrokerResponseError] = []
            for decide in decisions:
                try:
                    outcomes.append(decide(changes))
                except BrokerResponseError as refused:
                    outcomes.append(refused)
            if changes.topics and not validate_only:
                try:
                    self._publish(self.image.with_changes(changes.topics))
                except KafkaStorageError as failed:
                    return [failed if isinstance(each, TopicState) else each for each in outcomes]
            return outcomes

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        return self._decide((partial(self._create, topic) for topic in topics), validate_only=validate_only)

    def _create(self, topic: NewTopic, changes: _Changes) -> TopicState:
        name = validate_topic_name(topic.name)
        if changes.topic(name) is not None:
            raise TopicAlreadyExistsError(f"the topic {name!r} already exists")
        collision = changes.collision(name)
        if collision is not None:
            raise InvalidTopicError(f"the topic name {name!r} collides with {collision!r}: '.' and '_' count as equal")
        self.check_topic_configs(topic.configs or {})
        if not self.image.brokers:
            raise NotControllerError("no broker is alive to host the topic")
        if topic.assignments:
            partitions = self._assigned(name, topic.assignments, topic.num_partitions, topic.replication_factor)
        else:
            partitions = self._placed(topic.num_partitions, topic.replication_factor)
        changes.add_partitions(len(partitions))
        return changes.make(TopicState(name, uuid.uuid4(), partitions, dict(topic.configs or {})))

    def _placed(self, num_partitions: int, replication_factor: int) -> tuple[PartitionState, ...]:
        count = self.config.num_partitions if num_partitions == -1 else num_partitions
        if not 0 < count <= MAX_PARTITIONS_PER_REQUEST:
            raise InvalidPartitionsError(
                f"a topic is created with 1 to {MAX_PARTITIONS_PER_REQUEST} partitions, not {count}"
            )
        factor = self.config.default_replication_factor if replication_factor == -1 else replication_factor
        return tuple(self._place(factor) for _ in range(count))

    def _place(self, factor: int) -> PartitionState:
        """Place replicas round robin, so that leaders and replicas are spread evenly over the brokers."""
        alive = sorted(self.image.brokers)
        if not 0 < factor <= len(alive):
            raise InvalidReplicationFactorError(
                f"replication factor {factor} needs as many brokers, but {len(alive)} are alive"
            )
        first = next(self._placement)
        replicas = tuple(alive[(first + at) % len(alive)] for at in range(factor))
        return PartitionState(replicas, replicas, replicas[0])

    def _assigned(
        self, name: str, assignments: Mapping[int, Sequence[int]], num_partitions: int, replication_factor: int
    ) -> tuple[PartitionState, ...]:
        if num_partitions != -1 or replication_factor != -1:
            raise InvalidRequestError("with replica assignments, leave num_partitions and replication_factor at -1")
        if sorted(assignments) != list(range(len(assignments))):
            raise InvalidReplicationAssignmentError(f"the assignments of {name!r} must number its partitions from 0")
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
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        return self._decide((partial(self._extend, topic) for topic in topics), validate_only=validate_only)

    def _extend(self, topic: MorePartitions, changes: _Changes) -> TopicState:
        state = changes.topic(topic.name)
        if state is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {topic.name!r}")
        assignments = topic.assignments
        added = topic.partition_count - len(state.partitions)
        if added <= 0 or added > MAX_PARTITIONS_PER_REQUEST:
            raise InvalidPartitionsError(
                f"the topic already has {len(state.partitions)} partitions; {topic.partition_count} were requested"
            )
        if assignments is not None and len(assignments) != added:
            raise InvalidReplicationAssignmentError(
                f"{added} new partitions need as many assignments, not {len(assignments)}"
            )
        changes.add_partitions(added)
        factor = len(state.partitions[0].replicas)
        new = [self._place(factor) if assignments is None else self._assign(assignments[at]) for at in range(added)]
        state = changes.topics[topic.name] = replace(state, partitions=(*state.partitions, *new))
        return state

    def delete_topics(self, topics: Sequence[TopicRef]) -> list[TopicState | BrokerResponseError]:
        return self._decide(partial(self._delete, topic) for topic in topics)

    def _delete(self, topic: TopicRef, changes: _Changes) -> TopicState:
        name = topic.name
        if name is None:
            name = self.image.topic_names.get(topic.topic_id or uuid.UUID(int=0))
            if name is None:
                raise UnknownTopicIdError(f"there is no topic with the id {topic.topic_id}")
        state = changes.topic(name)
        if state is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
        changes.topics[name] = None
        return state

    def check_topic_configs(self, configs: Mapping[str, str | None]) -> None:
        """Raise InvalidConfigurationError unless a topic can have this configuration."""
        try:
            self.config.topic_config(configs)
        except KafkaConfigurationError as wrong:
            raise InvalidConfigurationError(str(wrong)) from wrong

    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        with here.section, self._lock:
            state = self.image.topics.get(name)
            if state is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
            self.check_topic_configs(configs)
            if not validate_only:
                self._replace_topic(replace(state, configs=dict(configs)))

    def set_resource_configs(
        self, resource_type: int, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        with here.section, self._lock:
            try:
                if resource_type == BROKER:
                    self._static_config.check_dynamic(configs)
                elif resource_type == CLIENT_METRICS:
                    parse_patterns(ClientMetricsConfig.resolve_from(configs, {}, {}).match)
                else:
                    GroupConfig.resolve_from(configs, {}, {})
            except KafkaConfigurationError as wrong:
                # Kafka has two error codes for the same condition (KAFKA-13609).
                kind = InvalidConfigurationError if resource_type == GROUP else InvalidRequestError
                raise kind(str(wrong)) from wrong
            if validate_only:
                return
            changed = {key: of for key, of in self.image.configs.items() if key != (resource_type, name)}
            if configs:
                changed[resource_type, name] = dict(configs)
            of_all = changed.get((BROKER, ""), {})
            self._publish(replace(self.image.with_changes({}), configs=changed))
            self.config = self._static_config.with_dynamic(of_all, {})

    # --- Access control entries ---

    def create_acls(self, acls: Sequence[AclBinding]) -> list[AclBinding | BrokerResponseError]:
        with here.section, self._lock:
            return self._publish_acls(*acl_changes.create(self.image.acls, acls))

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | BrokerResponseError]:
        with here.section, self._lock:
            return self._publish_acls(*acl_changes.delete(self.image.acls, filters))

    def _publish_acls(self, outcomes: list, acls: frozenset[AclBinding]) -> list:
        """Publish the entries if they have changed. Returns the outcomes, with the error of a failure to store them."""
        if acls is not self.image.acls:
            try:
                self._publish(replace(self.image.with_changes({}), acls=acls))
            except KafkaStorageError as failed:
                return acl_changes.failed(outcomes, failed)
        return outcomes

    # --- Users ---

    def alter_scram(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> dict[str, BrokerResponseError]:
        with here.section, self._lock:
            users, errors = scram_changes.apply(self.image.users, deletions, upsertions)
            if users is not self.image.users:
                self._publish(replace(self.image.with_changes({}), users=users))
            return errors

    def set_passwords(self, passwords: Mapping[str, str | None]) -> None:
        """Add, change and remove (None) users of PLAIN and SCRAM. Raises KafkaStorageError."""
        with here.section, self._lock:
            self._publish(replace(self.image.with_changes({}), users=self.image.users.with_passwords(passwords)))

    def update_features(self, features: Mapping[str, int]) -> None:
        for name, level in features.items():
            if name not in FEATURES or not 0 <= level <= FEATURES[name]:
                supported = ", ".join(f"{each} 0 to {highest}" for each, highest in FEATURES.items())
                raise InvalidUpdateVersionError(f"level {level} of {name!r} is not supported; brokers have {supported}")
        with here.section, self._lock:
            self._publish(replace(self.image.with_changes({}), features={**self.image.features, **features}))

    # --- Producer ids ---

    def skip_producer_ids(self, last: int) -> None:
        """Never allocate producer ids up to `last`: loaded logs have producers with such ids."""
        with here.section, self._lock:
            self._next_producer_id = max(self._next_producer_id, last + 1)

    def allocate_producer_ids(self) -> tuple[int, int]:
        with here.section, self._lock:
            first = self._next_producer_id
            self._next_producer_id += PRODUCER_ID_BLOCK
            self._keep(self.image, self._deleted)
            return first, PRODUCER_ID_BLOCK


class _Changes:
    """The changes that a request makes to the topics, until they are published."""

    def __init__(self, image: ClusterImage) -> None:
        self.topics: dict[str, TopicState | None] = {}
        self._image = image
        self._partition_count = 0
        self._by_metric_name: dict[str, str] | None = None

    def topic(self, name: str) -> TopicState | None:
        return self.topics[name] if name in self.topics else self._image.topics.get(name)

    def add_partitions(self, count: int) -> None:
        """Raises PolicyViolationError if a request creates too many partitions."""
        self._partition_count += count
        if self._partition_count > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError(
                f"a request creates at most {MAX_PARTITIONS_PER_REQUEST} partitions; split the request"
            )

    def collision(self, name: str) -> str | None:
        """Another topic with the same name in Kafka's metrics, which replace '.' by '_'."""
        if self._by_metric_name is None:
            self._by_metric_name = {each.replace(".", "_"): each for each in self._image.topics}
        other = self._by_metric_name.get(name.replace(".", "_"))
        return other if other != name else None

    def make(self, state: TopicState) -> TopicState:
        self.topics[state.name] = state
        if self._by_metric_name is not None:
            self._by_metric_name[state.name.replace(".", "_")] = state.name
        return state


def _led_by(partition: PartitionState, leader: int) -> PartitionState:
    return partition._replace(
        leader=leader, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1
    )


def _or_failed(
    outcome: PartitionState | BrokerResponseError, failed: KafkaStorageError
) -> PartitionState | BrokerResponseError:
    return outcome if isinstance(outcome, BrokerResponseError) else failed
