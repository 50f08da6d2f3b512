"""`headrace topics` and `headrace consume` against running brokers: their output and their errors."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading

import pytest
from support.processes import child

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.cli import client, main
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import NotLeaderForPartitionError
from headrace.network.records.compression import Compression
from headrace.producer import KafkaProducer, ProducerRecord

T = 1_600_000_000_000


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(3, num_partitions=2, log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture
def headrace(cluster, capsys):
    """A function that runs a command against the cluster: exit code, lines of output, and the error output."""

    def run(*arguments):
        code = main([*arguments, "--bootstrap-server", cluster.bootstrap_servers])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run


def send(cluster, topic, *records, **config):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **config) as producer:
        for record in records:
            producer.send(record).get(10)


def values(topic, count, partition=0):
    return [ProducerRecord(topic, b"%d" % number, partition=partition, timestamp_ms=T) for number in range(count)]


def test_topics_are_created_listed_described_and_deleted(cluster, headrace):
    assert headrace("topics", "list") == (0, ["no topics"], "")
    code, out, _ = headrace(
        "topics", "create", "orders", "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=5000"
    )
    assert (code, out) == (0, ["created orders: partitions 2, replicas 3"])
    assert headrace("topics", "create", "b")[1] == ["created b: partitions 2, replicas 1"]
    assert headrace("topics", "list")[1] == [
        "topic   partitions  replicas",
        "b                2         1",
        "orders           2         3",
    ]
    send(cluster, "orders", *values("orders", 5, partition=1))
    code, out, _ = headrace("topics", "describe", "orders", "b")
    assert code == 0
    assert re.fullmatch(r"topic orders  id [\w-]{22}", out[0])
    assert out[1] == "  retention.ms=5000"
    assert out[2] == "partition  leader  replicas  in sync  first offset  next offset"
    leaders = [cluster.leader_of("orders", partition) for partition in (0, 1)]
    for partition, next_offset in ((0, 0), (1, 5)):
        row = out[3 + partition].split()
        assert row[:2] == [str(partition), str(leaders[partition])]
        assert sorted(row[2].split(",")) == sorted(row[3].split(",")) == ["1", "2", "3"]
        assert row[4:] == ["0", str(next_offset)]
    assert out[5] == ""
    assert out[6].startswith("topic b  id ")
    assert headrace("topics", "delete", "orders", "b")[:2] == (0, ["deleted orders", "deleted b"])
    assert headrace("topics", "list")[1] == ["no topics"]


def test_internal_topics_are_shown_on_request():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("__consumer_offsets")
        ran = [
            subprocess.run(
                [sys.executable, "-m", "headrace.cli", "topics", "list", *more, "-b", cluster.bootstrap_servers],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout
            for more in ([], ["--internal"])
        ]
    assert "__consumer_offsets" not in ran[0]
    assert "__consumer_offsets" in ran[1]


def test_what_the_broker_refuses_is_said_in_a_line(headrace):
    for arguments, complaint in (
        (["create", "bad name"], "headrace topics: "),
        (["create", "t", "--replication-factor", "9"], "headrace topics: replication factor 9 needs as many brokers"),
        (["create", "t", "--config", "no.such=1"], "headrace topics: no.such is not a configuration key"),
        (["create", "t", "--config", "retention.ms"], "headrace topics: --config takes KEY=VALUE, not 'retention.ms'"),
        (["create", "t", "--config", "retention.ms=x"], "headrace topics: retention.ms: 'x' is not a whole number"),
        (
            ["create", "t", "--config", "retention.ms=1", "--config", "retention.ms=2"],
            "headrace topics: --config names retention.ms twice, as '1' and '2'; keep one",
        ),
        (["describe", "nothing"], "headrace topics: there is no topic 'nothing'; `headrace topics list` shows"),
        (["delete", "nothing", "none"], "headrace topics: there is no topic 'nothing'; there is no topic 'none'"),
    ):
        code, out, err = headrace("topics", *arguments)
        assert (code, out) == (1, [])
        assert err.startswith(complaint)
        assert err.count("\n") == 1


def test_records_are_printed_a_line_each(cluster, headrace):
    cluster.create_topic("kinds", 1)
    kinds = [(b"k", b"v"), (None, b"\xff\0"), (b"k", None), (b"", b"null"), ("ü".encode(), b"a\nb")]
    records = [ProducerRecord("kinds", value, key, timestamp_ms=T) for key, value in kinds]
    records.append(ProducerRecord("kinds", b"h", headers=[("a", b"1"), ("b", None)], timestamp_ms=T + 1))
    send(cluster, "kinds", *records)
    code, out, _ = headrace("consume", "kinds")
    assert code == 0
    assert out == [
        "0:0  2020-09-13 12:26:40.000  k  v",
        '0:1  2020-09-13 12:26:40.000  null  "\\xff\\x00"',
        "0:2  2020-09-13 12:26:40.000  k  null",
        '0:3  2020-09-13 12:26:40.000  ""  "null"',
        '0:4  2020-09-13 12:26:40.000  ü  "a\\nb"',
        "0:5  2020-09-13 12:26:40.001  null  h  {a: 1, b: null}",
    ]
    objects = [json.loads(line) for line in headrace("consume", "kinds", "--json")[1]]
    assert objects[1]["value"] == {"base64": "/wA="}
    assert objects[5] == {
        "partition": 0,
        "offset": 5,
        "timestamp": T + 1,
        "key": None,
        "value": "h",
        "headers": [["a", "1"], ["b", None]],
    }


@pytest.mark.parametrize("codec", Compression)
def test_records_of_every_codec(cluster, headrace, codec):
    topic = f"codec-{codec.name}"
    cluster.create_topic(topic, 1)
    records = [ProducerRecord(topic, b"value" * 200, timestamp_ms=T) for _ in range(50)]
    send(cluster, topic, *records, compression_type=codec.name.lower())
    out = headrace("consume", topic, "--width", "5")[1]
    assert out == [f"0:{number}  2020-09-13 12:26:40.000  null  value… (1000 bytes)" for number in range(50)]


def test_where_to_begin_and_where_to_end(cluster, headrace):
    cluster.create_topic("where", 2)
    send(cluster, "where", *values("where", 5), *values("where", 3, partition=1))

    def read(*arguments):
        return sorted(line.split()[0] for line in headrace("consume", "where", *arguments)[1])

    assert read() == ["0:0", "0:1", "0:2", "0:3", "0:4", "1:0", "1:1", "1:2"]
    assert read("--partition", "1") == ["1:0", "1:1", "1:2"]
    assert read("--from", "2") == ["0:2", "0:3", "0:4", "1:2"]
    assert read("--from=-1") == ["0:4", "1:2"]
    assert read("--from=-100", "-p", "1") == ["1:0", "1:1", "1:2"]
    assert read("--from", "end") == []
    assert len(read("--max", "4")) == 4
    assert read("--max", "0") == []
    cluster.broker(cluster.leader_of("where", 0)).replicas.partition(("where", 0)).log.advance_log_start_offset(3)
    assert read("-p", "0", "--from", "beginning") == ["0:3", "0:4"]
    code, out, err = headrace("consume", "where", "-p", "0", "-p", "1", "--from", "1")
    assert (code, len(out)) == (0, 4)
    assert err == "headrace consume: where-0 no longer has offset 1; the first one there is 3\n"
    code, out, err = headrace("consume", "where", "--from", "4")
    assert (code, [line.split()[0] for line in out]) == (0, ["0:4"])
    assert err == "headrace consume: where-1 ends before offset 4; the next one there is 3\n"
    code, _, err = headrace("consume", "where", "--from", "soon")
    assert (code, err) == (1, "headrace consume: --from takes beginning, end, an offset or -N, not 'soon'\n")
    code, _, err = headrace("consume", "where", "-p", "2")
    assert (code, err) == (1, "headrace consume: where has partitions 0 to 1, not [2]\n")


def test_where_nothing_is_printed_it_says_why(cluster, headrace):
    cluster.create_topic("empty", 1)
    assert headrace("consume", "empty") == (0, [], "headrace consume: empty has no records\n")
    assert headrace("consume", "empty", "--from=end") == headrace("consume", "empty", "--max", "0") == (0, [], "")
    send(cluster, "empty", *values("empty", 2))
    assert headrace("consume", "empty", "--from", "2")[2] == "headrace consume: empty has no records from 2 onward\n"
    code, out, err = headrace("consume", "empty", "--from", "99")
    assert (code, out) == (0, [])
    assert err.splitlines() == [
        "headrace consume: empty-0 ends before offset 99; the next one there is 2",
        "headrace consume: empty has no records from 99 onward",
    ]


def test_a_batch_larger_than_a_fetch(cluster, headrace):
    cluster.create_topic("large", 1, configs={"max.message.bytes": "8000000"})
    record = ProducerRecord("large", b"x" * 3_000_000, timestamp_ms=T)
    send(cluster, "large", record, record, max_request_size=8_000_000)
    assert headrace("consume", "large", "--width", "1")[1] == [
        f"0:{number}  2020-09-13 12:26:40.000  null  x… (3000000 bytes)" for number in (0, 1)
    ]


def test_reading_goes_on_at_the_new_leader(cluster, headrace):
    cluster.create_topic("moved", 1, 3)
    send(cluster, "moved", *values("moved", 3))
    with cluster.inject(ApiKey.FETCH, Fault(error=NotLeaderForPartitionError, topic="moved"), times=2) as fault:
        assert len(headrace("consume", "moved")[1]) == 3
        assert fault.hits == 2


def test_following_prints_what_arrives(cluster):
    cluster.create_topic("followed", 2)
    send(cluster, "followed", *values("followed", 1))
    command = [sys.executable, "-m", "headrace.cli", "consume", "followed", "-b", cluster.bootstrap_servers]
    with child([*command, "--follow", "-n", "3"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        watch = threading.Timer(60, process.kill)
        watch.start()
        assert process.stdout.readline().startswith("0:0 ")
        send(cluster, "followed", *values("followed", 2, partition=1))
        assert process.stdout.readline().startswith("1:0 ")
        assert process.stdout.readline().startswith("1:1 ")
        assert process.wait() == 0
        watch.cancel()


def test_a_reader_that_has_seen_enough_ends_it_quietly(cluster):
    cluster.create_topic("piped", 1)
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(200):
            producer.send("piped", b"x" * 5000)
    command = [sys.executable, "-m", "headrace.cli", "consume", "piped", "-b", cluster.bootstrap_servers]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"0:0 ")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_broker_that_is_down_is_passed_over(cluster, capsys):
    servers = f"127.0.0.1:1,{cluster.bootstrap_servers}"
    assert main(["topics", "list", "-b", servers]) == 0
    capsys.readouterr()


def test_without_a_port_it_is_kafkas(cluster, capsys, monkeypatch):
    host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
    monkeypatch.setattr(client, "DEFAULT_PORT", int(port))
    assert main(["topics", "list", "-b", host]) == 0
    capsys.readouterr()


def test_no_broker_and_no_kafka(capsys):
    assert main(["topics", "list", "-b", "127.0.0.1:1,127.0.0.1:2"]) == 1
    assert capsys.readouterr().err.count("cannot connect to 127.0.0.1:") == 2
    for servers, told in (
        ("localhost:", "--bootstrap-server: 'localhost:' has no port; write localhost:9092"),
        ("a:1 b:2", "--bootstrap-server: 'a:1 b:2' has whitespace in it; separate addresses with commas"),
        (" , ", "--bootstrap-server names no broker; write localhost:9092, for instance"),
    ):
        assert main(["topics", "list", "-b", servers]) == 1
        assert capsys.readouterr().err == f"headrace topics: {told}\n"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["consume", "t", "-b", f"127.0.0.1:{server.getsockname()[1]}"]) == 1
        thread.join()
    assert (
        "does not speak Kafka's protocol, it is an HTTP server: check the port (it sent b'HTTP"
        in capsys.readouterr().err
    )


def test_acting_as_an_old_broker(cluster, headrace):
    cluster.create_topic("old", 1)
    send(cluster, "old", *values("old", 2))
    cluster.control.max_versions = {
        ApiKey.API_VERSIONS: 2,
        ApiKey.METADATA: 5,
        ApiKey.FETCH: 7,
        ApiKey.LIST_OFFSETS: 3,
        ApiKey.DESCRIBE_CONFIGS: 1,
        ApiKey.CREATE_TOPICS: 2,
        ApiKey.DELETE_TOPICS: 1,
    }
    try:
        assert len(headrace("consume", "old")[1]) == 2
        assert headrace("topics", "describe", "old")[1][0] == "topic old"
        assert headrace("topics", "create", "older", "--partitions", "1", "--replication-factor", "1")[1] == [
            "created older"
        ]
        assert headrace("topics", "delete", "older")[1] == ["deleted older"]
    finally:
        cluster.control.max_versions = None


def test_a_cluster_with_sasl_is_reached_with_the_keys_of_a_file(tmp_path, capsys):
    path = tmp_path / "client.properties"
    with EmbeddedCluster(users={"alice": "secret"}) as cluster:

        def run(password: str) -> tuple[int, str]:
            path.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
                f"sasl.username=alice\nsasl.password={password}\n"
            )
            code = main(["topics", "list", "-b", cluster.bootstrap_servers, "--command-config", str(path)])
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        assert run("secret") == (0, "no topics\n")
        code, text = run("guess")
        assert code == 1
        assert "rejected the SCRAM-SHA-256 credentials" in text
        assert "guess" not in text
