"""`SchemaRegistryClient`: confluent-kafka's client of a schema registry, by its method names and configuration keys."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ..network.clock import SYSTEM_CLOCK, Clock
from .cache import LruCache
from .config import ClientConfig
from .errors import NotASchemaRegistryError, SchemaRegistryUnavailableError
from .forks import renew_after_fork
from .rest import Purpose, RestClient
from .schemas import RegisteredSchema, Schema

_log = logging.getLogger(__name__)


class SchemaRegistryClient:
    """Registers and looks up schemas. Any number of threads share one client; its requests may run concurrently.

    What can't change is cached without a time limit: the schema of an id, and the id of a schema under a subject. The
    latest version of a subject is cached for ``cache.latest.ttl.sec``, by default until the cache is cleared. If the
    registry can't be reached when that time has passed, the version that was known goes on being used.

    Every method that sends a request raises the subclasses of SchemaRegistryError. It makes 1 + ``max.retries``
    attempts, each of which waits at most ``timeout`` seconds per address.
    """

    def __init__(self, conf: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Check the configuration; opens no connection. Raises KafkaConfigurationError.

        `conf`: confluent-kafka's keys, see docs/schema-registry.md. ``url`` is the only one that has to be set.
        """
        self._config = ClientConfig.resolve(conf)
        self._clock = clock
        self._rest = RestClient(self._config, clock)
        capacity = self._config.cache_capacity
        self._by_id: LruCache[Schema] = LruCache(capacity)
        self._by_guid: LruCache[Schema] = LruCache(capacity)
        self._registered: LruCache[RegisteredSchema] = LruCache(capacity)
        self._looked_up: LruCache[RegisteredSchema] = LruCache(capacity)
        self._versions: LruCache[RegisteredSchema] = LruCache(capacity)
        #: Subject -> its latest version, and when that was read.
        self._latest: LruCache[tuple[RegisteredSchema, float]] = LruCache(capacity)
        self._refreshing = threading.RLock()
        renew_after_fork(self)

    def renew_in_child(self) -> None:
        """Begin without the parent's lock; the caches and the connections renew themselves."""
        self._refreshing = threading.RLock()

    def __repr__(self) -> str:
        return f"SchemaRegistryClient({', '.join(self._config.urls)})"

    def __enter__(self) -> SchemaRegistryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections. The client stays usable, and opens new ones."""
        self._rest.close()

    # --- Schemas ---

    def register_schema(self, subject_name: str, schema: Schema, normalize_schemas: bool = False) -> int:
        """Register a schema under a subject, unless it is there already, and return its id."""
        return self.register_schema_full_response(subject_name, schema, normalize_schemas).schema_id

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """Register a schema under a subject, unless it is there already.

        Returns its id, and its GUID and version if the registry names them. Raises IncompatibleSchemaError,
        InvalidSchemaError.
        """
        key = (subject_name, schema, normalize_schemas)
        found = self._registered.get(key)
        if found is None:
            purpose = Purpose("register the schema", subject_name, schema.label)
            body = self._rest.request(
                "POST",
                f"subjects/{_quoted(subject_name)}/versions",
                purpose,
                {"normalize": normalize_schemas},
                schema.to_dict(),
            )
            found = self._read_registered(body, purpose, subject_name, schema)
            self._registered.put(key, found)
        return found

    def lookup_schema(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return the id, the GUID and the version of a schema of a subject. Raises SchemaNotFoundError."""
        key = (subject_name, schema, normalize_schemas, deleted)
        found = self._looked_up.get(key)
        if found is None:
            purpose = Purpose("look up the schema", subject_name, schema.label)
            query = {"normalize": normalize_schemas, "deleted": deleted}
            body = self._rest.request("POST", f"subjects/{_quoted(subject_name)}", purpose, query, schema.to_dict())
            found = self._read_registered(body, purpose, subject_name, schema)
            self._looked_up.put(key, found)
        return found

    def get_schema(self, schema_id: int, subject_name: str | None = None, fmt: str | None = None) -> Schema:
        """Return the schema of an id. `fmt`: an output format of the schema's type, such as "serialized"."""
        key = (schema_id, subject_name, fmt)
        found = self._by_id.get(key)
        if found is None:
            purpose = Purpose("get the schema", subject_name, f"id {schema_id}")
            query = _present(subject=subject_name, format=fmt)
            body = self._rest.request("GET", f"schemas/ids/{int(schema_id)}", purpose, query)
            found = _read(purpose, Schema.from_dict, body)
            self._by_id.put(key, found)
        return found

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        """Return the schema of a GUID."""
        found = self._by_guid.get((guid, fmt))
        if found is None:
            purpose = Purpose("get the schema", None, f"GUID {guid}")
            body = self._rest.request("GET", f"schemas/guids/{_quoted(guid)}", purpose, _present(format=fmt))
            found = _read(purpose, Schema.from_dict, body)
            self._by_guid.put((guid, fmt), found)
        return found

    def get_schema_types(self) -> list[str]:
        """Return the types of schemas that the registry supports."""
        return self._list("GET", "schemas/types", Purpose("list the types of schemas"))

    def get_subjects_by_schema_id(
        self, schema_id: int, subject_name: str | None = None, deleted: bool = False
    ) -> list[str]:
        """Return the subjects that have a schema."""
        purpose = Purpose("list the subjects of a schema", subject_name, f"id {schema_id}")
        query = _present(subject=subject_name, deleted=deleted)
        return self._list("GET", f"schemas/ids/{int(schema_id)}/subjects", purpose, query)

    def get_schema_versions(
        self, schema_id: int, subject_name: str | None = None, deleted: bool = False
    ) -> list[dict[str, Any]]:
        """Return the versions of a schema, each with `subject` and `version`."""
        purpose = Purpose("list the versions of a schema", subject_name, f"id {schema_id}")
        query = _present(subject=subject_name, deleted=deleted)
        return self._list("GET", f"schemas/ids/{int(schema_id)}/versions", purpose, query)

    # --- Subjects and versions ---

    def get_subjects(
        self, subject_prefix: str | None = None, deleted: bool = False, deleted_only: bool = False
    ) -> list[str]:
        """Return the subjects. `deleted`: also the soft-deleted ones; `deleted_only`: only those."""
        query = _present(subjectPrefix=subject_prefix, deleted=deleted, deletedOnly=deleted_only)
        return self._list("GET", "subjects", Purpose("list the subjects"), query)

    def delete_subject(self, subject_name: str, permanent: bool = False) -> list[int]:
        """Delete a subject and return its versions. `permanent` needs a subject that is soft-deleted already."""
        purpose = Purpose("delete the subject", subject_name)
        versions = self._list("DELETE", f"subjects/{_quoted(subject_name)}", purpose, {"permanent": permanent})
        self._forget(subject_name)
        return versions

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> RegisteredSchema:
        """Return the latest version of a subject. Raises SchemaNotFoundError."""
        path = f"subjects/{_quoted(subject_name)}/versions/latest"
        return self._newest(subject_name, None, fmt, path, _present(format=fmt))

    def get_latest_with_metadata(
        self, subject_name: str, metadata: Mapping[str, str], deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return the latest version of a subject that has these metadata; not cached with `deleted`."""
        query = _present(key=list(metadata), value=list(metadata.values()), deleted=deleted, format=fmt)
        path = f"subjects/{_quoted(subject_name)}/metadata"
        if deleted:
            purpose = Purpose("get the latest version with metadata", subject_name)
            return self._read_registered(self._rest.request("GET", path, purpose, query), purpose, subject_name)
        return self._newest(subject_name, metadata, fmt, path, query)

    def cached_latest(
        self, subject_name: str, metadata: Mapping[str, str] | None = None, fmt: str | None = None
    ) -> RegisteredSchema | None:
        """Return what `get_latest_version` or `get_latest_with_metadata` would return without a request, or None."""
        found = self._latest.get(_latest_key(subject_name, metadata, fmt))
        return None if found is None or self._is_stale(found[1]) else found[0]

    def _newest(
        self,
        subject_name: str,
        metadata: Mapping[str, str] | None,
        fmt: str | None,
        path: str,
        query: Mapping[str, Any],
    ) -> RegisteredSchema:
        found = self.cached_latest(subject_name, metadata, fmt)
        if found is not None:
            return found
        key = _latest_key(subject_name, metadata, fmt)
        with self._refreshing:
            found = self.cached_latest(subject_name, metadata, fmt)
            if found is not None:
                return found
            purpose = Purpose("get the latest version", subject_name)
            try:
                latest = self._read_registered(self._rest.request("GET", path, purpose, query), purpose, subject_name)
            except SchemaRegistryUnavailableError as failed:
                stale = self._latest.get(key)
                if stale is None:
                    raise
                _log.warning("the version of subject %r that was read last stays in use: %s", subject_name, failed)
                latest = stale[0]
            self._latest.put(key, (latest, self._clock.now_ms()))
            return latest

    def get_version(
        self, subject_name: str, version: int | str = "latest", deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return a version of a subject; "latest" always asks the registry. Raises SchemaNotFoundError."""
        key = (subject_name, version, deleted, fmt)
        found = None if version == "latest" else self._versions.get(key)
        if found is None:
            purpose = Purpose(f"get version {version}", subject_name)
            path = f"subjects/{_quoted(subject_name)}/versions/{_quoted(str(version))}"
            body = self._rest.request("GET", path, purpose, _present(deleted=deleted, format=fmt))
            found = self._read_registered(body, purpose, subject_name)
            if version != "latest":
                self._versions.put(key, found)
        return found

    def get_versions(self, subject_name: str, deleted: bool = False, deleted_only: bool = False) -> list[int]:
        """Return the numbers of a subject's versions."""
        query = _present(deleted=deleted, deletedOnly=deleted_only)
        purpose = Purpose("list the versions", subject_name)
        return self._list("GET", f"subjects/{_quoted(subject_name)}/versions", purpose, query)

    def get_referenced_by(self, subject_name: str, version: int | str = "latest") -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        path = f"subjects/{_quoted(subject_name)}/versions/{_quoted(str(version))}/referencedby"
        return self._list("GET", path, Purpose("list the referring schemas", subject_name))

    def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> int:
        """Delete a version and return its number. `permanent` needs a version that is soft-deleted already."""
        path = f"subjects/{_quoted(subject_name)}/versions/{_quoted(str(version))}"
        purpose = Purpose(f"delete version {version}", subject_name)
        number = _read(purpose, int, self._rest.request("DELETE", path, purpose, {"permanent": permanent}))
        self._forget(subject_name)
        return number

    # --- Compatibility, configuration and modes ---

    def test_compatibility(
        self, subject_name: str, schema: Schema, version: int | str = "latest", normalize: bool = False
    ) -> bool:
        """Whether a schema is compatible with a version of a subject."""
        return self._is_compatible(subject_name, f"/{_quoted(str(version))}", schema, normalize)

    def test_compatibility_all_versions(self, subject_name: str, schema: Schema, normalize: bool = False) -> bool:
        """Whether a schema is compatible with the versions that the subject's compatibility level names."""
        return self._is_compatible(subject_name, "", schema, normalize)

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """Return the compatibility level of a subject, or the global one."""
        purpose = Purpose("get the compatibility level", subject_name)
        return _read(purpose, lambda config: str(config["compatibilityLevel"]), self.get_config(subject_name))

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> dict[str, Any]:
        """Set the compatibility level of a subject, or the global one, such as "FULL_TRANSITIVE"."""
        if level is None:
            raise ValueError("level is missing: name a compatibility level, such as 'BACKWARD'")
        return self.set_config(subject_name, {"compatibility": level.upper()})

    def get_config(self, subject_name: str | None = None) -> dict[str, Any]:
        """Return the configuration of a subject, or the global one, in the REST API's form."""
        purpose = Purpose("get the configuration", subject_name)
        return _read(purpose, dict, self._rest.request("GET", _of("config", subject_name), purpose))

    def set_config(self, subject_name: str | None = None, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Change the configuration of a subject, or the global one; returns what the registry returns."""
        purpose = Purpose("set the configuration", subject_name)
        path = _of("config", subject_name)
        return _read(purpose, dict, self._rest.request("PUT", path, purpose, body=dict(config or {})))

    def delete_config(self, subject_name: str | None = None) -> dict[str, Any]:
        """Remove the configuration of a subject, so that the global one applies, or reset the global one."""
        purpose = Purpose("delete the configuration", subject_name)
        return _read(purpose, dict, self._rest.request("DELETE", _of("config", subject_name), purpose))

    def get_mode(self, subject_name: str) -> str:
        """Return the mode of a subject: READWRITE, READONLY or IMPORT."""
        return self._mode("GET", subject_name, "get the mode", {"defaultToGlobal": True})

    def update_mode(self, subject_name: str, mode: str, force: bool = False) -> str:
        """Set the mode of a subject and return it."""
        return self._mode("PUT", subject_name, "set the mode", {"force": force}, {"mode": mode})

    def delete_mode(self, subject_name: str) -> str:
        """Remove the mode of a subject, so that the global one applies, and return the removed one."""
        return self._mode("DELETE", subject_name, "delete the mode", {})

    def get_global_mode(self) -> str:
        """Return the global mode."""
        return self._mode("GET", None, "get the mode", {})

    def update_global_mode(self, mode: str, force: bool = False) -> str:
        """Set the global mode and return it."""
        return self._mode("PUT", None, "set the mode", {"force": force}, {"mode": mode})

    # --- Caches ---

    def clear_latest_caches(self) -> None:
        """Forget the latest versions, so that they are read again."""
        self._latest.clear()

    def clear_caches(self) -> None:
        """Forget everything that is cached."""
        for cache in (self._by_id, self._by_guid, self._registered, self._looked_up, self._versions, self._latest):
            cache.clear()

    def _forget(self, subject_name: str) -> None:
        for cache in (self._registered, self._looked_up, self._versions, self._latest):
            cache.drop(lambda key: isinstance(key, tuple) and key[0] == subject_name)

    def _is_stale(self, read_ms: float) -> bool:
        ttl_ms = self._config.latest_ttl_ms
        return ttl_ms is not None and self._clock.now_ms() - read_ms > ttl_ms

    # --- Requests ---

    def _list(self, method: str, path: str, purpose: Purpose, query: Mapping[str, Any] | None = None) -> list[Any]:
        return _read(purpose, _as_list, self._rest.request(method, path, purpose, query))

    def _mode(
        self,
        method: str,
        subject_name: str | None,
        action: str,
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None = None,
    ) -> str:
        purpose = Purpose(action, subject_name)
        answer = self._rest.request(method, _of("mode", subject_name), purpose, query, body)
        return _read(purpose, lambda each: str(each["mode"]), answer)

    def _is_compatible(self, subject_name: str, version: str, schema: Schema, normalize: bool) -> bool:
        purpose = Purpose("test the compatibility", subject_name, schema.label)
        path = f"compatibility/subjects/{_quoted(subject_name)}/versions{version}"
        body = self._rest.request("POST", path, purpose, {"normalize": normalize}, schema.to_dict())
        return _read(purpose, lambda each: bool(each["is_compatible"]), body)

    @staticmethod
    def _read_registered(
        body: Any, purpose: Purpose, subject_name: str, schema: Schema | None = None
    ) -> RegisteredSchema:
        return _read(
            purpose,
            lambda each: RegisteredSchema(
                int(each["id"]),
                schema or Schema.from_dict(each),
                each.get("subject") or subject_name,
                each.get("version"),
                each.get("guid"),
            ),
            body,
        )


def _read(purpose: Purpose, read: Any, body: Any) -> Any:
    """Apply `read` to a decoded response. Raises NotASchemaRegistryError if it has another form."""
    try:
        return read(body)
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise NotASchemaRegistryError(
            f"{purpose}: the response is JSON, but not of a schema registry ({type(wrong).__name__}: {wrong})",
            subject=purpose.subject,
            schema=purpose.schema,
        ) from wrong


def _latest_key(subject_name: str, metadata: Mapping[str, str] | None, fmt: str | None) -> tuple[Any, ...]:
    return subject_name, None if metadata is None else frozenset(metadata.items()), fmt


def _as_list(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise TypeError(f"{type(body).__name__} instead of a list")
    return body


def _of(what: str, subject_name: str | None) -> str:
    return what if subject_name is None else f"{what}/{_quoted(subject_name)}"


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _present(**query: Any) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None and value is not False}
