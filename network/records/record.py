"""What all record formats share: a record as it is read, where its timestamp comes from, and the start of a batch."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

#: Bytes of the offset and the length, which stand before every batch of any format.
LOG_OVERHEAD = 12
LENGTH_OFFSET = 8
#: Where every batch of any format says which one it has.
MAGIC_OFFSET = 16
#: The attribute bit for timestamps that the broker made.
TIMESTAMP_TYPE_MASK = 0x08

#: The timestamp of records that have none, and of a batch without records.
TIMESTAMP_UNKNOWN = -1

#: An upper bound of what the only record of a batch adds to its key, value and headers: length, attributes, deltas,
#: sizes.
MAX_RECORD_OVERHEAD = 31

#: How far the records of one batch may swell when nothing else is asked for: eight times the default `buffer_memory`.
MAX_RECORDS_BYTES = 256 * 1024 * 1024


class TimestampType(IntEnum):
    """Who set the timestamps of a batch. Source: Kafka's ``TimestampType``."""

    #: The format has no timestamps (v0).
    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record at its offset. The bytes are copies: they outlive the buffer the record was read from."""

    offset: int
    #: Milliseconds since 1970; -1 for none.
    timestamp: int
    key: bytes | None
    #: None is a tombstone in a compacted topic.
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
