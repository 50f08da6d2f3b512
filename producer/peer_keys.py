"""The configuration of other clients: what their keys are called here, and how their defaults differ.

`headrace config from` converts a file with these tables, and `ProducerConfig` names the right key when it rejects one
of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..network.config import Config, Item, dotted
from ..network.protocol.errors import IllegalArgumentError
from ..network.records.compression_config import level_key_names

#: What a program gives up that let librdkafka choose the partition of a key.
OTHER_HASH_NOTE = (
    "librdkafka's default places keys by another hash than Java and this producer (murmur2): records with the same key "
    "go to another partition than before"
)
OTHER_HASHES = ("consistent", "consistent_random", "fnv1a", "fnv1a_random")


def _kibibytes(value: str) -> str:
    return str(int(value) * 1024)


def _milliseconds(value: str) -> str:
    """A whole number of at least the given milliseconds: librdkafka takes fractions of `linger.ms`."""
    return str(-int(-float(value) // 1))


class Renamed:
    """What a key of another client is called here. `convert` changes its text, and raises ValueError if it can't."""

    __slots__ = ("convert", "name", "unit")

    def __init__(self, name: str, convert: Callable[[str], str] = str, unit: str = "") -> None:
        self.name = name
        self.convert = convert
        self.unit = unit

    @property
    def reason(self) -> str:
        """Why the other client's name is rejected, and what to write."""
        return f"that is librdkafka's name; Kafka's is {self.name}{self.unit}"


#: librdkafka's own names for keys that Kafka has too.
LIBRDKAFKA_NAMES: Mapping[str, Renamed] = {
    "metadata.broker.list": Renamed("bootstrap.servers"),
    "message.timeout.ms": Renamed("delivery.timeout.ms"),
    "message.max.bytes": Renamed("max.request.size"),
    "message.send.max.retries": Renamed("retries"),
    "queue.buffering.max.ms": Renamed("linger.ms", _milliseconds),
    "queue.buffering.max.kbytes": Renamed("buffer.memory", _kibibytes, ", in bytes"),
    "request.required.acks": Renamed("acks"),
    "compression.codec": Renamed("compression.type"),
    "max.in.flight": Renamed("max.in.flight.requests.per.connection"),
    "socket.timeout.ms": Renamed("request.timeout.ms"),
}

#: Keys of both with values that differ.
_LIBRDKAFKA_VALUES: Mapping[str, Callable[[str], str]] = {
    "linger.ms": _milliseconds,
}

#: librdkafka's keys that configure something that does not exist here, with the reason why nothing is lost.
LIBRDKAFKA_DROPPED: Mapping[str, str] = {
    "queue.buffering.max.messages": "buffer.memory limits the bytes of queued records; their number has no limit",
    "queue.buffering.backpressure.threshold": "batches grow while requests are in flight, up to batch.max.size",
    "batch.num.messages": "the number of records in a batch has no limit",
    "socket.nagle.disable": "TCP_NODELAY is always set",
    "socket.keepalive.enable": "SO_KEEPALIVE is always set",
    "api.version.request": "versions are negotiated on each connection",
    "broker.version.fallback": "versions are negotiated on each connection",
    "api.version.fallback.ms": "versions are negotiated on each connection",
    "delivery.report.only.error": "futures and callbacks report every record and cost nothing if they are not used",
    "go.delivery.reports": "futures and callbacks report every record and cost nothing if they are not used",
    "log.connection.close": "the loggers headrace.* decide what is logged",
    "log_level": "the loggers headrace.* decide what is logged",
    "debug": "the loggers headrace.* decide what is logged",
    "statistics.interval.ms": "metrics() has the current values at any time",
    "stats_cb": "metrics() has the current values at any time",
    "throttle_cb": "metrics() has the throttle times",
    "error_cb": "futures and callbacks report errors, and the loggers headrace.* what happens to connections",
    "logger": "the loggers headrace.* decide what is logged",
    "on_delivery": "pass callback to send, which calls it with (metadata, exception)",
}

