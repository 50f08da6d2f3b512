"""The response time expected of a broker, from its latest responses."""

from __future__ import annotations

from collections import deque

from support.sender_harness import BATCH_SIZE, SenderHarness

from headrace.network.client.request import ClientRequest
from headrace.producer.accumulator.batch_cy import RecordFuture
from headrace.producer.sender.answer_times import MARGIN, MAX_ANSWERS, AnswerTimes


def pipelined(times: AnswerTimes, *answers_ms: float | None) -> None:
    """Overlapping requests: only the very first is a probe."""
    times.sent()
    for answer_ms in answers_ms:
        times.sent()
        times.ended(answer_ms)


def test_nothing_is_expected_before_the_first_answer() -> None:
    times = AnswerTimes(1000)
    assert times.expected_ms == 0.0
    assert times.is_idle
    pipelined(times, None)
    assert times.expected_ms == 0.0
    assert not times.is_idle


def test_the_slowest_of_the_last_answers_counts_with_a_margin() -> None:
    times = AnswerTimes(1000)
    pipelined(times, 20, 100, 30)
    assert times.expected_ms == 100 * MARGIN
    pipelined(times, *[10] * (MAX_ANSWERS - 1))
    assert times.expected_ms == 30 * MARGIN
    pipelined(times, 10)
    assert times.expected_ms == 10 * MARGIN


def test_the_margin_does_not_fail_what_there_may_be_time_for() -> None:
    times = AnswerTimes(1000)
    pipelined(times, 400)
    assert times.expected_ms == 500
    pipelined(times, 800)
    assert times.expected_ms == 800


def test_an_answer_to_a_probe_is_believed_at_once() -> None:
    times = AnswerTimes(1000)
    times.sent()
    times.ended(5000)
    assert times.is_idle
    times.sent()
    times.ended(20)
    assert times.expected_ms == 20 * MARGIN


def test_no_answer_says_nothing() -> None:
    times = AnswerTimes(1000)
    times.sent()
    times.ended(20)
    times.sent()
    times.ended(None)
    assert times.is_idle
    assert times.expected_ms == 20 * MARGIN


def test_an_overloaded_sender_spends_the_broker_on_what_it_can_answer_in_time() -> None:
    """Under ten times the load that the broker can take, nearly every batch that it answers is acknowledged in time;
    after the overload, everything soon is."""
    step_ms, answer_ms, timeout_ms = 10, 100, 2000
    harness = SenderHarness(delivery_timeout_ms=timeout_ms, linger_ms=0, max_in_flight=5, memory=10_000_000)
    on_the_way: deque[tuple[float, ClientRequest]] = deque()
    futures: list[RecordFuture] = []
    seen = answered = 0

    def turn(overload: bool) -> None:
        nonlocal seen, answered
        for _ in range(5 if overload else 0):
            futures.append(harness.append(bytes(BATCH_SIZE)))
        harness.step(step_ms)
        for request in harness.client.sent[seen:]:
            on_the_way.append((harness.clock.now_ms(), request))
        seen = len(harness.client.sent)
        while on_the_way and harness.clock.now_ms() - on_the_way[0][0] >= answer_ms:
            harness.answer(on_the_way.popleft()[1], base_offset=answered)
            answered += 1

    for _ in range(1000):
        turn(overload=True)
    acknowledged = sum(future.done() and future.exception(0) is None for future in futures)
    assert answered > 400
    assert acknowledged > 0.95 * answered
    for _ in range(timeout_ms // step_ms + 20):
        turn(overload=False)
    assert not harness.accumulator.has_incomplete
    assert harness.free_bytes == 10_000_000
    last = [harness.append(b"after") for _ in range(3)]
    for _ in range(20):
        turn(overload=False)
    assert all(future.exception(0) is None for future in last)
