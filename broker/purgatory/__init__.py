"""Requests that can not be answered yet, waiting until they can or until their time is over.

A request that has to wait (a produce with `acks=all` for its followers, a fetch for its bytes) becomes a
`DelayedOperation`: it knows how to tell whether it can be answered now (`try_complete`), how to answer
(`on_complete`), and how long it may wait. The purgatory tries it, keeps it under the keys of what it waits for, and
sets its timer. Whoever changes such a thing (a high watermark moved, a record was appended) then calls
`check_and_complete(key)`. Each operation is completed exactly once: by the caller, by such a check, or by its timer.

    class DelayedAnswer(DelayedOperation):
        def __init__(self, partition, offset, respond, *, timeout_ms):
            super().__init__(timeout_ms)
            self.partition, self.offset, self.respond = partition, offset, respond

        def try_complete(self):
            return self.partition.high_watermark >= self.offset and self.force_complete()

        def on_complete(self):
            self.respond(enough=self.partition.high_watermark >= self.offset)

    timer = SystemTimer("broker-1", clock=clock)                    # one a broker
    reaper = ExpiredOperationReaper("ExpirationReaper-1", timer)    # its thread, which lets the timer's time pass
    produces = DelayedOperationPurgatory("Produce", timer, reaper)  # one a kind of operation

    produces.try_complete_else_watch(DelayedAnswer(...), [topic_partition])  # a request handler
    produces.check_and_complete(topic_partition)                             # after the high watermark has moved
    reaper.shutdown()

Three rules for whoever uses it:

- `check_and_complete` is called with no lock held that a `try_complete` or `on_complete` takes. It is about other
  people's requests: a thread that holds partition A's lock and completes a fetch that reads partition B would deadlock
  with its mirror image. Change the state under the lock, release it, then check.
- `try_complete` is called with the operation's lock held, so at most once at a time. `on_complete` may run on any
  thread: the handler's own, another handler's, or the timer's executor.
- A key is any hashable, and a purgatory compares keys by `==`. Named tuples of different types with the same content
  are equal; where a purgatory has keys of two kinds (a group's join and its sync), let them differ in content too.

After Kafka's `DelayedOperation.scala`. Differences: purgatories of a broker share a timer and a reaper, because threads
are dearer here; and what is pending is counted for each purgatory by itself.
"""

from __future__ import annotations

from .delayed_operation import DelayedOperation
from .purgatory import DelayedOperationPurgatory
from .reaper import ExpiredOperationReaper

__all__ = ["DelayedOperation", "DelayedOperationPurgatory", "ExpiredOperationReaper"]
