"""Waiting for other threads, however busy the machine is. pytest's timeout bounds all of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from headrace.network.clock import Clock
from headrace.network.protocol.errors import KafkaTimeoutError
from headrace.producer import KafkaProducer


class JumpingClock(Clock):
    """The machine's clock plus an offset that a test sets, so that time passes without waiting."""

    ahead_ms = 0.0

    def now_ms(self) -> float:
        return super().now_ms() + self.ahead_ms


def wait_until(happened: Callable[[], object]) -> None:
    """Poll until the condition holds."""
    gate = threading.Event()
    while not happened():
        gate.wait(0.01)


def know(producer: KafkaProducer, topic: str) -> None:
    """Wait until the producer knows the topic, even if that takes longer than its max.block.ms."""
    known = False
    while not known:
        with contextlib.suppress(KafkaTimeoutError):
            known = bool(producer.partitions_for(topic))


def memory_comes_back(producer: KafkaProducer) -> None:
    """Wait until all memory is free: a batch releases its memory a moment after its futures complete."""
    pool = producer._engine.pool
    wait_until(lambda: pool.available_bytes == pool.total_bytes)
