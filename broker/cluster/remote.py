"""Controller calls between processes: lines of JSON over one socket pair per broker.

The controller's side (`BrokerLink`) answers calls and pushes images; the broker's side (`RemoteController`) looks like
a `Controller` to its broker. An image is sent before the response to the call that produced it, and applied before that
call returns, so a broker that creates a topic finds it in its image.

Requests of the cluster's process to a broker (`BrokerLink.ask`: faults, inspection) go the other way, pickled: both
ends are the same program, and no other process has the socket pair.
"""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import logging
import os
import pickle
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...network.protocol import errors
from ...network.protocol.errors import BrokerResponseError, DisconnectedError, KafkaError, make_error
from ..config.listeners import Listener
from ..controller.controller import Controller
from ..controller.controller_api import (
    ControllerApi,
    ElectionOutcome,
    IsrChange,
    MorePartitions,
    NewTopic,
    Reassignment,
    ScramDeletion,
    ScramUpsertion,
    TopicRef,
)
from ..log.files import decode_uuid, encode_uuid
from ..metadata import BrokerEndpoint, ClusterImage, PartitionState, TopicState
from ..security.acls import AclBinding, AclFilter
from ..security.users import Users, scram_from_json, scram_to_json
from ..timer import SerialExecutor

_log = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 30.0
_CLOSE_TIMEOUT_MS = 5_000.0


def encode_image(image: ClusterImage, known: ClusterImage | None) -> dict[str, Any]:
    """An image for JSON; only its changes if the other side has the previous image, `known`."""
    encoded: dict[str, Any] = {
        "version": image.version,
        "controller_id": image.controller_id,
        "brokers": [list(endpoint) for endpoint in image.brokers.values()],
        "deleted": [encode_uuid(topic_id) for topic_id in image.deleted],
        "configs": [[*resource, dict(configs)] for resource, configs in image.configs.items()],
        "passwords": dict(image.users.passwords),
        "scram": scram_to_json(image.users.scram),
        "features": dict(image.features),
    }
    if known is None or known.acls is not image.acls:
        encoded["acls"] = list(image.acls)
    if known is not None and known.version == image.version - 1:
        encoded["changes"] = {
            name: encode_topic(topic) if (topic := image.topics.get(name)) is not None else None
            for name in image.changed
        }
    else:
        encoded["cluster_id"] = image.cluster_id
        encoded["broker_token"] = image.broker_token
        encoded["topics"] = [encode_topic(topic) for topic in image.topics.values()]
    return encoded


def encode_topic(topic: TopicState) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": encode_uuid(topic.topic_id),
        "configs": dict(topic.configs),
        "partitions": [list(partition) for partition in topic.partitions],
    }


def decode_topic(entry: Mapping[str, Any]) -> TopicState:
    partitions = tuple(_partition(each) for each in entry["partitions"])
    return TopicState(entry["name"], decode_uuid(entry["topic_id"]), partitions, entry["configs"])


def _partition(fields: Sequence[Any]) -> PartitionState:
    replicas, isr, leader, leader_epoch, partition_epoch, *moving = fields
    return PartitionState(tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch, *map(tuple, moving))


def decode_endpoint(fields: Sequence[Any]) -> BrokerEndpoint:
    node_id, host, port, rack, listeners = fields
    return BrokerEndpoint(node_id, host, port, rack, tuple(Listener(*each) for each in listeners))


def decode_image(entry: Mapping[str, Any], before: ClusterImage | None) -> ClusterImage:
    """An image from JSON, based on the image `before` if the message has only the changes."""
    brokers = {fields[0]: decode_endpoint(fields) for fields in entry["brokers"]}
    deleted = frozenset(map(decode_uuid, entry["deleted"]))
    configs = {(kind, name): of for kind, name, of in entry["configs"]}
    acls = frozenset[AclBinding]() if before is None else before.acls
    if "acls" in entry:
        acls = frozenset(AclBinding(*fields) for fields in entry["acls"])
    users = Users(entry["passwords"], scram_from_json(entry["scram"]))
    if before is not None and "changes" in entry:
        changes = {name: None if topic is None else decode_topic(topic) for name, topic in entry["changes"].items()}
        changed = before.with_changes(changes, brokers)
        return replace(changed, deleted=deleted, configs=configs, acls=acls, users=users, features=entry["features"])
    topics = {each["name"]: decode_topic(each) for each in entry["topics"]}
    return ClusterImage(
        entry["cluster_id"],
        entry["version"],
        entry["controller_id"],
        brokers,
        topics,
        {topic.topic_id: name for name, topic in topics.items()},
        deleted=deleted,
        configs=configs,
        acls=acls,
        broker_token=entry["broker_token"],
        users=users,
        features=entry["features"],
    )


