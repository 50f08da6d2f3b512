"""`headrace consume` as a member of a group, against a script of the coordinator's responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.cli.consume.consumer_protocol import decode_assignment, encode_assignment, encode_subscription
from headrace.cli.consume.coordinator import Coordinator
from headrace.cli.consume.group_offsets import Generation
from headrace.cli.consume.member import PARTITIONS_INTERVAL_MS, REBALANCE_TIMEOUT_MS, GroupMember, MemberState
from headrace.network.clock import MockClock
from headrace.network.protocol import errors
from headrace.network.protocol.message import Request
from headrace.network.protocol.messages.groups.find_coordinator import (
    Coordinator as FoundCoordinator,
)
from headrace.network.protocol.messages.groups.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.network.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.network.protocol.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from headrace.network.protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.network.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.network.protocol.messages.topics.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

OWN_ID = "me-1"


class ScriptedClient:
    """Answers requests in the script's order. A script's line is a response, an error to raise, or a function of the
    request. The coordinator is always found."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.asked: list[Any] = []
        self.oldest: dict[type[Request], int] = {}

    def version_of(self, request_class: type[Request], node_id: int | None = None) -> int:
        return self.oldest.get(request_class, request_class.versions.max)

    def metadata(self, topics: list[str]) -> None:
        assert topics == []

    def ask(self, request: Request, node_id: int | None = None) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(coordinators=[FoundCoordinator(key="g", node_id=7, host="h", port=1)])
        assert node_id == (None if isinstance(request, MetadataRequest) else 7)
        self.asked.append(request)
        line = self.script[0] if len(self.script) == 1 and callable(self.script[0]) else self.script.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line(request) if callable(line) else line


def joined(code: int = 0, member_id: str = OWN_ID, leader: str = "other", generation: int = 5, members=()) -> Any:
    return JoinGroupResponse(
        error_code=code,
        member_id=member_id,
        leader=leader,
        generation_id=generation,
        protocol_name="range",
        members=[
            JoinGroupResponseMember(member_id=each, metadata=encode_subscription(topics)) for each, topics in members
        ],
    )


def synced(*partitions: int, code: int = 0) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=encode_assignment({"t": partitions, "other": [9]}))


def metadata(**counts: int) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            name=name,
            partitions=[
                MetadataResponsePartition(partition_index=each, leader_id=1, replica_nodes=[1], isr_nodes=[1])
                for each in range(count)
            ],
        )
        for name, count in counts.items()
    ]
    return MetadataResponse(brokers=[], topics=topics)


class Harness:
    def __init__(self) -> None:
        self.clock = MockClock()
        self.client = ScriptedClient()
        self.member = GroupMember(Coordinator(self.client, "g", self.clock), "t")  # type: ignore[arg-type]

    def run(self, call: Callable[[], Any], *script: Any) -> Any:
        """Call, and check that the whole script was asked for."""
        self.client.script = list(script)
        self.client.asked = []
        result = call()
        assert self.client.script == [] or callable(self.client.script[0])
        return result

    def join(self, *script: Any) -> list[int]:
        return self.run(self.member.join, *script)

    def beat(self, *script: Any) -> None:
        self.run(self.member.beat, *script)


@pytest.fixture
def new() -> Harness:
    return Harness()


@pytest.fixture
def stable(new: Harness) -> Harness:
    """A member that is no leader, in generation 5."""
    assert new.join(joined(), synced(1)) == [1]
    return new


# --- Joining ---


def test_the_leader_assigns_the_partitions_of_all(new: Harness):
    partitions = new.join(
        joined(errors.MemberIdRequiredError.code, generation=-1, leader=""),
        joined(leader=OWN_ID, members=[(OWN_ID, ["t"]), ("other", ["t", "u"])]),
        metadata(t=3, u=1),
        synced(0, 1),
    )
    assert partitions == [0, 1]
    first, second, asked, sync = new.client.asked
    assert isinstance(first, JoinGroupRequest)
    assert (first.member_id, second.member_id) == ("", OWN_ID)
    assert (second.protocol_type, [each.name for each in second.protocols]) == ("consumer", ["range"])
    assert [each.name for each in asked.topics] == ["t", "u"]
    assert (sync.generation_id, sync.member_id) == (5, OWN_ID)
    assert {each.member_id: decode_assignment(each.assignment) for each in sync.assignments} == {
        OWN_ID: {"t": [0, 1]},
        "other": {"t": [2], "u": [0]},
    }
    assert new.member.state is MemberState.STABLE
    assert new.member.poll()
    assert new.member.generation == Generation(5, OWN_ID)


