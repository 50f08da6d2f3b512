# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The writer of record batches (format v2): each record is encoded once, straight into the batch's buffer.

This is the per-record path of the producer. `RecordBatchBuilder` knows nothing of partitions, futures or locks; whoever
owns it serialises the calls. What is done once a batch (header, CRC, compression) stands in `finish` and in `batch.py`.

Source: Kafka's DefaultRecord, MemoryRecordsBuilder (KIP-98).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _cython as cython
from ..protocol.errors import EncodeError
from .batch import RECORD_BATCH_OVERHEAD, TIMESTAMP_UNKNOWN, write_header
from .compression import Compression, compress

if cython.compiled:  # read by Cython only: see network/_cython.py
    import cython  # pyright: ignore[reportMissingImports]

if cython.compiled:
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found]

#: No more than this many bytes are needed to hold one varint of a record.
MAX_VARINT_BYTES = 10

#: An upper bound of what one record adds to its key, value and headers: length, attributes, two deltas, two sizes.
MAX_RECORD_OVERHEAD = 21

#: The encoded header list of a record without headers: a count of zero.
NO_HEADERS = b"\x00"


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def size_of_varint(value: cython.longlong) -> cython.Py_ssize_t:
    rest: cython.ulonglong = cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))
    size: cython.Py_ssize_t = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_varint(
    view: cython.uchar[::1],  # pyright: ignore
    position: cython.Py_ssize_t,
    value: cython.longlong,
) -> cython.Py_ssize_t:
    rest: cython.ulonglong = cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))
    while rest >= 0x80:
        view[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    view[position] = rest
    return position + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_bytes(
    view: cython.uchar[::1],  # pyright: ignore
    position: cython.Py_ssize_t,
    data: bytes,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    if cython.compiled:
        source: cython.p_const_char = data
        memcpy(cython.address(view[position]), source, size)  # pyright: ignore[reportPossiblyUnboundVariable]
    else:
        view[position : position + size] = data
    return position + size


@cython.cfunc
@cython.exceptval(check=False)
def record_size(
    count: cython.Py_ssize_t, delta: cython.longlong, key: bytes | None, value: bytes | None, headers: bytes | None
) -> cython.Py_ssize_t:
    """Bytes of a record's body, its own length prefix left out."""
    size: cython.Py_ssize_t = 1 + size_of_varint(delta) + size_of_varint(count)
    length: cython.Py_ssize_t
    if key is None:
        size += 1
    else:
        length = len(key)
        size += size_of_varint(length) + length
    if value is None:
        size += 1
    else:
        length = len(value)
        size += size_of_varint(length) + length
    if headers is None:
        size += 1
    else:
        size += len(headers)
    return size


@cython.final
@cython.cclass
class RecordBatchBuilder:
    """A record batch being written into a buffer it does not own.

    Invariants: ``buffer[61:position]`` holds `count` whole records; ``position <= capacity``; the 61 header bytes are
    undefined until `finish`. Not thread-safe: the owner of the batch serialises the calls.
    """

    if not cython.compiled:
        # for type checkers: a bytearray until `detach`
        buffer: Any

    def __init__(self, buffer: bytearray) -> None:
        self.buffer = buffer
        if cython.compiled:
            self.view = buffer
        else:
            self.view = memoryview(buffer)
        self.position = RECORD_BATCH_OVERHEAD
        self.capacity = len(buffer)
        self.count = 0
        self.base_timestamp = TIMESTAMP_UNKNOWN
        self.max_timestamp = TIMESTAMP_UNKNOWN

    @cython.cfunc
    @cython.exceptval(check=False)
    def try_append(
        self, timestamp: cython.longlong, key: bytes | None, value: bytes | None, headers: bytes | None
    ) -> cython.bint:
        """Encode one record at the end, or return False and leave the batch as it was where it has no room."""
        delta: cython.longlong = timestamp - self.base_timestamp if self.count else 0
        body: cython.Py_ssize_t = record_size(self.count, delta, key, value, headers)
        position: cython.Py_ssize_t = self.position
        if position + size_of_varint(body) + body > self.capacity:
            return False
        view = self.view
        length: cython.Py_ssize_t
        position = put_varint(view, position, body)
        view[position] = 0  # record attributes: none are defined
        position = put_varint(view, position + 1, delta)
        position = put_varint(view, position, self.count)
        if key is None:
            view[position] = 1  # the varint of -1
            position += 1
        else:
            length = len(key)
            position = put_bytes(view, put_varint(view, position, length), key, length)
        if value is None:
            view[position] = 1
            position += 1
        else:
            length = len(value)
            position = put_bytes(view, put_varint(view, position, length), value, length)
        if headers is None:
            view[position] = 0
            position += 1
        else:
            position = put_bytes(view, position, headers, len(headers))
        self.position = position
        if self.count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return True

    def append(
        self,
        timestamp: int,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> bool:
        """Append one record; False where the batch has no room for it. `timestamp` in milliseconds since 1970."""
        return self.try_append(timestamp, key, value, encode_headers(headers) if headers else None)

    def compress(self, compression: Compression, level: int | None = None) -> Compression:
        """Compress the records in place, once they are complete; returns the compression the batch then has.

        Records that don't get smaller stay as they are, so the result always fits the buffer. Releases the GIL.
        """
        if compression == Compression.NONE:
            return compression
        raw = memoryview(self.buffer)[RECORD_BATCH_OVERHEAD : self.position]
        packed = compress(compression, raw, level)
        size = len(packed)
        if size >= len(raw):
            return Compression.NONE
        raw[:size] = packed
        self.position = RECORD_BATCH_OVERHEAD + size
        return compression

    def finish(
        self,
        *,
        compression: int = 0,
        base_offset: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        attributes: int = 0,
    ) -> memoryview:
        """Write the header with its CRC over what is there, and return the batch's bytes (a view of the buffer)."""
        write_header(
            self.buffer,
            size=self.position,
            base_offset=base_offset,
            partition_leader_epoch=-1,
            attributes=attributes | compression,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=self.count,
        )
        return memoryview(self.buffer)[: self.position]

    def detach(self) -> bytearray | None:
        """Let go of the buffer and return it; None where that was done before. Sizes stay; nothing fits in."""
        buffer = self.buffer
        self.buffer = None
        self.view = None
        self.capacity = 0
        return buffer


def encoded_size(key: bytes | None, value: bytes | None, headers: bytes | None) -> int:
    """Upper bound in bytes of a batch that holds just this record; `headers` as `encode_headers` made them."""
    size = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD + MAX_VARINT_BYTES
    for part in (key, value, headers):
        if part is not None:
            size += len(part)
    return size


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """The encoded header list of a record.

    Raises EncodeError where a header is not a pair of a string and bytes (or None).
    """
    try:
        pairs = list(headers)
    except TypeError:
        raise EncodeError(f"headers are a list of pairs, not {type(headers).__name__}") from None
    out = bytearray()
    _extend_varint(out, len(pairs))
    for pair in pairs:
        try:
            name, value = pair
        except (TypeError, ValueError):
            raise EncodeError(f"a header is a pair of a string and bytes, not {pair!r}") from None
        if not isinstance(name, str):
            raise EncodeError(f"the name of a header is a string, not {type(name).__name__}")
        encoded = name.encode()
        _extend_varint(out, len(encoded))
        out += encoded
        if value is None:
            _extend_varint(out, -1)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            _extend_varint(out, len(value))
            out += value
        else:
            raise EncodeError(f"the value of header {name!r} is bytes or None, not {type(value).__name__}")
    return bytes(out)


def _extend_varint(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def build_batch(
    records: Iterable[tuple],
    *,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> memoryview:
    """One whole batch of ``(timestamp, key, value[, headers])`` records, for the broker's own records and for tests."""
    encoded = [
        (record[0], record[1], record[2], encode_headers(record[3]) if len(record) > 3 else None) for record in records
    ]
    builder = RecordBatchBuilder(
        bytearray(sum(encoded_size(*record[1:]) for record in encoded) + RECORD_BATCH_OVERHEAD)
    )
    for timestamp, key, value, headers in encoded:
        builder.try_append(timestamp, key, value, headers)
    return builder.finish(
        compression=builder.compress(compression, level),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=attributes,
    )
