"""Encodes and decodes messages with codecs compiled from their declarations.

A codec is compiled once per (class, version), on first use, to closures. Nothing is looked up per message, and there is
no `exec`. Two threads that need the same codec at the same time may both compile it, which does no harm.

Input is not trusted: sizes and counts are checked against the available bytes before anything is allocated for them, a
message must use all its bytes, and any violation is a `MalformedMessageError`.
"""

from __future__ import annotations

import struct as structs
import sys
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

from .errors import EncodeError, MalformedMessageError, TooManyElementsError, UnsupportedVersionError
from .message import FieldSpec, Message, fields_of
from .types import Cursor, Read, References, WireType, Write, read_uvarint, write_uvarint

_MessageT = TypeVar("_MessageT", bound=Message)
_PRESENT = 1
_NULL = 0xFF
_ENCODE_FAULTS = (structs.error, AttributeError, TypeError, ValueError, OverflowError)


class Codec:
    """The compiled writer and reader of a (class, version)."""

    __slots__ = ("min_size", "read", "write")

    def __init__(self, write: Write, read: Read, min_size: int) -> None:
        self.write = write
        self.read = read
        self.min_size = min_size


def codec_for(cls: Any, version: int, flexible: bool) -> Codec:
    """The compiled codec of a message or struct. Any thread."""
    codec = cls.__codecs__.get((version, flexible))
    if codec is None:
        codec = cls.__codecs__[version, flexible] = _compile(cls, version, flexible)
    return codec


class _Part:
    """A run of adjacent fixed-size fields, packed at once, and the fields of other types that follow it."""

    __slots__ = ("layout", "names", "others", "values_of")

    def __init__(
        self,
        names: tuple[str, ...] = (),
        layout: structs.Struct | None = None,
        values_of: Callable[[Any], tuple[Any, ...]] | None = None,
    ) -> None:
        self.names = names
        self.layout = layout
        self.values_of = values_of
        self.others: list[tuple[str, Codec]] = []


def _compile(cls: Any, version: int, flexible: bool) -> Codec:
    inline: list[tuple[FieldSpec, Codec]] = []
    tagged: list[tuple[int, str, Any, Codec]] = []
    lost: list[tuple[str, Any]] = []
    for spec in fields_of(cls):
        if version not in spec.versions:
            if not spec.ignorable and spec.make_default is not None:
                lost.append((spec.name, spec.make_default()))
            continue
        where = f"{cls.__name__}.{spec.name}"
        codec = _compile_type(where, spec.type, version, flexible, version in spec.nullable)
        if spec.is_tagged(version):
            if not flexible or spec.tag is None or spec.make_default is None or _by_reference(spec.type):
                raise TypeError(f"{where} cannot be a tagged field in version {version}")
            tagged.append((spec.tag, spec.name, spec.make_default(), codec))
        else:
            inline.append((spec, codec))
    tagged.sort(key=lambda each: each[0])

    parts = _parts(inline)
    min_size = sum(codec.min_size for _, codec in inline) + (1 if flexible else 0)
    write_fields = _struct_writer(cls, version, parts, lost)
    read_fields = _struct_reader(cls, parts, _tag_reader(cls, tagged) if flexible else None)
    if not flexible:
        return Codec(write_fields, read_fields, min_size)
    write_tags = _tag_writer(tagged)

    def write(out: bytearray, value: Any, references: References) -> None:
        write_fields(out, value, references)
        write_tags(out, value, references)

    return Codec(write, read_fields, min_size)


def _by_reference(type_: Any) -> bool:
    return isinstance(type_, WireType) and type_.by_reference


def _compile_type(where: str, type_: Any, version: int, flexible: bool, nullable: bool) -> Codec:
    if isinstance(type_, WireType):
        return Codec(
            type_.writer(where, flexible, nullable),
            type_.reader(where, flexible, nullable),
            type_.min_size(flexible),
        )
    if isinstance(type_, list):
        element = _compile_type(where, type_[0], version, flexible, False)
        fixed = type_[0].fixed if isinstance(type_[0], WireType) else None
        return Codec(
            _array_writer(where, element, fixed, flexible, nullable),
            _array_reader(where, element, fixed, flexible, nullable),
            1 if flexible else 4,
        )
    codec = codec_for(type_, version, flexible)
    return _nullable(where, codec) if nullable else codec


def _nullable(where: str, codec: Codec) -> Codec:
    """A codec for a nullable struct, which has a byte before it: 1, or -1 for None."""
    write_struct, read_struct = codec.write, codec.read

    def write(out: bytearray, value: Any, references: References) -> None:
        out.append(_NULL if value is None else _PRESENT)
        if value is not None:
            write_struct(out, value, references)

    def read(cursor: Cursor) -> Any:
        mark = cursor.buffer[cursor.position]
        cursor.position += 1
        if mark == _NULL:
            return None
        if mark != _PRESENT:
            raise MalformedMessageError(f"{where}: {mark} is neither 1 (present) nor 255 (null)")
        return read_struct(cursor)

    return Codec(write, read, 1)


