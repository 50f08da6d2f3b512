"""Requests that cannot be answered yet. They wait until they can be answered or until they expire.

A request that has to wait (a produce with `acks=all` for its followers, a fetch for its bytes) becomes a
`DelayedOperation`. The operation checks whether it can be answered now (`try_complete`), answers (`on_complete`), and
has a timeout. The purgatory tries it, watches it under the keys of what it waits for, and starts its timer. A thread
that changes such a thing (advances a high watermark, appends a record) then calls `check_and_complete(key)`. Each
operation is completed exactly once: by the caller, by such a check, or by its timer.

    class DelayedAnswer(DelayedOperation):
        def __init__(self, partition, offset, respond, *, timeout_ms):
            super().__init__(timeout_ms)
            self.partition, self.offset, self.respond = partition, offset, respond

        def try_complete(self):
            return self.partition.high_watermark >= self.offset and self.force_complete()

        def on_complete(self):
            self.respond(enough=self.partition.high_watermark >= self.offset)

    timer = SystemTimer("broker-1", clock=clock)                    # one per broker
    reaper = ExpiredOperationReaper("ExpirationReaper-1", timer)    # the thread that advances the timer
    produces = DelayedOperationPurgatory("Produce", timer, reaper)  # one per kind of operation

    produces.try_complete_else_watch(DelayedAnswer(...), [topic_partition])  # a request handler
    produces.check_and_complete(topic_partition)                             # after the high watermark has advanced
    reaper.shutdown()

Three rules for callers:

- Call `check_and_complete` without holding a lock that a `try_complete` or `on_complete` takes. It completes other
  clients' requests: a thread that holds partition A's lock and completes a fetch that reads partition B can deadlock
  with a thread that does the reverse. Change the state under the lock, release it, then check.
- `try_complete` is called with the operation's lock held, so by one thread at a time. `on_complete` may run on any
  thread: the handler's own, another handler's, or the timer's executor.
- A key is any hashable, and a purgatory compares keys by `==`. Named tuples of different types with the same content
  are equal. If a purgatory has keys of two kinds (a group's join and its sync), their content must differ too.

After Kafka's `DelayedOperation.scala`. Differences: all purgatories of a broker share one timer and one reaper, because
threads cost more here; and each purgatory counts its pending operations itself.
"""

from __future__ import annotations

from .delayed_operation import DelayedOperation
from .purgatory import DelayedOperationPurgatory
from .reaper import ExpiredOperationReaper

__all__ = ["DelayedOperation", "DelayedOperationPurgatory", "ExpiredOperationReaper"]
