"""A controller in one process, its brokers in others: the same calls, as lines of JSON over a socket pair.

The controller's side (`BrokerLink`) answers calls and pushes images; the broker's side (`RemoteController`) looks
like a `Controller` to its broker. An image travels before the answer to the call that made it, and is taken before that
answer is given on, so a broker that made a topic knows it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..network.protocol.errors import BrokerResponseError, DisconnectedError, make_error
from .controller import Controller
from .log.files import decode_uuid, encode_uuid
from .metadata import BrokerEndpoint, ClusterImage, PartitionState, TopicState

_log = logging.getLogger(__name__)

_CALL_TIMEOUT_S = 30.0


def encode_image(image: ClusterImage) -> dict[str, Any]:
    """An image as JSON has it."""
    return {
        "cluster_id": image.cluster_id,
        "version": image.version,
        "controller_id": image.controller_id,
        "brokers": [list(endpoint) for endpoint in image.brokers.values()],
        "topics": [encode_topic(topic) for topic in image.topics.values()],
    }


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
    replicas, isr, *rest = fields
    return PartitionState(tuple(replicas), tuple(isr), *rest)


def decode_image(entry: Mapping[str, Any], before: ClusterImage | None) -> ClusterImage:
    """An image from JSON; topics that are as they were `before` stay the same objects, so that nobody looks at them."""
    topics = {}
    for each in entry["topics"]:
        topic = decode_topic(each)
        known = before.topics.get(topic.name) if before is not None else None
        topics[topic.name] = known if known == topic and known is not None else topic
    return ClusterImage(
        entry["cluster_id"],
        entry["version"],
        entry["controller_id"],
        {fields[0]: BrokerEndpoint(*fields) for fields in entry["brokers"]},
        topics,
        {topic.topic_id: name for name, topic in topics.items()},
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
        """The next message; None when the other side is gone."""
        line = self._file.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def shut_down(self) -> None:
        """Make `receive` return on whatever thread it waits. Any thread."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
        self._file.close()


class BrokerLink:
    """The controller's side of one broker: a thread that answers its calls until it is gone."""

    def __init__(self, node_id: int, sock: socket.socket, controller: Controller) -> None:
        self.node_id = node_id
        self.is_registered = threading.Event()
        self.is_gone = threading.Event()
        self.endpoint: BrokerEndpoint | None = None
        self.last_producer_id = -1
        self.on_gone: Callable[[BrokerLink], None] = lambda _link: None
        self._controller = controller
        self._lines = _Lines(sock)
        self._lines.send({"image": encode_image(controller.image)})
        self._thread = threading.Thread(target=self._serve, name=f"controller-broker-{node_id}", daemon=True)
        self._thread.start()

    def push(self, image: ClusterImage) -> Callable[[], None]:
        """Send an image; a broker that is gone doesn't need it."""
        try:
            self._lines.send({"image": encode_image(image)})
        except OSError:
            _log.debug("broker %d is gone", self.node_id)
        return lambda: None

    def _serve(self) -> None:
        try:
            while (message := self._lines.receive()) is not None:
                if "register" in message:
                    self.endpoint = BrokerEndpoint(*message["register"])
                    self.last_producer_id = message["last_producer_id"]
                    self.is_registered.set()
                else:
                    self._lines.send({"id": message["id"], **self._answer(message["call"], message["arguments"])})
        except (OSError, ValueError) as failed:
            _log.debug("broker %d is gone: %s", self.node_id, failed)
        self.is_gone.set()
        self.is_registered.set()
        self._lines.close()
        self.on_gone(self)

    def _answer(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"result": _CALLS[call](self._controller, **arguments)}
        except BrokerResponseError as error:
            return {"error": error.code, "message": str(error)}


def _create_topic(controller: Controller, **arguments: Any) -> dict[str, Any]:
    assignments = arguments.pop("assignments")
    numbered = {int(index): replicas for index, replicas in assignments.items()} if assignments else None
    return encode_topic(controller.create_topic(assignments=numbered, **arguments))


