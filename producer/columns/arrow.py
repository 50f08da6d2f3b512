"""Records from Arrow columns: `KafkaProducer.send_arrow`.

This module checks pyarrow's arrays and takes them apart into buffers, one column at a time. The work per row is done in
`network/records/columns_cy` and `rows_cy`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...network.protocol.errors import EncodeError, IllegalArgumentError, IllegalStateError, SerializationError
from ...network.records.builder_cy import encode_header_lists
from ...network.records.columns_cy import BytesColumn, Columns, ListColumn
from ...network.topic_names import plain_name
from ..record_errors import row_error
from ..threads import check_may_wait
from .arrow_buffers import bytes_column, is_string, longs, plain
from .column_send import ColumnSender, send_columns, send_each
from .rows_cy import group
from .rows_future import RowsFuture
from .serialized import serialized, with_headers


class ColumnNames(NamedTuple):
    """The names of the columns by role; None: no column has it. All but `value` may be missing from the data.

    If `value` is None, the value is a struct of the columns without a role.
    """

    value: str | None
    key: str | None
    headers: str | None
    topic: str | None
    partition: str | None
    timestamp: str | None

    def of(self, role: str) -> str:
        """The name of a role's column, for messages; empty for whole rows."""
        return getattr(self, role) or ""


def send_arrow(
    sender: ColumnSender, topic: str | None, data: Any, names: ColumnNames, value_format: str | None = None
) -> RowsFuture:
    """See `KafkaProducer.send_arrow`."""
    check_may_wait("send_arrow")
    if sender.engine.is_own_thread:
        raise IllegalStateError("send_arrow can't be called in a callback: it may have to wait for the sender thread")
    batches = list(_batches(data))
    topic = plain_name(topic)
    if value_format is not None:
        _check_format(sender, value_format)
        if not any(names.value in batch.schema.names for batch in batches):
            names = names._replace(value=None)
    for batch in batches:
        _check_names(batch.schema, topic, names)
    future = sender.rows_future(sum(batch.num_rows for batch in batches))
    base_row = 0
    for batch in batches:
        if batch.num_rows:
            _send_batch(sender, topic, batch, names, future, base_row)
        base_row += batch.num_rows
    return future


def _batches(data: Any) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415  (needed only with Arrow data)

    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            table = pa.table(data)
        except (TypeError, ValueError) as error:
            raise IllegalArgumentError(f"the Arrow data of a {type(data).__name__} is no table: {error}") from error
        yield from table.to_batches()
    else:
        raise IllegalArgumentError(
            f"send_arrow takes a pyarrow RecordBatch or Table, or an object that exports Arrow data; not "
            f"{type(data).__name__}"
        )


def _check_names(schema: Any, topic: str | None, names: ColumnNames) -> None:
    for name in names:
        if name is not None and len(schema.get_all_field_indices(name)) > 1:
            raise IllegalArgumentError(f"there are several columns {name!r}")
    if names.value is None and not any(name not in names for name in schema.names):
        raise IllegalArgumentError(
            f"every column has a role ({', '.join(schema.names) or 'there is none'}), and none is left for the value: "
            f"pass None for a role that a column should not have"
        )
    if names.value is not None and names.value not in schema.names:
        raise IllegalArgumentError(f"there is no column {names.value!r} among {', '.join(schema.names)}")
    if topic is None and names.topic not in schema.names:
        raise IllegalArgumentError(f"no topic: name one, or add a column {names.topic!r}")


def _check_format(sender: ColumnSender, value_format: str) -> None:
    if value_format != "avro":
        raise IllegalArgumentError(
            f"value_format={value_format!r} has to be 'avro', or None for the value serializer of the producer"
        )
    if sender.row_by_row is None and getattr(sender.forms.get("value"), "column_form", None) != "avro":
        raise IllegalArgumentError(
            "value_format='avro' needs a producer with value_serializer=headrace.registry.AvroSerializer(client)"
        )


def _rows(batch: Any, names: ColumnNames) -> Any:
    """The columns without a role as one column of structs."""
    import pyarrow as pa  # noqa: PLC0415

    fields = [field for field in batch.schema if field.name not in names]
    for field in fields:
        if len(batch.schema.get_all_field_indices(field.name)) > 1:
            raise IllegalArgumentError(f"there are several columns {field.name!r}")
    return pa.StructArray.from_arrays([batch.column(field.name) for field in fields], fields=fields)


