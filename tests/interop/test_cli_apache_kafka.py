"""The terminal commands with Apache Kafka and its files, and Java's command-line tools with this broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from support.apache_kafka import ApacheKafka
from support.confluent import PATIENCE_S
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster
from headrace.cli import main


@pytest.fixture
def headrace(
    apache_kafka: ApacheKafka, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[str], str]]:
    """A function that runs a command against Apache Kafka: exit code, lines of output, and the error output."""

    def run(*arguments: str) -> tuple[int, list[str], str]:
        code = main([*arguments, "--bootstrap-server", apache_kafka.bootstrap_servers])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run


def test_topics_of_apache_kafka(headrace):
    assert headrace("topics", "create", "cli", "--partitions", "3", "--config", "retention.ms=86400000") == (
        0,
        ["created cli: partitions 3, replicas 1"],
        "",
    )
    code, _, err = headrace("topics", "create", "cli")
    assert code == 1
    assert "already exists" in err
    assert [line.split() for line in headrace("topics", "list")[1] if line.startswith("cli ")] == [["cli", "3", "1"]]
    # a broker that has just been made the leader may not answer for the partition yet, whose end is "?" then
    out: list[str] = []
    wait_until(lambda: out.extend(headrace("topics", "describe", "cli")[1]) or "?" not in out[-1] + out[-2] + out[-3])
    assert re.fullmatch(r"topic cli  id [\w-]{22}", out[0])
    assert "  retention.ms=86400000" in out
    assert [line.split() for line in out[-3:]] == [[str(number), "1", "1", "1", "0", "0"] for number in range(3)]
    assert headrace("topics", "delete", "cli")[:2] == (0, ["deleted cli"])
    assert headrace("topics", "describe", "cli")[0] == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_apache_kafka(apache_kafka: ApacheKafka, headrace, codec: str):
    topic = f"cli-{codec}"
    headrace("topics", "create", topic, "--partitions", "1")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": apache_kafka.bootstrap_servers,
            "compression.type": codec,
            "transactional.id": topic,
        }
    )
    producer.init_transactions(PATIENCE_S)
    for number in range(3):
        producer.begin_transaction()
        for part in range(100):
            producer.produce(topic, b"%d" % (100 * number + part), b"key", headers=[("h", b"1")])
        producer.commit_transaction(PATIENCE_S)
    code, out, _ = headrace("consume", topic, "--json")
    assert code == 0
    objects = [json.loads(line) for line in out]
    assert [int(each["value"]) for each in objects] == list(range(300))
    assert {(each["key"], tuple(map(tuple, each["headers"]))) for each in objects} == {("key", (("h", "1"),))}
    # the offsets between the transactions belong to the control records that end them
    assert objects[-1]["offset"] == 301


# --- Java's tools with this broker ---


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, default_replication_factor=3, num_partitions=3) as cluster:
        yield cluster


@pytest.fixture
def tool(apache_kafka: ApacheKafka, cluster: EmbeddedCluster) -> Callable[..., str]:
    """A function that runs one of Java's tools against this broker and returns its output."""

    def run(name: str, *arguments: str, input: bytes = b"") -> str:
        name = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        return apache_kafka.run_class(
            name, "--bootstrap-server", cluster.bootstrap_servers, *arguments, input=input
        ).decode()

    return run


def test_groups_by_java_s_tools(tool, cluster: EmbeddedCluster):
    cluster.create_topic("java")
    lines = b"".join(b"k%d:v%d\n" % (number, number) for number in range(90))
    options = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("ConsoleProducer", "--topic", "java", *options, input=lines)
    ends = dict(line.split(":")[1:] for line in tool("GetOffsetShell", "--topic", "java").split())
    assert sum(map(int, ends.values())) == 90
    group = ("--group", "java-group")
    read = tool(
        "consumer.ConsoleConsumer",
        *("--topic", "java", "--from-beginning", "--max-messages", "90", "--timeout-ms", "20000", *group),
    )
    assert sorted(read.split()) == sorted(f"v{number}" for number in range(90))
    groups = "consumer.group.ConsumerGroupCommand"
    assert "java-group" in tool(groups, "--list").split()
    described = [line.split() for line in tool(groups, "--describe", *group).splitlines() if "java-group" in line]
    assert {row[2]: (row[3], row[4], row[5]) for row in described} == {
        partition: (end, end, "0") for partition, end in ends.items()
    }
    tool(groups, "--reset-offsets", *group, "--topic", "java", "--to-earliest", "--execute")
    known = cluster.group("java-group")
    assert known is not None
    assert {offset.offset for offset in known.offsets.values()} == {0}
    tool(groups, "--delete-offsets", *group, "--topic", "java")
    tool(groups, "--delete", *group)
    assert cluster.group("java-group") is None


def test_configurations_and_records_by_java_s_tools(tool, cluster: EmbeddedCluster, tmp_path):
    cluster.create_topic("configured", 1)
    entity = ("--entity-type", "topics", "--entity-name", "configured")
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "max.message.bytes=4321")
    assert "max.message.bytes=4321" in tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert cluster.controller.image.topics["configured"].configs == {"max.message.bytes": "4321"}
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "max.message.bytes")
    assert cluster.controller.image.topics["configured"].configs == {}
    tool("ConsoleProducer", "--topic", "configured", input=b"a\nb\nc\nd\n")
    wanted = tmp_path / "wanted.json"
    wanted.write_text('{"partitions": [{"topic": "configured", "partition": 0, "offset": 3}], "version": 1}')
    assert "low_watermark: 3" in tool("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert [bytes(record.value) for record in cluster.records("configured", 0)] == [b"d"]
    assert '"partition":"configured-0"' in tool("LogDirsCommand", "--describe", "--topic-list", "configured")
