"""Faults that a test can inject into a broker, seen from the wire, and what a hostile client can't do."""

from __future__ import annotations

import os
import random
import shutil
import socket
import struct
import threading
import time

import pytest
from support.wire import Wire, codes, fetch, now_ms, produce

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import (
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.records.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.network.records.builder_cy import build_batch


@pytest.fixture
def cluster():
    with EmbeddedCluster(num_partitions=2) as cluster:
        cluster.create_topic("t")
        yield cluster


@pytest.fixture
def wire(cluster):
    with Wire(cluster) as wire:
        yield wire


def count(cluster, partition=0):
    return len(cluster.records("t", partition))


# --- Faults ---


def test_an_error_for_the_next_requests(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(error=NotEnoughReplicasError), times=2)
    assert codes(wire.ask(produce(0), 9)) == [19]
    assert codes(wire.ask(produce(0), 9)) == [19]
    assert codes(wire.ask(produce(0), 9)) == [0]
    assert count(cluster) == 1


def test_an_error_for_one_partition(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(error=NotLeaderForPartitionError, topic="t", partition=1))
    assert codes(wire.ask(produce(0), 9)) == [0]
    assert codes(wire.ask(produce(0, 1), 9)) == [0, 6]
    assert codes(wire.ask(produce(0, 1), 9)) == [0, 0]
    assert (count(cluster, 0), count(cluster, 1)) == (3, 1)


@pytest.mark.parametrize(
    ("message", "version", "code"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9, lambda answer: answer.topics[0].error_code),
        (fetch(0), 11, lambda answer: answer.responses[0].partitions[0].error_code),
        (
            ListOffsetsRequest(
                replica_id=-1,
                topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
            ),
            5,
            lambda answer: answer.topics[0].partitions[0].error_code,
        ),
    ],
)
def test_errors_of_other_apis(cluster, wire, message, version, code):
    with cluster.inject(message.api_key, Fault(error=UnknownTopicOrPartitionError), times=None) as registration:
        assert code(wire.ask(message, version)) == 3
        assert registration.hits == 1
    assert code(wire.ask(message, version)) == 0


def test_a_lost_answer_is_appended_nevertheless(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(lose_answer=True))
    wire.send(produce(0), 9)
    assert wire.ends()
    assert count(cluster) == 1


def test_a_dropped_request_is_not_appended(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(close=True))
    wire.send(produce(0), 9)
    assert wire.ends()
    assert count(cluster) == 0


def test_an_answer_that_is_cut(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(cut_after_bytes=6))
    wire.send(produce(0), 9)
    assert len(wire.file.read(6)) == 6
    assert wire.ends()
    assert count(cluster) == 1


def test_a_silent_broker_answers_the_next_request(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(silent=True))
    wire.send(produce(0), 9)
    wire.send(produce(1), 9)
    assert wire.receive(2) is not None


def test_half_a_connection(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(half_close=True))
    assert codes(wire.ask(produce(0), 9)) == [0]
    assert wire.ends()
    assert count(cluster) == 1


def test_a_delay_holds_the_answers_behind_it(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(delay_ms=200))
    began = time.monotonic()
    wire.send(produce(0), 9)
    wire.send(produce(1), 9)
    assert wire.receive(1) is not None
    assert time.monotonic() - began >= 0.2
    assert wire.receive(2) is not None


def test_the_throttle_time_is_told(cluster, wire):
    cluster.inject(ApiKey.PRODUCE, Fault(throttle_ms=321))
    assert wire.ask(produce(0), 9).throttle_time_ms == 321
    assert wire.ask(produce(0), 9).throttle_time_ms == 0


def test_a_handler_sees_the_request_and_decides(cluster, wire):
    sizes = []

    def look(context, request):
        sizes.append((context.client_id, len(request.topic_data[0].partition_data)))
        return Fault(error=NotEnoughReplicasError) if len(sizes) == 2 else None

    cluster.on_request(ApiKey.PRODUCE, look)
    assert [codes(wire.ask(produce(0), 9)) for _ in range(3)] == [[0], [19], [0]]
    assert sizes == [("wire", 1)] * 3


def test_requests_are_remembered(cluster, wire):
    wire.ask(produce(0), 9)
    wire.ask(fetch(0), 11)
    seen = [(request.api_key, request.api_version, request.client_id) for request in cluster.requests]
    assert seen == [(ApiKey.PRODUCE, 9, "wire"), (ApiKey.FETCH, 11, "wire")]


def test_acting_as_an_older_broker(cluster, wire):
    cluster.control.max_versions = {ApiKey.API_VERSIONS: 3, ApiKey.PRODUCE: 8, ApiKey.METADATA: 9}
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    told = {each.api_key: each.max_version for each in wire.ask(request, 3).api_keys}
    assert told == {ApiKey.API_VERSIONS: 3, ApiKey.PRODUCE: 8, ApiKey.METADATA: 9}
    wire.send(produce(0), 9)
    assert wire.ends()