#: Defaults of other clients that differ from those here, with Kafka's name: what keeps their behavior.
DIFFERING_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "librdkafka": {
        "enable.idempotence": "false",
        "delivery.timeout.ms": "300000",
        "buffer.memory": "1073741824",
        "max.in.flight.requests.per.connection": "1000000",
        "receive.buffer.bytes": "-1",
    },
    "kafka-python": {
        "linger.ms": "0",
        "receive.buffer.bytes": "-1",
        "reconnect.backoff.max.ms": "30000",
    },
}

MURMUR2 = ("murmur2", "murmur2_random")


class Converted:
    """One line of another client's file.

    `name` and `value` are what to write here; `name` is empty if nothing is. `note` says why, if there is something to
    say. `is_lost` marks a setting that this producer can't follow.
    """

    __slots__ = ("is_lost", "item", "name", "note", "value")

    def __init__(self, item: Item, name: str, value: str, note: str = "", *, is_lost: bool = False) -> None:
        self.item = item
        self.name = name
        self.value = value
        self.note = note
        self.is_lost = is_lost


def convert(items: Iterable[Item], client: str, table: type[Config]) -> list[Converted]:
    """Convert the configuration of `client`, "librdkafka" or "kafka-python", to the keys of `table`.

    Values are not checked: `table` does that. Raises IllegalArgumentError for another client.
    """
    if client not in DIFFERING_DEFAULTS:
        raise IllegalArgumentError(f"client is {client!r}; give one of {', '.join(DIFFERING_DEFAULTS)}")
    taken = list(items)
    if client == "librdkafka":
        codec = next((str(each.value) for each in taken if each.name in ("compression.type", "compression.codec")), "")
        return [_from_librdkafka(each, codec, table) for each in taken]
    return [_by_table(each, dotted(each.name), _text(each.value), table) for each in taken]


def _from_librdkafka(item: Item, codec: str, table: type[Config]) -> Converted:
    name, value = item.name, _text(item.value)
    if name in LIBRDKAFKA_DROPPED:
        return Converted(item, "", "", f"not needed: {LIBRDKAFKA_DROPPED[name]}")
    if name == "partitioner":
        return _partitioner(item, value)
    if name == "compression.level":
        level_key = f"compression.{codec}.level"
        if level_key in level_key_names().split(", "):
            return Converted(item, level_key, value)
        return Converted(item, "", "", f"not needed: {codec or 'no compression'} has no levels")
    renamed = LIBRDKAFKA_NAMES.get(name, Renamed(name, _LIBRDKAFKA_VALUES.get(name, str)))
    try:
        return _by_table(item, renamed.name, renamed.convert(value), table)
    except ValueError:
        return Converted(item, "", "", f"{value!r} is not a number", is_lost=True)


def _partitioner(item: Item, value: str) -> Converted:
    if value in OTHER_HASHES:
        return Converted(item, "", "", OTHER_HASH_NOTE.replace("librdkafka's default", value), is_lost=True)
    if value in MURMUR2:
        return Converted(item, "", "", "not needed: murmur2 is the default")
    if value == "random":
        return Converted(item, "partitioner.ignore.keys", "true")
    return Converted(item, "", "", f"{value!r} is not a partitioner of librdkafka", is_lost=True)


def _by_table(item: Item, name: str, value: str, table: type[Config]) -> Converted:
    if value == "":
        return Converted(item, "", "", "not needed: it is empty")
    reason = table.why_without_effect(name)
    if reason is not None:
        return Converted(item, "", "", f"not needed: {reason}")
    reason = table.why_left_out(name)
    if reason is not None:
        return Converted(item, "", "", f"not supported: {reason}", is_lost=True)
    found = table.find(name)
    if found is None:
        nearest = table.nearest(name)
        hint = f"; the closest one is {nearest}" if nearest else ""
        return Converted(item, "", "", f"there is no such key here{hint}", is_lost=True)
    return Converted(item, found.name, value)


def _text(value: Any) -> str:
    """A value of a file as text: nothing for None, lists separated by commas."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
