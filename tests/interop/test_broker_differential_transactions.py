"""Transactions: the same requests to Apache Kafka and to the embedded broker, compared field by field."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.conversation import NOW_MS, Conversation, Scenario, compare, records

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.network.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.network.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.network.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from headrace.network.protocol.messages.records.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.network.protocol.messages.records.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.network.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.network.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.network.protocol.messages.transactions.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from headrace.network.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from headrace.network.protocol.messages.transactions.end_txn import EndTxnRequest
from headrace.network.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from headrace.network.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.network.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

pytestmark = pytest.mark.timeout(180)

CONCURRENT_TRANSACTIONS = 51
#: While the coordinator is found, created and loaded, and while an earlier transaction is completed.
EARLY = (14, 15, 16, CONCURRENT_TRANSACTIONS)
TRANSACTIONAL = 0x10
PATIENCE_S = 90


class Producer:
    """Requests of one transactional producer. Each waits until the transaction before it is complete."""

    def __init__(self, broker: Conversation, name: str) -> None:
        self.broker = broker
        self.name = broker.name(name)
        broker.await_transaction_coordinator(self.name)
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[str, int] = {}

    def ask(self, label: str, message: Any, version: int, code: Any = lambda answer: answer.error_code) -> Any:
        """Ask until the broker is ready. The last answer counts."""
        deadline_s = time.monotonic() + PATIENCE_S
        while code(answer := self.broker.ask(label, message, version)) in EARLY:
            self.broker.answers.pop()
            assert time.monotonic() < deadline_s, f"{label}: {self.broker} still answers with {code(answer)}"
            time.sleep(0.01)
        return answer

    def init(
        self, label: str, version: int = 5, *, timeout_ms: int = 60_000, takes: bool = True, **expected: int
    ) -> Any:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms, **expected)
        answer = self.ask(label, request, version)
        if not answer.error_code and takes:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return answer

    def add(self, label: str, *partitions: tuple[str, int], version: int = 3, **other: Any) -> Any:
        topics = [
            AddPartitionsToTxnTopic(name=self.broker.name(topic), partitions=[index]) for topic, index in partitions
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=other.get("name", self.name),
            v3_and_below_producer_id=other.get("producer_id", self.producer_id),
            v3_and_below_producer_epoch=other.get("epoch", self.epoch),
            v3_and_below_topics=topics,
        )
        answer = self.ask(
            label,
            request,
            version,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        self.broker.answers[-1][1]["results_by_topic_v3_and_below"].sort(key=lambda topic: topic["name"])
        return answer

    def produce(self, label: str, topic: str, version: int = 9, *, count: int = 1, **other: Any) -> Any:
        sequence = other.get("sequence", self.sequences.get(topic, 0))
        batch = records(
            count,
            producer_id=other.get("producer_id", self.producer_id),
            producer_epoch=other.get("epoch", self.epoch),
            base_sequence=sequence,
            attributes=other.get("attributes", TRANSACTIONAL),
        )
        data = TopicProduceData(
            name=self.broker.name(topic), partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=other.get("name", self.name), acks=-1, timeout_ms=10_000, topic_data=[data]
        )
        answer = self.ask(label, request, version, lambda answer: answer.responses[0].partition_responses[0].error_code)
        if not answer.responses[0].partition_responses[0].error_code:
            self.sequences[topic] = sequence + count
        return answer

    def end(self, label: str, version: int = 4, *, committed: bool = True, takes: bool = True, **other: Any) -> Any:
        request = EndTxnRequest(
            transactional_id=other.get("name", self.name),
            producer_id=other.get("producer_id", self.producer_id),
            producer_epoch=other.get("epoch", self.epoch),
            committed=committed,
        )
        answer = self.ask(label, request, version)
        if version >= 5 and not answer.error_code and takes:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return answer

    def describe(self, label: str) -> Any:
        """The settled state. Times are left out."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        while self.broker.ask(label, request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
            self.broker.answers.pop()
        for state in self.broker.answers[-1][1]["transaction_states"]:
            state["transaction_start_time_ms"] = state["transaction_start_time_ms"] > 0
            for topic in state["topics"]:
                topic["partitions"].sort()

    def offsets(
        self, label: str, group: str, version: int = 3, *, topic: str = "t", offset: int = 5, **other: Any
    ) -> Any:
        part = TxnOffsetCommitRequestPartition(
            partition_index=other.get("partition", 0),
            committed_offset=offset,
            committed_metadata=other.get("metadata", "m"),
        )
        request = TxnOffsetCommitRequest(
            transactional_id=other.get("name", self.name),
            group_id=group,
            producer_id=other.get("producer_id", self.producer_id),
            producer_epoch=other.get("epoch", self.epoch),
            generation_id=other.get("generation", -1),
            member_id=other.get("member", ""),
            group_instance_id=other.get("instance"),
            topics=[TxnOffsetCommitRequestTopic(name=self.broker.name(topic), partitions=[part])],
        )
        return self.ask(label, request, version, lambda answer: answer.topics[0].partitions[0].error_code)

    def add_offsets(self, label: str, group: str, version: int = 3, **other: Any) -> Any:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=other.get("producer_id", self.producer_id),
            producer_epoch=other.get("epoch", self.epoch),
            group_id=group,
        )
        return self.ask(label, request, version)