def test_other_members_get_theirs(stable: Harness):
    join, sync = stable.client.asked
    assert isinstance(join, JoinGroupRequest)
    assert isinstance(sync, SyncGroupRequest)
    assert sync.assignments == []


def test_a_topic_without_partitions_for_this_member(new: Harness):
    assert new.join(joined(), SyncGroupResponse(assignment=b"")) == []
    assert new.member.poll()


@pytest.mark.parametrize(
    ("error", "id_after"),
    [
        (errors.RebalanceInProgressError, OWN_ID),
        (errors.IllegalGenerationError, OWN_ID),
        (errors.UnknownMemberIdError, ""),
    ],
)
def test_a_generation_that_ends_before_it_began(new: Harness, error: type[errors.BrokerResponseError], id_after: str):
    assert new.join(joined(), synced(code=error.code or 0), joined(generation=6), synced(0)) == [0]
    assert new.client.asked[2].member_id == id_after
    assert new.member.generation.generation_id == 6


def test_an_id_that_the_coordinator_has_forgotten(stable: Harness):
    code = errors.UnknownMemberIdError.code or 0
    assert stable.join(joined(code, member_id=""), joined(member_id="me-2"), synced(0)) == [0]
    assert [each.member_id for each in stable.client.asked] == [OWN_ID, "", "me-2"]


def test_a_coordinator_that_moves_or_closes_the_connection(new: Harness):
    moved = joined(errors.NotCoordinatorError.code or 0)
    assert new.join(
        moved, errors.DisconnectedError("gone"), joined(), errors.KafkaConnectionError("no"), synced(0)
    ) == [0]


def test_a_join_that_the_coordinator_does_not_answer_is_repeated_with_the_same_id(new: Harness):
    def late(_: Request) -> None:
        new.clock.advance(30_000)
        raise errors.DisconnectedError("did not answer within 30000 ms")

    assert new.join(joined(errors.MemberIdRequiredError.code), late, late, joined(), synced(0)) == [0]
    assert [each.member_id for each in new.client.asked[:4]] == ["", OWN_ID, OWN_ID, OWN_ID]


def test_a_rebalance_that_never_ends(new: Harness):
    with pytest.raises(errors.KafkaTimeoutError, match="group g did not complete a rebalance within 305 s"):
        new.join(lambda _: joined(errors.RebalanceInProgressError.code or 0))


def test_a_coordinator_that_is_out_of_reach(new: Harness):
    def refused(_: Request) -> None:
        raise errors.KafkaConnectionError("refused")

    before_ms = new.clock.now_ms()
    with pytest.raises(errors.KafkaConnectionError, match="refused"):
        new.join(refused)
    assert new.clock.now_ms() - before_ms == pytest.approx(30_000, abs=200)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errors.InconsistentGroupProtocolError, "group g: its members don't support the assignor range"),
        (errors.GroupMaxSizeReachedError, "group g: it has as many members as group.max.size"),
        (errors.InvalidSessionTimeoutError, "group g: group.min.session.timeout.ms"),
        (
            errors.GroupAuthorizationFailedError,
            "group g: the client's principal needs an ACL that allows READ on GROUP",
        ),
        (errors.InvalidGroupIdError, "group g: "),
    ],
)
def test_a_group_that_can_not_be_joined(new: Harness, error: type[errors.BrokerResponseError], said: str):
    with pytest.raises(error, match=said):
        new.join(joined(error.code or 0))


def test_a_leader_that_may_not_see_the_topic_of_another(new: Harness):
    answer = metadata(t=1, secret=0)
    answer.topics[1].error_code = errors.TopicAuthorizationFailedError.code or 0
    with pytest.raises(errors.TopicAuthorizationFailedError, match="secret"):
        new.join(joined(leader=OWN_ID, members=[(OWN_ID, ["t"]), ("other", ["secret"])]), answer)


# --- Heartbeats ---


def test_a_heartbeat(stable: Harness):
    stable.beat(HeartbeatResponse())
    (request,) = stable.client.asked
    assert isinstance(request, HeartbeatRequest)
    assert (request.generation_id, request.member_id) == (5, OWN_ID)
    assert stable.member.poll()


