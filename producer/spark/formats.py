"""Encode a column's values as bytes: raw, string, json and msgpack.

Each format is a function from a list of Python values to a list of bytes. None stays None (a null key, a tombstone).
`columns` does the same for whole Arrow columns; a property test checks that both agree.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import decimal
import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgpack

from ...network.protocol.errors import SerializationError

#: The formats that keep binary unchanged and encode strings in UTF-8.
AS_THEY_ARE = ("raw", "string")

Encoder = Callable[[Sequence[Any]], Sequence["bytes | None"]]

_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


#: Zeros to remove from a decimal with an exponent. Spark adds them in rows, but not in Arrow batches.
ZEROS_BEFORE_EXPONENT = r"\.0+E|([1-9])0+E"


class UnfitValueError(SerializationError):
    """A value that a format can't express. `index` is its row in the column."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.index)


def encoder(value_format: str) -> Encoder:
    """The encoder of a format: `raw`, `string`, `json` or `msgpack`."""
    return _ENCODERS[value_format]


def encode_raw(values: Sequence[Any]) -> Sequence[bytes | None]:
    """Keep binary unchanged and encode strings in UTF-8."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds or kinds == {bytes}:
        return values
    if kinds == {str}:
        with contextlib.suppress(UnicodeEncodeError):
            return [None if value is None else value.encode() for value in values]
    return [_each(index, value, _raw, "raw") for index, value in enumerate(values)]


def encode_string(values: Sequence[Any]) -> Sequence[bytes | None]:
    """Encode like `encode_raw`, and numbers, booleans, dates and times in their usual notation."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds or kinds <= {bytes, str}:
        return encode_raw(values)
    return [_each(index, value, _string, "string") for index, value in enumerate(values)]


def encode_json(values: Sequence[Any]) -> Sequence[bytes | None]:
    """Encode as compact JSON: structs as objects, binary in base64, times in ISO 8601 (UTC), decimals as strings."""
    return [_each(index, value, _json, "json") for index, value in enumerate(values)]


def encode_objects(values: Sequence[Any]) -> Sequence[Any]:
    """Convert values to the objects that the producer's serializer receives.

    Structs become dicts, as they come from Arrow, and user-defined types the type that Spark stores.
    """
    return [_each(index, value, _objects, "serializer") for index, value in enumerate(values)]


def encode_msgpack(values: Sequence[Any]) -> Sequence[bytes | None]:
    """Encode as MessagePack: structs as maps, binary as binary, times as timestamps (extension -1), decimals as str."""
    return [_each(index, value, _msgpack, "msgpack") for index, value in enumerate(values)]


_ENCODERS: dict[str, Encoder] = {
    "raw": encode_raw,
    "string": encode_string,
    "json": encode_json,
    "msgpack": encode_msgpack,
}


def _each(index: int, value: Any, encode: Callable[[Any], Any], name: str) -> Any:
    if value is None:
        return None
    try:
        return encode(value)
    except _UnfitError as unfit:
        raise UnfitValueError(f"format {name} can't express a {unfit}{_HINTS.get(name, '')}", index) from None
    except _DoubledFieldError as doubled:
        raise UnfitValueError(str(doubled), index) from None
    except (ValueError, OverflowError, RecursionError, TypeError) as error:
        raise UnfitValueError(f"format {name} failed on a {type(value).__name__}: {error}", index) from error


_HINTS = {
    "raw": ": cast it, or choose the format json or msgpack (string for a number, a date or a time)",
    "string": "; format json or msgpack takes structs, maps and arrays",
}


class _UnfitError(Exception):
    """A value of a type that a format does not support. Its text is the type's name."""

    def __init__(self, value: Any) -> None:
        super().__init__("struct" if hasattr(value, "__fields__") else type(value).__name__)


class _DoubledFieldError(ValueError):
    """A struct with two fields of the same name, one of which a dict would silently drop."""


def doubled_field(name: str) -> str:
    """The error message for a struct with two fields of the same name."""
    return f"a struct has two fields named {name!r}: rename one of them"


def _raw(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    stored = stored_form(value)
    if stored is not value:
        return _raw(stored)
    raise _UnfitError(value)


def _string(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (int, float, uuid.UUID)):
        return str(value).encode()
    if isinstance(value, decimal.Decimal):
        return _decimal(value).encode()
    if isinstance(value, datetime.datetime):
        return _iso(value).encode()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat().encode()
    stored = stored_form(value)
    return _raw(value) if stored is value else _string(stored)


def _json(value: Any) -> bytes:
    return _encode_json(_plain(value)).encode()


def _msgpack(value: Any) -> bytes:
    packed = msgpack.packb(_packable(value), use_bin_type=True, datetime=True)
    if packed is None:
        raise _UnfitError(value)
    return packed


def _decimal(value: decimal.Decimal) -> str:
    return re.sub(ZEROS_BEFORE_EXPONENT, r"\1E", str(value))


def _iso(value: datetime.datetime) -> str:
    return _utc(value).isoformat().replace("+00:00", "Z")


def _utc(value: datetime.datetime) -> datetime.datetime:
    """Convert to UTC. PySpark returns timestamps as local times without a zone."""
    return value.astimezone(datetime.timezone.utc)


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON supports."""
    kind = type(value)
    if kind in _JSON_AS_IT_IS:
        return value
    if kind is float:
        # like Spark's to_json
        return value if math.isfinite(value) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    return _nested(value, _plain, _plain_leaf)


def _packable(value: Any) -> Any:
    """Convert a value to types that MessagePack supports."""
    kind = type(value)
    if kind in _MSGPACK_AS_IT_IS:
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return _nested(value, _packable, _packable_leaf)


_JSON_AS_IT_IS = frozenset((str, int, bool, type(None)))
_MSGPACK_AS_IT_IS = frozenset((str, int, bool, float, bytes, type(None)))


def _nested(value: Any, convert: Callable[[Any], Any], leaf: Callable[[Any], Any]) -> Any:
    fields = getattr(value, "__fields__", None)
    if fields is not None:
        return _fields(fields, map(convert, value))
    if isinstance(value, Mapping):
        return {_name_of(name): convert(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert(inner) for inner in value]
    stored = stored_form(value)
    return leaf(value) if stored is value else convert(stored)


def _fields(names: Sequence[str], values: Iterable[Any]) -> dict[str, Any]:
    """Convert a struct to a dict. Raises _DoubledFieldError."""
    made = dict(zip(names, values, strict=True))
    if len(made) != len(names):
        raise _DoubledFieldError(doubled_field(next(name for name in names if names.count(name) > 1)))
    return made


def stored_form(value: Any) -> Any:
    """An object of a user-defined type as Spark stores it, and as Arrow batches hold it. Others are unchanged."""
    kind = getattr(value, "__UDT__", None)
    return value if kind is None else kind.sqlType().fromInternal(kind.serialize(value))


def _objects(value: Any) -> Any:
    fields = getattr(value, "__fields__", None)
    if fields is not None:
        return _fields(fields, map(_objects, value))
    if isinstance(value, dict):
        return {name: _objects(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_objects(inner) for inner in value]
    stored = stored_form(value)
    return value if stored is value else _objects(stored)


def _name_of(name: Any) -> str:
    return name if isinstance(name, str) else _string(name).decode(errors="backslashreplace")


def _plain_leaf(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return _iso(value)
    return _scalar(value)


def _packable_leaf(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return _utc(value)
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    raise _UnfitError(value)
