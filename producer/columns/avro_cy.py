# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportIndexIssue=false, reportOptionalSubscript=false, reportAssignmentType=false
"""Avro's binary encoding of Arrow buffers.

A tree of nodes mirrors the Avro schema; each node has the buffers of one Arrow array. `encode` walks the tree twice per
row: `size` adds up the bytes and checks every value, `put` writes them. No Python object is created per value, and the
GIL is released for both passes. `avro.py` builds the tree.

Invariants: every position that a node reads is within its buffers, which its constructor checks. `put` follows a `size`
of the same row that found no problem. The tree belongs to one call.

Source: Avro's specification, "Binary encoding"; decimals have the width that fastavro gives them.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.protocol.errors import EncodeError

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.records.columns_cy import BytesColumn, ListColumn
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.records.columns_cy import BytesColumn, ListColumn
    from cython.cimports.libc.string import memcpy

# What is wrong with a value (`Node.problem`).
IS_NULL: cython.int = 1
OUT_OF_RANGE: cython.int = 2
NO_SYMBOL: cython.int = 3
WRONG_LENGTH: cython.int = 4
TOO_WIDE: cython.int = 5

#: The words for each `Node.problem`, which follow the path and precede the Avro type.
PROBLEMS = {
    IS_NULL: "is null, which is not permitted by",
    OUT_OF_RANGE: "has a number out of the range of",
    NO_SYMBOL: "has text that is not a symbol of",
    WRONG_LENGTH: "has a value whose length is not that of",
    TOO_WIDE: "has a number that needs more bytes than",
}

#: The highest branch of a union whose index is one byte.
MAX_BRANCH = 63


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _long_size(number: cython.longlong) -> cython.longlong:
    """The number of bytes of a number as a zigzag varint."""
    rest: cython.ulonglong = cython.cast(cython.ulonglong, number << 1) ^ cython.cast(cython.ulonglong, number >> 63)
    size: cython.longlong = 1
    while rest > 127:
        rest >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_long(number: cython.longlong, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write a number as a zigzag varint; return the position after it."""
    rest: cython.ulonglong = cython.cast(cython.ulonglong, number << 1) ^ cython.cast(cython.ulonglong, number >> 63)
    while rest > 127:
        out[at] = (rest & 127) | 128
        rest >>= 7
        at += 1
    out[at] = rest
    return at + 1


@cython.cclass
class Node:
    """A part of the schema and the values for it. Subclasses implement `value_size` and `put_value`.

    `path` and `avro_type` are for messages. `problem` is 0, or what is wrong with the value at which `size` returned
    -1. In a union, `null_branch` and `value_branch` are the encoded indexes that come first.
    """

    if not cython.compiled:
        # for type checkers; avro_cy.pxd has the C types
        validity: Any
        problem: int

    def __init__(self, path: str, avro_type: str) -> None:
        self.path = path
        self.avro_type = avro_type
        self.problem = 0
        self.has_nulls = False
        self.takes_null = False
        self.branch_bytes = 0
        self.null_bytes = 0
        self.null_branch = 0
        self.value_branch = 0
        self.first = 0

    def set_validity(self, bitmap: Any, first: int, length: int) -> None:
        """The bitmap of the values from bit `first`. Raises EncodeError if it is too short."""
        self.validity = memoryview(bitmap).cast("B")
        if 8 * len(self.validity) < first + length:
            raise EncodeError(f"the bitmap of {length} values is too short for them")
        self.first = first
        self.has_nulls = True

    def take_null(self) -> None:
        """Make this Avro's type null."""
        self.takes_null = True

    def set_union(self, null_branch: int, value_branch: int) -> None:
        """Make this a branch of a union. `null_branch` is -1 if the union has none. Both are at most MAX_BRANCH."""
        self.value_branch = 2 * value_branch
        self.branch_bytes = 1
        if null_branch >= 0:
            self.takes_null = True
            self.null_branch = 2 * null_branch
            self.null_bytes = 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def is_null(self, row: cython.Py_ssize_t) -> cython.bint:
        """Whether the value is null in Arrow."""
        place: cython.Py_ssize_t = self.first + row
        return self.has_nulls and not (self.validity[place >> 3] >> (place & 7)) & 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def size(self, row: cython.Py_ssize_t) -> cython.longlong:
        """The bytes of a value, with its branch of a union; -1 for a value that doesn't fit."""
        size: cython.longlong
        if self.is_null(row):
            if self.takes_null:
                return self.null_bytes
            self.problem = IS_NULL
            return -1
        size = self.value_size(row)
        return size if size < 0 else size + self.branch_bytes

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write a value; return the position after it."""
        if self.is_null(row):
            if self.null_bytes:
                out[at] = self.null_branch
            return at + self.null_bytes
        if self.branch_bytes:
            out[at] = self.value_branch
            at += 1
        return self.put_value(row, out, at)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        """`size` of a value that is not null. Here: Avro's null, which has no bytes."""
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """`put` of a value that is not null."""
        return at


