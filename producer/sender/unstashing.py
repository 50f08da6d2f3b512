"""Enqueues the records that were sent from inside a section (`accumulator/stash.py`)."""

from __future__ import annotations

from ...network.metadata import Metadata
from ...network.protocol import errors
from ...network.protocol.errors import KafkaError
from ..accumulator.accumulator_cy import RecordAccumulator
from ..accumulator.batch_cy import ProducerBatch
from ..record_errors import no_such_partition


def unstash(
    accumulator: RecordAccumulator, metadata: Metadata, now_ms: float
) -> list[tuple[ProducerBatch, KafkaError]]:
    """Enqueue the stashed records, and request metadata for their unknown topics. Sender thread.

    Returns the batches that cannot be enqueued, with their errors.
    """
    unknown: set[str] = set()
    failed: list[tuple[ProducerBatch, KafkaError]] = []
    for batch, partitions in accumulator.unstash():
        error: KafkaError | None = metadata.topic_error(batch.topic)
        if partitions > 0:
            error = no_such_partition(batch.topic, batch.partition, partitions)
        elif error is None or isinstance(error, errors.RetriableError):
            unknown.add(batch.topic)
            continue
        if accumulator.stash.take_back(batch):
            failed.append((batch, error))
    for topic in unknown:
        metadata.add_topic(topic, now_ms)
    if unknown:
        metadata.request_update_for_waiting(unknown)
    return failed
