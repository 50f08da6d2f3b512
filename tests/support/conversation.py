"""One broker, sent single requests; its answers are kept in a form that can be compared with another broker's."""

from __future__ import annotations

import contextlib
import socket
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.message import fields_of
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.groups.heartbeat import HeartbeatRequest
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.network.protocol.messages.records.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.network.records.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, read_batches
from headrace.network.records.builder_cy import build_batch
from headrace.network.records.crc import crc32c

NOW_MS = 1_700_000_000_000
#: Texts and addresses that differ between brokers.
NOT_COMPARED = {
    *("throttle_time_ms", "error_message", "batch_index_error_message", "host", "port", "cluster_id", "client_host"),
    *("brokers", "node_endpoints", "documentation"),
}
#: Drawn at random, so replaced by the order of first appearance.
DRAWN = {"topic_id", "producer_id", "member_id", "leader", "session_id"}
TIMEOUT_S = 30.0


class Conversation:
    """The requests to one broker, and its answers in comparable form."""

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        host, _, port = bootstrap_servers.partition(":")
        self._address = (host, int(port))
        self._sockets: dict[str, socket.socket] = {}
        self._drawn: dict[tuple[str, object], str] = {}
        self._waiting: dict[str, tuple[str, Any, int]] = {}
        self.prefix = prefix
        #: The address that a connection is made from, by its name; the system's choice for all others.
        self.sources: dict[str, str] = {}
        self.answers: list[tuple[str, Any]] = []

    def __repr__(self) -> str:
        return "the broker at {}:{}".format(*self._address)

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()

    def send(self, label: str, message: Any, version: int, *, on: str = "") -> None:
        """Send a request on the connection named `on`, without waiting for the answer."""
        if on not in self._sockets:
            source = (self.sources[on], 0) if on in self.sources else None
            self._sockets[on] = socket.create_connection(self._address, TIMEOUT_S, source)
        self._sockets[on].sendall(
            b"".join(encode_request(message, version=version, correlation_id=1, client_id="differential"))
        )
        self._waiting[on] = (label, type(message), version)

    def receive(self, *, on: str = "") -> Any:
        """The answer to the last request on that connection; None if the broker closed it."""
        label, request, version = self._waiting.pop(on)
        content = self._frame(self._sockets[on])
        if content is None:
            self._sockets.pop(on).close()
            self.answers.append((label, "closed"))
            return None
        answer = decode_response(request, version, memoryview(content))[1]
        self.answers.append((label, self._comparable(answer, version)))
        return answer

    def ask(self, label: str, message: Any, version: int, *, on: str = "") -> Any:
        self.send(label, message, version, on=on)
        return self.receive(on=on)

    @staticmethod
    def _frame(sock: socket.socket) -> bytes | None:
        with sock.makefile("rb") as file:
            head = file.read(4)
            return file.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None

    def _comparable(self, value: Any, version: int, name: str = "") -> Any:
        if isinstance(value, list):
            told = [self._comparable(each, version, name) for each in value]
            # Kafka lists them in the order of a hash table whose keys are random ids.
            return sorted(told, key=lambda member: member["member_id"]) if name == "members" else told
        if hasattr(type(value), "__codecs__"):
            # With an error, it is arbitrary whether aborted transactions are an empty list or null.
            left_out = {*NOT_COMPARED, "aborted_transactions"} if getattr(value, "error_code", 0) else NOT_COMPARED
            return {
                spec.name: self._comparable(getattr(value, spec.name), version, spec.name)
                for spec in fields_of(type(value))
                if version in spec.versions and spec.name not in left_out
            }
        if name == "records":
            return [(each.base_offset, each.last_offset, each.size_bytes) for each in read_batches(value or b"")]
        # session id 0 means no session, but a cluster's first producer id is 0
        if name in DRAWN and (value != 0 or name == "producer_id") and value not in (-1, "", None, uuid.UUID(int=0)):
            kind = "member_id" if name == "leader" else name
            return self._drawn.setdefault((kind, value), f"{kind} {sum(key[0] == kind for key in self._drawn)}")
        if isinstance(value, str):
            return value.replace(self.prefix, "")
        return bytes(value) if isinstance(value, memoryview) else value

    # --- Shared by several scenarios ---

    def name(self, topic: str) -> str:
        """Each run has its own topics and groups."""
        return self.prefix + topic

    def create(self, topic: str, partitions: int = 1, **configs: str) -> uuid.UUID:
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        made = CreatableTopic(name=self.name(topic), num_partitions=partitions, replication_factor=1, configs=settings)
        answer = self.ask(f"create {topic}", CreateTopicsRequest(topics=[made]), 7)
        self.forget_configs()
        # Kafka answers once the controller has created it; the broker becomes its leader a moment later.
        last = [ListOffsetsPartition(partition_index=at, timestamp=-1) for at in range(partitions)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self.name(topic), partitions=last)])
        self._ask_until_ready(request, 7, lambda told: any(each.error_code for each in told.topics[0].partitions))
        return answer.topics[0].topic_id

    def forget_configs(self) -> None:
        """Drop the configurations: the keys of a topic and their defaults differ between brokers."""
        for topic in self.answers[-1][1]["topics"]:
            topic.pop("configs", None)

    def _ask_until_ready(self, message: Any, version: int, is_early: Callable[[Any], bool]) -> None:
        while is_early(self.ask("early", message, version)):
            self.answers.pop()
        self.answers.pop()

    def await_coordinator(self, group: str) -> None:
        """Wait until the broker has created and loaded the offsets topic."""
        self._ask_until_ready(FindCoordinatorRequest(key=group), 3, lambda told: told.error_code)
        beat = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
        self._ask_until_ready(beat, 4, lambda told: told.error_code in (14, 15, 16))

    def await_transaction_coordinator(self, transactional_id: str) -> None:
        """Wait until the broker has created and loaded the topic of transactions, which only this request creates."""
        asked = FindCoordinatorRequest(key=transactional_id, key_type=1)
        self._ask_until_ready(asked, 3, lambda told: told.error_code)

    def produce(self, label: str, topic: str, *batches: bytes, version: int = 9, acks: int = -1, partition: int = 0):
        data = TopicProduceData(
            name=self.name(topic), partition_data=[PartitionProduceData(index=partition, records=b"".join(batches))]
        )
        return self.ask(label, ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data]), version)

    def list_offsets(self, label: str, topic: str, timestamp: int, version: int = 7, **options: int) -> Any:
        asked = ListOffsetsPartition(partition_index=options.pop("partition", 0), timestamp=timestamp, **options)
        return self.ask(
            label, ListOffsetsRequest(topics=[ListOffsetsTopic(name=self.name(topic), partitions=[asked])]), version
        )

    def fetch(self, label: str, topic: str, offset: int, *, version: int = 12, **options: Any) -> Any:
        partition = FetchPartition(
            partition=options.pop("partition", 0),
            fetch_offset=offset,
            partition_max_bytes=options.pop("partition_max_bytes", 2**20),
            **{key: options.pop(key) for key in ("current_leader_epoch", "last_fetched_epoch") if key in options},
        )
        asked = FetchTopic(
            topic=self.name(topic), topic_id=options.pop("topic_id", uuid.UUID(int=0)), partitions=[partition]
        )
        request = FetchRequest(
            max_wait_ms=options.pop("max_wait_ms", 0), min_bytes=options.pop("min_bytes", 1), topics=[asked], **options
        )
        return self.ask(label, request, version)


