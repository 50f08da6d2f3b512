"""Shared by all record formats: a decoded record, the source of its timestamp, and the start of a batch."""

from enum import IntEnum
from typing import NamedTuple

#: Bytes of the offset and the length, with which a batch of any format starts.
LOG_OVERHEAD = 12
LENGTH_OFFSET = 8
#: The position of the magic (the format version) in a batch of any format.
MAGIC_OFFSET = 16
#: The attribute bit for timestamps set by the broker.
TIMESTAMP_TYPE_MASK = 0x08

#: The timestamp of records that have none, and of a batch without records.
TIMESTAMP_UNKNOWN = -1

#: An upper bound of what a batch's only record adds to its key, value and headers: length, attributes, deltas and
#: sizes.
MAX_RECORD_OVERHEAD = 31

#: The default limit for the decompressed records of one batch: eight times the default `buffer_memory`.
MAX_RECORDS_BYTES = 256 * 1024 * 1024


class TimestampType(IntEnum):
    """Who set the timestamps of a batch. Source: Kafka's ``TimestampType``."""

    #: The format has no timestamps (v0).
    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Record(NamedTuple):
    """A record at its offset. Its bytes are copies and outlive the buffer that it was read from."""

    offset: int
    #: Milliseconds since 1970; -1 for none.
    timestamp: int
    key: bytes | None
    #: None is a tombstone in a compacted topic.
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
