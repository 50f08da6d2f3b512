"""The formats for whole Arrow columns: the same bytes as `formats`, without a Python object per value.

Arrow's own functions join the texts of a struct's columns. Only floating-point numbers, binary, times of day and
strings to escape go through Python. MessagePack is not joined from text: its values are converted a column at a time
and packed one by one.

A `timestamp_ntz` is not a point in time, so its text has no zone. The text of a `float` is the shortest that reads back
as the same 32 bits. Rows carry neither type: `row_types` takes them from the DataFrame's schema.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from json.encoder import encode_basestring
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute

from ..columns.arrow_buffers import is_binary, is_string
from .formats import ZEROS_BEFORE_EXPONENT, UnfitValueError

# the functions are generated on import, so type checkers don't know them
pc: Any = pyarrow.compute

_TEXT = pa.large_string()
#: A decimal with at most this scale never has an exponent.
_PLACES_WITHOUT_EXPONENT = 6
_TO_ESCAPE = '["\\\\\x00-\x1f]'
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
#: The range of Python's dates, in days since 1970. Spark's dates have a wider range, which rows can't hold.
_FIRST_DAY, _LAST_DAY = (
    day.toordinal() - datetime.date(1970, 1, 1).toordinal() for day in (datetime.date.min, datetime.date.max)
)
_UNITS_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def encode_column(column: Any, value_format: str) -> Any:
    """Encode a column of any type as `string`, `json` or `msgpack`. Null stays null.

    Raises UnfitValueError for a type that the format can't express.
    """
    return _ENCODERS[value_format](column)


def _msgpack_column(column: Any) -> Any:
    packer = msgpack.Packer(use_bin_type=True, datetime=True)
    packed = []
    for index, value in enumerate(_objects(column)):
        try:
            packed.append(None if value is None else packer.pack(value))
        except (ValueError, OverflowError, RecursionError, TypeError) as error:
            raise UnfitValueError(f"format msgpack failed on a value: {error}", index) from error
    return pa.array(packed, pa.large_binary())


def _joined(column: Any, parts: Sequence[Any]) -> Any:
    """Concatenate the parts of each row. A null part becomes `null`; the result is null where the column is."""
    text = pc.binary_join_element_wise(
        *(pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts),
        pa.scalar("", _TEXT),
        null_handling="replace",
        null_replacement="null",
    )
    if isinstance(text, pa.Scalar):
        text = pa.repeat(text, len(column))
    return pc.if_else(column.is_valid(), text, pa.scalar(None, _TEXT)) if column.null_count else text


def _json(column: Any) -> Any:
    kind = column.type
    types = pa.types
    if types.is_struct(kind):
        parts: list[Any] = []
        for index, child in enumerate(column.flatten()):
            name = encode_basestring(kind.field(index).name)
            parts += [f"{',' if index else '{'}{name}:", _json(child)]
        return _joined(column, [*parts, "}"] if parts else ["{}"])
    if types.is_map(kind):
        keys, items = _entries(column)
        with _at_row_of(column):
            names, texts = _quoted(_string(keys)), _json(items)
        entries = pc.binary_join_element_wise(
            names, texts, pa.scalar(":", _TEXT), null_handling="replace", null_replacement="null"
        )
        return _joined(column, ["{", _comma_separated(column, entries), "}"])
    if _is_list(kind):
        with _at_row_of(column):
            texts = _json(column.flatten())
        return _joined(column, ["[", _comma_separated(column, texts), "]"])
    if types.is_dictionary(kind):
        return _json(column.dictionary_decode())
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.cast(_TEXT)
    if types.is_floating(kind):
        return _by_python(_shortest(column), _json_number)
    if is_binary(kind):
        return _by_python(column, lambda value: f'"{base64.b64encode(value).decode()}"')
    return _quoted(_string(column, "json"))


def _string(column: Any, value_format: str = "string") -> Any:
    """The text of numbers, booleans, dates and times in their usual notation."""
    kind = column.type
    types = pa.types
    if types.is_dictionary(kind):
        return _string(column.dictionary_decode(), value_format)
    if is_string(kind):
        return utf8(column.cast(_TEXT))
    if types.is_decimal(kind) and kind.scale > _PLACES_WITHOUT_EXPONENT:
        return pc.replace_substring_regex(column.cast(_TEXT), ZEROS_BEFORE_EXPONENT, r"\1E")
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind) or types.is_null(kind):
        return column.cast(_TEXT)
    if types.is_date(kind):
        return within_years(column.cast(pa.date32())).cast(_TEXT)
    if types.is_timestamp(kind):
        return _iso(within_years(column))
    if types.is_time(kind):
        return _by_python(column, lambda value: value.isoformat())
    if types.is_floating(kind):
        return _by_python(_shortest(column), str)
    if is_binary(kind):
        return _by_python(column, lambda value: value.decode(errors="backslashreplace"))
    hint = "; format json or msgpack takes structs, maps and arrays" if value_format == "string" else ""
    raise UnfitValueError(f"format {value_format} can't express a {kind}{hint}", 0)


def utf8(column: Any) -> Any:
    """Make all strings in a column, nested ones too, valid UTF-8.

    Spark's strings may hold any bytes. Invalid UTF-8 becomes U+FFFD, as when Spark passes rows to Python.
    """
    kind = column.type
    without_text = _with_binary(kind)
    if without_text != kind:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            values = column.view(without_text).to_pylist()
            return pa.array([_decoded(value, kind) for value in values], kind)
    return column


def _with_binary(kind: Any) -> Any:
    """The same type with binary, which has the same layout, instead of strings."""
    types = pa.types
    if types.is_string(kind):
        return pa.binary()
    if types.is_large_string(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_with_binary(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_with_binary(kind.key_type), _with_binary(kind.item_type))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_binary(kind.value_type)))
    return kind


def _decoded(value: Any, kind: Any) -> Any:
    """Convert a value of type `_with_binary(kind)` to `kind`."""
    types = pa.types
    if value is None:
        return None
    if types.is_string(kind) or types.is_large_string(kind):
        # Java replaces an unpaired surrogate with one U+FFFD, Python with one per byte
        return _SURROGATE.sub(b"\xff", value).decode(errors="replace")
    if types.is_struct(kind):
        return {field.name: _decoded(value[field.name], field.type) for field in kind}
    if types.is_map(kind):
        return [(_decoded(name, kind.key_type), _decoded(item, kind.item_type)) for name, item in value]
    if types.is_list(kind):
        return [_decoded(each, kind.value_type) for each in value]
    return value


def within_years(column: Any) -> Any:
    """Return the column of dates or times. Raises UnfitValueError for one outside the years 1 to 9999."""
    days = 1 if pa.types.is_date32(column.type) else _UNITS_PER_DAY[column.type.unit]
    first, end = _FIRST_DAY * days, (_LAST_DAY + 1) * days
    numbers = column.cast(pa.int32() if days == 1 else pa.int64())
    bounds = pc.min_max(numbers)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and (least < first or most >= end):
        wrong = pc.less(numbers, first) if least < first else pc.greater_equal(numbers, end)
        raise UnfitValueError(
            "a date or time outside the years 1 to 9999, which Python does not support: cast it to a string",
            wrong.index(True).as_py(),
        )
    return column


@contextlib.contextmanager
def _at_row_of(column: Any) -> Iterator[None]:
    """Change the index of an error in a list item or map entry to that of the column's row."""
    try:
        yield
    except UnfitValueError as unfit:
        row = bisect_right(_offsets(column).to_pylist(), unfit.index) - 1
        raise UnfitValueError(str(unfit), row) from unfit.__cause__


