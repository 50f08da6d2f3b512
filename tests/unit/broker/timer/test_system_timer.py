"""The timer on a mock clock, and its executor."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from support.timers import InlineExecutor, manual_timer

from headrace.broker.timer import SerialExecutor, SystemTimer, TimerTask
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import IllegalStateError, KafkaConfigurationError

# Timeout for waiting on another thread; no passing test waits this long.
PATIENCE_S = 30.0


class Task(TimerTask):
    def __init__(self, delay_ms: float, run: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._run = run

    def run(self) -> None:
        self._run()


class Bench:
    """A timer on a mock clock, and a list of what ran when."""

    def __init__(self, *, start_ms: float = 0.0, tick_ms: int = 1, wheel_size: int = 20) -> None:
        self.clock = MockClock(now_ms=start_ms)
        self.start_ms = start_ms
        self.timer = manual_timer(self.clock, tick_ms=tick_ms, wheel_size=wheel_size)
        self.ran: list[tuple[object, float]] = []

    def add(self, delay_ms: float, name: object = None) -> Task:
        name = delay_ms if name is None else name
        task = Task(delay_ms, lambda: self.ran.append((name, self.clock.now_ms() - self.start_ms)))
        self.timer.add(task)
        return task

    def step(self, duration_ms: float) -> list[tuple[object, float]]:
        """Advance the time and return what ran: (name, time)."""
        self.clock.advance(duration_ms)
        self.timer.advance_clock(0)
        ran, self.ran = self.ran, []
        return ran


def test_tasks_run_when_their_delay_is_over_and_not_before():
    bench = Bench(start_ms=123_456.0)
    for delay_ms in (1, 20, 399, 400, 30_000, 30_000.0, 2**31 - 1):
        bench.add(delay_ms)
    assert bench.timer.size == 7
    assert bench.step(0.5) == []
    assert bench.step(0.5) == [(1, 1)]
    assert bench.step(18) == []
    assert bench.step(1) == [(20, 20)]
    assert bench.step(378) == []
    assert bench.step(1) == [(399, 399)]
    assert bench.step(1) == [(400, 400)]
    assert bench.step(29_599) == []
    assert bench.step(1) == [(30_000, 30_000), (30_000.0, 30_000)]
    assert bench.step(2**31 - 30_002) == []
    assert bench.step(1) == [(2**31 - 1, 2**31 - 1)]
    assert bench.timer.size == 0


def test_a_fraction_of_a_tick_makes_a_task_late_and_never_early():
    bench = Bench(start_ms=10.75, tick_ms=10)
    bench.add(4.5)  # until 15.25, in the tick that ends at 20
    assert bench.step(9) == []
    assert bench.step(0.25) == [(4.5, 9.25)]
    bench.add(10.0)
    assert bench.step(9.75) == []
    assert bench.step(0.25) == [(10.0, 19.25)]


def test_no_delay_runs_at_once():
    bench = Bench()
    bench.add(0)
    bench.add(-5)
    assert bench.ran == [(0, 0), (-5, 0)]
    assert bench.timer.size == 0


def test_a_big_step_runs_everything_in_order_of_expiration():
    bench = Bench()
    for delay_ms in (5, 800, 21, 1, 100_000, 399, 20, 8_000, 19):
        bench.add(delay_ms)
    assert [name for name, _ in bench.step(1_000_000)] == [1, 5, 19, 20, 21, 399, 800, 8_000, 100_000]


def test_a_timer_that_nobody_advanced_for_long_takes_new_tasks_right():
    bench = Bench()
    bench.clock.advance(10_000_000)
    bench.add(7)
    assert bench.step(6) == []
    assert bench.step(1) == [(7, 10_000_007)]


def test_a_cancelled_task_does_not_run_and_is_not_counted():
    bench = Bench()
    tasks = [bench.add(delay_ms) for delay_ms in (1, 1, 50, 50, 5_000)]
    for task in (tasks[0], tasks[3], tasks[4]):
        assert task.is_pending
        task.cancel()
        assert not task.is_pending
    assert bench.timer.size == 2
    tasks[0].cancel()
    assert bench.timer.size == 2
    assert bench.step(10_000) == [(1, 10_000), (50, 10_000)]
    assert not tasks[1].is_pending
    tasks[1].cancel()  # too late: nothing to remove
    assert bench.timer.size == 0


def test_a_task_that_was_never_added_can_be_cancelled():
    task = Task(1, lambda: None)
    task.cancel()
    assert not task.is_pending


def test_adding_a_task_again_moves_it():
    bench = Bench()
    task = bench.add(10, "moved")
    bench.step(9)
    task.delay_ms = 30
    bench.timer.add(task)
    assert bench.timer.size == 1
    assert bench.step(29) == []
    assert bench.step(1) == [("moved", 39)]
    bench.timer.add(task)
    assert bench.step(30) == [("moved", 69)]


def test_a_task_may_use_the_timer_that_runs_it():
    bench = Bench()
    later = bench.add(20, "cancelled by another")

    def run() -> None:
        bench.ran.append(("first", bench.clock.now_ms()))
        later.cancel()
        bench.add(5, "second")

    bench.timer.add(Task(10, run))
    assert bench.step(10) == [("first", 10)]
    assert bench.step(100) == [("second", 110)]


def test_advance_clock_says_whether_a_bucket_was_due():
    bench = Bench()
    assert not bench.timer.advance_clock(0)
    bench.add(3)
    assert not bench.timer.advance_clock(0)
    bench.clock.advance(3)
    assert bench.timer.advance_clock(0)
    assert not bench.timer.advance_clock(0)


def test_a_closed_timer_takes_and_runs_nothing():
    bench = Bench()
    bench.add(1)
    bench.timer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        bench.add(1)
    assert bench.step(5) == []
    bench.timer.close()


@pytest.mark.parametrize(("tick_ms", "wheel_size"), [(0, 20), (-1, 20), (1, 1), (1, 0)])
def test_a_wheel_that_can_not_turn_is_refused(tick_ms: int, wheel_size: int):
    with pytest.raises(KafkaConfigurationError, match="two ticks or more"):
        SystemTimer("x", clock=MockClock(), tick_ms=tick_ms, wheel_size=wheel_size, executor=InlineExecutor())


class Advancer:
    """A thread that calls `advance_clock` once, with a long timeout on the mock clock."""

    def __init__(self, timer: SystemTimer, timeout_ms: float) -> None:
        self.answer: list[bool] = []
        self._thread = threading.Thread(target=lambda: self.answer.append(timer.advance_clock(timeout_ms)))
        self._thread.start()

    def wait(self) -> bool:
        self._thread.join(PATIENCE_S)
        return self.answer[0]


def test_waiting_ends_when_a_bucket_becomes_due():
    bench = Bench()
    bench.add(100)
    advancer = Advancer(bench.timer, 1_000)
    bench.clock.advance(100)
    assert advancer.wait()
    assert bench.ran == [(100, 100)]


def test_waiting_ends_when_the_time_is_over():
    bench = Bench()
    bench.add(1_000_000_000)
    advancer = Advancer(bench.timer, 1_000)
    while not advancer.answer and bench.clock.now_ms() < 1_000_000_000:
        bench.clock.advance(1)  # it is unknown when the thread begins to wait
    assert not advancer.wait()
    assert bench.ran == []


def test_waiting_takes_a_nearer_task_into_account():
    bench = Bench()
    bench.add(500)
    advancer = Advancer(bench.timer, 10_000)
    bench.add(50)
    bench.clock.advance(50)
    assert advancer.wait()
    assert bench.ran == [(50, 50)]


def test_a_wait_lasts_until_the_next_bucket_or_the_timeout_whichever_is_first():
    class SteppingClock(MockClock):
        """A clock that advances to the deadline whenever something waits."""

        def wait_until(self, condition: threading.Condition, end_ms: float) -> bool:
            waited_until.append(end_ms)
            self.advance(end_ms - self.now_ms())
            return False

    waited_until: list[float] = []
    timer = manual_timer(SteppingClock())
    timer.add(Task(15, lambda: None))
    assert not timer.advance_clock(10)
    assert timer.advance_clock(10)
    assert not timer.advance_clock(10)
    assert waited_until == [10, 15, 25]


def test_wakeup_ends_the_wait_that_is_or_the_next_one():
    bench = Bench()
    advancer = Advancer(bench.timer, 10_000)
    bench.timer.wakeup()
    assert not advancer.wait()
    bench.timer.wakeup()
    assert not bench.timer.advance_clock(10_000)


def test_close_ends_the_wait():
    bench = Bench()
    advancer = Advancer(bench.timer, 10_000)
    bench.timer.close()
    assert not advancer.wait()


def test_the_serial_executor_runs_in_order_on_one_named_thread():
    executor, ran = SerialExecutor("executor-test"), []
    for number in range(100):
        executor.submit(lambda number=number: ran.append((number, threading.current_thread().name)))
    executor.close(PATIENCE_S * 1000)
    assert ran == [(number, "executor-test") for number in range(100)]


def test_a_task_that_raises_is_reported_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch):
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    clock = MockClock()
    timer, ran = SystemTimer("failing", clock=clock), threading.Event()
    timer.add(Task(1, lambda: 1 / 0))
    timer.add(Task(2, ran.set))
    clock.advance(2)
    assert timer.advance_clock(0)
    assert ran.wait(PATIENCE_S)
    timer.close()
    assert [args.exc_type for args in reported] == [ZeroDivisionError]
    assert reported[0].thread is not None
    assert reported[0].thread.name == "executor-failing"


def test_closing_runs_what_has_expired_before():
    clock = MockClock()
    timer, ran = SystemTimer("closing", clock=clock), []
    for number in range(50):
        timer.add(Task(1, lambda number=number: ran.append(number)))
    timer.add(Task(2, lambda: ran.append("not due")))
    clock.advance(1)
    timer.advance_clock(0)
    timer.close()
    assert ran == list(range(50))


def test_a_task_may_close_its_own_timer():
    timer, done = SystemTimer("suicidal", clock=MockClock()), threading.Event()

    def close() -> None:
        timer.close()
        done.set()

    timer.add(Task(0, close))
    assert done.wait(PATIENCE_S)


def test_threads_that_add_and_cancel_while_time_moves_lose_nothing():
    clock, ran, threads = MockClock(), [], []
    timer = manual_timer(clock, wheel_size=3)
    kept: list[int] = []
    adding = threading.Semaphore(0)

    def add_and_cancel(first: int) -> None:
        random_delays = random.Random(first)
        for number in range(first, first + 1_000):
            task = Task(random_delays.randrange(1, 60), lambda number=number: ran.append(number))
            timer.add(task)
            if number % 2:
                task.cancel()
            else:
                kept.append(number)
        adding.release()

    for first in range(0, 4_000, 1_000):
        threads.append(threading.Thread(target=add_and_cancel, args=(first,)))
        threads[-1].start()
    for _ in threads:
        while not adding.acquire(blocking=False):
            clock.advance(1)
            timer.advance_clock(0)
    clock.advance(60)
    timer.advance_clock(0)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert timer.size == 0
    assert len(ran) == len(set(ran))
    assert set(kept) <= set(ran)
