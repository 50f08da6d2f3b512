"""The primitive types of the wire protocol, with their writers, readers and bounds.

A field's annotation names one of them (`Int32`, `String`, `Records` ...). A type checker sees the Python type, and the
codec uses the `WireType` in the annotation. Sources: the protocol guide of Apache Kafka, and KIP-482 for the compact
forms.

A writer is `write(out, value, references)`: it appends to the bytearray `out`. A value by reference is not copied, but
added to `references` with its position. A reader is `read(cursor)`. Both are created once per field and version, so
that nothing is looked up per message.
"""

from __future__ import annotations

import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Final

from .errors import EncodeError, MalformedMessageError

ZERO_UUID: Final = uuid.UUID(int=0)
"""The value for "no id" in the protocol."""

MAX_STRING_BYTES: Final = 0x7FFF
"""The limit of a string. Kafka rejects longer ones, in the compact form too."""

_MAX_INT32: Final = 0x7FFFFFFF
_MAX_UINT32: Final = 0xFFFFFFFF

References = list[tuple[int, Any]]
Write = Callable[[bytearray, Any, References], None]

_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_pack_int16 = _int16.pack
_pack_int32 = _int32.pack
_unpack_int16 = _int16.unpack_from
_unpack_int32 = _int32.unpack_from


class Cursor:
    """The read position in one message. It never moves beyond `end`, and belongs to the decoding thread.

    `elements_left` is the number of further array elements that the whole message may have.
    """

    __slots__ = ("buffer", "elements_left", "end", "position")

    def __init__(self, buffer: memoryview, elements_left: int) -> None:
        self.buffer = buffer
        self.position = 0
        self.end = len(buffer)
        self.elements_left = elements_left


Read = Callable[[Cursor], Any]


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned base-128 number, least significant group first (KIP-482)."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(cursor: Cursor) -> int:
    """Read an unsigned base-128 number of at most 32 bits."""
    buffer, position = cursor.buffer, cursor.position
    byte = buffer[position]
    if byte < 0x80:
        cursor.position = position + 1
        return byte
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_UINT32:
                break
            cursor.position = position + 1
            return value
    raise MalformedMessageError("an unsigned varint has more than 32 bits")


def size_of(records: Any) -> int:
    """The encoded size of a `Records` value: bytes-like, a list or tuple of such values, or with `size_bytes`."""
    if isinstance(records, (bytes, bytearray)):
        return len(records)
    if isinstance(records, (list, tuple)):
        return sum(map(size_of, records))
    if isinstance(records, memoryview):
        return records.nbytes
    if hasattr(records, "size_bytes"):
        return records.size_bytes
    return memoryview(records).nbytes


class WireType(ABC):
    """A primitive type, which creates writers and readers for fields.

    `fixed` is its `struct` format if its size is fixed, so that adjacent fields can be packed together.
    """

    fixed: str | None = None
    by_reference = False

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def min_size(self, flexible: bool) -> int:
        """The minimum encoded size of a value in bytes."""

    @abstractmethod
    def writer(self, where: str, flexible: bool, nullable: bool) -> Write:
        """A writer for the field named `where` in errors."""

    @abstractmethod
    def reader(self, where: str, flexible: bool, nullable: bool) -> Read:
        """A reader for the field named `where` in errors."""


class FixedType(WireType):
    """A number or a boolean."""

    def __init__(self, name: str, code: str) -> None:
        super().__init__(name)
        self.fixed = code
        self.struct = struct.Struct(">" + code)

    def min_size(self, flexible: bool) -> int:
        return self.struct.size

    def writer(self, where: str, flexible: bool, nullable: bool) -> Write:
        pack = self.struct.pack

        def write(out: bytearray, value: Any, references: References) -> None:
            out += pack(value)

        return write

    def reader(self, where: str, flexible: bool, nullable: bool) -> Read:
        unpack, size = self.struct.unpack_from, self.struct.size

        def read(cursor: Cursor) -> Any:
            (value,) = unpack(cursor.buffer, cursor.position)
            cursor.position += size
            return value

        return read


class UuidType(WireType):
    """Sixteen bytes; all zero means none."""

    def min_size(self, flexible: bool) -> int:
        return 16

    def writer(self, where: str, flexible: bool, nullable: bool) -> Write:
        def write(out: bytearray, value: uuid.UUID, references: References) -> None:
            out += value.bytes

        return write

    def reader(self, where: str, flexible: bool, nullable: bool) -> Read:
        def read(cursor: Cursor) -> uuid.UUID:
            start = cursor.position
            stop = start + 16
            if stop > cursor.end:
                raise MalformedMessageError(f"{where}: the bytes end within a uuid")
            cursor.position = stop
            return uuid.UUID(bytes=bytes(cursor.buffer[start:stop]))

        return read


