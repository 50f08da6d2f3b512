"""What a hostile client can't do to a broker: end it, fill its memory, block others."""

from __future__ import annotations

import contextlib
import itertools
import logging
import resource
import select
import signal
import socket
import string
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.protocol_strategies import WIRE_VALUES, edits, instances, mutated

from headrace.broker import EmbeddedCluster
from headrace.broker.api import registry
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.api import ApiKey, requests
from headrace.network.protocol.errors import LeaderNotAvailableError
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.message import Request
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.network.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from headrace.network.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.network.records.builder_cy import build_batch

PATIENCE_S = 30.0
MIB = 2**20


def frame(message: Request, version: int, correlation_id: int = 1) -> bytes:
    return b"".join(encode_request(message, version=version, correlation_id=correlation_id, client_id="hostile"))


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="hostile", client_software_version="1")


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, PATIENCE_S)


def receive(sock: socket.socket, request: type[Request], version: int):
    with sock.makefile("rb") as file:
        size = file.read(4)
        assert len(size) == 4, "the broker closed the connection"
        body = file.read(struct.unpack(">i", size)[0])
    return decode_response(request, version, body)[1]


def ask(address: tuple[str, int], message: Request, version: int):
    with connect(address) as sock:
        sock.sendall(frame(message, version))
        return receive(sock, type(message), version)


def say_and_hang_up(address: tuple[str, int], content: bytes) -> None:
    """Send bytes, shut down the sending side, and wait until the broker closes the connection."""
    with connect(address) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(content)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


