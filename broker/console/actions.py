"""What the page can do: each action takes a JSON object, checks every member and calls the cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...network.config import INT32_MAX, INT64_MAX
from ...network.protocol.api import ApiKey
from ...network.protocol.errors import IllegalArgumentError, error_classes
from ..api.registry import apis
from ..requests.faults import Fault
from ..services.observation import NewRecord
from .cluster import ConsoleCluster

#: Kind of fault -> the members that it needs, and the arguments of `Fault` made of them.
FAULTS: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "error": (("error",), lambda of: {"error": _error(of)}),
    "delay": (("ms",), lambda of: {"delay_ms": _number(of, "ms", 1)}),
    "throttle": (("ms",), lambda of: {"throttle_ms": _number(of, "ms", 1)}),
    "close": ((), lambda _: {"close": True}),
    "lose_answer": ((), lambda _: {"lose_answer": True}),
    "silent": ((), lambda _: {"silent": True}),
    "cut": (("bytes",), lambda of: {"cut_after_bytes": _number(of, "bytes", 0)}),
    "half_close": ((), lambda _: {"half_close": True}),
}
_BROKER_ACTIONS = ("kill", "stop", "start")


class Actions:
    """The page's actions on a cluster. Any thread; brokers are started and ended one at a time.

    The methods raise IllegalArgumentError for what is wrong with the arguments, and the cluster's errors.
    """

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()

    def produce(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Append a record: `topic`, `partition`, `key` and `value` (each null or `{"as": ..., "text": ...}`), `headers`
        (pairs of name and text), `timestamp` (null is now). Returns the `offset`."""
        _check_members(body, ("topic", "partition", "key", "value", "headers", "timestamp"))
        headers = body.get("headers") or []
        if not isinstance(headers, list) or not all(
            isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each)
            for each in headers
        ):
            raise IllegalArgumentError("headers is not a list of pairs of a name and a text")
        topic = _text(body, "topic")
        partition = _number(body, "partition", 0, INT32_MAX)
        timestamp = body.get("timestamp")
        record = NewRecord(
            topic,
            partition,
            content_of(body.get("key"), "key"),
            content_of(body.get("value"), "value"),
            [(name, _encoded(text, "header")) for name, text in headers],
            None if timestamp is None else _number(body, "timestamp", 0, INT64_MAX),
        )
        return {"topic": topic, "partition": partition, "offset": self._cluster.append_record(record)}

    def create_topic(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a topic: `name`, `partitions`, `replication_factor`."""
        _check_members(body, ("name", "partitions", "replication_factor"))
        name = _text(body, "name")
        self._cluster.create_topic(
            name, _number(body, "partitions", 1, INT32_MAX), _number(body, "replication_factor", 1, 32_767)
        )
        return {"name": name}

    def change_broker(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Kill, stop or start a broker: `node_id`, `action`."""
        _check_members(body, ("node_id", "action"))
        node_id = _number(body, "node_id", 0, INT32_MAX)
        action = body.get("action")
        if action not in _BROKER_ACTIONS:
            raise IllegalArgumentError(f"action is {action!r}; give one of {', '.join(_BROKER_ACTIONS)}")
        with self._lock:
            if action == "kill":
                self._cluster.kill_broker(node_id)
            elif action == "stop":
                self._cluster.stop_broker(node_id)
            else:
                self._cluster.start_broker(node_id)
        return {"node_id": node_id, "action": action}

    def inject(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Inject a fault: `api` (null: every API), `kind` with what that needs (`FAULTS`), `topic` and `partition`,
        `times` (null: until it is removed), `node_id` (null: all brokers). Returns its `number`."""
        kind = body.get("kind")
        if not isinstance(kind, str) or kind not in FAULTS:
            raise IllegalArgumentError(f"kind is {kind!r}; give one of {', '.join(FAULTS)}")
        needs, arguments = FAULTS[kind]
        _check_members(body, ("api", "kind", "topic", "partition", "times", "node_id", *needs))
        api = body.get("api")
        if api is not None and (not isinstance(api, str) or api not in ApiKey.__members__ or ApiKey[api] not in apis):
            raise IllegalArgumentError(f"api is {api!r}; give one of those that the broker serves, or null for all")
        fault = Fault(
            **arguments(body),
            topic=None if body.get("topic") is None else _text(body, "topic"),
            partition=None if body.get("partition") is None else _number(body, "partition", 0, INT32_MAX),
        )
        injected = self._cluster.inject(
            None if api is None else ApiKey[api],
            fault,
            times=None if body.get("times") is None else _number(body, "times", 1, INT32_MAX),
            node_id=None if body.get("node_id") is None else _number(body, "node_id", 0, INT32_MAX),
        )
        return {"number": injected.number}

    def remove_fault(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Remove a fault by its `number`."""
        _check_members(body, ("number",))
        number = _number(body, "number", 0, INT64_MAX)
        for each in self._cluster.faults:
            if each.number == number:
                each.remove()
                return {"number": number}
        raise IllegalArgumentError(f"there is no fault with the number {number}; it has been removed already")


def choices() -> dict[str, Any]:
    """What the page's forms offer: the APIs, with the most used ones first, and Kafka's errors."""
    first = ("PRODUCE", "FETCH", "METADATA", "INIT_PRODUCER_ID", "END_TXN", "FIND_COORDINATOR")
    names = sorted(each.name for each in apis)
    return {
        "apis": [*(each for each in first if each in names), *(each for each in names if each not in first)],
        "errors": sorted(str(each.message) for each in error_classes().values() if each.code > 0),
    }


def content_of(given: object, name: str) -> bytes | None:
    """The bytes of a key or value from the form: text, checked JSON, or hexadecimal digits. Raises
    IllegalArgumentError."""
    if given is None:
        return None
    if not isinstance(given, dict) or set(given) != {"as", "text"} or not isinstance(given["text"], str):
        raise IllegalArgumentError(f'{name} is not null or an object such as {{"as": "text", "text": "..."}}')
    text = given["text"]
    if given["as"] == "text":
        return _encoded(text, name)
    if given["as"] == "json":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as wrong:
            raise IllegalArgumentError(f"the {name} is not JSON: {wrong}") from wrong
        return _encoded(text, name)
    if given["as"] == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError as wrong:
            raise IllegalArgumentError(
                f"the {name} is not hexadecimal ({wrong}); give pairs of digits such as 00 ff"
            ) from wrong
    raise IllegalArgumentError(f"the {name} is given as {given['as']!r}; give text, json or hex")


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as wrong:
        raise IllegalArgumentError(f"the {name} has half of a surrogate pair, which UTF-8 can't encode") from wrong


def _error(body: Mapping[str, Any]) -> Any:
    wanted = body.get("error")
    for each in error_classes().values():
        if each.message == wanted:
            return each
    raise IllegalArgumentError(f"error is {wanted!r}; give Kafka's name, such as NOT_LEADER_FOR_PARTITION")


def _check_members(body: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise IllegalArgumentError(f"{', '.join(unknown)} would have no effect here; give {', '.join(known)}")


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise IllegalArgumentError(f"{name} is {value!r}; give some text")
    return value


def _number(body: Mapping[str, Any], name: str, least: int, most: int = INT32_MAX) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise IllegalArgumentError(f"{name} is {value!r}; give a whole number from {least} to {most}")
    return value
