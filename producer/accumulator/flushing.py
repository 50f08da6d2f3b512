"""Waiting for batches to complete, for `flush`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...network.clock import Clock
from ...network.protocol.errors import KafkaTimeoutError
from ..threads import check_may_wait

if TYPE_CHECKING:
    from .batch_cy import ProducerBatch


def flush_batches(
    pending: list[ProducerBatch],
    flushes: dict[object, bool],
    wakeup: Callable[[], object],
    clock: Clock,
    timeout_ms: float,
) -> None:
    """Wait for these batches, with a token in `flushes` meanwhile, which ends lingering. Any thread but the sender's.

    Raises as `await_batches`.
    """
    deadline_ms = clock.now_ms() + timeout_ms
    if pending:
        check_may_wait("flush")
    token = object()
    try:
        flushes[token] = True
        wakeup()
        await_batches(pending, clock, deadline_ms, timeout_ms)
    finally:
        flushes.pop(token, None)


def await_batches(batches: list[ProducerBatch], clock: Clock, deadline_ms: float, timeout_ms: float) -> None:
    """Wait until the batches, and the parts of split batches, complete. Empties the list. Any thread that may wait.

    Raises KafkaTimeoutError at `deadline_ms`, naming the number of records left and `timeout_ms`.
    """
    while batches:
        batch = batches.pop()
        left_ms = deadline_ms - clock.now_ms()
        if batch.wait(max(left_ms, 0.0) / 1000.0):
            if batch.children is not None:
                batches.extend(child for _, child in batch.children)
                continue
            left_ms = deadline_ms - clock.now_ms()
            if batch.wait_settled(max(left_ms, 0.0) / 1000.0):
                continue
        left = [other for other in [batch, *batches] if not other.done]
        if left:
            records = sum(other.count for other in left)
            raise KafkaTimeoutError(
                f"{records} records in {len(left)} batches were not acknowledged within {timeout_ms / 1000:g} s; they "
                f"are still being delivered, within delivery.timeout.ms"
            )
        raise KafkaTimeoutError(
            f"every record has completed, but callbacks did not return within {timeout_ms / 1000:g} s"
        )
