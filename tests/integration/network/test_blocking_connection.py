"""`BlockingConnection` over real sockets: responses, peers that misbehave instead of answering, and interruptions."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.requests import decode_request
from support.serving import Serve, serve
from support.waiting import JumpingClock

from headrace.broker import EmbeddedCluster
from headrace.network.addresses import Address
from headrace.network.client.blocking_connection import BlockingConnection, open_plaintext_socket
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    CorrelationIdError,
    DisconnectedError,
    EncodeError,
    InvalidReceiveError,
    KafkaConnectionError,
    KafkaError,
    MalformedMessageError,
    NotKafkaError,
    UnresolvableHostError,
    UnsupportedVersionError,
)
from headrace.network.protocol.frames import encode_response
from headrace.network.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse

__all__ = ["serve"]

METADATA_VERSION = 5
PATIENCE_MS = 30_000.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


def connection(port: int, **options: Any) -> BlockingConnection:
    given = {"client_id": "test", "timeout_ms": PATIENCE_MS, "max_response_bytes": 1_000_000, **options}
    return BlockingConnection(Address("127.0.0.1", port), **given)


def connection_to(cluster: EmbeddedCluster) -> BlockingConnection:
    return connection(int(cluster.bootstrap_servers.rpartition(":")[2]))


def read_frame(peer: socket.socket) -> bytes:
    with peer.makefile("rb") as file:
        (size,) = struct.unpack(">i", file.read(4))
        return file.read(size)


def metadata_frame(request: bytes, *, correlation_id: int | None = None) -> bytes:
    header, _ = decode_request(request)
    response = MetadataResponse(brokers=[], topics=[], cluster_id="the cluster", controller_id=7)
    number = header.correlation_id if correlation_id is None else correlation_id
    return b"".join(encode_response(response, version=header.api_version, correlation_id=number))


def ask(peer: BlockingConnection) -> MetadataResponse:
    return peer.request(MetadataRequest(topics=[]), METADATA_VERSION)


def test_the_newest_version_that_both_know_is_negotiated_once(cluster: EmbeddedCluster) -> None:
    peer = connection_to(cluster)
    for _ in range(2):
        assert peer.request(MetadataRequest(topics=[])).cluster_id == cluster.controller.image.cluster_id
    peer.close()
    mine = [each for each in cluster.requests if each.client_id == "test"]
    assert [each.api_key for each in mine] == [ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.METADATA]
    assert {each.api_version for each in mine[1:]} == {MetadataRequest.versions.max}


def test_a_connection_that_the_broker_closed_is_made_anew_by_the_next_request(cluster: EmbeddedCluster) -> None:
    peer = connection_to(cluster)
    peer.api_versions()
    cluster.close_connections(1)
    with pytest.raises(DisconnectedError):
        peer.request(MetadataRequest(topics=[]))
    assert peer.request(MetadataRequest(topics=[])).brokers
    peer.close()


def test_what_was_not_sent_leaves_the_connection_as_it_is(serve: Serve) -> None:
    accepted: list[socket.socket] = []

    def treat(peer: socket.socket) -> None:
        accepted.append(peer)
        versions = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4)]
        answer = ApiVersionsResponse(api_keys=versions)
        header, _ = decode_request(read_frame(peer))
        peer.sendall(b"".join(encode_response(answer, version=4, correlation_id=header.correlation_id)))
        peer.sendall(metadata_frame(read_frame(peer)))

    peer = connection(serve(treat))
    with pytest.raises(UnsupportedVersionError, match="does not support METADATA"):
        peer.request(MetadataRequest(topics=[]))
    with pytest.raises(EncodeError):
        peer.request(MetadataRequest(topics=[], allow_auto_topic_creation=False), 0)
    assert ask(peer).cluster_id == "the cluster"
    assert len(accepted) == 1
    peer.close()


def test_a_broker_without_the_newest_api_versions_is_asked_in_an_older_one(serve: Serve) -> None:
    asked: list[int] = []

    def treat(peer: socket.socket) -> None:
        for error in (UnsupportedVersionError.code, 0):
            header, _ = decode_request(read_frame(peer))
            asked.append(header.api_version)
            answer = ApiVersionsResponse(error_code=error, api_keys=[])
            peer.sendall(b"".join(encode_response(answer, version=0, correlation_id=header.correlation_id)))

    peer = connection(serve(treat))
    assert peer.api_versions().range_of(ApiKey.METADATA) is None
    assert asked == [ApiVersionsRequest.versions.max, 0]
    peer.close()


def in_small_pieces(peer: socket.socket, request: bytes) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in metadata_frame(request):
        peer.sendall(bytes([byte]))


def test_an_answer_may_come_in_pieces(serve: Serve) -> None:
    peer = connection(serve(lambda sock: in_small_pieces(sock, read_frame(sock))))
    assert ask(peer).controller_id == 7
    peer.close()


Answer = Callable[[socket.socket, bytes], object]
WRONG: dict[str, tuple[Answer, type[KafkaError], str]] = {
    "http": (lambda peer, _: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), NotKafkaError, "an HTTP server"),
    "nothing": (lambda peer, _: None, DisconnectedError, "closed the connection; it had not answered anything"),
    "part of a length": (lambda peer, _: peer.sendall(b"\x00\x00"), DisconnectedError, "inside a frame's length"),
    "part of an answer": (
        lambda peer, request: peer.sendall(metadata_frame(request)[:-1]),
        DisconnectedError,
        "inside a frame",
    ),
    "a negative length": (lambda peer, _: peer.sendall(b"\xff\xff\xff\xff\x80"), InvalidReceiveError, "is negative"),
    "too much": (lambda peer, _: peer.sendall(b"\x00\x0f\x42\x41\x80"), InvalidReceiveError, "limit of 1000000"),
    "garbage": (lambda peer, _: peer.sendall(b"\x00\x00\x00\x01x"), MalformedMessageError, "end within"),
    "the answer to another": (
        lambda peer, request: peer.sendall(metadata_frame(request, correlation_id=4711)),
        CorrelationIdError,
        "answered request 4711",
    ),
    "two answers": (
        lambda peer, request: peer.sendall(2 * metadata_frame(request)),
        CorrelationIdError,
        "sent 2 responses to one request",
    ),
}


@pytest.mark.parametrize(("answer", "error", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_a_typed_error_and_the_next_request_has_a_new_connection(
    serve: Serve, answer: Answer, error: type[KafkaError], said: str
) -> None:
    answers = iter([answer, lambda peer, request: peer.sendall(metadata_frame(request))])
    peer = connection(serve(lambda sock: next(answers)(sock, read_frame(sock))))
    with pytest.raises(error, match=said):
        ask(peer)
    assert ask(peer).cluster_id == "the cluster"
    peer.close()


def test_silence_ends_with_the_time_that_was_given(serve: Serve) -> None:
    end = threading.Event()
    peer = connection(serve(lambda sock: (read_frame(sock), end.wait())), timeout_ms=50.0)
    with pytest.raises(DisconnectedError, match="did not answer within 50 ms"):
        ask(peer)
    end.set()


def test_what_arrives_meanwhile_does_not_prolong_the_time(serve: Serve) -> None:
    clock, end = JumpingClock(), threading.Event()

    def treat(sock: socket.socket) -> None:
        frame = metadata_frame(read_frame(sock))
        sock.sendall(frame[:6])
        clock.ahead_ms = 2 * PATIENCE_MS
        sock.sendall(frame[6:-1])
        end.wait()

    with pytest.raises(DisconnectedError, match="did not answer within 30000 ms"):
        ask(connection(serve(treat), clock=clock))
    end.set()


def test_where_nobody_listens_and_where_no_name_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(KafkaConnectionError, match=f"cannot connect to 127.0.0.1:{port}: .*nothing listens there"):
        ask(connection(port))
    with pytest.raises(UnresolvableHostError):
        open_plaintext_socket(Address("no-such-host.invalid", 9092), 1.0)


def test_an_interrupted_request_fails_at_once_and_so_do_others_until_it_is_rearmed(serve: Serve) -> None:
    arrived, end = threading.Event(), threading.Event()

    def treat(sock: socket.socket) -> None:
        request = read_frame(sock)
        if not arrived.is_set():
            arrived.set()
            end.wait()
        else:
            sock.sendall(metadata_frame(request))

    peer = connection(serve(treat))
    failed: list[KafkaError] = []

    def wait_for_answer() -> None:
        try:
            ask(peer)
        except KafkaError as error:
            failed.append(error)

    thread = threading.Thread(target=wait_for_answer)
    thread.start()
    arrived.wait()
    peer.interrupt()
    thread.join()
    assert [str(error) for error in failed] == [f"the request to 127.0.0.1:{peer._address.port} was interrupted"]
    with pytest.raises(DisconnectedError, match="was interrupted"):
        ask(peer)
    peer.rearm()
    assert ask(peer).cluster_id == "the cluster"
    end.set()
    peer.close()
