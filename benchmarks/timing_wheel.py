"""The broker's timing wheels compared with `heapq`, `sched` and `asyncio.call_later`, with a million timers.

    python benchmarks/timing_wheel.py [--timers N] [--rounds N]

There are two scenarios: *cancel-heavy*, in which 99 % of the timers are cancelled before they expire (requests that are
answered), and *expire-heavy*, in which 2 % are. Delays are random, up to a minute. Time is virtual: after all timers
are set and some cancelled, the clock advances through that minute in steps of 10 ms. Every measurement runs in its own
process, `--rounds` times. The program prints medians per operation, and the ratio of the total time to the wheel's.

The contenders differ in more than speed. The wheel locks, because any thread may use it, and is interpreted. `heapq` is
C without locks, and keeps a cancelled timer until it would have expired. `sched` searches its queue to cancel a timer,
so only some are cancelled and the total is extrapolated. `asyncio` belongs to one thread and rebuilds its heap when
half of it is cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import json
import random
import sched
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from headrace.broker.timer import SystemTimer, TimerTask
from headrace.network.clock import MockClock

LONGEST_MS = 60_000
STEP_MS = 10
SCENARIOS = {"cancel-heavy": 0.99, "expire-heavy": 0.02}
SCHED_CANCELS = 200  # each costs O(timers)


class Contender(Protocol):
    """An implementation of timers on virtual time. `expired` counts the timers that ran."""

    expired: int

    @property
    def most_cancels(self) -> int | None: ...

    def add(self, delay_ms: int) -> Any: ...

    def cancel(self, timer: Any) -> None: ...

    def held(self) -> int: ...

    def advance(self, now_ms: int) -> None: ...


class Wheel:
    most_cancels = None

    class Task(TimerTask):
        __slots__ = ("_owner",)

        def __init__(self, delay_ms: float, owner: Wheel) -> None:
            super().__init__(delay_ms)
            self._owner = owner

        def run(self) -> None:
            self._owner.expired += 1

    class Inline:
        def submit(self, run: Callable[[], object]) -> None:
            run()

        def close(self, timeout_ms: float) -> None:
            """Nothing to do: everything runs on the caller's thread."""

    def __init__(self) -> None:
        self.expired = 0
        self._clock = MockClock()
        self._timer = SystemTimer("benchmark", clock=self._clock, executor=self.Inline())

    def add(self, delay_ms: int) -> TimerTask:
        task = self.Task(delay_ms, self)
        self._timer.add(task)
        return task

    def cancel(self, timer: TimerTask) -> None:
        timer.cancel()

    def held(self) -> int:
        return self._timer.size

    def advance(self, now_ms: int) -> None:
        self._clock.advance(now_ms - self._clock.now_ms())
        self._timer.advance_clock(0)


class Heap:
    """The usual recipe: a heap, and a flag on cancelled timers."""

    most_cancels = None

    class Timer:
        __slots__ = ("cancelled", "run")

        def __init__(self, run: Callable[[], None]) -> None:
            self.run = run
            self.cancelled = False

    def __init__(self) -> None:
        self.expired = 0
        self._now_ms = 0
        self._order = itertools.count()
        self._heap: list[tuple[int, int, Heap.Timer]] = []

    def _expire(self) -> None:
        self.expired += 1

    def add(self, delay_ms: int) -> Heap.Timer:
        timer = self.Timer(self._expire)
        heapq.heappush(self._heap, (self._now_ms + delay_ms, next(self._order), timer))
        return timer

    def cancel(self, timer: Heap.Timer) -> None:
        timer.cancelled = True

    def held(self) -> int:
        return len(self._heap)

    def advance(self, now_ms: int) -> None:
        self._now_ms = now_ms
        while self._heap and self._heap[0][0] <= now_ms:
            timer = heapq.heappop(self._heap)[2]
            if not timer.cancelled:
                timer.run()


