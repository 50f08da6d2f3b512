"""Arguments of clusters: the error for each invalid one names its value, and nothing has started by then."""

from __future__ import annotations

import pytest

from headrace.broker import ApiKey, EmbeddedCluster, Fault, ProcessCluster
from headrace.network.protocol.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    NotLeaderForPartitionError,
)
from headrace.network.protocol.messages.groups.heartbeat import HeartbeatResponse

either = pytest.mark.parametrize("cluster_class", [EmbeddedCluster, ProcessCluster])


@either
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brokers": "3"}, r"brokers is '3' \(str\); give how many there are, a whole number"),
        ({"brokers": True}, r"brokers is True \(bool\)"),
        ({"brokers": 0}, "brokers is 0"),
        ({"brokers": -1}, "brokers is -1"),
        ({"brokers": 2.0}, r"brokers is 2.0 \(float\)"),
        ({"node_ids": 3}, r"node_ids is 3 \(int\); give a list"),
        ({"node_ids": "0,1"}, r"node_ids is '0,1' \(str\)"),
        ({"node_ids": []}, "give at least one whole number"),
        ({"node_ids": [0, "1"]}, r"node_ids is \[0, '1'\]"),
        ({"node_ids": [0, -1]}, r"node_ids is \[0, -1\]"),
        ({"node_ids": [0, 0]}, "has a number twice"),
        ({"node_ids": [0, 1], "brokers": 3}, "brokers is 3, but there are 2 node_ids"),
        ({"node_ids": [0, 1], "config": {"node.id": 0}}, "node.id is 0, but node_ids is"),
        ({"brokers": 2, "config": {"node.id": 7}}, "node.id is 7, but the cluster has 2 brokers"),
        ({"port": "9092"}, r"port is '9092' \(str\)"),
        ({"port": True}, r"port is True \(bool\)"),
        ({"port": -1}, "port is -1"),
        ({"port": 65536}, "port is 65536"),
        ({"port": 65534, "brokers": 3}, "port is 65534, and 3 brokers take consecutive ports"),
        ({"host": 7}, r"host is 7 \(int\)"),
        ({"host": "a", "config": {"listeners": "PLAINTEXT://:0"}}, "listeners and host or port exclude each other"),
        ({"data_dir": 7}, r"data_dir is 7 \(int\); give a path"),
        ({"data_dir": ""}, "data_dir is ''"),
        ({"data_dir": "a", "config": {"log.dirs": "b"}}, "data_dir and log.dirs exclude each other"),
        ({"racks": ["a"]}, r"racks is \['a'\] \(list\); give a dict"),
        ({"racks": {9: "a"}}, "racks names broker 9; the cluster has"),
        ({"racks": {1: 7}}, "the rack of broker 1 is 7"),
        ({"profile": "quick"}, "there is no profile 'quick'; choose kafka or test"),
        ({"config": "num.partitions=3"}, "the configuration is of type str; give a dict"),
        ({"num_partition": 3}, r"did you mean num\.partitions\?"),
    ],
)
def test_wrong_arguments(cluster_class, arguments, message):
    with pytest.raises(KafkaConfigurationError, match=message):
        cluster_class(**arguments)


def test_the_first_argument_is_told_as_well():
    with pytest.raises(KafkaConfigurationError, match="brokers is '3'"):
        EmbeddedCluster("3")
    with pytest.raises(KafkaConfigurationError, match="clock is 7"):
        EmbeddedCluster(clock=7)


@either
def test_node_ids(cluster_class):
    assert cluster_class(node_ids=(0, 5)).node_ids == (0, 5)
    assert cluster_class(config={"node.id": "4"}).node_ids == (4,)
    assert cluster_class(config={"broker.id": 0}).node_ids == (0,)
    assert cluster_class(brokers=2).node_ids == (1, 2)


@either
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("PRODUCE", Fault(close=True)), r"the API is 'PRODUCE' \(str\); give ApiKey.PRODUCE"),
        ((0, Fault(close=True)), r"the API is 0 \(int\); give a member of headrace.broker.ApiKey"),
        ((ApiKey.SHARE_FETCH, Fault(close=True)), "doesn't serve SHARE_FETCH"),
        ((ApiKey.PRODUCE, "close"), r"the fault is 'close' \(str\); give a headrace.broker.Fault"),
        ((ApiKey.PRODUCE, None), "the fault is None"),
        ((ApiKey.PRODUCE, Fault(response=HeartbeatResponse())), "for HEARTBEAT, but PRODUCE would get it"),
        ((None, Fault(response=HeartbeatResponse())), "but any request would get it"),
        ((ApiKey.HEARTBEAT, Fault(error=NotLeaderForPartitionError, topic="t")), "HEARTBEAT name no topic"),
    ],
)
def test_what_can_not_be_injected(cluster_class, arguments, message):
    with pytest.raises(IllegalArgumentError, match=message):
        cluster_class().inject(*arguments)


@either
@pytest.mark.parametrize("times", [0, -1, "2", 1.0, True])
def test_how_often(cluster_class, times):
    with pytest.raises(IllegalArgumentError, match="give a whole number of at least 1, or None"):
        cluster_class().inject(ApiKey.PRODUCE, Fault(close=True), times=times)


@either
@pytest.mark.parametrize("node_id", [0, 9, "1", True])
def test_a_broker_that_there_is_not(cluster_class, node_id):
    cluster = cluster_class(2)
    with pytest.raises(IllegalArgumentError, match=r"there is no broker .*; the cluster has \[1, 2\]"):
        cluster.inject(ApiKey.PRODUCE, Fault(close=True), node_id=node_id)
    for method in ("stop_broker", "kill_broker", "start_broker", "close_connections"):
        with pytest.raises(IllegalStateError, match="there is no broker"):
            getattr(cluster, method)(9)
    with pytest.raises(IllegalStateError, match="there is no broker"):
        cluster.cut_link(1, 9)


def test_handlers():
    cluster = EmbeddedCluster()
    with pytest.raises(IllegalArgumentError, match="the handler is 'x'"):
        cluster.on_request(ApiKey.PRODUCE, "x")
    with pytest.raises(IllegalArgumentError, match=r"give ApiKey\.FETCH"):
        cluster.on_request("fetch", lambda *_: None)
