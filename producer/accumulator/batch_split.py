"""Splitting of a batch that a broker rejected as too large (KIP-126).

Source: Kafka's ProducerBatch.split.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...network.records.batch import RecordBatch, joined
from ...network.records.builder_cy import encode_headers, encoded_size
from .batch_cy import ProducerBatch


def split_batch(batch: ProducerBatch, starts: Sequence[int] = ()) -> list[tuple[int, ProducerBatch]]:
    """Split a sealed batch of two or more records before the records `starts`, or in half; sender thread.

    Returns each part with the index of its first record. The parts share the batch's lease of ``buffer.memory``,
    because an exhausted pool must not prevent a split. They inherit its sequence numbers, which the broker has not
    used.
    """
    records = list(RecordBatch(joined(batch.records)).records())
    cuts = [0, *(starts or [(len(records) + 1) // 2]), len(records)]
    children: list[tuple[int, ProducerBatch]] = []
    for start, end in pairwise(cuts):
        part = records[start:end]
        encoded = [(record, encode_headers(record.headers) if record.headers else None) for record in part]
        capacity = sum(encoded_size(record.key, record.value, headers) for record, headers in encoded)
        child = ProducerBatch(batch.topic, batch.partition, bytearray(capacity), batch.created_ms)
        for record, headers in encoded:
            child.append_record(record.timestamp, record.key, record.value, headers, None)
        child.become_part(batch, start)
        children.append((start, child))
    return children