def _shortest(column: Any) -> Any:
    """Convert 32-bit floats to the 64-bit floats with the same shortest text. Other columns are unchanged."""
    return column.cast(pa.string()).cast(pa.float64()) if pa.types.is_float32(column.type) else column


def _string_column(column: Any) -> Any:
    """Like `_string`, but binary is unchanged."""
    return column if is_binary(column.type) else _string(column)


def _iso(column: Any) -> Any:
    """ISO 8601 in UTC. A zero fraction is omitted, and so is the zone if the column has none."""
    zone = None if column.type.tz is None else "UTC"
    text = column.cast(pa.timestamp("us", zone), safe=False).cast(_TEXT)
    end = "Z" if zone else ""
    text = pc.replace_substring_regex(text, rf"\.000000{end}$", end)
    return pc.replace_substring(text, " ", "T", max_replacements=1)


def _quoted(text: Any) -> Any:
    if pc.any(pc.match_substring_regex(text, _TO_ESCAPE)).as_py():
        return _by_python(text, encode_basestring)
    quote = pa.scalar('"', _TEXT)
    return pc.binary_join_element_wise(quote, text, quote, pa.scalar("", _TEXT))


def _json_number(value: float) -> str:
    # like Spark's to_json
    return repr(value) if math.isfinite(value) else f'"{_NOT_FINITE[str(value)]}"'


