"""`ProtobufSerializer`: Protobuf messages, framed for a schema registry.

A message's schema is the descriptor of its file in base64, which registries accept in place of .proto text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from ..network.clock import SYSTEM_CLOCK, Clock
from ..network.protocol.errors import KafkaConfigurationError, SerializationError
from .client import SchemaRegistryClient
from .context import SerializationContext
from .schemas import PROTOBUF, Schema, SchemaReference
from .serializer import COMMON_KEYS, SchemaSerializer


def reference_subject_name_strategy(ctx: SerializationContext | None, file: Any) -> str:
    """The subject of an imported file: the name by which it is imported."""
    return file.name


KEYS = {
    **COMMON_KEYS,
    "skip.known.types": True,
    "use.deprecated.format": False,
    "reference.subject.name.strategy": reference_subject_name_strategy,
}


class ProtobufSerializer(SchemaSerializer[Any]):
    """Serializes messages of one type. Any number of threads share one instance.

    `KafkaProducer.send_arrow` takes columns of messages that are serialized already, and frames them.
    """

    _type = PROTOBUF
    _format = "serialized"
    column_form = "bytes"

    def __init__(
        self,
        msg_type: Any,
        schema_registry_client: SchemaRegistryClient,
        conf: Mapping[str, Any] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`msg_type`: a generated message class. `conf`: see docs/schema-registry.md. Raises KafkaConfigurationError.

        The files that the message's file imports are registered under subjects of their own, and referred to.
        """
        super().__init__(schema_registry_client, conf, KEYS, clock)
        descriptor_pb2 = _descriptors("ProtobufSerializer")
        descriptor = getattr(msg_type, "DESCRIPTOR", None)
        if not isinstance(msg_type, type) or descriptor is None:
            raise KafkaConfigurationError(f"ProtobufSerializer has to have a message class, not {msg_type!r}")
        if self._values["use.deprecated.format"]:
            raise KafkaConfigurationError(
                "use.deprecated.format=True is not supported: it is the framing of confluent-kafka before 1.8"
            )
        self._reference_subject: Callable[..., str] = self._values["reference.subject.name.strategy"]
        if not callable(self._reference_subject):
            raise KafkaConfigurationError("reference.subject.name.strategy has to be a function (context, file) -> str")
        self._skip_known: bool = self._values["skip.known.types"]
        self._class = msg_type
        self._record_name: str = descriptor.full_name
        self._path = _path_by_name(
            descriptor_pb2.FileDescriptorProto.FromString(descriptor.file.serialized_pb), self._record_name
        )
        self._schema = Schema(_text_of(descriptor.file), PROTOBUF, name=self._record_name)

    def _own(self, obj: Any) -> tuple[Schema | None, str | None]:
        if not isinstance(obj, self._class):
            raise SerializationError(
                f"{type(obj).__name__} is not a message of the class {self._record_name}, which the serializer is for"
            )
        return self._schema, self._record_name

    def _of_columns(self, derive: Callable[[], Schema]) -> tuple[Schema | None, str | None, Schema | None]:
        return self._schema, self._record_name, None

    def _complete(self, obj: Any, schema: Schema, ctx: SerializationContext | None) -> Schema:
        file = self._class.DESCRIPTOR.file
        return Schema(schema.schema_str, PROTOBUF, self._imports(ctx, file), name=schema.name)

    def _imports(self, ctx: SerializationContext | None, file: Any) -> list[SchemaReference]:
        """The references for the files that a file imports, which are registered first."""
        references = []
        for imported in file.dependencies:
            if self._skip_known and imported.name.startswith(("google/protobuf/", "google/type/", "confluent/")):
                continue
            inner = self._imports(ctx, imported)
            subject = self._reference_subject(ctx, imported)
            schema = Schema(_text_of(imported), PROTOBUF, inner, name=imported.name)
            if self._auto_register:
                self._client.register_schema(subject, schema, self._normalize)
            found = self._client.lookup_schema(subject, schema, self._normalize)
            if found.version is None:
                raise SerializationError(f"the schema registry named no version of {imported.name!r} in {subject!r}")
            references.append(SchemaReference(imported.name, subject, found.version))
        return references

    def _prepared(self, obj: Any, schema: Schema) -> tuple[Any, list[int] | None]:
        if schema.schema_str == self._schema.schema_str:
            return None, self._path
        # another version may have its messages at other places
        return None, _registered_path(schema, self._record_name)

    def _encoded(self, obj: Any, writer: Any, ctx: SerializationContext | None) -> bytes:
        try:
            return obj.SerializeToString()
        except Exception as wrong:
            # EncodeError of a proto2 message without its required fields, which names them
            raise SerializationError(
                f"a message {self._record_name} can't be serialized ({type(wrong).__name__}: {wrong})"
            ) from wrong


