"""Long and waiting requests are handled on their own thread: they delay their connection, but no other."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.broker.replica.fetch import FetchEntry
from headrace.broker.services.fetch_sessions import FetchSessions
from headrace.network.clock import SYSTEM_CLOCK, MockClock
from headrace.network.protocol.errors import UnknownError
from headrace.network.protocol.frames import MAX_REQUEST_ELEMENTS, decode_response, encode_request
from headrace.network.protocol.message import Request
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.network.protocol.messages.records.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.network.protocol.other_errors import FetchSessionIdNotFoundError
from headrace.network.protocol.types import ZERO_UUID
from headrace.network.records.builder_cy import build_batch

PATIENCE_S = 30.0
MANY = 5_000


class Client:
    """One connection that can send several requests before it reads a response."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        host, port = cluster.bootstrap_servers.split(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, *messages: tuple[Request, int]) -> None:
        frames = (encode_request(each, version=version, correlation_id=1, client_id="c") for each, version in messages)
        self.socket.sendall(b"".join(bytes(part) for frame in frames for part in frame))

    def receive(self, request: type[Request], version: int):
        (size,) = struct.unpack(">i", self._file.read(4))
        return decode_response(request, version, self._file.read(size))[1]

    def is_ended(self) -> bool:
        return self._file.read(1) == b""


def api_versions() -> tuple[Request, int]:
    return ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3


def list_offsets(count: int, topic: str = "t") -> tuple[Request, int]:
    parts = [ListOffsetsPartition(partition_index=index % 2, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)]), 5


def fetch(count: int, *, max_wait_ms: int, session_id: int = 0, epoch: int = -1) -> tuple[Request, int]:
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000) for _ in range(count)]
    topics = [FetchTopic(topic="t", partitions=parts)] if parts else []
    return (
        FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics),
        11,
    )


def produce(value: bytes = b"v") -> tuple[Request, int]:
    data = PartitionProduceData(index=0, records=build_batch([(SYSTEM_CLOCK.wall_ms(), None, value)]))
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=[data])]), 9


def create_topic(name: str) -> tuple[Request, int]:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5


@pytest.fixture
def cluster():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 2)
        yield cluster


class Held:
    """Blocks the thread that handles a request of an API, until `release`."""

    def __init__(self, cluster: EmbeddedCluster, api_key: ApiKey) -> None:
        self.is_there = threading.Event()
        self._go_on = threading.Event()
        cluster.on_request(api_key, self._hold)

    def _hold(self, _context: object, _message: object) -> None:
        self.is_there.set()
        assert self._go_on.wait(PATIENCE_S)

    def release(self) -> None:
        self._go_on.set()


@pytest.mark.parametrize(
    ("slow", "api_key"),
    [
        (list_offsets(MANY), ApiKey.LIST_OFFSETS),
        (fetch(MANY, max_wait_ms=0), ApiKey.FETCH),
        (create_topic("new"), ApiKey.CREATE_TOPICS),
        ((MetadataRequest(topics=None), 9), ApiKey.METADATA),
    ],
    ids=["many partitions", "a long fetch", "topics to make", "the whole cluster"],
)
def test_others_are_served_while_a_request_takes_its_time(cluster, slow, api_key):
    held = Held(cluster, api_key)
    with Client(cluster) as patient, Client(cluster) as other:
        patient.send(slow)
        assert held.is_there.wait(PATIENCE_S)
        for _ in range(10):
            other.send(api_versions())
            assert other.receive(ApiVersionsRequest, 3).error_code == 0
        other.send(produce())
        assert other.receive(ProduceRequest, 9).responses[0].partition_responses[0].error_code == 0
        held.release()
        patient.receive(type(slow[0]), slow[1])


def test_a_connections_requests_are_handled_in_their_order(cluster):
    """Records sent after a long request are appended and answered after it."""
    ends: list[int] = []
    log = cluster.broker(1).replicas.partition(("t", 0)).log
    held = Held(cluster, ApiKey.LIST_OFFSETS)
    with Client(cluster) as client:
        client.send(produce(b"0"), list_offsets(MANY), produce(b"1"), list_offsets(MANY), produce(b"2"))
        assert held.is_there.wait(PATIENCE_S)
        ends.append(log.end.offset)
        held.release()
        assert client.receive(ProduceRequest, 9).responses[0].partition_responses[0].base_offset == 0
        for expected in (1, 2):
            topic = client.receive(ListOffsetsRequest, 5).topics[0]
            assert len(topic.partitions) == MANY
            assert topic.partitions[0].offset == expected
            assert client.receive(ProduceRequest, 9).responses[0].partition_responses[0].base_offset == expected
    assert ends == [1]


