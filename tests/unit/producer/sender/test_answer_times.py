"""The response time expected of a broker, from its latest responses."""

from __future__ import annotations

from collections import deque

import pytest
from support.sender_harness import BATCH_SIZE, SenderHarness

from headrace.network.client.request import ClientRequest
from headrace.producer.accumulator.batch_cy import RecordFuture
from headrace.producer.sender.answer_times_cy import MARGIN, MAX_OBSERVATIONS, AnswerTimes


def observed(*answers_ms: float, timeout_ms: float = 1000) -> AnswerTimes:
    """After requests that were sent as soon as the one before the last was answered: none but the first is a probe."""
    times, now_ms = AnswerTimes(timeout_ms), 5000.0
    times.sent()
    for answer_ms in answers_ms:
        times.sent()
        now_ms += answer_ms
        times.ended(now_ms, answer_ms)
    return times


def test_nothing_is_expected_before_the_first_response() -> None:
    times = AnswerTimes(1000)
    assert times.expected_ms == 0.0
    assert times.is_idle
    times.sent()
    assert not times.is_idle
    times.ended(10, None)
    assert times.is_idle
    assert times.expected_ms == 0.0


def test_the_median_counts_with_a_margin() -> None:
    assert observed(20).expected_ms == 20 * MARGIN
    assert observed(10, 30, 20, 20, 20).expected_ms == 20 * MARGIN
    assert observed(*[5] * 20, *[50] * MAX_OBSERVATIONS).expected_ms == 50 * MARGIN


def test_one_slow_response_is_no_slow_broker() -> None:
    assert observed(20, 20, 20, 20, 900).expected_ms == 20 * MARGIN


def test_two_fast_responses_end_a_slow_time() -> None:
    slow = [800] * MAX_OBSERVATIONS
    assert observed(*slow).expected_ms == 800
    assert observed(*slow, 20).expected_ms == 800
    assert observed(*slow, 20, 30).expected_ms == 30 * MARGIN


@pytest.mark.parametrize(("answer_ms", "expected_ms"), [(20, 20 * MARGIN), (900, 800)])
def test_a_probe_ends_a_slow_time_by_itself_and_begins_none(answer_ms: float, expected_ms: float) -> None:
    times = observed(*[800] * MAX_OBSERVATIONS)
    times.ended(50_000, None)
    assert times.is_idle
    times.sent()
    times.sent()
    times.ended(60_000, answer_ms)
    assert times.expected_ms == expected_ms


def test_the_margin_does_not_fail_what_there_may_be_time_for() -> None:
    assert observed(400, 400).expected_ms == 500
    assert observed(800, 800).expected_ms == 800


def test_requests_that_overlap_are_one_observation() -> None:
    times = observed(20, 20, 20)
    for _ in range(5):
        times.sent()
    for place in range(5):
        times.ended(9000 + place, 900 - 10 * place)
    assert times.expected_ms == 20 * MARGIN


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("idempotent", [True, False])
def test_a_broker_that_stalls_once_loses_nothing(in_flight: int, idempotent: bool) -> None:
    """What queued up during a stall of three quarters of the delivery timeout is delivered after it."""
    timeout_ms, step_ms = 6000, 10
    harness = SenderHarness(
        delivery_timeout_ms=timeout_ms, linger_ms=0, max_in_flight=in_flight, idempotent=idempotent, memory=10_000_000
    )
    futures: list[RecordFuture] = []
    answered = 0
    for turn in range(1500):
        if turn < 800:
            futures.append(harness.append(bytes(BATCH_SIZE // 2)))
        harness.step(step_ms)
        if 200 <= turn < 650:
            continue
        while answered < len(harness.client.sent):
            harness.answer(harness.client.sent[answered], base_offset=answered)
            answered += 1
    assert [future.exception(0) for future in futures] == [None] * len(futures)


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