class Sched:
    most_cancels = SCHED_CANCELS

    def __init__(self) -> None:
        self.expired = 0
        self._now_ms = 0
        self._scheduler = sched.scheduler(lambda: self._now_ms, lambda _: None)

    def _expire(self) -> None:
        self.expired += 1

    def add(self, delay_ms: int) -> sched.Event:
        return self._scheduler.enter(delay_ms, 0, self._expire)

    def cancel(self, timer: sched.Event) -> None:
        self._scheduler.cancel(timer)

    def held(self) -> int:
        return len(self._scheduler._queue)  # type: ignore[attr-defined]  (its public property sorts a copy)

    def advance(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._scheduler.run(blocking=False)


class Asyncio:
    most_cancels = None

    class Loop(asyncio.SelectorEventLoop):
        now_s = 0.0

        def time(self) -> float:
            return self.now_s

    def __init__(self) -> None:
        self.expired = 0
        self._loop = self.Loop()

    def _expire(self) -> None:
        self.expired += 1

    def add(self, delay_ms: int) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000.0, self._expire)

    def cancel(self, timer: asyncio.TimerHandle) -> None:
        timer.cancel()

    def held(self) -> int:
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()  # an iteration rebuilds its heap
        return len(self._loop._scheduled)  # type: ignore[attr-defined]

    def advance(self, now_ms: int) -> None:
        self._loop.now_s = now_ms / 1000.0
        # a timer that becomes due in an iteration runs after the callback that stops it: hence a second one
        for _ in range(2):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()


CONTENDERS: dict[str, Callable[[], Contender]] = {
    "timing wheel": Wheel,
    "heapq": Heap,
    "sched": Sched,
    "asyncio.call_later": Asyncio,
}


def measure(name: str, scenario: str, timers: int) -> dict[str, float]:
    """The seconds for adding, cancelling (extrapolated) and expiring, and the timers held after cancelling."""
    contender = CONTENDERS[name]()
    rng = random.Random(2025)
    delays = [rng.randrange(1, LONGEST_MS) for _ in range(timers)]
    to_cancel = rng.sample(range(timers), int(timers * SCENARIOS[scenario]))
    done_cancels = to_cancel[: contender.most_cancels]

    started = time.perf_counter()
    handles = [contender.add(delay_ms) for delay_ms in delays]
    added = time.perf_counter()
    for number in done_cancels:
        contender.cancel(handles[number])
    cancelled = time.perf_counter()
    held = contender.held()
    before_time = time.perf_counter()
    for now_ms in range(STEP_MS, LONGEST_MS + STEP_MS, STEP_MS):
        contender.advance(now_ms)
    ended = time.perf_counter()
    if contender.expired != timers - len(done_cancels):
        raise SystemExit(f"{name}: {contender.expired} of {timers - len(done_cancels)} timers ran")
    return {
        "add": added - started,
        "cancel": (cancelled - added) * len(to_cancel) / len(done_cancels),
        # sched also expires the timers it did not cancel: count only the share that should have been left
        "expire": (ended - before_time) * (timers - len(to_cancel)) / contender.expired,
        "held": held - (len(to_cancel) - len(done_cancels)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--timers", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("CONTENDER", "SCENARIO"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        contender, scenario = arguments.one
        print(json.dumps(measure(contender, scenario, arguments.timers)))
        return

    for scenario, share in SCENARIOS.items():
        print(f"{scenario}: {arguments.timers:,} timers, {share:.0%} cancelled; medians of {arguments.rounds}")
        print(f"{'':20}{'add us':>10}{'cancel us':>12}{'expire us':>11}{'whole s':>10}{'/ wheel':>9}{'held then':>12}")
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
        for _ in range(arguments.rounds):
            for name, results in runs.items():
                command = [sys.executable, __file__, "--timers", str(arguments.timers), "--one", name, scenario]
                answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                results.append(json.loads(answer.stdout))
        wheel_s = 0.0
        for name, results in runs.items():
            median = {what: statistics.median(result[what] for result in results) for what in results[0]}
            whole_s = median["add"] + median["cancel"] + median["expire"]
            wheel_s = wheel_s or whole_s
            cancels = int(arguments.timers * share)
            print(
                f"{name:20}{median['add'] / arguments.timers * 1e6:10.2f}{median['cancel'] / cancels * 1e6:12.2f}"
                f"{median['expire'] / (arguments.timers - cancels) * 1e6:11.2f}{whole_s:10.2f}{whole_s / wheel_s:9.2f}"
                f"{median['held']:12,.0f}"
            )
        print()


if __name__ == "__main__":
    main()