# --- Order and waiting ---


def test_answers_come_in_the_order_of_the_requests(cluster, wire):
    wire.send(fetch(0, max_wait_ms=10_000), 11)
    wire.send(produce(0), 9)
    answer = wire.receive(1)
    assert answer.responses[0].partitions[0].high_watermark == 1
    assert codes(wire.receive(2)) == [0]


def test_a_waiting_fetch_holds_up_nobody_else(cluster, wire):
    wire.send(fetch(0, max_wait_ms=10_000, min_bytes=10_000), 11)
    with Wire(cluster) as other:
        assert codes(other.ask(produce(0), 9)) == [0]
        assert codes(other.ask(produce(0, value=b"v" * 10_000), 9)) == [0]
    assert len(wire.receive(1).responses[0].partitions[0].records) > 10_000


def test_a_fetch_answers_with_little_when_its_time_is_over(cluster, wire):
    wire.ask(produce(0), 9)
    answer = wire.ask(fetch(0, max_wait_ms=50, min_bytes=10_000), 11)
    assert 0 < len(answer.responses[0].partitions[0].records) < 1000


def test_with_acks_0_nothing_is_answered(cluster, wire):
    wire.send(produce(0, acks=0), 9)
    wire.send(produce(0), 9)
    assert codes(wire.receive(2)) == [0]
    assert count(cluster) == 2


def test_with_acks_0_an_error_ends_the_connection(cluster, wire):
    wire.send(produce(7, acks=0), 9)
    assert wire.ends()


def test_illegal_acks(cluster, wire):
    assert codes(wire.ask(produce(0, acks=2), 9)) == [21]


# --- Hostile clients ---


def api_versions():
    return b"".join(
        encode_request(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"),
            version=3,
            correlation_id=1,
            client_id="c",
        )
    )


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        struct.pack(">i", 8) + b"\xff" * 8,
        struct.pack(">ihhih", 10, 3, 9, 1, -1) + b"",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**30),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1_000_000_000),
    ],
)
def test_garbage_ends_its_connection_and_no_other(cluster, wire, content):
    with Wire(cluster) as good:
        wire.sock.sendall(content)
        assert wire.ends()
        assert codes(good.ask(produce(0), 9)) == [0]


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(cluster, wire):
    wire.sock.sendall(struct.pack(">ihhihb", 11, 18, 99, 1, -1, 0))
    wire.sent.append((ApiVersionsRequest, 0))
    answer = wire.receive(1)
    assert answer.error_code == 35
    assert {each.api_key for each in answer.api_keys} >= {ApiKey.PRODUCE, ApiKey.API_VERSIONS}


def test_random_damage_to_a_request_hurts_nobody(cluster):
    chance = random.Random(20)
    frame = b"".join(encode_request(produce(0, 1), version=9, correlation_id=1, client_id="c"))
    with Wire(cluster) as good:
        for _ in range(200):
            damaged = bytearray(frame)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(4, len(frame))] = chance.randrange(256)
            with Wire(cluster) as bad:
                bad.sock.sendall(damaged)
                bad.sock.shutdown(socket.SHUT_WR)
                bad.sock.settimeout(10)
                bad.file.read()
        good.ask(produce(0), 9)
        answer = good.ask(fetch(0), 11)
    assert answer.responses[0].partitions[0].error_code == 0
    cluster.records("t", 0)


def test_half_a_frame_and_silence_are_borne(cluster, wire):
    idle = [Wire(cluster) for _ in range(50)]
    for each in idle[:25]:
        each.sock.sendall(api_versions()[:9])
    assert codes(wire.ask(produce(0), 9)) == [0]
    for each in idle:
        each.__exit__()


def test_connections_are_bounded():
    with EmbeddedCluster(max_connections=3) as cluster:
        kept = [Wire(cluster) for _ in range(3)]
        for each in kept:
            each.sock.sendall(api_versions())
            each.sent.append((ApiVersionsRequest, 3))
            assert each.receive(1) is not None
        with Wire(cluster) as refused:
            assert refused.ends()
        for each in kept:
            each.__exit__()


def test_requests_beyond_the_limit_wait_in_the_socket():
    with EmbeddedCluster(queued_max_requests=4) as cluster:
        cluster.create_topic("t")
        with Wire(cluster) as wire:
            wire.send(fetch(0, max_wait_ms=300, min_bytes=10**6), 11)
            for _ in range(60):
                wire.send(fetch(0), 11)
            for number in range(61):
                assert wire.receive(number + 1) is not None


def test_a_configuration_key_that_does_not_exist():
    with pytest.raises(KafkaConfigurationError, match=r"num\.partitions"):
        EmbeddedCluster(num_partition=3)


# --- Introspection and size ---


