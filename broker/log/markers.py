"""Transaction markers: the control batches that end a transaction in one partition (KIP-98).

A marker is a batch with one record. Key: version (int16, 0) and type (int16: 0 abort, 1 commit). Value: version
(int16, 0) and the coordinator's epoch (int32). The batch's header has the producer's id and epoch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...network.protocol.errors import CorruptRecordError
from ...network.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, RecordBatch
from ...network.records.builder_cy import build_batch

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_ABORT = 0
_COMMIT = 1


class Marker(NamedTuple):
    """The content of a marker."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(producer_id: int, producer_epoch: int, marker: Marker, timestamp: int) -> memoryview:
    """The batch of a marker. `timestamp` is in milliseconds since 1970."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    return build_batch(
        [(timestamp, key, _VALUE.pack(_VERSION, marker.coordinator_epoch))],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
    )


def read_marker(batch: RecordBatch) -> Marker | None:
    """The marker in a control batch; None for a batch that compaction has emptied, or another control record.

    Raises CorruptRecordError.
    """
    for record in batch.records():
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind not in (_ABORT, _COMMIT):
                return None
            _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
        except struct.error as wrong:
            raise CorruptRecordError(f"the control record at offset {record.offset} is no marker: {wrong}") from wrong
        return Marker(kind == _COMMIT, coordinator_epoch)
    return None
