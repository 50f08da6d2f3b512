"""The buffers of Arrow arrays of bytes and of whole numbers."""

from __future__ import annotations

from array import array
from typing import Any

from ...network.protocol.errors import EncodeError, SerializationError
from ...network.records.columns_cy import BytesColumn


def is_of(kind: Any, name: str) -> bool:
    """`pyarrow.types.is_<name>(kind)`; the oldest supported pyarrow lacks some of these functions."""
    import pyarrow as pa  # noqa: PLC0415  (needed only with Arrow data)

    function = getattr(pa.types, f"is_{name}", None)
    return function is not None and function(kind)


def is_string(kind: Any) -> bool:
    """Whether a type is one of Arrow's string types."""
    return any(is_of(kind, each) for each in ("string", "large_string", "string_view"))


def is_binary(kind: Any) -> bool:
    """Whether a type is one of Arrow's binary types."""
    return any(is_of(kind, each) for each in ("binary", "large_binary", "binary_view", "fixed_size_binary"))


def plain(column: Any, name: str) -> Any:
    """A column of binary or strings as an array with offsets or a fixed width, or of nulls only.

    Raises SerializationError for another type.
    """
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    if is_of(kind, "dictionary"):
        return plain(column.dictionary_decode(), name)
    if is_of(kind, "string_view"):
        return column.cast(pa.large_string())
    if is_of(kind, "binary_view"):
        return column.cast(pa.large_binary())
    if is_string(kind) or is_binary(kind) or is_of(kind, "null"):
        return column
    what = f"the column {name!r}" if name else "a value of all columns"
    raise SerializationError(
        f"{what} is of type {kind}; a record takes binary or strings: cast it, or give the producer a serializer, such "
        f"as value_serializer=JsonSerializer() (Spark's sink has value_format='json' and 'msgpack')"
    )


def bytes_column(column: Any, name: str) -> BytesColumn:
    """Convert an Arrow array of binary or strings for the encoder. Raises SerializationError for another type."""
    import pyarrow as pa  # noqa: PLC0415

    column = plain(column, name)
    kind = column.type
    if pa.types.is_null(kind):
        return BytesColumn(b"", None, 0, -1, None, 0, len(column))
    if pa.types.is_fixed_size_binary(kind):
        (validity, data), offsets, offset_bytes, width = column.buffers(), None, 0, kind.byte_width
    else:
        validity, offsets, data = column.buffers()
        offset_bytes = 8 if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) else 4
        offsets, width = offsets or b"", 0
    try:
        return BytesColumn(
            data or b"",
            offsets,
            offset_bytes,
            width,
            validity if column.null_count else None,
            column.offset,
            len(column),
        )
    except EncodeError as error:
        raise SerializationError(f"the column {name!r} is not valid Arrow data: {error}") from error


def longs(column: Any) -> memoryview:
    """An integer column without nulls as 64-bit integers."""
    import pyarrow as pa  # noqa: PLC0415

    numbers = column.cast(pa.int64())
    buffer = numbers.buffers()[1]
    if buffer is None:
        return memoryview(array("q"))
    # the buffer may be longer than the numbers, and not a multiple of their size
    first, count = numbers.offset, len(numbers)
    return memoryview(buffer).cast("B")[8 * first : 8 * (first + count)].cast("q")
