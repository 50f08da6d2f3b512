"""`AvroSerializer`: Avro with fastavro, framed for a schema registry."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from ..network.clock import SYSTEM_CLOCK, Clock
from ..network.protocol.errors import KafkaConfigurationError, SerializationError
from .client import SchemaRegistryClient
from .context import SerializationContext
from .schemas import AVRO, Schema
from .serializer import COMMON_KEYS, SchemaSerializer, checked_schema

KEYS = {**COMMON_KEYS, "validate.strict": False, "validate.strict.allow.default": False}


class AvroSerializer(SchemaSerializer[Any]):
    """Serializes dicts, lists, text and numbers by an Avro schema. Any number of threads share one instance.

    `KafkaProducer.send_arrow` encodes whole columns by it, unless it has `to_dict`.
    """

    _type = AVRO
    column_form = "avro"

    def __init__(
        self,
        schema_registry_client: SchemaRegistryClient,
        schema_str: str | Schema | None = None,
        to_dict: Callable[[Any, SerializationContext | None], Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Parse the schema, unless it has references. Raises KafkaConfigurationError.

        `schema_str`: a schema's text, or a `Schema`, which may have references; None if the schema comes from the
        registry (``use.latest.version``, ``use.schema.id``), or is derived from Arrow columns. `to_dict`: converts an
        object to what the schema describes. `conf`: see docs/schema-registry.md.
        """
        super().__init__(schema_registry_client, conf, KEYS, clock)
        try:
            import fastavro  # noqa: PLC0415  (optional)
            import fastavro.repository  # noqa: PLC0415
        except ImportError as missing:
            raise KafkaConfigurationError(
                "AvroSerializer needs fastavro: pip install 'headrace[registry]'"
            ) from missing
        self._fastavro = fastavro
        self._to_dict = to_dict
        self._strict: bool = self._values["validate.strict"]
        self._allow_default: bool = self._values["validate.strict.allow.default"]
        schema = checked_schema(schema_str, AVRO, "AvroSerializer")
        self._schema = schema
        self._record_name: str | None = None
        if schema is not None:
            text = schema.schema_str
            # Java's and confluent-kafka's clients register a primitive in this form, too
            if text[0] not in "{[":
                text = f'{{"type":{text if text[0] == chr(34) else json.dumps(text)}}}'
            try:
                raw = json.loads(text)
                if not schema.references:
                    fastavro.parse_schema(json.loads(text))
            except Exception as wrong:
                raise KafkaConfigurationError(
                    f"AvroSerializer: the schema is not valid Avro ({type(wrong).__name__}: {wrong})"
                ) from wrong
            self._record_name = full_name(raw)
            self._schema = Schema(
                text, AVRO, schema.references, schema.metadata, schema.rule_set, name=self._record_name or ""
            )

    @property
    def strictness(self) -> str:
        """Of the fields of columns: "all" with ``validate.strict``, else "defaults" with
        ``validate.strict.allow.default``, else empty.
        """
        return "all" if self._strict else "defaults" if self._allow_default else ""

    @property
    def own_schema(self) -> Any:
        """The parsed form of the schema to serialize by, if it is known without a request; else None."""
        if self._schema is None or self._schema.references or self._latest or self._use_id is not None:
            return None
        return self._fastavro.parse_schema(json.loads(self._schema.schema_str))

    @property
    def derives_schema(self) -> bool:
        """Whether columns are serialized by a schema that is derived from their types."""
        return self._schema is None and not self._latest and self._use_id is None

    @property
    def takes_columns(self) -> bool:
        """Whether whole columns may be serialized without a call per value: not through `to_dict`."""
        return super().takes_columns and self._to_dict is None

    def _own(self, obj: Any) -> tuple[Schema | None, str | None]:
        return self._schema, self._record_name

    def _of_columns(self, derive: Callable[[], Schema]) -> tuple[Schema | None, str | None, Schema | None]:
        if not self.derives_schema:
            return self._schema, self._record_name, None
        derived = derive()
        return derived, derived.name, derived

    def _key(self, subject: str, obj: Any) -> str:
        # the columns of a subject may differ from call to call, and their derived schemas with them
        return f"{subject}\n{obj.schema_str}" if isinstance(obj, Schema) else subject

    def _prepared(self, obj: Any, schema: Schema) -> tuple[Any, list[int] | None]:
        try:
            named = {}
            for name, each in self._referenced(schema).items():
                raw = json.loads(each.schema_str)
                named[name] = named[full_name(raw) or name] = raw
            return parsed(self._fastavro, json.loads(schema.schema_str), named), None
        except SerializationError:
            raise
        except Exception as wrong:
            raise SerializationError(
                f"the schema {schema.label} is not valid Avro ({type(wrong).__name__}: {wrong})"
            ) from wrong

    def _encoded(self, obj: Any, writer: Any, ctx: SerializationContext | None) -> bytes:
        data = obj if self._to_dict is None else self._to_dict(obj, ctx)
        if isinstance(writer, dict) and writer.get("type") == "bytes" and "logicalType" not in writer:
            # bytes alone have no length before them: their end is the record's
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise SerializationError(f"{type(data).__name__} does not fit the Avro schema bytes")
            return bytes(data)
        output = io.BytesIO()
        try:
            self._fastavro.schemaless_writer(
                output, writer, data, strict=self._strict, strict_allow_default=self._allow_default
            )
        except Exception as wrong:
            raise SerializationError(
                f"data of type {type(data).__name__} does not fit the Avro schema {self._record_name or ''}"
                f" ({type(wrong).__name__}: {wrong})"
            ) from wrong
        return output.getvalue()


def full_name(raw: Any) -> str | None:
    """The full name of a named type, the type of a primitive; None for a union."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, dict):
        return None
    name = raw.get("name")
    if name is None:
        return raw["type"] if isinstance(raw.get("type"), str) else None
    return f"{raw['namespace']}.{name}" if raw.get("namespace") and "." not in name else name


def parsed(fastavro: Any, raw: Any, named: dict[str, Any]) -> Any:
    """The form of a schema that fastavro writes with, with the schemas that it refers to in place of their names."""
    if not named:
        return fastavro.parse_schema(raw)

    class Repository(fastavro.repository.AbstractSchemaRepository):
        def load(self, name: str) -> Any:
            return json.loads(json.dumps(raw if name == "$root" else named[name]))

    return fastavro.schema.load_schema("$root", repo=Repository())
