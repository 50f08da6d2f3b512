"""Whatever the network does to an idempotent producer, the log has each record once, and in order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from support.mock_client import metadata_response
from support.sender_harness import BACKOFF_MS, FakeLeader, SenderHarness, batch_of

from headrace.network.client.request import ClientRequest
from headrace.network.protocol import errors
from headrace.producer.accumulator.batch_cy import RecordFuture
from headrace.producer.sender.delivery import InLog, action_for

NOT_LEADER = 6
NOT_IN_TIME = 7
MESSAGE_TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
TOPIC_AUTHORIZATION_FAILED = 29

#: The fate of the oldest waiting request: whether the leader receives it, and which response returns.
OUTCOMES = ("answered", "answer lost", "lost", "not leader", "not in time", "too large")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.integers(1, 3), st.sampled_from(OUTCOMES), st.sampled_from(OUTCOMES)), max_size=60))
def test_each_record_is_in_the_log_once_and_in_order(steps: list[int | str]) -> None:
    h, leader = SenderHarness(established=False), FakeLeader()
    futures = []
    for step in steps:
        if isinstance(step, int):
            futures += [h.append(b"%d" % (len(futures) + i)) for i in range(step)]
            h.send()
        elif h.client.requests:
            request = h.client.requests[0]
            if step == "lost":
                # everything sent behind it on this connection is lost, too
                h.lose(*list(h.client.requests))
            elif step == "answer lost":
                for sent in list(h.client.requests):
                    leader.append(sent)
                h.lose(*list(h.client.requests))
            elif step == "not leader":
                h.answer(request, NOT_LEADER)
            elif step == "not in time":
                # appended, but not replicated in time
                code, _ = leader.append(request)
                h.answer(request, code or 7)
            elif step == "too large" and batch_of(request).count > 1 and not leader.has(request):
                h.answer(request, MESSAGE_TOO_LARGE)
            else:
                code, offset = leader.append(request)
                h.answer(request, code, offset)
            h.retry()
    for _ in range(200):
        if not h.accumulator.has_incomplete:
            break
        while h.client.requests:
            request = h.client.requests[0]
            code, offset = leader.append(request)
            h.answer(request, code, offset)
        h.retry()
    assert leader.log == [b"%d" % i for i in range(len(futures))]
    assert all(future.exception(0) is None for future in futures)
    assert h.free_bytes == h.pool.total_bytes


# --- Two brokers, and the passage of time ---


class World:
    """One partition whose leader moves between two brokers. Requests arrive and responses leave in the order of the
    sends, on one connection per broker.

    The log is the partition's: a new leader has everything that the old one appended.
    """

    def __init__(self) -> None:
        self.h = SenderHarness(established=False, brokers=2, delivery_timeout_ms=1000)
        self.log = FakeLeader()
        self.leader = 0
        self.epoch = 0
        self.futures: list[RecordFuture] = []
        #: arrived requests, and the error code and offset of their responses
        self.arrived: dict[ClientRequest, tuple[int, int]] = {}

    def outstanding(self, node: int) -> list[ClientRequest]:
        return [request for request in self.h.client.requests if request.node_id == node]

    def append(self, count: int) -> None:
        for _ in range(count):
            self.futures.append(self.h.append(b"%d" % len(self.futures)))
        self.h.send()

    def arrive(self, node: int, injected: int = 0, after_append: int = 0) -> None:
        """Deliver the oldest request in flight to a broker."""
        on_their_way = [request for request in self.outstanding(node) if request not in self.arrived]
        if not on_their_way:
            return
        request = on_their_way[0]
        if injected or node != self.leader:
            self.arrived[request] = injected or NOT_LEADER, -1
        else:
            code, offset = self.log.append(request)
            self.arrived[request] = (code or after_append), offset

    def answer(self, node: int) -> None:
        """Deliver the broker's oldest response."""
        outstanding = self.outstanding(node)
        if outstanding and outstanding[0] in self.arrived:
            code, offset = self.arrived.pop(outstanding[0])
            self.h.answer(outstanding[0], code, offset)
            self.h.send()

    def lose(self, node: int) -> None:
        """Close a connection, with all requests and responses in flight."""
        outstanding = self.outstanding(node)
        for request in outstanding:
            self.arrived.pop(request, None)
        self.h.lose(*outstanding)
        self.h.send()

    def move(self) -> None:
        self.leader = 1 - self.leader
        self.epoch += 1
        response = metadata_response({self.h.topic: 1}, brokers=2, leader_epoch=self.epoch)
        response.topics[0].partitions[0].leader_id = self.leader
        self.h.client.update_metadata(response)
        self.h.send()

    def do(self, step: Any) -> None:
        match step:
            case int():
                self.append(step)
            case "arrives", node:
                self.arrive(node)
            case "arrives and is answered", node:
                self.arrive(node)
                self.answer(node)
            case "is refused", node, code:
                self.arrive(node, injected=code)
            case "is appended but", node, code:
                self.arrive(node, after_append=code)
            case "is too large", node:
                # a broker doesn't reject a batch as too large after it has accepted it
                waiting = [request for request in self.outstanding(node) if request not in self.arrived][:1]
                if waiting and batch_of(waiting[0]).count > 1 and not self.log.has(waiting[0]):
                    self.arrive(node, injected=MESSAGE_TOO_LARGE)
            case "is answered", node:
                self.answer(node)
            case "connection ends", node:
                self.lose(node)
            case "moves", _:
                self.move()
            case "aborts", _:
                self.h.sender.request_abort()
                self.h.step()
            case "time passes", ms:
                self.h.step(ms)
                self.h.send()

    def finish(self) -> None:
        for _ in range(300):
            if not self.h.accumulator.has_incomplete and not self.h.client.requests:
                return
            for node in (0, 1):
                while self.outstanding(node):
                    self.arrive(node)
                    self.answer(node)
            self.h.retry()
        raise AssertionError("some records are never sent")

    def judge(self) -> None:
        values = [int(value) for value in self.log.log]
        assert len(set(values)) == len(values), "doubled"
        assert values == sorted(values), "out of order"
        for number, future in enumerate(self.futures):
            error = future.exception(0)
            if error is None:
                offset = future.get(0).offset
                assert number in values
                assert offset in (-1, values.index(number))
            elif number in values:
                causes = (error, error.__cause__)
                assert any(
                    isinstance(each, errors.KafkaError) and action_for(each).in_log is not InLog.NO for each in causes
                )
        assert self.h.free_bytes == self.h.pool.total_bytes


NODES = st.sampled_from((0, 1))
STEPS = st.one_of(
    st.integers(1, 3),
    st.tuples(st.sampled_from(("arrives", "is answered", "arrives and is answered", "arrives and is answered")), NODES),
    st.tuples(
        st.just("is refused"), NODES, st.sampled_from((NOT_LEADER, NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED))
    ),
    st.tuples(
        st.just("is appended but"), NODES, st.sampled_from((NOT_LEADER, NOT_IN_TIME, NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    ),
    st.tuples(st.sampled_from(("is too large", "connection ends", "moves")), NODES),
    st.tuples(st.just("time passes"), st.sampled_from((1, BACKOFF_MS, 450))),
    st.tuples(st.just("aborts"), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=80))
def test_leaders_move_time_passes_and_records_are_given_up(steps: list[Any]) -> None:
    world = World()
    for step in steps:
        world.do(step)
    world.finish()
    world.judge()
