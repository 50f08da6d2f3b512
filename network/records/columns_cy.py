# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportIndexIssue=false, reportOptionalSubscript=false, reportAssignmentType=false
"""Columns of records in Arrow buffers.

No Python object is created per row: a value is a position and a size in its column's buffer. Both are checked against
the buffer once, here. Code that reads values needs no checks, and the compiled code has none.

Source: Arrow's columnar format.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Literal

from .. import _cython as cython
from ..protocol.errors import EncodeError
from .batch import RECORD_BATCH_OVERHEAD
from .record import MAX_RECORD_OVERHEAD

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

#: The maximum that a record in a batch of its own takes beside its key, value and headers.
SINGLE_RECORD_OVERHEAD: cython.longlong = RECORD_BATCH_OVERHEAD + MAX_RECORD_OVERHEAD


@cython.final
@cython.cclass
class BytesColumn:
    """A column of nullable bytes. Each value is a position relative to one buffer. Immutable; does not copy the data.

    Invariant: a size is -1 for a null, else 0 or more. A value of one byte or more is within `data`, or in one of
    `items`, bytes objects that the column keeps alive: their positions are distances in memory (`column_over`).
    """

    if not cython.compiled:
        # for type checkers; columns_cy.pxd has the C types
        items: Any
        data: Any
        starts: Any
        sizes: Any
        offsets32: Any
        offsets64: Any
        validity: Any

    def __init__(
        self,
        data: Any,
        offsets: Any,
        offset_bytes: int,
        width: int,
        validity: Any,
        first: int,
        length: int,
    ) -> None:
        """Read the buffers of an Arrow array.

        `data` is the buffer of the values.
        `offsets` is the buffer of the offsets, and `offset_bytes` is the size of each: 4 or 8. It is 0 if each value
        has `width` bytes; with a `width` of -1 all values are null.
        `validity` is Arrow's bitmap, or None if no value is null.
        `first` is the index in the buffers of the array's first value, and `length` is the number of values.

        Raises EncodeError if a buffer is too short or an offset is outside `data`.
        """
        self.length = length
        self.total_bytes = 0
        self.items = None
        self.data = memoryview(data).cast("B")
        self.starts = array("q", bytes(8 * length))
        self.sizes = array("q", bytes(8 * length))
        self.offsets32 = _numbers(offsets, "i", first, length) if offset_bytes == 4 else None
        self.offsets64 = _numbers(offsets, "q", first, length) if offset_bytes == 8 else None
        self.validity = memoryview(validity).cast("B") if validity is not None else None
        if self.validity is not None and 8 * len(self.validity) < first + length:
            raise EncodeError(f"the bitmap of a column of {length} values is too short for them")
        damaged = self._locate(offset_bytes, width, validity is not None, first)
        if damaged >= 0:
            raise EncodeError(f"the offsets of value {damaged} of a column lead out of its {len(self.data)} bytes")

    @cython.cfunc
    def _locate(
        self, offset_bytes: cython.Py_ssize_t, width: cython.Py_ssize_t, nulls: cython.bint, first: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Fill `starts` and `sizes`. Returns the first value that is not within the data, or -1."""
        starts = self.starts
        sizes = self.sizes
        row: cython.Py_ssize_t
        place: cython.Py_ssize_t
        size: cython.longlong
        total: cython.longlong = 0
        limit: cython.longlong = len(self.data)
        if offset_bytes == 4:
            offsets32 = self.offsets32
            for row in range(self.length):
                place = first + row
                starts[row] = offsets32[place]
                sizes[row] = offsets32[place + 1] - offsets32[place]
        elif offset_bytes == 8:
            offsets64 = self.offsets64
            for row in range(self.length):
                place = first + row
                starts[row] = offsets64[place]
                sizes[row] = offsets64[place + 1] - offsets64[place]
        else:
            for row in range(self.length):
                starts[row] = (first + row) * width
                sizes[row] = width
            if width < 0:
                return -1
        if nulls:
            validity = self.validity
        for row in range(self.length):
            place = first + row
            if nulls and not (validity[place >> 3] >> (place & 7)) & 1:  # pyright: ignore
                sizes[row] = -1
                continue
            size = sizes[row]
            if size < 0 or (size > 0 and (starts[row] < 0 or starts[row] > limit - size)):
                return row
            total += size
        self.total_bytes = total
        return -1


