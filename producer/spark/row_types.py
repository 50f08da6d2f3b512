"""The types of Spark's rows, which the rows themselves do not carry.

PySpark makes the same Python object of a FLOAT as of a DOUBLE, and of a TIMESTAMP_NTZ as of a TIMESTAMP. With the
DataFrame's schema the row door writes the text that the Arrow doors write: a FLOAT as the shortest one that reads back
as the same 32 bits, a TIMESTAMP_NTZ without a zone.
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .formats import stored_form

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Converter = Callable[[Any], Any]

_FLOAT = struct.Struct("f")
_SMALLEST_NORMAL = 2.0**-126
_EIGHT_DIGITS_UP = decimal.Context(prec=8, rounding=decimal.ROUND_UP)


def schema_being_written(sink: object) -> StructType | None:
    """The schema of the DataFrame whose ``foreachPartition(sink)`` the calling thread is in; None where it is in none.

    PySpark passes no schema on, so the frames of the calling thread are searched. Driver, while the sink is pickled.
    """
    dataframe = getattr(sys.modules.get("pyspark.sql"), "DataFrame", None)
    frame = sys._getframe(1)
    while dataframe is not None and frame is not None:
        if frame.f_code.co_name == "foreachPartition" and frame.f_locals.get("f") is sink:
            df = frame.f_locals.get("self")
            if df is not None and isinstance(df, dataframe):
                return df.schema
        frame = frame.f_back
    return None


def converter(kind: DataType, value_format: str) -> Converter | None:
    """What makes a value of this type one that `formats` writes as the Arrow doors do; None where it is one already.

    `value_format` is `string`, `json` or `msgpack`; other formats take no type that needs it.
    """
    if value_format not in ("string", "json", "msgpack"):
        return None
    return _converter(kind, is_text=value_format != "msgpack")


def shortest(number: float) -> float:
    """The 64-bit number with the shortest text that reads back as this 32-bit number."""
    if not math.isfinite(number):
        return number
    for digits in range(6 if abs(number) >= _SMALLEST_NORMAL else 1, 9):
        rounded = float(f"{number:.{digits}g}")
        if _is_same_float(rounded, number):
            return rounded
    # above a power of two floats are further apart than below it, so that one farther off may still read back
    rounded = float(_EIGHT_DIGITS_UP.create_decimal_from_float(number))
    return rounded if _is_same_float(rounded, number) else float(f"{number:.9g}")


def _is_same_float(rounded: float, number: float) -> bool:
    try:
        return _FLOAT.unpack(_FLOAT.pack(rounded))[0] == number
    except OverflowError:
        return False


class _Struct(tuple[Any, ...]):
    """A struct's values, with the names where `formats` reads those of a Row."""

    __fields__: Sequence[str]


def _converter(kind: Any, *, is_text: bool) -> Converter | None:
    convert = _converter_of_values(kind, is_text=is_text)
    return None if convert is None else lambda value: None if value is None else convert(value)


def _converter_of_values(kind: Any, *, is_text: bool) -> Converter | None:
    """As `_converter`, for values that are not null."""
    if hasattr(kind, "sqlType"):
        convert = _converter(kind.sqlType(), is_text=is_text)
        return None if convert is None else lambda value: convert(stored_form(value))
    if hasattr(kind, "fields"):
        return _converter_of_structs([_converter(field.dataType, is_text=is_text) for field in kind.fields])
    if hasattr(kind, "elementType"):
        element = _converter(kind.elementType, is_text=is_text)
        return None if element is None else lambda values: [element(value) for value in values]
    if hasattr(kind, "keyType"):
        # the names of entries are text in each format
        return _converter_of_maps(_converter(kind.keyType, is_text=True), _converter(kind.valueType, is_text=is_text))
    name = kind.typeName()
    if name == "float":
        return shortest if is_text else None
    return datetime.datetime.isoformat if name == "timestamp_ntz" else None


def _converter_of_structs(fields: Sequence[Converter | None]) -> Converter | None:
    if not any(fields):
        return None

    def convert(struct: Any) -> _Struct:
        converted = _Struct(
            value if field is None else field(value) for field, value in zip(fields, struct, strict=True)
        )
        converted.__fields__ = struct.__fields__
        return converted

    return convert


def _converter_of_maps(name: Converter | None, item: Converter | None) -> Converter | None:
    if name is None and item is None:
        return None
    name, item = name or _unchanged, item or _unchanged
    return lambda entries: {name(key): item(value) for key, value in entries.items()}


def _unchanged(value: Any) -> Any:
    return value