def _send_batch(
    sender: ColumnSender, topic: str | None, batch: Any, names: ColumnNames, future: RowsFuture, base_row: int
) -> None:
    columns = {
        role: batch.column(name)
        for role, name in names._asdict().items()
        if name is not None and name in batch.schema.names
    }
    if names.value is None:
        columns["value"] = _rows(batch, names)
    timestamps = _timestamps(columns["timestamp"], names.of("timestamp"), base_row) if "timestamp" in columns else None
    partitions = (
        _whole_numbers(columns["partition"], names.of("partition"), base_row) if "partition" in columns else None
    )
    topics = [(topic, None)] if topic is not None else topics_of(columns["topic"], names.of("topic"), base_row)
    serialize_columns(columns, sender.forms, names, topics, base_row)
    headers = _Headers.of(columns["headers"], names.of("headers"), base_row) if "headers" in columns else None
    if sender.row_by_row is not None:
        config = sender.engine.config
        send_each(
            sender,
            itertools.repeat(topic) if topic is not None else columns["topic"].to_pylist(),
            _objects(columns["value"], names.of("value"), config.value_serializer),
            _objects(columns["key"], names.of("key"), config.key_serializer) if "key" in columns else None,
            None if headers is None else headers.pairs(base_row),
            None if partitions is None else [None if each < 0 else each for each in partitions],
            None if timestamps is None else [None if each < 0 else each for each in timestamps],
            future,
            base_row,
        )
        return
    prepared = Columns(
        bytes_column(columns["value"], names.of("value")),
        bytes_column(columns["key"], names.of("key")) if "key" in columns else None,
        None if headers is None else encode_header_lists(headers.lists, headers.keys, headers.values),
        timestamps,
        partitions,
        sender.engine.clock.wall_ms(),
    )
    send_columns(sender, prepared, topics, future, base_row)


def serialize_columns(
    columns: dict[str, Any],
    forms: Mapping[str, Any],
    names: ColumnNames,
    topics: list[tuple[str, Any]],
    base_row: int,
) -> None:
    """Replace the key and the value of the columns by their serialized form, and add the headers that go with it.

    `columns`: by role. `forms`: as in ColumnSender. `topics`: each topic with the numbers of its rows; None: all rows.
    Raises what `serialized` raises.
    """
    added: dict[str, Any] = {}
    for part, form in forms.items():
        if part in columns:
            columns[part], header = serialized(columns[part], names.of(part), part, form, topics, base_row)
            if header is not None:
                added[header[0]] = header[1]
    if added:
        columns["headers"] = with_headers(columns.get("headers"), added, names.of("headers"))


def topics_of(column: Any, name: str, base_row: int) -> list[tuple[str, Any]]:
    """Each topic with the rows for it; None: all rows. Raises SerializationError, RowDeliveryError."""
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.dictionary_decode()
    if not (is_string(kind) or pa.types.is_null(kind)):
        raise SerializationError(f"the column {name!r} is of type {column.type}; topics are strings")
    if column.null_count:
        cause = SerializationError(f"the column {name!r} is null, and no topic is named for all rows")
        raise row_error(base_row + column.is_null().index(True).as_py(), None, -1, cause) from cause
    # not every version of pyarrow can dictionary-encode views
    encoded = column.cast(pa.large_string()).dictionary_encode()
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1:
        return [(topics[0], None)]
    order, ends = group(longs(encoded.indices), len(topics))
    return [(each, order[ends[number] : ends[number + 1]]) for number, each in enumerate(topics)]


