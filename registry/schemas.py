"""Schemas as the registry's REST API knows them, with the names that confluent-kafka gives them. All are immutable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"


@dataclass(frozen=True)
class SchemaReference:
    """The use of a version of another subject under a name: an Avro type, a JSON Schema URI or a .proto import."""

    name: str
    subject: str
    version: int

    def to_dict(self) -> dict[str, Any]:
        """The reference in the REST API's form."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


class Schema:
    """A schema's text, its type (AVRO, JSON or PROTOBUF) and the schemas that it refers to.

    `metadata` and `rule_set` are mappings in the REST API's form, sent and returned unchanged; the serializers execute
    no rules. `name` is for messages only.
    """

    __slots__ = ("_hash", "metadata", "name", "references", "rule_set", "schema_str", "schema_type")

    def __init__(
        self,
        schema_str: str,
        schema_type: str = AVRO,
        references: Iterable[SchemaReference] | None = None,
        metadata: Mapping[str, Any] | None = None,
        rule_set: Mapping[str, Any] | None = None,
        *,
        name: str = "",
    ) -> None:
        self.schema_str = schema_str
        self.schema_type = schema_type
        self.references = tuple(references or ())
        self.metadata = metadata
        self.rule_set = rule_set
        self.name = name
        self._hash = hash((schema_str, schema_type, self.references))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Schema)
            and self._hash == other._hash
            and (self.schema_str, self.schema_type, self.references, self.metadata, self.rule_set)
            == (other.schema_str, other.schema_type, other.references, other.metadata, other.rule_set)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<Schema {self.label}>"

    @property
    def label(self) -> str:
        """A few words by which a message names the schema."""
        text = self.name or (self.schema_str if len(self.schema_str) <= 80 else f"{self.schema_str[:77]}...")
        return f"{self.schema_type} {text}"

    def to_dict(self) -> dict[str, Any]:
        """The schema in the REST API's form."""
        body: dict[str, Any] = {"schema": self.schema_str, "schemaType": self.schema_type}
        if self.references:
            body["references"] = [reference.to_dict() for reference in self.references]
        if self.metadata is not None:
            body["metadata"] = dict(self.metadata)
        if self.rule_set is not None:
            body["ruleSet"] = dict(self.rule_set)
        return body

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Schema:
        """A schema from the REST API's form. Raises KeyError or TypeError if a part is missing or has another type."""
        text = body["schema"]
        if not isinstance(text, str):
            raise TypeError(f"schema is of type {type(text).__name__}, not str")
        references = [
            SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in body.get("references") or ()
        ]
        return cls(text, body.get("schemaType") or AVRO, references, body.get("metadata"), body.get("ruleSet"))


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema with its id and GUID, and with its version of a subject where the request named one."""

    schema_id: int
    schema: Schema
    subject: str | None = None
    version: int | None = None
    guid: str | None = None