def look(broker: Conversation, label: str, topic: str = "t") -> None:
    """What readers of both kinds see, and the producers."""
    for isolation in (0, 1):
        broker.fetch(f"{label}, fetch {isolation}", topic, 0, isolation_level=isolation)
        asked = {"label": f"{label}, end {isolation}", "topic": topic, "timestamp": -1}
        _list_offsets(broker, isolation, **asked)
    topics = [DescribeProducersTopic(name=broker.name(topic), partition_indexes=[0])]
    broker.ask(f"{label}, producers", DescribeProducersRequest(topics=topics), 0)
    producers = broker.answers[-1][1]["topics"][0]["partitions"][0]["active_producers"]
    producers.sort(key=lambda each: each["producer_id"])
    for each in producers:
        # A marker's time is that of its append.
        each["last_timestamp"] = each["last_timestamp"] if each["last_timestamp"] < NOW_MS + 10_000 else "now"


def _list_offsets(broker: Conversation, isolation: int, *, label: str, topic: str, timestamp: int) -> None:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=broker.name(topic), partitions=[asked])]
    broker.ask(label, ListOffsetsRequest(isolation_level=isolation, topics=topics), 7)


def stored_offsets(broker: Conversation, label: str, group: str, *, stable: bool = True) -> None:
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=broker.name("t"), partition_indexes=[0, 1])]
    )
    for version in (8, 9):
        broker.ask(f"{label}, v{version}", OffsetFetchRequest(groups=[asked], require_stable=stable), version)
    old = OffsetFetchRequest(group_id=group, topics=None, require_stable=stable)
    broker.ask(f"{label}, all", old, 7)


def classic(broker: Conversation) -> None:
    broker.create("t", 2)
    broker.create("u")
    for version, kind, key in ((1, 1, "x"), (1, 7, "x"), (3, 1, ""), (3, 1, "x")):
        request = FindCoordinatorRequest(key=broker.name(key) if key else "", key_type=kind)
        Producer(broker, "x").ask(f"coordinator v{version} of {key!r}, type {kind}", request, version)
    producer = Producer(broker, "x")
    for timeout_ms in (0, -1, 900_001):
        producer.init(f"timeout {timeout_ms}", timeout_ms=timeout_ms)
    producer.add("before init", ("t", 0))
    producer.end("end before init")
    for version in (0, 2, 3, 4, 5):
        producer.init(f"init v{version}", version)
        producer.describe(f"described v{version}")
    producer.end("commit of nothing")
    producer.end("abort of nothing", committed=False)
    producer.add("unknown topic", ("t", 0), ("none", 0))
    producer.add("unknown partition", ("t", 9))
    producer.produce("not added", "t")
    producer.produce("not added, v11", "t", 11)
    for version in (0, 1, 2, 3):
        producer.add(f"add v{version}", ("t", 0), version=version)
        producer.add(f"add v{version}, old epoch", ("t", 0), version=version, epoch=producer.epoch - 1)
    producer.add("add with another id", ("t", 0), producer_id=producer.producer_id + 1_000_000)
    del broker.answers[-1]
    producer.add("add with another name", ("t", 0), name=broker.name("nobody"))
    producer.add("add without a name", ("t", 0), name="")
    producer.describe("ongoing")
    producer.produce("first", "t", count=2)
    producer.produce("second", "t")
    producer.produce("of another topic, not added", "u")
    producer.produce("outside", "t", attributes=0, sequence=3)
    producer.produce("without a name", "u", name=None)
    producer.produce("old epoch", "t", epoch=producer.epoch - 1)
    look(broker, "open")
    for version in (0, 2):
        producer.end(f"old epoch v{version}", version, epoch=producer.epoch - 1)
    producer.end("another id", producer_id=2**40)
    producer.end("another name", name=broker.name("nobody"))
    producer.end("no name", name="")
    producer.end("commit", 3)
    producer.describe("committed")
    producer.end("commit again")
    producer.end("abort after commit", committed=False)
    look(broker, "committed")
    producer.add("add after commit", ("t", 0))
    producer.produce("to be aborted", "t", count=3)
    look(broker, "open again")
    producer.end("abort", 1, committed=False)
    producer.describe("aborted")
    producer.end("abort again", committed=False)
    producer.end("commit after abort")
    look(broker, "aborted")
    for start in (0, 2, 3, 4, 5, 7, 8):
        broker.fetch(f"committed from {start}", "t", start, isolation_level=1)


