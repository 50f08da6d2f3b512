"""What the serializers share: which schema a record has, where it is registered, and how the bytes name it.

A serializer is a callable ``(obj, SerializationContext) -> bytes``, as in confluent-kafka. The first record of a
subject registers or looks up the schema; every later one finds the result in a dict. If that request fails, the records
of the next second fail with the same error, without a request of their own.

Source: BaseSerializer in confluent_kafka.schema_registry.serde.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from ..network.clock import SYSTEM_CLOCK, Clock
from ..network.protocol.errors import KafkaConfigurationError, SerializationError
from .client import SchemaRegistryClient
from .config import checked_keys
from .context import SerializationContext
from .errors import SchemaRegistryError
from .forks import renew_after_fork
from .framing import SchemaId, framing_of_columns, header_schema_id_serializer, prefix_schema_id_serializer
from .schemas import RegisteredSchema, Schema
from .subjects import STRATEGIES, SubjectNameStrategy

#: The keys that every serializer has, and their defaults.
COMMON_KEYS: dict[str, Any] = {
    "auto.register.schemas": True,
    "normalize.schemas": False,
    "use.schema.id": None,
    "use.latest.version": False,
    "use.latest.with.metadata": None,
    "subject.name.strategy": None,
    "subject.name.strategy.type": "TOPIC",
    "schema.id.serializer": prefix_schema_id_serializer,
}
#: How long a failed request is not repeated.
FAILURE_MS = 1000.0
#: The subjects that are remembered: more only if a strategy makes up names without end.
_MAX_SUBJECTS = 10_000

#: What a serializer encodes with: the parsed schema.
Writer = TypeVar("Writer")


class SchemaSerializer(Generic[Writer]):
    """Base class of the serializers. Any number of threads share one instance.

    Invariant: an entry of `_known` is complete and is replaced as a whole, so that reading needs no lock.
    """

    def __init__(
        self,
        client: SchemaRegistryClient,
        conf: Mapping[str, Any] | None,
        keys: Mapping[str, Any],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Check the configuration. `keys`: those of the class, with their defaults. Raises KafkaConfigurationError."""
        if not isinstance(client, SchemaRegistryClient):
            raise KafkaConfigurationError(
                f"{type(self).__name__} has to have a SchemaRegistryClient, not a {type(client).__name__}"
            )
        values = self._values = checked_keys(conf, keys, type(self).__name__)
        for key, default in keys.items():
            if isinstance(default, bool) and not isinstance(values[key], bool):
                raise KafkaConfigurationError(f"{key}={values[key]!r} has to be True or False")
        self._client = client
        self._clock = clock
        self._use_id: int | None = values["use.schema.id"]
        self._metadata: Mapping[str, str] | None = values["use.latest.with.metadata"]
        #: The schema is the latest version of its subject, which may change while the serializer runs.
        self._latest: bool = values["use.latest.version"] or self._metadata is not None
        self._normalize: bool = values["normalize.schemas"]
        self._auto_register: bool = values["auto.register.schemas"]
        if self._use_id is not None and (isinstance(self._use_id, bool) or not isinstance(self._use_id, int)):
            raise KafkaConfigurationError(f"use.schema.id={self._use_id!r} has to be a whole number")
        if self._metadata is not None and not isinstance(self._metadata, Mapping):
            raise KafkaConfigurationError("use.latest.with.metadata has to be a dict of names and values")
        chosen = [
            key
            for key in ("use.schema.id", "use.latest.version", "use.latest.with.metadata")
            if values[key] is not None and values[key] is not False
        ]
        if len(chosen) > 1:
            raise KafkaConfigurationError(f"{' and '.join(chosen)} exclude each other; set one of them")
        if chosen and self._auto_register:
            if (conf or {}).get("auto.register.schemas"):
                raise KafkaConfigurationError(f"{chosen[0]} and auto.register.schemas exclude each other")
            self._auto_register = False
        self._strategy = _strategy(values)
        self._frame: Callable[..., bytes] = values["schema.id.serializer"]
        if not callable(self._frame):
            raise KafkaConfigurationError(
                "schema.id.serializer has to be a function, such as header_schema_id_serializer"
            )
        self._known: dict[str, tuple[SchemaId, Writer]] = {}
        self._failed: dict[str, tuple[SchemaRegistryError, float]] = {}
        # reentrant: a finalizer that runs within a lookup may send a record, too
        self._lookup = threading.RLock()
        renew_after_fork(self)

    def renew_in_child(self) -> None:
        """Begin without the parent's lock."""
        self._lookup = threading.RLock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self._client!r}>"

    # --- Implemented by each format ---

    def _own(self, obj: Any) -> tuple[Schema | None, str | None]:
        """The schema that the serializer was given, and the name of the record's type. Sends no request."""
        raise NotImplementedError

    def _complete(self, obj: Any, schema: Schema, ctx: SerializationContext | None) -> Schema:
        """The schema with its references, registered where that is needed."""
        return schema

    def _prepared(self, obj: Any, schema: Schema) -> tuple[Writer, list[int] | None]:
        """What encodes records by a schema, and the message's indexes in it (Protobuf)."""
        raise NotImplementedError

    def _encoded(self, obj: Any, writer: Writer, ctx: SerializationContext | None) -> bytes:
        """The data without framing."""
        raise NotImplementedError

    #: The type of the schemas: AVRO, JSON or PROTOBUF.
    _type: str
    #: The output format of schemas that are read from the registry.
    _format: str | None = None

    # --- The common part ---

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Serialize an object; None stays None.

        Raises SerializationError if the object doesn't fit the schema, and SchemaRegistryError if the schema could not
        be registered or looked up.
        """
        if obj is None:
            return None
        schema, record_name = self._own(obj)
        schema_id, writer = self._looked_up(obj, schema, record_name, ctx)
        return self._frame(self._encoded(obj, writer, ctx), ctx, schema_id)

    def _looked_up(
        self, obj: Any, schema: Schema | None, record_name: str | None, ctx: SerializationContext | None
    ) -> tuple[SchemaId, Writer]:
        subject = self._strategy(ctx, record_name)
        if not subject:
            raise SerializationError(f"subject.name.strategy returned {subject!r}; it has to return a subject's name")
        known: tuple[SchemaId, Writer] | None = None
        if self._latest:
            latest = self._client.cached_latest(subject, self._metadata, self._format)
            if latest is not None:
                known = self._entry(self._key(subject, obj), obj, latest)
        else:
            known = self._known.get(self._key(subject, obj))
        return known if known is not None else self._find(subject, obj, schema, ctx)

    # --- Whole columns ---

    #: What the values of a column that is serialized as a whole are: data of the schema ("avro"), or bytes that only
    #: lack the framing ("bytes"). None: columns are serialized value by value.
    column_form: str | None = None

    @property
    def takes_columns(self) -> bool:
        """Whether whole columns may be serialized without a call per value. Own functions for framing need the call."""
        framings = (prefix_schema_id_serializer, header_schema_id_serializer)
        return self.column_form is not None and self._frame in framings

    def of_columns(
        self, ctx: SerializationContext, derive: Callable[[], Schema]
    ) -> tuple[bytes, tuple[str, bytes] | None, Writer]:
        """How a column is serialized: the prefix of each value, the header of each record, and the parsed schema.

        `derive` returns the schema of the column, and is called only if the serializer was given none and uses none of
        the registry. Raises what a call of the serializer raises.
        """
        schema, record_name, derived = self._of_columns(derive)
        schema_id, writer = self._looked_up(derived, schema, record_name, ctx)
        return *framing_of_columns(self._frame, ctx, schema_id), writer

    def _of_columns(self, derive: Callable[[], Schema]) -> tuple[Schema | None, str | None, Schema | None]:
        """The schema and the name of the type of a column, and the schema again if it is derived."""
        raise NotImplementedError

    def _key(self, subject: str, obj: Any) -> str:
        """The key of `_known` for a record."""
        return subject

    def _find(
        self, subject: str, obj: Any, schema: Schema | None, ctx: SerializationContext | None
    ) -> tuple[SchemaId, Writer]:
        """Ask the client for the schema, unless that has just failed."""
        key = self._key(subject, obj)
        with self._lookup:
            # another thread may have asked while this one waited for the lock
            if not self._latest and key in self._known:
                return self._known[key]
            failure = self._failed.get(key)
            if failure is not None:
                error, since_ms = failure
                if self._clock.now_ms() - since_ms < FAILURE_MS:
                    raise copy.copy(error) from error
                del self._failed[key]
            try:
                return self._entry(key, obj, self._registered(subject, obj, schema, ctx))
            except SchemaRegistryError as failed:
                if len(self._failed) >= _MAX_SUBJECTS:
                    self._failed.clear()
                self._failed[key] = (failed, self._clock.now_ms())
                raise

    def _entry(self, key: str, obj: Any, found: RegisteredSchema) -> tuple[SchemaId, Writer]:
        """What serializes by a registered schema: the entry of `_known`, unless that is for another schema."""
        known = self._known.get(key)
        if known is None or known[0].id != found.schema_id:
            if found.schema.schema_type != self._type:
                raise SerializationError(
                    f"the registered schema is of type {found.schema.schema_type}, not {self._type}"
                )
            writer, indexes = self._prepared(obj, found.schema)
            if len(self._known) >= _MAX_SUBJECTS:
                self._known = {}
            known = self._known[key] = (SchemaId(found.schema_id, found.guid, indexes), writer)
        return known

    def _registered(
        self, subject: str, obj: Any, schema: Schema | None, ctx: SerializationContext | None
    ) -> RegisteredSchema:
        if self._metadata is not None:
            return self._client.get_latest_with_metadata(subject, self._metadata, False, self._format)
        if self._latest:
            return self._client.get_latest_version(subject, self._format)
        if self._use_id is not None:
            of_id = self._client.get_schema(self._use_id, subject, self._format)
            found = self._client.lookup_schema(subject, of_id, False, True)
            return RegisteredSchema(self._use_id, of_id, subject, found.version, found.guid)
        if schema is None:
            raise SerializationError(
                f"{type(self).__name__} has no schema; pass one, or set use.latest.version or use.schema.id"
            )
        complete = self._complete(obj, schema, ctx)
        if self._auto_register:
            return self._client.register_schema_full_response(subject, complete, self._normalize)
        return self._client.lookup_schema(subject, complete, self._normalize)

    def _referenced(self, schema: Schema) -> dict[str, Schema]:
        """The schemas that a schema refers to, directly or not, by the names of the references."""
        found: dict[str, Schema] = {}
        waiting = list(schema.references)
        while waiting:
            reference = waiting.pop()
            if reference.name not in found:
                version = self._client.get_version(reference.subject, reference.version, True, self._format)
                found[reference.name] = version.schema
                waiting.extend(version.schema.references)
        return found


def _strategy(values: Mapping[str, Any]) -> SubjectNameStrategy:
    strategy: Any = values["subject.name.strategy"]
    if strategy is not None:
        if not callable(strategy):
            raise KafkaConfigurationError(
                f"subject.name.strategy={strategy!r} has to be a function (context, record name) -> subject; a name "
                "belongs into subject.name.strategy.type"
            )
        return cast(SubjectNameStrategy, strategy)
    name = str(getattr(values["subject.name.strategy.type"], "value", values["subject.name.strategy.type"])).upper()
    if name not in STRATEGIES:
        raise KafkaConfigurationError(
            f"subject.name.strategy.type={name!r} has to be one of {', '.join(STRATEGIES)}"
            + ("; associations of topics with subjects are not supported" if name == "ASSOCIATED" else "")
        )
    return STRATEGIES[name]


def checked_schema(schema: str | Schema | None, schema_type: str, owner: str) -> Schema | None:
    """The schema that a serializer was given, as a Schema of its type. Raises KafkaConfigurationError."""
    if schema is None:
        return None
    if isinstance(schema, str) and schema.strip():
        return Schema(schema.strip(), schema_type)
    if not isinstance(schema, Schema):
        raise KafkaConfigurationError(f"{owner}: the schema has to be text or a Schema, not {type(schema).__name__}")
    if schema.schema_type != schema_type:
        raise KafkaConfigurationError(f"{owner}: the schema is of type {schema.schema_type}, not {schema_type}")
    return schema
