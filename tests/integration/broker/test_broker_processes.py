"""A cluster of processes passes the tests of an in-process cluster: lifecycle, links, faults, introspection."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import confluent_kafka
import pytest

from headrace.broker import ApiKey, EmbeddedCluster, Fault, ProcessCluster
from headrace.broker.cluster import processes, remote
from headrace.broker.group.group import GroupState
from headrace.network.protocol import errors
from headrace.network.protocol.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaStorageError,
    NotEnoughReplicasError,
    UnknownTopicOrPartitionError,
)

QUIET = {"log_level": 0}


def until(condition, timeout_s=20.0):
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)
    return value


@pytest.fixture(scope="module")
def cluster():
    config = {"default.replication.factor": 3, "min.insync.replicas": 1, "replica.lag.time.max.ms": 600}
    with ProcessCluster(3, racks={1: "a", 2: "b"}, config=config, num_partitions=1) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    name = request.node.name
    cluster.create_topic(name, 1, 3)
    yield name
    cluster.controller.delete_topic(name)


def producer(cluster, **config):
    return confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **QUIET, **config})


def send(cluster, topic, *values, **config):
    sender = producer(cluster, **config)
    errors = []
    for value in values:
        sender.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(30) == 0
    return errors


def isr(cluster, topic):
    return set(cluster.controller.image.partition(topic, 0).isr)


def test_it_has_what_the_embedded_cluster_has():
    only_embedded = {"brokers"}
    for name in {each for each in dir(EmbeddedCluster) if not each.startswith("_")} - only_embedded:
        assert hasattr(ProcessCluster, name), name


def test_brokers_are_where_their_racks_are(cluster):
    assert {node: each.rack for node, each in cluster.controller.image.brokers.items()} == {1: "a", 2: "b", 3: None}


def test_brokers_that_are_cut_off_leave_the_in_sync_replicas_and_return(cluster, topic):
    cluster.move_leader(topic, 0, 1)
    cluster.cut_link(1, 2)
    assert send(cluster, topic, b"without 2") == [None]
    until(lambda: isr(cluster, topic) == {1, 3})
    assert [record.value for record in cluster.records(topic, 0, 1)] == [b"without 2"]
    assert cluster.records(topic, 0, 2) == []
    cluster.heal_links()
    until(lambda: isr(cluster, topic) == {1, 2, 3})
    assert [record.value for record in cluster.records(topic, 0, 2)] == [b"without 2"]


def test_a_link_stays_cut_for_a_broker_that_comes_back(cluster, topic):
    cluster.move_leader(topic, 0, 3)
    cluster.kill_broker(2)
    cluster.cut_link(3, 2)
    cluster.start_broker(2)
    assert send(cluster, topic, b"without 2") == [None]
    assert cluster.records(topic, 0, 2) == []
    assert 2 not in isr(cluster, topic)
    cluster.heal_links()
    until(lambda: 2 in isr(cluster, topic))


def test_a_fault_is_done_so_often_whichever_brokers_are_met(cluster, topic):
    with cluster.inject(
        ApiKey.PRODUCE, Fault(error=NotEnoughReplicasError, topic=topic, partition=0), times=3
    ) as injected:
        assert send(cluster, topic, b"at last", **{"retry.backoff.ms": 1}) == [None]
        assert injected.hits == 3
    assert [record.value for record in cluster.records(topic, 0)] == [b"at last"]
    seen = [each for each in cluster.requests if each.api_key is ApiKey.PRODUCE]
    assert len(seen) >= 4
    assert [each.received_ms for each in cluster.requests] == sorted(each.received_ms for each in cluster.requests)


def test_a_fault_on_one_broker_lasts_until_it_is_removed(cluster, topic):
    leader = cluster.leader_of(topic, 0)
    other = leader % 3 + 1
    with cluster.inject(ApiKey.PRODUCE, Fault(close=True), times=None, node_id=other) as elsewhere:
        assert send(cluster, topic, b"1") == [None]
    assert elsewhere.hits == 0
    with cluster.inject(ApiKey.PRODUCE, Fault(error=NotEnoughReplicasError), times=None, node_id=leader) as here:
        (error,) = send(cluster, topic, b"2", **{"message.timeout.ms": 700, "retry.backoff.ms": 20})
        assert error is not None
    assert here.hits > 0
    here.remove()
    assert send(cluster, topic, b"3") == [None]


def test_it_acts_as_an_older_release(cluster, topic):
    with pytest.raises(KafkaConfigurationError, match="known releases are"):
        cluster.act_as("1.0")
    cluster.act_as("2.8")
    assert send(cluster, topic, b"v", **{"client.id": "old"}) == [None]
    versions = {each.api_version for each in cluster.requests if each.client_id == "old"}
    assert {each.api_key for each in cluster.requests if each.client_id == "old"} >= {ApiKey.PRODUCE}
    assert max(versions) <= 12
    cluster.act_as(None)


def is_stopped(pid):
    """Whether no thread of the process runs: a signal takes effect when its threads are scheduled next."""
    states = [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    # without /proc there is nothing to look at
    return set(states) <= {"T"}


@pytest.mark.parametrize(
    "change",
    [
        lambda cluster: cluster.set_password("alice", "secret"),
        lambda cluster: cluster.update_features({"transaction.version": 2}),
        lambda cluster: cluster.telemetry.unsubscribe(),
    ],
    ids=["set_password", "update_features", "telemetry"],
)
def test_a_change_waits_until_every_broker_has_it(cluster, change):
    changing = threading.Thread(target=change, args=(cluster,), daemon=True)
    os.kill(cluster.pids[2], signal.SIGSTOP)
    try:
        until(lambda: is_stopped(cluster.pids[2]))
        changing.start()
        changing.join(0.5)
        assert changing.is_alive()
    finally:
        os.kill(cluster.pids[2], signal.SIGCONT)
    changing.join(20)
    assert not changing.is_alive()


def test_groups_producers_and_what_waits_are_told(cluster, topic):
    assert send(cluster, topic, b"1", b"2", **{"enable.idempotence": True}) == [None, None]
    (state,) = cluster.producer_state(topic, 0).values()
    assert (state.producer_epoch, state.last_sequence) == (0, 1)
    assert cluster.group("nobody") is None
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe([topic])
    read = []
    until(lambda: read.extend(consumer.consume(10, 0.2)) or len(read) >= 2)
    consumer.commit(asynchronous=False)
    group = cluster.group(topic)
    assert group.state is GroupState.STABLE
    assert len(group.members) == 1
    assert group.offsets[topic, 0].offset == 2
    waiting = until(lambda: (counts := cluster.waiting())["Fetch"] and counts)
    assert set(waiting) == {"Produce", "Fetch", "Group", "Topic", "Timer"}
    assert waiting["Timer"] > 0
    consumer.close()


def test_brokers_end_and_return_one_by_one(cluster, topic):
    pids = cluster.pids
    assert set(pids) == {1, 2, 3}
    for node_id, end in ((1, cluster.stop_broker), (2, cluster.kill_broker)):
        end(node_id)
        assert node_id not in cluster.pids
        assert cluster.leader_of(topic, 0) != node_id
        with pytest.raises(ProcessLookupError):
            os.kill(pids[node_id], 0)
        with pytest.raises(IllegalStateError, match="not running"):
            end(node_id)
        address = cluster.bootstrap_servers
        cluster.start_broker(node_id)
        assert cluster.bootstrap_servers == address
        with pytest.raises(IllegalStateError, match="running already"):
            cluster.start_broker(node_id)
        until(lambda node_id=node_id: node_id in isr(cluster, topic))
    assert cluster.pids[1] != pids[1]
    assert cluster.pids[3] == pids[3]


def test_the_others_go_on_when_the_process_that_started_them_is_killed(cluster, topic):
    """It only records which processes end."""
    with ProcessCluster(2) as other:
        with open(f"/proc/{other.pids[1]}/stat") as stat:
            launcher = int(stat.read().rpartition(")")[2].split()[1])
        os.kill(launcher, signal.SIGKILL)
        other.create_topic("t")
        assert send(other, "t", b"v") == [None]


def test_what_does_not_go_says_what_does(cluster):
    with pytest.raises(IllegalStateError, match="inject"):
        cluster.on_request(ApiKey.PRODUCE, lambda context, request: None)
    with pytest.raises(IllegalStateError, match="EmbeddedCluster"):
        cluster.broker(1)
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.records("nothing", 0, 1)
    with pytest.raises(IllegalStateError, match="there is no partition"):
        cluster.records("nothing", 0)


def test_a_broker_that_cannot_start_says_why(tmp_path, capfd):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        says = (
            rf"^broker 1 didn't start: can't listen on 127\.0\.0\.1:{port}: Address already in use; choose another port"
        )
        with pytest.raises(KafkaConnectionError, match=says):
            ProcessCluster(3, port=port, data_dir=tmp_path).start()
    with (
        ProcessCluster(1, data_dir=tmp_path),
        pytest.raises(KafkaStorageError, match=r"^broker 1 didn't start: another broker uses"),
    ):
        ProcessCluster(1, data_dir=tmp_path).start()
    assert capfd.readouterr().err == ""


def test_before_its_start_it_says_that_it_is_not_started(tmp_path):
    idle = ProcessCluster(1)
    with pytest.raises(IllegalStateError, match="not started"):
        _ = idle.bootstrap_servers
    (tmp_path / "file").touch()
    with pytest.raises(KafkaStorageError, match="there is a file of that name; choose one"):
        ProcessCluster(1, data_dir=tmp_path / "file").start()


def test_a_broker_that_dies_at_its_start_leaves_a_traceback(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(processes, "to_text", lambda config: "no pickle")
    with pytest.raises(KafkaConnectionError, match=r"broker 1 didn't start; what it wrote to stderr says why"):
        ProcessCluster(1, data_dir=tmp_path).start()
    assert "Traceback" in capfd.readouterr().err


def test_errors_on_the_link_load_no_producer():
    """Their `__module__` is the producer's, which a broker never imports."""
    sent = (errors.NotEnoughReplicasError("x"), Fault(error=errors.NotLeaderForPartitionError))
    text = remote.to_text(sent)
    assert b"headrace.producer" not in base64.b64decode(text)
    error, fault = remote.from_text(text)
    assert (type(error), error.args, fault) == (errors.NotEnoughReplicasError, ("x",), sent[1])
    program = (
        "import pickle, sys; from headrace import broker; from headrace.broker import pytest_plugin\n"
        "from headrace.broker.cluster import process, remote; from headrace.cli import main\n"
        f"error, fault = remote.from_text({text!r}); remote.to_text((error, fault))\n"
        "print(fault.error.code, [name for name in sys.modules if name.startswith('headrace.producer')])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert run.stdout == b"6 []\n"
