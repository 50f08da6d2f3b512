"""Three brokers: replication, failover, in-sync replicas, truncation; and broker processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import confluent_kafka
import pytest

from headrace.broker import ApiKey, EmbeddedCluster, ProcessCluster

QUIET = {"log_level": 0}
HEADRACE = [sys.executable, "-c", "import sys; from headrace.cli import main; sys.exit(main())"]


@pytest.fixture
def cluster():
    with EmbeddedCluster(
        brokers=3, default_replication_factor=3, num_partitions=1, min_insync_replicas=2, replica_lag_time_max_ms=400
    ) as cluster:
        yield cluster


def until(condition, timeout_s=15.0):
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)
    return value


class Acknowledged:
    """A producer that remembers which records were acknowledged."""

    def __init__(self, bootstrap_servers, **config):
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0, **QUIET, **config}
        )
        self.values = []
        self.errors = []

    def send(self, topic, values, pause_s=0.0):
        for value in values:
            self.producer.produce(topic, value, on_delivery=self._delivered)
            self.producer.poll(pause_s)

    def _delivered(self, error, message):
        if error is None:
            self.values.append(message.value())
        else:
            self.errors.append(error.code())

    def flush(self):
        assert self.producer.flush(30) == 0
        return self


def values_of(cluster, topic, node_id):
    return [bytes(record.value) for record in cluster.records(topic, 0, node_id)]


def isr(cluster, topic="t"):
    return set(cluster.controller.image.partition(topic, 0).isr)


def numbered(prefix, count):
    return [b"%s-%d" % (prefix, number) for number in range(count)]


def test_acks_all_means_on_every_replica(cluster):
    first = Acknowledged(cluster.bootstrap_servers)
    first.send("t", [b"first"])
    first.flush()
    sent = Acknowledged(cluster.bootstrap_servers)
    sent.send("t", numbered(b"v", 100))
    sent.flush()
    assert len(sent.values) == 100
    files = set()
    for node_id, broker in cluster.brokers.items():
        log = broker.replicas.partition(("t", 0)).log
        assert log.end.offset >= 100
        until(lambda log=log: log.high_watermark == log.end.offset)
        files.add((broker.logs.directories[0].path / "t-0" / "00000000000000000000.log").read_bytes())
        assert set(values_of(cluster, "t", node_id)) >= set(sent.values)
    assert len(files) == 1


@pytest.mark.parametrize("idempotent", [False, True])
def test_no_acknowledged_record_is_lost_when_the_leader_is_killed(cluster, idempotent):
    cluster.create_topic("t")
    sent = Acknowledged(cluster.bootstrap_servers, **{"enable.idempotence": idempotent})
    sent.send("t", numbered(b"before", 200))
    killed = cluster.leader_of("t", 0)
    cluster.kill_broker(killed)
    sent.send("t", numbered(b"after", 200))
    sent.flush()
    assert sent.errors == []
    leader = cluster.leader_of("t", 0)
    assert leader != killed
    assert set(values_of(cluster, "t", leader)) >= set(sent.values)
    if idempotent:
        assert sorted(values_of(cluster, "t", leader)) == sorted(numbered(b"before", 200) + numbered(b"after", 200))
    cluster.start_broker(killed)
    until(lambda: isr(cluster) == {1, 2, 3})
    assert values_of(cluster, "t", killed) == values_of(cluster, "t", leader)


def test_the_in_sync_replicas_shrink_and_expand(cluster):
    cluster.create_topic("t")
    leader = cluster.leader_of("t", 0)
    followers = sorted({1, 2, 3} - {leader})
    for follower in followers:
        cluster.cut_link(leader, follower)
    one = Acknowledged(cluster.bootstrap_servers, acks="1", **{"enable.idempotence": False})
    one.send("t", [b"only the leader has this"])
    one.flush()
    until(lambda: isr(cluster) == {leader})
    refused = Acknowledged(
        cluster.bootstrap_servers, **{"enable.idempotence": False, "retries": 0, "request.timeout.ms": 3000}
    )
    refused.send("t", [b"refused"])
    refused.flush()
    assert refused.errors == [confluent_kafka.KafkaError.NOT_ENOUGH_REPLICAS]
    cluster.heal_links()
    until(lambda: isr(cluster) == {1, 2, 3})
    # A replica in the ISR has all that was acknowledged by all; this record was not, so it may still be in flight.
    for node_id in (1, 2, 3):
        until(lambda node_id=node_id: values_of(cluster, "t", node_id) == [b"only the leader has this"])


def test_waiting_for_lost_followers_ends_with_the_requests_time(cluster):
    with EmbeddedCluster(brokers=2, default_replication_factor=2, num_partitions=1) as two:
        two.create_topic("t")
        two.cut_link(1, 2)
        sent = Acknowledged(
            two.bootstrap_servers,
            **{"enable.idempotence": False, "retries": 0, "request.timeout.ms": 300, "message.timeout.ms": 5000},
        )
        sent.send("t", [b"v"])
        sent.flush()
        assert sent.errors == [confluent_kafka.KafkaError.REQUEST_TIMED_OUT]
        assert len(two.records("t", 0)) == 1


def test_a_leader_that_comes_back_drops_what_nobody_was_promised(cluster):
    cluster.create_topic("t", configs={"min.insync.replicas": "1"})
    sent = Acknowledged(cluster.bootstrap_servers)
    sent.send("t", numbered(b"promised", 20))
    sent.flush()
    old = cluster.leader_of("t", 0)
    for follower in {1, 2, 3} - {old}:
        cluster.cut_link(old, follower)
    alone = Acknowledged(cluster.bootstrap_servers, acks="1", **{"enable.idempotence": False})
    alone.send("t", numbered(b"alone", 7))
    alone.flush()
    cluster.kill_broker(old)
    cluster.heal_links()
    later = Acknowledged(cluster.bootstrap_servers)
    later.send("t", numbered(b"later", 20))
    later.flush()
    new = cluster.leader_of("t", 0)
    cluster.start_broker(old)
    until(lambda: isr(cluster) == {1, 2, 3})
    assert values_of(cluster, "t", old) == values_of(cluster, "t", new) == sent.values + later.values
    entries = [cluster.broker(each).replicas.partition(("t", 0)).log.leader_epochs.entries for each in (old, new)]
    assert entries[0] == entries[1]


def test_leadership_moves_on_demand(cluster):
    cluster.create_topic("t")
    sent = Acknowledged(cluster.bootstrap_servers)
    for node_id in (2, 3, 1, 2):
        cluster.move_leader("t", 0, node_id)
        sent.send("t", numbered(b"from-%d" % node_id, 20))
    sent.flush()
    assert sent.errors == []
    assert len(cluster.records("t", 0)) == 80


def test_a_follower_that_missed_everything_begins_where_the_leader_does(cluster):
    cluster.create_topic("t", configs={"segment.bytes": "1000", "retention.bytes": "1000"})
    away = next(each for each in (1, 2, 3) if each != cluster.leader_of("t", 0))
    cluster.kill_broker(away)
    sent = Acknowledged(cluster.bootstrap_servers)
    for value in numbered(b"v" * 100, 50):
        sent.send("t", [value])
        sent.flush()
    leader = cluster.broker(cluster.leader_of("t", 0))
    leader.logs.delete_old_segments()
    start = leader.replicas.partition(("t", 0)).log.log_start_offset
    assert start > 0
    cluster.start_broker(away)
    until(lambda: isr(cluster) == {1, 2, 3})
    assert cluster.broker(away).replicas.partition(("t", 0)).log.log_start_offset == start


def test_a_group_survives_its_coordinator(cluster):
    sent = Acknowledged(cluster.bootstrap_servers)
    sent.send("t", numbered(b"v", 50))
    sent.flush()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 100,
            **QUIET,
        }
    )
    try:
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.1))
        (position,) = consumer.commit(asynchronous=False)
        coordinator = cluster.broker(1).offsets.coordinator_of("g")
        cluster.kill_broker(coordinator)
        survivor = next(iter(cluster.brokers.values()))
        moved = until(lambda: (found := survivor.offsets.coordinator_of("g")) != coordinator and found)
        until(lambda: cluster.broker(moved).offsets.group("g") is not None)
        group = cluster.broker(moved).offsets.group("g")
        assert {key: offset.offset for key, offset in group.offsets.items()} == {("t", 0): position.offset}
        assert group.generation == 1
        sent.send("t", numbered(b"w", 10))
        sent.flush()
        seen = set()

        def all_seen():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                seen.add(message.value())
            return seen >= set(numbered(b"w", 10))

        until(all_seen, 30)
    finally:
        consumer.close()


def test_a_cluster_comes_back_as_it_was(tmp_path):
    for turn in range(3):
        with EmbeddedCluster(brokers=3, data_dir=tmp_path, default_replication_factor=2) as cluster:
            sent = Acknowledged(cluster.bootstrap_servers, **{"enable.idempotence": True})
            sent.send("t", numbered(b"turn-%d" % turn, 10))
            sent.flush()
            assert sent.errors == []
            assert len(cluster.records("t", 0)) == 10 * (turn + 1)
            topic_id = cluster.controller.image.topics["t"].topic_id
            if turn == 0:
                first_id = topic_id
            assert topic_id == first_id


def test_a_topic_that_was_deleted_while_a_broker_was_away_is_gone_there_too(tmp_path):
    config = {"default.replication.factor": 3, "log.segment.delete.delay.ms": 0}

    def leftovers():
        return [path.name for path in (tmp_path / "broker-3").iterdir() if path.name.startswith("gone")]

    with EmbeddedCluster(brokers=3, data_dir=tmp_path, config=config) as cluster:
        for topic in ("gone", "gone-later", "again"):
            cluster.create_topic(topic, 1, 3)
            until(lambda topic=topic: (topic, 0) in cluster.broker(3).replicas.partitions)
        cluster.stop_broker(3)
        cluster.controller.delete_topic("gone")
        cluster.controller.delete_topic("again")
        cluster.create_topic("again", 1, 2)
        cluster.start_broker(3)
        until(lambda: leftovers() == ["gone-later-0"])
        assert [key for key in cluster.broker(3).logs.logs if key[0] != "gone-later"] == []
        # The old log is no obstacle to a new topic of the same name.
        cluster.stop_broker(3)
        cluster.controller.delete_topic("gone-later")
    with EmbeddedCluster(brokers=3, data_dir=tmp_path, config=config) as cluster:
        assert set(cluster.controller.image.topics) == {"again"}
        cluster.create_topic("gone-later", 1, 3)
        until(lambda: ("gone-later", 0) in cluster.broker(3).replicas.partitions)
        sent = Acknowledged(cluster.bootstrap_servers)
        sent.send("gone-later", numbered(b"v", 5))
        sent.flush()
        until(lambda: values_of(cluster, "gone-later", 3) == numbered(b"v", 5))


def test_followers_tell_their_leaders_only_what_has_changed(cluster):
    """A hundred idle partitions take a fetch of a few bytes, and one that changes takes one entry in it (KIP-227)."""

    def asked_of_little():
        """Whether each follower has fetched, and its last fetch was small."""
        found = [[each for each in cluster.requests if each.client_id == f"headrace-broker-{n}"] for n in (1, 2, 3)]
        return all(asked and asked[-1].size_bytes < 150 for asked in found)

    def fetches():
        return cluster.control.counts[ApiKey.FETCH]

    cluster.create_topic("t", 1, 3)
    cluster.create_topic("many", 100, 3)
    until(asked_of_little)
    sent = Acknowledged(cluster.bootstrap_servers)
    sent.send("t", numbered(b"v", 20))
    sent.flush()
    assert len(sent.values) == 20
    assert max([each.size_bytes for each in cluster.requests if each.api_key is ApiKey.FETCH][-3:]) < 300
    # A restarted leader has no fetch session, so the followers send everything again.
    cluster.kill_broker(2)
    cluster.start_broker(2)
    until(lambda: all(set(each.isr) == {1, 2, 3} for each in cluster.controller.image.topics["many"].partitions))
    sent.send("t", numbered(b"w", 20))
    sent.flush()
    until(asked_of_little)
    # A deleted partition is no longer fetched: a leader would answer that at once, again and again.
    cluster.controller.delete_topic("many")
    until(lambda: "many" not in {topic for topic, _ in cluster.broker(3).replicas.partitions})
    before = fetches()
    sent.send("t", numbered(b"x", 20))
    sent.flush()
    time.sleep(1.0)
    assert fetches() - before < 200
    for node_id in (1, 2, 3):
        until(lambda node_id=node_id: set(values_of(cluster, "t", node_id)) == set(sent.values))


def test_brokers_in_processes_are_killed_one_by_one():
    config = {"default.replication.factor": 3, "num.partitions": 1, "min.insync.replicas": 2}
    with ProcessCluster(3, config=config) as cluster:
        sent = Acknowledged(cluster.bootstrap_servers, **{"enable.idempotence": True})
        sent.send("t", numbered(b"v", 100))
        sent.flush()
        for turn in range(3):
            image = cluster.controller.image
            killed = image.partition("t", 0).leader
            os.kill(cluster.pids[killed], signal.SIGKILL)
            sent.send("t", numbered(b"turn-%d" % turn, 100))
            sent.flush()
            assert sent.errors == []
            until(lambda killed=killed: killed not in cluster.pids)
            cluster.start_broker(killed)
            until(lambda: set(cluster.controller.image.partition("t", 0).isr) == {1, 2, 3})
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "check.crcs": True, **QUIET}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        read = []

        def all_read():
            read.extend(message.value() for message in consumer.consume(100, 0.2) if message.error() is None)
            return len(read) >= 400

        until(all_read)
        consumer.close()
        assert sorted(read) == sorted(sent.values)


@pytest.mark.parametrize("turn", range(2))
def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path, turn):
    def start(port):
        process = subprocess.Popen(
            [*HEADRACE, "broker", "--data-dir", str(tmp_path), "--port", str(port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, process.stdout.readline().strip().partition("=")[2]

    process, address = start(0)
    try:
        sent = Acknowledged(address, **{"enable.idempotence": True, "linger.ms": 1})
        sent.send("t", [b"first"])
        sent.flush()
        sent.send("t", numbered(b"v", 3000 + 500 * turn), 0.0001)
        assert len(sent.values) < 3000 + 500 * turn
        process.kill()
        process.wait(10)
        process.stdout.close()
        process, _ = start(int(address.rpartition(":")[2]))
        sent.flush()
        assert sent.errors == []
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": "g", "check.crcs": True, **QUIET}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        read = []

        def all_read():
            read.extend(message.value() for message in consumer.consume(1000, 0.2) if message.error() is None)
            return len(read) >= len(sent.values)

        until(all_read)
        consumer.close()
        assert sorted(read) == sorted(sent.values)
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
    assert Path(tmp_path, ".kafka_cleanshutdown").exists()