def _parts(inline: list[tuple[FieldSpec, Codec]]) -> list[_Part]:
    parts: list[_Part] = []
    run: list[tuple[FieldSpec, Codec]] = []

    def end_run() -> None:
        if len(run) > 1:
            names = tuple(spec.name for spec, _ in run)
            layout = structs.Struct(">" + "".join(spec.type.fixed for spec, _ in run))
            parts.append(_Part(names, layout, attrgetter(*names)))
        elif run:
            add_other(run[0][0].name, run[0][1])
        run.clear()

    def add_other(name: str, codec: Codec) -> None:
        if not parts:
            parts.append(_Part())
        parts[-1].others.append((name, codec))

    for spec, codec in inline:
        if isinstance(spec.type, WireType) and spec.type.fixed:
            run.append((spec, codec))
        else:
            end_run()
            add_other(spec.name, codec)
    end_run()
    return parts


def _struct_writer(cls: Any, version: int, parts: list[_Part], lost: list[tuple[str, Any]]) -> Write:
    steps = [
        (
            part.layout.pack if part.layout else None,
            part.values_of,
            [(name, codec.write) for name, codec in part.others],
        )
        for part in parts
    ]

    def write(out: bytearray, value: Any, references: References) -> None:
        for name, default in lost:
            if getattr(value, name) != default:
                raise EncodeError(
                    f"{cls.__name__}.{name} = {getattr(value, name)!r:.80} cannot be sent in version {version}, "
                    "which has no such field"
                )
        for pack, values_of, others in steps:
            if pack is not None and values_of is not None:
                out += pack(*values_of(value))
            for name, write_other in others:
                write_other(out, getattr(value, name), references)

    return write


def _struct_reader(cls: Any, parts: list[_Part], read_tags: Callable[[Cursor, dict[str, Any]], None] | None) -> Read:
    steps = [
        (
            part.names,
            part.layout.unpack_from if part.layout else None,
            part.layout.size if part.layout else 0,
            [(name, codec.read) for name, codec in part.others],
        )
        for part in parts
    ]

    def read(cursor: Cursor) -> Any:
        values: dict[str, Any] = {}
        for names, unpack, size, others in steps:
            if unpack is not None:
                values.update(zip(names, unpack(cursor.buffer, cursor.position), strict=True))
                cursor.position += size
            for name, read_other in others:
                values[name] = read_other(cursor)
        if read_tags is not None:
            read_tags(cursor, values)
        return cls(**values)

    return read


def _tag_writer(tagged: list[tuple[int, str, Any, Codec]]) -> Write:
    if not tagged:
        return lambda out, value, references: out.append(0)

    def write(out: bytearray, value: Any, references: References) -> None:
        present = [
            (tag, getattr(value, name), codec.write)
            for tag, name, default, codec in tagged
            if getattr(value, name) != default
        ]
        write_uvarint(out, len(present))
        for tag, each, write_each in present:
            content = bytearray()
            write_each(content, each, references)
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content

    return write


def _tag_reader(cls: Any, tagged: list[tuple[int, str, Any, Codec]]) -> Callable[[Cursor, dict[str, Any]], None]:
    known = {tag: (name, codec.read) for tag, name, _, codec in tagged}

    def read(cursor: Cursor, values: dict[str, Any]) -> None:
        left = read_uvarint(cursor)
        while left:
            left -= 1
            tag = read_uvarint(cursor)
            size = read_uvarint(cursor)
            stop = cursor.position + size
            if stop > cursor.end:
                raise MalformedMessageError(
                    f"{cls.__name__}: tagged field {tag} has size {size}, "
                    f"but {cursor.end - cursor.position} bytes are left"
                )
            entry = known.get(tag)
            if entry is None:
                cursor.position = stop
                continue
            name, read_value = entry
            values[name] = read_value(cursor)
            if cursor.position != stop:
                raise MalformedMessageError(f"{cls.__name__}.{name}: does not fill the size of its tagged field")

    return read


def _array_writer(where: str, element: Codec, fixed: str | None, flexible: bool, nullable: bool) -> Write:
    write_element = element.write
    pack_count = structs.Struct(">i").pack

    def write(out: bytearray, value: Any, references: References) -> None:
        if value is None:
            if not nullable:
                raise EncodeError(f"{where} must not be None in this version")
            count = -1
        elif isinstance(value, (list, tuple)):
            count = len(value)
        else:
            raise EncodeError(f"{where} must be a list, not {type(value).__name__}")
        if flexible:
            write_uvarint(out, count + 1)
        else:
            out += pack_count(count)
        if fixed is not None:
            if value:
                out += structs.pack(f">{count}{fixed}", *value)
            return
        for each in value or ():
            write_element(out, each, references)

    return write