class _Lines:
    """Lines of JSON over a socket. `send` may be called from any thread, `receive` from one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._file = sock.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any] | None:
        """The next message; None if the other side is gone."""
        line = self._file.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def shut_down(self) -> None:
        """Make `receive` return on the thread that waits in it. Any thread."""
        with contextlib.suppress(OSError):  # the other side has closed first
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
        self._file.close()


class _Call:
    """A call that waits for its answer."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: dict[str, Any] | None = None

    def end(self, answer: dict[str, Any] | None) -> None:
        self.answer = answer
        self.done.set()


class _Pickler(pickle.Pickler):
    """Pickles error classes by their name in `network.protocol.errors`. Their `__module__`, which programs import them
    from, would make both ends load the producer."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and issubclass(obj, KafkaError) and getattr(errors, obj.__name__, None) is obj:
            return _error_class, (obj.__name__,)
        return NotImplemented


def _error_class(name: str) -> type[KafkaError]:
    return getattr(errors, name)


def to_text(value: object) -> str:
    """An object pickled as text, for another process of this program."""
    pickled = io.BytesIO()
    _Pickler(pickled).dump(value)
    return base64.b64encode(pickled.getvalue()).decode()


def from_text(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))


class BrokerLink:
    """The controller's side of the link to one broker: a thread that answers the broker's calls until it is gone."""

    def __init__(
        self, node_id: int, sock: socket.socket, controller: Controller, claim_fault: Callable[[int], bool]
    ) -> None:
        self.node_id = node_id
        self._claim_fault = claim_fault
        self.is_registered = threading.Event()
        self.is_gone = threading.Event()
        self.endpoint: BrokerEndpoint | None = None
        self.ports: dict[str, int] = {}
        #: Why the broker did not start, if it could report it.
        self.start_failure: KafkaError | None = None
        self.last_producer_id = -1
        self.pid = -1
        self._ids = itertools.count()
        self._calls_lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self.on_gone: Callable[[BrokerLink], None] = lambda _link: None
        self._controller = controller
        self._lines = _Lines(sock)
        self._sent = controller.image
        self._lines.send({"image": encode_image(self._sent, None)})
        self._thread = threading.Thread(target=self._serve, name=f"controller-broker-{node_id}", daemon=True)
        self._thread.start()

    def push(self, image: ClusterImage) -> Callable[[], None]:
        """Send an image; ignored if the broker is gone."""
        try:
            self._lines.send({"image": encode_image(image, self._sent)})
            self._sent = image
        except OSError:
            _log.debug("broker %d is gone", self.node_id)
        return lambda: None

    def _serve(self) -> None:
        try:
            while (message := self._lines.receive()) is not None:
                if "register" in message:
                    self.endpoint = decode_endpoint(message["register"])
                    self.ports = message["ports"]
                    self.last_producer_id = message["last_producer_id"]
                    self.pid = message["pid"]
                    self.is_registered.set()
                elif "start_failure" in message:
                    self.start_failure = from_text(message["start_failure"])
                elif "answered" in message:
                    call = self._calls.pop(message["answered"], None)
                    if call is not None:
                        call.end(message)
                else:
                    self._lines.send({"id": message["id"], **self._answer(message["call"], message["arguments"])})
        except (OSError, ValueError) as failed:
            _log.debug("broker %d is gone: %s", self.node_id, failed)
        with self._calls_lock:
            self.is_gone.set()
            calls, self._calls = self._calls, {}
        for call in calls.values():
            call.end(None)
        self.is_registered.set()
        self._lines.close()
        self.on_gone(self)

    def wait_until_gone(self, timeout_s: float) -> None:
        """Wait until the link is closed and other brokers have taken over."""
        self._thread.join(timeout_s)

    def ask(self, what: str, *arguments: Any, timeout_s: float = _CALL_TIMEOUT_S) -> Any:
        """Call a method of the broker's process and block for its result, at most `timeout_s`. Raises the errors of
        that method, and DisconnectedError if the broker is gone. Any thread but the link's own."""
        call = _Call()
        call_id = next(self._ids)
        with self._calls_lock:
            if self.is_gone.is_set():
                raise DisconnectedError(f"broker {self.node_id} is gone")
            self._calls[call_id] = call
        try:
            self._lines.send({"ask": call_id, "pickled": to_text((what, arguments))})
        except OSError as failed:
            raise DisconnectedError(f"broker {self.node_id} is gone: {failed}") from failed
        if not call.done.wait(timeout_s) or call.answer is None:
            self._calls.pop(call_id, None)
            raise DisconnectedError(f"broker {self.node_id} doesn't answer")
        failed, result = from_text(call.answer["pickled"])
        if failed is not None:
            raise failed
        return result

    def _answer(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if call == "claim_fault":
            return {"result": self._claim_fault(arguments["number"])}
        try:
            return {"result": _CALLS[call](self._controller, **arguments)}
        except BrokerResponseError as error:
            return _refusal(error)


def _create_topics(controller: Controller, topics: list[list[Any]], validate_only: bool) -> list[dict[str, Any]]:
    asked = []
    for fields in topics:
        topic = NewTopic(*fields)
        numbered = {int(index): replicas for index, replicas in (topic.assignments or {}).items()}
        asked.append(topic._replace(assignments=numbered))
    return encode_outcomes(controller.create_topics(asked, validate_only=validate_only))


def _create_partitions(controller: Controller, topics: list[list[Any]], validate_only: bool) -> list[dict[str, Any]]:
    asked = [MorePartitions(*fields) for fields in topics]
    return encode_outcomes(controller.create_partitions(asked, validate_only=validate_only))


def _delete_topics(controller: Controller, topics: list[list[Any]]) -> list[dict[str, Any]]:
    asked = [TopicRef(name, decode_uuid(topic_id) if topic_id else None) for name, topic_id in topics]
    return encode_outcomes(controller.delete_topics(asked))


def _alter_isrs(controller: Controller, changes: list[list[Any]]) -> list[Any]:
    outcomes = controller.alter_isrs([IsrChange(*fields) for fields in changes])
    return [_refusal(each) if isinstance(each, BrokerResponseError) else list(each) for each in outcomes]


def _alter_reassignments(controller: Controller, changes: list[list[Any]], allow_factor_change: bool) -> list[Any]:
    asked = [Reassignment(*fields) for fields in changes]
    outcomes = controller.alter_reassignments(asked, allow_factor_change=allow_factor_change)
    return [_refusal(each) if isinstance(each, BrokerResponseError) else list(each) for each in outcomes]


def _elect_leaders(controller: Controller, partitions: list[list[Any]] | None, is_unclean: bool) -> list[Any]:
    asked = None if partitions is None else [(topic, index) for topic, index in partitions]
    outcomes = controller.elect_leaders(asked, is_unclean=is_unclean)
    return [(topic, index, None if error is None else _refusal(error)) for topic, index, error in outcomes]


def _create_acls(controller: Controller, acls: list[list[Any]]) -> list[Any]:
    outcomes = controller.create_acls([AclBinding(*fields) for fields in acls])
    return [_refusal(each) if isinstance(each, BrokerResponseError) else list(each) for each in outcomes]


def _delete_acls(controller: Controller, filters: list[list[Any]]) -> list[Any]:
    outcomes = controller.delete_acls([AclFilter(*fields) for fields in filters])
    return [_refusal(each) if isinstance(each, BrokerResponseError) else each for each in outcomes]


def _alter_scram(controller: Controller, deletions: list[list[Any]], upsertions: list[list[Any]]) -> dict[str, Any]:
    stored = [
        ScramUpsertion(name, type_id, iterations, base64.b64decode(salt), base64.b64decode(salted))
        for name, type_id, iterations, salt, salted in upsertions
    ]
    errors = controller.alter_scram([ScramDeletion(*each) for each in deletions], stored)
    return {name: _refusal(error) for name, error in errors.items()}


def _refusal(error: BrokerResponseError) -> dict[str, Any]:
    return {"error": error.code, "message": str(error)}


def encode_outcomes(outcomes: Sequence[TopicState | BrokerResponseError]) -> list[dict[str, Any]]:
    return [_refusal(each) if isinstance(each, BrokerResponseError) else encode_topic(each) for each in outcomes]


def decode_outcomes(entries: Sequence[Mapping[str, Any]]) -> list[TopicState | BrokerResponseError]:
    return [
        make_error(entry["error"], entry["message"]) if "error" in entry else decode_topic(entry) for entry in entries
    ]


def _decode_partitions(entries: Sequence[Any]) -> list[PartitionState | BrokerResponseError]:
    return [
        make_error(each["error"], each["message"]) if isinstance(each, dict) else _partition(each) for each in entries
    ]


_CALLS: dict[str, Callable[..., Any]] = {
    "create_topics": _create_topics,
    "delete_topics": _delete_topics,
    "create_partitions": _create_partitions,
    "set_topic_configs": Controller.set_topic_configs,
    "set_resource_configs": Controller.set_resource_configs,
    "elect_leaders": _elect_leaders,
    "alter_reassignments": _alter_reassignments,
    "alter_isrs": _alter_isrs,
    "create_acls": _create_acls,
    "delete_acls": _delete_acls,
    "alter_scram": _alter_scram,
    "update_features": Controller.update_features,
    "allocate_producer_ids": Controller.allocate_producer_ids,
}


class RemoteController(ControllerApi):
    """The controller for a broker in another process. Any thread but the one that applies images.

    Each method raises the errors of the controller's method, and DisconnectedError if the controller is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._lines = _Lines(sock)
        first = self._lines.receive()
        if first is None:
            raise DisconnectedError("the controller closed the link before it sent an image")
        self.image = decode_image(first["image"], None)
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._on_image: Callable[[ClusterImage], Callable[[], None]] | None = None
        self._on_ask: Callable[..., Any] | None = None
        # On another thread than the images, so that reading a whole log doesn't delay them.
        self._asked = SerialExecutor("controller-asks")
        self.is_gone = threading.Event()
        self._thread = threading.Thread(target=self._read, name="controller-link", daemon=True)

    def register(
        self,
        endpoint: BrokerEndpoint,
        ports: Mapping[str, int],
        last_producer_id: int,
        on_image: Callable[[ClusterImage], Callable[[], None]],
        on_ask: Callable[..., Any],
    ) -> None:
        """Register this broker as alive. From now on it applies images with `on_image` and answers requests of the
        cluster's process with `on_ask(what, *arguments)`."""
        self._on_image = on_image
        self._on_ask = on_ask
        self._lines.send(
            {
                "register": list(endpoint),
                "ports": dict(ports),
                "last_producer_id": last_producer_id,
                "pid": os.getpid(),
            }
        )
        self._thread.start()

    def report_start_failure(self, error: KafkaError) -> None:
        """Report, instead of `register`, that this broker could not start and its process ends."""
        with contextlib.suppress(OSError):  # the controller is gone, too
            self._lines.send({"start_failure": to_text(error)})

    def _read(self) -> None:
        try:
            while (message := self._lines.receive()) is not None:
                if "image" in message:
                    self.image = decode_image(message["image"], self.image)
                    if self._on_image is not None:
                        self._on_image(self.image)()
                    continue
                if "ask" in message:
                    self._asked.submit(partial(self._tell, message))
                    continue
                call = self._calls.pop(message["id"], None)
                if call is not None:
                    call.end(message)
        except (OSError, ValueError) as failed:
            _log.debug("the controller is gone: %s", failed)
        self.is_gone.set()
        with self._lock:
            calls, self._calls = self._calls, {}
        for call in calls.values():
            call.end(None)

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._on_ask is not None
        what, arguments = from_text(message["pickled"])
        try:
            outcome = (None, self._on_ask(what, *arguments))
        except KafkaError as failed:
            outcome = (failed, None)
        with contextlib.suppress(OSError):  # the caller is gone
            self._lines.send({"answered": message["ask"], "pickled": to_text(outcome)})

    def claim_fault(self, number: int) -> bool:
        """Whether an injected fault still applies; if so, this counts one hit."""
        return self._call("claim_fault", number=number)

    def _call(self, call_name: str, /, **arguments: Any) -> Any:
        call = _Call()
        call_id = next(self._ids)
        with self._lock:
            self._calls[call_id] = call
        try:
            self._lines.send({"id": call_id, "call": call_name, "arguments": arguments})
        except OSError as failed:
            raise DisconnectedError(f"the controller is gone: {failed}") from failed
        if not call.done.wait(_CALL_TIMEOUT_S) or call.answer is None:
            self._calls.pop(call_id, None)
            raise DisconnectedError("the controller doesn't answer")
        if "error" in call.answer:
            raise make_error(call.answer["error"], call.answer["message"])
        return call.answer["result"]

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        return decode_outcomes(self._call("create_topics", topics=topics, validate_only=validate_only))

    def delete_topics(self, topics: Sequence[TopicRef]) -> list[TopicState | BrokerResponseError]:
        asked = [(name, encode_uuid(topic_id) if topic_id is not None else None) for name, topic_id in topics]
        return decode_outcomes(self._call("delete_topics", topics=asked))

    def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        return decode_outcomes(self._call("create_partitions", topics=topics, validate_only=validate_only))

    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        self._call("set_topic_configs", name=name, configs=dict(configs), validate_only=validate_only)

    def set_resource_configs(
        self, resource_type: int, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        arguments = {"resource_type": resource_type, "name": name, "configs": dict(configs)}
        self._call("set_resource_configs", **arguments, validate_only=validate_only)

    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]] | None, *, is_unclean: bool = False
    ) -> list[ElectionOutcome]:
        return [
            ElectionOutcome(topic, index, None if refusal is None else make_error(refusal["error"], refusal["message"]))
            for topic, index, refusal in self._call("elect_leaders", partitions=partitions, is_unclean=is_unclean)
        ]

    def alter_reassignments(
        self, changes: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> list[PartitionState | BrokerResponseError]:
        return _decode_partitions(
            self._call("alter_reassignments", changes=changes, allow_factor_change=allow_factor_change)
        )

    def alter_isrs(self, changes: Sequence[IsrChange]) -> list[PartitionState | BrokerResponseError]:
        return _decode_partitions(self._call("alter_isrs", changes=changes))

    def create_acls(self, acls: Sequence[AclBinding]) -> list[AclBinding | BrokerResponseError]:
        return [
            make_error(each["error"], each["message"]) if isinstance(each, dict) else AclBinding(*each)
            for each in self._call("create_acls", acls=acls)
        ]

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | BrokerResponseError]:
        return [
            make_error(each["error"], each["message"])
            if isinstance(each, dict)
            else [AclBinding(*fields) for fields in each]
            for each in self._call("delete_acls", filters=filters)
        ]

    def alter_scram(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> dict[str, BrokerResponseError]:
        stored = [
            (name, type_id, iterations, base64.b64encode(salt).decode(), base64.b64encode(salted).decode())
            for name, type_id, iterations, salt, salted in upsertions
        ]
        errors = self._call("alter_scram", deletions=deletions, upsertions=stored)
        return {name: make_error(each["error"], each["message"]) for name, each in errors.items()}

    def update_features(self, features: Mapping[str, int]) -> None:
        self._call("update_features", features=dict(features))

    def allocate_producer_ids(self) -> tuple[int, int]:
        first, count = self._call("allocate_producer_ids")
        return first, count

    def close(self) -> None:
        """Close the link, which the controller treats as the end of the broker."""
        self._lines.shut_down()
        self._thread.join()
        self._asked.close(_CLOSE_TIMEOUT_MS)
        self._lines.close()
