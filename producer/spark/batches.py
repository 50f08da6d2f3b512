"""The Arrow path: record batches from Spark, encoded without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from ...network.protocol.errors import SerializationError
from ..columns.arrow import ColumnNames, serialize_columns, topics_of
from ..columns.arrow_buffers import is_binary, is_of, is_string
from ..columns.rows_future import RowsFuture
from ..record_errors import row_error
from .columns import encode_column, utf8, within_years
from .writer import COLUMNS, PartitionWriter, missing_value, naming, no_topic, null_topic

_NAMES = ColumnNames(**{name: name for name in COLUMNS})


class BatchWriter(PartitionWriter):
    """Writes pyarrow RecordBatches."""

    def _chunks(self, source: Iterable[pa.RecordBatch]) -> Iterator[_Sized]:
        for batch in source:
            if batch.num_rows:
                yield _Sized(batch)

    def _send(self, chunk: _Sized) -> RowsFuture:
        batch = chunk.batch
        options = self._options
        names = batch.schema.names
        if "value" not in names:
            raise missing_value(names)
        columns = {name: batch.column(name) for name in COLUMNS if name in names}
        forms = {} if options.registry is None else options.registry.serializers()
        for part, form in (("value", options.value_format), ("key", options.key_format)):
            if part in columns and part not in forms:
                columns[part] = _formatted(part, columns[part], form)
        if not options.include_headers:
            columns.pop("headers", None)
        if options.topic is not None:
            columns.pop("topic", None)
        elif "topic" not in columns:
            raise no_topic()
        elif columns["topic"].null_count:
            raise row_error(columns["topic"].is_null().index(True).as_py(), None, -1, null_topic())
        for name in ("headers", "topic"):
            if name in columns:
                columns[name] = utf8(columns[name])
        if "timestamp" in columns and pa.types.is_timestamp(columns["timestamp"].type):
            with naming("timestamp"):
                within_years(columns["timestamp"])
        if forms:
            topics = [(options.topic, None)] if options.topic is not None else topics_of(columns["topic"], "topic", 0)
            serialize_columns(columns, forms, _NAMES, topics, 0)
        ready = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return self._producer.send_arrow(options.topic, ready)


class _Sized:
    """A record batch with a length in rows: pyarrow's own counts columns."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return self.batch.num_rows


def _formatted(name: str, column: Any, form: str) -> Any:
    """Encode a column in its format. A column that already holds bytes is returned as it is."""
    kind = column.type
    # what `send_arrow` accepts as a value or key
    is_bytes = is_string(kind) or is_binary(kind) or is_of(kind, "null") or is_of(kind, "dictionary")
    if form == "serializer" or (is_bytes and form in ("raw", "string")):
        return utf8(column)
    if form == "raw":
        raise SerializationError(
            f"the column {name!r} is of type {kind}; format raw takes strings and binary: cast it, or choose "
            f"{name}_format string, json or msgpack"
        )
    with naming(name):
        return encode_column(column, form)
