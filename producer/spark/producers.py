"""The producers of a Python worker: one per configuration, shared by successive tasks and closed when idle.

Spark forks its Python workers from a daemon, runs one task after another in them, and ends them with ``os._exit`` or a
signal. Therefore the first task that needs a producer creates it, each task flushes its own rows, and nothing is
deferred to process exit.

Source: Spark's InternalKafkaProducerPool, whose producers also close after ten idle minutes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterator

from ...network.clock import SYSTEM_CLOCK, Clock
from ..config import ProducerConfig
from ..kafka_producer import KafkaProducer

#: Idle time in milliseconds after which a producer is closed.
IDLE_MS = 600_000.0


@dataclasses.dataclass(eq=False)
class _Held:
    producer: KafkaProducer
    users: int = 0
    idle_since_ms: float = 0.0
    broken: bool = False


class ProducerCache:
    """Producers by the digest of their configuration. Thread-safe.

    Invariants, under the condition's lock: a producer in the table is open, and none of its tasks has failed. One
    janitor thread closes a producer whose `users` is 0 `idle_ms` after its last task. The janitor ends when the table
    is empty.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        idle_ms: float = IDLE_MS,
        make: Callable[[ProducerConfig], KafkaProducer] = KafkaProducer,
    ) -> None:
        self._clock = clock
        self._idle_ms = idle_ms
        self._make = make
        self._changed = threading.Condition()
        self._held: dict[bytes, _Held] = {}
        self._janitor: threading.Thread | None = None

    @contextlib.contextmanager
    def lease(self, digest: bytes, config: ProducerConfig) -> Iterator[KafkaProducer]:
        """Lend a producer to one task.

        If the task fails, its producer is closed. Its pending rows are dropped, because they could otherwise arrive
        after the rows of Spark's next attempt; and a producer that failed once may be unusable.
        """
        held = self._take(digest, config)
        try:
            yield held.producer
        except BaseException:
            self._give_back(digest, held, broken=True)
            raise
        else:
            self._give_back(digest, held, broken=False)

    def _take(self, digest: bytes, config: ProducerConfig) -> _Held:
        with self._changed:
            held = self._held.get(digest)
            if held is None:
                held = self._held[digest] = _Held(self._make(config))
            held.users += 1
            return held

    def _give_back(self, digest: bytes, held: _Held, *, broken: bool) -> None:
        with self._changed:
            held.users -= 1
            held.idle_since_ms = self._clock.now_ms()
            if broken:
                held.broken = True
                if self._held.get(digest) is held:
                    del self._held[digest]
            ended = held.broken and held.users == 0
            if self._janitor is None and self._held:
                self._janitor = threading.Thread(target=self._close_idle, name="headrace-spark-idle", daemon=True)
                self._janitor.start()
            self._changed.notify_all()
        if ended:
            held.producer.close(timeout=0)

    def _close_idle(self) -> None:
        """The janitor's thread."""
        while True:
            with self._changed:
                now_ms = self._clock.now_ms()
                idle = [
                    (digest, held)
                    for digest, held in self._held.items()
                    if held.users == 0 and now_ms - held.idle_since_ms >= self._idle_ms
                ]
                for digest, _ in idle:
                    del self._held[digest]
                if not idle:
                    if not self._held:
                        self._janitor = None
                        return
                    unused = [held.idle_since_ms for held in self._held.values() if held.users == 0]
                    self._clock.wait_until(self._changed, min(unused, default=now_ms) + self._idle_ms)
            for _, held in idle:
                # every task has flushed its rows, so nothing is pending
                held.producer.close(timeout=0)

    def close(self) -> None:
        """Close every unused producer. Those in use are closed when their last task ends."""
        with self._changed:
            held_now = list(self._held.values())
            self._held.clear()
            for held in held_now:
                held.broken = True
            unused = [held for held in held_now if held.users == 0]
            self._changed.notify_all()
        for held in unused:
            held.producer.close(timeout=0)

    def __len__(self) -> int:
        with self._changed:
            return len(self._held)


_of_this_process = ProducerCache()


def worker_producers() -> ProducerCache:
    """The cache of this process."""
    return _of_this_process


def _reset_after_fork() -> None:
    """Leave the parent's producers, and their threads, to the parent."""
    global _of_this_process  # noqa: PLW0603  (a fork makes a new process of the same module)
    _of_this_process = ProducerCache()


os.register_at_fork(after_in_child=_reset_after_fork)
