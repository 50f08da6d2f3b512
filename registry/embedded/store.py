"""What the embedded registry keeps: schemas by id, subjects with their versions, configurations and modes.

Invariants: an id is given to one schema only, and is never given again; a version's number is never given again within
its subject, unless the subject was deleted permanently. `_lock` guards everything, and every public method holds it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .avro_format import AvroFormat
from .errors import RestError, invalid_schema, schema_not_found, subject_not_found, version_not_found
from .formats import Format, Parsed
from .json_format import JsonFormat
from .protobuf_format import ProtobufFormat

#: The compatibility levels.
LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
MODES = ("READWRITE", "READONLY", "IMPORT")
PROTOBUF = "PROTOBUF"
FORMATS: dict[str, Format] = {"AVRO": AvroFormat(), "JSON": JsonFormat(), PROTOBUF: ProtobufFormat()}
#: How deep references may be nested.
_MAX_DEPTH = 50


@dataclass(frozen=True)
class Stored:
    """A schema that has an id."""

    id: int
    guid: str
    type: str
    parsed: Parsed
    references: tuple[tuple[str, str, int], ...]
    metadata: Any
    rule_set: Any

    def body(self, output: str = "") -> dict[str, Any]:
        """The schema in the REST API's form. Raises RestError for an unknown output format."""
        text = self.parsed.text
        if output == "serialized" and self.type == PROTOBUF:
            text = ProtobufFormat().serialized(self.parsed.model)
        elif output:
            raise RestError(422, f"The output format {output!r} is not supported for {self.type}")
        body: dict[str, Any] = {"schema": text, "schemaType": self.type, "guid": self.guid}
        if self.references:
            body["references"] = [
                {"name": name, "subject": subject, "version": version} for name, subject, version in self.references
            ]
        if self.metadata is not None:
            body["metadata"] = self.metadata
        if self.rule_set is not None:
            body["ruleSet"] = self.rule_set
        return body


@dataclass
class Version:
    """A version of a subject."""

    subject: str
    number: int
    schema: Stored
    is_deleted: bool = False

    def body(self, output: str = "") -> dict[str, Any]:
        """The version in the REST API's form."""
        return {"subject": self.subject, "version": self.number, "id": self.schema.id, **self.schema.body(output)}


