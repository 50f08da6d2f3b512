"""A broker's replica of a partition, leader or follower (Kafka's `Partition`)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import NamedTuple

from ...network.clock import LONG_AGO_MS, Clock
from ...network.protocol.errors import (
    FencedLeaderEpochError,
    MessageSizeTooLargeError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OffsetNotAvailableError,
    UnknownLeaderEpochError,
)
from ..log.batch_header import read_header
from ..log.log import AppendInfo, Log, LogRead
from ..log.markers import Marker
from ..log.producer_state import NOT_REQUIRED, Verification
from ..log.validation import check_client_batch, recompressed
from ..metadata import NO_LEADER, PartitionState

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class FollowerState:
    """A follower as its leader sees it: how far it has fetched, and when it had last caught up (monotonic ms)."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_caught_up_ms: float = LONG_AGO_MS
    last_fetch_ms: float = LONG_AGO_MS
    leader_end_at_last_fetch: int = UNKNOWN_OFFSET


class IsrProposal(NamedTuple):
    """The in-sync replicas that a leader proposes to the controller, and the epochs of the proposal."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class MarkerAppend(NamedTuple):
    """A marker to append, with the level of `transaction.version` of its transaction."""

    producer_id: int
    producer_epoch: int
    marker: Marker
    level: int


class OwnBatch(NamedTuple):
    """A batch of a coordinator, without sequence numbers. `verification` is the one begun for it, if it may be the
    first of a transaction."""

    batch: memoryview
    verification: Verification | None = NOT_REQUIRED


class Partition:
    """One replica and, if this broker leads, its view of the others.

    The log's own lock is the only lock of a partition: every method that changes something acquires it. No code under
    the lock calls anything that could acquire another partition's lock or the controller's. What has to follow a change
    (completing delayed operations, proposing in-sync replicas to the controller) is done by the ReplicaManager after
    the lock is released.

    Invariants: `isr` includes the leader. The high watermark is the smallest log end of the in-sync replicas, including
    those proposed to the controller, and never decreases while this broker leads.

    topic, index, topic_id: the partition.
    broker_id: the id of this broker.
    log: the replica's log.
    clock: the time of fetches.
    """

    def __init__(self, topic: str, index: int, topic_id: uuid.UUID, broker_id: int, log: Log, clock: Clock) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.log = log
        self.clock = clock
        self.key = (topic, index)
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.leader_epoch_start = 0
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.isr_change_pending = False
        self._proposed_isr: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Partition({self.topic}-{self.index}, leader {self.leader_id}, epoch {self.leader_epoch}, isr {self.isr})"
        )

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.broker_id

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, but at most the number of replicas."""
        return min(self.log.config.min_insync_replicas, max(len(self.replicas), 1))

    # --- Roles ---

    def apply(self, state: PartitionState) -> bool:
        """Apply the controller's decision. True if the leader or its epoch is new."""
        with self.log.lock:
            if state.partition_epoch < self.partition_epoch or state.leader_epoch < self.leader_epoch:
                return False
            is_new_epoch = state.leader_epoch > self.leader_epoch or state.leader != self.leader_id
            self.replicas = state.replicas
            self.isr = state.isr
            self.partition_epoch = state.partition_epoch
            self.isr_change_pending = False
            self._proposed_isr = ()
            if is_new_epoch:
                self.leader_id = state.leader
                self.leader_epoch = state.leader_epoch
                if self.is_leader:
                    self._become_leader()
                else:
                    self.followers = {}
            elif self.is_leader:
                self._know_followers()
            if self.is_leader:
                self._advance_high_watermark()
            return is_new_epoch

    def _become_leader(self) -> None:
        self.leader_epoch_start = self.log.end.offset
        # The epoch is recorded before its first record, so that a follower of an older epoch can look up where that
        # ended. The file can be written later: the first batch implies the entry, and without a batch no replica
        # needs it after a crash.
        self.log.leader_epochs.assign(self.leader_epoch, self.log.end.offset, write=False)
        self.followers = {}
        self._know_followers()

    def _know_followers(self) -> None:
        now_ms = self.clock.now_ms()
        known = self.followers
        self.followers = {
            # A follower that was in sync has the full lag time to fetch from the new leader.
            node: known.get(node) or FollowerState(last_caught_up_ms=now_ms if node in self.isr else LONG_AGO_MS)
            for node in self.replicas
            if node != self.broker_id
        }

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Raise unless this broker leads in the epoch that the client knows (KIP-320): NotLeaderForPartitionError,
        FencedLeaderEpochError, UnknownLeaderEpochError."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderForPartitionError(
                f"broker {self.broker_id} doesn't lead {self.topic}-{self.index}, broker {self.leader_id} does"
            )

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise FencedLeaderEpochError or UnknownLeaderEpochError unless the epoch is the current one. -1 skips the
        check."""
        if current_leader_epoch < 0:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"{self.topic}-{self.index} is in epoch {self.leader_epoch}, epoch {current_leader_epoch} "
                "has ended; refresh metadata"
            )
        if current_leader_epoch > self.leader_epoch:
            raise UnknownLeaderEpochError(
                f"{self.topic}-{self.index} is in epoch {self.leader_epoch} on this broker, "
                f"which does not know epoch {current_leader_epoch} yet"
            )

    # --- Records ---

    def append(
        self, records: memoryview, *, required_acks: int, verification: Verification | None = NOT_REQUIRED
    ) -> tuple[AppendInfo, bool]:
        """Append a client's batch. Also returns whether the high watermark advanced. `verification` is the one begun
        for a batch that begins a transaction. Raises the errors of `check_client_batch`, `recompressed` and
        `Log.append_as_leader`, NotLeaderForPartitionError, NotEnoughReplicasError."""
        log = self.log
        header = check_client_batch(records, log.config, log.clock.wall_ms())
        records, header = recompressed(records, header, log.config)
        with log.lock:
            self._check_append(required_acks)
            info = log.append_as_leader(records, header, self.leader_epoch, verification=verification)
            return info, self._advance_high_watermark()

    def append_own(self, content: OwnBatch | MarkerAppend, leader_epoch: int = -1) -> tuple[AppendInfo, bool]:
        """Append a batch of a coordinator, or a transaction's marker, with acks=all. Returns as `append` does.

        With a `leader_epoch`, only in that epoch: a coordinator must not write once another one has written. Raises the
        errors of `Log.append_as_leader` and `Log.append_marker`, NotLeaderForPartitionError, NotEnoughReplicasError.
        """
        log = self.log
        with log.lock:
            self._check_append(-1)
            if leader_epoch not in (-1, self.leader_epoch):
                raise NotLeaderForPartitionError(
                    f"{self.topic}-{self.index} is in epoch {self.leader_epoch}; epoch {leader_epoch} has ended"
                )
            if isinstance(content, MarkerAppend):
                info = log.append_marker(*content, self.leader_epoch)
            else:
                batch, verification = content
                if len(batch) > log.config.max_message_bytes:
                    raise MessageSizeTooLargeError(
                        f"the batch has {len(batch)} bytes, but {self.topic} accepts at most "
                        f"{log.config.max_message_bytes} (max.message.bytes)"
                    )
                info = log.append_as_leader(
                    batch, read_header(batch), self.leader_epoch, is_coordinator=True, verification=verification
                )
            return info, self._advance_high_watermark()

    def _check_append(self, required_acks: int) -> None:
        if self.leader_id != self.broker_id:
            self.check_leader()
        if required_acks == -1 and len(self.isr) < self.min_isr:
            raise NotEnoughReplicasError(
                f"{self.topic}-{self.index} has {len(self.isr)} in-sync replicas, but min.insync.replicas is "
                f"{self.min_isr}"
            )

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int,
        is_follower: bool,
        committed_only: bool,
        min_one_batch: bool,
    ) -> LogRead:
        """Read for a client (up to the high watermark or the last stable offset) or a follower (to the log's end).

        Raises the errors of `check_leader`, OffsetOutOfRangeError, KafkaStorageError.
        """
        self.check_leader(current_leader_epoch)
        log = self.log
        up_to = log.end.offset if is_follower else self.readable_offset(committed_only)
        return log.read(offset, max_bytes, up_to=up_to, min_one_batch=min_one_batch)

    def readable_offset(self, committed_only: bool) -> int:
        """The end of the log for a client."""
        return self.log.last_stable_offset if committed_only else self.log.high_watermark

    def check_high_watermark_is_known(self) -> None:
        """Raise OffsetNotAvailableError until a new leader knows the positions of its followers (KIP-207)."""
        if self.log.high_watermark < self.leader_epoch_start and len(self.isr) > 1:
            raise OffsetNotAvailableError(
                f"the leader of {self.topic}-{self.index} doesn't know its high watermark yet"
            )

    # --- Followers ---

    def note_fetch(self, node: int, offset: int, log_start_offset: int) -> bool:
        """A follower fetches from `offset`, so it has everything before. True if the high watermark advanced."""
        with self.log.lock:
            follower = self.followers.get(node)
            if follower is None or not self.is_leader:
                return False
            now_ms = self.clock.now_ms()
            end = self.log.end.offset
            # A follower that has everything up to the log's end at its previous fetch counts as caught up, too: under
            # load no follower ever reaches the current end.
            if offset >= end:
                follower.last_caught_up_ms = now_ms
            elif offset >= follower.leader_end_at_last_fetch >= 0:
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
            follower.log_end_offset = offset
            follower.log_start_offset = log_start_offset
            follower.leader_end_at_last_fetch = end
            follower.last_fetch_ms = now_ms
            return self._advance_high_watermark()

    def _advance_high_watermark(self) -> bool:
        log = self.log
        followers = self.followers
        offset = log.end.offset
        if followers:
            if len(self.isr) < self.min_isr:
                return False
            for in_sync in (self.isr, self._proposed_isr):
                for node in in_sync:
                    follower = followers.get(node)
                    if follower is not None and follower.log_end_offset < offset:
                        offset = follower.log_end_offset
        return log.advance_high_watermark(offset)

    def followers_to_add(self) -> tuple[int, ...]:
        """Followers outside the in-sync replicas that have reached the high watermark in this leader's epoch."""
        if not self.is_leader or self.isr_change_pending or len(self.isr) == len(self.replicas):
            return ()
        high_watermark = self.log.high_watermark
        return tuple(
            node
            for node, follower in self.followers.items()
            if node not in self.isr
            and follower.log_end_offset >= high_watermark
            and follower.log_end_offset >= self.leader_epoch_start
        )

    def followers_to_drop(self, max_lag_ms: float) -> tuple[int, ...]:
        """In-sync followers that haven't caught up for `max_lag_ms`."""
        if not self.is_leader or self.isr_change_pending or len(self.isr) <= 1:
            return ()
        oldest_ms = self.clock.now_ms() - max_lag_ms
        end = self.log.end.offset
        return tuple(
            node
            for node in self.isr
            if node != self.broker_id
            and (follower := self.followers.get(node)) is not None
            and follower.log_end_offset != end
            and follower.last_caught_up_ms < oldest_ms
        )

    def propose_expansion(self) -> IsrProposal | None:
        """Propose to add the followers that have caught up to the in-sync replicas; None if there are none.

        From now on they count for the high watermark: the controller may elect one of them before this broker receives
        the new in-sync replicas (Kafka's `PendingExpandIsr`).
        """
        with self.log.lock:
            self.isr_change_pending = False
            added = self.followers_to_add()
            return self._propose((*self.isr, *added)) if added else None

    def propose_shrinking(self, max_lag_ms: float) -> IsrProposal | None:
        """Propose to remove lagging followers; None if there are none. They count until the controller agrees."""
        with self.log.lock:
            dropped = self.followers_to_drop(max_lag_ms)
            return self._propose(tuple(node for node in self.isr if node not in dropped)) if dropped else None

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        self.isr_change_pending = True
        self._proposed_isr = isr
        return IsrProposal(isr, self.leader_epoch, self.partition_epoch)

    def end_proposal(self, proposal: IsrProposal, *, is_refused: bool) -> None:
        """Finish a proposal after the controller's response, or without one. An accepted proposal arrives with the next
        image; a rejected one is dropped. Without a response the outcome is unknown, and the proposed replicas still
        count."""
        with self.log.lock:
            if proposal.partition_epoch == self.partition_epoch:
                self.isr_change_pending = False
                if is_refused:
                    self._proposed_isr = ()

    # --- Following ---

    def append_as_follower(
        self, records: memoryview, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Append what the leader of `leader_epoch` sent. False if this broker no longer follows that leader.

        Raises the errors of `Log.append_as_follower`.
        """
        log = self.log
        with log.lock:
            if self.is_leader or self.leader_epoch != leader_epoch:
                return False
            if len(records):
                log.append_as_follower(records)
            log.advance_high_watermark(high_watermark)
            if log_start_offset > log.log_start_offset:
                log.advance_log_start_offset(min(log_start_offset, log.high_watermark))
            return True

    def truncate_to_divergence(self, leader_epoch: int, epoch: int, end_offset: int) -> bool:
        """Truncate the records that the leader doesn't have: its `epoch` ended at `end_offset` (KIP-101, KIP-279).

        If this log doesn't have the epoch, it is truncated to the end of the previous one, and the next fetch continues
        the search. False if this broker no longer follows that leader. Raises OSError.
        """
        log = self.log
        with log.lock:
            if self.is_leader or self.leader_epoch != leader_epoch:
                return False
            own_epoch, own_end = log.leader_epochs.end_offset_for(epoch, log.end.offset)
            if own_epoch < 0:
                target = end_offset
            elif own_epoch != epoch:
                target = own_end
            else:
                target = min(end_offset, own_end)
            log.truncate_to(min(target, log.end.offset))
            return True

    def start_anew(self, leader_epoch: int, leader_start: int, leader_end: int) -> bool:
        """Resume where this log and the leader's don't overlap (OFFSET_OUT_OF_RANGE): truncate to the leader's end, or
        restart at the leader's start. False if this broker no longer follows that leader. Raises OSError."""
        log = self.log
        with log.lock:
            if self.is_leader or self.leader_epoch != leader_epoch:
                return False
            if log.end.offset > leader_end:
                log.truncate_to(leader_end)
            elif log.end.offset < leader_start:
                log.truncate_fully_and_start_at(leader_start)
            return True

    # --- Waiting for replicas ---

    def is_replicated(self, required_offset: int) -> bool:
        """Whether every in-sync replica has all records before `required_offset`. Raises NotLeaderForPartitionError,
        NotEnoughReplicasAfterAppendError."""
        if not self.is_leader:
            self.check_leader()
        if self.log.high_watermark < required_offset:
            return False
        if len(self.isr) < self.min_isr:
            raise NotEnoughReplicasAfterAppendError(
                f"{self.topic}-{self.index} appended the records, but now has only {len(self.isr)} in-sync replicas; "
                f"min.insync.replicas is {self.min_isr}"
            )
        return True
