"""The formats `avro` and `protobuf` of Spark's columns, which take their schema ids from a schema registry.

The options are confluent-kafka's keys. The driver checks them without a request. Each Python worker has one client per
configuration, which asks the registry once per schema.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...network.config_values import parse_bool
from ...network.protocol.errors import KafkaConfigurationError, SerializationError
from ...registry.framing import header_schema_id_serializer, prefix_schema_id_serializer

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

FORMATS = ("avro", "protobuf")
_PREFIX = "schema.registry."
_FRAMINGS = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}


def _number(text: Any) -> float:
    return float(text) if isinstance(text, str) else text


def _framing(text: Any) -> Any:
    return _FRAMINGS[str(text).lower()]


def _bool_or_path(text: Any) -> Any:
    return False if str(text).lower() == "false" else text


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"is of type {type(value).__name__}, not text")
    return value


#: How the values of options are read, which are text in Spark; the others are text in the serializers, too.
_SERIALIZER_KEYS: dict[str, Any] = {
    "auto.register.schemas": parse_bool,
    "normalize.schemas": parse_bool,
    "use.latest.version": parse_bool,
    "use.schema.id": int,
    "subject.name.strategy.type": _text,
    "schema.id.serializer": _framing,
}
_AVRO_KEYS = {"validate.strict": parse_bool, "validate.strict.allow.default": parse_bool}
_CLIENT_KEYS = {
    "timeout": _number,
    "max.retries": _number,
    "retries.wait.ms": _number,
    "retries.max.wait.ms": _number,
    "cache.capacity": _number,
    "cache.latest.ttl.sec": _number,
    "ssl.ca.location": _bool_or_path,
}
#: An option of a part ("value.schema"), and the format that takes it.
_PART_KEYS = {
    "value.schema": "avro",
    "key.schema": "avro",
    "value.message": "protobuf",
    "key.message": "protobuf",
}


#: All options except further keys of the client, which begin with `_PREFIX`, too.
OPTIONS = (f"{_PREFIX}url", *_SERIALIZER_KEYS, *_AVRO_KEYS, *_PART_KEYS)


def is_registry_option(name: str) -> bool:
    """Whether an option, in lower case and with dots, is one of this module."""
    return name in OPTIONS or (name.startswith(_PREFIX) and name != _PREFIX)


@dataclass(frozen=True)
class RegistryFormats:
    """The checked options. Pickled to the executors; never shows a secret. `digest` is equal for equal options."""

    formats: Mapping[str, str]
    options: Mapping[str, Any] = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def resolve(cls, options: Mapping[str, Any], formats: Mapping[str, str]) -> RegistryFormats | None:
        """Check the options. `formats`: that of "key" and of "value". None if neither needs a registry.

        Sends no request. Raises KafkaConfigurationError.
        """
        used = {part: form for part, form in formats.items() if form in FORMATS}
        if not used:
            if options:
                raise KafkaConfigurationError(
                    f"{min(options)} has no effect without value_format=avro or protobuf, or a key_format like that"
                )
            return None
        part = min(used)
        if f"{_PREFIX}url" not in options:
            raise KafkaConfigurationError(f"{part}_format={used[part]!r} needs a schema registry: set {_PREFIX}url")
        for name, form in _PART_KEYS.items():
            if name in options and used.get(name.partition(".")[0]) != form:
                raise KafkaConfigurationError(f"{name} has no effect without {name.partition('.')[0]}_format={form}")
        for name in _AVRO_KEYS:
            if name in options and "avro" not in used.values():
                raise KafkaConfigurationError(f"{name} has no effect without the format avro")
        if "use.schema.id" in options and len(used) > 1:
            raise KafkaConfigurationError(
                "use.schema.id names one schema, but both the key and the value have one: use use.latest.version"
            )
        image = json.dumps([sorted(used.items()), sorted((name, str(value)) for name, value in options.items())])
        made = cls(used, dict(options), hashlib.sha256(image.encode()).digest())
        made._serializers()
        return made

    def serializers(self) -> dict[str, Any]:
        """The serializers of the parts, "key" and "value", which the tasks of this worker share."""
        with _lock:
            if self.digest not in _of_this_process:
                _of_this_process[self.digest] = self._serializers()
            return _of_this_process[self.digest]

    def _serializers(self) -> dict[str, Any]:
        from ...registry import (  # noqa: PLC0415  (needs the extra [registry])
            AvroSerializer,
            ProtobufBytesSerializer,
            SchemaRegistryClient,
        )

        client_conf: dict[str, Any] = {}
        common: dict[str, Any] = {}
        of_avro: dict[str, Any] = {}
        for name, value in self.options.items():
            if name.startswith(_PREFIX):
                key = name[len(_PREFIX) :]
                client_conf[key] = _read(name, value, _CLIENT_KEYS.get(key, _same))
            elif name in _SERIALIZER_KEYS:
                common[name] = _read(name, value, _SERIALIZER_KEYS[name])
            elif name in _AVRO_KEYS:
                of_avro[name] = _read(name, value, _AVRO_KEYS[name])
        client = SchemaRegistryClient(client_conf)
        made: dict[str, Any] = {}
        for part, form in self.formats.items():
            if form == "avro":
                schema = self.options.get(f"{part}.schema")
                made[part] = AvroSerializer(client, schema, conf={**common, **of_avro})
            else:
                made[part] = ProtobufBytesSerializer(client, self.options.get(f"{part}.message"), common)
        return made

    def check_column(self, part: str, kind: DataType) -> None:
        """Check the type of a column against a schema that is known without the registry. Runs on the driver.

        Raises KafkaConfigurationError.
        """
        from ..columns.serialized import check_type  # noqa: PLC0415  (needs pyarrow)

        try:
            check_type(_arrow_type(kind), part, self._serializers()[part])
        except SerializationError as unfit:
            raise KafkaConfigurationError(str(unfit)) from unfit


def _arrow_type(kind: DataType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415  (the driver has pyspark)

    convert: Any = to_arrow_type
    try:
        return convert(kind, timezone="UTC")
    except TypeError:
        # before PySpark 4.3 timestamps are UTC without being asked
        return convert(kind)


def _same(value: Any) -> Any:
    return value


def _read(name: str, value: Any, read: Any) -> Any:
    try:
        return read(value)
    except (ValueError, KeyError, TypeError) as wrong:
        expected = f"one of {', '.join(_FRAMINGS)}" if read is _framing else f"valid ({wrong})"
        raise KafkaConfigurationError(f"{name}={value!r} is not {expected}") from None


_lock = threading.Lock()
#: The serializers of a worker by the digest of their options. There are as many as a session has configurations.
_of_this_process: dict[bytes, dict[str, Any]] = {}
