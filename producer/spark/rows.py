"""The row path: writes Spark's rows, one Python object each.

Rows are taken a chunk at a time and converted to columns. Columns and encoders are thus looked up once per chunk, and
records are built from whole columns, as they are from Arrow's.
"""

from __future__ import annotations

import contextlib
import datetime
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.errors import (
    EncodeError,
    IllegalArgumentError,
    KafkaConfigurationError,
    KafkaError,
    SerializationError,
)
from ...network.records.builder_cy import encode_headers
from ...network.records.columns_cy import BytesColumn, Columns, column_of
from ..columns.column_send import send_columns, send_each
from ..columns.rows_cy import group
from ..columns.rows_future import RowsFuture
from ..kafka_producer import KafkaProducer
from ..record_errors import row_error
from .formats import AS_THEY_ARE, encode_objects, encoder
from .options import SinkOptions
from .row_types import Converter, converter
from .writer import COLUMNS, PartitionWriter, check_doubled, missing_value, naming, no_topic, null_topic

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: The number of rows converted to columns at a time. These few stay in the CPU cache, and are rarely alive during a
#: garbage collection. With 4096 the conversion takes three times as long.
HANDFUL_ROWS = 128
#: Chunks are sent as a unit. They start small, because rows may be large, and double up to MAX_CHUNK_ROWS while a chunk
#: has less than half of CHUNK_BYTES.
MAX_CHUNK_ROWS = 1024
CHUNK_BYTES = 1 << 20

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)


class RowWriter(PartitionWriter):
    """Writes Rows, named tuples, dicts or bare values."""

    _chunk_rows = HANDFUL_ROWS

    def __init__(
        self,
        producer: KafkaProducer,
        options: SinkOptions,
        where: str,
        clock: Clock = SYSTEM_CLOCK,
        *,
        schema: StructType | None = None,
    ) -> None:
        """`schema` has the Spark types of the rows. Without it a value is written according to its Python type."""
        super().__init__(producer, options, where, clock)
        if options.registry is not None:
            part, form = next(iter(options.registry.formats.items()))
            raise KafkaConfigurationError(
                f"{part}_format={form!r} takes Arrow batches, and these are rows: write with sink.write(df), "
                f"foreachBatch(sink.write_batch) or format('headrace') (streams: with PySpark 4.1 or later)"
            )
        types = {} if schema is None else {field.name: field.dataType for field in schema.fields}
        forms = {"value": options.value_format, "key": options.key_format}
        self._converters: dict[str, Converter] = {}
        for name, form in forms.items():
            convert = converter(types[name], form) if name in types else None
            if convert is not None:
                self._converters[name] = convert

    def _chunks(self, source: Iterable[Any]) -> Iterator[_Chunk]:
        remaining = iter(source)
        chunk = _Chunk()
        while True:
            try:
                rows = _taken(remaining)
                if not rows:
                    break
                columns = _columns_of(rows)
            except KafkaError as error:
                if chunk:
                    yield chunk
                yield _Chunk(error)
                return
            if len(chunk) >= self._chunk_rows or not chunk.fits(columns):
                yield chunk
                chunk = _Chunk()
            chunk.add(columns, len(rows))
        if chunk:
            yield chunk

    def _send(self, chunk: _Chunk) -> RowsFuture:
        if chunk.error is not None:
            raise chunk.error
        columns = chunk.columns
        for name, convert in self._converters.items():
            columns[name] = [convert(value) for value in columns[name]]
        options = self._options
        topics = self._topics(columns)
        values, keys = columns["value"], columns.get("key")
        headers = columns.get("headers") if options.include_headers else None
        timestamps = _numbers("timestamp", columns)
        partitions = _numbers("partition", columns)
        future = RowsFuture(len(chunk))
        sender = self._producer.column_sender()
        if sender.row_by_row is not None:
            send_each(
                sender,
                repeat(options.topic) if options.topic is not None else columns["topic"],
                _encoded("value", values, options.value_format),
                _encoded("key", keys, options.key_format) if keys is not None else None,
                _of_each(headers, _header_pairs) if headers is not None else None,
                [None if number < 0 else number for number in partitions] if partitions is not None else None,
                [None if number < 0 else number for number in timestamps] if timestamps is not None else None,
                future,
                0,
            )
            return future
        prepared = Columns(
            _byte_column("value", values, options.value_format),
            _byte_column("key", keys, options.key_format) if keys is not None else None,
            _header_column(headers) if headers is not None else None,
            timestamps,
            partitions,
            sender.engine.clock.wall_ms(),
        )
        if self._chunk_rows < MAX_CHUNK_ROWS and prepared.total_bytes < CHUNK_BYTES // 2:
            self._chunk_rows *= 2
        send_columns(sender, prepared, topics, future, 0)
        return future

    def _topics(self, columns: Mapping[str, Sequence[Any]]) -> list[tuple[str, Any]]:
        """Each topic with the indexes of its rows, or None for all rows."""
        if self._options.topic is not None:
            return [(self._options.topic, None)]
        topics = columns.get("topic")
        if topics is None:
            raise no_topic()
        numbers: dict[str, int] = {}
        for row, topic in enumerate(topics):
            if topic is None:
                raise row_error(row, None, -1, null_topic())
            numbers.setdefault(topic, len(numbers))
        if len(numbers) == 1:
            return [(topic, None) for topic in numbers]
        order, ends = group(array("q", [numbers[topic] for topic in topics]), len(numbers))
        return [(topic, order[ends[number] : ends[number + 1]]) for topic, number in numbers.items()]