class SchemaStore:
    """The registry's state. Any thread. The methods raise RestError."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._schemas: dict[int, Stored] = {}
        self._ids: dict[tuple[Any, ...], int] = {}
        self._next_id = 1
        self._subjects: dict[str, list[Version]] = {}
        self._configs: dict[str | None, dict[str, Any]] = {None: {"compatibility": "BACKWARD"}}
        self._modes: dict[str | None, str] = {None: "READWRITE"}

    # --- Schemas ---

    def schema(self, schema_id: int) -> Stored:
        """The schema of an id."""
        with self._lock:
            if schema_id not in self._schemas:
                raise schema_not_found(schema_id)
            return self._schemas[schema_id]

    def schema_by_guid(self, guid: str) -> Stored:
        """The schema of a GUID."""
        with self._lock:
            for stored in self._schemas.values():
                if stored.guid == guid:
                    return stored
            raise schema_not_found(guid)

    def versions_of_schema(self, schema_id: int, subject: str | None, deleted: bool) -> list[Version]:
        """The versions that a schema is."""
        with self._lock:
            self.schema(schema_id)
            return [
                version
                for versions in self._subjects.values()
                for version in versions
                if version.schema.id == schema_id
                and (deleted or not version.is_deleted)
                and subject in (None, version.subject)
            ]

    # --- Subjects ---

    def subjects(self, prefix: str, deleted: bool, deleted_only: bool) -> list[str]:
        """The names of subjects."""
        with self._lock:
            names = []
            for name, versions in self._subjects.items():
                is_deleted = all(version.is_deleted for version in versions)
                if name.startswith(prefix) and (is_deleted if deleted_only else deleted or not is_deleted):
                    names.append(name)
            return sorted(names)

    def versions(self, subject: str, deleted: bool = False, deleted_only: bool = False) -> list[Version]:
        """The versions of a subject."""
        with self._lock:
            found = [
                version
                for version in self._subjects.get(subject, ())
                if (version.is_deleted if deleted_only else deleted or not version.is_deleted)
            ]
            if not found:
                raise subject_not_found(subject)
            return found

    def version(self, subject: str, number: str, deleted: bool = False) -> Version:
        """A version of a subject, by its number, "latest" or "-1"."""
        with self._lock:
            versions = self.versions(subject, deleted)
            if number in ("latest", "-1"):
                return versions[-1]
            if not number.isdigit() or not 0 < int(number) < 2**31:
                raise RestError(
                    42202,
                    f"The specified version '{number}' is not a valid version id. Allowed values are between "
                    '[1, 2^31-1] and the string "latest"',
                )
            for version in versions:
                if version.number == int(number):
                    return version
            raise version_not_found(number)

    def latest_with_metadata(self, subject: str, wanted: Mapping[str, str], deleted: bool) -> Version:
        """The latest version with these properties among its metadata."""
        with self._lock:
            for version in reversed(self.versions(subject, deleted)):
                properties = (version.schema.metadata or {}).get("properties") or {}
                if all(properties.get(name) == value for name, value in wanted.items()):
                    return version
            raise RestError(40401, f"Subject '{subject}' has no version with these metadata.")

    def register(self, subject: str, body: Mapping[str, Any], normalize: bool) -> Version:
        """Register a schema under a subject, or return the version that it is already."""
        with self._lock:
            kind, parsed, references = self._parse(body, normalize or self._normalizes(subject))
            found = self._find(subject, kind, parsed, references, body, deleted=False)
            if found is not None:
                return found
            mode = self._mode(subject)
            if mode == "READONLY":
                raise RestError(42205, f"Subject {subject} is in read-only mode")
            schema_id, number = body.get("id"), body.get("version")
            if mode == "IMPORT":
                if not isinstance(schema_id, int) or schema_id < 1:
                    raise RestError(42205, f"Subject {subject} is in import mode, which needs the id of the schema")
            elif schema_id is not None and schema_id != -1:
                raise RestError(42205, f"Subject {subject} is not in import mode")
            else:
                schema_id = None
                problems = self._incompatibilities(subject, kind, parsed, None)
                if problems:
                    raise RestError(
                        409,
                        "Schema being registered is incompatible with an earlier schema for subject "
                        f'"{subject}", details: {problems}',
                    )
            stored = self._store(kind, parsed, references, body, schema_id)
            versions = self._subjects.setdefault(subject, [])
            if not (mode == "IMPORT" and isinstance(number, int) and number > 0):
                number = max((version.number for version in versions), default=0) + 1
            elif any(version.number == number for version in versions):
                raise RestError(42205, f"Subject {subject} has a version {number} already")
            version = Version(subject, number, stored)
            versions.append(version)
            versions.sort(key=lambda each: each.number)
            return version

    def lookup(self, subject: str, body: Mapping[str, Any], normalize: bool, deleted: bool) -> Version:
        """The version of a subject that a schema is."""
        with self._lock:
            self.versions(subject, deleted)
            kind, parsed, references = self._parse(body, normalize or self._normalizes(subject))
            found = self._find(subject, kind, parsed, references, body, deleted)
            if found is None:
                raise schema_not_found()
            return found

    def delete_subject(self, subject: str, permanent: bool) -> list[int]:
        """Delete a subject and return its versions' numbers."""
        with self._lock:
            versions = self.versions(subject, deleted=True)
            alive = [version for version in versions if not version.is_deleted]
            self._check_writable(subject)
            if permanent:
                if alive:
                    raise RestError(
                        40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
                    )
                del self._subjects[subject]
                self._configs.pop(subject, None)
                self._modes.pop(subject, None)
                return [version.number for version in versions]
            if not alive:
                raise RestError(
                    40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
                )
            for version in alive:
                self._check_unreferenced(version)
            for version in alive:
                version.is_deleted = True
            return [version.number for version in alive]

    def delete_version(self, subject: str, number: str, permanent: bool) -> int:
        """Delete a version and return its number."""
        with self._lock:
            version = self.version(subject, number, deleted=True)
            self._check_writable(subject)
            if permanent:
                if not version.is_deleted:
                    raise RestError(
                        40407,
                        f"Subject '{subject}' Version {version.number} was not deleted first before being permanently "
                        "deleted",
                    )
                self._subjects[subject].remove(version)
                if not self._subjects[subject]:
                    del self._subjects[subject]
                return version.number
            if version.is_deleted:
                raise RestError(
                    40406,
                    f"Subject '{subject}' Version {version.number} was soft deleted. Set permanent=true to delete "
                    "permanently",
                )
            self._check_unreferenced(version)
            version.is_deleted = True
            return version.number

    def referenced_by(self, subject: str, number: str) -> list[int]:
        """The ids of the schemas that refer to a version."""
        with self._lock:
            target = self.version(subject, number, deleted=True)
            return sorted(
                {
                    version.schema.id
                    for versions in self._subjects.values()
                    for version in versions
                    if not version.is_deleted
                    and any(each[1:] == (subject, target.number) for each in version.schema.references)
                }
            )

    # --- Compatibility ---

    def test_compatibility(
        self, subject: str, body: Mapping[str, Any], number: str | None, normalize: bool
    ) -> list[str]:
        """Why a schema is not compatible with a version of a subject, or with those that its level names."""
        with self._lock:
            kind, parsed, _ = self._parse(body, normalize or self._normalizes(subject))
            against = None if number is None else [self.version(subject, number)]
            return self._incompatibilities(subject, kind, parsed, against)

    def _incompatibilities(self, subject: str, kind: str, parsed: Parsed, against: list[Version] | None) -> list[str]:
        """Why a schema is not compatible with versions; None stands for those that the level names."""
        level = self._effective(subject, "compatibility")
        if level == "NONE":
            return []
        if against is None:
            alive = [version for version in self._subjects.get(subject, ()) if not version.is_deleted]
            against = alive if level.endswith("_TRANSITIVE") else alive[-1:]
        problems: list[str] = []
        for version in against:
            before = version.schema
            if before.type != kind:
                problems.append(f"version {version.number} is of type {before.type}, not {kind}")
                continue
            form = FORMATS[kind]
            if level.startswith(("BACKWARD", "FULL")):
                problems += form.problems(parsed.model, before.parsed.model)
            if level.startswith(("FORWARD", "FULL")):
                problems += form.problems(before.parsed.model, parsed.model)
        return problems

    # --- Configurations and modes ---

    def config(self, subject: str | None, default_to_global: bool) -> dict[str, Any]:
        """The configuration of a subject, or the global one (None)."""
        with self._lock:
            if subject in self._configs:
                return dict(self._configs[subject])
            if default_to_global:
                return dict(self._configs[None])
            raise RestError(40408, f"Subject '{subject}' does not have subject-level compatibility configured")

    def set_config(self, subject: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change a configuration and return the changes."""
        with self._lock:
            for key, value in changes.items():
                if key == "compatibility":
                    if str(value).upper() not in LEVELS:
                        raise RestError(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
                elif key != "normalize" or not isinstance(value, bool):
                    raise RestError(
                        422,
                        f"The embedded schema registry has no configuration {key}={value!r}, only compatibility "
                        "and normalize",
                    )
            cleaned = {key: value.upper() if isinstance(value, str) else value for key, value in changes.items()}
            self._configs.setdefault(subject, {}).update(cleaned)
            return cleaned

    def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Remove a configuration and return it."""
        with self._lock:
            removed = self.config(subject, default_to_global=False)
            if subject is None:
                self._configs[None] = {"compatibility": "BACKWARD"}
            else:
                del self._configs[subject]
            return removed

    def mode(self, subject: str | None, default_to_global: bool) -> str:
        """The mode of a subject, or the global one (None)."""
        with self._lock:
            if subject not in self._modes and not default_to_global:
                raise RestError(40409, f"Subject '{subject}' does not have subject-level mode configured")
            return self._mode(subject)

    def set_mode(self, subject: str | None, mode: str, force: bool) -> str:
        """Set a mode and return it."""
        with self._lock:
            if mode not in MODES:
                raise RestError(42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
            in_use = self._subjects if subject is None else self._subjects.get(subject)
            if mode == "IMPORT" and self._mode(subject) != "IMPORT" and in_use and not force:
                raise RestError(42205, "Cannot import since found existing subjects")
            self._modes[subject] = mode
            return mode

    def delete_mode(self, subject: str) -> str:
        """Remove the mode of a subject and return it."""
        with self._lock:
            removed = self.mode(subject, default_to_global=False)
            del self._modes[subject]
            return removed

    def _mode(self, subject: str | None) -> str:
        return self._modes.get(subject, self._modes[None])

    def _effective(self, subject: str, key: str) -> Any:
        return self._configs.get(subject, {}).get(key, self._configs[None].get(key))

    def _normalizes(self, subject: str) -> bool:
        return bool(self._effective(subject, "normalize"))

    def _check_writable(self, subject: str) -> None:
        if self._mode(subject) == "READONLY":
            raise RestError(42205, f"Subject {subject} is in read-only mode")

    def _check_unreferenced(self, version: Version) -> None:
        if self.referenced_by(version.subject, str(version.number)):
            raise RestError(
                42206, f"One or more references exist to the schema {version.subject} version {version.number}"
            )

    # --- Parsing and identity ---

    def _parse(self, body: Mapping[str, Any], normalize: bool) -> tuple[str, Parsed, tuple[tuple[str, str, int], ...]]:
        kind, text = body.get("schemaType") or "AVRO", body.get("schema")
        if kind not in FORMATS:
            raise invalid_schema(f"the type {kind!r} is not one of {', '.join(FORMATS)}")
        if not isinstance(text, str) or not text:
            raise invalid_schema("the schema is empty")
        references = _references(body)
        texts: dict[str, Any] = {}
        self._collect(references, texts, 0)
        if normalize:
            references = tuple(sorted(references))
        return kind, FORMATS[kind].parse(text, texts, normalize), references

    def _collect(self, references: tuple[tuple[str, str, int], ...], texts: dict[str, Any], depth: int) -> None:
        """Collect the texts of references, the innermost first."""
        if depth > _MAX_DEPTH:
            raise invalid_schema(f"its references are nested more than {_MAX_DEPTH} deep")
        for name, subject, number in references:
            if name in texts:
                continue
            try:
                version = self.version(subject, "latest" if number == -1 else str(number), deleted=True)
            except RestError as missing:
                raise invalid_schema(
                    f"No schema reference found for subject '{subject}' and version {number}: {missing.message}"
                ) from missing
            self._collect(version.schema.references, texts, depth + 1)
            texts[name] = version.schema.parsed.text

    def _find(
        self,
        subject: str,
        kind: str,
        parsed: Parsed,
        references: tuple[tuple[str, str, int], ...],
        body: Mapping[str, Any],
        deleted: bool,
    ) -> Version | None:
        identity = _identity(kind, parsed, references, body.get("metadata"), body.get("ruleSet"))
        for version in reversed(self._subjects.get(subject, ())):
            schema = version.schema
            if (deleted or not version.is_deleted) and identity == _identity(
                schema.type, schema.parsed, schema.references, schema.metadata, schema.rule_set
            ):
                return version
        return None

    def _store(
        self,
        kind: str,
        parsed: Parsed,
        references: tuple[tuple[str, str, int], ...],
        body: Mapping[str, Any],
        wanted_id: int | None,
    ) -> Stored:
        identity = _identity(kind, parsed, references, body.get("metadata"), body.get("ruleSet"))
        known = self._ids.get(identity)
        if wanted_id is not None:
            before = self._schemas.get(wanted_id)
            if before is not None and known != wanted_id:
                raise RestError(42205, f"Overwrite new schema with id {wanted_id} is not permitted.")
            known = wanted_id if before is not None else None
        if known is not None:
            return self._schemas[known]
        schema_id = wanted_id if wanted_id is not None else self._next_id
        self._next_id = max(self._next_id, schema_id + 1)
        digest = hashlib.md5("\n".join(map(str, identity)).encode(), usedforsecurity=False).digest()
        stored = Stored(
            schema_id, str(uuid.UUID(bytes=digest)), kind, parsed, references, body.get("metadata"), body.get("ruleSet")
        )
        self._schemas[schema_id] = stored
        self._ids.setdefault(identity, schema_id)
        return stored


def _references(body: Mapping[str, Any]) -> tuple[tuple[str, str, int], ...]:
    try:
        return tuple(
            (str(each["name"]), str(each["subject"]), int(each["version"])) for each in body.get("references") or ()
        )
    except (KeyError, TypeError, ValueError) as wrong:
        raise invalid_schema(f"a reference has to have name, subject and version ({wrong!r})") from wrong


def _identity(
    kind: str, parsed: Parsed, references: tuple[tuple[str, str, int], ...], metadata: Any, rule_set: Any
) -> tuple[Any, ...]:
    others = json.dumps([metadata, rule_set], sort_keys=True)
    return kind, parsed.identity, references, others
