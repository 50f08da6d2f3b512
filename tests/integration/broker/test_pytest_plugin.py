"""The pytest plugin, in separate runs of pytest."""

from __future__ import annotations

import re

import confluent_kafka
import pytest

# Imported here, because pytester forgets what an inner run imported, and every run would import it again.
from headrace.broker import EmbeddedCluster
from headrace.network import clock
from headrace.producer import KafkaProducer

__all__ = ["EmbeddedCluster", "KafkaProducer", "clock", "confluent_kafka"]

pytest_plugins = ["pytester"]

PREAMBLE = """
    import pytest
    from headrace.producer import KafkaProducer

    def send(cluster, topic, *values, partition=0):
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for value in values:
                producer.send(topic, value, partition=partition).get(10)

    def values(cluster, topic, partition=0):
        return [bytes(record.value) for record in cluster.records(topic, partition)]
"""


@pytest.fixture
def run(pytester):
    def run(source, *arguments):
        pytester.makepyfile(PREAMBLE + source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", *arguments)

    return run


def test_a_topic_of_its_own_for_every_test(run):
    run("""
    NAMES = set()

    @pytest.mark.parametrize("what", ["a b/c", "ü", "x" * 300])
    def test_odd_names(kafka_cluster, kafka_topic, what):
        NAMES.add(kafka_topic)
        send(kafka_cluster, kafka_topic, b"1", b"2")
        assert values(kafka_cluster, kafka_topic) == [b"1", b"2"]

    def test_other(kafka_cluster, kafka_topic):
        assert values(kafka_cluster, kafka_topic) == []
        assert len(NAMES | {kafka_topic}) == 4
        assert len(kafka_cluster.controller.image.topics) == 1
    """).assert_outcomes(passed=4)


def test_the_session_cluster_is_shared_and_as_new_for_every_test(run):
    run("""
    import confluent_kafka
    from headrace.broker.requests.control import Fault
    from headrace.network.protocol.api import ApiKey
    from headrace.network.protocol.errors import NotEnoughReplicasError

    CLUSTERS, LEFT_OPEN = [], []

    def test_that_leaves_everything_behind(kafka_cluster):
        CLUSTERS.append((id(kafka_cluster), kafka_cluster.bootstrap_servers))
        send(kafka_cluster, "orders", b"1")
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": "app", "auto.offset.reset": "earliest",
            "log_level": 0,
        })
        consumer.subscribe(["orders"])
        assert consumer.poll(10).value() == b"1"
        consumer.commit(asynchronous=False)
        LEFT_OPEN.append(consumer)
        kafka_cluster.control.max_versions = {ApiKey.API_VERSIONS: 0}
        kafka_cluster.inject(ApiKey.PRODUCE, Fault(error=NotEnoughReplicasError), times=None)
        kafka_cluster.kill_broker(1)

    def test_that_changes_the_settings(kafka_cluster):
        kafka_cluster.telemetry.subscribe(metrics=["org.apache.kafka.producer."], interval_ms=100)
        with KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            producer.client_instance_id(10)
        assert kafka_cluster.telemetry.pushes
        kafka_cluster.controller.set_resource_configs(4, "1", {"log.cleaner.threads": "2"})
        kafka_cluster.update_features({"transaction.version": 1})
        kafka_cluster.set_password("alice", "secret")

    def test_that_finds_nothing_of_it(kafka_cluster):
        assert (id(kafka_cluster), kafka_cluster.bootstrap_servers) == CLUSTERS[0]
        assert [each for each in kafka_cluster.controller.image.topics.values() if not each.is_internal] == []
        assert [group for group in kafka_cluster.broker(1).offsets.groups() if group.offsets] == []
        image = kafka_cluster.controller.image
        assert (dict(image.configs), image.users.names, dict(image.features)) == ({}, set(), {"transaction.version": 2})
        assert kafka_cluster.telemetry.pushes == []
        LEFT_OPEN.pop().close()
        send(kafka_cluster, "orders", b"2")
        assert values(kafka_cluster, "orders") == [b"2"]
    """).assert_outcomes(passed=3)


def test_groups_that_the_broker_has_not_loaded_yet_are_reset(run):
    run("""
    import threading
    import confluent_kafka
    from headrace.broker.group import offsets

    read_groups = offsets._read_groups

    def read_slowly(partition):
        threading.Event().wait(0.5)
        return read_groups(partition)

    def test_that_restarts_its_broker(kafka_cluster, kafka_topic):
        send(kafka_cluster, kafka_topic, b"1")
        committer = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": "app", "log_level": 0}
        )
        committer.commit(offsets=[confluent_kafka.TopicPartition(kafka_topic, 0, 1)], asynchronous=False)
        committer.close()
        kafka_cluster.stop_broker(1)
        offsets._read_groups = read_slowly

    def test_that_finds_no_group(kafka_cluster):
        offsets._read_groups = read_groups
        has_loaded = threading.Event()
        kafka_cluster.broker(1).after(0, has_loaded.set)
        assert has_loaded.wait(20)
        assert kafka_cluster.broker(1).offsets.groups() == []
    """).assert_outcomes(passed=2)


def test_the_session_cluster_keeps_what_is_older_than_a_week(run):
    run("""
    def test_old(kafka_cluster, kafka_topic):
        with KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            producer.send(kafka_topic, b"old", timestamp_ms=1_000_000_000_000).get(10)
        # what a broker does in its fifth minute
        kafka_cluster.broker(1).logs.delete_old_segments()
        assert values(kafka_cluster, kafka_topic) == [b"old"]
    """).assert_outcomes(passed=1)


def test_what_lives_longer_than_a_test_may_use_the_session_cluster(run):
    run("""
    @pytest.fixture(scope="session")
    def lasting_topic(kafka_session_cluster):
        kafka_session_cluster.create_topic("lasting")
        return "lasting"

    @pytest.mark.parametrize("turn", [1, 2])
    def test_it(lasting_topic, kafka_cluster, turn):
        send(kafka_cluster, lasting_topic, b"1")
        assert len(values(kafka_cluster, lasting_topic)) == turn
    """).assert_outcomes(passed=2)


def test_the_marker_asks_for_a_cluster_of_its_own(run):
    run("""
    pytestmark = pytest.mark.kafka(topic_partitions=2)
    SEEN = []

    def test_default(kafka_cluster, kafka_topic, kafka_session_cluster):
        assert kafka_cluster is kafka_session_cluster
        assert len(kafka_cluster.controller.image.topics[kafka_topic].partitions) == 2

    @pytest.mark.kafka(brokers=3, config={"min.insync.replicas": 2}, racks={1: "a", 2: "b", 3: "c"})
    class TestThree:
        def test_replicated(self, kafka_cluster, kafka_topic, kafka_session_cluster):
            assert kafka_cluster is not kafka_session_cluster
            partitions = kafka_cluster.controller.image.topics[kafka_topic].partitions
            assert [sorted(each.replicas) for each in partitions] == [[1, 2, 3]] * 2
            assert kafka_cluster.config.min_insync_replicas == 2
            assert kafka_cluster.broker(2).rack == "b"
            kafka_cluster.kill_broker(kafka_cluster.leader_of(kafka_topic, 1))
            send(kafka_cluster, kafka_topic, b"1", partition=1)
            SEEN.append(kafka_cluster.bootstrap_servers)

        @pytest.mark.kafka(brokers=1, topic_config={"retention_ms": 5, "cleanup.policy": "delete"})
        def test_nearer_marker(self, kafka_cluster, kafka_topic):
            assert len(kafka_cluster.brokers) == 1
            assert kafka_cluster.config.min_insync_replicas == 2
            configs = kafka_cluster.controller.image.topics[kafka_topic].configs
            assert configs == {"retention.ms": "5", "cleanup.policy": "delete"}
            assert kafka_cluster.bootstrap_servers not in SEEN
    """).assert_outcomes(passed=3)


def test_virtual_time(run):
    run("""
    import threading

    def test_an_hour_in_no_time(kafka_cluster, kafka_clock, kafka_session_cluster):
        assert kafka_cluster is not kafka_session_cluster
        over, before = threading.Event(), kafka_clock.wall_ms()
        kafka_cluster.broker(1).after(3_600_000, over.set)
        kafka_clock.advance(3_599_999)
        assert not over.is_set()
        kafka_clock.advance(1)
        assert over.wait(20)
        assert kafka_clock.wall_ms() == before + 3_600_000
    """).assert_outcomes(passed=1)


@pytest.mark.parametrize(("arguments", "message"), [("broker=3", "doesn't take broker"), ("3", "without a name")])
def test_a_marker_that_says_nothing_known_is_an_error(run, arguments, message):
    result = run(f"""
    @pytest.mark.kafka({arguments})
    def test_it(kafka_cluster):
        pass
    """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}*it takes brokers, config, *"])


def test_a_configuration_that_is_wrong_is_told(run):
    result = run("""
    @pytest.mark.kafka(config={"num.partition": 3})
    def test_it(kafka_cluster):
        pass
    """)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*num.partition*"])


def test_a_run_without_kafka_does_not_import_the_broker(pytester):
    pytester.makepyfile("""
    import sys

    def test_it():
        assert "headrace.broker.pytest_plugin" in sys.modules
        found = [name for name in sys.modules if name.startswith("headrace.")]
        assert sorted(found) == ["headrace.broker", "headrace.broker.pytest_plugin"]
    """)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_marker_and_the_fixtures_are_told_by_pytest(pytester):
    markers = pytester.runpytest_inprocess("--markers").stdout.str()
    assert re.search(r"@pytest\.mark\.kafka\(brokers=1,", markers)
    fixtures = pytester.runpytest_inprocess("--fixtures").stdout.str()
    for name in ("kafka_cluster", "kafka_topic", "kafka_clock", "kafka_session_cluster"):
        assert re.search(rf"^{name}\b.*-- .*pytest_plugin\.py", fixtures, re.MULTILINE), fixtures
