"""Checks on the driver, before any task runs, that a DataFrame can be written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...network.protocol.errors import KafkaConfigurationError, SerializationError
from .formats import doubled_field
from .options import SinkOptions
from .writer import check_doubled, missing_value, no_topic

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_BYTES = ("string", "binary", "void")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "void")
_HEADERS = (
    "array<struct<key:string,value:binary>>",
    "array<struct<key:string,value:string>>",
    "map<string,binary>",
    "map<string,string>",
    # an empty array() and an empty map()
    "array<void>",
    "map<void,void>",
    "void",
)
# Types whose values Spark does not pass to Python, or only in an internal form.
_INEXPRESSIBLE = ("interval", "variant", "geometry", "geography")
# Types that fail a task as soon as it reads a batch that has them, even in an unused column.
_NOT_FOR_PYTHON = ("interval month", "interval year")

_ALLOWED = {
    "headers": (_HEADERS, "an array of structs of key (string) and value (binary)"),
    "topic": (("string",), "a string"),
    "partition": (_NUMBERS, "a whole number"),
    "timestamp": ((*_NUMBERS, "timestamp"), "a timestamp with a time zone, or milliseconds as a whole number: cast it"),
}


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Raises KafkaConfigurationError naming the column that is missing, duplicated or of the wrong type."""
    names = [field.name for field in schema.fields]
    if "value" not in names:
        raise KafkaConfigurationError(str(missing_value(names)))
    if options.topic is None and "topic" not in names:
        raise KafkaConfigurationError(str(no_topic()))
    try:
        check_doubled(names)
    except SerializationError as doubled:
        raise KafkaConfigurationError(str(doubled)) from None
    unused = {"headers": not options.include_headers, "topic": options.topic is not None}
    for field in schema.fields:
        if unused.get(field.name):
            continue
        kind = _kind(_stored(field.dataType).simpleString())
        if field.name in _ALLOWED:
            allowed, words = _ALLOWED[field.name]
            if kind not in allowed:
                raise KafkaConfigurationError(f"the column {field.name!r} is of type {kind}; it has to be {words}")
        elif field.name in ("value", "key"):
            form = getattr(options, f"{field.name}_format")
            _check_fields(field)
            for leaf in _leaves(field.dataType):
                if leaf.startswith(_INEXPRESSIBLE):
                    raise KafkaConfigurationError(
                        f"the column {field.name!r} has values of type {leaf}, which no format can express: cast them "
                        f"to strings or numbers"
                    )
            for key in _map_keys(field.dataType):
                if _is_nested(key):
                    raise KafkaConfigurationError(
                        f"the column {field.name!r} has maps whose keys are of type {key}, which no format can "
                        f"express: cast them to strings"
                    )
            nested = _is_nested(kind)
            if options.registry is not None and field.name in options.registry.formats:
                options.registry.check_column(field.name, field.dataType)
            if (form == "raw" and kind not in _BYTES) or (form == "string" and nested):
                raise KafkaConfigurationError(
                    f"the column {field.name!r} is of type {kind}, which format {form} can't express: cast it, or "
                    f"choose {field.name}_format {'json or msgpack' if nested else 'string, json or msgpack'}"
                )


def check_transport(schema: StructType) -> None:
    """Raises KafkaConfigurationError for any column, used or not, that Spark can't pass to Python."""
    for field in schema.fields:
        _check_fields(field)
        for leaf in _leaves(field.dataType):
            if leaf.startswith(_NOT_FOR_PYTHON):
                raise KafkaConfigurationError(
                    f"the column {field.name!r} has values of type {leaf}, which Spark can't pass to Python: drop or "
                    f"cast it"
                )


def _check_fields(field: StructField) -> None:
    """Raises KafkaConfigurationError for a struct with two fields of the same name, which Arrow rejects."""
    for kind in _types(field.dataType):
        names: list[str] = getattr(kind, "names", [])
        for name in names:
            if names.count(name) > 1:
                raise KafkaConfigurationError(f"the column {field.name!r}: {doubled_field(name)}")


def _leaves(kind: DataType) -> Iterator[str]:
    """The names of the types in a type that contain no others."""
    return (each.simpleString() for each in _types(kind) if not _inner(each))


def _map_keys(kind: DataType) -> Iterator[str]:
    """The names of the key types of all maps in a type."""
    return (_stored(each.keyType).simpleString() for each in _types(kind) if hasattr(each, "keyType"))


def _types(kind: DataType) -> Iterator[Any]:
    """A type and all types nested in it, as Spark stores them."""
    kind = _stored(kind)
    yield kind
    for each in _inner(kind):
        yield from _types(each)


def _inner(kind: Any) -> list[DataType]:
    fields = [field.dataType for field in getattr(kind, "fields", ())]
    return fields + [getattr(kind, name) for name in ("elementType", "keyType", "valueType") if hasattr(kind, name)]


def _stored(kind: Any) -> Any:
    """The type in which Spark stores a user-defined type. Other types are unchanged."""
    return kind.sqlType() if hasattr(kind, "sqlType") else kind


def _is_nested(kind: str) -> bool:
    return kind.startswith(("struct", "map", "array"))


def _kind(text: str) -> str:
    return "string" if text.startswith(("varchar", "char", "string")) else text
