"""JSON Schemas: parsing with jsonschema, and a part of Confluent's compatibility rules.

What is compared: types, properties, required properties, additionalProperties, items, enum and const, limits of
numbers, lengths and counts, and local references (``$ref`` to ``#...`` or to a reference of the schema). An added or
changed keyword that constrains values in another way (`anyOf`, `pattern`, `not`, ...) is reported as a problem, which
is stricter than Confluent's registry. A removed one is not, which is less strict for the few that widen what the rest
admits.

Source: io.confluent.kafka.schemaregistry.json.diff.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import invalid_schema
from .formats import Parsed, compact, load_json

_ALL_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
#: Keywords that describe and don't constrain.
_NOTES = frozenset(
    (
        "$schema",
        "$id",
        "id",
        "$anchor",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "contentMediaType",
        "contentEncoding",
    )
)
#: Keywords that `_Comparison` compares by their meaning.
_COMPARED = frozenset(("type", "properties", "required", "additionalProperties", "items", "enum", "const", "$ref"))
#: A higher value admits less.
_AT_LEAST = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"))
#: A lower value admits less.
_AT_MOST = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"))


class JsonModel:
    """A schema and the ones that it refers to."""

    def __init__(self, root: Any, references: Mapping[str, Any]) -> None:
        self.root = root
        self.references = references

    def resolved(self, schema: Any) -> Any:
        """The target of a reference that can be resolved without a request; other schemas are returned unchanged."""
        for _ in range(16):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            document, _, pointer = schema["$ref"].partition("#")
            target = self.references.get(document) if document else self.root
            for step in pointer.split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                target = target.get(name) if isinstance(target, dict) else None
            if target is None:
                return schema
            schema = target
        return schema


class JsonFormat:
    """JSON Schema. Implements Format."""

    def parse(self, text: str, references: Mapping[str, Any], normalize: bool) -> Parsed:
        import jsonschema  # noqa: PLC0415  (optional)
        from jsonschema.validators import validator_for  # noqa: PLC0415

        raw = load_json(text)
        try:
            validator_for(raw, jsonschema.Draft7Validator).check_schema(raw)
        except jsonschema.SchemaError as wrong:
            raise invalid_schema(f"it is not JSON Schema ({wrong.message})") from wrong
        stored = compact(raw, sort_keys=normalize)
        return Parsed(stored, stored, JsonModel(raw, {name: json.loads(each) for name, each in references.items()}))

    def problems(self, reader: JsonModel, writer: JsonModel) -> list[str]:
        found: list[str] = []
        _Comparison(reader, writer).check(reader.root, writer.root, "#", found)
        return found


class _Comparison:
    """One comparison. Pairs of schemas that are being compared are taken for compatible, which ends recursion."""

    def __init__(self, reader: JsonModel, writer: JsonModel) -> None:
        self._reader = reader
        self._writer = writer
        self._pairs: set[tuple[int, int]] = set()

    def check(self, reader: Any, writer: Any, path: str, found: list[str]) -> None:
        reader, writer = self._reader.resolved(reader), self._writer.resolved(writer)
        if reader is True or reader == {} or writer is False:
            return
        if reader is False:
            found.append(f"SCHEMA_REMOVED at {path}: the reader admits no value")
            return
        writer = {} if writer is True else writer
        if (id(reader), id(writer)) in self._pairs:
            return
        self._pairs.add((id(reader), id(writer)))
        wider = [kind for kind in _types(writer) if kind not in _types(reader)]
        if "number" in _types(reader):
            wider = [kind for kind in wider if kind != "integer"]
        if wider:
            found.append(f"TYPE_NARROWED at {path}: the reader lacks {', '.join(wider)}")
        for key, value in reader.items():
            before = writer.get(key)
            if key in _AT_LEAST or key in _AT_MOST:
                is_wide = isinstance(before, (int, float)) and (
                    before >= value if key in _AT_LEAST else before <= value
                )
                if not is_wide:
                    found.append(f"{key} at {path}: {value} admits less than {before}")
            elif key not in _NOTES and key not in _COMPARED and before != value:
                found.append(f"{key} at {path}: it was added or changed")
        self._check_values(reader, writer, path, found)
        self._check_objects(reader, writer, path, found)
        if "items" in reader:
            items, before = reader["items"], writer.get("items", True)
            if isinstance(items, list) or isinstance(before, list):
                if items != before:
                    found.append(f"items at {path}: the tuple changed")
            else:
                self.check(items, before, f"{path}/items", found)

    def _check_values(self, reader: Any, writer: Any, path: str, found: list[str]) -> None:
        allowed, written = _values(reader), _values(writer)
        if allowed is not None and (written is None or any(value not in allowed for value in written)):
            found.append(f"ENUM_ARRAY_NARROWED at {path}: the reader lacks values of the writer")

    def _check_objects(self, reader: Any, writer: Any, path: str, found: list[str]) -> None:
        mine, others = reader.get("properties", {}), writer.get("properties", {})
        rest, rest_before = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        for name in reader.get("required", ()):
            has_default = isinstance(mine.get(name), dict) and "default" in mine[name]
            if name not in writer.get("required", ()) and not has_default:
                found.append(f"REQUIRED_PROPERTY_ADDED at {path}/properties/{name}: it has no default")
        for name, schema in mine.items():
            # a property that the writer's schema doesn't mention may still be in its data, unless that is closed
            self.check(schema, others.get(name, rest_before), f"{path}/properties/{name}", found)
        for name, schema in others.items():
            if name not in mine:
                self.check(rest, schema, f"{path}/properties/{name}", found)
        if "additionalProperties" in reader:
            self.check(rest, rest_before, f"{path}/additionalProperties", found)


def _types(schema: Any) -> tuple[str, ...]:
    kinds = schema.get("type", _ALL_TYPES)
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _values(schema: Any) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")
