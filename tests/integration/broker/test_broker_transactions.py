"""Transactions through real sockets: both protocols, moves and kills of brokers at each step, faults, other clients."""

from __future__ import annotations

import random
import threading
import time

import confluent_kafka
import kafka
import pytest
from support.confluent import PATIENCE_S
from support.transactional_client import TransactionalClient

from headrace.broker import ApiKey, EmbeddedCluster, Fault, ProcessCluster
from headrace.broker.transaction.states import TransactionState
from headrace.network.client.api_versions import handshake_request
from headrace.network.protocol.errors import (
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    KafkaConfigurationError,
    NotLeaderForPartitionError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownError,
)
from headrace.network.protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from headrace.network.protocol.other_errors import UnstableOffsetCommitError

QUIET = {"log_level": 0}
FENCED = {ProducerFencedError.code, InvalidProducerEpochError.code}


def until(condition, timeout_s=20.0):
    end = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)
    return value


def read(cluster, topic, *, isolation="read_committed", partition=0):
    """The values in a partition up to its end for readers of that isolation level, by confluent-kafka's consumer."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reads",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "check.crcs": True,
            **QUIET,
        }
    )
    values = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"no more records after {len(values)}"
            if message.error() is None:
                values.append(message.value())
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return values
            else:
                raise confluent_kafka.KafkaException(message.error())
    finally:
        consumer.close()


def state_of(cluster, name):
    return cluster.transactions()[name].state


def settled(cluster, name):
    """The final state of a transaction that is being ended."""
    until(lambda: name in cluster.transactions() and not state_of(cluster, name).is_prepared)
    return state_of(cluster, name)


@pytest.fixture
def one():
    with EmbeddedCluster(auto_create_topics_enable=False) as cluster:
        cluster.create_topic("t", 2)
        yield cluster


@pytest.fixture
def three():
    with EmbeddedCluster(
        brokers=3,
        auto_create_topics_enable=False,
        replica_lag_time_max_ms=500,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
    ) as cluster:
        cluster.create_topic("t", 2, 3)
        yield cluster


@pytest.mark.parametrize("bumps", [False, True], ids=["classic", "bumped"])
class TestBothProtocols:
    def test_commit_and_abort(self, three, bumps):
        with TransactionalClient(three, "x", bumps=bumps) as client:
            assert client.init() == 0
            for turn, commit in enumerate((True, False, True, False)):
                assert client.produce("t", b"%d-0" % turn, b"%d-1" % turn) == 0
                assert client.produce("t", b"other-%d" % turn, partition=1) == 0
                assert state_of(three, "x") is TransactionState.ONGOING
                assert client.end(commit=commit) == 0
            assert settled(three, "x") is TransactionState.COMPLETE_ABORT
        assert read(three, "t") == [b"0-0", b"0-1", b"2-0", b"2-1"]
        assert read(three, "t", partition=1) == [b"other-0", b"other-2"]
        assert len(read(three, "t", isolation="read_uncommitted")) == 8

    def test_a_second_producer_fences_the_first(self, one, bumps):
        with (
            TransactionalClient(one, "x", bumps=bumps) as old,
            TransactionalClient(one, "x", bumps=bumps) as new,
        ):
            assert old.init() == 0
            assert old.produce("t", b"old") == 0
            assert new.init() == 0
            assert old.produce("t", b"late") in FENCED
            assert old.end(commit=True) in FENCED | {48}  # INVALID_TXN_STATE: it is aborted
            assert new.produce("t", b"new") == 0
            assert new.end(commit=True) == 0
            assert settled(one, "x") is TransactionState.COMPLETE_COMMIT
        assert read(one, "t") == [b"new"]

    def test_a_transaction_times_out(self, one, bumps):
        with TransactionalClient(one, "x", bumps=bumps, timeout_ms=300) as client:
            assert client.init() == 0
            assert client.produce("t", b"late") == 0
            until(lambda: state_of(one, "x") is TransactionState.COMPLETE_ABORT)
            assert client.end(commit=True) in FENCED | {48}
            assert client.init() == 0
            assert client.produce("t", b"in time") == 0
            assert client.end(commit=True) == 0
            settled(one, "x")
        assert read(one, "t") == [b"in time"]

    def test_offsets_are_pending_until_the_marker(self, three, bumps):
        with TransactionalClient(three, "x", bumps=bumps) as client:
            assert client.init() == 0
            assert client.commit_offset("g", "t", 5) == 0
            group = three.group("g")
            assert group is not None
            assert group.unstable() == {("t", 0)}
            assert group.offsets == {}
            assert client.end(commit=False) == 0
            assert client.committed_offset("g", "t") == -1
            assert client.commit_offset("g", "t", 6) == 0
            assert client.end(commit=True) == 0
            assert client.committed_offset("g", "t") == 6
            assert group.unstable() == set()

    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("victim", ["coordinator", "leader", "all"])
    @pytest.mark.parametrize("step", ["open", "decided"])
    def test_any_broker_may_be_killed_at_any_step(self, three, bumps, victim, step, commit):
        with TransactionalClient(three, "x", bumps=bumps) as client, TransactionalClient(three, "y") as other:
            assert client.init() == 0
            assert client.produce("t", b"a", b"b") == 0
            assert client.commit_offset("g", "t", 7) == 0
            fault = None
            if step == "decided":
                # The decision is written, but no leader takes the markers.
                fault = three.inject(ApiKey.WRITE_TXN_MARKERS, Fault(error=NotLeaderForPartitionError), times=None)
                assert client.end(commit=commit) == 0
                until(lambda: fault.hits and state_of(three, "x").is_prepared)
            wanted = {
                "coordinator": {three.leader_of("__transaction_state", 0)},
                "leader": {three.leader_of("t", 0)},
                "all": {1, 2, 3},
            }[victim]
            for node_id in wanted:
                three.kill_broker(node_id)
            for node_id in wanted:
                three.start_broker(node_id)
            if fault is not None:
                fault.remove()
            else:
                assert client.produce("t", b"c") == 0
                assert client.end(commit=commit) == 0
            expected = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
            assert settled(three, "x") is expected
            assert client.committed_offset("g", "t") == (7 if commit else -1)
            assert other.init() == 0
            assert other.produce("t", b"end") == 0
            assert other.end(commit=True) == 0
            settled(three, "y")
        written = [b"a", b"b"] if step == "decided" else [b"a", b"b", b"c"]
        assert read(three, "t") == [*(written if commit else []), b"end"]
        for node_id in (1, 2, 3):
            # Each replica has the same index of aborted transactions.
            log = three.broker(node_id).replicas.partition(("t", 0)).log
            until(lambda log=log: log.last_stable_offset == log.end.offset)
            entries = [entry for segment in log.segments for entry in segment.transaction_index.entries]
            assert len(entries) == (0 if commit else 1)

    def test_the_markers_of_a_partition_without_a_leader_wait(self, three, bumps):
        three.create_topic("single", 1, 1)
        leader = three.leader_of("single", 0)
        with TransactionalClient(three, "x", bumps=bumps) as client:
            assert client.init() == 0
            coordinator = three.leader_of("__transaction_state", 0)
            if coordinator == leader:
                three.move_leader("__transaction_state", 0, leader % 3 + 1)
            assert client.produce("single", b"a") == 0
            assert client.produce("t", b"b") == 0
            three.kill_broker(leader)
            assert client.end(commit=True) == 0
            until(lambda: three.transactions()["x"].partitions == {("single", 0)})
            assert state_of(three, "x") is TransactionState.PREPARE_COMMIT
            three.start_broker(leader)
            assert settled(three, "x") is TransactionState.COMPLETE_COMMIT
        assert read(three, "single") == [b"a"]

    def test_a_deleted_topic_needs_no_marker(self, one, bumps):
        one.create_topic("doomed")
        with TransactionalClient(one, "x", bumps=bumps) as client:
            assert client.init() == 0
            assert client.produce("doomed", b"a") == 0
            assert client.produce("t", b"b") == 0
            one.controller.delete_topic("doomed")
            assert client.end(commit=True) == 0
            assert settled(one, "x") is TransactionState.COMPLETE_COMMIT
        assert read(one, "t") == [b"b"]

    @pytest.mark.parametrize("seed", range(4))
    def test_read_committed_equals_a_model(self, bumps, seed):
        """Random transactions of several producers, with kills of brokers, against a list of what committed."""
        rng = random.Random(seed)
        with EmbeddedCluster(
            brokers=2, transaction_state_log_num_partitions=2, offsets_topic_num_partitions=1, log_segment_bytes=2000
        ) as cluster:
            cluster.create_topic("t", 2, 2)
            clients = [TransactionalClient(cluster, f"x{number}", bumps=bumps) for number in range(3)]
            pending = {client.name: [] for client in clients}
            committed = {0: [], 1: []}
            for client in clients:
                assert client.init() == 0
            for turn in range(60):
                client = rng.choice(clients)
                mine = pending[client.name]
                action = rng.random()
                if action < 0.5:
                    partition, value = rng.randrange(2), b"%s-%d" % (client.name.encode(), turn)
                    assert client.produce("t", value, partition=partition) == 0
                    mine.append((partition, value))
                elif action < 0.85 and mine:
                    commit = rng.random() < 0.6
                    assert client.end(commit=commit) == 0
                    for partition, value in mine if commit else ():
                        committed[partition].append(value)
                    mine.clear()
                elif action < 0.92:
                    assert client.init() == 0  # aborts what is open
                    mine.clear()
                else:
                    node_id = rng.choice([1, 2])
                    cluster.kill_broker(node_id)
                    cluster.start_broker(node_id)
                    until(lambda: all(len(part.isr) == 2 for part in cluster.controller.image.topics["t"].partitions))
            for client in clients:
                assert client.end(commit=False) == 0 if pending[client.name] else True
                settled(cluster, client.name)
                client.close()
            for partition, expected in committed.items():
                found = read(cluster, "t", partition=partition)
                assert sorted(found) == sorted(expected)
                for client in clients:
                    mine = [value for value in found if value.startswith(client.name.encode())]
                    assert mine == [value for value in expected if value.startswith(client.name.encode())]


def test_the_epochs_of_an_id_run_out(one):
    for bumps in (False, True):
        name = f"x{bumps}"
        with TransactionalClient(one, name, bumps=bumps) as client:
            assert client.init() == 0
            old_id = client.producer_id
            transaction = one.broker(1).transaction_store.find(name)
            # As if it had been initialised 32,765 times.
            transaction.values = transaction.values._replace(producer_epoch=32_765)
            assert client.init() == 0
            assert (client.producer_id, client.epoch) == (old_id, 32_766)
            assert client.produce("t", b"last of " + name.encode()) == 0
            assert client.end(commit=True) == 0
            assert settled(one, name) is TransactionState.COMPLETE_COMMIT
            if not bumps:
                assert client.init(producer_id=client.producer_id, producer_epoch=client.epoch) == 0
            assert client.producer_id != old_id
            assert client.epoch == 0
            assert client.produce("t", b"first of another") == 0
            assert client.end(commit=True) == 0
            settled(one, name)
    assert len(read(one, "t")) == 4


def test_a_fenced_transaction_with_the_last_epoch_gets_another_id(one):
    with TransactionalClient(one, "x") as old, TransactionalClient(one, "x") as new:
        assert old.init() == 0
        transaction = one.broker(1).transaction_store.find("x")
        transaction.values = transaction.values._replace(producer_epoch=32_765)
        assert old.init() == 0
        assert old.produce("t", b"old") == 0
        assert new.init() == 0
        assert new.producer_id != old.producer_id
        assert new.produce("t", b"new") == 0
        assert new.end(commit=True) == 0
        settled(one, "x")
    assert read(one, "t") == [b"new"]


def test_unused_ids_expire(one):
    with TransactionalClient(one, "idle") as idle, TransactionalClient(one, "busy") as busy:
        assert idle.init() == 0
        assert busy.init() == 0
        assert busy.produce("t", b"v") == 0
        coordinator = one.broker(1).transactions
        coordinator.expire()
        assert set(one.transactions()) == {"idle", "busy"}
        for transaction in coordinator.store.transactions():
            transaction.values = transaction.values._replace(update_ms=0)
        coordinator.expire()
        assert set(one.transactions()) == {"busy"}
        assert idle.end(commit=True) == 49  # INVALID_PRODUCER_ID_MAPPING
        assert busy.end(commit=True) == 0
        settled(one, "busy")
        one.kill_broker(1)
        one.start_broker(1)
        until(lambda: set(one.transactions()) == {"busy"})


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_level_of_the_feature(level):
    with EmbeddedCluster(features={"transaction.version": level}) as cluster:
        cluster.create_topic("t")
        assert cluster.features == {"transaction.version": level}
        with TransactionalClient(cluster, "x", bumps=False) as client:
            assert client.init() == 0
            # before version 4 the minimum is 1, as Apache Kafka says it: Java clients up to 3.8 fail on 0 (KAFKA-17011)
            for version, lowest in ((3, 1), (4, 0)):
                versions = client.connection(*client.coordinator()).request(handshake_request(), version)
                finalized = [(each.name, each.max_version_level) for each in versions.finalized_features]
                assert finalized == ([("transaction.version", level)] if level else [])
                (supported,) = versions.supported_features
                found = (supported.name, supported.min_version, supported.max_version)
                assert found == ("transaction.version", lowest, 2)
        (record,) = [each for index in range(4) for each in cluster.records("__transaction_state", index)]
        assert bytes(record.value)[:2] == (b"\0\1" if level else b"\0\0")
        cluster.update_features({"transaction.version": 1})
        assert cluster.features == {"transaction.version": 1}
        with pytest.raises(KafkaConfigurationError, match="from 0 to 2"):
            cluster.update_features({"transaction.version": 3})


def test_the_level_is_kept(tmp_path):
    with EmbeddedCluster(data_dir=tmp_path, features={"transaction.version": 1}):
        pass
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        assert cluster.features == {"transaction.version": 1}


def test_an_older_release_has_the_classic_protocol_only(one):
    one.act_as("3.9")
    with TransactionalClient(one, "x", bumps=False) as client:
        assert client.init() == 0
        versions = client.connection(*client.coordinator()).request(handshake_request(), 3)
        assert versions.finalized_features == []
        highest = {each.api_key: each.max_version for each in versions.api_keys}
        assert (highest[ApiKey.PRODUCE], highest[ApiKey.END_TXN], highest[ApiKey.TXN_OFFSET_COMMIT]) == (11, 4, 4)
        # The leader still asks the coordinator, as brokers do among themselves.
        assert client.produce("t", b"v") == 0
        assert client.end(commit=True) == 0
        settled(one, "x")
    assert read(one, "t") == [b"v"]


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.6"])
def test_transactions_with_an_older_release(three, release):
    """Brokers ask each other, in versions that the older release does not offer its clients."""
    three.create_topic("spread", 3, 1)
    three.act_as(release)
    producer = confluent_producer(three, "x")
    for commit in (True, False):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("spread", b"committed" if commit else b"aborted", partition=partition)
        # librdkafka's abort fails if the broker has not yet let the transaction's partitions in
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
    assert [read(three, "spread", partition=partition) for partition in range(3)] == [[b"committed"]] * 3


class TestFaults:
    """Each request of a transaction can be hit."""

    @pytest.mark.parametrize(
        ("api_key", "step"),
        [
            (ApiKey.FIND_COORDINATOR, lambda client: client.init()),
            (ApiKey.INIT_PRODUCER_ID, lambda client: client.init()),
            (ApiKey.ADD_PARTITIONS_TO_TXN, lambda client: client.add("t")),
            (ApiKey.ADD_OFFSETS_TO_TXN, lambda client: client.commit_offset("g", "t", 1)),
            (ApiKey.TXN_OFFSET_COMMIT, lambda client: client.commit_offset("g", "t", 1)),
            (ApiKey.END_TXN, lambda client: client.end(commit=True)),
        ],
    )
    def test_an_error_reaches_the_client(self, one, api_key, step):
        with TransactionalClient(one, "x", bumps=False) as client:
            assert client.init() == 0
            assert client.produce("t", b"v") == 0
            registration = one.inject(api_key, Fault(error=UnknownError))
            # The client looks for the coordinator again; any other error is returned.
            assert step(client) == (0 if api_key is ApiKey.FIND_COORDINATOR else -1)
            assert registration.hits == 1

    def test_an_error_for_a_topic(self, one):
        with TransactionalClient(one, "x", bumps=False) as client:
            assert client.init() == 0
            fault = Fault(error=TransactionAbortableError, topic="t", partition=1)
            registration = one.inject(ApiKey.ADD_PARTITIONS_TO_TXN, fault, times=None)
            assert client.produce("t", b"v") == 0
            assert client.produce("t", b"v", partition=1) == TransactionAbortableError.code
            assert registration.hits == 1

    def test_verification_fails(self, one):
        """Between brokers: the leader asks the coordinator."""
        with TransactionalClient(one, "x") as client:
            assert client.init() == 0
            one.inject(ApiKey.ADD_PARTITIONS_TO_TXN, Fault(error=TransactionAbortableError, topic="t"))
            assert client.produce("t", b"v") == TransactionAbortableError.code
            one.inject(ApiKey.ADD_PARTITIONS_TO_TXN, Fault(error=CoordinatorNotAvailableError), times=3)
            one.inject(ApiKey.ADD_PARTITIONS_TO_TXN, Fault(close=True), times=2)
            assert client.produce("t", b"v") == 0
            assert client.end(commit=True) == 0

    @pytest.mark.parametrize("fault", [Fault(close=True), Fault(lose_answer=True), Fault(error=UnknownError)])
    def test_markers_are_sent_until_they_are_written(self, one, fault):
        with TransactionalClient(one, "x") as client:
            assert client.init() == 0
            registration = one.inject(ApiKey.WRITE_TXN_MARKERS, fault, times=3)
            for number in range(3):
                assert client.produce("t", b"%d" % number) == 0
                assert client.produce("t", b"%d" % number, partition=1) == 0
                assert client.end(commit=number != 1) == 0
                settled(one, "x")
            assert registration.hits == 3
        assert read(one, "t") == read(one, "t", partition=1) == [b"0", b"2"]

    def test_a_lost_answer_to_end_txn(self, one):
        with TransactionalClient(one, "x") as client:
            assert client.init() == 0
            assert client.produce("t", b"v") == 0
            one.inject(ApiKey.END_TXN, Fault(lose_answer=True))
            assert client.end(commit=True) == 0
            assert client.epoch == 1
            assert client.produce("t", b"w") == 0
            assert client.end(commit=True) == 0
            settled(one, "x")
        assert read(one, "t") == [b"v", b"w"]


def test_unstable_offsets_are_an_error_only_if_asked(one):
    with TransactionalClient(one, "x") as client:
        assert client.init() == 0
        assert client.commit_offset("g", "t", 5) == 0
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
        connection = client.connection(*client.coordinator(0, "g"))
        for stable, code in ((True, UnstableOffsetCommitError.code), (False, 0)):
            request = OffsetFetchRequest(group_id="g", topics=topics, require_stable=stable)
            first, second = connection.request(request, 7).topics[0].partitions
            assert (first.error_code, first.committed_offset) == (code, -1)
            assert (second.error_code, second.committed_offset) == (0, -1)


# --- Other clients ---


def confluent_producer(cluster, name, **config):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, **QUIET, **config}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def test_confluent_kafka(three):
    producer = confluent_producer(three, "x")
    for number in range(10):
        producer.begin_transaction()
        for part in range(20):
            producer.produce("t", b"%d-%d" % (number, part), partition=0)
        if number % 3 == 2:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    expected = [b"%d-%d" % (number, part) for number in range(10) if number % 3 != 2 for part in range(20)]
    assert read(three, "t") == expected


def test_confluent_kafka_consumes_transforms_and_produces(three):
    three.create_topic("out", 1, 3)
    plain = confluent_kafka.Producer({"bootstrap.servers": three.bootstrap_servers, **QUIET})
    for number in range(200):
        plain.produce("t", b"%d" % number, partition=0)
    assert plain.flush(PATIENCE_S) == 0
    for turn in range(2):
        producer = confluent_producer(three, "x")
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": three.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        consumer.subscribe(["t"])
        done = 0
        while done < 100:
            messages = consumer.consume(25, 1.0)
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce("out", message.value())
            assignment = consumer.assignment()
            positions = consumer.position(assignment)
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
            done += len(messages)
        consumer.close()
        if turn == 0:
            three.kill_broker(three.leader_of("__consumer_offsets", 0))
            for node_id in (1, 2, 3):
                if node_id not in three.brokers:
                    three.start_broker(node_id)
    assert read(three, "out") == [b"%d" % number for number in range(200)]


def test_kafka_python(one):
    producer = kafka.KafkaProducer(bootstrap_servers=one.bootstrap_servers, transactional_id="x")
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.send("t", b"%d" % number, partition=0).get(20)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert settled(one, "x") is TransactionState.COMPLETE_ABORT
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=one.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition("t", 0)])
    values = []
    end = time.monotonic() + 20
    while len(values) < 3 and time.monotonic() < end:
        for records in consumer.poll(500).values():
            values += [record.value for record in records]
    assert values == [b"0", b"2", b"4"]
    assert consumer.end_offsets([kafka.TopicPartition("t", 0)]) == {kafka.TopicPartition("t", 0): 12}
    consumer.close()


def test_processes_are_killed_during_transfers():
    """Transfers between accounts: the sum is always the same for readers of committed records."""
    with ProcessCluster(3, replica_lag_time_max_ms=2000, transaction_state_log_num_partitions=3) as cluster:
        cluster.create_topic("accounts", 2, 3)
        stop = threading.Event()
        failures, transfers = [], [0, 0]

        def work(number):
            try:
                with TransactionalClient(cluster, f"worker-{number}", bumps=bool(number)) as client:
                    assert client.init() == 0
                    while not stop.is_set():
                        transfers[number] += 1
                        amount = b"%d" % transfers[number]
                        assert client.produce("accounts", b"-" + amount) == 0
                        assert client.produce("accounts", amount, partition=1) == 0
                        assert client.end(commit=transfers[number] % 5 != 0) == 0
            except BaseException as failed:
                failures.append(failed)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for node_id in (1, 2, 3, 1):
            before = sum(transfers)
            until(lambda before=before: sum(transfers) > before + 10 or failures)
            cluster.kill_broker(node_id)
            before = sum(transfers)
            until(lambda before=before: sum(transfers) > before + 10 or failures)
            cluster.start_broker(node_id)
        stop.set()
        for thread in threads:
            thread.join(60)
        assert failures == []
        for number in range(2):
            settled(cluster, f"worker-{number}")
        taken, given = (read(cluster, "accounts", partition=partition) for partition in (0, 1))
    expected = sorted(str(each) for count in transfers for each in range(1, count + 1) if each % 5)
    assert sorted(each.decode() for each in given) == expected
    assert sorted(each.decode()[1:] for each in taken) == expected