class ProtobufBytesSerializer(SchemaSerializer[Any]):
    """Frames messages that are serialized already, as by Spark's ``to_protobuf``. Any number of threads share one.

    The schema is one of the registry's: ``use.latest.version``, ``use.latest.with.metadata`` or ``use.schema.id``.
    """

    _type = PROTOBUF
    _format = "serialized"
    column_form = "bytes"

    def __init__(
        self,
        schema_registry_client: SchemaRegistryClient,
        message: str | None = None,
        conf: Mapping[str, Any] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`message`: the full name of the messages' type; None for the first of the schema, without a lookup by name.

        `conf`: the common keys of docs/schema-registry.md. Raises KafkaConfigurationError.
        """
        super().__init__(schema_registry_client, conf, COMMON_KEYS, clock)
        if self._use_id is None and not self._latest:
            raise KafkaConfigurationError(
                "ProtobufBytesSerializer has to know the registered schema: set use.latest.version=True, "
                "use.latest.with.metadata or use.schema.id"
            )
        if message is not None:
            _descriptors("ProtobufBytesSerializer with a message")
        self._message = message

    def _own(self, obj: Any) -> tuple[Schema | None, str | None]:
        if not isinstance(obj, (bytes, bytearray, memoryview)):
            raise SerializationError(f"{type(obj).__name__} is not a serialized message (bytes)")
        return None, self._message

    def _of_columns(self, derive: Callable[[], Schema]) -> tuple[Schema | None, str | None, Schema | None]:
        return None, self._message, None

    def _prepared(self, obj: Any, schema: Schema) -> tuple[Any, list[int] | None]:
        if self._message is None:
            return None, [0]
        return None, _registered_path(schema, self._message)

    def _encoded(self, obj: Any, writer: Any, ctx: SerializationContext | None) -> bytes:
        return bytes(obj)


def _descriptors(owner: str) -> Any:
    """The module of Protobuf's descriptors. Raises KafkaConfigurationError without the package, which is optional."""
    try:
        from google.protobuf import descriptor_pb2  # noqa: PLC0415
    except ImportError as missing:
        raise KafkaConfigurationError(f"{owner} needs protobuf: pip install 'headrace[registry]'") from missing
    return descriptor_pb2


def _registered_path(schema: Schema, name: str) -> list[int]:
    """The place of a message in a registered schema. Raises SerializationError."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415  (optional)
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.schema_str, validate=True))
    except (binascii.Error, ValueError, DecodeError) as wrong:
        raise SerializationError(
            f"the schema registry returned the schema of {name} as text, although its output format "
            "'serialized' was requested; the place of the message in it is unknown"
        ) from wrong
    path = _path_by_name(file, name)
    if path is None:
        raise SerializationError(f"the registered schema has no message {name}")
    return path


def _path_by_name(file: Any, full_name: str) -> list[int] | None:
    """The place of a message among the messages of its file, then among those nested in that one; None without it."""
    if file.package and not full_name.startswith(f"{file.package}."):
        return None
    messages = file.message_type
    path: list[int] = []
    for name in full_name[len(file.package) + 1 if file.package else 0 :].split("."):
        at = next((number for number, message in enumerate(messages) if message.name == name), None)
        if at is None:
            return None
        path.append(at)
        messages = messages[at].nested_type
    return path


def _text_of(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()