def _delete_topic(controller: Controller, name: str | None, topic_id: str | None) -> dict[str, Any]:
    return encode_topic(controller.delete_topic(name, decode_uuid(topic_id) if topic_id else None))


_CALLS: dict[str, Callable[..., Any]] = {
    "create_topic": _create_topic,
    "delete_topic": _delete_topic,
    "create_partitions": Controller.create_partitions,
    "set_topic_configs": Controller.set_topic_configs,
    "alter_isr": lambda controller, **arguments: list(controller.alter_isr(**arguments)),
    "allocate_producer_ids": Controller.allocate_producer_ids,
}


class _Call:
    """A call that waits for its answer."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer: dict[str, Any] | None = None


class RemoteController:
    """What a broker calls where its controller is in another process. Any thread but the one that takes images.

    Each method raises what the controller's own raises, and DisconnectedError where the controller is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._lines = _Lines(sock)
        first = self._lines.receive()
        if first is None:
            raise DisconnectedError("the controller is gone before it has said anything")
        self.image = decode_image(first["image"], None)
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._calls: dict[int, _Call] = {}
        self._on_image: Callable[[ClusterImage], Callable[[], None]] | None = None
        self.is_gone = threading.Event()
        self._thread = threading.Thread(target=self._read, name="controller-link", daemon=True)

    def register(
        self,
        endpoint: BrokerEndpoint,
        last_producer_id: int,
        on_image: Callable[[ClusterImage], Callable[[], None]],
    ) -> None:
        """This broker is alive, and takes images from now on."""
        self._on_image = on_image
        self._lines.send({"register": list(endpoint), "last_producer_id": last_producer_id})
        self._thread.start()

    def _read(self) -> None:
        try:
            while (message := self._lines.receive()) is not None:
                if "image" in message:
                    self.image = decode_image(message["image"], self.image)
                    if self._on_image is not None:
                        self._on_image(self.image)()
                    continue
                call = self._calls.pop(message["id"], None)
                if call is not None:
                    call.answer = message
                    call.done.set()
        except (OSError, ValueError) as failed:
            _log.debug("the controller is gone: %s", failed)
        self.is_gone.set()
        with self._lock:
            calls, self._calls = self._calls, {}
        for call in calls.values():
            call.done.set()

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

    def create_topic(
        self,
        name: str,
        *,
        num_partitions: int = -1,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicState:
        answer = self._call(
            "create_topic",
            name=name,
            num_partitions=num_partitions,
            replication_factor=replication_factor,
            assignments={index: list(replicas) for index, replicas in (assignments or {}).items()},
            configs=dict(configs or {}),
            validate_only=validate_only,
        )
        return decode_topic(answer)

    def delete_topic(self, name: str | None, topic_id: uuid.UUID | None = None) -> TopicState:
        return decode_topic(
            self._call("delete_topic", name=name, topic_id=encode_uuid(topic_id) if topic_id is not None else None)
        )

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False
    ) -> None:
        self._call("create_partitions", name=name, count=count, assignments=assignments, validate_only=validate_only)

    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        self._call("set_topic_configs", name=name, configs=dict(configs), validate_only=validate_only)

    def alter_isr(
        self, topic: str, index: int, leader: int, leader_epoch: int, partition_epoch: int, isr: Sequence[int]
    ) -> PartitionState:
        answer = self._call(
            "alter_isr",
            topic=topic,
            index=index,
            leader=leader,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            isr=list(isr),
        )
        return _partition(answer)

    def allocate_producer_ids(self) -> tuple[int, int]:
        first, count = self._call("allocate_producer_ids")
        return first, count

    def close(self) -> None:
        """End the link: the controller takes it as the broker's end."""
        self._lines.shut_down()
        self._thread.join()
        self._lines.close()