@cython.final
@cython.cclass
class BooleanNode(Node):
    """Booleans in a bitmap."""

    if not cython.compiled:
        bits: Any

    def __init__(self, path: str, bits: Any, first: int, length: int) -> None:
        super().__init__(path, "boolean")
        self.bits = memoryview(bits).cast("B")
        self.first_bit = first
        if 8 * len(self.bits) < first + length:
            raise EncodeError(f"the bitmap of {length} booleans is too short for them")

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        return 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        place: cython.Py_ssize_t = self.first_bit + row
        out[at] = (self.bits[place >> 3] >> (place & 7)) & 1
        return at + 1


@cython.final
@cython.cclass
class LongNode(Node):
    """Whole numbers, which are multiplied by `factor` and divided by `divisor` (rounding down).

    `least` and `most` are the limits of the numbers as they are in Arrow; `problem` says what one outside of them is.
    """

    if not cython.compiled:
        values: Any

    def __init__(
        self,
        path: str,
        avro_type: str,
        values: Any,
        factor: int = 1,
        divisor: int = 1,
        least: int = -(2**63),
        most: int = 2**63 - 1,
        no_symbol: bool = False,
    ) -> None:
        super().__init__(path, avro_type)
        self.values = values
        self.factor = factor
        self.divisor = divisor
        self.least = least
        self.most = most
        self.out_of_range = NO_SYMBOL if no_symbol else OUT_OF_RANGE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def converted(self, row: cython.Py_ssize_t) -> cython.longlong:
        """The number to write."""
        number: cython.longlong = self.values[row]
        quotient: cython.longlong
        if self.divisor == 1:
            return number * self.factor
        quotient = number // self.divisor
        # C rounds towards zero
        if quotient * self.divisor > number:
            quotient -= 1
        return quotient

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        if not self.least <= self.values[row] <= self.most:
            self.problem = self.out_of_range
            return -1
        return _long_size(self.converted(row))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return _put_long(self.converted(row), out, at)


@cython.final
@cython.cclass
class WidthNode(Node):
    """Values of `width` bytes that are written as they are: floating-point numbers, fixed, and constants."""

    if not cython.compiled:
        data: Any

    def __init__(self, path: str, avro_type: str, data: Any, width: int, first: int, length: int) -> None:
        """`first` is the index of the first value in `data`; with a `length` of -1 all rows have that value."""
        super().__init__(path, avro_type)
        view = memoryview(data).cast("B")
        if len(view) < (first + max(length, 1 if length < 0 else 0)) * width:
            raise EncodeError(f"{len(view)} bytes are too few for {length} values of {width} bytes")
        self.data = view[first * width :]
        self.width = width
        self.stride = 0 if length < 0 else width

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        return self.width

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        start: cython.Py_ssize_t = row * self.stride
        if cython.compiled:
            if self.width == 8:
                memcpy(out + at, cython.address(self.data[start]), 8)
            elif self.width == 4:
                memcpy(out + at, cython.address(self.data[start]), 4)
            elif self.width > 0:
                memcpy(out + at, cython.address(self.data[start]), self.width)
        else:
            out[at : at + self.width] = self.data[start : start + self.width]
        return at + self.width


