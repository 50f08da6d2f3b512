"""`headrace consume --group` as a member of the consumer group, in Kafka's classic protocol.

States of a member:

- UNJOINED: it has no partitions. `join` sends JoinGroup and waits until all members have joined. The first response
  only assigns the member its id (KIP-394). The leader, chosen by the coordinator, assigns the partitions; each member
  gets its own with SyncGroup and is STABLE.
- STABLE: it reads its partitions, and commits with its generation.
- REBALANCING: a member has come or gone. This one still owns its partitions: it commits how far it came, and calls
  `join`. It has `REBALANCE_TIMEOUT_MS` for that.
- LEFT: `leave` was called.

A member that the coordinator no longer knows, or whose generation has ended, is UNJOINED again, and what it hasn't
committed is read again by others.

The reading thread calls `join`, `poll`, `rejected` and `leave`. `Heartbeats` calls `beat` on its own thread, so a
member stays in the group while printing blocks. If nothing calls `poll` for `REBALANCE_TIMEOUT_MS`, `beat` leaves the
group in its place. The coordinator's lock guards the state.
"""

from __future__ import annotations

import enum
import threading
from typing import Any

from ...network.protocol.errors import (
    DisconnectedError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    make_error,
)
from ...network.protocol.message import first_version_with
from ...network.protocol.messages.groups.heartbeat import HeartbeatRequest
from ...network.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ...network.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from ...network.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ...network.protocol.messages.topics.metadata import MetadataRequest
from ...network.protocol.other_errors import (
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
)
from ..client import metadata_request, topic_error
from .assignor import RANGE, Subscriber, assign_ranges
from .consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from .coordinator import COORDINATOR_LOST, Coordinator
from .group_offsets import Generation

# The defaults of Kafka's consumer: session.timeout.ms, heartbeat.interval.ms and max.poll.interval.ms.
SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
REBALANCE_TIMEOUT_MS = 300_000
#: How often a leader checks whether its topics have more partitions than it assigned.
PARTITIONS_INTERVAL_MS = 60_000.0
#: How much longer than all members have a member waits for a generation, as Kafka's consumer does.
_JOIN_MARGIN_MS = 5_000.0
_PAUSE_MS = 100.0

#: What to do about the errors that end a join.
_ADVICE = {
    InconsistentGroupProtocolError: "its members don't support the assignor range, or are no consumers; stop them, or "
    "give another --group",
    GroupMaxSizeReachedError: "it has as many members as group.max.size of the brokers permits",
    InvalidSessionTimeoutError: f"group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers don't "
    f"permit a session of {SESSION_TIMEOUT_MS} ms",
}


class MemberState(enum.Enum):
    """The state of a member, from its own point of view."""

    UNJOINED = enum.auto()
    STABLE = enum.auto()
    REBALANCING = enum.auto()
    LEFT = enum.auto()


