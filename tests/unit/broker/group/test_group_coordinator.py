"""The state machine of classic groups, stepped by hand: joins, syncs, heartbeats, static members."""

from __future__ import annotations

import pytest
from support.timers import manual_timer

from headrace.broker.config.broker_config import BrokerConfig
from headrace.broker.group.coordinator import GroupCoordinator, JoinParams
from headrace.broker.group.group import Group, GroupState
from headrace.broker.purgatory import DelayedOperationPurgatory
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

RANGE = (("range", b"meta"),)


class FakeStore:
    """Keeps groups in memory. Writes complete at once, or when the test completes them."""

    def __init__(self):
        self.groups = {}
        self.outbox = []
        self.holds_back = False

    def check_coordinator(self, group_id):
        pass

    def group(self, group_id, *, make=False):
        if make:
            self.groups.setdefault(group_id, Group(group_id))
        return self.groups.get(group_id)

    def keep_group(self, group, done):
        self.outbox.append(done)

    def send_outbox(self):
        while self.outbox and not self.holds_back:
            self.outbox.pop(0)(None)


class Harness:
    def __init__(self, **config):
        self.clock = MockClock()
        self.timer = manual_timer(self.clock)
        self.store = FakeStore()
        self.coordinator = GroupCoordinator(
            config=BrokerConfig.of_profile("test", config, {}),
            clock=self.clock,
            timer=self.timer,
            purgatory=DelayedOperationPurgatory("Group", self.timer),
            store=self.store,
        )

    @property
    def group(self):
        return self.store.groups["g"]

    def advance(self, duration_ms):
        for _ in range(int(duration_ms / 10)):
            self.clock.advance(10)
            while self.timer.advance_clock(0):
                pass

    def join(
        self, member_id="", *, instance_id=None, requires=False, session_ms=1000, protocols=RANGE, skips=True, **more
    ):
        answers = []
        params = JoinParams(
            group_id="g",
            member_id=member_id,
            instance_id=instance_id,
            requires_member_id=requires,
            supports_skipping_assignment=skips,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=more.get("rebalance_ms", 2000),
            protocol_type=more.get("protocol_type", "consumer"),
            protocols=protocols,
        )
        self.coordinator.join(params, answers.append)
        return answers

    def sync(self, joined, assignments=None, **more):
        answers = []
        self.coordinator.sync(
            "g",
            more.get("generation", joined.generation),
            more.get("member_id", joined.member_id),
            more.get("instance_id"),
            None,
            more.get("protocol_name"),
            assignments or {},
            answers.append,
        )
        return answers

    def beat(self, joined, instance_id=None):
        self.coordinator.heartbeat("g", joined.generation, joined.member_id, instance_id)

    def stable(self, count=2, **more):
        """A stable group of `count` members, each with its own assignment; the first one leads."""
        first = self.join(**more)[0]
        results = [first]
        for _ in range(count - 1):
            waiting = self.join(**more)
            again = [self.join(each.member_id, **more) for each in results]
            results = [answer[0] for answer in again] + [waiting[0]]
        leader = next(each for each in results if each.member_id == each.leader)
        assignments = {each.member_id: each.member_id.encode() for each in results}
        self.sync(leader, assignments)
        for each in results:
            assert self.sync(each)[0].assignment == each.member_id.encode()
        assert self.group.state is GroupState.STABLE
        return results


@pytest.fixture
def harness():
    return Harness()


def test_the_first_member_leads_and_is_told_of_all(harness):
    (answer,) = harness.join()
    assert answer.error_code == 0
    assert answer.leader == answer.member_id
    assert [member[0] for member in answer.members] == [answer.member_id]
    assert answer.protocol_name == "range"
    assert harness.sync(answer, {answer.member_id: b"all"})[0].assignment == b"all"
    assert harness.group.state is GroupState.STABLE


def test_a_member_without_an_id_is_given_one_first(harness):
    (refused,) = harness.join(requires=True)
    assert refused.error_code == 79
    assert refused.member_id.startswith("c-")
    (joined,) = harness.join(refused.member_id, requires=True)
    assert (joined.error_code, joined.generation) == (0, 1)