def test_a_long_request_that_fails_or_is_cut_ends_its_connection_only(cluster):
    with cluster.inject(ApiKey.LIST_OFFSETS, Fault(close=True)), Client(cluster) as client:
        client.send(list_offsets(MANY))
        assert client.is_ended()
    with cluster.inject(ApiKey.LIST_OFFSETS, Fault(error=UnknownError)), Client(cluster) as client:
        client.send(list_offsets(MANY), api_versions())
        codes = {part.error_code for part in client.receive(ListOffsetsRequest, 5).topics[0].partitions}
        assert codes == {UnknownError.code}
        assert client.receive(ApiVersionsRequest, 3).error_code == 0


def test_a_request_with_too_many_elements_ends_its_connection(cluster):
    with Client(cluster) as client, Client(cluster) as other:
        client.send(list_offsets(MAX_REQUEST_ELEMENTS))
        assert client.is_ended()
        other.send(list_offsets(MAX_REQUEST_ELEMENTS - 1))
        assert len(other.receive(ListOffsetsRequest, 5).topics[0].partitions) == MAX_REQUEST_ELEMENTS - 1


def test_a_client_that_leaves_during_its_long_request_hurts_nobody(cluster):
    held = Held(cluster, ApiKey.LIST_OFFSETS)
    with Client(cluster) as client:
        client.send(list_offsets(MANY), list_offsets(1))
        assert held.is_there.wait(PATIENCE_S)
    with Client(cluster) as other:
        other.send(api_versions())
        assert other.receive(ApiVersionsRequest, 3).error_code == 0
        held.release()
        other.send(list_offsets(MANY))
        assert len(other.receive(ListOffsetsRequest, 5).topics[0].partitions) == MANY


def test_a_long_fetch_that_has_waited_is_answered_by_another_thread(cluster):
    """The thread that produces the records does not write the response for a fetch of thousands of partitions."""
    answering: list[str] = []
    replicas = cluster.broker(1).replicas.replicas
    read = replicas.read

    def spied(params, entries):
        answering.append(threading.current_thread().name)
        return read(params, entries)

    replicas.read = spied
    with Client(cluster) as client, Client(cluster) as other:
        client.send(fetch(MANY, max_wait_ms=int(PATIENCE_S * 1000)))
        while cluster.waiting()["Fetch"] == 0:
            threading.Event().wait(0.01)
        other.send(produce())
        assert other.receive(ProduceRequest, 9).responses[0].partition_responses[0].error_code == 0
        assert len(client.receive(FetchRequest, 11).responses[0].partitions) == MANY
    assert set(answering) == {"broker-1-requests"}


def entries(count: int, first: int = 0) -> list[FetchEntry]:
    return [FetchEntry(("t", first + index), ZERO_UUID, 0, 1000) for index in range(count)]


def test_fetch_sessions_remember_so_many_partitions_together():
    clock = MockClock()
    sessions = FetchSessions(100, clock, max_partitions=10)
    assert sessions.open(entries(11)) is None
    first = sessions.open(entries(6))
    assert first is not None
    assert sessions.open(entries(5)) is None
    second = sessions.open(entries(4))
    assert second is not None
    with pytest.raises(FetchSessionIdNotFoundError, match="too large"):
        sessions.resume(second.session_id, 1, entries(1, first=4), [])
    # the session that grew is closed, and its room is free again
    third = sessions.open(entries(4))
    assert third is not None
    sessions.resume(third.session_id, 1, [], [("t", 0)])
    sessions.close(first.session_id)
    assert sessions.open(entries(7)) is not None
    # sessions that were idle for long make room
    assert sessions.open(entries(10)) is None
    clock.advance(200_000)
    assert sessions.open(entries(10)) is not None
    assert len(sessions) == 1
