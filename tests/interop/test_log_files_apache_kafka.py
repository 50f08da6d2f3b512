"""Log directories in both directions: Apache Kafka reads this broker's files, and this broker reads Kafka's."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from support.apache_kafka import ApacheKafka
from support.apache_kafka.fixtures import start_or_skip
from support.confluent import PATIENCE_S, create_topic

from headrace.broker import EmbeddedCluster
from headrace.broker.log.cleaner import clean
from headrace.cli import main
from headrace.network.clock import SYSTEM_CLOCK

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Kafka expires producers by their records' timestamps, so these have to be recent.
T = SYSTEM_CLOCK.wall_ms() - 60_000
SEGMENTS = {"segment.bytes": "20000", "index.interval.bytes": "500"}
# Kafka's segments are at least 1 MiB but may be short in time: by the timestamps, which increase by 1 ms per record.
KAFKA_SEGMENTS = {"segment.ms": "60", "index.interval.bytes": "500"}


class Row(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple


def rows(bootstrap_servers: str, topic: str) -> list[Row]:
    """All records of a topic's only partition up to its end, which may be a transaction's control record."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "rows",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    found: list[Row] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"no more records after {len(found)}"
            error = message.error()
            if error is None:
                headers = tuple(message.headers() or ())
                found.append(
                    Row(message.offset() or 0, message.timestamp()[1], message.key(), message.value(), headers)
                )
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
            else:
                raise confluent_kafka.KafkaException(error)
    finally:
        consumer.close()


def fill(bootstrap_servers: str, topic: str, count: int = 300, **config: object) -> None:
    """Write records in many small batches, with timestamps that increase by a millisecond."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": "transactional.id" not in config,
            "linger.ms": 0,
            "log_level": 0,
            **config,
        }
    )
    failures: list[object] = []
    for number in range(count):
        producer.produce(
            topic,
            b"value-%d" % number * (number % 13),
            b"key-%d" % (number % 20) if number % 10 else None,
            timestamp=T + number,
            headers=[("number", b"%d" % number), ("none", None)],
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        if number % 7 == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []


def fill_every_codec(bootstrap_servers: str, topic: str) -> None:
    for codec in CODECS:
        fill(bootstrap_servers, topic, **{"compression.type": codec})


def hold_against_dump_log(kafka: ApacheKafka, directory: Path) -> str:
    """Check every segment, index and snapshot with Kafka's tool; returns its description of the segments."""
    logs = sorted(directory.glob("*.log"))
    indexes = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    described = kafka.dump_log(*logs, options=("--deep-iteration", "--print-data-log"))
    assert "isvalid: false" not in described
    assert "invalid bytes" not in described
    # The first checks that an index is usable as it is, the second compares each entry with the segment.
    checked = kafka.dump_log(*indexes, options=("--index-sanity-check",))
    assert checked.count("passed sanity check") + checked.count(".index is empty") == len(indexes)
    verified = kafka.dump_log(*indexes, options=("--verify-index-only",))
    assert re.search("mismatch|Found|Error|out of order", verified) is None, verified
    return described


def offsets_in(described: str) -> list[int]:
    return [int(offset) for offset in re.findall(r"^\| offset: (\d+)", described, re.MULTILINE)]


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheKafka]:
    """Kafka's tools, and a broker with small segments, which tests stop and start."""
    kafka = start_or_skip(properties={"log.segment.bytes": "1048576"})
    try:
        yield kafka
    finally:
        kafka.__exit__()


pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("apache_kafka")]


