"""A sink's configuration: that of the producer plus a few options of its own, resolved on Spark's driver.

Source: the options of Spark's Kafka sink (KafkaSourceProvider), and `ProducerConfig`.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import pickle
import re
from collections.abc import Mapping
from typing import Any

from ...network.config import dotted
from ...network.config_values import parse_bool
from ...network.protocol.errors import InvalidTopicError, KafkaConfigurationError
from ...network.topic_names import validate_topic_name
from ..config import ProducerConfig
from ..plugins.partitioners import resolve_partitioner
from ..plugins.serializers import resolve_serializer
from . import registry_formats
from .delivery import AT_LEAST_ONCE, EXACTLY_ONCE, GUARANTEES
from .registry_formats import RegistryFormats, is_registry_option

FORMATS = ("raw", "string", "json", "msgpack", *registry_formats.FORMATS)

#: Brokers identify clients by client.id in quotas and logs. A job is one client however many workers it has.
DEFAULT_CLIENT_ID = "headrace-spark"

# Spark passes a data source's options in lower case, and users write them in three spellings.
_OWN = {
    "topic": "topic",
    "valueformat": "value_format",
    "keyformat": "key_format",
    "includeheaders": "include_headers",
    "deliveryguarantee": "delivery_guarantee",
    "deliveryid": "delivery_id",
}

#: The options to suggest for an unknown one.
_NAMES = (
    "topic",
    "value.format",
    "key.format",
    "include.headers",
    "delivery.guarantee",
    "delivery.id",
    *registry_formats.OPTIONS,
)

#: The start of every transactional id with exactly_once, unless `transactional.id` is given.
DEFAULT_TRANSACTIONAL_ID = "headrace-spark"

_DELIVERY_ID = re.compile(r"[A-Za-z0-9._:=-]{1,200}")

# Options that Spark itself adds to a streaming query.
_SPARKS_OWN = {"checkpointlocation", "path", "queryname"}


@dataclasses.dataclass(frozen=True)
class SinkOptions:
    """A sink's validated options. Pickled to the executors; never shows a secret.

    `topic` overrides the column of that name. `digest` is equal for equal configurations; tasks of a worker whose
    digests are equal share a producer. With exactly_once the configuration's `transactional_id` is the start of those
    of the tasks.
    """

    config: ProducerConfig
    topic: str | None
    value_format: str
    key_format: str
    include_headers: bool
    #: Set if a format is avro or protobuf.
    registry: RegistryFormats | None
    delivery_guarantee: str
    delivery_id: str | None
    digest: bytes = dataclasses.field(repr=False)

    @classmethod
    def resolve(cls, config: Mapping[str, Any] | ProducerConfig | None, own: Mapping[str, Any]) -> SinkOptions:
        """Separate the sink's options from the producer's and validate both.

        `own` holds keyword arguments, which override `config`. Producer keys may have Spark's prefix ``kafka.``. Runs
        on the driver. Raises KafkaConfigurationError.
        """
        if isinstance(config, ProducerConfig):
            config = {entry.name: getattr(config, entry.attribute) for entry in config.entries}
        if config is not None and not isinstance(config, Mapping):
            raise KafkaConfigurationError(
                f"the configuration is of type {type(config).__name__}; pass a dict of keys, or keyword arguments"
            )
        options: dict[str, Any] = {}
        producer: dict[str, Any] = {}
        registry: dict[str, Any] = {}
        for source in (config or {}, {name: value for name, value in own.items() if value is not None}):
            names: dict[str, str] = {}
            for name, value in source.items():
                if not isinstance(name, str):
                    raise KafkaConfigurationError(f"the option name {name!r} is not a string")
                if name.lower() in _SPARKS_OWN:
                    continue
                option = _own_option(name)
                key = option or dotted(_without_prefix(name))
                if key in names:
                    raise KafkaConfigurationError(f"{name} is given twice, also as {names[key]}: keep one")
                names[key] = name
                if option is not None:
                    options[option] = value
                elif is_registry_option(key.lower()):
                    registry[key.lower()] = value
                else:
                    producer[key] = value
        _check_names(producer)
        if not any(dotted(name) == "client.id" for name in producer):
            producer["client.id"] = DEFAULT_CLIENT_ID
        guarantee = _guarantee(options)
        resolved = ProducerConfig.resolve(producer)
        if guarantee == EXACTLY_ONCE and resolved.transactional_id is None:
            resolved = ProducerConfig.resolve({**producer, "transactional.id": DEFAULT_TRANSACTIONAL_ID})
        if guarantee == AT_LEAST_ONCE and resolved.transactional_id is not None:
            raise KafkaConfigurationError(
                f"transactional.id={resolved.transactional_id!r} needs delivery.guarantee=exactly_once: the tasks of a "
                f"write at least once use no transactions"
            )
        _check_imports(resolved)
        topic = options.get("topic")
        if topic is not None:
            try:
                topic = validate_topic_name(topic)
            except InvalidTopicError as wrong:
                raise KafkaConfigurationError(f"the option topic: {wrong}") from wrong
        value_format = _format(options, "value_format", resolved.value_serializer)
        key_format = _format(options, "key_format", resolved.key_serializer)
        return cls(
            config=resolved,
            topic=topic,
            value_format=value_format,
            key_format=key_format,
            registry=RegistryFormats.resolve(registry, {"key": key_format, "value": value_format}),
            include_headers=_flag(options, "include_headers"),
            delivery_guarantee=guarantee,
            delivery_id=_delivery_id(options, guarantee),
            digest=digest_of(resolved),
        )

    @property
    def is_exactly_once(self) -> bool:
        """Whether rows are written in transactions."""
        return self.delivery_guarantee == EXACTLY_ONCE

    def __str__(self) -> str:
        servers = ",".join(str(address) for address in self.config.bootstrap_servers)
        return f"{self.topic or 'the topics of column topic'} at {servers}"


def _own_option(name: str) -> str | None:
    return _OWN.get(name.lower().replace("_", "").replace(".", ""))


def _without_prefix(name: str) -> str:
    return name[len("kafka.") :] if name.lower().startswith("kafka.") else name


def _check_names(producer: Mapping[str, Any]) -> None:
    """Raises KafkaConfigurationError for an unknown option, unless it is closest to a key: ProducerConfig raises it."""
    known = {name for entry in ProducerConfig.entries for name in (entry.name, entry.attribute)}
    for name in producer:
        key = dotted(name)
        if name in known or key in known:
            continue
        if ProducerConfig.why_left_out(key) is not None or key in ProducerConfig.without_effect:
            continue
        nearest = ProducerConfig.nearest(key)
        names = _NAMES if nearest is None else (*_NAMES, nearest)
        meant = difflib.get_close_matches(key.lower(), names, n=1)
        if meant and meant[0] == nearest:
            continue
        if nearest is None or meant:
            hint = f"did you mean {meant[0]}?" if meant else "docs/spark.md and docs/configuration.md list them"
            raise KafkaConfigurationError(f"{name} is neither an option of the sink nor a key of the producer; {hint}")


def _check_imports(config: ProducerConfig) -> None:
    """Resolve import paths on the driver, so that a wrong one fails here and not in the tasks."""
    for name in ("key_serializer", "value_serializer"):
        if isinstance(getattr(config, name), str):
            resolve_serializer(getattr(config, name), dotted(name))
    if isinstance(config.partitioner_class, str):
        resolve_partitioner(config.partitioner_class)


def _format(options: Mapping[str, Any], name: str, serializer: Any) -> str:
    given = options.get(name)
    if given is None:
        return "raw" if serializer is None else "serializer"
    if serializer is not None:
        part = name.partition("_")[0]
        raise KafkaConfigurationError(f"{name}={given!r} and a {part}.serializer both say how a {part} becomes bytes")
    chosen = given.strip().lower() if isinstance(given, str) else given
    if chosen not in FORMATS:
        raise KafkaConfigurationError(f"{name}={given!r} is not one of {', '.join(FORMATS)}")
    return chosen


def _guarantee(options: Mapping[str, Any]) -> str:
    given = options.get("delivery_guarantee", AT_LEAST_ONCE)
    chosen = given.strip().lower() if isinstance(given, str) else given
    if chosen not in GUARANTEES:
        raise KafkaConfigurationError(f"delivery.guarantee={given!r} is not one of {', '.join(GUARANTEES)}")
    return chosen


def _delivery_id(options: Mapping[str, Any], guarantee: str) -> str | None:
    given = options.get("delivery_id")
    if given is None:
        return None
    if guarantee != EXACTLY_ONCE:
        raise KafkaConfigurationError(
            f"delivery.id={given!r} has no effect at least once: set delivery.guarantee=exactly_once, or leave it out"
        )
    if not isinstance(given, str) or not _DELIVERY_ID.fullmatch(given):
        raise KafkaConfigurationError(
            f"delivery.id={given!r} is not a name of 1 to 200 letters, digits and the characters . _ : = -"
        )
    return given


def _flag(options: Mapping[str, Any], name: str) -> bool:
    try:
        return parse_bool(options.get(name, True))
    except ValueError as wrong:
        raise KafkaConfigurationError(f"{name}={options[name]!r} {wrong}") from None


def digest_of(config: ProducerConfig) -> bytes:
    """A hash that is equal for configurations of the same producer. It does not reveal the values."""
    values = {entry.name: getattr(config, entry.attribute) for entry in config.entries}
    try:
        image = pickle.dumps(values)
    except Exception as first:  # a user's class may raise anything when it is pickled
        # only Spark's own pickler supports a lambda as a serializer
        try:
            from pyspark import cloudpickle  # noqa: PLC0415  (only who needs it needs pyspark)

            image = cloudpickle.dumps(values)
        except Exception:
            raise KafkaConfigurationError(
                f"the configuration can't be sent to Spark's workers ({type(first).__name__}: {first}); use classes "
                f"or import paths (package.module:Name) for serializers, partitioners and interceptors"
            ) from first
    return hashlib.sha256(image).digest()
