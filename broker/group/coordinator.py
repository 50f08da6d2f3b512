"""The coordinator of classic groups: joins, syncs, heartbeats, leaves (Kafka's `GroupCoordinator`, KIP-62, 345, 394).

A join waits for the other members in the purgatory, keyed by its group. A timer removes each member that sends nothing
within its session timeout.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...network.clock import Clock
from ...network.protocol.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidGroupIdError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)
from ...network.protocol.other_errors import (
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
)
from ..config.broker_config import BrokerConfig
from ..purgatory import DelayedOperation, DelayedOperationPurgatory
from ..timer import SystemTimer, TimedCall, TimerTask
from .group import Group, GroupState, JoinResult, Member, SyncResult
from .offsets import OffsetStore

_log = logging.getLogger(__name__)


class JoinParams(NamedTuple):
    """The parameters of a JoinGroup request."""

    group_id: str
    member_id: str
    instance_id: str | None
    requires_member_id: bool
    supports_skipping_assignment: bool
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


class DelayedJoin(DelayedOperation):
    """Waits until all members have rejoined, at most for the longest of their rebalance timeouts."""

    __slots__ = ("_coordinator", "_group")

    def __init__(self, coordinator: GroupCoordinator, group: Group, delay_ms: float) -> None:
        super().__init__(delay_ms, group.lock)
        self._coordinator = coordinator
        self._group = group

    def try_complete(self) -> bool:
        return self._group.has_all_joined and self.force_complete()

    def on_complete(self) -> None:
        self._coordinator.complete_join(self._group)

    def on_expiration(self) -> None:
        self._coordinator.store.send_outbox()


class InitialDelayedJoin(DelayedJoin):
    """The first join of an empty group. It waits for `group.initial.rebalance.delay.ms`, so that clients that start
    together form one generation instead of one each."""

    def try_complete(self) -> bool:
        return False


class DelayedSync(TimerTask):
    """Removes the members that joined a generation but did not request their assignment."""

    __slots__ = ("_coordinator", "_generation", "_group")

    def __init__(self, coordinator: GroupCoordinator, group: Group, delay_ms: float) -> None:
        super().__init__(delay_ms)
        self._coordinator = coordinator
        self._group = group
        self._generation = group.generation

    def run(self) -> None:
        self._coordinator.expire_syncs(self._group, self._generation)


class GroupCoordinator:
    """The groups of one broker. Any thread may call it. Each group has its own lock. Responses are also given under it,
    which only queues them."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        timer: SystemTimer,
        purgatory: DelayedOperationPurgatory,
        store: OffsetStore,
    ) -> None:
        self.config = config
        self.clock = clock
        self.store = store
        self._timer = timer
        self._purgatory = purgatory

    # --- Join ---

    def join(self, params: JoinParams, respond: Callable[[JoinResult], None]) -> None:
        """Join a group. `respond` is called once, when the generation begins or with an error."""
        try:
            if not params.group_id:
                raise InvalidGroupIdError("the group id is empty; set group.id")
            self.store.check_coordinator(params.group_id)
            config = self.config
            if not (
                config.group_min_session_timeout_ms <= params.session_timeout_ms <= config.group_max_session_timeout_ms
            ):
                raise InvalidSessionTimeoutError(
                    f"session.timeout.ms is {params.session_timeout_ms}; allowed is "
                    f"{config.group_min_session_timeout_ms} to {config.group_max_session_timeout_ms}"
                )
            group = self.store.group(params.group_id, make=not params.member_id)
            if group is None:
                raise UnknownMemberIdError(f"the group {params.group_id!r} has no member {params.member_id!r}")
            with group.lock:
                self._join(group, params, respond)
        except BrokerResponseError as error:
            respond(JoinResult(params.member_id, error.code))
        else:
            self._after_change(params.group_id)

    def _join(self, group: Group, params: JoinParams, respond: Callable[[JoinResult], None]) -> None:
        if group.state is GroupState.DEAD:
            raise UnknownMemberIdError(f"the group {group.group_id!r} was deleted or has moved; join again")
        names = {name for name, _ in params.protocols}
        if not group.supports(params.protocol_type, names):
            raise InconsistentGroupProtocolError(
                f"the group {group.group_id!r} is of type {group.protocol_type!r} and its members support "
                f"{sorted(group.common_protocols())}; this member is of type {params.protocol_type!r} "
                f"and supports {sorted(names)}"
            )
        if not params.member_id:
            self._check_size(group)
            self._join_anew(group, params, respond)
            return
        if params.member_id in group.pending_members:
            group.pending_members.pop(params.member_id).cancel()
            self._check_size(group)
            self._add_and_rebalance(group, params, params.member_id, respond)
            return
        member = self.find_member(group, params.member_id, params.instance_id)
        self._join_again(group, member, params, respond)

    def _check_size(self, group: Group) -> None:
        if len(group.members) + len(group.pending_members) >= self.config.group_max_size:
            raise GroupMaxSizeReachedError(
                f"the group {group.group_id!r} has reached {self.config.group_max_size} members (group.max.size)"
            )

    def _join_anew(self, group: Group, params: JoinParams, respond: Callable[[JoinResult], None]) -> None:
        member_id = f"{params.instance_id or params.client_id}-{uuid.uuid4()}"
        if params.instance_id is not None:
            old_id = group.static_members.get(params.instance_id)
            if old_id is not None:
                self._return_static(group, group.members[old_id], member_id, params, respond)
                return
        elif params.requires_member_id:
            timeout = TimedCall(params.session_timeout_ms, lambda: self._expire_pending(group, member_id))
            group.pending_members[member_id] = timeout
            self._timer.add(timeout)
            respond(JoinResult(member_id, MemberIdRequiredError.code))
            return
        self._add_and_rebalance(group, params, member_id, respond)

    def _return_static(
        self,
        group: Group,
        member: Member,
        new_id: str,
        params: JoinParams,
        respond: Callable[[JoinResult], None],
    ) -> None:
        """A static member has restarted. It takes its old place, without a rebalance if its subscription is
        unchanged."""
        fenced = FencedInstanceIdError.code
        old_metadata = member.metadata(group.protocol_name or "")
        old_id = member.member_id
        was_leader = group.leader_id == old_id
        member.answer_join(JoinResult(member.member_id, fenced))
        member.answer_sync(SyncResult(fenced))
        group.replace_static(member, new_id)
        self._take_params(member, params)
        self.heard_of(group, member)
        if group.state is GroupState.STABLE:
            metadata = dict(params.protocols).get(group.protocol_name or "")
            if metadata == old_metadata and group.protocol_name in group.common_protocols():
                # A restarted leader would assign again unless it supports skipping that: give its old id as the leader.
                if was_leader and not params.supports_skipping_assignment:
                    result = group.join_result(member, with_members=False)._replace(leader=old_id)
                else:
                    result = group.join_result(member, skip_assignment=was_leader)
                self.store.keep_group(group, lambda _error: None)
                respond(result)
                return
            member.join = respond
            self._prepare_rebalance(group)
        elif group.state is GroupState.COMPLETING_REBALANCE:
            member.join = respond
            self._prepare_rebalance(group)
        else:
            member.join = respond

    def _add_and_rebalance(
        self, group: Group, params: JoinParams, member_id: str, respond: Callable[[JoinResult], None]
    ) -> None:
        member = Member(
            member_id,
            params.instance_id,
            params.client_id,
            params.client_host,
            params.session_timeout_ms,
            params.rebalance_timeout_ms,
            params.protocols,
            join=respond,
        )
        if not group.members:
            group.protocol_type = params.protocol_type
        group.add(member)
        self.heard_of(group, member)
        self._prepare_rebalance(group)

    def _join_again(
        self, group: Group, member: Member, params: JoinParams, respond: Callable[[JoinResult], None]
    ) -> None:
        same = member.protocols == params.protocols
        state = group.state
        if state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"the group {group.group_id!r} has lost its members; join again")
        if same and (
            state is GroupState.COMPLETING_REBALANCE
            or (state is GroupState.STABLE and member.member_id != group.leader_id)
        ):
            # The response to an earlier join was lost.
            self.heard_of(group, member)
            respond(group.join_result(member))
            return
        self._take_params(member, params)
        if member.join is not None:
            # The member has abandoned its earlier request.
            member.answer_join(JoinResult(member.member_id, RebalanceInProgressError.code))
        member.join = respond
        self.heard_of(group, member)
        self._prepare_rebalance(group)

    @staticmethod
    def _take_params(member: Member, params: JoinParams) -> None:
        member.client_id = params.client_id
        member.client_host = params.client_host
        member.protocols = params.protocols
        member.session_timeout_ms = params.session_timeout_ms
        member.rebalance_timeout_ms = params.rebalance_timeout_ms

    def _prepare_rebalance(self, group: Group) -> None:
        """Make all members rejoin. Callers check the purgatory for the group once the group's lock is released."""
        if group.state is GroupState.PREPARING_REBALANCE:
            return
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                member.answer_sync(SyncResult(RebalanceInProgressError.code))
        delayed: DelayedJoin
        if group.state is GroupState.EMPTY and self.config.group_initial_rebalance_delay_ms > 0:
            delayed = InitialDelayedJoin(self, group, self.config.group_initial_rebalance_delay_ms)
        else:
            delayed = DelayedJoin(self, group, group.rebalance_timeout_ms)
        group.move_to(GroupState.PREPARING_REBALANCE, self.clock.wall_ms())
        self._purgatory.try_complete_else_watch(delayed, [group.group_id])

    def complete_join(self, group: Group) -> None:
        """Begin the next generation with the joined members: all have joined, or the rebalance timeout has passed."""
        with group.lock:
            if group.state is not GroupState.PREPARING_REBALANCE:
                return
            for member in [each for each in group.members.values() if each.join is None]:
                # A static member keeps its place until its session expires.
                if member.instance_id is None:
                    self._take_out(group, member)
            joined = [member for member in group.members.values() if member.join is not None]
            if group.members and not joined:
                # Only absent static members are left: wait for them again.
                group.state = GroupState.STABLE
                self._prepare_rebalance(group)
                return
            if joined and group.leader_id not in {member.member_id for member in joined}:
                group.leader_id = joined[0].member_id
            group.next_generation(self.clock.wall_ms())
            if not group.members:
                _log.info("the group %r has no members left", group.group_id)
                self.store.keep_group(group, lambda _error: None)
                return
            group.pending_syncs = {member.member_id for member in group.members.values()}
            for member in joined:
                self.heard_of(group, member)
                member.answer_join(group.join_result(member))
            self._timer.add(DelayedSync(self, group, group.rebalance_timeout_ms))

    # --- Sync ---

    def sync(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: dict[str, bytes],
        respond: Callable[[SyncResult], None],
    ) -> None:
        """Request an assignment; the leader sends the assignments of all members. `respond` is called once."""
        try:
            group = self._known_group(group_id)
            with group.lock:
                member = self.find_member(group, member_id, instance_id)
                if generation != group.generation:
                    raise IllegalGenerationError(
                        f"generation {generation} has ended; the current is {group.generation}"
                    )
                if (protocol_type is not None and protocol_type != group.protocol_type) or (
                    protocol_name is not None and protocol_name != group.protocol_name
                ):
                    raise InconsistentGroupProtocolError(
                        f"the generation uses the protocol {group.protocol_name!r}, not {protocol_name!r}"
                    )
                self._sync(group, member, assignments, respond)
        except BrokerResponseError as error:
            respond(SyncResult(error.code))
        else:
            self.store.send_outbox()

    def _sync(
        self, group: Group, member: Member, assignments: dict[str, bytes], respond: Callable[[SyncResult], None]
    ) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError("the group is rebalancing; rejoin")
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"the group {group.group_id!r} has no members")
        group.pending_syncs.discard(member.member_id)
        self.heard_of(group, member)
        if group.state is GroupState.STABLE:
            respond(SyncResult(0, group.protocol_type, group.protocol_name, member.assignment))
            return
        member.sync = respond
        if member.member_id != group.leader_id:
            return
        generation = group.generation
        for each in group.members.values():
            each.assignment = assignments.get(each.member_id, b"")

        def kept(error: BrokerResponseError | None) -> None:
            with group.lock:
                # In the meantime a member may have joined or left.
                if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
                    return
                if error is not None:
                    for each in group.members.values():
                        each.assignment = b""
                        each.answer_sync(SyncResult(UnknownError.code))
                    self._prepare_rebalance(group)
                    return
                group.move_to(GroupState.STABLE, self.clock.wall_ms())
                for each in group.members.values():
                    each.answer_sync(SyncResult(0, group.protocol_type, group.protocol_name, each.assignment))

        self.store.keep_group(group, kept)

    def expire_syncs(self, group: Group, generation: int) -> None:
        """Remove the members that joined the generation but sent no sync."""
        with group.lock:
            if group.generation != generation or group.state not in (
                GroupState.COMPLETING_REBALANCE,
                GroupState.STABLE,
            ):
                return
            silent = [group.members[member_id] for member_id in group.pending_syncs if member_id in group.members]
            for member in silent:
                self._take_out(group, member)
            if silent:
                self._prepare_rebalance(group)
        self._after_change(group.group_id)

    # --- Heartbeats ---

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> None:
        """Record that a member is alive. Raises UnknownMemberIdError, IllegalGenerationError,
        RebalanceInProgressError, FencedInstanceIdError and the errors of `OffsetStore.check_coordinator`."""
        group = self._known_group(group_id)
        with group.lock:
            member = self.find_member(group, member_id, instance_id)
            if group.state is GroupState.EMPTY:
                raise UnknownMemberIdError(f"the group {group_id!r} has no members")
            if generation != group.generation:
                raise IllegalGenerationError(f"generation {generation} has ended; the current is {group.generation}")
            self.heard_of(group, member)
            if group.state is GroupState.PREPARING_REBALANCE:
                raise RebalanceInProgressError("the group is rebalancing; rejoin")

    def heard_of(self, group: Group, member: Member) -> None:
        """Restart the member's session timeout."""
        session = member.session
        if session is None or session.delay_ms != member.session_timeout_ms:
            if session is not None:
                session.cancel()
            session = member.session = TimedCall(member.session_timeout_ms, lambda: self._expire_member(group, member))
        self._timer.add(session)

    def _expire_member(self, group: Group, member: Member) -> None:
        with group.lock:
            if group.members.get(member.member_id) is not member or group.state is GroupState.DEAD:
                return
            if member.join is not None or member.sync is not None:
                # The member waits for this broker, so it need not send heartbeats.
                self.heard_of(group, member)
                return
            _log.info("removing the member %s of the group %r: no heartbeat", member.member_id, group.group_id)
            self._take_out(group, member)
            self._rebalance_without(group)
        self._after_change(group.group_id)

    def _expire_pending(self, group: Group, member_id: str) -> None:
        with group.lock:
            if group.pending_members.pop(member_id, None) is None:
                return
        self._after_change(group.group_id)

    def _rebalance_without(self, group: Group) -> None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(group)

    # --- Leaving ---

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> list[BrokerResponseError | None]:
        """Remove members, given by id, or by "" and an instance id. Returns an error or None for each. Raises the
        errors of `OffsetStore.check_coordinator`."""
        try:
            group = self._known_group(group_id)
        except UnknownMemberIdError as unknown:
            return [unknown for _ in members]
        results: list[BrokerResponseError | None] = []
        with group.lock:
            for member_id, instance_id in members:
                try:
                    self._leave(group, member_id, instance_id)
                    results.append(None)
                except BrokerResponseError as error:
                    results.append(error)
        self._after_change(group_id)
        return results

    def _leave(self, group: Group, member_id: str, instance_id: str | None) -> None:
        if member_id in group.pending_members:
            group.pending_members.pop(member_id).cancel()
            return
        if not member_id and instance_id is not None:
            member_id = group.static_members.get(instance_id, "")
        self._take_out(group, self.find_member(group, member_id, instance_id))
        self._rebalance_without(group)

    def _take_out(self, group: Group, member: Member) -> None:
        if member.session is not None:
            member.session.cancel()
        group.remove(member)
        member.answer_join(JoinResult("", UnknownMemberIdError.code))
        member.answer_sync(SyncResult(UnknownMemberIdError.code))

    def _after_change(self, group_id: str) -> None:
        """Check the purgatory and write the outbox after a change of a group. Called without the group's lock."""
        self._purgatory.check_and_complete(group_id)
        self.store.send_outbox()

    # --- Look-ups ---

    def _known_group(self, group_id: str) -> Group:
        if not group_id:
            raise InvalidGroupIdError("the group id is empty; set group.id")
        self.store.check_coordinator(group_id)
        group = self.store.group(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise UnknownMemberIdError(f"there is no group {group_id!r}")
        return group

    @staticmethod
    def find_member(group: Group, member_id: str, instance_id: str | None) -> Member:
        """Look up a member. Raises FencedInstanceIdError if another member has the instance id,
        UnknownMemberIdError."""
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberIdError(f"the group {group.group_id!r} has no instance {instance_id!r}")
            if current != member_id:
                raise FencedInstanceIdError(f"another member has taken over the instance id {instance_id!r}")
        member = group.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"the group {group.group_id!r} has no member {member_id!r}; join again")
        return member

    def adopt(self, group: Group) -> None:
        """Start the sessions of a group that was loaded from a partition this broker now leads."""
        with group.lock:
            for member in group.members.values():
                self.heard_of(group, member)