def _taken(source: Iterator[Any]) -> list[Any]:
    """The next rows. Raises SerializationError if PySpark can't convert them to Python objects."""
    try:
        return list(islice(source, HANDFUL_ROWS))
    except (ValueError, OverflowError) as error:
        raised_in = error.__traceback__
        while raised_in is not None and raised_in.tb_next is not None:
            raised_in = raised_in.tb_next
        # the user's own function may produce the rows, and raise the same errors for other reasons
        if raised_in is None or raised_in.tb_frame.f_globals.get("__name__") != "pyspark.sql.types":
            raise
        raise SerializationError(
            f"PySpark can't convert this row or one of the next {HANDFUL_ROWS} to Python objects: {error}; Python's "
            f"dates and times are limited to the years 1 to 9999: cast others to strings"
        ) from error


class _Chunk:
    """The columns of some rows that have the same names, or the error of rows that could not be read."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.error = error
        self.columns: dict[str, list[Any]] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def fits(self, columns: Mapping[str, Sequence[Any]]) -> bool:
        return not self._rows or columns.keys() == self.columns.keys()

    def add(self, columns: Mapping[str, Sequence[Any]], rows: int) -> None:
        for name, column in columns.items():
            self.columns.setdefault(name, []).extend(column)
        self._rows += rows


def _columns_of(chunk: list[Any]) -> dict[str, Sequence[Any]]:
    """The chunk's columns by name, without those that are not written to Kafka."""
    first = chunk[0]
    fields = _fields_of(first)
    if fields is None:
        for row, value in enumerate(chunk):
            if not isinstance(value, (bytes, bytearray, str, type(None))):
                raise row_error(row, None, -1, _not_a_row(value))
        return {"value": chunk}
    if isinstance(first, dict):
        return _columns_of_dicts(chunk)
    _check_same_fields(chunk, fields)
    if "value" not in fields:
        raise missing_value(fields)
    check_doubled(fields)
    # all rows have the same names, and so the same length
    columns = zip(fields, zip(*chunk, strict=True), strict=True)
    return {name: column for name, column in columns if name in COLUMNS}


def _check_same_fields(chunk: list[Any], fields: Sequence[str]) -> None:
    name = "__fields__" if hasattr(chunk[0], "__fields__") else "_fields"
    try:
        # Spark's rows share their list of names, so that this compares by identity
        shared = list(map(attrgetter(name), chunk))
        if shared.count(fields) == len(shared):
            return
    except AttributeError:
        # some are not rows: the loop below finds the first
        pass
    for row, each in enumerate(chunk):
        if _fields_of(each) != fields:
            raise row_error(row, None, -1, SerializationError("the rows of this partition have different columns"))


