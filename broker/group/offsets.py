"""The groups stored in `__consumer_offsets` that this broker coordinates, and their committed offsets."""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from ...network.clock import Clock
from ...network.protocol.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from ...network.protocol.other_errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NonEmptyGroupError
from ...network.records.batch import TRANSACTIONAL_MASK
from ...network.records.builder_cy import build_batch
from ...network.records.record import Record
from ..config.broker_config import BrokerConfig
from ..internal_topics import OFFSETS_TOPIC, InternalTopic, NewInternalTopic, TopicMaker, partition_for
from ..log.markers import read_marker
from ..log.producer_state import NO_PRODUCER_ID, Verification
from ..metadata import PartitionKey
from ..replica.delayed_produce import ProduceResult
from ..replica.manager import ReplicaManager
from ..replica.partition import OwnBatch, Partition
from ..scheduler import Scheduler
from .group import CommittedOffset, Group, GroupState, Member, PendingOffset
from .store import (
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
        self.internal_topic = InternalTopic(OFFSETS_TOPIC, "group", replicas, controller, self._new_topic)
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        self._loaded: dict[int, int] = {}  # partition -> the leader epoch it was loaded in
        self._loading: set[int] = set()
        self._outbox: deque[tuple[str, list[tuple[bytes, bytes | None]], Done]] = deque()
        self._outbox_lock = threading.RLock()
        self.on_adopted: Callable[[Group], None] = lambda group: None

    # --- Which broker ---

    def _new_topic(self) -> NewInternalTopic:
        config = self.config
        return NewInternalTopic(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {"cleanup.policy": "compact", "segment.bytes": str(config.offsets_topic_segment_bytes)},
        )

    def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates a group. Raises CoordinatorNotAvailableError."""
        return self.internal_topic.leader_of(group_id)

    def check_coordinator(self, group_id: str) -> None:
        """Raise NotCoordinatorError, CoordinatorNotAvailableError or CoordinatorLoadInProgressError unless this broker
        coordinates the group."""
        self._partition_of(group_id)

    def _partition_of(self, group_id: str) -> Partition:
        partition = self.internal_topic.led_partition(group_id)
        index = partition.index
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
        count = len(self.internal_topic.state(make=False).partitions)
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

    def is_loaded(self, index: int) -> bool:
        """Whether this broker leads a partition of the offsets topic and has its groups in memory."""
        partition = self.replicas.partitions.get((OFFSETS_TOPIC, index))
        if partition is None or not partition.is_leader:
            return False
        if self._loaded.get(index) != partition.leader_epoch:
            self._load_later(partition)
        return self._loaded.get(index) == partition.leader_epoch

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

    def _append(
        self,
        group_id: str,
        records: Iterable[tuple[bytes, bytes | None]],
        done: Done,
        on_position: Callable[[int], None] = lambda _position: None,
    ) -> None:
        """Write records. `on_position` is called with the offset of the first one before `done`, if that succeeded."""
        try:
            partition = self._partition_of(group_id)
        except BrokerResponseError as error:
            done(error)
            return
        now_ms = self.clock.wall_ms()
        batch = build_batch([(now_ms, key, value) for key, value in records])
        self._append_batch(partition, OwnBatch(batch), done, on_position)

    def _append_batch(
        self, partition: Partition, batch: OwnBatch, done: Done, on_position: Callable[[int], None]
    ) -> None:
        def respond(results: dict[PartitionKey, ProduceResult]) -> None:
            result = results[partition.key]
            if result.error is None and result.info is not None:
                on_position(result.info.first_offset)
            done(None if result.error is None else coordinator_error(result.error))

        self.replicas.append_own(self.config.offsets_commit_timeout_ms, [(partition.key, batch)], respond)

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
            self._check_member(group, generation, member_id, instance_id)
            if group.state is GroupState.COMPLETING_REBALANCE:
                raise RebalanceInProgressError("the group is rebalancing; join and sync first")
        return group

    @staticmethod
    def _check_member(group: Group, generation: int, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None and group.static_members.get(instance_id, member_id) != member_id:
            raise FencedInstanceIdError(f"another member has taken over the instance id {instance_id!r}")
        if member_id not in group.members:
            raise UnknownMemberIdError(
                f"the group {group.group_id!r} has members, but {member_id!r} is not one of them"
            )
        if generation != group.generation:
            raise IllegalGenerationError(f"generation {generation} has ended; the current is {group.generation}")

    def check_metadata(self, metadata: str | None) -> None:
        """Raise OffsetMetadataTooLargeError if it is longer than `offset.metadata.max.bytes`."""
        if metadata is not None and len(metadata) > self.config.offset_metadata_max_bytes:
            raise OffsetMetadataTooLargeError(
                f"the metadata of the offset has {len(metadata)} characters, but at most "
                f"{self.config.offset_metadata_max_bytes} are allowed (offset.metadata.max.bytes)"
            )

    def commit(self, group: Group, offsets: Mapping[tuple[str, int], CommittedOffset], done: Done) -> None:
        """Write committed offsets. Once they are replicated, fetches return them and `done` is called."""

        def written(first: int) -> None:
            with group.lock:
                for position, (key, offset) in enumerate(offsets.items(), first):
                    group.commit_offset(key, offset, position)

        records = [
            (encode_offset_key(group.group_id, topic, partition), encode_offset(offset))
            for (topic, partition), offset in offsets.items()
        ]
        if records:
            self._append(group.group_id, records, done, written)
        else:
            done(None)

    # --- Offsets in transactions ---

    def check_transactional_commit(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> Group:
        """The group for a commit in a transaction, created if it does not exist and the producer names no member.

        A producer that names the member and generation of its consumer is fenced with it (KIP-447); one that names none
        commits without that check. Raises the errors of `check_commit`.
        """
        if not group_id:
            raise InvalidGroupIdError("the group id is empty; set group.id")
        self.check_coordinator(group_id)
        group = self.group(group_id, make=generation < 0)
        if group is None:
            raise IllegalGenerationError(f"there is no group {group_id!r} with a generation {generation}")
        with group.lock:
            if group.state is GroupState.DEAD:
                raise CoordinatorNotAvailableError(f"the group {group_id!r} was deleted or has moved; try again")
            if generation < 0 and group.state is GroupState.EMPTY:
                return group
            if generation >= 0 or member_id or instance_id is not None:
                self._check_member(group, generation, member_id, instance_id)
        return group

    def begin_verification(
        self, group_id: str, producer_id: int, producer_epoch: int, *, adds: bool
    ) -> tuple[PartitionKey, Verification | None]:
        """The partition of a group, and the verification that a transaction's first offsets there need. Raises the
        errors of `check_coordinator`."""
        partition = self._partition_of(group_id)
        verification = partition.log.begin_verification(producer_id, producer_epoch, -1, starts_at_zero=adds)
        return partition.key, verification

    def commit_in_transaction(
        self,
        group: Group,
        producer_id: int,
        producer_epoch: int,
        offsets: Mapping[tuple[str, int], CommittedOffset],
        verification: Verification | None,
        done: Done,
    ) -> None:
        """Write offsets that a transaction commits. They are pending until its marker is written."""
        try:
            partition = self._partition_of(group.group_id)
        except BrokerResponseError as error:
            done(error)
            return
        # Before the append: a marker that follows the records must find them.
        new = {key: PendingOffset(offset, -1) for key, offset in offsets.items()}
        with group.lock:
            group.pending_offsets.setdefault(producer_id, {}).update(new)

        def written(first: int) -> None:
            with group.lock:
                pending = group.pending_offsets.get(producer_id, {})
                for position, (key, offset) in enumerate(offsets.items(), first):
                    if key in pending:
                        pending[key] = PendingOffset(offset, position)

        def finished(error: BrokerResponseError | None) -> None:
            if error is not None:
                with group.lock:
                    pending = group.pending_offsets.get(producer_id, {})
                    for key, offset in new.items():
                        if pending.get(key) is offset:
                            del pending[key]
                    if not pending:
                        group.pending_offsets.pop(producer_id, None)
            done(error)

        now_ms = self.clock.wall_ms()
        batch = build_batch(
            [
                (now_ms, encode_offset_key(group.group_id, topic, index), encode_offset(offset))
                for (topic, index), offset in offsets.items()
            ],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            attributes=TRANSACTIONAL_MASK,
        )
        self._append_batch(partition, OwnBatch(batch, verification), finished, written)

    def end_transaction(self, index: int, producer_id: int, *, is_commit: bool) -> None:
        """A marker was written to a partition of the offsets topic: apply or drop the producer's pending offsets."""
        count = len(self.internal_topic.state(make=False).partitions)
        for group in self.groups():
            if producer_id in group.pending_offsets and partition_for(group.group_id, count) == index:
                with group.lock:
                    group.end_transaction(producer_id, is_commit=is_commit)

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
                    if group.forget_offset(key):
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
            group.positions.clear()
            group.pending_offsets.clear()
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
                is_in_use = group.state is not GroupState.EMPTY or group.pending_offsets
                if is_in_use or group.state_since_ms > oldest_ms:
                    continue
                old = [key for key, offset in group.offsets.items() if offset.commit_ms <= oldest_ms]
                is_done = len(old) == len(group.offsets)
            if is_done:
                try:
                    self.delete_group(group.group_id, lambda _error: None)
                except BrokerResponseError as changed:
                    _log.debug("the group %r has changed and does not expire: %s", group.group_id, changed)


def coordinator_error(error: BrokerResponseError) -> BrokerResponseError:
    """The client's error for a failed write to the offsets topic."""
    if isinstance(error, (InvalidProducerEpochError, InvalidTxnStateError)):
        return error
    if isinstance(error, NotLeaderForPartitionError):
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
            marker = read_marker(batch)
            if marker is not None:
                for group in groups.values():
                    group.end_transaction(batch.producer_id, is_commit=marker.is_commit)
            continue
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        for record in batch.records():
            try:
                _apply_record(groups, record, producer_id)
            except (ValueError, struct.error):
                _log.warning("%r: skipping an unreadable record at offset %d", partition, record.offset)
    return {
        name: group
        for name, group in groups.items()
        if group.offsets or group.generation or group.members or group.pending_offsets
    }


def _apply_record(groups: dict[str, Group], record: Record, producer_id: int) -> None:
    value = record.value
    decoded = decode_key(bytes(record.key)) if record.key is not None else None
    if isinstance(decoded, OffsetKey):
        group = groups.setdefault(decoded.group_id, Group(decoded.group_id))
        key = (decoded.topic, decoded.partition)
        if value is None:
            group.forget_offset(key)
        elif producer_id == NO_PRODUCER_ID:
            group.commit_offset(key, decode_offset(bytes(value)), record.offset)
        else:
            pending = PendingOffset(decode_offset(bytes(value)), record.offset)
            group.pending_offsets.setdefault(producer_id, {})[key] = pending
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