def _array_reader(where: str, element: Codec, fixed: str | None, flexible: bool, nullable: bool) -> Read:
    read_element = element.read
    element_size = max(element.min_size, 1)
    unpack_count = structs.Struct(">i").unpack_from

    def read(cursor: Cursor) -> list[Any] | None:
        if flexible:
            count = read_uvarint(cursor) - 1
        else:
            (count,) = unpack_count(cursor.buffer, cursor.position)
            cursor.position += 4
        if count < 0:
            if count == -1 and nullable:
                return None
            raise MalformedMessageError(
                f"{where}: null is not allowed" if count == -1 else f"{where}: negative count {count}"
            )
        left = cursor.end - cursor.position
        if count * element_size > left:
            raise MalformedMessageError(f"{where}: {count} elements declared, but {left} bytes are left")
        cursor.elements_left -= count
        if cursor.elements_left < 0:
            raise TooManyElementsError(f"{where}: the message has more array elements than are accepted")
        if fixed is not None:
            values = structs.unpack_from(f">{count}{fixed}", cursor.buffer, cursor.position)
            cursor.position += count * element_size
            return list(values)
        return [read_element(cursor) for _ in range(count)]

    return read


# --- Whole messages ---


def check_version(cls: type[Message], version: int) -> None:
    """Raise `UnsupportedVersionError` unless the message is declared for `version`."""
    if version not in cls.versions:
        raise UnsupportedVersionError(f"{cls.__name__} is supported in versions {cls.versions}, not in {version}")


def encode(message: Message, version: int) -> list[Any]:
    """Encode a message as a gather list, with records by reference. Any thread.

    Raises `EncodeError` for a value that the version cannot represent, `UnsupportedVersionError` for an unsupported
    version.
    """
    out = bytearray()
    return gather(out, write_message(out, message, version))


def write_message(out: bytearray, message: Message, version: int) -> References:
    """Append a message to `out`. Returns the values by reference with their positions, for `gather`."""
    cls = type(message)
    check_version(cls, version)
    references: References = []
    try:
        codec_for(cls, version, version in cls.flexible).write(out, message, references)
    except _ENCODE_FAULTS as error:
        raise EncodeError(
            f"{_fault(message, version, version in cls.flexible)} in version {version}: {error}"
        ) from error
    return references


def gather(out: bytearray, references: References) -> list[Any]:
    """Insert the values by reference at their positions in `out`, without copying."""
    if not references:
        return [out]
    parts: list[Any] = []
    view = memoryview(out)
    start = 0
    for position, value in references:
        if position > start:
            parts.append(view[start:position])
            start = position
        if isinstance(value, (list, tuple)):
            parts.extend(value)
        else:
            parts.append(value)
    if start < len(view):
        parts.append(view[start:])
    return parts


def decode(
    cls: type[_MessageT], version: int, buffer: Any, *, max_elements: int = sys.maxsize, exact: bool = True
) -> _MessageT:
    """Decode the message in `buffer`. With `exact` it must use all bytes. Any thread.

    `Records` are memoryviews of the buffer. `max_elements` bounds the array elements of the whole message, because
    objects take more memory than their bytes. Raises `MalformedMessageError` (its subclass `TooManyElementsError` for
    that bound) and `UnsupportedVersionError`.
    """
    check_version(cls, version)
    view = memoryview(buffer)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    cursor = Cursor(view, max_elements)
    try:
        message = codec_for(cls, version, version in cls.flexible).read(cursor)
    except (structs.error, IndexError):
        raise MalformedMessageError(f"{cls.__name__} v{version}: the bytes end within a field") from None
    except MalformedMessageError as error:
        raise type(error)(f"{cls.__name__} v{version}: {error}") from None
    if exact and cursor.position != cursor.end:
        raise MalformedMessageError(f"{cls.__name__} v{version}: {cursor.end - cursor.position} bytes are left over")
    return message


def _fault(value: Any, version: int, flexible: bool) -> str:
    """Describe the value of a message that could not be encoded. Only called after a failure."""
    for spec in fields_of(type(value)):
        if version not in spec.versions or not hasattr(value, spec.name):
            continue
        each = getattr(value, spec.name)
        codec = _compile_type(spec.name, spec.type, version, flexible, version in spec.nullable)
        if not _fails(codec, each):
            continue
        where = f"{type(value).__name__}.{spec.name}"
        element_type = spec.type[0] if isinstance(spec.type, list) else spec.type
        candidates = each if isinstance(spec.type, list) else [each]
        for candidate in candidates:
            if not isinstance(element_type, WireType):
                if not isinstance(candidate, element_type):
                    return f"{where} = {candidate!r:.80} (not a {element_type.__name__})"
                if _fails(codec_for(element_type, version, flexible), candidate):
                    return _fault(candidate, version, flexible)
            elif _fails(_compile_type(spec.name, element_type, version, flexible, False), candidate):
                return f"{where} = {candidate!r:.80} (not a valid {element_type.name})"
    return type(value).__name__


def _fails(codec: Codec, value: Any) -> bool:
    try:
        codec.write(bytearray(), value, [])
    except _ENCODE_FAULTS:
        return True
    return False