def fencing(broker: Conversation) -> None:
    broker.create("t")
    old = Producer(broker, "x")
    new = Producer(broker, "x")
    old.init("old")
    old.add("old adds", ("t", 0))
    old.produce("old produces", "t")
    new.init("new, over an open transaction")
    new.describe("new")
    look(broker, "after fencing")
    old.add("old adds again", ("t", 0))
    old.add("old adds again, v1", ("t", 0), version=1)
    old.produce("old produces again", "t")
    old.produce("old produces again, v12", "t", 12)
    old.end("old commits")
    old.end("old commits, v5", 5)
    for version in (3, 4):
        old.init(
            f"old goes on, v{version}", version, producer_id=old.producer_id, producer_epoch=old.epoch, takes=False
        )
    half: dict[str, int] = {"producer_id": new.producer_id}
    old.init("half an identity", takes=False, **half)
    old.init("another id", producer_id=new.producer_id + 1_000_000, producer_epoch=0, takes=False)
    epoch = new.epoch
    new.init("new goes on", producer_id=new.producer_id, producer_epoch=epoch)
    new.init("new goes on, again", producer_id=new.producer_id, producer_epoch=epoch)
    new.describe("gone on")
    new.add("new adds", ("t", 0))
    new.produce("new produces", "t")
    new.init("new gives up", producer_id=new.producer_id, producer_epoch=new.epoch)
    new.describe("given up")
    look(broker, "at the end")


def bumped(broker: Conversation) -> None:
    broker.create("t")
    producer = Producer(broker, "x")
    producer.init("init")
    producer.end("commit of nothing", 5)
    producer.end("abort of nothing", 5, committed=False)
    producer.describe("aborted nothing")
    for turn in range(3):
        first = (producer.producer_id, producer.epoch)
        producer.produce(f"first {turn}", "t", 12, count=2)
        producer.produce(f"second {turn}", "t", 12)
        producer.describe(f"open {turn}")
        producer.produce(f"classic version {turn}", "t", 11)
        look(broker, f"open {turn}")
        producer.end(f"end {turn}", 5, committed=turn != 1)
        producer.describe(f"ended {turn}")
        for committed in (True, False):
            producer.end(
                f"again {turn}, {committed}", 5, committed=committed, producer_id=first[0], epoch=first[1], takes=False
            )
        producer.produce(f"with the old epoch {turn}", "t", 12, epoch=first[1], sequence=3)
        look(broker, f"ended {turn}")
    producer.end("commit of nothing, later", 5)
    producer.produce("not from 0", "t", 12, sequence=4)
    producer.end("abort", 5, committed=False)
    producer.produce("before another", "t", 12)
    Producer(broker, "x").init("another")
    producer.describe("after another")
    producer.produce("fenced", "t", 12)
    producer.end("fenced end", 5)
    look(broker, "at the end")