def _columns_of_dicts(chunk: list[Any]) -> dict[str, Sequence[Any]]:
    for row, each in enumerate(chunk):
        if not isinstance(each, dict):
            raise row_error(row, None, -1, _not_a_row(each))
        if "value" not in each:
            raise row_error(row, None, -1, missing_value(each))
    return {name: [each.get(name) for each in chunk] for name in COLUMNS if any(name in each for each in chunk)}


def _fields_of(row: Any) -> Sequence[str] | None:
    """The names of a row's columns, or None for a plain value."""
    fields = getattr(row, "__fields__", None)
    if fields is None:
        fields = getattr(row, "_fields", None)
        if fields is None and isinstance(row, dict):
            return COLUMNS
    return fields


def _not_a_row(row: Any) -> KafkaError:
    return SerializationError(
        f"a {type(row).__name__} is not a row: the elements of an RDD must be Rows, named tuples, dicts, or plain "
        f"values (bytes or strings)"
    )


def _encoded(name: str, column: Sequence[Any], form: str) -> Sequence[Any]:
    with naming(name):
        # a Row is a tuple, which a serializer would write as an array
        return encode_objects(column) if form == "serializer" else encoder(form)(column)


def _byte_column(name: str, column: Sequence[Any], form: str) -> BytesColumn:
    if form in AS_THEY_ARE:
        # columns usually hold only bytes and strings; `column_of` raises if not
        with contextlib.suppress(TypeError, UnicodeEncodeError):
            return column_of(column)
    return column_of(_encoded(name, column, form))


def _numbers(name: str, columns: Mapping[str, Sequence[Any]]) -> Any:
    """A column of integers, or of timestamps as milliseconds. Null is -1."""
    column = columns.get(name)
    if column is None:
        return None
    numbers = array("q")
    for row, value in enumerate(column):
        if isinstance(value, datetime.datetime):
            value = (value.astimezone(datetime.timezone.utc) - _EPOCH) // _MILLISECOND
        if value is None:
            value = -1
        elif not isinstance(value, int) or isinstance(value, bool):
            cause = SerializationError(f"the column {name!r} holds a {type(value).__name__}, not a whole number")
            raise row_error(row, None, -1, cause)
        elif not 0 <= value < 2**63:
            wanted = "0 or more" if value < 0 else "below 2**63"
            cause = IllegalArgumentError(f"the column {name!r} holds {value}; it has to be {wanted}")
            raise row_error(row, None, -1, cause)
        numbers.append(value)
    return numbers


def _header_column(headers: Sequence[Any]) -> BytesColumn:
    return column_of(_of_each(headers, _encoded_headers))


def _of_each(headers: Sequence[Any], convert: Callable[[Any], Any]) -> list[Any]:
    converted = []
    for row, pairs in enumerate(headers):
        try:
            converted.append(convert(pairs) if pairs else None)
        except EncodeError as wrong:
            cause = SerializationError(f"the column 'headers': {wrong}")
            raise row_error(row, None, -1, cause) from cause
    return converted


def _encoded_headers(headers: Any) -> bytes:
    return encode_headers(_header_pairs(headers))


def _header_pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    """Convert an array of structs of key and value, or a map, to the producer's headers. Raises EncodeError."""
    pairs = []
    for pair in headers.items() if isinstance(headers, dict) else headers:
        fields = getattr(pair, "__fields__", _HEADER_FIELDS)
        if len(fields) != 2 or "key" not in fields or "value" not in fields:
            raise EncodeError(f"a header is a struct of key and value, not of {', '.join(fields)}")
        try:
            name, value = pair if fields[0] == "key" else reversed(pair)
        except (TypeError, ValueError):
            raise EncodeError("a header is a pair of a string and bytes") from None
        pairs.append((name, value.encode() if isinstance(value, str) else value))
    return pairs


_HEADER_FIELDS = ("key", "value")
