"""One connection to a broker that sends and receives messages or raw bytes."""

from __future__ import annotations

import socket
import struct
from typing import Any

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.message import Request
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.records.builder_cy import build_batch


class Wire:
    """One connection that sends and receives messages or raw bytes."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        host, port = cluster.bootstrap_servers.split(",")[0].split(":")
        self.sock = socket.create_connection((host, int(port)), 10)
        self.file = self.sock.makefile("rb")
        self.sent: list[tuple[type[Request], int]] = []

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.sock.close()

    def send(self, message: Request, version: int) -> None:
        self.sent.append((type(message), version))
        self.sock.sendall(
            b"".join(encode_request(message, version=version, correlation_id=len(self.sent), client_id="wire"))
        )

    def receive(self, number: int | None = None) -> Any:
        """The next response; it must be the one to request `number` (counted from 1)."""
        size = self.file.read(4)
        if len(size) < 4:
            return None
        body = self.file.read(struct.unpack(">i", size)[0])
        (correlation_id,) = struct.unpack_from(">i", body)
        assert number is None or correlation_id == number
        request, version = self.sent[correlation_id - 1]
        return decode_response(request, version, body)[1]

    def ask(self, message: Request, version: int) -> Any:
        self.send(message, version)
        return self.receive(len(self.sent))

    def ends(self) -> bool:
        """Whether the broker closes the connection without sending another byte."""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


def now_ms() -> int:
    return SYSTEM_CLOCK.wall_ms()


def produce(*partitions: int, topic: str = "t", acks: int = -1, value: bytes = b"v") -> ProduceRequest:
    data = [PartitionProduceData(index=each, records=build_batch([(now_ms(), b"k", value)])) for each in partitions]
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def codes(response: Any) -> list[int]:
    return [part.error_code for topic in response.responses for part in topic.partition_responses]


def fetch(offset: int, *, max_wait_ms: int = 0, min_bytes: int = 1, partition: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