# --- This broker's files, read by Apache Kafka ---


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of three brokers that wrote every codec, deleted and compacted records, and custom timestamps, lost
    a leader, and were finally killed."""
    directory = tmp_path_factory.mktemp("ours")
    with EmbeddedCluster(3, data_dir=directory, log_retention_ms=-1, replica_lag_time_max_ms=2000) as cluster:
        servers = cluster.bootstrap_servers
        for topic, config in {
            "codecs": {},
            "append-time": {"message.timestamp.type": "LogAppendTime"},
            "deleted": {},
            "failover": {},
        }.items():
            cluster.create_topic(topic, 1, 3, {**SEGMENTS, **config})
        fill_every_codec(servers, "codecs")
        fill(servers, "append-time", **{"compression.type": "lz4"})
        fill(servers, "deleted")
        for broker in cluster.brokers.values():
            log = broker.replicas.partition(("deleted", 0)).log
            log.advance_log_start_offset(290)
            log.delete_old_segments()
        for _ in range(2):
            fill(servers, "failover", 50)
            node_id = cluster.leader_of("failover", 0)
            cluster.kill_broker(node_id)
            fill(servers, "failover", 50)
            cluster.start_broker(node_id)
        for node_id in cluster.brokers:
            cluster.kill_broker(node_id)
    # Recover the killed brokers, and stop them cleanly this time.
    with EmbeddedCluster(3, data_dir=directory, log_retention_ms=-1):
        pass
    return directory


@pytest.mark.parametrize("topic", ["codecs", "append-time", "deleted", "failover"])
@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_every_replica_s_files_are_sound_to_kafka(tools: ApacheKafka, ours: Path, topic: str, node_id: int):
    partition = ours / f"broker-{node_id}" / f"{topic}-0"
    described = hold_against_dump_log(tools, partition)
    offsets = offsets_in(described)
    assert offsets == list(range(offsets[0], offsets[-1] + 1))
    assert offsets[-1] + 1 == {"codecs": 1500, "append-time": 300, "deleted": 300, "failover": 200}[topic]
    assert (0 < offsets[0] <= 290) == (topic == "deleted")
    if topic == "codecs":
        assert set(re.findall(r"compresscodec: (\w+)", described)) == set(CODECS)
    if topic == "append-time":
        assert "LogAppendTime" in described
        assert "CreateTime" not in described
    if topic == "failover":
        assert len(set(re.findall(r"partitionLeaderEpoch: (\d+)", described))) > 1
    assert main(["dump-log", "--quiet", str(partition)]) == 0


def test_replicas_hold_the_same_bytes(ours: Path):
    for topic in ("codecs", "append-time", "failover"):
        contents = {
            b"".join(path.read_bytes() for path in sorted((ours / f"broker-{node_id}" / f"{topic}-0").glob("*.log")))
            for node_id in (1, 2, 3)
        }
        assert len(contents) == 1, topic


def test_snapshots_are_read_by_kafka(tools: ApacheKafka, ours: Path):
    snapshots = sorted((ours / "broker-1" / "codecs-0").glob("*.snapshot"))
    assert len(snapshots) > 2
    described = tools.dump_log(snapshots[-1], options=())
    found = re.findall(r"producerId: (\d+) .*?lastSequence: (\d+)", described)
    # one producer per codec, with 300 records each
    assert len({producer_id for producer_id, _ in found}) == len(CODECS)
    assert {sequence for _, sequence in found} == {"299"}


def test_a_compacted_log(tools: ApacheKafka, tmp_path: Path):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", configs={**SEGMENTS, "cleanup.policy": "compact"})
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        for number in range(2000):
            producer.produce("t", b"%d" % number, b"key-%d" % (number % 50), headers=[("h", b"x" * (number % 40))])
            if number % 10 == 0:
                producer.flush(PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0
        log = cluster.broker(1).replicas.partition(("t", 0)).log
        log.roll()
        assert clean(log, 0) is not None
        kept = [record.offset for record in cluster.records("t", 0)]
        assert kept == list(range(1950, 2000))
    offsets = offsets_in(hold_against_dump_log(tools, tmp_path / "t-0"))
    assert offsets == kept


def test_transactions_are_sound_to_kafka(tools: ApacheKafka, tmp_path: Path):
    """Kafka's tool reads the markers, the index of aborted transactions, open transactions in a snapshot, and the
    transaction log."""
    with EmbeddedCluster(data_dir=tmp_path, log_retention_ms=-1) as cluster:
        cluster.create_topic("t", configs=SEGMENTS)
        transact(cluster.bootstrap_servers, "t")
        expected = rows(cluster.bootstrap_servers, "t")
        opened = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "open", "log_level": 0}
        )
        opened.init_transactions(PATIENCE_S)
        opened.begin_transaction()
        opened.produce("t", b"undecided")
        assert opened.flush(PATIENCE_S) == 0
        assert rows(cluster.bootstrap_servers, "t") == expected
        log = cluster.broker(1).replicas.partition(("t", 0)).log
        undecided = log.last_stable_offset
        aborted = [entry for segment in log.segments for entry in segment.transaction_index.entries]
        states = cluster.transactions()
    assert len(expected) == 150
    assert len(aborted) == 10
    described = hold_against_dump_log(tools, tmp_path / "t-0")
    assert described.count("endTxnMarker: COMMIT") == 30
    assert described.count("endTxnMarker: ABORT") == 10
    indexes = sorted((tmp_path / "t-0").glob("*.txnindex"))
    said = tools.dump_log(*indexes, options=())
    found = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", said)
    assert [tuple(map(int, each)) for each in found] == [tuple(entry) for entry in aborted]
    snapshot = sorted((tmp_path / "t-0").glob("*.snapshot"))[-1]
    said = tools.dump_log(snapshot, options=())
    assert f"currentTxnFirstOffset: OptionalLong[{undecided}]" in said
    logs = [path for path in tmp_path.glob("__transaction_state-*/*.log") if path.stat().st_size]
    said = tools.dump_log(*logs, options=("--deep-iteration", "--transaction-log-decoder"))
    last = {}
    for key, value in re.findall(r"key: (\{.*?\}) payload: (\{.*\})$", said, re.MULTILINE):
        last[json.loads(key)["data"]["transactionalId"]] = json.loads(value)
    for name, partitions in (("tx", []), ("open", [{"topic": "t", "partitionIds": [0]}])):
        state, decoded = states[name], last[name]
        assert decoded["version"] == "1"
        data = decoded["data"]
        assert (data["producerId"], data["producerEpoch"]) == (state.producer_id, state.producer_epoch)
        assert (data["transactionStatus"], data["transactionPartitions"]) == (state.state, partitions)
        assert data["transactionStartTimestampMs"] == state.start_ms


def test_a_torn_tail_is_cut_where_kafka_would_cut_it(tools: ApacheKafka, tmp_path: Path):
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t", configs=SEGMENTS)
        fill(cluster.bootstrap_servers, "t", **{"compression.type": "zstd"})
        cluster.kill_broker(1)
    last = sorted((tmp_path / "t-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-7])
    assert "invalid bytes" in tools.dump_log(last)
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        count = len(cluster.records("t", 0))
    offsets = offsets_in(hold_against_dump_log(tools, tmp_path / "t-0"))
    assert offsets == list(range(count))
    assert 290 <= count < 300


# --- Apache Kafka's files, served by this broker ---


class Theirs(NamedTuple):
    """Apache Kafka's records, and its answers about them, before it was stopped."""

    directory: Path
    rows: dict[str, list[Row]]
    offsets_by_time: dict[str, dict[int, int]]
    producers: dict[str, set[tuple[int, int, int]]]