def produce(topic: str = "t", *, partition: int = 0, value: bytes = b"v") -> ProduceRequest:
    batch = build_batch([(SYSTEM_CLOCK.wall_ms(), b"k", value)])
    data = [PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def is_served(address: tuple[str, int]) -> bool:
    answer = ask(address, produce(), 9)
    return answer.responses[0].partition_responses[0].error_code == 0


# --- Requests of every API, in this process: a failing handler shows in the log ---


class Failures(logging.Handler):
    """The defects that the broker logs; it closes the connection concerned and continues."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(logging.Formatter().format(record))


@pytest.fixture(scope="module")
def failures() -> Iterator[Failures]:
    handler = Failures()
    logger = logging.getLogger("headrace.broker")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture(scope="module")
def target(failures: Failures) -> Iterator[tuple[EmbeddedCluster, tuple[str, int]]]:
    with EmbeddedCluster(socket_request_max_bytes=MIB, delete_topic_enable=False) as cluster:
        cluster.create_topic("t", 2)
        host, port = cluster.bootstrap_servers.split(":")
        yield cluster, (host, int(port))


bounded = settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
every_api = pytest.mark.parametrize("key", sorted(registry.apis), ids=lambda key: key.name)


def values_that_mean_something(cluster: EmbeddedCluster) -> dict[str, st.SearchStrategy]:
    """Names, ids, numbers and batches that pass a handler's first checks, among arbitrary ones."""
    whole = bytes(build_batch([(-1, b"k", b"v")]))
    texts = ["t", "t", "g", "1", "", "consumer", "range", "cleanup.policy", "retention.ms", "__consumer_offsets"]
    small = [0, 0, 1, 2, -1, -2, 4]
    return {
        **WIRE_VALUES,
        "string": st.sampled_from(texts) | WIRE_VALUES["string"],
        "uuid": st.just(cluster.controller.image.topics["t"].topic_id) | WIRE_VALUES["uuid"],
        "records": st.sampled_from([whole, whole * 2, whole[:-1], whole[:61], b""]) | WIRE_VALUES["records"],
        **{f"int{bits}": st.sampled_from(small) | WIRE_VALUES[f"int{bits}"] for bits in (8, 16, 32, 64)},
    }


@every_api
def test_any_request_that_can_be_read_is_answered_or_refused(target, failures, key):
    cluster, address = target
    versions, known = registry.apis[key].versions, values_that_mean_something(cluster)

    @bounded
    @given(data=st.data())
    def send_one(data: st.DataObject) -> None:
        version = data.draw(st.integers(versions.min, versions.max))
        values = known if data.draw(st.booleans()) else WIRE_VALUES
        say_and_hang_up(address, frame(data.draw(instances(requests[key], version, values)), version))
        assert failures.found == []

    send_one()
    assert is_served(address)


@every_api
def test_damaged_requests_hurt_nobody(target, failures, key):
    cluster, address = target
    versions, known = registry.apis[key].versions, values_that_mean_something(cluster)

    @bounded
    @given(data=st.data(), changes=edits)
    def send_one(data: st.DataObject, changes: list) -> None:
        version = data.draw(st.integers(versions.min, versions.max))
        whole = frame(data.draw(instances(requests[key], version, known)), version)
        damaged = mutated(whole[4:], changes)
        say_and_hang_up(address, struct.pack(">i", len(damaged)) + damaged)
        assert failures.found == []

    with connect(address) as other:
        send_one()
        other.sendall(frame(produce(), 9))
        assert receive(other, ProduceRequest, 9).responses[0].partition_responses[0].error_code == 0


def test_a_topic_by_id_where_the_version_knows_names_only(target, failures):
    cluster, address = target
    topic = MetadataRequestTopic(name=None, topic_id=cluster.controller.image.topics["t"].topic_id)
    for version, code in ((10, 42), (11, 42), (12, 0)):
        assert ask(address, MetadataRequest(topics=[topic]), version).topics[0].error_code == code
    assert failures.found == []


# --- A broker in its own process, with its memory watched ---


class Process:
    """`headrace broker`, and its memory usage."""

    def __init__(self, **config: object) -> None:
        options = [f"--config={key.replace('_', '.')}={value}" for key, value in config.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "broker", *options], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        host, port = self.process.stdout.readline().strip().partition("=")[2].split(":")
        self.address = (host, int(port))

    def memory_bytes(self) -> int:
        """The peak memory since its start."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

    def close(self) -> None:
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.stdout.close()
        assert self.process.wait(PATIENCE_S) == 0


needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    process = Process(queued_max_request_bytes=64 * MIB, auto_create_topics_enable="true")
    ask(
        process.address,
        CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=500, replication_factor=1)]),
        5,
    )
    yield process
    process.close()


@needs_proc
def test_half_frames_do_not_add_up(process: Process):
    before = process.memory_bytes()
    held = []
    try:
        for _ in range(12):
            sock = connect(process.address)
            held.append(sock)
            with contextlib.suppress(ConnectionError):
                sock.sendall(struct.pack(">i", 50 * MIB) + bytes(40 * MIB))
            assert is_served(process.address)
        # 480 MiB were sent; 64 may be kept, and one more buffer grows while its old one is copied
        assert process.memory_bytes() - before < 200 * MIB
        ended = select.select(held, [], [], 0)[0]
        assert len(ended) >= 10
    finally:
        for sock in held:
            sock.close()


LIES = {
    "a length of a gigabyte": struct.pack(">i", 2**30),
    "the largest length": struct.pack(">i", 2**31 - 1),
    "a negative length": struct.pack(">i", -5),
    "an empty frame": struct.pack(">i", 0),
    "HTTP": b"POST /topics/t HTTP/1.1\r\nContent-Length: 100000\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512),
    "a billion topics": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 10**9),
    "a billion topics in a compact array": struct.pack(">ihhihB", 17, 3, 9, 1, -1, 0) + b"\x80\x94\xeb\xdc\x03" + b"\0",
    "a billion tags": struct.pack(">ihhih", 15, 18, 3, 1, -1) + b"\xff\xff\xff\xff\x07",
    "a long text": struct.pack(">ihhihh", 12, 10, 0, 1, -1, 32767),
    "an unknown API": struct.pack(">ihhih", 10, 30_000, 0, 1, -1),
    "a negative version": struct.pack(">ihhih", 10, 0, -1, 1, -1),
}


@needs_proc
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_costs_its_teller_the_connection(process: Process, lie):
    before = process.memory_bytes()
    with connect(process.address) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(LIES[lie])
        assert sock.recv(1) == b""
    assert is_served(process.address)
    assert process.memory_bytes() - before < 20 * MIB


@needs_proc
@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 25_000), 9),
        (
            DescribeConfigsRequest(
                resources=[DescribeConfigsResource(resource_type=4, resource_name="1")] * 25_000,
                include_documentation=True,
                include_synonyms=True,
            ),
            4,
        ),
        (DescribeGroupsRequest(groups=["g"] * 25_000), 5),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 25_000), 8),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Request) else "",
)
def test_a_short_question_has_no_endless_answer(process: Process, request_, version):
    before = process.memory_bytes()
    with connect(process.address) as sock:
        sock.sendall(frame(request_, version))
        (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    assert size < MIB
    assert is_served(process.address)
    assert process.memory_bytes() - before < 100 * MIB


def test_a_request_makes_no_endless_number_of_topics(process: Process):
    names = ["".join(letters) for letters in itertools.islice(itertools.product(string.ascii_letters, repeat=3), 5000)]
    answer = ask(process.address, MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 9)
    codes = [topic.error_code for topic in answer.topics]
    assert len(codes) == 5000
    assert codes.count(0) == 100
    assert codes.count(LeaderNotAvailableError.code) == 4900


def test_one_byte_at_a_time_is_borne_and_answered(process: Process):
    content = frame(produce(value=b"x" * 100), 9)
    with connect(process.address) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(content)):
            if at % 40 == 20:
                assert is_served(process.address)
            slow.sendall(content[at : at + 1])
        assert receive(slow, ProduceRequest, 9).responses[0].partition_responses[0].error_code == 0


def test_who_reads_no_answers_is_not_read_from_either(process: Process):
    """Responses fill the sockets' buffers and, up to a limit, the broker's; then the client's sends block."""
    question = frame(MetadataRequest(topics=None), 9) * 100
    with connect(process.address) as sock:
        sock.settimeout(1.0)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 50 * MIB:
                sent += sock.send(question)
        assert sent < 50 * MIB
        assert is_served(process.address)


def open_files_allowed(count: int) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            return False
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return True


@needs_proc
def test_thousands_of_idle_connections():
    if not open_files_allowed(2500):
        pytest.skip("the limit of open files is too low")
    process = Process(num_partitions=1)
    idle: list[socket.socket] = []
    try:
        ask(
            process.address,
            CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]),
            5,
        )
        before = process.memory_bytes()
        half = frame(api_versions(), 3)[:9]
        for number in range(2000):
            sock = connect(process.address)
            idle.append(sock)
            if number % 2:
                sock.sendall(half)
        for _ in range(20):
            assert is_served(process.address)
        assert process.memory_bytes() - before < 40 * MIB
        # every connection is alive, and answered once its request is complete
        for sock in idle[1::400]:
            sock.sendall(frame(api_versions(), 3)[9:])
            assert receive(sock, ApiVersionsRequest, 3).error_code == 0
    finally:
        for sock in idle:
            sock.close()
        process.close()


def test_who_never_says_anything_is_closed_after_a_while():
    with EmbeddedCluster(connections_max_idle_ms=300) as cluster:
        cluster.create_topic("t")
        host, port = cluster.bootstrap_servers.split(":")
        address = (host, int(port))
        with connect(address) as silent, connect(address) as busy:
            deadline = time.monotonic() + PATIENCE_S
            while not select.select([silent], [], [], 0)[0]:
                assert time.monotonic() < deadline
                busy.sendall(frame(api_versions(), 3))
                assert receive(busy, ApiVersionsRequest, 3).error_code == 0
                time.sleep(0.05)
            assert silent.recv(1) == b""
        assert is_served(address)
        assert cluster.control.counts[ApiKey.PRODUCE] == 1
