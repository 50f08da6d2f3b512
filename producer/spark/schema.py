"""Whether a DataFrame can be written, told on the driver before any task runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network.protocol.errors import KafkaConfigurationError
from .options import SinkOptions
from .writer import COLUMNS, missing_value, no_topic

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BYTES = ("string", "binary", "void")
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "void")
_HEADERS = (
    "array<struct<key:string,value:binary>>",
    "array<struct<key:string,value:string>>",
    "map<string,binary>",
    "map<string,string>",
    "void",
)

_ALLOWED = {
    "headers": (_HEADERS, "an array of structs of key (string) and value (binary)"),
    "topic": (("string",), "a string"),
    "partition": (_NUMBERS, "a whole number"),
    "timestamp": ((*_NUMBERS, "timestamp", "timestamp_ntz"), "a timestamp, or milliseconds as a whole number"),
}


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Raises KafkaConfigurationError naming the column that is missing, doubled or of the wrong type."""
    names = [field.name for field in schema.fields]
    if "value" not in names:
        raise KafkaConfigurationError(str(missing_value(names)))
    if options.topic is None and "topic" not in names:
        raise KafkaConfigurationError(str(no_topic()))
    for name in COLUMNS:
        if names.count(name) > 1:
            raise KafkaConfigurationError(f"there are {names.count(name)} columns {name!r}; keep one")
    for field in schema.fields:
        kind = _kind(field.dataType.simpleString())
        if field.name in _ALLOWED:
            allowed, words = _ALLOWED[field.name]
            if kind not in allowed:
                raise KafkaConfigurationError(f"the column {field.name!r} is of type {kind}; it has to be {words}")
        elif field.name in ("value", "key"):
            form = getattr(options, f"{field.name}_format")
            nested = kind.startswith(("struct", "map", "array"))
            if (form == "raw" and kind not in _BYTES) or (form == "string" and nested):
                raise KafkaConfigurationError(
                    f"the column {field.name!r} is of type {kind}, which format {form} can't express: cast it, or "
                    f"choose {field.name}_format {'json or msgpack' if nested else 'string, json or msgpack'}"
                )


def _kind(text: str) -> str:
    return "string" if text.startswith(("varchar", "char", "string")) else text
