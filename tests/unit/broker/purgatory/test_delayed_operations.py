"""Delayed operations and their purgatory, on a mock clock and one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable

import pytest
from support.timers import InlineExecutor, manual_timer

from headrace.broker.purgatory import DelayedOperation, DelayedOperationPurgatory, ExpiredOperationReaper
from headrace.broker.purgatory.delayed_operation import Lock
from headrace.broker.timer import SystemTimer, TimerTask
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import IllegalStateError

# Timeout for waiting on another thread; no passing test waits this long.
PATIENCE_S = 30.0


class Operation(DelayedOperation):
    """Completable when `ready` is set; counts its completions, expirations and tries."""

    def __init__(self, delay_ms: float = 1_000, *, ready: bool = False, lock: Lock | None = None) -> None:
        super().__init__(delay_ms, lock)
        self.ready = ready
        self.tries = 0
        self.completions = 0
        self.expirations = 0
        self.while_trying: Callable[[], object] = lambda: None
        self.on_completing: Callable[[], object] = lambda: None

    def try_complete(self) -> bool:
        self.tries += 1
        self.while_trying()
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1
        self.on_completing()

    def on_expiration(self) -> None:
        assert self.completions == 1
        self.expirations += 1


class Bench:
    def __init__(self, *, purge_interval: int = 1_000) -> None:
        self.clock = MockClock()
        self.timer = manual_timer(self.clock)
        self.purgatory: DelayedOperationPurgatory[Operation] = DelayedOperationPurgatory(
            "Test", self.timer, purge_interval=purge_interval
        )

    def watch(self, *keys: Hashable, delay_ms: float = 1_000) -> Operation:
        operation = Operation(delay_ms)
        assert not self.purgatory.try_complete_else_watch(operation, keys)
        return operation

    def step(self, duration_ms: float) -> None:
        self.clock.advance(duration_ms)
        self.timer.advance_clock(0)

    def counts(self) -> tuple[int, int, int]:
        return self.purgatory.watched, self.purgatory.num_delayed, self.timer.size


def test_what_can_be_completed_at_once_never_waits():
    bench, operation = Bench(), Operation(ready=True)
    assert bench.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.is_completed
    assert (operation.tries, operation.completions) == (1, 1)
    assert bench.counts() == (0, 0, 0)


def test_what_can_not_is_watched_and_completed_by_a_check_of_its_key():
    bench = Bench()
    operation = bench.watch("a")
    assert not operation.is_completed
    assert bench.counts() == (1, 1, 1)
    assert bench.purgatory.check_and_complete("a") == 0
    operation.ready = True
    assert bench.purgatory.check_and_complete("b") == 0
    assert not operation.is_completed
    assert bench.purgatory.check_and_complete("a") == 1
    assert bench.purgatory.check_and_complete("a") == 0
    assert (operation.completions, operation.expirations) == (1, 0)
    assert bench.counts() == (0, 0, 0)
    bench.step(5_000)
    assert (operation.completions, operation.expirations) == (1, 0)


def test_a_check_completes_all_that_can_be_in_the_order_of_their_coming():
    bench, order = Bench(), []
    operations = [bench.watch("a") for _ in range(5)]
    for number, operation in enumerate(operations):
        operation.ready = number != 2
        operation.on_completing = lambda number=number: order.append(number)
    assert bench.purgatory.check_and_complete("a") == 4
    assert order == [0, 1, 3, 4]
    assert bench.counts() == (1, 1, 1)


def test_time_completes_what_nothing_else_did():
    bench = Bench()
    operation = bench.watch("a", "b", delay_ms=100)
    bench.step(99)
    assert not operation.is_completed
    bench.step(1)
    assert (operation.completions, operation.expirations) == (1, 1)
    assert bench.counts() == (2, 0, 0)  # the next check finds its entries, or a purge removes them
    assert bench.purgatory.check_and_complete("a") == 0
    assert bench.purgatory.check_and_complete("b") == 0
    assert bench.counts() == (0, 0, 0)
    assert operation.tries == 2


def test_no_delay_is_answered_by_the_second_look_or_the_timer():
    bench, operation = Bench(), Operation(0)
    assert not bench.purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.completions, operation.expirations) == (1, 1)
    assert bench.counts() == (1, 0, 0)


def test_an_operation_of_many_keys_is_completed_through_any():
    bench = Bench()
    operation = bench.watch("a", "b", "c")
    assert bench.counts() == (3, 1, 1)
    operation.ready = True
    assert bench.purgatory.check_and_complete("b") == 1
    assert bench.counts() == (2, 0, 0)
    assert bench.purgatory.check_and_complete("a") == 0
    assert operation.completions == 1


def test_a_key_that_is_given_twice_counts_once():
    bench = Bench()
    operation = bench.watch("a", "b", "a")
    assert bench.counts() == (2, 1, 1)
    operation.ready = True
    assert bench.purgatory.check_and_complete("a") == 1
    assert bench.purgatory.check_and_complete("b") == 0
    assert bench.counts() == (0, 0, 0)


def test_a_change_between_the_two_tries_is_not_missed():
    """The change comes after the first try and before the operation is watched: no later check comes for its key."""
    bench, operation = Bench(), Operation()

    def change_after_the_first_try() -> None:
        if operation.tries == 2:
            operation.ready = True

    operation.while_trying = change_after_the_first_try
    assert bench.purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.completions == 1
    assert bench.counts() == (1, 0, 0)


def test_completion_by_somebody_else_while_it_is_being_watched_leaves_no_timer():
    bench = Bench()
    for at_try in (1, 2):
        operation = Operation()
        operation.while_trying = lambda operation=operation, at_try=at_try: (
            operation.tries == at_try and operation.force_complete()
        )
        assert not bench.purgatory.try_complete_else_watch(operation, ["a"])
        assert (operation.completions, operation.expirations) == (1, 0)
        assert bench.counts()[1:] == (0, 0)
    bench.step(5_000)
    assert bench.purgatory.check_and_complete("a") == 0
    assert bench.counts() == (0, 0, 0)


def test_completion_while_the_timer_is_being_set_leaves_no_timer():
    bench, operation = Bench(), Operation()

    class LateTimer(SystemTimer):
        def add(self, task: TimerTask) -> None:
            assert operation.force_complete()
            super().add(task)

    timer = LateTimer("late", clock=bench.clock, executor=InlineExecutor())
    purgatory: DelayedOperationPurgatory[Operation] = DelayedOperationPurgatory("Late", timer)
    assert not purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.completions == 1
    assert (purgatory.num_delayed, timer.size) == (0, 0)


def test_a_key_that_nothing_waits_for_is_not_kept():
    bench = Bench(purge_interval=0)
    ways: list[Callable[[Operation], object]] = [
        lambda operation: bench.purgatory.check_and_complete("a"),
        lambda operation: bench.purgatory.cancel_for_key("a"),
        lambda operation: operation.force_complete() and bench.purgatory.purge_if_due(),
    ]
    for finish in ways:
        operation = bench.watch("a")
        operation.ready = True
        finish(operation)
        assert not any(watcher_list._by_key for watcher_list in bench.purgatory._watcher_lists)


def test_force_complete_is_true_once():
    operation = Operation()
    assert [operation.force_complete() for _ in range(3)] == [True, False, False]
    assert operation.completions == 1


def test_forcing_a_waiting_operation_takes_it_out():
    bench = Bench()
    operation = bench.watch("a")
    assert operation.force_complete()
    assert bench.counts() == (1, 0, 0)
    bench.step(5_000)
    assert (operation.completions, operation.expirations) == (1, 0)


def test_completing_may_check_the_same_key_again():
    bench = Bench()
    first, second = bench.watch("a"), bench.watch("a")
    first.ready = True

    def complete_the_second() -> None:
        second.ready = True
        assert bench.purgatory.check_and_complete("a") == 1

    first.on_completing = complete_the_second
    assert bench.purgatory.check_and_complete("a") == 1
    assert (first.completions, second.completions) == (1, 1)
    assert bench.counts() == (0, 0, 0)


def test_operations_may_share_a_lock_that_their_caller_holds():
    bench, lock = Bench(), threading.RLock()
    operations = [Operation(lock=lock) for _ in range(2)]
    with lock:
        for operation in operations:
            bench.purgatory.try_complete_else_watch(operation, ["group"])
            operation.ready = True
        assert bench.purgatory.check_and_complete("group") == 2


def test_an_operation_is_tried_under_its_lock():
    held: list[bool] = []

    class SpyLock:
        depth = 0

        def __enter__(self) -> None:
            self.depth += 1

        def __exit__(self, *exc_info: object) -> None:
            self.depth -= 1

    lock, bench = SpyLock(), Bench()
    operation = Operation(lock=lock)
    operation.while_trying = lambda: held.append(lock.depth == 1)
    bench.purgatory.try_complete_else_watch(operation, ["a"])
    bench.purgatory.check_and_complete("a")
    assert held == [True, True, True]
    assert lock.depth == 0


def test_an_operation_without_a_key_is_refused():
    bench, operation = Bench(), Operation(ready=True)
    with pytest.raises(IllegalStateError, match="needs a key"):
        bench.purgatory.try_complete_else_watch(operation, [])
    assert operation.tries == 0


def test_cancel_for_key_hands_operations_over_uncompleted():
    bench = Bench()
    both, one, other, completed = bench.watch("a", "b"), bench.watch("a"), bench.watch("b"), bench.watch("a")
    completed.force_complete()
    assert bench.purgatory.cancel_for_key("a") == [both, one]
    assert bench.purgatory.cancel_for_key("a") == []
    assert bench.purgatory.num_delayed == 1
    one.ready = True
    assert bench.purgatory.check_and_complete("a") == 0
    bench.step(5_000)
    assert [operation.completions for operation in (both, one, other)] == [0, 0, 1]
    both.ready = True
    assert bench.purgatory.check_and_complete("b") == 1
    assert bench.counts() == (0, 0, 0)


def test_an_error_in_one_operation_keeps_no_other_from_its_turn():
    bench = Bench()
    operations = [bench.watch("a") for _ in range(4)]
    for operation in operations:
        operation.ready = True
    operations[0].on_completing = lambda: 1 / 0
    operations[2].while_trying = [].pop
    with pytest.raises(ZeroDivisionError):
        bench.purgatory.check_and_complete("a")
    assert [operation.completions for operation in operations] == [1, 1, 0, 1]
    assert bench.counts() == (1, 1, 1)
    bench.step(1_000)
    assert operations[2].completions == 1


@pytest.mark.parametrize("failing_try", [1, 2])
def test_an_error_before_it_waits_leaves_the_operation_to_the_caller(failing_try: int):
    bench, operation = Bench(), Operation()

    def fail() -> None:
        if operation.tries == failing_try:
            raise LookupError("no such partition")

    operation.while_trying = fail
    with pytest.raises(LookupError):
        bench.purgatory.try_complete_else_watch(operation, ["a"])
    operation.ready = True
    assert bench.purgatory.check_and_complete("a") == 0
    bench.step(5_000)
    assert operation.completions == 0
    assert bench.counts() == (0, 0, 0)


def test_nothing_waits_on_a_closed_timer():
    bench, operation = Bench(), Operation()
    bench.timer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        bench.purgatory.try_complete_else_watch(operation, ["a"])
    assert bench.purgatory.check_and_complete("a") == 0
    assert operation.completions == 0
    assert bench.counts() == (0, 0, 0)
    assert bench.purgatory.try_complete_else_watch(Operation(ready=True), ["a"])


def test_completed_operations_are_purged_past_the_interval():
    bench = Bench(purge_interval=10)
    waiting = [bench.watch("common", number) for number in range(3)]
    for number in range(5):
        bench.watch("common", number).force_complete()
    assert bench.counts() == (16, 3, 3)
    assert bench.purgatory.purge_if_due() == 0  # ten entries to purge, which does not exceed ten
    bench.watch("common").force_complete()
    assert bench.purgatory.purge_if_due() == 11
    assert bench.counts() == (6, 3, 3)
    assert bench.purgatory.purge_if_due() == 0
    for operation in waiting:
        operation.ready = True
    assert bench.purgatory.check_and_complete("common") == 3


def test_a_purge_waits_until_it_is_worth_its_round():
    bench = Bench(purge_interval=10)
    for number in range(100):
        bench.watch(number)
    completed = [bench.watch("common") for _ in range(101)]
    for operation in completed[:100]:
        operation.force_complete()
    assert bench.purgatory.purge_if_due() == 0
    completed[100].force_complete()
    assert bench.purgatory.purge_if_due() == 101
    assert bench.counts() == (100, 100, 100)


def test_keys_are_any_hashables_in_all_shards():
    bench = Bench()
    keys: Collection[Hashable] = [("topic", number) for number in range(500)] + list(range(-250, 250)) + [None, "x"]
    operations = {key: bench.watch(key) for key in keys}
    for key, operation in operations.items():
        operation.ready = True
        assert bench.purgatory.check_and_complete(key) == 1
        assert operation.is_completed
    assert bench.counts() == (0, 0, 0)


def test_purgatories_that_share_a_timer_count_their_own():
    bench = Bench()
    other: DelayedOperationPurgatory[Operation] = DelayedOperationPurgatory("Other", bench.timer)
    mine, theirs = bench.watch("a"), Operation(ready=False)
    other.try_complete_else_watch(theirs, ["a"])
    assert bench.counts() == (1, 1, 2)
    assert other.num_delayed == 1
    theirs.ready = mine.ready = True
    assert other.check_and_complete("a") == 1
    assert not mine.is_completed
    assert bench.counts() == (1, 1, 1)


def test_the_reaper_lets_time_pass_and_purges():
    clock, expired, purged = MockClock(), threading.Event(), threading.Event()
    timer = SystemTimer("test", clock=clock)
    reaper = ExpiredOperationReaper("ExpirationReaper-test", timer)
    purgatory: DelayedOperationPurgatory[Operation] = DelayedOperationPurgatory("Test", timer, reaper, purge_interval=0)
    threads: list[str] = []

    class NotingPurgatory:
        def purge_if_due(self) -> int:
            if expired.is_set() and purgatory.watched == 0:
                purged.set()
            return 0

    reaper.look_after(NotingPurgatory())
    operation = Operation(500)
    operation.on_completing = lambda: (threads.append(threading.current_thread().name), expired.set())
    purgatory.try_complete_else_watch(operation, ["a"])
    clock.advance(500)
    assert expired.wait(PATIENCE_S)
    while not purged.is_set():
        clock.advance(1)
    assert threads == ["executor-test"]
    reaper.shutdown()
    reaper.shutdown()
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("-test")]
    with pytest.raises(IllegalStateError):
        purgatory.try_complete_else_watch(Operation(), ["a"])
