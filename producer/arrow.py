"""Records out of Arrow columns: `KafkaProducer.send_arrow`.

Here pyarrow's arrays are taken apart into buffers and checked, a column at a time; what is per row is in `columns_cy`.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..network.protocol.errors import (
    IllegalArgumentError,
    IllegalStateError,
    SerializationError,
)
from .column_send import send_columns, send_each
from .columns_cy import BytesColumn, Columns, encode_header_lists, group
from .rows_future import RowsFuture, row_error
from .threads import on_own_thread

if TYPE_CHECKING:
    from .kafka_producer import KafkaProducer


class ColumnNames(NamedTuple):
    """Which column is what. Those that aren't there are left out, but for `value`."""

    value: str
    key: str
    headers: str
    topic: str
    partition: str
    timestamp: str


def send_arrow(producer: KafkaProducer, topic: str | None, data: Any, names: ColumnNames) -> RowsFuture:
    """See `KafkaProducer.send_arrow`."""
    if on_own_thread():
        raise IllegalStateError("send_arrow can't be called in a callback: it may have to wait for the sender thread")
    batches = list(_batches(data))
    future = RowsFuture(sum(batch.num_rows for batch in batches))
    base_row = 0
    for batch in batches:
        if batch.num_rows:
            _send_batch(producer, topic, batch, names, future, base_row)
        base_row += batch.num_rows
    return future


def _batches(data: Any) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415  (only who has Arrow data needs it)

    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        yield from pa.table(data).to_batches()
    else:
        raise IllegalArgumentError(
            f"send_arrow takes a pyarrow RecordBatch or Table, or what exports Arrow data; not {type(data).__name__}"
        )


def _send_batch(
    producer: KafkaProducer, topic: str | None, batch: Any, names: ColumnNames, future: RowsFuture, base_row: int
) -> None:
    columns = {}
    for role, name in names._asdict().items():
        if batch.schema.get_field_index(name) >= 0:
            columns[role] = batch.column(name)
        elif batch.schema.get_all_field_indices(name):
            raise IllegalArgumentError(f"there are several columns {name!r}")
    if "value" not in columns:
        raise IllegalArgumentError(f"there is no column {names.value!r} among {', '.join(batch.schema.names)}")
    if producer.why_row_by_row() is not None:
        _send_each(producer, topic, columns, names, future, base_row)
        return
    prepared = Columns(
        bytes_column(columns["value"], names.value),
        bytes_column(columns["key"], names.key) if "key" in columns else None,
        _header_column(columns["headers"], names.headers, base_row) if "headers" in columns else None,
        _timestamps(columns["timestamp"], names.timestamp, base_row) if "timestamp" in columns else None,
        _whole_numbers(columns["partition"], names.partition, base_row) if "partition" in columns else None,
        producer.wall_ms(),
    )
    send_columns(producer, prepared, _topics(topic, columns, names.topic, base_row), future, base_row)


def _topics(topic: str | None, columns: dict[str, Any], name: str, base_row: int) -> Iterator[tuple[str, Any]]:
    """Each topic with the rows that go there, None for all."""
    if topic is not None:
        yield topic, None
        return
    if "topic" not in columns:
        raise IllegalArgumentError(f"no topic: name one, or have a column {name!r}")
    column = columns["topic"]
    if column.null_count:
        cause = SerializationError(f"the column {name!r} is null, and no topic is named for all rows")
        raise row_error(base_row + column.is_null().index(True).as_py(), None, -1, cause) from cause
    encoded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], None
        return
    order, ends = group(_longs(encoded.indices), len(topics))
    for number, each in enumerate(topics):
        if ends[number] < ends[number + 1]:
            yield each, order[ends[number] : ends[number + 1]]


def bytes_column(column: Any, name: str) -> BytesColumn:
    """An Arrow array of binary or strings as the encoder reads it. Raises SerializationError for another type."""
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    types = pa.types
    if types.is_dictionary(kind):
        return bytes_column(column.dictionary_decode(), name)
    if types.is_null(kind):
        return BytesColumn(b"", None, 0, -1, None, 0, len(column))
    if hasattr(types, "is_binary_view") and (types.is_binary_view(kind) or types.is_string_view(kind)):
        return bytes_column(column.cast(pa.large_binary() if types.is_binary_view(kind) else pa.large_string()), name)
    if types.is_binary(kind) or types.is_string(kind):
        offset_bytes = 4
    elif types.is_large_binary(kind) or types.is_large_string(kind):
        offset_bytes = 8
    elif types.is_fixed_size_binary(kind):
        validity, data = column.buffers()
        return BytesColumn(
            data or b"",
            None,
            0,
            kind.byte_width,
            validity if column.null_count else None,
            column.offset,
            len(column),
        )
    else:
        raise SerializationError(
            f"the column {name!r} is of type {kind}; a record takes binary or strings: cast it, or encode it (Spark's "
            f"sink does with value_format='json' or 'msgpack')"
        )
    validity, offsets, data = column.buffers()
    return BytesColumn(
        data or b"",
        offsets or bytes(2 * offset_bytes),
        offset_bytes,
        0,
        validity if column.null_count else None,
        column.offset,
        len(column),
    )


