"""Delayed operations under contention: each is completed exactly once, and none is forgotten."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from support.timers import manual_timer

from headrace.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from headrace.network.clock import MockClock

PATIENCE_S = 60.0


class Counter(DelayedOperation):
    """Completable when the offsets of all partitions add up to `required`; records which threads completed it."""

    def __init__(self, offsets: dict[str, int], required: int, delay_ms: float = 1_000_000) -> None:
        super().__init__(delay_ms)
        self.offsets = offsets
        self.required = required
        self.completions: list[str] = []
        self.trying = 0
        self.tried_at_once = 0

    def try_complete(self) -> bool:
        self.trying += 1
        self.tried_at_once = max(self.tried_at_once, self.trying)
        try:
            return sum(self.offsets.values()) >= self.required and self.force_complete()
        finally:
            self.trying -= 1

    def on_complete(self) -> None:
        self.completions.append(threading.current_thread().name)


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def run_together(*works: Callable[[], object]) -> None:
    barrier, errors = threading.Barrier(len(works)), []

    def start(work: Callable[[], object]) -> None:
        barrier.wait(PATIENCE_S)
        try:
            work()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=start, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert errors == []


def test_many_that_force_one_operation_complete_it_once():
    for _ in range(200):
        operation, answers = Counter({}, 1), []
        run_together(*[lambda o=operation, answers=answers: answers.append(o.force_complete())] * 4)
        assert sorted(answers) == [False, False, False, True]
        assert len(operation.completions) == 1


def test_a_change_while_an_operation_comes_in_is_never_missed():
    """Either the watching thread sees the change, or the changing thread finds the operation; no timer helps."""
    for _ in range(300):
        purgatory: DelayedOperationPurgatory[Counter] = DelayedOperationPurgatory("Race", manual_timer(MockClock()))
        offsets = {"a": 0}
        operation = Counter(offsets, 1)

        def change(purgatory=purgatory, offsets=offsets) -> None:
            offsets["a"] = 1
            purgatory.check_and_complete("a")

        run_together(lambda p=purgatory, o=operation: p.try_complete_else_watch(o, ["a"]), change)
        assert len(operation.completions) == 1
        assert purgatory.num_delayed == 0


def test_handlers_checks_timeouts_and_purges_at_once():
    """Four partitions: three handlers watch, four change and check, one advances the time and purges."""
    clock = MockClock()
    timer = manual_timer(clock)
    purgatory: DelayedOperationPurgatory[Counter] = DelayedOperationPurgatory("Race", timer, purge_interval=5)
    offsets = dict.fromkeys("abcd", 0)
    operations: list[Counter] = []
    completed_by_call: list[int] = []
    rounds = 250
    busy = threading.Semaphore(0)

    def watch(seed: int) -> None:
        for turn in range(rounds):
            keys = [key for number, key in enumerate("abcd") if (turn + seed) >> number & 1] or ["a"]
            operation = Counter(offsets, sum(offsets.values()) + turn % 3, delay_ms=1 + turn % 7)
            operations.append(operation)
            completed_by_call.append(purgatory.try_complete_else_watch(operation, keys))
        busy.release()

    def change(key: str) -> None:
        for _ in range(rounds):
            offsets[key] += 1
            completed_by_call.append(purgatory.check_and_complete(key))
        busy.release()

    def pass_time() -> None:
        for _ in range(7):
            while not busy.acquire(blocking=False):
                clock.advance(1)
                timer.advance_clock(0)
                purgatory.purge_if_due()

    watchers = [lambda seed=seed: watch(seed) for seed in range(3)]
    changers = [lambda key=key: change(key) for key in "abcd"]
    run_together(*watchers, *changers, pass_time)
    clock.advance(10)
    timer.advance_clock(0)
    assert [len(operation.completions) for operation in operations] == [1] * (3 * rounds)
    assert max(operation.tried_at_once for operation in operations) == 1
    assert sum(completed_by_call) <= 3 * rounds
    for key in "abcd":
        purgatory.check_and_complete(key)
    assert (purgatory.watched, purgatory.num_delayed, timer.size) == (0, 0, 0)


def test_an_operation_is_cancelled_for_its_key_by_one_only():
    for _ in range(100):
        purgatory: DelayedOperationPurgatory[Counter] = DelayedOperationPurgatory("Race", manual_timer(MockClock()))
        operations = [Counter({}, 1) for _ in range(5)]
        for operation in operations:
            purgatory.try_complete_else_watch(operation, ["a"])
        taken: list[Counter] = []
        run_together(*[lambda p=purgatory, taken=taken: taken.extend(p.cancel_for_key("a"))] * 3)
        assert sorted(map(id, taken)) == sorted(map(id, operations))
        assert (purgatory.watched, purgatory.num_delayed) == (0, 0)
