"""A group and its members (Kafka's `ClassicGroup`)."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..timer import TimerTask

NO_GENERATION = -1


class GroupState(enum.Enum):
    """The state of a group. The values are the names in Kafka's protocol."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: State -> the states from which it can be reached. Any other transition is a defect.
TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(
        {
            GroupState.EMPTY,
            GroupState.PREPARING_REBALANCE,
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
            GroupState.DEAD,
        }
    ),
}


class JoinResult(NamedTuple):
    """The response to a join."""

    member_id: str
    error_code: int = 0
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Sequence[tuple[str, str | None, bytes]] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The response to a sync."""

    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class CommittedOffset(NamedTuple):
    """The offset at which a group resumes in a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


class PendingOffset(NamedTuple):
    """An offset that a transaction commits. `position` is its record's offset in the offsets topic, -1 until then."""

    committed: CommittedOffset
    position: int


@dataclass(slots=True, eq=False)
class Member:
    """One member. `join` and `sync` are the callbacks of its pending requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join: Callable[[JoinResult], None] | None = None
    sync: Callable[[SyncResult], None] | None = None
    session: TimerTask | None = None

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol; empty if it does not support that."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def answer_join(self, result: JoinResult) -> None:
        join, self.join = self.join, None
        if join is not None:
            join(result)

    def answer_sync(self, result: SyncResult) -> None:
        sync, self.sync = self.sync, None
        if sync is not None:
            sync(result)


@dataclass(slots=True, eq=False)
class Group:
    """A group. `lock` guards all of it and is acquired before any other lock of the broker except the coordinator's
    table.

    pending_offsets: those of open transactions, by producer id. positions: where the records of `offsets` are in the
    offsets topic; of a transaction's and another offset the later record counts, whenever the transaction ends.
    """

    group_id: str
    lock: threading.RLock = field(default_factory=threading.RLock)  # type: ignore[valid-type]
    state: GroupState = GroupState.EMPTY
    state_since_ms: int = 0
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    pending_members: dict[str, TimerTask] = field(default_factory=dict)
    pending_syncs: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, int], CommittedOffset] = field(default_factory=dict)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    pending_offsets: dict[int, dict[tuple[str, int], PendingOffset]] = field(default_factory=dict)

    def move_to(self, state: GroupState, wall_ms: int) -> None:
        if self.state not in TRANSITIONS[state]:
            raise RuntimeError(f"the group {self.group_id!r} can't go from {self.state.value} to {state.value}")
        self.state = state
        self.state_since_ms = wall_ms

    # --- Offsets ---

    def commit_offset(self, key: tuple[str, int], committed: CommittedOffset, position: int) -> None:
        """Apply a committed offset, unless a later record has committed another."""
        if position >= self.positions.get(key, -1):
            self.offsets[key] = committed
            self.positions[key] = position

    def forget_offset(self, key: tuple[str, int]) -> bool:
        """Remove an offset. True if there was one."""
        self.positions.pop(key, None)
        return self.offsets.pop(key, None) is not None

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply or drop the pending offsets of a producer's transaction."""
        pending = self.pending_offsets.pop(producer_id, {})
        if is_commit:
            for key, (committed, position) in pending.items():
                self.commit_offset(key, committed, position)

    def unstable(self) -> set[tuple[str, int]]:
        """The partitions whose offsets an open transaction commits."""
        return {key for pending in self.pending_offsets.values() for key in pending}

    # --- Members ---

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_members.pop(member.member_id, None)

    def remove(self, member: Member) -> None:
        self.members.pop(member.member_id, None)
        self.pending_syncs.discard(member.member_id)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static(self, member: Member, new_id: str) -> None:
        """Give a returning static member a new id. Requests with the old id are fenced."""
        old_id = member.member_id
        order = [new_id if key == old_id else key for key in self.members]
        del self.members[old_id]
        member.member_id = new_id
        self.members[new_id] = member
        self.members = {key: self.members[key] for key in order}
        self.static_members[member.instance_id or ""] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        """Whether every member waits for the next generation, and no new member has yet to join with its id."""
        return not self.pending_members and all(member.join is not None for member in self.members.values())

    # --- Protocols ---

    def supports(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a client with these protocols can be a member."""
        if not self.members:
            return bool(protocol_type) and bool(names)
        if protocol_type != self.protocol_type:
            return False
        return bool(names & self.common_protocols())

    def common_protocols(self) -> set[str]:
        """The protocols that all members support."""
        sets = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*sets) if sets else set()

    def select_protocol(self) -> str:
        """The protocol that most members prefer among the common ones."""
        candidates = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def next_generation(self, wall_ms: int) -> None:
        """Begin the next generation with the current members."""
        self.generation = (self.generation + 1) & 0x7FFFFFFF
        if self.members:
            self.protocol_name = self.select_protocol()
            self.move_to(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.move_to(GroupState.EMPTY, wall_ms)
        self.pending_syncs.clear()

    def member_list(self) -> list[tuple[str, str | None, bytes]]:
        """The members as sent to the leader, who assigns partitions to them."""
        protocol = self.protocol_name or ""
        return [(each.member_id, each.instance_id, each.metadata(protocol)) for each in self.members.values()]

    def join_result(
        self, member: Member, *, with_members: bool | None = None, skip_assignment: bool = False
    ) -> JoinResult:
        is_leader = member.member_id == self.leader_id if with_members is None else with_members
        return JoinResult(
            member.member_id,
            0,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader_id or "",
            self.member_list() if is_leader else (),
            skip_assignment,
        )