@cython.final
@cython.cclass
class BytesNode(Node):
    """Strings and bytes, with their length before them, or of exactly `exact` bytes without it (-1: of any length)."""

    if not cython.compiled:
        data: Any
        starts: Any
        sizes: Any

    def __init__(
        self, path: str, avro_type: str, column: BytesColumn, has_length: bool = True, exact: int = -1
    ) -> None:
        super().__init__(path, avro_type)
        self.data = column.data
        self.starts = column.starts
        self.sizes = column.sizes
        self.has_length = has_length
        self.exact = exact

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        size: cython.longlong = self.sizes[row]
        if self.exact >= 0 and size != self.exact:
            self.problem = WRONG_LENGTH
            return -1
        return size + _long_size(size) if self.has_length else size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        size: cython.longlong = self.sizes[row]
        start: cython.longlong = self.starts[row]
        if self.has_length:
            at = _put_long(size, out, at)
        if size > 0:
            if cython.compiled:
                memcpy(out + at, cython.address(self.data[start]), size)
            else:
                out[at : at + size] = self.data[start : start + size]
        return at + size


@cython.final
@cython.cclass
class UuidNode(Node):
    """UUIDs of 16 bytes as text of 36 characters, with its length."""

    if not cython.compiled:
        data: Any

    def __init__(self, path: str, data: Any, first: int, length: int) -> None:
        super().__init__(path, "string (uuid)")
        view = memoryview(data).cast("B")
        if len(view) < 16 * (first + length):
            raise EncodeError(f"{len(view)} bytes are too few for {length} UUIDs")
        self.data = view[16 * first :]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        return 37

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        number: cython.Py_ssize_t
        digit: cython.int
        byte: cython.int
        out[at] = 72
        at += 1
        for number in range(16):
            if number == 4 or number == 6 or number == 8 or number == 10:  # noqa: PLR1714 - no tuple in C
                out[at] = 45
                at += 1
            byte = self.data[16 * row + number]
            digit = byte >> 4
            out[at] = digit + (48 if digit < 10 else 87)
            digit = byte & 15
            out[at + 1] = digit + (48 if digit < 10 else 87)
            at += 2
        return at