TOPICS = {
    "k-codecs": {},
    "k-append-time": {"message.timestamp.type": "LogAppendTime"},
    "k-transactions": {},
    "k-compacted": {"cleanup.policy": "compact"},
}


def offsets_by_time(bootstrap_servers: str, topic: str) -> dict[int, int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "times"})
    try:
        found = {}
        for timestamp in range(T - 50, T + 350, 37):
            asked = [confluent_kafka.TopicPartition(topic, 0, timestamp)]
            found[timestamp] = consumer.offsets_for_times(asked, timeout=PATIENCE_S)[0].offset
        return found
    finally:
        consumer.close()


def producers_of(kafka: ApacheKafka, topic: str) -> set[tuple[int, int, int]]:
    """Producer id, epoch and last sequence of every producer of a partition, from Kafka's own tool."""
    said = kafka.run_class(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "describe-producers", "--topic", topic, "--partition", "0"),
    ).decode()
    lines = [line.split() for line in said.splitlines()]
    head = next(line for line in lines if line[:1] == ["ProducerId"])
    columns = [head.index(name) for name in ("ProducerId", "ProducerEpoch", "LastSequence")]
    return {tuple(int(line[at]) for at in columns) for line in lines if line and line[0].isdigit()}  # type: ignore[misc]


def transact(bootstrap_servers: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "tx"})
    producer.init_transactions(PATIENCE_S)
    for number in range(40):
        producer.begin_transaction()
        for part in range(5):
            producer.produce(topic, b"%d-%d" % (number, part), timestamp=T + number)
        if number % 4 == 3:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


