"""`headrace consume` with a group and with filters: what it prints, and which offsets it commits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import kafka
import pytest
from support import kafka_python_members
from support.waiting import wait_until

from headrace.broker import EmbeddedCluster, Fault
from headrace.cli import main
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import CoordinatorNotAvailableError, NotCoordinatorError
from headrace.producer import KafkaProducer, ProducerRecord

HEADRACE = [sys.executable, "-m", "headrace.cli"]
T = 1_600_000_000_000
HOUR = 3_600_000


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(2, log_retention_ms=-1, log_message_timestamp_before_max_ms=2**62) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    name = f"t{abs(hash(request.node.name))}"
    cluster.create_topic(name, 2)
    return name


@pytest.fixture
def consume(cluster, topic, capsys):
    """Runs the command; returns the exit code, the printed values in order, and the error output."""

    def run(*arguments):
        code = main(["consume", topic, "-b", cluster.bootstrap_servers, "--json", *arguments])
        captured = capsys.readouterr()
        records = [json.loads(line) for line in captured.out.splitlines()]
        return code, sorted(record["value"] for record in records), captured.err

    return run


@pytest.fixture
def send(cluster, topic):
    def run(*records):
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for record in records:
                producer.send(record).get(30)

    def of(values, **fields):
        run(*(ProducerRecord(topic, value.encode(), **{"partition": 0, **fields}) for value in values))

    return of


def committed(cluster, topic, group):
    """The committed offsets, read by another client."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group)
    try:
        return {each: consumer.committed(kafka.TopicPartition(topic, each)) for each in range(2)}
    finally:
        consumer.close()


# --- Groups ---


def test_a_group_goes_on_where_it_stopped(cluster, topic, consume, send):
    send("abc")
    send("d", partition=1)
    assert consume("--group", "g1") == (0, ["a", "b", "c", "d"], "")
    assert committed(cluster, topic, "g1") == {0: 3, 1: 1}
    code, values, err = consume("--group", "g1")
    assert (code, values) == (0, [])
    assert err == f"headrace consume: {topic} has no records after those that group g1 has read\n"
    send("e")
    assert consume("-g", "g1")[1] == ["e"]
    assert consume("-g", "g2")[1] == ["a", "b", "c", "d", "e"]


def test_a_limit_commits_what_was_printed_and_no_more(cluster, topic, consume, send):
    send("abcdef")
    assert consume("-g", "limited", "--max", "2")[1] == ["a", "b"]
    assert committed(cluster, topic, "limited")[0] == 2
    assert consume("-g", "limited", "--max", "3")[1] == ["c", "d", "e"]


def test_records_that_a_filter_leaves_out_count_as_read(cluster, topic, consume, send):
    send("abcdef")
    assert consume("-g", "filtered", "--grep", "b")[1] == ["b"]
    assert committed(cluster, topic, "filtered")[0] == 6


def test_where_to_begin_is_for_a_group_without_offsets(consume, send):
    send("abc")
    assert consume("-g", "late", "--from", "end")[1] == []
    send("d")
    assert consume("-g", "late", "--from=-1")[1] == ["d"]
    assert consume("-g", "late", "--from", "beginning")[1] == []


def test_only_the_chosen_partitions_are_committed(cluster, topic, consume, send):
    send("ab")
    send("c", partition=1)
    assert consume("-g", "part", "-p", "1")[1] == ["c"]
    assert committed(cluster, topic, "part") == {0: None, 1: 1}


def test_offsets_that_another_client_committed(cluster, topic, consume, send):
    send("abcd")
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="other")
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.commit({place: kafka.structs.OffsetAndMetadata(3, "", -1)})
    consumer.close()
    assert consume("-g", "other")[1] == ["d"]


def test_a_group_with_members_takes_no_offsets_from_others(cluster, topic, consume, send):
    send("a")
    with kafka_python_members.member(cluster.bootstrap_servers, topic, "busy"):
        code, _, err = consume("-g", "busy", "-p", "0")
    assert code == 1
    assert "group busy has members, so its offsets are theirs to commit" in err


def test_a_coordinator_that_starts_or_moves_is_waited_for(cluster, consume, send):
    send("a")
    for api, error in (
        (ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError),
        (ApiKey.OFFSET_FETCH, NotCoordinatorError),
        (ApiKey.OFFSET_COMMIT, NotCoordinatorError),
    ):
        cluster.inject(api, Fault(error=error), times=2)
    assert consume("-g", "patient") == (0, ["a"], "")


