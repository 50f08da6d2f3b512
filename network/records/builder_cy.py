# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportIndexIssue=false, reportOptionalSubscript=false
"""The writer of record batches (format v2): each record is encoded once, straight into the batch's buffer.

This is the per-record path of the producer. Records come one by one as Python bytes (`try_append`), or as rows of
columns, without a Python object per row (`append_rows`). `RecordBatchBuilder` is independent of partitions, futures and
locks, and its owner serialises the calls. The work per batch (header, CRC, compression) is in `finish`, `compress` and
`batch.py`.

Source: Kafka's DefaultRecord, MemoryRecordsBuilder (KIP-98).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .. import _cython as cython
from .batch import ATTRIBUTES_OFFSET, CRC_OFFSET, MAGIC_V2, RECORD_BATCH_OVERHEAD, TIMESTAMP_UNKNOWN
from .compression import Compression, compress_parts
from .crc import crc32c
from .headers_cy import encode_headers
from .record import LOG_OVERHEAD, MAX_RECORD_OVERHEAD
from .workspace import Workspace

#: A limit above the size of any batch.
NO_LIMIT: cython.Py_ssize_t = 0x7FFFFFFF

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .columns_cy import BytesColumn, Columns, ListColumn
elif not TYPE_CHECKING:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.headrace.network.records.columns_cy import (
        BytesColumn,
        Columns,
        ListColumn,
    )
    from cython.cimports.libc.string import memcpy


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
    view: cython.p_uchar,
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
def _put_number(
    view: cython.p_uchar, position: cython.Py_ssize_t, size: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """Write a number's last `size` bytes, big-endian, and return the position after them."""
    index: cython.Py_ssize_t = position + size
    while index > position:
        index -= 1
        view[index] = value & 0xFF
        value >>= 8
    return position + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_bytes(
    view: cython.p_uchar,
    position: cython.Py_ssize_t,
    data: bytes,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    if cython.compiled:
        source: cython.p_const_char = data
        memcpy(view + position, source, size)  # pyright: ignore
    else:
        view[position : position + size] = data
    return position + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_value(
    view: cython.p_uchar,
    position: cython.Py_ssize_t,
    column: BytesColumn,
    row: cython.longlong,
) -> cython.Py_ssize_t:
    """Copy the bytes of a column's value, if it has any, and return the position after them."""
    size: cython.longlong = column.sizes[row]
    start: cython.longlong = column.starts[row]
    if size <= 0:
        return position
    if cython.compiled:
        memcpy(view + position, cython.address(column.data[start]), size)  # pyright: ignore
    else:
        view[position : position + size] = column.data[start : start + size]
    return position + size


@cython.cfunc
@cython.exceptval(check=False)
def record_size(
    count: cython.Py_ssize_t, delta: cython.longlong, key: bytes | None, value: bytes | None, headers: bytes | None
) -> cython.Py_ssize_t:
    """The size of a record's body, without its length prefix."""
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


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def view_of(buffer: bytearray) -> cython.p_uchar:
    """The bytes of a buffer for writing: a pointer if compiled, else a memoryview."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))  # pyright: ignore
    else:
        return memoryview(buffer)


@cython.final
@cython.cclass
class RecordBatchBuilder:
    """Writes a record batch into buffers that it does not own, its chunks.

    The first chunk begins with the header, whose 61 bytes are undefined until `finish`. A record is in one chunk as a
    whole; the rest of a chunk may stay unused. `attach` adds a chunk, which copies nothing. The size of the batch stays
    within `limit_bytes`.

    Invariants: ``chunks[place][:position]`` is written, ``position <= capacity``. The chunks before it are complete;
    `used` has their sizes, with the sum `earlier_bytes`. Not thread-safe: the owner of the batch serialises the calls.
    Nothing that the garbage collector tracks is allocated by `try_append`, `append_rows`, `attach`, `raise_limit` and
    `first_records`.
    """

    if not cython.compiled:
        # for type checkers; builder_cy.pxd has the C types
        chunks: list[bytearray]
        used: list[int]

    def __init__(self, buffer: bytearray, limit_bytes: int = NO_LIMIT) -> None:
        """Begin a batch in `buffer`, of at most `limit_bytes`."""
        self.chunks = [buffer]
        self.used = []
        self.view = view_of(buffer)
        self.place = 0
        self.position = RECORD_BATCH_OVERHEAD
        self.earlier_bytes = 0
        self.limit_bytes = limit_bytes
        self.capacity = min(len(buffer), limit_bytes)
        self.capacity_bytes = len(buffer)
        self.count = 0
        self.max_record_bytes = 0
        self.base_timestamp = TIMESTAMP_UNKNOWN
        self.max_timestamp = TIMESTAMP_UNKNOWN

    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, with its header."""
        return self.earlier_bytes + self.position

    @property
    def buffer(self) -> bytearray | None:
        """The first chunk; None after `detach`."""
        return self.chunks[0] if self.chunks else None

    @cython.ccall
    def attach(self, buffer: bytearray) -> object:
        """Add a chunk, for records that the others have no room for."""
        self.chunks.append(buffer)
        self.capacity_bytes += len(buffer)
        return None

    @cython.ccall
    def raise_limit(self, limit_bytes: cython.Py_ssize_t) -> object:
        """Let the batch have up to `limit_bytes`, which is not less than before."""
        self.limit_bytes = limit_bytes
        if len(self.chunks) > 0:
            self.capacity = min(len(cython.cast(bytearray, self.chunks[self.place])), limit_bytes - self.earlier_bytes)
        return None

    @cython.cfunc
    @cython.exceptval(check=False)
    def next_chunk(self, size: cython.Py_ssize_t) -> cython.bint:
        """Go on to the next chunk with room for `size` bytes, if there is one."""
        place: cython.Py_ssize_t = self.place + 1
        _skipped: cython.Py_ssize_t
        room: cython.Py_ssize_t
        buffer: bytearray
        while place < len(self.chunks):
            buffer = self.chunks[place]
            room = min(len(buffer), self.limit_bytes - self.earlier_bytes - self.position)
            if size <= room:
                view = view_of(buffer)
                # interpreted, a signal's handler may raise after each call: what that has left here is removed
                del self.used[self.place :]
                self.used.append(self.position)
                for _skipped in range(self.place + 1, place):
                    self.used.append(0)
                # no call from here on
                self.earlier_bytes += self.position
                self.place = place
                self.position = 0
                self.view = view
                self.capacity = room
                return True
            place += 1
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def try_append(
        self, timestamp: cython.longlong, key: bytes | None, value: bytes | None, headers: bytes | None
    ) -> cython.bint:
        """Append one record. Returns False, with the batch unchanged, if there is no room for it."""
        delta: cython.longlong = timestamp - self.base_timestamp if self.count else 0
        body: cython.Py_ssize_t = record_size(self.count, delta, key, value, headers)
        size: cython.Py_ssize_t = size_of_varint(body) + body
        if self.position + size > self.capacity and not self.next_chunk(size):
            return False
        position: cython.Py_ssize_t = self.position
        view: cython.p_uchar = self.view
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
        self.max_record_bytes = max(self.max_record_bytes, size)
        self.position = position
        if self.count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def append_rows(
        self,
        columns: Columns,
        order: cython.longlong[::1],  # pyright: ignore
        place: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Append the rows ``order[place:end]`` that fit. Returns the place after the last one."""
        view: cython.p_uchar = self.view
        position: cython.Py_ssize_t = self.position
        capacity: cython.Py_ssize_t = self.capacity
        count: cython.Py_ssize_t = self.count
        base: cython.longlong = self.base_timestamp
        latest: cython.longlong = self.max_timestamp
        largest: cython.Py_ssize_t = self.max_record_bytes
        value: BytesColumn = columns.value
        has_key: cython.bint = columns.key is not None
        has_headers: cython.bint = columns.headers is not None
        key: BytesColumn = columns.key if has_key else value  # pyright: ignore
        headers: BytesColumn = columns.headers if has_headers else value  # pyright: ignore
        has_timestamps: cython.bint = columns.has_timestamps
        timestamp: cython.longlong = columns.now_ms
        row: cython.longlong
        delta: cython.longlong
        key_size: cython.longlong
        value_size: cython.longlong
        headers_size: cython.longlong
        body: cython.Py_ssize_t
        size: cython.Py_ssize_t
        while place < end:
            row = order[place]
            if has_timestamps:
                timestamp = columns.timestamps[row]
                if timestamp < 0:
                    timestamp = columns.now_ms
            if count == 0:
                base = timestamp
                latest = timestamp
            delta = timestamp - base
            key_size = key.sizes[row] if has_key else -1
            value_size = value.sizes[row]
            headers_size = headers.sizes[row] if has_headers else -1
            body = (
                1
                + size_of_varint(delta)
                + size_of_varint(count)
                + size_of_varint(key_size)
                + size_of_varint(value_size)
                + (key_size if key_size > 0 else 0)
                + (value_size if value_size > 0 else 0)
                + (headers_size if headers_size > 0 else 1)
            )
            size = size_of_varint(body) + body
            if position + size > capacity:
                self.position = position
                if not self.next_chunk(size):
                    break
                view = self.view
                position = 0
                capacity = self.capacity
            position = put_varint(view, position, body)
            view[position] = 0  # record attributes: none are defined
            position = put_varint(view, position + 1, delta)
            position = put_varint(view, position, count)
            position = put_varint(view, position, key_size)
            if key_size > 0:
                position = put_value(view, position, key, row)
            position = put_varint(view, position, value_size)
            position = put_value(view, position, value, row)
            if headers_size > 0:
                position = put_value(view, position, headers, row)
            else:
                view[position] = 0
                position += 1
            latest = max(latest, timestamp)
            largest = max(largest, size)
            count += 1
            place += 1
        self.position = position
        self.count = count
        self.base_timestamp = base
        self.max_timestamp = latest
        self.max_record_bytes = largest
        return place

    def append(
        self,
        timestamp: int,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> bool:
        """Append one record. Returns False if there is no room. `timestamp` is in milliseconds since 1970."""
        return self.try_append(timestamp, key, value, encode_headers(headers) if headers else None)

    @cython.ccall
    def first_records(self, max_bytes: cython.Py_ssize_t) -> bytes:
        """A copy of the first encoded records, at most `max_bytes`; ``b""`` after `detach`."""
        if not cython.compiled:
            return b"".join(self._views())[RECORD_BATCH_OVERHEAD:][:max_bytes]
        if len(self.chunks) == 0:
            return b""
        left: cython.Py_ssize_t = min(self.earlier_bytes + self.position - RECORD_BATCH_OVERHEAD, max_bytes)
        copy: bytes = PyBytes_FromStringAndSize(cython.NULL, left)  # pyright: ignore
        out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(copy))  # pyright: ignore
        start: cython.Py_ssize_t = RECORD_BATCH_OVERHEAD
        place: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        while left > 0:
            size = (self.used[place] if place < self.place else self.position) - start
            size = min(size, left)
            memcpy(out, view_of(self.chunks[place]) + start, size)  # pyright: ignore
            out += size
            left -= size
            start = 0
            place += 1
        return copy

    def _views(self) -> list[memoryview]:
        """The written part of each chunk."""
        if self.place == 0:
            return [memoryview(self.chunks[0])[: self.position]]
        ends = [*self.used, self.position]
        return [memoryview(chunk)[:end] for chunk, end in zip(self.chunks, ends, strict=False) if end]

    def compress(self, compression: Compression, level: int | None = None) -> Compression:
        """Compress the complete records in place. Returns the resulting compression of the batch.

        Records that do not get smaller stay uncompressed, so the result always fits the chunks.
        """
        packed = self.packed(compression, level, Workspace())
        if packed is None:
            return Compression.NONE
        self.replace_records(packed)
        return compression

    def packed(self, compression: Compression, level: int | None, workspace: Workspace) -> list[memoryview] | None:
        """The complete records compressed, in `workspace`; None if they don't get smaller. Releases the GIL."""
        if compression == Compression.NONE:
            return None
        views = self._views()
        views[0] = views[0][RECORD_BATCH_OVERHEAD:]
        plain = views[0] if len(views) == 1 else workspace.joined(views)
        packed = [memoryview(part) for part in compress_parts(compression, plain, level, MAGIC_V2, workspace)]
        if sum([len(part) for part in packed]) >= len(plain):
            return None
        return packed

    def replace_records(self, parts: list[memoryview]) -> None:
        """Write `parts`, which are not larger than the records before, in place of those."""
        self.used = []
        self.earlier_bytes = 0
        self.place = 0
        self.position = RECORD_BATCH_OVERHEAD
        for part in parts:
            left = part
            while left:
                # assigned to the bytearray itself, the part would be copied twice
                chunk = memoryview(self.chunks[self.place])
                room = len(chunk) - self.position
                if room == 0:
                    self.used.append(self.position)
                    self.earlier_bytes += self.position
                    self.place += 1
                    self.position = 0
                    continue
                fitting = left[:room]
                chunk[self.position : self.position + len(fitting)] = fitting
                self.position += len(fitting)
                left = left[len(fitting) :]

    @cython.ccall
    def finish(
        self,
        compression: cython.int = 0,
        base_offset: cython.longlong = 0,
        producer_id: cython.longlong = -1,
        producer_epoch: cython.int = -1,
        base_sequence: cython.longlong = -1,
        attributes: cython.int = 0,
    ) -> list:
        """Write the header with its CRC and return the batch's bytes, as views of the chunks in their order."""
        views: list = self._views()
        index: cython.Py_ssize_t
        view: cython.p_uchar = view_of(self.chunks[0])
        # the layout of `batch.py`, field by field
        place: cython.Py_ssize_t = _put_number(view, 0, 8, base_offset)
        place = _put_number(view, place, 4, self.earlier_bytes + self.position - LOG_OVERHEAD)
        place = _put_number(view, place, 4, -1)  # the partition leader epoch
        place = _put_number(view, place, 1, MAGIC_V2)
        place = _put_number(view, place, 4, 0)  # the CRC of what follows, below
        place = _put_number(view, place, 2, attributes | compression)
        place = _put_number(view, place, 4, self.count - 1)
        place = _put_number(view, place, 8, self.base_timestamp)
        place = _put_number(view, place, 8, self.max_timestamp)
        place = _put_number(view, place, 8, producer_id)
        place = _put_number(view, place, 2, producer_epoch)
        place = _put_number(view, place, 4, base_sequence)
        place = _put_number(view, place, 4, self.count)
        # with the GIL, as the last argument says: 40 µs per MiB, and getting the GIL back may take a hundred times that
        crc = crc32c(views[0][ATTRIBUTES_OFFSET:], 0, 0)
        for index in range(1, len(views)):
            crc = crc32c(views[index], crc, 0)
        _put_number(view, CRC_OFFSET, 4, crc)
        return views

    def detach(self) -> object:
        """Release the chunks. The sizes keep their values, and nothing more can be appended."""
        self.chunks = []
        self.used = []
        self.capacity = 0
        self.limit_bytes = 0
        return None


@cython.ccall
def encoded_size(key: bytes | None, value: bytes | None, headers: bytes | None) -> cython.Py_ssize_t:
    """The maximum size in bytes of a batch with only this record. `headers` are the result of `encode_headers`."""
    size: cython.Py_ssize_t = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers is not None:
        size += len(headers)
    return size


def encode_header_lists(lists: ListColumn, keys: BytesColumn, values: BytesColumn) -> BytesColumn:
    """Encode the header list of each row as in a record. A row without headers becomes a null.

    `keys` and `values` are the items of the lists. A key that belongs to a row must not be null.
    """
    rows: cython.Py_ssize_t = lists.length
    ends_array = array("q", bytes(8 * (rows + 1)))
    bitmap_array = bytearray((rows + 7) // 8)
    ends: cython.longlong[::1] = ends_array  # pyright: ignore
    bitmap: cython.uchar[::1] = bitmap_array  # pyright: ignore
    bounds = lists.bounds
    row: cython.Py_ssize_t
    item: cython.Py_ssize_t
    count: cython.longlong
    total: cython.longlong = 0
    for row in range(rows):
        ends[row] = total
        count = lists.size_at(row)
        if count == 0:
            continue
        bitmap[row >> 3] |= 1 << (row & 7)
        total += size_of_varint(count)
        for item in range(bounds[row], bounds[row + 1]):
            total += size_of_varint(keys.sizes[item]) + keys.sizes[item] + size_of_varint(values.sizes[item])
            if values.sizes[item] > 0:
                total += values.sizes[item]
    ends[rows] = total
    encoded = bytearray(total)
    view: cython.p_uchar = view_of(encoded)
    position: cython.Py_ssize_t = 0
    for row in range(rows):
        if ends[row] == ends[row + 1]:
            continue
        position = put_varint(view, position, bounds[row + 1] - bounds[row])
        for item in range(bounds[row], bounds[row + 1]):
            position = put_varint(view, position, keys.sizes[item])
            position = put_value(view, position, keys, item)
            position = put_varint(view, position, values.sizes[item])
            position = put_value(view, position, values, item)
    return BytesColumn(encoded, ends_array, 8, 0, bitmap_array, 0, rows)


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
    """Build a batch of ``(timestamp, key, value[, headers])`` records, for the broker's own records and for tests."""
    encoded = [
        (record[0], record[1], record[2], encode_headers(record[3]) if len(record) > 3 else None) for record in records
    ]
    builder = RecordBatchBuilder(
        bytearray(sum(encoded_size(*record[1:]) for record in encoded) + RECORD_BATCH_OVERHEAD)
    )
    for timestamp, key, value, headers in encoded:
        builder.try_append(timestamp, key, value, headers)
    # the buffer holds every record, so there is one part
    return builder.finish(
        compression=builder.compress(compression, level),
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=attributes,
    )[0]
