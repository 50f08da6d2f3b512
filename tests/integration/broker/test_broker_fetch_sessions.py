"""Incremental fetches (KIP-227), message by message."""

from __future__ import annotations

import socket
import struct

import pytest

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.records.builder_cy import build_batch

VERSION = 12


@pytest.fixture
def ask():
    with EmbeddedCluster(num_partitions=3) as cluster:
        cluster.create_topic("t")
        host, port = cluster.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), 10) as sock, sock.makefile("rb") as file:

            def ask(message, version=VERSION):
                sock.sendall(b"".join(encode_request(message, version=version, correlation_id=1, client_id="c")))
                (size,) = struct.unpack(">i", file.read(4))
                return decode_response(type(message), version, file.read(size))[1]

            ask.cluster = cluster
            yield ask


def fetch(offsets, session_id=0, epoch=0, forgotten=()):
    parts = [
        FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=1 << 20)
        for each, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=parts)] if parts else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
    )


def produce(ask, partition):
    records = build_batch([(SYSTEM_CLOCK.wall_ms(), None, b"v")])
    data = PartitionProduceData(index=partition, records=records)
    ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=[data])]), 9)


def told(response):
    assert response.error_code == 0
    return {part.partition_index: len(part.records or b"") for topic in response.responses for part in topic.partitions}


def test_an_incremental_answer_has_only_what_is_new(ask):
    opened = ask(fetch({0: 0, 1: 0, 2: 0}))
    assert set(told(opened)) == {0, 1, 2}
    session = opened.session_id
    assert session != 0
    assert told(ask(fetch({}, session, 1))) == {}
    produce(ask, 1)
    answer = ask(fetch({}, session, 2))
    assert set(told(answer)) == {1}
    assert answer.session_id == session
    # The fetch position hasn't moved, so the records are returned again.
    assert set(told(ask(fetch({}, session, 3)))) == {1}
    assert told(ask(fetch({1: 1}, session, 4))) == {}


def test_partitions_come_and_go(ask):
    session = ask(fetch({0: 0})).session_id
    produce(ask, 0)
    produce(ask, 2)
    assert set(told(ask(fetch({2: 0}, session, 1)))) == {0, 2}
    assert set(told(ask(fetch({}, session, 2, forgotten=[0])))) == {2}


def test_epochs_are_counted(ask):
    session = ask(fetch({0: 0})).session_id
    assert ask(fetch({}, session, 2)).error_code == 71
    assert ask(fetch({}, session, 1)).error_code == 0
    assert ask(fetch({}, session, 1)).error_code == 71
    assert ask(fetch({}, session + 1, 1)).error_code == 70


def test_a_session_ends_with_the_last_epoch(ask):
    session = ask(fetch({0: 0})).session_id
    assert ask(fetch({0: 0}, session, -1)).session_id == 0
    assert ask(fetch({}, session, 1)).error_code == 70
    assert len(ask.cluster.broker(1).fetch_sessions) == 0


def test_sessions_are_bounded():
    with EmbeddedCluster(max_incremental_fetch_session_cache_slots=2) as cluster:
        sessions = cluster.broker(1).fetch_sessions
        assert [sessions.open([]) is None for _ in range(3)] == [False, False, True]