@pytest.fixture(scope="module")
def theirs(tools: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    servers = tools.bootstrap_servers
    for topic, config in TOPICS.items():
        create_topic(servers, name=topic, config={**KAFKA_SEGMENTS, **config})
    fill_every_codec(servers, "k-codecs")
    fill(servers, "k-append-time", **{"compression.type": "snappy"})
    transact(servers, "k-transactions")
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(500):
        producer.produce("k-compacted", b"%d" % number, b"key-%d" % (number % 50), timestamp=T + number)
    assert producer.flush(PATIENCE_S) == 0
    known = Theirs(
        tmp_path_factory.mktemp("theirs"),
        {topic: rows(servers, topic) for topic in TOPICS},
        {topic: offsets_by_time(servers, topic) for topic in TOPICS},
        {topic: producers_of(tools, topic) for topic in TOPICS},
    )
    for number, end in enumerate((tools.stop, tools.kill)):
        end(1)
        for topic in TOPICS:
            shutil.copytree(tools.log_dir() / f"{topic}-0", known.directory / str(number) / f"{topic}-0")
        controllers = "__cluster_metadata-0"
        shutil.copytree(tools.log_dir() / controllers, known.directory / f"controllers-{number}" / controllers)
        if number == 0:
            shutil.copy(tools.log_dir() / ".kafka_cleanshutdown", known.directory / "0")
        tools.restart(1)
    return known


@pytest.fixture(params=["stopped", "killed"])
def served(theirs: Theirs, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    """This broker on a copy of Kafka's files after a stop or a kill."""
    shutil.copytree(theirs.directory / str(["stopped", "killed"].index(request.param)), tmp_path, dirs_exist_ok=True)
    with EmbeddedCluster(data_dir=tmp_path, log_index_interval_bytes=500, log_cleaner_enable=False) as cluster:
        yield cluster


def test_all_records_are_there(served: EmbeddedCluster, theirs: Theirs):
    for topic in TOPICS:
        # The consumer reads committed records only. Kafka's own index has the aborted ones.
        assert rows(served.bootstrap_servers, topic) == theirs.rows[topic], topic
    assert len(theirs.rows["k-transactions"]) == 150
    assert len(served.records("k-transactions", 0)) == 200
    log = served.broker(1).replicas.partition(("k-transactions", 0)).log
    assert sum(len(segment.transaction_index.entries) for segment in log.segments) == 10


def test_offsets_are_found_by_time_as_kafka_found_them(served: EmbeddedCluster, theirs: Theirs):
    for topic in TOPICS:
        assert offsets_by_time(served.bootstrap_servers, topic) == theirs.offsets_by_time[topic], topic


def test_every_offset_is_found_through_the_index(served: EmbeddedCluster, theirs: Theirs):
    log = served.broker(1).replicas.partition(("k-codecs", 0)).log
    assert len(log.segments) > 3
    assert sum(len(segment.offset_index) for segment in log.segments) > 20
    assert sum(len(segment.time_index) for segment in log.segments) > 20
    for row in theirs.rows["k-codecs"][::17]:
        batch = next(log.batches(row.offset, log.end.offset))
        assert batch.base_offset <= row.offset <= batch.last_offset


def test_producers_go_on_where_they_were(served: EmbeddedCluster, theirs: Theirs):
    for topic in ("k-codecs", "k-append-time", "k-compacted"):
        log = served.broker(1).replicas.partition((topic, 0)).log
        known = {
            (entry.producer_id, entry.producer_epoch, entry.last_sequence) for entry in log.producers.producers.values()
        }
        assert known == theirs.producers[topic], topic


def test_what_is_appended_here_is_sound_to_kafka(served: EmbeddedCluster, tools: ApacheKafka, tmp_path: Path):
    fill(served.bootstrap_servers, "k-codecs", **{"compression.type": "lz4"})
    served.close()
    assert offsets_in(hold_against_dump_log(tools, tmp_path / "k-codecs-0")) == list(range(1800))
    assert main(["dump-log", "--quiet", str(tmp_path)]) == 0


def test_the_terminal_command_finds_kafka_s_files_sound(theirs: Theirs, capsys: pytest.CaptureFixture[str]):
    """Including a killed broker's files, whose indexes have their preallocated length, and the controllers' files."""
    assert main(["dump-log", "--records", str(theirs.directory)]) == 0
    out = capsys.readouterr().out
    assert "WRONG" not in out
    assert " and room for " in out
    for said in ("leader change", "  abort\n", "  commit\n", "transactional, control", " by the broker, "):
        assert said in out


def test_kafka_serves_what_was_appended_here(tools: ApacheKafka, theirs: Theirs, tmp_path: Path):
    """Kafka's partition, moved here, appended to, and moved back."""
    shutil.copytree(theirs.directory / "0", tmp_path, dirs_exist_ok=True)
    with EmbeddedCluster(data_dir=tmp_path, log_retention_ms=-1) as cluster:
        fill(cluster.bootstrap_servers, "k-append-time", 100)
        here = rows(cluster.bootstrap_servers, "k-append-time")
        producers = cluster.broker(1).replicas.partition(("k-append-time", 0)).log.producers.producers.values()
        known = {(entry.producer_id, entry.producer_epoch, entry.last_sequence) for entry in producers}
    assert len(here) == 400
    tools.stop(1)
    back = tools.log_dir() / "k-append-time-0"
    shutil.rmtree(back)
    shutil.copytree(tmp_path / "k-append-time-0", back)
    tools.restart(1)
    assert rows(tools.bootstrap_servers, "k-append-time") == here
    assert producers_of(tools, "k-append-time") == known
    fill(tools.bootstrap_servers, "k-append-time", 100)
    assert len(rows(tools.bootstrap_servers, "k-append-time")) == 500
