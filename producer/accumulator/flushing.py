"""Waiting for batches to complete, for `flush`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network.clock import Clock
from ...network.protocol.errors import KafkaTimeoutError

if TYPE_CHECKING:
    from .batch_cy import ProducerBatch


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
