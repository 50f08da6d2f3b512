"""Arrow columns through serializers that take a whole column: without a Python object per row.

A serializer of `headrace.registry` is asked once per topic for the schema and its framing (`of_columns`).
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...network.protocol.errors import RowDeliveryError, SerializationError
from ...registry.context import MessageField, SerializationContext
from ...registry.schemas import AVRO, Schema
from ..record_errors import row_error
from .arrow_buffers import is_binary, is_of, is_string
from .avro import avro_column, prefixed_column
from .avro_schema import derived_schema, record_name


class Serialized(NamedTuple):
    """A serialized column, and the header that each record gets: its name, and a binary column of its values."""

    column: Any
    header: tuple[str, Any] | None = None


def serialized(
    column: Any, name: str, part: str, form: Any, topics: list[tuple[str, Any]], base_row: int
) -> Serialized:
    """Serialize a column of keys or values (`part`).

    `name`: that of the column, empty for whole rows. `form`: "string", "bytes", or an object with `of_columns`.
    `topics`: each topic with the numbers of its rows; None: all rows.

    Raises SerializationError for a column that can't be serialized, RowDeliveryError for a value, and what a call of
    the serializer raises.
    """
    if isinstance(form, str):
        return Serialized(_checked(column, name, part, form))
    if len(topics) == 1 and topics[0][1] is None:
        return _of_topic(column, name, part, form, topics[0][0], base_row)
    return _of_topics(column, name, part, form, topics, base_row)


def check_type(kind: Any, part: str, form: Any) -> None:
    """Check that a column of an Arrow type can be serialized, as far as that is known without the schema registry.

    `form`: an object with `of_columns`. Raises SerializationError.
    """
    import pyarrow as pa  # noqa: PLC0415

    empty = pa.nulls(0, kind)
    if form.column_form == "bytes":
        prefixed_column(empty, b"", part)
    elif form.own_schema is not None:
        avro_column(empty, form.own_schema, b"", part, 0, form.strictness)
    elif form.derives_schema:
        derived_schema(kind, part)


def _checked(column: Any, name: str, part: str, form: str) -> Any:
    """The column of a serializer that changes nothing."""
    kind = column.type.value_type if is_of(column.type, "dictionary") else column.type
    fits = is_string(kind) if form == "string" else is_binary(kind)
    if not fits and not is_of(kind, "null"):
        raise SerializationError(
            f"the column {name!r} is of type {column.type}, and {part}.serializer={form!r} takes "
            f"{'strings' if form == 'string' else 'binary'}: cast it"
        )
    return column


def _of_topic(column: Any, name: str, part: str, form: Any, topic: str, base_row: int) -> Serialized:
    import pyarrow as pa  # noqa: PLC0415  (needed only with Arrow data)

    def derive() -> Schema:
        derived = derived_schema(column.type, record_name(topic, part))
        return Schema(json.dumps(derived), AVRO, name=derived["name"])

    field = MessageField.KEY if part == "key" else MessageField.VALUE
    prefix, header, schema = form.of_columns(SerializationContext(topic, field), derive)
    if form.column_form == "bytes":
        made = prefixed_column(column, prefix, name)
    else:
        made = avro_column(column, schema, prefix, name, base_row, form.strictness)
    if header is None:
        return Serialized(made)
    return Serialized(made, (header[0], pa.repeat(pa.scalar(header[1], pa.large_binary()), len(column))))


def _of_topics(
    column: Any, name: str, part: str, form: Any, topics: list[tuple[str, Any]], base_row: int
) -> Serialized:
    """Serialize the rows of each topic by its schema, and bring them into their order again."""
    import pyarrow as pa  # noqa: PLC0415

    made: list[Serialized] = []
    places = array("q", bytes(8 * len(column)))
    place = 0
    for topic, rows in topics:
        try:
            made.append(_of_topic(column.take(pa.array(rows, pa.int64())), name, part, form, topic, 0))
        except RowDeliveryError as error:
            cause = error.__cause__ or error
            raise row_error(base_row + rows[error.row], topic, -1, cause) from cause
        for row in rows:
            places[row] = place
            place += 1
    order = pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)])
    values = pa.concat_arrays([each.column for each in made]).take(order)
    headers = [each.header for each in made if each.header is not None]
    if not headers:
        return Serialized(values)
    return Serialized(values, (headers[0][0], pa.concat_arrays([each for _, each in headers]).take(order)))


def with_headers(column: Any, added: Mapping[str, Any], name: str) -> Any:
    """The column of headers with one more header for each row: `added` has its name and the values.

    A header of the same name is replaced, as the serializers do. `column` may be None.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute  # noqa: PLC0415

    pc: Any = pyarrow.compute  # it creates its functions on import, so type checkers don't know them
    for header, values in added.items():
        count = len(values)
        numbers = pa.array(range(count), pa.int64())
        keys = pa.repeat(pa.scalar(header, pa.large_string()), count)
        if column is None or is_of(column.type, "null"):
            owners, bounds = numbers, pa.array(range(count + 1), pa.int64())
        else:
            owners, earlier_keys, earlier_values = _items(column, name)
            kept = pc.not_equal(earlier_keys, header)
            before = pc.sum(kept).as_py() or 0
            owners = pa.concat_arrays([owners.filter(kept), numbers])
            # stable: the header that is added is the last of its row
            order = pc.sort_indices(
                pa.table({"row": owners, "place": pa.array(range(len(owners)), pa.int64())}),
                sort_keys=[("row", "ascending"), ("place", "ascending")],
            )
            ends = pc.indices_nonzero(pc.greater_equal(order, before)).cast(pa.int64())
            bounds = pa.concat_arrays([pa.array([0], pa.int64()), pc.add(ends, 1)])
            keys = pa.concat_arrays([earlier_keys.filter(kept), keys]).take(order)
            values = pa.concat_arrays([earlier_values.filter(kept), values]).take(order)
        items = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
        column = pa.LargeListArray.from_arrays(bounds, items)
    return column


def _items(column: Any, name: str) -> tuple[Any, Any, Any]:
    """The row, the key and the value of each header in a column. Raises SerializationError for another type."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute  # noqa: PLC0415

    pc: Any = pyarrow.compute
    try:
        if is_of(column.type, "map"):
            pairs = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
            nulls = column.is_null() if column.null_count else None
            column = pa.ListArray.from_arrays(column.offsets, pairs, mask=nulls)
        items = column.flatten()
        keys = items.field(items.type.get_field_index("key")).cast(pa.large_string())
        values = items.field(items.type.get_field_index("value")).cast(pa.large_binary())
        return pc.list_parent_indices(column).cast(pa.int64()), keys, values
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, AttributeError, KeyError, IndexError) as wrong:
        raise SerializationError(
            f"the column {name!r} is of type {column.type}; headers are an array of structs of a key (string) and a "
            f"value (binary)"
        ) from wrong
