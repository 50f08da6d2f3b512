"""The wheels run the same tasks as a heap, whatever is added, cancelled or added again, and however time steps."""

from __future__ import annotations

import heapq
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from support.timers import manual_timer

from headrace.broker.timer import SystemTimer, TimerTask
from headrace.network.clock import MockClock

# Around every boundary of the wheels, anywhere, and as long as a timeout on the wire can be.
delays = st.one_of(
    st.sampled_from([0, 1, 2, 3, 7, 8, 9, 19, 20, 21, 399, 400, 401, 7_999, 8_000, 2**31 - 1]),
    st.integers(-2, 70_000),
    st.floats(0, 500, allow_nan=False).map(lambda delay_ms: round(delay_ms * 8) / 8),
)


class NotingTask(TimerTask):
    def __init__(self, number: int, ran: list[int]) -> None:
        super().__init__(0)
        self.number = number
        self._ran = ran

    def run(self) -> None:
        self._ran.append(self.number)


class TimerAgainstHeap(RuleBasedStateMachine):
    """The oracle: a heap of (expiration, turn) and, for each task, its valid turn."""

    tasks = Bundle("tasks")

    @initialize(
        tick_ms=st.sampled_from([1, 1, 3, 10]),
        wheel_size=st.sampled_from([2, 3, 8, 20]),
        start_ms=st.integers(0, 10**12).map(lambda eighths: eighths / 8),
    )
    def start(self, tick_ms: int, wheel_size: int, start_ms: float) -> None:
        self.clock = MockClock(now_ms=start_ms)
        self.timer: SystemTimer = manual_timer(self.clock, tick_ms=tick_ms, wheel_size=wheel_size)
        self.tick_ms = tick_ms
        self.ran: list[int] = []
        self.heap: list[tuple[int, int, int]] = []
        self.current_turn: dict[int, int] = {}
        self.turns = 0
        self.made = 0

    def add_to_both(self, task: NotingTask, delay_ms: float) -> None:
        task.delay_ms = delay_ms
        self.timer.add(task)
        self.current_turn.pop(task.number, None)
        if delay_ms <= 0:
            assert self.ran == [task.number]
            self.ran.clear()
        else:
            self.turns += 1
            self.current_turn[task.number] = self.turns
            expiration_ms = math.ceil((self.clock.now_ms() + delay_ms) / self.tick_ms) * self.tick_ms
            heapq.heappush(self.heap, (expiration_ms, self.turns, task.number))

    @rule(target=tasks, delay_ms=delays)
    def add(self, delay_ms: float) -> NotingTask:
        self.made += 1
        task = NotingTask(self.made, self.ran)
        self.add_to_both(task, delay_ms)
        return task

    @rule(task=tasks, delay_ms=delays)
    def add_again(self, task: NotingTask, delay_ms: float) -> None:
        self.add_to_both(task, delay_ms)

    @rule(task=tasks)
    def cancel(self, task: NotingTask) -> None:
        assert task.is_pending == (task.number in self.current_turn)
        task.cancel()
        self.current_turn.pop(task.number, None)
        assert not task.is_pending

    @rule(duration_ms=delays.map(abs))
    def advance(self, duration_ms: float) -> None:
        self.clock.advance(duration_ms)
        while self.timer.advance_clock(0):
            pass
        due: list[tuple[int, int]] = []
        while self.heap and self.heap[0][0] <= self.clock.now_ms():
            expiration_ms, turn, number = heapq.heappop(self.heap)
            if self.current_turn.get(number) == turn:
                del self.current_turn[number]
                due.append((expiration_ms, number))
        expiration_of = {number: expiration_ms for expiration_ms, number in due}
        assert sorted(self.ran) == sorted(expiration_of)
        order = [expiration_of[number] for number in self.ran]
        assert order == sorted(order)
        self.ran.clear()

    @invariant()
    def nothing_is_lost_or_ran_by_itself(self) -> None:
        if hasattr(self, "timer"):
            assert self.timer.size == len(self.current_turn)
            assert self.ran == []


TimerAgainstHeap.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTimerAgainstHeap = TimerAgainstHeap.TestCase
