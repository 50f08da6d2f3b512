"""`JsonSchemaSerializer`: JSON that is checked with jsonschema, framed for a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..network.clock import SYSTEM_CLOCK, Clock
from ..network.protocol.errors import KafkaConfigurationError, SerializationError
from .client import SchemaRegistryClient
from .context import SerializationContext
from .schemas import JSON, Schema
from .serializer import COMMON_KEYS, SchemaSerializer, checked_schema

KEYS = {**COMMON_KEYS, "validate": True}


def _compact_json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class JsonSchemaSerializer(SchemaSerializer[Any]):
    """Serializes data as JSON that a JSON Schema describes. Any number of threads share one instance.

    References are resolved among the schema's own, never by a request to the address that they name.
    """

    _type = JSON

    def __init__(
        self,
        schema_str: str | Schema | None,
        schema_registry_client: SchemaRegistryClient,
        to_dict: Callable[[Any, SerializationContext | None], Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        *,
        json_encode: Callable[[Any], str | bytes] = _compact_json,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Parse the schema. Raises KafkaConfigurationError.

        `schema_str`: a schema's text, or a `Schema`, which may have references; None only if the schema comes from the
        registry. `to_dict`: converts an object to what the schema describes. `conf`: see docs/schema-registry.md;
        ``validate=False`` sends data unchecked. `json_encode`: encodes data instead of the json module.
        """
        super().__init__(schema_registry_client, conf, KEYS, clock)
        try:
            import jsonschema  # noqa: PLC0415  (optional)
            import referencing  # noqa: PLC0415  (comes with jsonschema)
            import referencing.exceptions  # noqa: PLC0415
            import referencing.jsonschema  # noqa: PLC0415
            from jsonschema.validators import validator_for  # noqa: PLC0415
        except ImportError as missing:
            raise KafkaConfigurationError(
                "JsonSchemaSerializer needs jsonschema: pip install 'headrace[registry]'"
            ) from missing
        self._jsonschema = jsonschema
        self._referencing = referencing
        self._validator_for = validator_for
        self._to_dict = to_dict
        self._encode = json_encode
        self._validate: bool = self._values["validate"]
        schema = checked_schema(schema_str, JSON, "JsonSchemaSerializer")
        self._schema = schema
        self._record_name: str | None = None
        if schema is not None:
            try:
                raw = json.loads(schema.schema_str)
                validator_for(raw, jsonschema.Draft7Validator).check_schema(raw)
            except (ValueError, jsonschema.SchemaError) as wrong:
                raise KafkaConfigurationError(
                    f"JsonSchemaSerializer: the schema is not valid JSON Schema ({getattr(wrong, 'message', wrong)})"
                ) from wrong
            self._record_name = raw.get("title") if isinstance(raw, dict) else None
            self._schema = Schema(
                schema.schema_str,
                JSON,
                schema.references,
                schema.metadata,
                schema.rule_set,
                name=self._record_name or "",
            )

    def _own(self, obj: Any) -> tuple[Schema | None, str | None]:
        return self._schema, self._record_name

    def _prepared(self, obj: Any, schema: Schema) -> tuple[Any, list[int] | None]:
        if not self._validate:
            return None, None
        specification = self._referencing.jsonschema.DRAFT7
        resources = [
            (name, self._referencing.Resource.from_contents(json.loads(each.schema_str), specification))
            for name, each in self._referenced(schema).items()
        ]
        raw = json.loads(schema.schema_str)
        checker = self._validator_for(raw, self._jsonschema.Draft7Validator)
        return checker(raw, registry=self._referencing.Registry().with_resources(resources)), None

    def _encoded(self, obj: Any, writer: Any, ctx: SerializationContext | None) -> bytes:
        data = obj if self._to_dict is None else self._to_dict(obj, ctx)
        if writer is not None:
            try:
                writer.validate(data)
            except self._jsonschema.ValidationError as wrong:
                # not its message: that contains the data
                path = "/".join(map(str, wrong.absolute_path)) or "the whole record"
                raise SerializationError(
                    f"the data does not fit the JSON Schema {self._record_name or ''} at {path}: it fails "
                    f"{wrong.validator!r}"
                ) from wrong
            except self._referencing.exceptions.Unresolvable as missing:
                raise SerializationError(
                    f"the JSON Schema {self._record_name or ''} refers to {missing.ref!r}, which is not among its "
                    "references"
                ) from missing
        try:
            encoded = self._encode(data)
        except (TypeError, ValueError) as wrong:
            raise SerializationError(f"data of type {type(data).__name__} can't be JSON ({wrong})") from wrong
        return encoded.encode() if isinstance(encoded, str) else encoded
