"""Types from the DataFrame's schema, which Spark's rows do not carry.

PySpark returns the same Python type for FLOAT and DOUBLE, and for TIMESTAMP_NTZ and TIMESTAMP. With the schema the row
path writes the same text as the Arrow path: a FLOAT as the shortest text that reads back as the same 32 bits, a
TIMESTAMP_NTZ without a zone.
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
    """The schema of the DataFrame whose ``foreachPartition(sink)`` the calling thread runs, or None if there is none.

    PySpark does not pass the schema, so this searches the calling thread's stack. Runs on the driver while the sink is
    pickled.
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
    """A function that converts values so that `formats` writes them like the Arrow path; None if none is needed.

    Only `string`, `json` and `msgpack` accept types that need one.
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
    # floats are farther apart above a power of two than below it, so a less close number may still read back
    rounded = float(_EIGHT_DIGITS_UP.create_decimal_from_float(number))
    return rounded if _is_same_float(rounded, number) else float(f"{number:.9g}")


def _is_same_float(rounded: float, number: float) -> bool:
    try:
        return _FLOAT.unpack(_FLOAT.pack(rounded))[0] == number
    except OverflowError:
        return False


class _Struct(tuple[Any, ...]):
    """A struct's values, with the field names in the attribute in which a Row has them."""

    __fields__: Sequence[str]


def _converter(kind: Any, *, is_text: bool) -> Converter | None:
    convert = _converter_of_values(kind, is_text=is_text)
    return None if convert is None else lambda value: None if value is None else convert(value)


def _converter_of_values(kind: Any, *, is_text: bool) -> Converter | None:
    """Like `_converter`, for values that are not null."""
    if hasattr(kind, "sqlType"):
        convert = _converter(kind.sqlType(), is_text=is_text)
        return None if convert is None else lambda value: convert(stored_form(value))
    if hasattr(kind, "fields"):
        return _converter_of_structs([_converter(field.dataType, is_text=is_text) for field in kind.fields])
    if hasattr(kind, "elementType"):
        element = _converter(kind.elementType, is_text=is_text)
        return None if element is None else lambda values: [element(value) for value in values]
    if hasattr(kind, "keyType"):
        # keys of maps are text in every format
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
