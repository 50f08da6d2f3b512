"""Several listeners, the addresses that clients see, chosen node ids, and profiles."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support.processes import child
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.network.addresses import parse_address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.producer import KafkaProducer

TWO_LISTENERS = {
    "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "OUTSIDE",
}


def addresses(at: str) -> dict[int, str]:
    """The brokers' addresses that a client of listener `at` sees, from Metadata and DescribeCluster."""
    connection = BlockingConnection(parse_address(at), client_id="test", timeout_ms=20_000, max_response_bytes=2**20)
    try:
        told = [
            connection.request(request).brokers
            for request in (
                MetadataRequest(topics=[]),
                DescribeClusterRequest(include_cluster_authorized_operations=False),
            )
        ]
    finally:
        connection.close()
    by_metadata = {each.node_id: f"{each.host}:{each.port}" for each in told[0]}
    assert by_metadata == {each.broker_id: f"{each.host}:{each.port}" for each in told[1]}
    return by_metadata


@pytest.mark.parametrize("kind", [EmbeddedCluster, ProcessCluster])
def test_clients_stay_with_the_listener_they_came_in_by(kind):
    with kind(2, config=TWO_LISTENERS) as cluster:
        listeners = {node_id: each.listeners for node_id, each in cluster.controller.image.brokers.items()}
        inside = {node_id: f"{first.host}:{first.port}" for node_id, (first, _) in listeners.items()}
        outside = {node_id: f"{second.host}:{second.port}" for node_id, (_, second) in listeners.items()}
        assert cluster.bootstrap_servers == f"{inside[1]},{inside[2]}"
        assert addresses(inside[2]) == inside
        assert addresses(outside[1]) == outside
        assert cluster.controller.image.brokers[1].port == listeners[1][1].port
        cluster.create_topic("t", replication_factor=2)
        with KafkaProducer(bootstrap_servers=outside[1]) as producer:
            producer.send("t", value=b"v").get(20)
        assert [len(cluster.records("t", 0, node_id)) for node_id in (1, 2)] == [1, 1]
        cluster.stop_broker(2)
        cluster.start_broker(2)
        assert addresses(outside[2]) == outside


def test_clients_are_told_what_is_advertised():
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "PLAINTEXT://kafka.example:9092"}
    with EmbeddedCluster(2, config=config) as cluster:
        assert cluster.bootstrap_servers == "kafka.example:9092,kafka.example:9093"
        assert addresses(f"127.0.0.1:{cluster.broker(2).server.port}") == {
            1: "kafka.example:9092",
            2: "kafka.example:9093",
        }


@pytest.mark.parametrize("kind", [EmbeddedCluster, ProcessCluster])
def test_node_ids_are_chosen(kind, tmp_path):
    with kind(node_ids=[7, 0], data_dir=tmp_path) as cluster:
        assert set(addresses(cluster.bootstrap_servers.split(",")[0])) == {0, 7}
        cluster.controller.create_topic("t", assignments={0: [7, 0]})
        cluster.kill_broker(7)
        wait_until(lambda: cluster.leader_of("t", 0) == 0)
        cluster.start_broker(7)
        wait_until(lambda: 7 in cluster.controller.image.partition("t", 0).isr)
    assert {path.name for path in tmp_path.iterdir()} >= {"broker-0", "broker-7"}


@pytest.mark.parametrize(
    ("options", "lines", "node_ids"),
    [
        ((), ["profile=kafka"], {1}),
        (("--profile", "test", "--node-ids", "4"), ["profile=test"], {4}),
        (("--node-ids", "0,5"), ["profile=kafka", "broker.0.pid=", "broker.5.pid="], {0, 5}),
    ],
)
def test_the_command_says_what_it_runs(options, lines, node_ids):
    command = [sys.executable, "-m", "headrace.cli", "broker", *options]
    with child(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        told = [process.stdout.readline() for _ in lines]
        try:
            assert all(line.startswith(expected) for line, expected in zip(told, lines, strict=True))
            assert set(addresses(first.strip().removeprefix("bootstrap.servers=").split(",")[0])) == node_ids
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0


def test_the_profiles_differ_in_what_a_test_would_wait_for():
    assert EmbeddedCluster().config.group_initial_rebalance_delay_ms == 0
    kafka = EmbeddedCluster(profile="kafka").config
    assert (kafka.group_initial_rebalance_delay_ms, kafka.group_min_session_timeout_ms) == (3_000, 6_000)
    assert EmbeddedCluster(group_min_session_timeout_ms=9).config.group_min_session_timeout_ms == 9