def markers(broker: Conversation) -> None:
    broker.create("t")
    producer = Producer(broker, "x")
    producer.init("init")
    producer.init("init again")
    producer.add("add", ("t", 0))
    producer.produce("open", "t", count=2)

    def mark(label: str, version: int = 1, level: int = 0, **fields: Any) -> None:
        marker = WritableTxnMarker(
            producer_id=fields.get("producer_id", producer.producer_id),
            producer_epoch=fields.get("epoch", producer.epoch),
            transaction_result=fields.get("committed", False),
            topics=[
                WritableTxnMarkerTopic(name=broker.name(name), partition_indexes=[0]) for name in fields.get("of", "t")
            ],
            coordinator_epoch=fields.get("coordinator_epoch", 0),
            transaction_version=level,
        )
        broker.ask(label, WriteTxnMarkersRequest(markers=[marker]), version)

    mark("old epoch", epoch=producer.epoch - 1)
    mark("unknown topic", of=["none"])
    mark("newer level, same epoch", 2, 2)
    look(broker, "still open")
    mark("abort", coordinator_epoch=3)
    look(broker, "aborted")
    mark("abort again", coordinator_epoch=3)
    mark("old coordinator", coordinator_epoch=2)
    mark("commit of nothing", committed=True, coordinator_epoch=4)
    mark("unknown producer", producer_id=2**40, epoch=7)
    broker.ask("none", WriteTxnMarkersRequest(markers=[]), 1)
    mark("newer level", 2, 2, epoch=producer.epoch + 1, coordinator_epoch=4)
    mark("newer level, again", 2, 2, epoch=producer.epoch + 1, coordinator_epoch=4)
    look(broker, "at the end")


def offsets(broker: Conversation) -> None:
    broker.create("t", 2)
    group = broker.name("g")
    broker.await_coordinator(group)
    producer = Producer(broker, "x")
    producer.init("init")
    plain = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=broker.name("t"),
                partitions=[OffsetCommitRequestPartition(partition_index=at, committed_offset=1) for at in (0, 1)],
            )
        ],
    )
    broker.ask("plain commit", plain, 8)
    producer.offsets("not added", group)
    producer.offsets("not added, v4", group, 4)
    producer.add_offsets("old epoch", group, epoch=producer.epoch - 1)
    producer.add_offsets("old epoch, v1", group, 1, epoch=producer.epoch - 1)
    for version in (0, 1, 2, 3, 4):
        producer.add_offsets(f"add v{version}", group, version)
    producer.offsets("unknown topic", group, topic="none")
    producer.offsets("unknown partition", group, partition=7)
    producer.offsets("long metadata", group, metadata="m" * 5000)
    for version in (0, 1, 2, 3, 4):
        producer.offsets(f"offset v{version}", group, version, offset=10 + version)
    producer.offsets("of a generation", group, generation=3, member="nobody")
    stored_offsets(broker, "pending", group)
    stored_offsets(broker, "pending, unstable", group, stable=False)
    producer.end("abort", committed=False)
    producer.describe("aborted")
    stored_offsets(broker, "aborted", group)
    producer.add_offsets("add again", group)
    producer.offsets("second", group, offset=30)
    producer.end("commit")
    producer.describe("committed")
    stored_offsets(broker, "committed", group)
    producer.add_offsets("a third time", group)
    producer.offsets("third", group, offset=40)
    broker.ask("plain commit over a pending one", plain, 8)
    producer.end("commit the third")
    producer.describe("committed the third")
    stored_offsets(broker, "the later one counts", group)
    producer.offsets("v5 adds by itself", group, 5, offset=50)
    producer.describe("added by itself")
    producer.end("v5 commit", 5)
    producer.describe("v5 committed")
    stored_offsets(broker, "v5", group)
    producer.offsets("with an old epoch", group, 5, epoch=producer.epoch - 1)
    producer.offsets("no group", "", 3)