@cython.final
@cython.cclass
class DecimalNode(Node):
    """Decimals: unscaled numbers of `width` bytes, little-endian, as big-endian bytes or as fixed of `fixed` bytes."""

    if not cython.compiled:
        data: Any

    def __init__(self, path: str, avro_type: str, data: Any, width: int, fixed: int, first: int, length: int) -> None:
        """`fixed` is -1 for bytes. `first` is the index of the first value in `data`."""
        super().__init__(path, avro_type)
        view = memoryview(data).cast("B")
        if len(view) < (first + length) * width:
            raise EncodeError(f"{len(view)} bytes are too few for {length} decimals of {width} bytes")
        self.data = view[first * width :]
        self.width = width
        self.fixed = fixed

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def needed(self, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The bytes that a number takes: those of its absolute value and the sign, as in fastavro."""
        size: cython.Py_ssize_t = self.width
        place: cython.Py_ssize_t
        filling: cython.int = 255 if self.data[start + size - 1] & 128 else 0
        while (
            size > 1
            and self.data[start + size - 1] == filling
            and (self.data[start + size - 2] & 128) == (filling & 128)
        ):
            size -= 1
        if filling == 0 or self.data[start + size - 1] != 128:
            return size
        # a power of two such as -128 would fit; its absolute value does not
        for place in range(start, start + size - 1):
            if self.data[place] != 0:
                return size
        return size + 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        size: cython.Py_ssize_t = self.needed(row * self.width)
        if self.fixed < 0:
            return size + _long_size(size)
        if size > self.fixed:
            self.problem = TOO_WIDE
            return -1
        return self.fixed

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        start: cython.Py_ssize_t = row * self.width
        size: cython.Py_ssize_t = self.fixed
        place: cython.Py_ssize_t
        filling: cython.int = 255 if self.data[start + self.width - 1] & 128 else 0
        if size < 0:
            size = self.needed(start)
            at = _put_long(size, out, at)
        for place in range(size):
            out[at + size - 1 - place] = self.data[start + place] if place < self.width else filling
        return at + size


@cython.final
@cython.cclass
class CheckedNode(Node):
    """Values of which some, marked in a bitmap, are out of the range of the Avro type."""

    if not cython.compiled:
        values: Node
        bad: Any

    def __init__(self, values: Node, bad: Any) -> None:
        super().__init__(values.path, values.avro_type)
        self.values = values
        self.bad = memoryview(bad).cast("B")

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        if (self.bad[row >> 3] >> (row & 7)) & 1:
            self.problem = OUT_OF_RANGE
            return -1
        return self.values.value_size(row)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return self.values.put_value(row, out, at)


@cython.final
@cython.cclass
class RecordNode(Node):
    """Two fields, or two groups of fields, one after the other: the fields of a record are a balanced tree of these.

    Its root is the struct, with the path and the type; the groups in it have neither, and no nulls.
    """

    if not cython.compiled:
        left: Node
        right: Node

    def __init__(self, left: Node, right: Node, path: str = "", avro_type: str = "") -> None:
        """A plain Node stands for a field that is missing: it has no bytes."""
        super().__init__(path, avro_type)
        self.left = left
        self.right = right

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        left: cython.longlong = self.left.size(row)
        right: cython.longlong
        if left < 0:
            return -1
        right = self.right.size(row)
        return -1 if right < 0 else left + right

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        return self.right.put(row, out, self.left.put(row, out, at))


@cython.final
@cython.cclass
class ListNode(Node):
    """Lists of items, each list as one block."""

    if not cython.compiled:
        bounds: Any
        items: Node

    def __init__(self, path: str, lists: ListColumn, items: Node) -> None:
        super().__init__(path, "array")
        self.bounds = lists.bounds
        self.items = items

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def value_size(self, row: cython.Py_ssize_t) -> cython.longlong:
        item: cython.longlong
        size: cython.longlong
        start: cython.longlong = self.bounds[row]
        end: cython.longlong = self.bounds[row + 1]
        total: cython.longlong = 1
        if start == end:
            return total
        total += _long_size(end - start)
        for item in range(start, end):
            size = self.items.size(item)
            if size < 0:
                return -1
            total += size
        return total

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def put_value(self, row: cython.Py_ssize_t, out: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        item: cython.longlong
        start: cython.longlong = self.bounds[row]
        end: cython.longlong = self.bounds[row + 1]
        if start != end:
            at = _put_long(end - start, out, at)
            for item in range(start, end):
                at = self.items.put(item, out, at)
        out[at] = 0
        return at + 1


def encode(root: Node, rows: int, prefix: bytes) -> tuple[bytearray, array[int], int]:
    """The bytes of each row, `prefix` before each, one after the other; and their offsets, one more than rows.

    A row in which the root is null has no bytes. The third item is -1, or the first row with a value that doesn't fit:
    then the other two are empty, and a node of the tree has the `problem`.
    """
    count: cython.Py_ssize_t = rows
    row: cython.Py_ssize_t
    failed: cython.Py_ssize_t = -1
    size: cython.longlong
    total: cython.longlong = 0
    place: cython.Py_ssize_t
    number: cython.Py_ssize_t
    prefix_size: cython.Py_ssize_t = len(prefix)
    head: cython.const[cython.uchar][::1] = prefix or b"\0"  # pyright: ignore
    offsets_array = array("q", bytes(8 * (rows + 1)))
    offsets: cython.longlong[::1] = offsets_array  # pyright: ignore
    with cython.nogil:
        for row in range(count):
            if not root.is_null(row):
                size = root.size(row)
                if size < 0:
                    failed = row
                    break
                total += size + prefix_size
            offsets[row + 1] = total
    if failed >= 0:
        return bytearray(), array("q"), failed
    data = bytearray(total or 1)
    view: cython.uchar[::1] = data  # pyright: ignore
    out: cython.p_uchar
    out = cython.address(view[0]) if cython.compiled else view
    with cython.nogil:
        for row in range(count):
            if not root.is_null(row):
                place = offsets[row]
                for number in range(prefix_size):
                    out[place + number] = head[number]
                root.put(row, out, place + prefix_size)
    return data, offsets_array, -1