@pytest.mark.parametrize(
    ("error", "state", "id_after"),
    [
        (errors.RebalanceInProgressError, MemberState.REBALANCING, OWN_ID),
        (errors.IllegalGenerationError, MemberState.UNJOINED, OWN_ID),
        (errors.UnknownMemberIdError, MemberState.UNJOINED, ""),
    ],
)
def test_a_heartbeat_brings_word_of_a_rebalance(
    stable: Harness, error: type[errors.BrokerResponseError], state: MemberState, id_after: str
):
    stable.beat(HeartbeatResponse(error_code=error.code or 0))
    assert not stable.member.poll()
    assert stable.member.state is state
    # a commit must not look like one from outside the group
    assert stable.member.generation == Generation(5, OWN_ID)
    assert stable.join(joined(generation=6), synced(0)) == [0]
    assert stable.client.asked[0].member_id == id_after
    assert stable.member.poll()


def test_heartbeats_go_on_until_it_joins_again(stable: Harness):
    rebalance = HeartbeatResponse(error_code=errors.RebalanceInProgressError.code)
    stable.beat(rebalance)
    stable.beat(rebalance)
    stable.beat(HeartbeatResponse(error_code=errors.UnknownMemberIdError.code))
    stable.beat()
    assert stable.member.state is MemberState.UNJOINED


@pytest.mark.parametrize(
    "answer",
    [
        errors.DisconnectedError("gone"),
        errors.KafkaConnectionError("refused"),
        HeartbeatResponse(error_code=errors.NotCoordinatorError.code),
        HeartbeatResponse(error_code=errors.CoordinatorLoadInProgressError.code),
    ],
)
def test_a_heartbeat_that_fails_is_left_to_the_next(stable: Harness, answer: Any):
    stable.beat(answer)
    assert stable.member.poll()
    stable.beat(HeartbeatResponse())
    assert stable.member.poll()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HeartbeatResponse(error_code=30), errors.GroupAuthorizationFailedError),
        (errors.SaslAuthenticationFailedError("no"), errors.SaslAuthenticationFailedError),
    ],
)
def test_the_reading_thread_raises_what_ends_heartbeats(stable: Harness, answer: Any, error: type[errors.KafkaError]):
    stable.beat(answer)
    with pytest.raises(error):
        stable.member.poll()


def test_a_member_that_does_not_read_gives_its_partitions_to_others(stable: Harness):
    stable.clock.advance(REBALANCE_TIMEOUT_MS)
    stable.beat(HeartbeatResponse())
    stable.clock.advance(1)
    stable.beat(LeaveGroupResponse())
    stable.beat()
    assert not stable.member.poll()
    assert stable.join(joined(), synced(0)) == [0]
    assert stable.client.asked[0].member_id == ""


def test_a_leader_notices_new_partitions(new: Harness):
    new.join(joined(leader=OWN_ID, members=[(OWN_ID, ["t"])]), metadata(t=2), synced(0, 1))
    new.beat(HeartbeatResponse())
    new.clock.advance(PARTITIONS_INTERVAL_MS)
    new.beat(HeartbeatResponse(), metadata(t=2))
    new.beat(HeartbeatResponse())
    new.clock.advance(PARTITIONS_INTERVAL_MS)
    new.beat(HeartbeatResponse(), metadata(t=3))
    assert new.member.state is MemberState.REBALANCING


# --- Commits and leaving ---


def test_a_rejected_commit(stable: Harness):
    stable.member.rejected(errors.RebalanceInProgressError())
    assert stable.member.state is MemberState.REBALANCING
    stable.member.rejected(errors.UnknownMemberIdError())
    assert stable.member.state is MemberState.UNJOINED
    assert not stable.member.poll()


def test_it_leaves_once(stable: Harness):
    stable.run(stable.member.leave, LeaveGroupResponse())
    (request,) = stable.client.asked
    assert [each.member_id for each in request.members] == [OWN_ID]
    stable.run(stable.member.leave)
    stable.beat()
    assert stable.member.state is MemberState.LEFT


def test_it_leaves_an_old_broker(stable: Harness):
    stable.client.oldest[LeaveGroupRequest] = 2
    stable.run(stable.member.leave, LeaveGroupResponse())
    assert stable.client.asked[0].member_id == OWN_ID


def test_it_has_nothing_to_leave_before_it_has_an_id(new: Harness):
    new.run(new.member.leave)
    assert new.member.state is MemberState.LEFT


def test_leaving_does_not_wait_for_the_coordinator(stable: Harness):
    with pytest.raises(errors.DisconnectedError):
        stable.run(stable.member.leave, errors.DisconnectedError("gone"))
    stable.run(stable.member.leave)