class SizedType(WireType, ABC):
    """A value preceded by its size: strings, bytes and records. Subclasses encode and decode the value."""

    def __init__(self, name: str, *, size_bytes: int) -> None:
        super().__init__(name)
        self.size_bytes = size_bytes  # the width of the size field, in the older form

    def min_size(self, flexible: bool) -> int:
        return 1 if flexible else self.size_bytes

    @abstractmethod
    def _make(self, where: str) -> Callable[[memoryview], Any]:
        """A function that decodes a value from its bytes."""

    def reader(self, where: str, flexible: bool, nullable: bool) -> Read:
        make = self._make(where)
        unpack, prefix_bytes = (_unpack_int16, 2) if self.size_bytes == 2 else (_unpack_int32, 4)
        max_bytes = MAX_STRING_BYTES if self.size_bytes == 2 else _MAX_INT32

        def read(cursor: Cursor) -> Any:
            if flexible:
                size = read_uvarint(cursor) - 1
                start = cursor.position
            else:
                start = cursor.position
                (size,) = unpack(cursor.buffer, start)
                start += prefix_bytes
            if size < 0:
                if size == -1 and nullable:
                    cursor.position = start
                    return None
                raise MalformedMessageError(
                    f"{where}: null is not allowed" if size == -1 else f"{where}: negative size {size}"
                )
            stop = start + size
            if stop > cursor.end:
                raise MalformedMessageError(f"{where}: size {size}, but {cursor.end - start} bytes are left")
            if size > max_bytes:
                raise MalformedMessageError(f"{where}: size {size}, but at most {max_bytes} is allowed")
            cursor.position = stop
            return make(cursor.buffer[start:stop])

        return read

    def _write_size(self, flexible: bool) -> Callable[[bytearray, int], None]:
        if flexible:
            return lambda out, size: write_uvarint(out, size + 1)
        pack = _pack_int16 if self.size_bytes == 2 else _pack_int32
        return lambda out, size: out.extend(pack(size))


class StringType(SizedType):
    """Text in UTF-8."""

    def writer(self, where: str, flexible: bool, nullable: bool) -> Write:
        write_size = self._write_size(flexible)

        def write(out: bytearray, value: str | None, references: References) -> None:
            if value is None:
                if not nullable:
                    raise EncodeError(f"{where} must not be None in this version")
                write_size(out, -1)
                return
            data = value.encode()
            if len(data) > MAX_STRING_BYTES:
                raise EncodeError(f"{where} has {len(data)} bytes; the protocol allows at most {MAX_STRING_BYTES}")
            write_size(out, len(data))
            out += data

        return write

    def _make(self, where: str) -> Callable[[memoryview], str]:
        def make(data: memoryview) -> str:
            try:
                return str(data, "utf-8")
            except UnicodeDecodeError as error:
                raise MalformedMessageError(f"{where}: not valid UTF-8: {error.reason}") from None

        return make


class BytesType(SizedType):
    """Small binary data, copied when written and read."""

    def writer(self, where: str, flexible: bool, nullable: bool) -> Write:
        write_size = self._write_size(flexible)

        def write(out: bytearray, value: Any, references: References) -> None:
            if value is None:
                if not nullable:
                    raise EncodeError(f"{where} must not be None in this version")
                write_size(out, -1)
                return
            with memoryview(value) as view:
                write_size(out, view.nbytes)
                out += view

        return write

    def _make(self, where: str) -> Callable[[memoryview], bytes]:
        return bytes


class RecordsType(SizedType):
    """Record batches. They are passed by reference both ways, because they are most of the bytes of a message."""

    by_reference = True

    def writer(self, where: str, flexible: bool, nullable: bool) -> Write:
        write_size = self._write_size(flexible)

        def write(out: bytearray, value: Any, references: References) -> None:
            if value is None:
                if not nullable:
                    raise EncodeError(f"{where} must not be None in this version")
                write_size(out, -1)
                return
            size = size_of(value)
            write_size(out, size)
            if size:
                references.append((len(out), value))

        return write

    def _make(self, where: str) -> Callable[[memoryview], memoryview]:
        return lambda data: data


Int8 = Annotated[int, FixedType("int8", "b")]
Int16 = Annotated[int, FixedType("int16", "h")]
Int32 = Annotated[int, FixedType("int32", "i")]
Int64 = Annotated[int, FixedType("int64", "q")]
UInt16 = Annotated[int, FixedType("uint16", "H")]
UInt32 = Annotated[int, FixedType("uint32", "I")]
Float64 = Annotated[float, FixedType("float64", "d")]
Bool = Annotated[bool, FixedType("bool", "?")]
Uuid = Annotated[uuid.UUID, UuidType("uuid")]
String = Annotated[str, StringType("string", size_bytes=2)]
Bytes = Annotated[bytes, BytesType("bytes", size_bytes=4)]
Records = Annotated[Any, RecordsType("records", size_bytes=4)]