def offsets_of_members(broker: Conversation) -> None:
    broker.create("t")
    group = broker.name("g")
    broker.await_coordinator(group)
    producer = Producer(broker, "x")
    producer.init("init")
    producer.add_offsets("add", group)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    join = JoinGroupRequest(
        group_id=group,
        member_id="",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=1000,
        protocol_type="consumer",
        protocols=protocols,
        group_instance_id="one",
    )
    joined = broker.ask("join", join, 9)
    generation, member = joined.generation_id, joined.member_id
    producer.offsets("while it rebalances", group, generation=generation, member=member)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id="one",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"")],
    )
    broker.ask("sync", sync, 5)
    producer.offsets("of the member", group, generation=generation, member=member, instance="one")
    producer.offsets("of another generation", group, generation=generation + 1, member=member)
    producer.offsets("of a stranger", group, generation=generation, member="nobody")
    producer.offsets("of a fenced instance", group, generation=generation, member="nobody", instance="one")
    producer.offsets("of no member", group)
    producer.offsets("of no member, v2", group, 2)
    producer.end("commit")
    producer.describe("committed")
    stored_offsets(broker, "committed", group)


def verification(broker: Conversation) -> None:
    """The requests of other brokers."""
    broker.create("t", 2)
    producer = Producer(broker, "x")
    producer.init("init")
    producer.add("add", ("t", 0))

    def ask(label: str, version: int, *, verify: bool = True, name: str = "x", epoch: int = 0, index: int = 0) -> None:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=broker.name(name) if name else "",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch + epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=broker.name("t"), partitions=[index])],
        )
        broker.ask(label, AddPartitionsToTxnRequest(transactions=[transaction]), version)

    for version in (4, 5):
        ask(f"verify v{version}", version)
        ask(f"verify another v{version}", version, index=1)
        ask(f"verify unknown v{version}", version, index=7)
        ask(f"verify old epoch v{version}", version, epoch=-1)
        ask(f"verify another name v{version}", version, name="nobody")
        ask(f"verify no name v{version}", version, name="")
    ask("add", 5, verify=False, index=1)
    ask("verify again", 5, index=1)
    producer.describe("both")


def lists(broker: Conversation) -> None:
    broker.create("t")
    one, two = Producer(broker, "one"), Producer(broker, "two")
    one.init("one")
    two.init("two")
    one.add("one adds", ("t", 0))

    def ask(label: str, version: int, **filters: Any) -> None:
        request = ListTransactionsRequest(
            state_filters=filters.pop("states", []), producer_id_filters=filters.pop("producers", []), **filters
        )
        broker.ask(label, request, version)
        answer = broker.answers[-1][1]
        # Other tests have transactions in the same cluster, and the order is that of a hash table.
        mine = {broker.name("one"), broker.name("two"), "one", "two"}
        states = [each for each in answer["transaction_states"] if each["transactional_id"] in mine]
        answer["transaction_states"] = sorted(states, key=lambda each: each["transactional_id"])

    for version in (0, 1, 2):
        ask(f"all v{version}", version)
    ask("ongoing", 0, states=["Ongoing"])
    ask("empty or unknown", 0, states=["Empty", "Nothing"])
    ask("of a producer", 0, producers=[two.producer_id])
    ask("of another", 0, producers=[2**50])
    ask("long", 1, duration_filter=3_600_000)
    ask("short", 1, duration_filter=0)
    ask("pattern", 2, transactional_id_pattern=broker.prefix + "o.*")
    ask("part of a pattern", 2, transactional_id_pattern="o")
    ask("broken pattern", 2, transactional_id_pattern="(")
    names = DescribeTransactionsRequest(transactional_ids=[broker.name("nobody"), ""])
    broker.ask("unknown", names, 0)
    for each in broker.answers[-1][1]["transaction_states"]:
        del each["producer_id"]  # 0, which is also the id of some producer
    unknown = DescribeProducersTopic(name=broker.name("none"), partition_indexes=[0])
    known = DescribeProducersTopic(name=broker.name("t"), partition_indexes=[0, 5])
    broker.ask("producers", DescribeProducersRequest(topics=[unknown, known]), 0)


SCENARIOS: list[Scenario] = [classic, fencing, bumped, markers, offsets, offsets_of_members, verification, lists]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(
        auto_create_topics_enable=False,
        group_min_session_timeout_ms=6000,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=1,
        log_retention_ms=-1,
    ) as started:
        yield started


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_answer_the_same(apache_kafka, cluster: EmbeddedCluster, scenario: Scenario) -> None:
    found = compare(apache_kafka.bootstrap_servers, cluster.bootstrap_servers, scenario)
    assert not found, "\n".join(["Kafka's answers | ours:", *found])