_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def _by_python(column: Any, convert: Callable[[Any], str]) -> Any:
    return pa.array([None if value is None else convert(value) for value in column.to_pylist()], _TEXT)


def _comma_separated(column: Any, texts: Any) -> Any:
    """Join the texts of each list's items (or map's entries), one text per row. A null text becomes `null`."""
    lists = pa.LargeListArray.from_arrays(_offsets(column), pc.fill_null(texts, "null"))
    return pc.binary_join(lists, pa.scalar(",", _TEXT))


def _entries(column: Any) -> tuple[Any, Any]:
    """The keys and items of the column's maps. The column may be a slice."""
    start, end = (column.offsets[0].as_py(), column.offsets[-1].as_py()) if len(column) else (0, 0)
    return column.keys.slice(start, end - start), column.items.slice(start, end - start)


def _offsets(column: Any) -> Any:
    """The offsets of lists in the result of `flatten`, or of maps in that of `_entries`.

    `flatten` omits items under null lists.
    """
    if not len(column):
        return pa.array([0], pa.int64())
    if pa.types.is_map(column.type):
        return pc.subtract(column.offsets, column.offsets[0]).cast(pa.int64())
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])


def _objects(column: Any) -> list[Any]:
    """The column's values as Python objects that MessagePack supports."""
    kind = column.type
    types = pa.types
    if types.is_struct(kind):
        names = [field.name for field in kind]
        children = [_objects(child) for child in column.flatten()]
        rows = (
            [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)] if names else [{}] * len(column)
        )
        return _with_nulls(column, rows)
    if types.is_map(kind):
        keys, items = _entries(column)
        with _at_row_of(column):
            pairs = list(zip(_string(keys).to_pylist(), _objects(items), strict=True))
        return _with_nulls(column, [dict(each) for each in _cut(column, pairs)])
    if _is_list(kind):
        with _at_row_of(column):
            flat = _objects(column.flatten())
        return _with_nulls(column, _cut(column, flat))
    if types.is_dictionary(kind):
        return _objects(column.dictionary_decode())
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or is_binary(kind):
        return column.to_pylist()
    if types.is_timestamp(kind) and kind.tz is not None:
        return within_years(column).to_pylist()
    return _string(column, "msgpack").to_pylist()


def _with_nulls(column: Any, values: list[Any]) -> list[Any]:
    if not column.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)]


def _cut(column: Any, flat: list[Any]) -> list[list[Any]]:
    offsets = _offsets(column).to_pylist()
    return [flat[start:end] for start, end in pairwise(offsets)]


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "string": _string_column,
    "json": _json,
    "msgpack": _msgpack_column,
}