def test_a_group_that_may_not_be_used(capsys):
    with EmbeddedCluster(authorizer_class_name="StandardAuthorizer") as guarded:
        guarded.create_topic("t")
        guarded.add_acl(operation="ALL", topic="t")
        assert main(["consume", "t", "-b", guarded.bootstrap_servers, "-g", "closed"]) == 1
    err = capsys.readouterr().err
    assert "group closed: the client's principal needs an ACL that allows READ on GROUP 'closed'" in err


def test_old_brokers(cluster, topic, consume, send):
    send("ab")
    cluster.act_as("2.1")
    try:
        assert consume("-g", "old", "--max", "1")[1] == ["a"]
        assert consume("-g", "old")[1] == ["b"]
    finally:
        cluster.act_as(None)


def follow(cluster, topic, group):
    command = [*HEADRACE, "consume", topic, "-b", cluster.bootstrap_servers, "--follow", "-g", group]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_commits_what_was_printed(cluster, topic, send):
    send("abc")
    with follow(cluster, topic, "stopped") as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")
    # it may have come between the third line and the note that it was printed
    assert committed(cluster, topic, "stopped")[0] in {2, 3}


def test_ctrl_c_does_not_wait_for_a_coordinator_that_does_not_answer(cluster, topic, send):
    send("abc")
    with follow(cluster, topic, "silent") as process:
        assert process.stdout is not None
        wait_until(lambda: committed(cluster, topic, "silent")[0] == 3)
        silence = cluster.inject(ApiKey.OFFSET_COMMIT, Fault(silent=True), times=None)
        send("d")
        wait_until(lambda: silence.hits)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    silence.remove()
    assert process.returncode == 130
    assert err == "headrace consume: the last offsets were not committed: the coordinator did not answer\n"


# --- Filters ---


def test_keys_values_and_headers(topic, consume, send):
    send("a", key=b"order-1", headers=[("trace", b"x1"), ("kind", b"new")])
    send("b", key=b"order-2", headers=[("trace", b"y2")])
    send("c")
    assert consume("--key", "^order")[1] == ["a", "b"]
    assert consume("--key", "2$")[1] == ["b"]
    assert consume("--grep", "[ac]")[1] == ["a", "c"]
    assert consume("--header", "trace")[1] == ["a", "b"]
    assert consume("--header", "trace=^x", "--header", "kind")[1] == ["a"]
    assert consume("--key", "order", "--grep", "b")[1] == ["b"]
    code, values, err = consume("--grep", "nothing")
    assert (code, values) == (0, [])
    assert err == f"headrace consume: {topic} has no records that pass the filters\n"
    assert len(consume("--key", "order", "--max", "1")[1]) == 1


def test_fields_of_json(cluster, topic, capsys, send):
    documents = [{"id": 1, "user": {"name": "ada", "tags": ["x", "y"]}}, {"id": 2, "ok": True}, {"id": "1"}]
    send([json.dumps(each) for each in documents] + ["no json", "[1]"])

    def found(*where):
        arguments = [part for each in where for part in ("--where", each)]
        assert main(["consume", topic, "-b", cluster.bootstrap_servers, "--json", *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [documents.index(json.loads(json.loads(line)["value"])) for line in lines]

    assert found("id=1") == [0, 2]
    assert found("user.name=ada", "id=1") == [0]
    assert found("user.tags.1=y") == [0]
    assert found("ok=true") == [1]
    assert found("user.tags.7=y") == []


def test_times(consume, send):
    send("a", timestamp_ms=T)
    send("b", timestamp_ms=T + HOUR)
    send("c", timestamp_ms=T + 2 * HOUR, partition=1)
    assert consume("--since", str(T + 1))[1] == ["b", "c"]
    assert consume("--since", "2020-09-13T13:26:40")[1] == ["b", "c"]
    assert consume("--until", "2020-09-13T13:26:40Z")[1] == ["a"]
    assert consume("--since", str(T + 1), "--until", "2020-09-13T14:26:41+00:00")[1] == ["b", "c"]
    assert consume("--since", str(T + 9 * HOUR))[1] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grep", "("], "--grep '(' is not a regular expression"),
        (["--header", "=x"], "--header takes NAME or NAME=REGEX, not '=x'"),
        (["--where", "id"], "--where takes FIELD=TEXT, not 'id'"),
        (["--since", "yesterday"], "--since is 'yesterday'; give ISO 8601"),
        (["--since", "0", "--from", "3"], "--from and --since both say where to begin"),
    ],
)
def test_a_wrong_filter_is_one_line(consume, arguments, said):
    code, _, err = consume(*arguments)
    assert code == 1
    assert said in err
    assert err.count("\n") == 1