class GroupMember:
    """A member that subscribes to one topic. The methods raise KafkaError."""

    def __init__(self, coordinator: Coordinator, topic: str) -> None:
        self.state = MemberState.UNJOINED
        #: Its last one. It stays that of its commits until it has joined again.
        self.generation = Generation()
        self._member_id = ""
        self._coordinator = coordinator
        self._group = coordinator.group
        self._clock = coordinator.clock
        self._topic = topic
        self._polled_ms = 0.0
        #: The partitions per topic that it assigned as the leader; empty in other members.
        self._counts: dict[str, int] = {}
        self._counted_ms = 0.0
        self._failure: KafkaError | None = None

    # --- The reading thread ---

    def join(self) -> list[int]:
        """Join the group, again after a rebalance; returns the assigned partitions of the topic."""
        with self._coordinator.lock:
            deadline_ms = self._clock.now_ms() + REBALANCE_TIMEOUT_MS + _JOIN_MARGIN_MS
            while True:
                partitions = None
                try:
                    partitions = self._try_to_join()
                except DisconnectedError:
                    # The coordinator answers when all members have joined; a join with the same id replaces this one.
                    if self._clock.now_ms() >= deadline_ms:
                        raise
                if partitions is not None:
                    self.state = MemberState.STABLE
                    self._polled_ms = self._clock.now_ms()
                    return partitions
                if self._clock.now_ms() >= deadline_ms:
                    raise KafkaTimeoutError(
                        f"group {self._group} did not complete a rebalance within "
                        f"{(REBALANCE_TIMEOUT_MS + _JOIN_MARGIN_MS) / 1000:.0f} s; do its members come and go?"
                    )
                self._clock.sleep(_PAUSE_MS)

    def poll(self) -> bool:
        """Whether the member keeps its partitions; if not, it is to commit and `join`. Raises what a heartbeat did."""
        self._polled_ms = self._clock.now_ms()
        if self._failure is not None:
            raise self._failure
        return self.state is MemberState.STABLE

    def rejected(self, error: KafkaError) -> None:
        """Note that the coordinator rejected the member's request with one of `group_offsets.REJECTED`."""
        with self._coordinator.lock:
            if isinstance(error, RebalanceInProgressError):
                self.state = MemberState.REBALANCING
                return
            self.state = MemberState.UNJOINED
            if isinstance(error, UnknownMemberIdError):
                self._member_id = ""

    def leave(self) -> None:
        """Leave the group, so that its partitions go to others at once. Does nothing in LEFT."""
        with self._coordinator.lock:
            if self.state is not MemberState.LEFT:
                self.state = MemberState.LEFT
                self._send_leave("the command ends")

    # --- The thread of heartbeats ---

    def beat(self) -> None:
        """Send a heartbeat, if it is a member. Raises nothing: `poll` does."""
        with self._coordinator.lock:
            if self.state not in {MemberState.STABLE, MemberState.REBALANCING}:
                return
            try:
                self._beat()
            except COORDINATOR_LOST:
                pass  # a later heartbeat finds it
            except KafkaError as failed:
                self._failure = failed

    def _beat(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._polled_ms > REBALANCE_TIMEOUT_MS:
            self.state = MemberState.UNJOINED
            self._send_leave("nobody has taken its output for too long")
            return
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation.generation_id, member_id=self._member_id
        )
        code = self._coordinator.request(request, patience_ms=0).error_code
        if code:
            error = make_error(code)
            if not isinstance(error, (RebalanceInProgressError, UnknownMemberIdError, IllegalGenerationError)):
                raise self._coordinator.error(code)
            self.rejected(error)
        elif self._counts and now_ms - self._counted_ms >= PARTITIONS_INTERVAL_MS:
            self._counted_ms = now_ms
            if self._partition_counts(list(self._counts)) != self._counts:
                self.state = MemberState.REBALANCING

    # --- Requests ---

    def _try_to_join(self) -> list[int] | None:
        """The assigned partitions, or None if it is to try again."""
        joined = self._send_join()
        if joined.error_code == MemberIdRequiredError.code:
            self._member_id = joined.member_id
            joined = self._send_join()
        if joined.error_code:
            return self._try_again(joined.error_code)
        self._member_id = joined.member_id
        self.generation = Generation(joined.generation_id, joined.member_id)
        self._counts = {}
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = self._assign(joined.members)
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        synced = self._coordinator.request(request)
        if synced.error_code:
            return self._try_again(synced.error_code)
        return sorted(decode_assignment(bytes(synced.assignment)).get(self._topic, []))

    def _send_join(self) -> Any:
        return self._coordinator.request(
            JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=encode_subscription([self._topic]))],
            )
        )

    def _try_again(self, code: int) -> None:
        """Return if the group may be joined after this error; raise it otherwise."""
        error = make_error(code)
        if isinstance(error, UnknownMemberIdError):
            self._member_id = ""
        elif not isinstance(error, (RebalanceInProgressError, IllegalGenerationError, MemberIdRequiredError)):
            raise self._coordinator.error(code, _ADVICE.get(type(error)))

    def _send_leave(self, reason: str) -> None:
        member_id, self._member_id = self._member_id, ""
        if not member_id:
            return

        def send(node_id: int) -> None:
            client = self._coordinator.client
            if client.version_of(LeaveGroupRequest, node_id) >= first_version_with(LeaveGroupRequest, "members"):
                members = [MemberIdentity(member_id=member_id, reason=reason)]
                client.ask(LeaveGroupRequest(group_id=self._group, members=members), node_id)
            else:
                client.ask(LeaveGroupRequest(group_id=self._group, member_id=member_id), node_id)

        self._coordinator.ask(send, patience_ms=0)

    # --- The leader ---

    def _assign(self, members: list[Any]) -> list[SyncGroupRequestAssignment]:
        subscribers = [
            Subscriber(each.member_id, each.group_instance_id, decode_subscription(bytes(each.metadata)))
            for each in members
        ]
        self._counts = self._partition_counts(sorted({topic for each in subscribers for topic in each.topics}))
        self._counted_ms = self._clock.now_ms()
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(assignment))
            for member_id, assignment in assign_ranges(subscribers, self._counts).items()
        ]

    def _partition_counts(self, topics: list[str]) -> dict[str, int]:
        """The number of partitions of each topic, 0 for one that doesn't exist."""
        client = self._coordinator.client
        found = client.ask(metadata_request(topics, client.version_of(MetadataRequest))).topics
        for topic in found:
            if topic.error_code == TopicAuthorizationFailedError.code:
                # others subscribe to it, and would get no partitions from this leader
                raise topic_error(topic.name, topic.error_code)
        return {topic.name: len(topic.partitions) for topic in found}


class Heartbeats:
    """Sends a member's heartbeats on a daemon thread, within a ``with`` block."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._end = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="headrace-heartbeat").start()

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def _run(self) -> None:
        while not self._end.wait(HEARTBEAT_INTERVAL_MS / 1000.0):
            self._member.beat()