def records(count: int = 1, *, key: bytes | None = b"key", start: int = NOW_MS, step: int = 10, **header: Any) -> bytes:
    return bytes(build_batch([(start + at * step, key, b"value %d" % at) for at in range(count)], **header))


def changed(batch: bytes, position: int, layout: str, value: int, *, seal: bool = True) -> bytes:
    """A batch with one header field changed, and with a matching CRC unless `seal` is false."""
    buffer = bytearray(batch)
    struct.pack_into(layout, buffer, position, value)
    if seal:
        struct.pack_into(">I", buffer, CRC_OFFSET, crc32c(memoryview(buffer)[ATTRIBUTES_OFFSET:]))
    return bytes(buffer)


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """The differences between two answers, one line each."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            yield from differences(value, found.get(key), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for at, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{path}[{at}]")
    elif expected != found:
        yield f"{path}: {expected!r} | {found!r}"


Scenario = Callable[[Conversation], None]


def compare(theirs: str, ours: str, scenario: Scenario) -> list[str]:
    """The differences between two brokers' answers to a scenario, one line each."""
    prefix = f"d{uuid.uuid4().hex[:8]}-"
    answers = []
    for bootstrap_servers in (theirs, ours):
        with contextlib.closing(Conversation(bootstrap_servers, prefix)) as broker:
            scenario(broker)
        answers.append(broker.answers)
    expected, found = answers
    assert [label for label, _ in found] == [label for label, _ in expected]
    return [
        f"{label}: {difference}"
        for (label, one), (_, other) in zip(expected, found, strict=True)
        for difference in differences(one, other)
    ]
