"""The REST API: from a method, a path, a query and a body to what the store does.

Source: Confluent's Schema Registry API reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote

from .errors import RestError
from .store import FORMATS, SchemaStore


class Request(NamedTuple):
    """A request whose path has been taken apart."""

    query: Mapping[str, list[str]]
    body: Any

    def text(self, name: str, default: str = "") -> str:
        """The first value of a parameter."""
        return self.query.get(name, [default])[0]

    def flag(self, name: str) -> bool:
        """Whether a parameter is true. Python's clients write True, too."""
        return self.text(name).lower() == "true"

    def page(self, values: list[Any]) -> list[Any]:
        """The part of a list that `offset` and `limit` ask for."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        return values[max(offset, 0) :] if limit < 0 else values[max(offset, 0) : max(offset, 0) + limit]

    def schema(self) -> Mapping[str, Any]:
        """The body, which has to be a JSON object."""
        if not isinstance(self.body, dict):
            raise RestError(422, "The request needs a body that is a JSON object")
        return self.body

    def _number(self, name: str, default: int) -> int:
        try:
            return int(self.text(name, str(default)))
        except ValueError:
            raise RestError(400, f"The parameter {name} has to be a whole number") from None


class Api:
    """Serves requests from a store. Any thread."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        # A part in braces matches any name.
        self._routes: list[tuple[str, list[str], Callable[..., Any]]] = [
            (method, path.split("/"), serve)
            for method, path, serve in (
                ("GET", "", lambda request: {}),
                ("GET", "schemas/types", lambda request: list(FORMATS)),
                ("GET", "schemas/ids/{}", self._schema),
                ("GET", "schemas/ids/{}/schema", self._schema_text),
                ("GET", "schemas/ids/{}/subjects", self._subjects_of_schema),
                ("GET", "schemas/ids/{}/versions", self._versions_of_schema),
                ("GET", "schemas/guids/{}", self._schema_by_guid),
                ("GET", "subjects", self._subjects),
                ("POST", "subjects/{}", self._lookup),
                ("DELETE", "subjects/{}", self._delete_subject),
                ("GET", "subjects/{}/metadata", self._with_metadata),
                ("GET", "subjects/{}/versions", self._versions),
                ("POST", "subjects/{}/versions", self._register),
                ("GET", "subjects/{}/versions/{}", self._version),
                ("DELETE", "subjects/{}/versions/{}", self._delete_version),
                ("GET", "subjects/{}/versions/{}/schema", self._version_text),
                ("GET", "subjects/{}/versions/{}/referencedby", self._referenced_by),
                ("POST", "compatibility/subjects/{}/versions", self._test_compatibility),
                ("POST", "compatibility/subjects/{}/versions/{}", self._test_compatibility),
                ("GET", "config", self._config),
                ("GET", "config/{}", self._config),
                ("PUT", "config", self._set_config),
                ("PUT", "config/{}", self._set_config),
                ("DELETE", "config", self._delete_config),
                ("DELETE", "config/{}", self._delete_config),
                ("GET", "mode", self._mode),
                ("GET", "mode/{}", self._mode),
                ("PUT", "mode", self._set_mode),
                ("PUT", "mode/{}", self._set_mode),
                ("DELETE", "mode/{}", self._delete_mode),
                ("GET", "contexts", lambda request: ["."]),
            )
        ]

    def serve(self, method: str, target: str, content: bytes) -> tuple[int, Any]:
        """Serve a request; returns the HTTP status and what to encode as JSON."""
        path, _, query = target.partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        try:
            body = None
            if content:
                try:
                    body = json.loads(content)
                except ValueError as wrong:
                    raise RestError(400, f"The body is not JSON: {wrong}") from wrong
            request = Request(parse_qs(query, keep_blank_values=True), body)
            is_path = False
            for verb, pattern, serve in self._routes:
                if len(pattern) == len(parts) and all(
                    expected in ("{}", part) for expected, part in zip(pattern, parts, strict=True)
                ):
                    is_path = True
                    if verb == method:
                        names = [part for expected, part in zip(pattern, parts, strict=True) if expected == "{}"]
                        return 200, serve(request, *names)
            raise RestError(405 if is_path else 404, f"HTTP {405 if is_path else 404}: {method} {path}")
        except RestError as error:
            return error.status, {"error_code": error.code, "message": error.message}

    # --- Schemas ---

    def _schema(self, request: Request, schema_id: str) -> Any:
        return self._store.schema(_id(schema_id)).body(request.text("format"))

    def _schema_text(self, request: Request, schema_id: str) -> Any:
        return _as_json(self._store.schema(_id(schema_id)).parsed.text)

    def _schema_by_guid(self, request: Request, guid: str) -> Any:
        stored = self._store.schema_by_guid(guid)
        return {"id": stored.id, **stored.body(request.text("format"))}

    def _versions_of(self, request: Request, schema_id: str) -> list[Any]:
        subject = request.text("subject") or None
        return request.page(self._store.versions_of_schema(_id(schema_id), subject, request.flag("deleted")))

    def _subjects_of_schema(self, request: Request, schema_id: str) -> Any:
        return sorted({version.subject for version in self._versions_of(request, schema_id)})

    def _versions_of_schema(self, request: Request, schema_id: str) -> Any:
        found = self._versions_of(request, schema_id)
        return [{"subject": version.subject, "version": version.number} for version in found]

    # --- Subjects ---

    def _subjects(self, request: Request) -> Any:
        only = request.flag("deletedOnly") or request.flag("deleted_only")
        return request.page(self._store.subjects(request.text("subjectPrefix"), request.flag("deleted"), only))

    def _lookup(self, request: Request, subject: str) -> Any:
        found = self._store.lookup(subject, request.schema(), request.flag("normalize"), request.flag("deleted"))
        return found.body(request.text("format"))

    def _delete_subject(self, request: Request, subject: str) -> Any:
        return self._store.delete_subject(subject, request.flag("permanent"))

    def _with_metadata(self, request: Request, subject: str) -> Any:
        names, values = request.query.get("key", []), request.query.get("value", [])
        # confluent-kafka quotes them twice
        wanted = {unquote(name): unquote(value) for name, value in zip(names, values, strict=False)}
        found = self._store.latest_with_metadata(subject, wanted, request.flag("deleted"))
        return found.body(request.text("format"))

    def _versions(self, request: Request, subject: str) -> Any:
        only = request.flag("deletedOnly") or request.flag("deleted_only")
        found = self._store.versions(subject, request.flag("deleted"), only)
        return request.page([version.number for version in found])

    def _register(self, request: Request, subject: str) -> Any:
        version = self._store.register(subject, request.schema(), request.flag("normalize"))
        return version.body(request.text("format"))

    def _version(self, request: Request, subject: str, number: str) -> Any:
        return self._store.version(subject, number, request.flag("deleted")).body(request.text("format"))

    def _version_text(self, request: Request, subject: str, number: str) -> Any:
        return _as_json(self._store.version(subject, number, request.flag("deleted")).schema.parsed.text)

    def _delete_version(self, request: Request, subject: str, number: str) -> Any:
        return self._store.delete_version(subject, number, request.flag("permanent"))

    def _referenced_by(self, request: Request, subject: str, number: str) -> Any:
        return request.page(self._store.referenced_by(subject, number))

    # --- Compatibility, configuration and modes ---

    def _test_compatibility(self, request: Request, subject: str, number: str | None = None) -> Any:
        problems = self._store.test_compatibility(subject, request.schema(), number, request.flag("normalize"))
        answer: dict[str, Any] = {"is_compatible": not problems}
        if request.flag("verbose"):
            answer["messages"] = problems
        return answer

    def _config(self, request: Request, subject: str | None = None) -> Any:
        return _level(self._store.config(subject, request.flag("defaultToGlobal")))

    def _set_config(self, request: Request, subject: str | None = None) -> Any:
        return self._store.set_config(subject, request.schema())

    def _delete_config(self, request: Request, subject: str | None = None) -> Any:
        return _level(self._store.delete_config(subject))

    def _mode(self, request: Request, subject: str | None = None) -> Any:
        return {"mode": self._store.mode(subject, request.flag("defaultToGlobal") or subject is None)}

    def _set_mode(self, request: Request, subject: str | None = None) -> Any:
        mode = str(request.schema().get("mode", "")).upper()
        return {"mode": self._store.set_mode(subject, mode, request.flag("force"))}

    def _delete_mode(self, request: Request, subject: str) -> Any:
        return {"mode": self._store.delete_mode(subject)}


def _id(text: str) -> int:
    if not text.isdigit():
        raise RestError(404, f"HTTP 404: {text!r} is not a schema's id")
    return int(text)


def _as_json(text: str) -> Any:
    """A schema's text as what is encoded; a .proto text becomes a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _level(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as it is read: the level has another name than when it is set."""
    return {"compatibilityLevel" if key == "compatibility" else key: value for key, value in config.items()}
