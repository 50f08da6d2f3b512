"""Hierarchical timing wheels: large numbers of timers, each added and cancelled in constant time.

`SystemTimer` is the entry point: `add(task)`, `task.cancel()`, and a thread that calls `advance_clock` (the purgatory's
reaper, or a test with a `MockClock`). Expired tasks run on the timer's executor, never on the thread that advances.

From the outside in: a `SystemTimer` has a `TimingWheel` with its overflow wheels and one `DelayQueue`. A wheel has
buckets (`TimerTaskList`), a bucket has entries (`TimerTaskEntry`), an entry has its `TimerTask`. The delay queue holds
buckets instead of tasks, which keeps it small: `wheel_size` buckets per wheel, whatever the number of timers.

After Kafka's `org.apache.kafka.server.util.timer` and Varghese & Lauck, "Hashed and Hierarchical Timing Wheels" (1987).
"""

from __future__ import annotations

from .executor import SerialExecutor, TaskExecutor
from .system_timer import SystemTimer, Timer
from .timer_task import TimedCall, TimerTask
from .timing_wheel import TimingWheel

__all__ = ["SerialExecutor", "SystemTimer", "TaskExecutor", "TimedCall", "Timer", "TimerTask", "TimingWheel"]