class _Headers(NamedTuple):
    """A column of headers: the items of each row, and their keys and values. No key in use is null."""

    name: str
    lists: ListColumn
    keys: BytesColumn
    values: BytesColumn
    column: Any

    @classmethod
    def of(cls, column: Any, name: str, base_row: int) -> _Headers | None:
        """Check the column; None if no row has headers.

        Raises SerializationError for another type, RowDeliveryError for a row with an invalid header.
        """
        import pyarrow as pa  # noqa: PLC0415

        kind = column.type
        types = pa.types
        if types.is_null(kind):
            return None
        if types.is_map(kind):
            key, value = 0, 1
        else:
            inner = kind.value_type if types.is_list(kind) or types.is_large_list(kind) else kind
            fields = [inner.field(index).name for index in range(inner.num_fields)] if types.is_struct(inner) else []
            if inner is kind or "key" not in fields or "value" not in fields:
                raise SerializationError(
                    f"the column {name!r} is of type {kind}; headers are an array of structs of a key (string) and a "
                    f"value (binary)"
                )
            key, value = fields.index("key"), fields.index("value")
        items = column.values
        validity = column.buffers()[0] if column.null_count else None
        try:
            lists = ListColumn(longs(column.offsets), validity, column.offset, len(items))
        except EncodeError as error:
            raise SerializationError(f"the column {name!r} is not valid Arrow data: {error}") from error
        keys = bytes_column(items.field(key), f"{name}.key")
        bitmap = items.buffers()[0] if items.null_count else None
        for part, problem in (
            (BytesColumn(b"", None, 0, 0, bitmap, items.offset, len(items)), "a null among the headers of a row"),
            (keys, "a header without a key"),
        ):
            row = lists.first_row_with_null(part)
            if row >= 0:
                cause = SerializationError(f"the column {name!r} has {problem}")
                raise row_error(base_row + row, None, -1, cause) from cause
        return cls(name, lists, keys, bytes_column(items.field(value), f"{name}.value"), column)

    def pairs(self, base_row: int) -> list[list[tuple[str, bytes | None]] | None]:
        """The headers of each row, as `send` takes them. Raises RowDeliveryError for a key that is not UTF-8."""
        found: list[list[tuple[str, bytes | None]] | None] = []
        for row, listed in enumerate(self.column.to_pylist()):
            pairs = [pair if isinstance(pair, tuple) else (pair["key"], pair["value"]) for pair in listed or ()]
            try:
                found.append([(_text(key), _data(value)) for key, value in pairs] or None)
            except UnicodeDecodeError as error:
                cause = SerializationError(f"the column {self.name!r} has a header whose key is not UTF-8: {error}")
                raise row_error(base_row + row, None, -1, cause) from error
        return found


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key


def _data(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _timestamps(column: Any, name: str, base_row: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute  # noqa: PLC0415

    if pa.types.is_timestamp(column.type):
        pc: Any = pyarrow.compute
        to_ms = pc.CastOptions(pa.timestamp("ms", column.type.tz), allow_time_truncate=True)
        try:
            column = pc.cast(column, options=to_ms)
        except pa.ArrowInvalid as error:
            raise SerializationError(f"the column {name!r} holds a timestamp that is out of range: {error}") from error
    elif not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise SerializationError(
            f"the column {name!r} is of type {column.type}; it has to hold timestamps, or whole numbers of milliseconds"
        )
    return _whole_numbers(column, name, base_row)


def _whole_numbers(column: Any, name: str, base_row: int) -> Any:
    """A column of whole numbers, 0 or more, as 64-bit integers; nulls become -1."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute  # noqa: PLC0415

    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)):
        raise SerializationError(f"the column {name!r} is of type {column.type}; it has to hold whole numbers")
    pc: Any = pyarrow.compute  # it creates its functions on import, so type checkers don't know them
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise SerializationError(f"the column {name!r} holds a number that is out of range: {error}") from error
    if len(numbers) > numbers.null_count and pc.min(numbers).as_py() < 0:
        row = pc.less(numbers, 0).index(True).as_py()
        cause = IllegalArgumentError(f"the column {name!r} holds {numbers[row]}; it has to be 0 or more")
        raise row_error(base_row + row, None, -1, cause) from cause
    return longs(pc.fill_null(numbers, -1) if numbers.null_count else numbers)


def _objects(column: Any, name: str, serializer: Any) -> list[Any]:
    """The column's values as Python objects: for the serializer, or as bytes if there is none."""
    if serializer is not None:
        return column.to_pylist()
    return [_data(value) for value in plain(column, name).to_pylist()]
