"""The embedded broker and Apache Kafka: its tools read our files, we serve its files, and its clients connect to us."""

from __future__ import annotations

import re
import shutil

import confluent_kafka
import pytest

from headrace.broker import EmbeddedCluster

QUIET = {"log_level": 0}
VALUES = [b"value-%d" % number for number in range(300)]


def produce(bootstrap_servers, topic, values, **config):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 0, **QUIET, **config}
    )
    failures = []
    for number, value in enumerate(values):
        producer.produce(topic, value, b"key", on_delivery=lambda error, _: failures.append(error) if error else None)
        if number % 10 == 0:
            producer.flush(20)
    assert producer.flush(30) == 0
    assert failures == []


def consume(bootstrap_servers, topic, count):
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    values = []
    for _ in range(300):
        values += [message.value() for message in consumer.consume(count - len(values), 0.1) if not message.error()]
        if len(values) >= count:
            break
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


@pytest.fixture(scope="module")
def our_files(tmp_path_factory):
    """The directory of a cluster that wrote several segments and stopped cleanly."""
    directory = tmp_path_factory.mktemp("ours")
    with EmbeddedCluster(data_dir=directory, log_segment_bytes=2000, log_index_interval_bytes=200) as cluster:
        produce(cluster.bootstrap_servers, "t", VALUES, **{"compression.type": "lz4"})
        assert consume(cluster.bootstrap_servers, "t", len(VALUES)) == VALUES
    return directory


def test_kafkas_dump_log_reads_our_segments(apache_kafka, our_files):
    logs = sorted((our_files / "t-0").glob("*.log"))
    assert len(logs) > 2
    text = apache_kafka.dump_log(*logs, options=("--deep-iteration", "--print-data-log"))
    assert re.findall(r"payload: (value-\d+)", text) == [value.decode() for value in VALUES]
    assert "isvalid: false" not in text


def test_kafkas_dump_log_finds_our_indexes_sane(apache_kafka, our_files):
    indexes = sorted([*(our_files / "t-0").glob("*.index"), *(our_files / "t-0").glob("*.timeindex")])
    assert any(path.stat().st_size for path in indexes)
    text = apache_kafka.dump_log(*indexes, options=("--index-sanity-check",))
    # The last segment may be too short for an entry.
    assert text.count("passed sanity check") + text.count("is empty") == len(indexes)
    deep = apache_kafka.dump_log(*indexes, options=("--verify-index-only",))
    assert "Mismatches" not in deep
    assert "Found" not in deep


def test_kafkas_dump_log_reads_our_producer_snapshots(apache_kafka, our_files):
    last = sorted((our_files / "t-0").glob("*.snapshot"))[-1]
    text = apache_kafka.dump_log(last, options=())
    assert re.search(
        r"producerId: \d+ producerEpoch: 0 .*lastSequence: 299 lastOffset: 299", text.replace(",", "")
    ) or ("lastSequence: 299" in text)


def test_kafkas_dump_log_reads_our_groups(apache_kafka, our_files):
    logs = [path for path in our_files.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    text = apache_kafka.dump_log(*logs, options=("--offsets-decoder",))
    assert '"topic":"t"' in text
    assert '"offset":300' in text
    assert '"protocolType":"consumer"' in text


def test_our_broker_serves_the_files_of_apache_kafka(apache_kafka, tmp_path):
    produce(apache_kafka.bootstrap_servers, "from-kafka", VALUES, **{"compression.type": "zstd"})
    copied = tmp_path / "from-kafka-0"
    shutil.copytree(apache_kafka.log_dir() / "from-kafka-0", copied)
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert consume(cluster.bootstrap_servers, "from-kafka", len(VALUES)) == VALUES
        produce(cluster.bootstrap_servers, "from-kafka", [b"more"])
        assert len(cluster.records("from-kafka", 0)) == len(VALUES) + 1
    text = apache_kafka.dump_log(*copied.glob("*.log"), options=("--deep-iteration", "--print-data-log"))
    assert "payload: more" in text


@pytest.fixture
def cluster():
    with EmbeddedCluster(brokers=3, default_replication_factor=3, num_partitions=3) as cluster:
        yield cluster


def test_kafkas_java_consumer_reads_from_our_broker(apache_kafka, cluster):
    produce(cluster.bootstrap_servers, "j", VALUES)
    lines = apache_kafka.console_consumer("j", max_messages=len(VALUES), bootstrap_servers=cluster.bootstrap_servers)
    assert sorted(lines) == sorted(VALUES)


def test_kafkas_java_producer_writes_to_our_broker(apache_kafka, cluster):
    cluster.create_topic("k", 3, 3)
    apache_kafka.run_class(
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "--topic",
        "k",
        "--compression-codec",
        "snappy",
        input=b"".join(b"line-%d\n" % number for number in range(200)),
    )
    written = [bytes(record.value) for partition in range(3) for record in cluster.records("k", partition)]
    assert sorted(written) == sorted(b"line-%d" % number for number in range(200))


def test_kafkas_java_admin_client_gets_along_with_our_broker(apache_kafka, cluster):
    def topics(*arguments):
        return apache_kafka.run_class(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.bootstrap_servers, *arguments
        ).decode()

    topics(
        "--create", "--topic", "a", "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=5000"
    )
    described = topics("--describe", "--topic", "a")
    assert "PartitionCount: 2" in described
    assert "retention.ms=5000" in described
    topics("--alter", "--topic", "a", "--partitions", "4")
    assert "PartitionCount: 4" in topics("--describe", "--topic", "a")
    topics("--delete", "--topic", "a")
    assert "a" not in topics("--list").split()


def test_kafkas_group_tools_get_along_with_our_broker(apache_kafka, cluster):
    servers = ("--bootstrap-server", cluster.bootstrap_servers)

    def tool(name, *arguments):
        return apache_kafka.run_class(f"org.apache.kafka.tools.{name}", *servers, *arguments).decode()

    tool("VerifiableProducer", "--topic", "v", "--max-messages", "200", "--acks", "-1")
    read = tool(
        "VerifiableConsumer",
        *("--topic", "v", "--group-id", "vg", "--max-messages", "200", "--reset-policy", "earliest"),
    )
    assert "offsets_committed" in read
    groups = "consumer.group.ConsumerGroupCommand"
    assert re.search(r"vg +Empty", tool(groups, "--list", "--state"))
    lags = re.findall(r"vg +v +\d+ +(\d+) +(\d+) +0 ", tool(groups, "--describe", "--group", "vg"))
    assert sum(int(current) for current, _ in lags) == 200
    tool(groups, "--reset-offsets", "--to-earliest", "--execute", "--topic", "v", "--group", "vg")
    assert {offset.offset for offset in cluster.group("vg").offsets.values()} == {0}
    assert "successful" in tool(groups, "--delete", "--group", "vg")
