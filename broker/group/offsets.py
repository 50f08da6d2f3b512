"""The groups stored in `__consumer_offsets` that this broker coordinates, and their committed offsets."""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ...network.clock import Clock
from ...network.protocol.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    KafkaError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from ...network.records.builder_cy import build_batch
from ..config.broker_config import BrokerConfig
from ..metadata import ClusterImage, PartitionKey, TopicState
from ..replica.delayed_produce import ProduceResult
from ..replica.manager import ReplicaManager
from ..replica.partition import Partition
from ..scheduler import Scheduler
from .group import CommittedOffset, Group, GroupState, Member
from .store import (
    OFFSETS_TOPIC,
    GroupKey,
    OffsetKey,
    StoredGroup,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)

_log = logging.getLogger(__name__)

Done = Callable[[BrokerResponseError | None], None]


class TopicMaker(Protocol):
    """The part of the controller that creates the offsets topic."""

    @property
    def image(self) -> ClusterImage: ...

    def create_topic(
        self, name: str, *, num_partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> TopicState: ...


def partition_for(group_id: str, count: int) -> int:
    """The partition of the offsets topic for a group, by Java's string hash, as in Kafka."""
    value = 0
    for unit in struct.iter_unpack(">H", group_id.encode("utf-16-be")):
        value = (value * 31 + unit[0]) & 0xFFFFFFFF
    if value >= 2**31:
        value -= 2**32
    return (0 if value == -(2**31) else abs(value)) % count


class OffsetStore:
    """The groups whose partition of the offsets topic this broker leads.

    Any thread may call it. `_lock` guards only the tables. A group's content is guarded by the group's lock, which is
    never acquired while `_lock` is held.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        replicas: ReplicaManager,
        scheduler: Scheduler,
        controller: TopicMaker,
    ) -> None:
        self.config = config
        self.clock = clock
        self.replicas = replicas
        self.scheduler = scheduler
        self.controller = controller
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        self._loaded: dict[int, int] = {}  # partition -> the leader epoch it was loaded in
        self._loading: set[int] = set()
        self._outbox: deque[tuple[str, list[tuple[bytes, bytes | None]], Done]] = deque()
        self._outbox_lock = threading.RLock()
        self.on_adopted: Callable[[Group], None] = lambda group: None

    # --- Which broker ---

    def topic(self, *, make: bool) -> TopicState:
        """The offsets topic; with `make`, created if needed. Raises CoordinatorNotAvailableError."""
        state = self.replicas.image.topics.get(OFFSETS_TOPIC)
        if state is not None:
            return state
        if make:
            config = self.config
            alive = len(self.controller.image.brokers)
            try:
                return self.controller.create_topic(
                    OFFSETS_TOPIC,
                    num_partitions=config.offsets_topic_num_partitions,
                    replication_factor=max(min(config.offsets_topic_replication_factor, alive), 1),
                    configs={"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)},
                )
            except TopicAlreadyExistsError:
                _log.debug("another broker has just created the offsets topic")
            except KafkaError as failed:
                raise CoordinatorNotAvailableError(f"the offsets topic can't be created: {failed}") from failed
        raise CoordinatorNotAvailableError("the offsets topic does not exist yet; try again")

    def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates a group. Raises CoordinatorNotAvailableError."""
        state = self.topic(make=True)
        leader = state.partitions[partition_for(group_id, len(state.partitions))].leader
        if leader not in self.replicas.image.brokers:
            raise CoordinatorNotAvailableError(f"the partition of the group {group_id!r} has no leader; try again")
        return leader

    def check_coordinator(self, group_id: str) -> None:
        """Raise NotCoordinatorError, CoordinatorNotAvailableError or CoordinatorLoadInProgressError unless this broker
        coordinates the group."""
        self._partition_of(group_id)

    def _partition_of(self, group_id: str) -> Partition:
        state = self.topic(make=False)
        index = partition_for(group_id, len(state.partitions))
        try:
            partition = self.replicas.partition((OFFSETS_TOPIC, index))
        except BrokerResponseError:
            raise NotCoordinatorError(f"this broker doesn't coordinate {group_id!r}; find its coordinator") from None
        if not partition.is_leader:
            raise NotCoordinatorError(f"broker {partition.leader_id} coordinates {group_id!r}")
        if self._loaded.get(index) != partition.leader_epoch:
            self._load_later(partition)
            if self._loaded.get(index) != partition.leader_epoch:
                raise CoordinatorLoadInProgressError(f"the group {group_id!r} is being loaded; try again")
        return partition

    # --- Loading ---

    def leadership_changed(self, partition: Partition) -> None:
        """Load or unload groups: a replica of the offsets topic has a new leader or epoch."""
        if partition.topic != OFFSETS_TOPIC:
            return
        if partition.is_leader:
            self._load_later(partition)
        else:
            self.scheduler.schedule("unload-groups", lambda: self._unload(partition.index), delay_ms=0)

    def _load_later(self, partition: Partition) -> None:
        with self._lock:
            if partition.index in self._loading or self._loaded.get(partition.index) == partition.leader_epoch:
                return
            if partition.log.log_start_offset == partition.log.end.offset:
                # Nothing is stored yet, so clients need not wait.
                self._loaded[partition.index] = partition.leader_epoch
                return
            self._loading.add(partition.index)
        self.scheduler.schedule("load-groups", lambda: self._load(partition), delay_ms=0)

    def _load(self, partition: Partition) -> None:
        epoch = partition.leader_epoch
        try:
            groups = _read_groups(partition)
        finally:
            with self._lock:
                self._loading.discard(partition.index)
        for group in groups.values():
            self.on_adopted(group)
        with self._lock:
            if partition.is_leader and partition.leader_epoch == epoch:
                self._groups.update(groups)
                self._loaded[partition.index] = epoch

    def _unload(self, index: int) -> None:
        count = len(self.topic(make=False).partitions)
        with self._lock:
            self._loaded.pop(index, None)
            gone = [group for name, group in self._groups.items() if partition_for(name, count) == index]
            for group in gone:
                del self._groups[group.group_id]
        for group in gone:
            with group.lock:
                group.state = GroupState.DEAD
                for member in group.members.values():
                    if member.session is not None:
                        member.session.cancel()

    # --- Groups ---

    def group(self, group_id: str, *, make: bool = False) -> Group | None:
        with self._lock:
            group = self._groups.get(group_id)
            if group is None and make:
                group = self._groups[group_id] = Group(group_id, state_since_ms=self.clock.wall_ms())
            return group

    def groups(self) -> list[Group]:
        """The groups of this broker."""
        with self._lock:
            return list(self._groups.values())

    def keep_group(self, group: Group, done: Done) -> None:
        """Queue the group's metadata for the next `send_outbox`. `done` receives the outcome.

        Called with the group's lock held. Nothing may be appended under that lock: an append completes other requests,
        which may wait for the same lock.
        """
        self._outbox.append((group.group_id, [(encode_group_key(group.group_id), encode_group(group))], done))

    def send_outbox(self) -> None:
        """Write the records queued by `keep_group`, in order. Called with no group's lock held."""
        while self._outbox:
            with self._outbox_lock:
                try:
                    group_id, records, done = self._outbox.popleft()
                except IndexError:
                    return
                self._append(group_id, records, done)

    def _append(self, group_id: str, records: Iterable[tuple[bytes, bytes | None]], done: Done) -> None:
        try:
            partition = self._partition_of(group_id)
        except BrokerResponseError as error:
            done(error)
            return
        now_ms = self.clock.wall_ms()
        batch = build_batch([(now_ms, key, value) for key, value in records])

        def respond(results: dict[PartitionKey, ProduceResult]) -> None:
            error = results[partition.key].error
            done(None if error is None else _coordinator_error(error))

        self.replicas.append_records(
            self.config.offsets_commit_timeout_ms, -1, [(partition.key, memoryview(batch))], respond
        )

    # --- Offsets ---

    def check_commit(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> Group:
        """The group, if this member may commit now. Raises the error for its client."""
        if not group_id:
            raise InvalidGroupIdError("the group id is empty; set group.id")
        self.check_coordinator(group_id)
        group = self.group(group_id, make=generation < 0)
        if group is None:
            raise IllegalGenerationError(f"there is no group {group_id!r} with a generation {generation}")
        with group.lock:
            if generation < 0 and group.state is GroupState.EMPTY:
                return group
            if instance_id is not None and group.static_members.get(instance_id, member_id) != member_id:
                raise FencedInstanceIdError(f"another member has taken over the instance id {instance_id!r}")
            member = group.members.get(member_id)
            if member is None:
                raise UnknownMemberIdError(f"the group {group_id!r} has members, but {member_id!r} is not one of them")
            if generation != group.generation:
                raise IllegalGenerationError(f"generation {generation} has ended; the current is {group.generation}")
            if group.state is GroupState.COMPLETING_REBALANCE:
                raise RebalanceInProgressError("the group is rebalancing; join and sync first")
        return group

    def check_metadata(self, metadata: str | None) -> None:
        """Raise OffsetMetadataTooLargeError if it is longer than `offset.metadata.max.bytes`."""
        if metadata is not None and len(metadata) > self.config.offset_metadata_max_bytes:
            raise OffsetMetadataTooLargeError(
                f"the metadata of the offset has {len(metadata)} characters, but at most "
                f"{self.config.offset_metadata_max_bytes} are allowed (offset.metadata.max.bytes)"
            )

    def commit(self, group: Group, offsets: Mapping[tuple[str, int], CommittedOffset], done: Done) -> None:
        """Write committed offsets. Once they are replicated, fetches return them and `done` is called."""

        def kept(error: BrokerResponseError | None) -> None:
            if error is None:
                with group.lock:
                    group.offsets.update(offsets)
            done(error)

        records = [
            (encode_offset_key(group.group_id, topic, partition), encode_offset(offset))
            for (topic, partition), offset in offsets.items()
        ]
        if records:
            self._append(group.group_id, records, kept)
        else:
            done(None)

    def delete_offsets(
        self, group_id: str, keys: Iterable[tuple[str, int]], done: Callable[[dict[tuple[str, int], int], int], None]
    ) -> None:
        """Delete offsets of topics that no member subscribes to. `done(errors by partition, error of the whole)`."""
        self.check_coordinator(group_id)
        group = self.group(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        errors: dict[tuple[str, int], int] = {}
        with group.lock:
            if group.members and group.protocol_type != "consumer":
                raise NonEmptyGroupError(f"the group {group_id!r} has members")
            subscribed = _subscribed_topics(group)
            doomed = []
            for key in keys:
                if key[0] in subscribed:
                    errors[key] = GroupSubscribedToTopicError.code
                elif self.replicas.image.partition(*key) is None:
                    errors[key] = UnknownTopicOrPartitionError.code
                else:
                    errors[key] = 0
                    if group.offsets.pop(key, None) is not None:
                        doomed.append(key)
        if not doomed:
            done(errors, 0)
            return
        records = [(encode_offset_key(group_id, topic, partition), None) for topic, partition in doomed]
        self._append(group_id, records, lambda error: done(errors, 0 if error is None else error.code))

    def delete_group(self, group_id: str, done: Done) -> None:
        """Delete an empty group and its offsets. Raises GroupIdNotFoundError, NonEmptyGroupError."""
        if not group_id:
            raise InvalidGroupIdError("the group id is empty; set group.id")
        self.check_coordinator(group_id)
        group = self.group(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        with group.lock:
            if group.state is not GroupState.EMPTY:
                raise NonEmptyGroupError(f"the group {group_id!r} has members, so it can't be deleted")
            group.state = GroupState.DEAD
            keys = list(group.offsets)
            group.offsets.clear()
        with self._lock:
            self._groups.pop(group_id, None)
        records: list[tuple[bytes, bytes | None]] = [
            (encode_offset_key(group_id, topic, partition), None) for topic, partition in keys
        ]
        self._append(group_id, [*records, (encode_group_key(group_id), None)], done)

    def expire(self) -> None:
        """Delete the groups that have been empty for `offsets.retention.minutes`, with their offsets."""
        oldest_ms = self.clock.wall_ms() - self.config.offsets_retention_minutes * 60_000
        for group in self.groups():
            with group.lock:
                if group.state is not GroupState.EMPTY or group.state_since_ms > oldest_ms:
                    continue
                old = [key for key, offset in group.offsets.items() if offset.commit_ms <= oldest_ms]
                is_done = len(old) == len(group.offsets)
            if is_done:
                try:
                    self.delete_group(group.group_id, lambda _error: None)
                except BrokerResponseError as changed:
                    _log.debug("the group %r has changed and does not expire: %s", group.group_id, changed)


def _coordinator_error(error: BrokerResponseError) -> BrokerResponseError:
    """The client's error for a failed write to the offsets topic."""
    if error.code == 6:
        return NotCoordinatorError("this broker has just stopped coordinating the group; find its coordinator")
    return CoordinatorNotAvailableError(f"the group couldn't be written: {error}")


def _subscribed_topics(group: Group) -> set[str]:
    """The topics in the subscriptions of a consumer group's members (ConsumerProtocolSubscription)."""
    topics: set[str] = set()
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name or "")
        try:
            (count,) = struct.unpack_from(">i", metadata, 2)
            position = 6
            for _ in range(count):
                (size,) = struct.unpack_from(">h", metadata, position)
                topics.add(metadata[position + 2 : position + 2 + size].decode())
                position += 2 + size
        except (struct.error, UnicodeDecodeError):
            _log.debug("the member %s has metadata of another protocol than Kafka's consumers", member.member_id)
    return topics


def _read_groups(partition: Partition) -> dict[str, Group]:
    """Read the groups in a partition of the offsets topic."""
    groups: dict[str, Group] = {}
    log = partition.log
    for batch in log.batches(log.log_start_offset, log.end.offset):
        if batch.is_control:
            continue
        for record in batch.records():
            try:
                _apply_record(groups, record.key, record.value)
            except (ValueError, struct.error):
                _log.warning("%r: skipping an unreadable record at offset %d", partition, record.offset)
    return {name: group for name, group in groups.items() if group.offsets or group.generation or group.members}


def _apply_record(groups: dict[str, Group], key: bytes | None, value: bytes | None) -> None:
    decoded = decode_key(bytes(key)) if key is not None else None
    if isinstance(decoded, OffsetKey):
        group = groups.setdefault(decoded.group_id, Group(decoded.group_id))
        if value is None:
            group.offsets.pop((decoded.topic, decoded.partition), None)
        else:
            group.offsets[decoded.topic, decoded.partition] = decode_offset(bytes(value))
    elif isinstance(decoded, GroupKey):
        group = groups.setdefault(decoded.group_id, Group(decoded.group_id))
        group.members.clear()
        group.static_members.clear()
        if value is None:
            group.generation = 0
        else:
            _restore(group, decode_group(bytes(value)))


def _restore(group: Group, stored: StoredGroup) -> None:
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol_name
    group.generation = stored.generation
    group.state_since_ms = stored.state_since_ms
    group.leader_id = None
    for each in stored.members:
        protocols = ((stored.protocol_name or "", each.subscription),)
        group.add(
            Member(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
                protocols,
                assignment=each.assignment,
            )
        )
    group.leader_id = stored.leader_id
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
