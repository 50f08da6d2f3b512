"""Avro schemas: parsing with fastavro, and Avro's rules of schema resolution.

Source: the Avro specification ("Schema Resolution") and org.apache.avro.SchemaCompatibility.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import RestError, invalid_schema
from .formats import Parsed, compact, load_json

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
#: Writer -> the readers to which its values can be promoted.
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class AvroModel:
    """A schema and the named types in it. The types have full names."""

    def __init__(self, root: Any, named: dict[str, Any]) -> None:
        self.root = root
        self.named = named

    def resolved(self, schema: Any) -> Any:
        """The definition of a type that is given by its name; other schemas are returned unchanged."""
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            return self.named[schema]
        return schema


class AvroFormat:
    """Avro. Implements Format."""

    def parse(self, text: str, references: Mapping[str, Any], normalize: bool) -> Parsed:
        import fastavro  # noqa: PLC0415  (optional)

        # also a bare name of a primitive, without quotes
        raw = text if text in _PRIMITIVES else load_json(text)
        named: dict[str, Any] = {}
        try:
            for each in references.values():
                fastavro.parse_schema(json.loads(each), named_schemas=named)
            root = fastavro.parse_schema(raw, named_schemas=named)
        except RestError:
            raise
        except Exception as wrong:
            # fastavro raises what it comes across: KeyError, TypeError, ...
            raise invalid_schema(f"it is not Avro ({type(wrong).__name__}: {wrong})") from wrong
        stored = compact(raw, sort_keys=normalize)
        return Parsed(stored, stored, AvroModel(root, named))

    def problems(self, reader: AvroModel, writer: AvroModel) -> list[str]:
        found: list[str] = []
        _Resolution(reader, writer).check(reader.root, writer.root, "", found)
        return found


class _Resolution:
    """One comparison. Pairs of named types that are being compared are taken for compatible, which ends recursion."""

    def __init__(self, reader: AvroModel, writer: AvroModel) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs: set[tuple[str, str]] = set()

    def check(self, reader: Any, writer: Any, path: str, found: list[str]) -> None:
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        where = path or "/"
        if isinstance(writer, list):
            for branch in writer:
                self.check(reader, branch, path, found)
            return
        if isinstance(reader, list):
            if not any(self._fits(branch, writer) for branch in reader):
                found.append(f"MISSING_UNION_BRANCH at {where}: the reader's union has nothing for {_kind(writer)}")
            return
        mine, other = _kind(reader), _kind(writer)
        if mine != other:
            if mine not in _PROMOTIONS.get(other, ()):
                found.append(f"TYPE_MISMATCH at {where}: reader type {mine} not compatible with writer type {other}")
            return
        if mine in ("record", "error", "enum", "fixed") and not _same_name(reader, writer):
            found.append(f"NAME_MISMATCH at {where}: expected {writer['name']}, found {reader['name']}")
            return
        if mine in ("record", "error"):
            self._check_records(reader, writer, path, found)
        elif mine == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if missing and "default" not in reader:
                found.append(f"MISSING_ENUM_SYMBOLS at {where}: {', '.join(missing)}")
        elif mine == "fixed":
            if reader["size"] != writer["size"]:
                found.append(f"FIXED_SIZE_MISMATCH at {where}: expected {writer['size']}, found {reader['size']}")
        elif mine == "array":
            self.check(reader["items"], writer["items"], f"{path}/items", found)
        elif mine == "map":
            self.check(reader["values"], writer["values"], f"{path}/values", found)

    def _check_records(self, reader: Any, writer: Any, path: str, found: list[str]) -> None:
        pair = (reader["name"], writer["name"])
        if pair in self._pairs:
            return
        self._pairs.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            source = next((written[name] for name in names if name in written), None)
            where = f"{path}/fields/{field['name']}"
            if source is not None:
                self.check(field["type"], source["type"], f"{where}/type", found)
            elif "default" not in field:
                found.append(f"READER_FIELD_MISSING_DEFAULT_VALUE at {where}: {field['name']}")

    def _fits(self, reader: Any, writer: Any) -> bool:
        tried = _Resolution(self._reader, self._writer)
        tried._pairs = set(self._pairs)
        found: list[str] = []
        tried.check(reader, writer, "", found)
        return not found


def _kind(schema: Any) -> str:
    if isinstance(schema, dict):
        return schema["type"] if isinstance(schema["type"], str) else _kind(schema["type"])
    return "union" if isinstance(schema, list) else schema


def _same_name(reader: Any, writer: Any) -> bool:
    """Whether two types have the same name without the namespace, or the reader's aliases name the writer's."""
    names = [reader["name"], *reader.get("aliases", ())]
    return writer["name"].rpartition(".")[2] in [name.rpartition(".")[2] for name in names]
