# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The reader of a v2 batch's records. For any bytes it returns records or raises CorruptRecordError.

Every length is checked against the remaining bytes before anything is allocated or read. These checks replace those of
the language, which are off in compiled code. A check and its read use the same local variable, so that even two threads
in one iterator do not read beyond the buffer.

Source: Kafka's ``DefaultRecord.readFrom`` and ``DefaultRecordBatch.RecordIterator``; varints as in ``ByteUtils``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _cython as cython
from ..protocol.errors import CorruptRecordError
from .record import Record

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize  # type: ignore[import-not-found]

#: The smallest record: length, attributes, two deltas, two sizes and the header count.
MIN_RECORD_BYTES: cython.longlong = 7
#: The smallest header of a record: two sizes.
MIN_HEADER_BYTES: cython.longlong = 2
INT64_MAX: cython.longlong = 0x7FFFFFFFFFFFFFFF
_new_tuple = tuple.__new__


@cython.final
@cython.cclass
class RecordIterator:
    """Iterates over the records of one batch, in order, from its uncompressed bytes.

    Records are decoded one at a time. After the last one no bytes may be left over. After an error the next call raises
    the same error again. Invariants: ``position <= cursor <= limit <= end``; everything before `position` is read, and
    `limit` is the end of the record being read. Not thread-safe.
    """

    view: cython.const[cython.uchar][::1]  # pyright: ignore
    position: cython.Py_ssize_t
    cursor: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    end: cython.Py_ssize_t
    count: cython.Py_ssize_t
    index: cython.Py_ssize_t
    base_offset: cython.longlong
    base_timestamp: cython.longlong
    is_append_time: cython.bint
    append_time: cython.longlong

    def __init__(
        self,
        source: bytes | bytearray | memoryview,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
    ) -> None:
        """Check the record count against the size of `source`, the uncompressed records.

        `count`, `base_offset` and `base_timestamp` are fields of the batch's header. `append_time` in milliseconds
        replaces every record's timestamp; None keeps those of the records. Raises CorruptRecordError.
        """
        if cython.compiled:
            self.view = source
        else:
            self.view = memoryview(source)
        self.position = self.cursor = self.limit = 0
        self.end = len(source)
        self.count = count
        self.index = 0
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.is_append_time = append_time is not None
        self.append_time = -1 if append_time is None else append_time
        if count < 0 or count * MIN_RECORD_BYTES > self.end:
            raise CorruptRecordError(
                f"the batch at offset {base_offset} is damaged: it claims {count} records in {self.end} bytes"
            )
        if count == 0 and self.end > 0:
            raise CorruptRecordError(
                f"the batch at offset {base_offset} is damaged: it claims no records, and has {self.end} bytes of them"
            )

    def __iter__(self) -> RecordIterator:
        return self

    def __next__(self) -> Record:
        if self.index >= self.count:
            raise StopIteration
        self.cursor = self.position
        self.limit = self.end
        size: cython.longlong = self.take_varint()
        start: cython.Py_ssize_t = self.cursor
        if size < 0 or size > self.end - start:
            raise self.damaged(f"its size is {size}, and {self.end - start} bytes are left")
        if size == 0:
            raise self.damaged("it is empty")
        self.limit = start + size
        self.cursor = start + 1  # attributes: none are defined
        delta: cython.longlong = self.take_varlong()
        timestamp: cython.longlong = self.append_time
        if not self.is_append_time:
            if delta > 0 and self.base_timestamp > INT64_MAX - delta:
                raise self.damaged(f"its timestamp delta {delta} leads out of 64 bits")
            if delta < 0 and self.base_timestamp < -INT64_MAX - 1 - delta:
                raise self.damaged(f"its timestamp delta {delta} leads out of 64 bits")
            timestamp = self.base_timestamp + delta
        delta = self.take_varint()
        if delta < 0 or self.base_offset > INT64_MAX - delta:
            raise self.damaged(f"its offset delta is {delta}")
        offset: cython.longlong = self.base_offset + delta
        key = self.take_nullable_bytes("key")
        value = self.take_nullable_bytes("value")
        headers = self.take_headers()
        if self.cursor != self.limit:
            raise self.damaged(f"{self.limit - self.cursor} bytes follow its headers")
        if self.index + 1 == self.count and self.cursor != self.end:
            raise self.damaged(f"it is the last one, and {self.end - self.cursor} bytes follow it")
        self.position = self.cursor
        self.index += 1
        return _new_tuple(Record, (offset, timestamp, key, value, headers))

    def check_sizes(self) -> None:
        """Check that the sizes of all records add up to the bytes of the batch. Raises CorruptRecordError.

        This costs a tenth of reading the records, and rejects bytes that are not records.
        """
        size: cython.longlong
        while self.index < self.count:
            self.cursor = self.position
            self.limit = self.end
            size = self.take_varint()
            if size < MIN_RECORD_BYTES - 1 or size > self.end - self.cursor:
                raise self.damaged(f"its size is {size}, and {self.end - self.cursor} bytes are left")
            self.position = self.cursor + size
            self.index += 1
        if self.position != self.end:
            raise self.damaged(f"{self.end - self.position} bytes follow the last one")

    def damaged(self, reason: str) -> CorruptRecordError:
        return CorruptRecordError(
            f"record {self.index} of {self.count} of the batch at offset {self.base_offset} is damaged: {reason}"
        )

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def take_raw(self, last_shift: cython.int, last_bits: cython.int) -> cython.ulonglong:
        """Read an unsigned varint. Its last possible byte is at `last_shift` and at most `last_bits`."""
        cursor: cython.Py_ssize_t = self.cursor
        limit: cython.Py_ssize_t = self.limit
        raw: cython.ulonglong = 0
        shift: cython.int = 0
        byte: cython.int
        while cursor < limit:
            byte = self.view[cursor]
            cursor += 1
            if shift == last_shift and byte > last_bits:
                raise self.damaged("a number in it has too many bits")
            raw |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
            if byte < 0x80:
                self.cursor = cursor
                return raw
            shift += 7
        raise self.damaged("it ends within a number")

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def take_varint(self) -> cython.longlong:
        """Read a zigzag varint of 32 bits."""
        raw: cython.ulonglong = self.take_raw(28, 0x0F)
        return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def take_varlong(self) -> cython.longlong:
        """Read a zigzag varint of 64 bits."""
        raw: cython.ulonglong = self.take_raw(63, 1)
        return cython.cast(cython.longlong, raw >> 1) ^ -cython.cast(cython.longlong, raw & 1)

    @cython.cfunc
    def take_bytes(self, size: cython.longlong, what: str) -> bytes:
        """Read the next `size` bytes; `what` names them in errors."""
        start: cython.Py_ssize_t = self.cursor
        left: cython.Py_ssize_t = self.limit - start
        if size < 0 or size > left:
            raise self.damaged(f"its {what} has size {size}, and {left} bytes are left")
        self.cursor = start + size
        if size == 0:
            return b""
        if cython.compiled:
            return PyBytes_FromStringAndSize(  # pyright: ignore[reportPossiblyUnboundVariable]
                cython.cast(cython.p_const_char, cython.address(self.view[start])),
                size,
            )
        else:
            return bytes(self.view[start : start + size])

    @cython.cfunc
    def take_nullable_bytes(self, what: str) -> bytes:
        size: cython.longlong = self.take_varint()
        if size == -1:
            return None  # type: ignore[return-value]
        return self.take_bytes(size, what)

    @cython.cfunc
    def take_headers(self) -> tuple:
        count: cython.longlong = self.take_varint()
        if count == 0:
            return ()
        if count < 0 or count * MIN_HEADER_BYTES > self.limit - self.cursor:
            raise self.damaged(f"it claims {count} headers, and {self.limit - self.cursor} bytes are left")
        headers: list = []
        while count > 0:
            # as in Java, a name that is not UTF-8 does not make the record unreadable
            name = self.take_bytes(self.take_varint(), "header name").decode("utf-8", "replace")
            headers.append((name, self.take_nullable_bytes("header value")))
            count -= 1
        return tuple(headers)
