"""Hierarchical timing wheels: timers that are set and cancelled in constant time, in great numbers.

`SystemTimer` is the way in: `add(task)`, `task.cancel()`, and somebody (the purgatory's reaper, or a test with a
`MockClock`) who calls `advance_clock`. Expired tasks run on the timer's executor, never on the thread that advances.

From the outside in: a `SystemTimer` has a `TimingWheel` with its overflow wheels and one `DelayQueue`. A wheel has
buckets (`TimerTaskList`), a bucket has entries (`TimerTaskEntry`), an entry has its `TimerTask`. The delay queue holds
buckets and not tasks, which is what keeps it small: `wheel_size` buckets a wheel, whatever the number of timers.

After Kafka's `org.apache.kafka.server.util.timer` and Varghese & Lauck, "Hashed and Hierarchical Timing Wheels" (1987).
"""

from __future__ import annotations

from .executor import SerialExecutor, TaskExecutor
from .system_timer import SystemTimer, Timer
from .timer_task import TimerTask
from .timing_wheel import TimingWheel

__all__ = ["SerialExecutor", "SystemTimer", "TaskExecutor", "Timer", "TimerTask", "TimingWheel"]
