"""The Avro schema of Arrow types: what `AvroSerializer` registers if it was given no schema.

Source: Avro's specification, "Logical Types". Names of nested records are formed as in Spark's `to_avro`.
"""

from __future__ import annotations

import re
from typing import Any

from ...network.protocol.errors import SerializationError
from .arrow_buffers import is_of, is_string

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_TIME_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


def record_name(topic: str, part: str) -> str:
    """The name of the record derived for the keys or values (`part`) of a topic: `orders_value`."""
    name = f"{_NOT_IN_NAMES.sub('_', topic)}_{part}"
    return name if _NAME.match(name) else f"_{name}"


def derived_schema(kind: Any, name: str) -> dict[str, Any]:
    """The Avro schema of an Arrow struct type, whose name is `name`.

    Raises SerializationError for a type or a field name that Avro can't express.
    """
    import pyarrow as pa  # noqa: PLC0415  (needed only with Arrow data)

    if not pa.types.is_struct(kind):
        raise SerializationError(
            f"the column is of type {kind}; the schema of a struct can be derived only: pass value=None for a record "
            f"of all columns, or give AvroSerializer a schema"
        )
    return _record(kind, name, None, name)


def _record(kind: Any, name: str, namespace: str | None, path: str) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    names: set[str] = set()
    for index in range(kind.num_fields):
        field = kind.field(index)
        place = f"{path}.{field.name}"
        if not _NAME.match(field.name):
            raise SerializationError(
                f"the column {place!r} has a name that Avro does not permit; rename it to letters, digits and _"
            )
        if field.name in names:
            raise SerializationError(f"there are two columns {place!r}; rename one of them")
        names.add(field.name)
        inner = _type(field.type, field.name, path, place)
        if field.nullable and inner != "null":
            fields.append({"name": field.name, "type": ["null", inner], "default": None})
        else:
            fields.append({"name": field.name, "type": inner})
    record: dict[str, Any] = {"type": "record", "name": name}
    if namespace is not None:
        record["namespace"] = namespace
    return {**record, "fields": fields}


def _type(kind: Any, name: str, namespace: str, path: str) -> Any:
    """The Avro type of an Arrow type. `name` and `namespace` are those of a named type."""
    import pyarrow as pa  # noqa: PLC0415

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return {"type": "string", "logicalType": "uuid"}
        return _type(kind.storage_type, name, namespace, path)
    if types.is_dictionary(kind):
        return _type(kind.value_type, name, namespace, path)
    for is_kind, avro in _SIMPLE:
        if is_of(kind, is_kind):
            return avro
    if types.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": name, "namespace": namespace, "size": kind.byte_width}
    if types.is_decimal(kind):
        # a negative scale is that of a number with zeros at its end
        scale = max(kind.scale, 0)
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.precision + scale - kind.scale,
            "scale": scale,
        }
    if types.is_time32(kind):
        return {"type": "int", "logicalType": "time-millis"}
    if types.is_time64(kind):
        return {"type": "long", "logicalType": "time-micros"}
    if types.is_timestamp(kind):
        local = "local-" if kind.tz is None else ""
        return {"type": "long", "logicalType": f"{local}timestamp-{_TIME_UNITS[kind.unit]}"}
    if types.is_struct(kind):
        return _record(kind, name, namespace, path)
    if types.is_map(kind):
        if not is_string(kind.key_type):
            raise SerializationError(
                f"the column {path!r} has maps whose keys are of type {kind.key_type}; Avro's are strings: cast them"
            )
        return {"type": "map", "values": _item(kind.item_field, name, namespace, path)}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return {"type": "array", "items": _item(kind.value_field, name, namespace, path)}
    raise SerializationError(f"the column {path!r} is of type {kind}, which no Avro type expresses: cast it")


def _item(field: Any, name: str, namespace: str, path: str) -> Any:
    inner = _type(field.type, name, namespace, path)
    return ["null", inner] if field.nullable and inner != "null" else inner


_SIMPLE: tuple[tuple[str, Any], ...] = (
    ("null", "null"),
    ("boolean", "boolean"),
    *((name, "int") for name in ("int8", "int16", "int32", "uint8", "uint16")),
    *((name, "long") for name in ("int64", "uint32", "uint64")),
    *((name, "float") for name in ("float16", "float32")),
    ("float64", "double"),
    *((name, "string") for name in ("string", "large_string", "string_view")),
    *((name, "bytes") for name in ("binary", "large_binary", "binary_view")),
    ("date", {"type": "int", "logicalType": "date"}),
)