def _numbers(offsets: Any, kind: Literal["i", "q"], first: int, length: int) -> memoryview:
    """A buffer of offsets as numbers of `kind` (a format of `memoryview.cast`). Arrow buffers may be longer."""
    view = memoryview(offsets).cast("B")
    width = 4 if kind == "i" else 8
    count = len(view) // width
    if length and count < first + length + 1:
        raise EncodeError(f"{count} offsets are too few for a column of {length} values")
    return view[: count * width].cast(kind)


def column_of(values: Any) -> BytesColumn:
    """A column from a sequence of bytes or of strings, which are encoded as UTF-8. Either may include None.

    Raises TypeError for other types or a mix of both, and UnicodeEncodeError for a string that is not valid text.
    """
    rows: cython.Py_ssize_t = len(values)
    offsets = array("q", bytes(8 * (rows + 1)))
    bounds: cython.longlong[::1] = offsets  # pyright: ignore
    bitmap = bytearray((rows + 7) // 8)
    bits: cython.uchar[::1] = bitmap  # pyright: ignore
    row: cython.Py_ssize_t
    total: cython.longlong = 0
    nulls: cython.Py_ssize_t = 0
    last: object = None
    for row, value in enumerate(values):
        if value is None:
            nulls += 1
        elif type(value) is bytes or type(value) is str:
            total += len(value)
            bits[row >> 3] |= 1 << (row & 7)
            last = value
        else:
            raise TypeError(f"a {type(value).__name__} is neither bytes nor a string")
        bounds[row + 1] = total
    present = values if not nulls else [value for value in values if value is not None]
    if isinstance(last, str):
        text = "".join(present)
        if not text.isascii():
            # the characters are not the bytes
            return column_of([None if value is None else value.encode() for value in values])
        data = text.encode()
    else:
        data = b"".join(present)
    return BytesColumn(data, offsets, 8, 0, bitmap if nulls else None, 0, rows)


def column_over(items: tuple[bytes | None, ...], first: int, max_rows: int, max_bytes: int) -> BytesColumn:
    """A column of items from `first` on: at most `max_rows`, with at most `max_bytes` in total unless it is one.

    Compiled, it does not copy them. Raises TypeError for an item that is neither bytes nor None.
    """
    begin: cython.Py_ssize_t = first
    rows: cython.Py_ssize_t = min(len(items) - first, max_rows)
    limit: cython.longlong = max_bytes
    total: cython.longlong = 0
    row: cython.Py_ssize_t
    size: cython.longlong
    value: bytes | None
    starts_array = array("q", bytes(8 * rows))
    sizes_array = array("q", bytes(8 * rows))
    starts: cython.longlong[::1] = starts_array  # pyright: ignore
    sizes: cython.longlong[::1] = sizes_array  # pyright: ignore
    for row in range(rows):
        value = items[begin + row]
        size = -1
        if value is not None:
            size = len(value)
            if row > 0 and total + size > limit:
                rows = row
                break
            if cython.compiled:
                starts[row] = _distance(_NOTHING, value)
            else:
                starts[row] = total
            total += size
        sizes[row] = size
    column: BytesColumn = BytesColumn.__new__(BytesColumn)
    column.length = rows
    column.total_bytes = total
    column.items = items
    if cython.compiled:
        column.data = _NOTHING
    else:
        column.data = memoryview(b"".join([value for value in items[first : first + rows] if value is not None]))
    column.starts = starts
    column.sizes = sizes
    return column


_NOTHING: bytes = b"\0"


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _distance(origin: bytes, value: bytes) -> cython.longlong:
    """How far in memory the bytes of `value` are from those of `origin`."""
    here: cython.p_const_char = origin
    there: cython.p_const_char = value
    return cython.cast(cython.longlong, there) - cython.cast(cython.longlong, here)


@cython.final
@cython.cclass
class ListColumn:
    """A column of lists: the range of items of each row. Immutable; does not copy the buffers."""

    if not cython.compiled:
        bounds: Any
        validity: Any

    def __init__(self, bounds: Any, validity: Any, first: int, items: int) -> None:
        """Check the bounds of the lists.

        `bounds` are 64-bit numbers from 0 to `items`, one more than there are rows. `validity` is the bitmap of the
        lists from bit `first`, or None. Raises EncodeError if a list is outside the items.
        """
        self.length = len(bounds) - 1
        self.bounds = bounds
        self.has_nulls = validity is not None
        self.validity = memoryview(validity).cast("B") if validity is not None else b""
        self.first = first
        row: cython.Py_ssize_t
        for row in range(self.length):
            if not 0 <= self.bounds[row] <= self.bounds[row + 1] <= items:
                raise EncodeError(f"the offsets of list {row} of a column lead out of its {items} items")

    @cython.cfunc
    @cython.exceptval(check=False)
    def size_at(self, row: cython.Py_ssize_t) -> cython.longlong:
        """The number of items of a row; 0 for a null."""
        place: cython.Py_ssize_t = self.first + row
        if self.has_nulls and not (self.validity[place >> 3] >> (place & 7)) & 1:
            return 0
        return self.bounds[row + 1] - self.bounds[row]

    def first_row_with_null(self, items: BytesColumn) -> int:
        """The first row with a null item; -1 if there is none."""
        row: cython.Py_ssize_t
        item: cython.Py_ssize_t
        start: cython.longlong
        for row in range(self.length):
            start = self.bounds[row]
            for item in range(start, start + self.size_at(row)):
                if items.sizes[item] < 0:
                    return row
        return -1


@cython.final
@cython.cclass
class Columns:
    """The columns of the records to send, of the same length.

    `timestamps` and `partitions` contain -1 for a null. A record without a timestamp gets `now_ms`. `headers` are
    encoded header lists, null for none.
    """

    if not cython.compiled:
        key: BytesColumn | None
        value: BytesColumn
        headers: BytesColumn | None
        timestamps: Any
        partitions: Any

    def __init__(
        self,
        value: BytesColumn,
        key: BytesColumn | None,
        headers: BytesColumn | None,
        timestamps: Any,
        partitions: Any,
        now_ms: int,
    ) -> None:
        """Check the lengths.

        `value`, `key` and `headers` are the columns of bytes; only `value` is required.
        `timestamps` (milliseconds since 1970) and `partitions` are 64-bit numbers, or None.
        `now_ms` is the timestamp of records without one.

        Raises EncodeError for columns of different lengths.
        """
        self.length = value.length
        self.value = value
        self.key = key
        self.headers = headers
        self.has_timestamps = timestamps is not None
        self.timestamps = timestamps
        self.has_partitions = partitions is not None
        self.partitions = partitions
        self.now_ms = now_ms
        self.total_bytes = value.total_bytes
        if key is not None:
            self.total_bytes += key.total_bytes
        if headers is not None:
            self.total_bytes += headers.total_bytes
        lengths = [value.length]
        lengths += [each.length for each in (key, headers) if each is not None]
        lengths += [len(each) for each in (timestamps, partitions) if each is not None]
        if min(lengths) != max(lengths):
            raise EncodeError(f"columns of records have the same length, not {lengths}")

    @cython.cfunc
    @cython.exceptval(check=False)
    def size_bound(self, row: cython.longlong) -> cython.longlong:
        """The maximum size in bytes of a batch with only this row."""
        size: cython.longlong = SINGLE_RECORD_OVERHEAD
        if self.value.sizes[row] > 0:
            size += self.value.sizes[row]
        if self.key is not None and self.key.sizes[row] > 0:
            size += self.key.sizes[row]
        if self.headers is not None and self.headers.sizes[row] > 0:
            size += self.headers.sizes[row]
        return size

    def record_bytes(self, row: int) -> int:
        """`size_bound`, for messages."""
        return self.size_bound(row)

    def first_above(self, max_bytes: int) -> int:
        """The first row whose record may be larger than `max_bytes`; -1 if there is none."""
        row: cython.longlong
        limit: cython.longlong = max_bytes
        for row in range(self.length):
            if self.size_bound(row) > limit:
                return row
        return -1

    def partition_at(self, row: int) -> int:
        """The partition of a row; -1 if it has none."""
        return self.partitions[row] if self.has_partitions else -1

    def last_partition(self, subset: Any) -> int:
        """The highest partition of the rows in `subset` (64-bit numbers; None for all rows); -1 if there is none."""
        if not self.has_partitions:
            return -1
        partitions = self.partitions
        place: cython.Py_ssize_t
        last: cython.longlong = -1
        if subset is None:
            for place in range(self.length):
                last = max(last, partitions[place])
            return last
        rows: cython.const[cython.longlong][::1] = subset  # pyright: ignore
        for place in range(len(subset)):
            last = max(last, partitions[rows[place]])
        return last

    def first_partition_from(self, count: int, subset: Any) -> int:
        """The first row in `subset` (None for all rows) with a partition of `count` or above; -1 if there is none."""
        if self.last_partition(subset) < count:
            return -1
        for row in range(self.length) if subset is None else subset:
            if self.partitions[row] >= count:
                return row
        return -1