def test_an_id_that_is_not_used_in_time_is_forgotten(harness):
    (refused,) = harness.join(requires=True, session_ms=500)
    harness.advance(600)
    assert harness.join(refused.member_id)[0].error_code == 25


def test_a_new_member_makes_the_others_join_again(harness):
    (first,) = harness.stable(1)
    waiting = harness.join()
    assert waiting == []
    with pytest.raises(RebalanceInProgressError):
        harness.beat(first)
    (again,) = harness.join(first.member_id)
    assert again.generation == waiting[0].generation == 2
    assert {member[0] for member in again.members} == {first.member_id, waiting[0].member_id}
    assert waiting[0].members == ()


def test_the_others_wait_for_the_leaders_assignment(harness):
    (first,) = harness.stable(1)
    waiting = harness.join()
    (leader,) = harness.join(first.member_id)
    follower_sync = harness.sync(waiting[0])
    assert follower_sync == []
    harness.sync(leader, {leader.member_id: b"l", waiting[0].member_id: b"f"})
    assert follower_sync[0].assignment == b"f"


def test_an_assignment_counts_only_when_it_is_kept(harness):
    (joined,) = harness.join()
    harness.store.holds_back = True
    answers = harness.sync(joined, {joined.member_id: b"a"})
    assert answers == []
    assert harness.group.state is GroupState.COMPLETING_REBALANCE
    harness.store.holds_back = False
    harness.store.send_outbox()
    assert answers[0].assignment == b"a"


def test_who_is_not_heard_of_is_taken_out(harness):
    first, second = harness.stable(2)
    for _ in range(4):
        harness.advance(200)
        harness.beat(first)
    assert second.member_id in harness.group.members
    harness.advance(210)
    assert second.member_id not in harness.group.members
    with pytest.raises(UnknownMemberIdError):
        harness.beat(second)
    assert harness.join(first.member_id)[0].generation == 3


def test_who_waits_for_a_join_is_not_taken_out(harness):
    first, second = harness.stable(2, session_ms=300)
    waiting = harness.join(first.member_id, session_ms=300, protocols=(("range", b"new"),))
    for _ in range(5):
        harness.advance(200)
        if second.member_id in harness.group.members:
            with pytest.raises(RebalanceInProgressError):
                harness.beat(second)
    assert first.member_id in harness.group.members
    harness.join(second.member_id, session_ms=300)
    assert waiting[0].generation == 3


def test_a_rebalance_ends_without_those_who_do_not_come(harness):
    first, second = harness.stable(2, session_ms=60_000)
    waiting = harness.join(first.member_id, session_ms=60_000, protocols=(("range", b"new"),))
    harness.advance(1900)
    assert waiting == []
    harness.advance(200)
    assert waiting[0].generation == 3
    assert list(harness.group.members) == [first.member_id]
    assert harness.sync(second)[0].error_code == 25


def test_who_joins_and_never_syncs_is_taken_out(harness):
    first, second = harness.stable(2, session_ms=60_000)
    joins = [harness.join(each.member_id, session_ms=60_000, protocols=(("range", b"n"),)) for each in (first, second)]
    leader = next(answer[0] for answer in joins if answer[0].leader == answer[0].member_id)
    silent = next(answer[0] for answer in joins if answer[0].leader != answer[0].member_id)
    harness.sync(leader, {})
    harness.advance(2100)
    assert silent.member_id not in harness.group.members
    assert harness.group.state is GroupState.PREPARING_REBALANCE


def test_a_lost_answer_can_be_asked_for_again(harness):
    first, second = harness.stable(2)
    follower = next(each for each in (first, second) if each.leader != each.member_id)
    (again,) = harness.join(follower.member_id)
    assert again.generation == follower.generation
    assert harness.group.state is GroupState.STABLE


def test_the_leader_can_ask_for_a_rebalance(harness):
    first, second = harness.stable(2)
    leader = next(each for each in (first, second) if each.leader == each.member_id)
    assert harness.join(leader.member_id) == []
    assert harness.group.state is GroupState.PREPARING_REBALANCE