def _header_column(column: Any, name: str, base_row: int) -> BytesColumn | None:
    """An array of lists of structs of a key and a value, as records hold their headers."""
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    types = pa.types
    if types.is_null(kind):
        return None
    if types.is_map(kind):
        pairs = (column.keys, column.items)
    elif types.is_list(kind) or types.is_large_list(kind):
        inner = kind.value_type
        fields = [inner.field(index).name for index in range(inner.num_fields)] if types.is_struct(inner) else []
        if "key" not in fields or "value" not in fields:
            raise _wrong_headers(name, kind)
        pairs = (column.values.field(fields.index("key")), column.values.field(fields.index("value")))
        if column.values.null_count:
            cause = SerializationError(f"the column {name!r} has a null among the headers of a row")
            raise row_error(base_row, None, -1, cause) from cause
    else:
        raise _wrong_headers(name, kind)
    offsets = _longs(column.offsets)
    if column.null_count:
        validity, first = memoryview(column.buffers()[0]), column.offset
    else:
        validity, first = None, 0
    keys = bytes_column(pairs[0], f"{name}.key")
    nameless = keys.first_null()
    if nameless >= 0:
        row = next(index for index in range(len(column)) if offsets[index] <= nameless < offsets[index + 1])
        cause = SerializationError(f"the column {name!r} has a header without a key")
        raise row_error(base_row + row, None, -1, cause) from cause
    return encode_header_lists(offsets, validity, first, keys, bytes_column(pairs[1], f"{name}.value"))


def _wrong_headers(name: str, kind: Any) -> SerializationError:
    return SerializationError(
        f"the column {name!r} is of type {kind}; headers are an array of structs of a key (string) and a value (binary)"
    )


def _timestamps(column: Any, name: str, base_row: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise SerializationError(
            f"the column {name!r} is of type {column.type}; a timestamp is one, or a whole number of milliseconds"
        )
    return _whole_numbers(column, name, base_row)


def _whole_numbers(column: Any, name: str, base_row: int) -> Any:
    """A column of whole numbers, 0 or more, as 64 bits each; a null becomes -1."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute  # noqa: PLC0415

    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)):
        raise SerializationError(f"the column {name!r} is of type {column.type}; it has to hold whole numbers")
    pc: Any = pyarrow.compute  # its functions are made when it is imported, so that no type checker knows them
    numbers = column.cast(pa.int64())
    if len(numbers) > numbers.null_count and pc.min(numbers).as_py() < 0:
        cause = IllegalArgumentError(f"the column {name!r} holds a number below 0")
        raise row_error(base_row + pc.less(numbers, 0).index(True).as_py(), None, -1, cause) from cause
    return _longs(pc.fill_null(numbers, -1) if numbers.null_count else numbers)


def _longs(column: Any) -> memoryview:
    """An integer column without nulls as 64 bits each."""
    import pyarrow as pa  # noqa: PLC0415

    numbers = column.cast(pa.int64())
    buffer = numbers.buffers()[1]
    if buffer is None:
        return memoryview(array("q"))
    return memoryview(buffer).cast("B").cast("q")[numbers.offset : numbers.offset + len(numbers)]


def _send_each(
    producer: KafkaProducer,
    topic: str | None,
    columns: dict[str, Any],
    names: ColumnNames,
    future: RowsFuture,
    base_row: int,
) -> None:
    """For parts that need Python objects: each row by itself."""
    config = producer.config
    timestamps = _timestamps(columns["timestamp"], names.timestamp, base_row) if "timestamp" in columns else None
    headers: list[Any] | None = columns["headers"].to_pylist() if "headers" in columns else None
    send_each(
        producer,
        itertools.repeat(topic) if topic is not None or "topic" not in columns else columns["topic"].to_pylist(),
        _objects(columns["value"], config.value_serializer),
        _objects(columns["key"], config.key_serializer) if "key" in columns else None,
        None if headers is None else [_pairs(listed) for listed in headers],
        columns["partition"].to_pylist() if "partition" in columns else None,
        None if timestamps is None else [None if each < 0 else each for each in timestamps],
        future,
        base_row,
    )


def _pairs(listed: Any) -> list[tuple[str, bytes | None]] | None:
    """Headers as `send` takes them."""
    if not listed:
        return None
    return [pair if isinstance(pair, tuple) else (pair["key"], pair["value"]) for pair in listed]


def _objects(column: Any, serializer: Any) -> list[Any]:
    """Python's values: what a serializer takes, or bytes where there is none."""
    values = column.to_pylist()
    if serializer is None:
        return [value.encode() if isinstance(value, str) else value for value in values]
    return values