def test_what_waits_is_counted(cluster, wire):
    wire.send(fetch(0, max_wait_ms=10_000), 11)
    with Wire(cluster) as other:
        other.ask(MetadataRequest(topics=[]), 9)
        waiting = cluster.waiting()
        assert (waiting["Fetch"], waiting["Timer"]) == (1, 1)
        other.ask(produce(0), 9)
    wire.receive(1)
    assert cluster.waiting()["Fetch"] == 0


def test_what_a_partition_remembers_of_producers(cluster, wire):
    records = build_batch([(now_ms(), None, b"v")] * 3, producer_id=5, producer_epoch=1, base_sequence=0)
    data = [PartitionProduceData(index=0, records=records)]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    assert codes(wire.ask(request, 9)) == [0]
    assert codes(wire.ask(request, 9)) == [0]
    entry = cluster.producer_state("t", 0)[5]
    assert (entry.producer_epoch, entry.last_sequence, count(cluster)) == (1, 2, 3)


def test_a_thousand_partitions_and_connections():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 1000)
        idle = []
        try:
            for _ in range(400):
                idle.append(Wire(cluster))
            with Wire(cluster) as wire:
                for partition in (0, 500, 999):
                    assert codes(wire.ask(produce(partition), 9)) == [0]
                assert len(wire.ask(MetadataRequest(topics=None), 9).topics[0].partitions) == 1000
        finally:
            for each in idle:
                each.__exit__()


def test_a_data_directory_that_cannot_be_written_is_told_to_producers(cluster, wire):
    assert codes(wire.ask(produce(0), 9)) == [0]
    file = cluster.broker(1).replicas.partition(("t", 0)).log.segments[-1].log
    readonly = os.open(file.path, os.O_RDONLY)
    os.dup2(readonly, file.fileno())
    os.close(readonly)
    assert codes(wire.ask(produce(0, 1), 9)) == [56, 0]
    assert codes(wire.ask(produce(1), 9)) == [0]
    assert len(wire.ask(fetch(0), 11).responses[0].partitions[0].records) > 0


def test_a_full_disk_is_told_to_producers():
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 2)
        with Wire(cluster) as wire:
            wire.ask(produce(0), 9)
            file = cluster.broker(1).replicas.partition(("t", 0)).log.segments[-1].log
            full = os.open("/dev/full", os.O_RDWR)
            os.dup2(full, file.fileno())
            os.close(full)
            assert codes(wire.ask(produce(0, 1), 9)) == [56, 0]


def test_a_data_directory_without_permission_fails_at_the_start(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KafkaStorageError, match="data directory"):
        EmbeddedCluster(data_dir=tmp_path / "file" / "below").start()


@pytest.mark.parametrize(("host", "told"), [("::1", "::1"), ("localhost", "localhost"), ("0.0.0.0", None)])
def test_other_addresses_than_the_loopbacks(host, told):
    try:
        cluster = EmbeddedCluster(host=host)
        cluster.start()
    except KafkaConnectionError:
        pytest.skip(f"this machine has no {host}")
    try:
        port = int(cluster.bootstrap_servers.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1" if host == "0.0.0.0" else host, port), 10) as sock:
            sock.sendall(
                b"".join(encode_request(MetadataRequest(topics=[]), version=9, correlation_id=1, client_id="c"))
            )
            with sock.makefile("rb") as file:
                (size,) = struct.unpack(">i", file.read(4))
                answer = decode_response(MetadataRequest, 9, file.read(size))[1]
        assert answer.brokers[0].host == (told or socket.gethostname())
    finally:
        cluster.close()


def test_a_broker_that_cannot_stop_cleanly_is_told_of_and_the_others_stop(tmp_path):
    before = set(threading.enumerate())
    cluster = EmbeddedCluster(3, data_dir=tmp_path)
    cluster.start()
    shutil.rmtree(tmp_path / "broker-1")
    with pytest.raises(KafkaStorageError, match="broker-1"):
        cluster.close()
    assert set(threading.enumerate()) == before
    for node_id in (2, 3):
        assert (tmp_path / f"broker-{node_id}" / ".kafka_cleanshutdown").exists()


def test_a_data_directory_is_one_clusters(tmp_path):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        with pytest.raises(KafkaStorageError, match="another broker uses"):
            EmbeddedCluster(data_dir=tmp_path).start()
        with Wire(cluster) as wire:
            assert codes(wire.ask(produce(0), 9)) == [0]
        cluster.kill_broker(1)
        cluster.start_broker(1)
        assert count(cluster) == 1
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert count(cluster) == 1


@pytest.mark.parametrize(
    "name", ["meta.properties", "headrace-controller.json", "t-0/partition.metadata", "t-0/leader-epoch-checkpoint"]
)
def test_what_cannot_be_read_at_the_start_is_told(tmp_path, name):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with pytest.raises(KafkaStorageError, match=name):
        EmbeddedCluster(data_dir=tmp_path).start()