def test_leaving_makes_the_others_rebalance_and_the_last_empties_the_group(harness):
    first, second = harness.stable(2)
    assert harness.coordinator.leave("g", [(second.member_id, None)]) == [None]
    with pytest.raises(RebalanceInProgressError):
        harness.beat(first)
    harness.coordinator.leave("g", [(first.member_id, None)])
    assert harness.group.state is GroupState.EMPTY
    (error,) = harness.coordinator.leave("g", [(first.member_id, None)])
    assert isinstance(error, UnknownMemberIdError)


def test_another_generation_and_other_protocols_are_refused(harness):
    (joined,) = harness.stable(1)
    with pytest.raises(IllegalGenerationError):
        harness.coordinator.heartbeat("g", joined.generation + 1, joined.member_id, None)
    assert harness.sync(joined, generation=99)[0].error_code == 22
    assert harness.sync(joined, protocol_name="sticky")[0].error_code == 23
    assert harness.join(protocols=(("sticky", b""),))[0].error_code == 23
    assert harness.join(protocol_type="connect")[0].error_code == 23
    assert harness.join("nobody")[0].error_code == 25


def test_the_protocol_is_one_that_all_know(harness):
    harness.join(protocols=(("sticky", b"s"), ("range", b"r")))
    first = harness.group.leader_id
    waiting = harness.join(protocols=(("range", b"r"),))
    (leader,) = harness.join(first, protocols=(("sticky", b"s"), ("range", b"r")))
    assert leader.protocol_name == waiting[0].protocol_name == "range"


def test_session_timeouts_and_sizes_are_bounded():
    harness = Harness(
        **{"group.max.session.timeout.ms": 5000, "group.min.session.timeout.ms": 100, "group.max.size": 1}
    )
    assert harness.join(session_ms=5001)[0].error_code == 26
    assert harness.join(session_ms=99)[0].error_code == 26
    assert harness.join()[0].error_code == 0
    assert harness.join()[0].error_code == 81


def test_a_static_member_returns_without_a_rebalance(harness):
    (joined,) = harness.join(instance_id="i")
    harness.sync(joined, {joined.member_id: b"mine"}, instance_id="i")
    (back,) = harness.join(instance_id="i")
    assert back.error_code == 0
    assert (back.generation, back.skip_assignment) == (1, True)
    assert back.member_id != joined.member_id
    assert harness.group.state is GroupState.STABLE
    assert harness.sync(back, instance_id="i")[0].assignment == b"mine"
    with pytest.raises(FencedInstanceIdError):
        harness.beat(joined, "i")


def test_a_static_member_that_has_changed_makes_a_rebalance(harness):
    (joined,) = harness.join(instance_id="i")
    harness.sync(joined, {joined.member_id: b"mine"}, instance_id="i")
    (back,) = harness.join(instance_id="i", protocols=(("range", b"other topics"),))
    assert back.generation == 2


def test_a_static_member_keeps_its_place_until_its_session_is_over(harness):
    (static,) = harness.join(instance_id="i", session_ms=60_000)
    harness.sync(static, {static.member_id: b"s"}, instance_id="i")
    waiting = harness.join(session_ms=60_000)
    harness.advance(2100)
    assert waiting[0].generation == 2
    assert static.member_id in harness.group.members


def test_a_static_member_is_taken_out_by_its_instance(harness):
    (static,) = harness.join(instance_id="i")
    harness.sync(static, {static.member_id: b"s"}, instance_id="i")
    assert harness.coordinator.leave("g", [("", "i")]) == [None]
    assert harness.group.state is GroupState.EMPTY


def test_a_fleet_that_starts_together_is_one_generation():
    harness = Harness(**{"group.initial.rebalance.delay.ms": 300})
    answers = [harness.join() for _ in range(3)]
    assert answers == [[], [], []]
    harness.advance(310)
    assert {answer[0].generation for answer in answers} == {1}
    assert sum(len(answer[0].members) for answer in answers) == 3
