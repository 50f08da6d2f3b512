"""Sends the same requests to Apache Kafka and to the embedded broker, and compares the responses field by field.

A scenario is a conversation over a few connections. Fields that can't be equal are replaced by their order of first
appearance (random ids) or left out (addresses, texts of error messages). If this broker differs on purpose, the
scenario states that and the reason.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from support.conversation import NOW_MS, Conversation, Scenario, changed, compare, records

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from headrace.network.protocol.messages.configs.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from headrace.network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.network.protocol.messages.configs.incremental_alter_configs import AlterableConfig as IncrementalConfig
from headrace.network.protocol.messages.configs.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from headrace.network.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from headrace.network.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from headrace.network.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from headrace.network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from headrace.network.protocol.messages.groups.heartbeat import HeartbeatRequest
from headrace.network.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.network.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.network.protocol.messages.groups.list_groups import ListGroupsRequest
from headrace.network.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.network.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.network.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.network.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.network.protocol.messages.records.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from headrace.network.protocol.messages.records.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from headrace.network.protocol.messages.topics.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.network.protocol.messages.topics.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.network.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.network.records.compression import Compression

pytestmark = pytest.mark.timeout(180)


def produce_refusals(broker: Conversation) -> None:
    broker.create("t")
    broker.create("compacted", cleanup_policy="compact")
    broker.create("small", max_message_bytes="300")
    broker.create("recent", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    broker.create("stamped", message_timestamp_type="LogAppendTime")
    good = records(3)
    for version in (3, 5, 7, 8, 9, 11, 12):
        broker.produce(f"good v{version}", "t", good, version=version)
    broker.produce("acks 1", "t", good, acks=1)
    broker.produce("acks 2", "t", good, acks=2)
    broker.produce("unknown topic", "none", good)
    broker.produce("unknown partition", "t", good, partition=5)
    broker.produce("wrong CRC", "t", changed(good, 17, ">I", 1, seal=False))
    broker.produce("damaged value", "t", good[:-3] + b"\0" + good[-2:])
    for label, content in {"two batches": good + good, "cut": good[:-1]}.items():
        broker.produce(label, "t", content)
        # Kafka rejects these before it reads the log start offset.
        del broker.answers[-1][1]["responses"][0]["partition_responses"][0]["log_start_offset"]
    broker.produce("no bytes", "t", b"")
    broker.produce("magic 3", "t", changed(good, 16, ">b", 3))
    broker.produce("control", "t", changed(good, 21, ">h", 0x20))
    broker.produce("count too small", "t", changed(good, 57, ">i", 2))
    broker.produce("count too large", "t", changed(good, 57, ">i", 4))
    broker.produce("no records", "t", changed(changed(good, 57, ">i", 0), 23, ">i", 0))
    broker.produce("zstd in v6", "t", records(compression=Compression.ZSTD), version=6)
    broker.produce("zstd in v7", "t", records(compression=Compression.ZSTD), version=7)
    broker.produce("a base offset of its own", "t", changed(good, 0, ">q", 77))
    broker.produce("a leader epoch of its own", "t", changed(good, 12, ">i", 77))
    broker.produce("without keys", "compacted", records(3, key=None))
    broker.produce("too large", "small", records(20))
    broker.produce("too old", "recent", good)
    answer = broker.produce("stamped", "stamped", good)
    del answer, broker.answers[-1]
    broker.list_offsets("end", "t", -1)
    broker.fetch("all", "t", 0)
    broker.fetch("none", "compacted", 0)


def idempotence(broker: Conversation) -> None:
    broker.create("t")
    broker.create("u")
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    while (known := broker.ask("init", request, 4)).error_code:  # COORDINATOR_LOAD_IN_PROGRESS
        broker.answers.pop()
    broker.ask("init again", request, 4)

    def write(label: str, sequence: int, epoch: int = 0, topic: str = "t", count: int = 2) -> None:
        broker.produce(
            label,
            topic,
            records(count, producer_id=known.producer_id, producer_epoch=epoch, base_sequence=sequence),
        )

    write("begins at 5", 5, topic="u")
    write("goes on", 7, topic="u")
    write("first", 0)
    # Kafka returns the batch's largest timestamp as its append time, even if records keep their own.
    write("again", 0)
    del broker.answers[-1][1]["responses"][0]["partition_responses"][0]["log_append_time_ms"]
    write("second", 2)
    write("gap", 6)
    for sequence in range(4, 14, 2):
        write(f"sequence {sequence}", sequence)
    write("known duplicate", 4)
    del broker.answers[-1][1]["responses"][0]["partition_responses"][0]["log_append_time_ms"]
    write("forgotten duplicate", 0)
    write("part of a batch", 12, count=1)
    write("more than a batch", 12, count=3)
    write("next epoch, not from 0", 3, epoch=1)
    write("next epoch", 0, epoch=1)
    write("old epoch", 14)
    write("next epoch goes on", 2, epoch=1)
    broker.produce("no sequence", "t", records(producer_id=known.producer_id, producer_epoch=1, base_sequence=-1))
    broker.list_offsets("end", "t", -1)


def fetches(broker: Conversation) -> None:
    topic_id = broker.create("t", 2)
    for at in range(5):
        broker.produce(f"batch {at}", "t", records(4, start=NOW_MS + at * 100))
    for version in (4, 5, 7, 9, 10, 11, 12):
        broker.fetch(f"v{version}", "t", 0, version=version)
    for version in (13, 15, 16, 17):
        broker.fetch(f"v{version}", "t", 0, version=version, topic_id=topic_id)
    broker.fetch("unknown id", "t", 0, version=13, topic_id=uuid.UUID(int=7))
    broker.fetch("unknown topic", "none", 0)
    broker.fetch("unknown partition", "t", 0, partition=9)
    for offset in (-1, 1, 3, 4, 19, 20, 21):
        broker.fetch(f"offset {offset}", "t", offset)
    for limit in (0, 1, 60, 200, 250, 500):
        broker.fetch(f"partition limit {limit}", "t", 0, partition_max_bytes=limit)
        broker.fetch(f"limit {limit}", "t", 4, max_bytes=limit)
    broker.fetch("committed", "t", 2, isolation_level=1)
    broker.fetch("waits", "t", 20, max_wait_ms=50)
    broker.fetch("nothing to wait for", "t", 0, max_wait_ms=50, min_bytes=10_000)
    for epoch in (0, 1, 5):
        broker.fetch(f"epoch {epoch}", "t", 0, current_leader_epoch=epoch)
    broker.send("wait for a record", _fetch_at_end(broker), 12, on="waiting")
    broker.produce("the record", "t", records())
    broker.receive(on="waiting")


def _fetch_at_end(broker: Conversation) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=20, partition_max_bytes=10_000)
    return FetchRequest(
        max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic=broker.name("t"), partitions=[asked])]
    )


def fetch_sessions(broker: Conversation) -> None:
    broker.create("t", 2)

    def ask(label: str, session: int, epoch: int, *parts: tuple[int, int], forget: tuple[int, ...] = ()) -> Any:
        asked = [FetchPartition(partition=index, fetch_offset=at, partition_max_bytes=4096) for index, at in parts]
        gone = [ForgottenTopic(topic=broker.name("t"), partitions=list(forget))] if forget else []
        topics = [FetchTopic(topic=broker.name("t"), partitions=asked)] if asked else []
        return broker.ask(
            label,
            FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                session_id=session,
                session_epoch=epoch,
                topics=topics,
                forgotten_topics_data=gone,
            ),
            12,
        )

    session = ask("open", 0, 0, (0, 0), (1, 0)).session_id
    ask("nothing new", session, 1)
    broker.produce("record", "t", records())
    ask("a record", session, 2)
    ask("the same again", session, 3)
    ask("moved on", session, 4, (0, 1))
    ask("nothing again", session, 5)
    ask("one forgotten", session, 6, forget=(1,))
    broker.produce("not seen", "t", records(), partition=1)
    ask("the forgotten one is not returned", session, 7)
    ask("epoch too early", session, 5)
    ask("epoch too late", session, 20)
    ask("unknown", 123_456_789, 1)
    ask("out of range", session, 8, (0, 99))
    ask("still out of range", session, 9)
    ask("in range again", session, 10, (0, 1))
    ask("all forgotten", session, 11, forget=(0,))
    ask("ended", session, -1, (0, 0))
    ask("after its end", session, 12)
    ask("without", 0, -1, (0, 0))
    ask("nothing without", 0, -1)
    ask("open empty", 0, 0)


def offsets_by_time(broker: Conversation) -> None:
    broker.create("t", index_interval_bytes="0", segment_bytes="1048576")
    broker.create("empty")
    for at in range(5):
        broker.produce(f"batch {at}", "t", records(4, start=NOW_MS + at * 100))
    broker.produce("late", "t", records(3, start=NOW_MS + 5, step=500))
    for version in (1, 2, 4, 5, 6, 7, 8):
        broker.list_offsets(f"latest v{version}", "t", -1, version=version)
        broker.list_offsets(f"earliest v{version}", "t", -2, version=version)
        broker.list_offsets(f"by time v{version}", "t", NOW_MS + 100, version=version)
    for timestamp in (
        0,
        NOW_MS,
        NOW_MS + 1,
        NOW_MS + 30,
        NOW_MS + 31,
        NOW_MS + 430,
        NOW_MS + 431,
        NOW_MS + 1005,
        2**62,
    ):
        broker.list_offsets(f"at {timestamp}", "t", timestamp)
        broker.list_offsets(f"at {timestamp} in nothing", "empty", timestamp)
    broker.list_offsets("largest time", "t", -3)
    broker.list_offsets("largest time in nothing", "empty", -3)
    broker.list_offsets("local", "t", -4, version=8)
    broker.list_offsets("tiered", "t", -5, version=9)
    broker.list_offsets("earliest of nothing", "empty", -2)
    broker.list_offsets("no such partition", "t", -1, partition=3)
    broker.list_offsets("no such topic", "none", -1)
    for epoch in (0, 1):
        broker.list_offsets(f"epoch {epoch}", "t", -1, current_leader_epoch=epoch)

    def delete(label: str, offset: int, topic: str = "t", partition: int = 0) -> None:
        asked = DeleteRecordsTopic(
            name=broker.name(topic), partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
        )
        broker.ask(label, DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), 2)

    delete("to the middle of a batch", 6)
    broker.list_offsets("earliest then", "t", -2)
    broker.list_offsets("by time then", "t", NOW_MS)
    broker.fetch("before the start", "t", 5)
    broker.fetch("from the start", "t", 6)
    delete("back", 3)
    delete("too far", 999)
    delete("-2", -2)
    delete("unknown topic", 1, topic="none")
    delete("unknown partition", 1, partition=4)
    delete("everything", -1)
    broker.list_offsets("earliest of what is left", "t", -2)
    broker.list_offsets("by time of what is left", "t", NOW_MS)
    broker.fetch("at the end", "t", 23)
    broker.create("compacted", cleanup_policy="compact")
    broker.produce("compacted", "compacted", records(3))
    delete("compacted", 1, topic="compacted")
    for current, epoch in ((-1, 0), (-1, 1), (-1, -1), (0, 0), (1, 0), (5, 9)):
        asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=broker.name("t"), partitions=[asked])])
        broker.ask(f"end of epoch {epoch} in {current}", request, 4)


def topics(broker: Conversation) -> None:
    def create(label: str, name: str, version: int = 7, validate_only: bool = False, **fields: Any) -> None:
        made = CreatableTopic(
            name=name,
            num_partitions=fields.pop("num_partitions", 1),
            replication_factor=fields.pop("replication_factor", 1),
            **fields,
        )
        broker.ask(label, CreateTopicsRequest(topics=[made], validate_only=validate_only), version)
        broker.forget_configs()

    name = broker.name
    for version in (2, 4, 5, 7):
        create(f"v{version}", name(f"v{version}"), version)
    create("again", name("v7"))
    create("only asked", name("asked"), validate_only=True)
    create("only asked, again", name("v7"), validate_only=True)
    create("empty name", "")
    create("dots", "..")
    create("slash", "a/b")
    create("long", "x" * 250)
    create("collides", name("v.7"))
    create("differs by dot and underscore", name("a.b"))
    create("differs by underscore and dot", name("a_b"))
    create("no partitions", name("x"), num_partitions=0)
    create("negative partitions", name("x"), num_partitions=-2)
    create("default partitions", name("default"), num_partitions=-1, replication_factor=-1)
    create("no replicas", name("x"), replication_factor=0)
    create("too many replicas", name("x"), replication_factor=9)

    def assigned(*replicas: list[int], **fields: Any) -> dict[str, Any]:
        return {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                CreatableReplicaAssignment(partition_index=at, broker_ids=each) for at, each in enumerate(replicas)
            ],
            **fields,
        }

    create("assigned", name("assigned"), **assigned([1], [1]))
    create("assigned to nobody", name("x"), **assigned([]))
    create("assigned to a stranger", name("x"), **assigned([1], [99]))
    create("assigned twice", name("x"), **assigned([1, 1]))
    create("assigned and counted", name("x"), **assigned([1], num_partitions=1))

    def configured(**configs: str | None) -> dict[str, Any]:
        return {
            "configs": [CreatableTopicConfig(name=key.replace("_", "."), value=each) for key, each in configs.items()]
        }

    create("configured", name("configured"), **configured(cleanup_policy="compact,delete", segment_bytes="2000000"))
    create("unknown key", name("x"), **configured(no_such_key="1"))
    create("wrong value", name("x"), **configured(retention_ms="often"))
    create("no value", name("x"), **configured(retention_ms=None))
    create("wrong choice", name("x"), **configured(cleanup_policy="burn"))
    create("too small", name("x"), **configured(min_insync_replicas="0"))
    twice = CreatableTopic(name=name("twice"), num_partitions=1, replication_factor=1)
    broker.ask("twice in a request", CreateTopicsRequest(topics=[twice, twice]), 7)
    broker.forget_configs()

    def grow(label: str, topic: str, count: int, *assignments: list[int], validate_only: bool = False) -> None:
        asked = CreatePartitionsTopic(
            name=name(topic),
            count=count,
            assignments=[CreatePartitionsAssignment(broker_ids=each) for each in assignments] or None,
        )
        broker.ask(label, CreatePartitionsRequest(topics=[asked], timeout_ms=10_000, validate_only=validate_only), 3)

    grow("more", "assigned", 3)
    grow("as many", "assigned", 3)
    grow("fewer", "assigned", 1)
    grow("of nothing", "none", 2)
    grow("negative", "assigned", -1)
    grow("only asked", "assigned", 9, validate_only=True)
    grow("assigned", "assigned", 4, [1])
    grow("assigned too few", "assigned", 6, [1])
    grow("assigned to a stranger", "assigned", 5, [99])

    def metadata(label: str, *names: str | None, version: int = 12, create: bool = False) -> Any:
        asked = [MetadataRequestTopic(name=each) for each in names]
        answer = broker.ask(label, MetadataRequest(topics=asked, allow_auto_topic_creation=create), version)
        broker.answers[-1][1]["topics"].sort(key=lambda each: each["name"] or "")
        for told in broker.answers[-1][1]["topics"]:
            for partition in told["partitions"]:
                partition.pop("leader_epoch", None)
        return answer

    for version in (4, 7, 8, 9, 10, 11, 12):
        metadata(f"metadata v{version}", name("assigned"), version=version)
    metadata("unknown", name("none"))
    metadata("not a name", "a b")
    metadata("empty name", "")
    metadata("none at all")
    known = metadata("several", name("v7"), name("none"), name("assigned")).topics[0].topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=known, name=None)])
    broker.ask("by id", by_id, 12)
    broker.ask(
        "by an unknown id", MetadataRequest(topics=[MetadataRequestTopic(topic_id=uuid.UUID(int=9), name=None)]), 12
    )
    # Java's admin client does this: its message's default is an empty name.
    for label, each in {"by id": known, "by an unknown id": uuid.UUID(int=9)}.items():
        unnamed = MetadataRequestTopic(topic_id=each, name="")
        broker.ask(f"{label} and an empty name", MetadataRequest(topics=[unnamed, unnamed]), 12)
    asked = [MetadataRequestTopic(topic_id=known, name=name("v5")), MetadataRequestTopic(name=name("assigned"))]
    broker.ask("by an id and by names", MetadataRequest(topics=asked), 12)

    def delete(label: str, *names: str, version: int = 5) -> None:
        broker.ask(label, DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000), version)
        broker.answers[-1][1]["responses"].sort(key=lambda each: each["name"])

    delete("delete", name("v7"))
    delete("delete again", name("v7"))
    delete("delete two", name("v5"), name("none"))
    by_name = DeleteTopicState(name=name("v4"), topic_id=uuid.UUID(int=0))
    broker.ask("delete v6", DeleteTopicsRequest(topics=[by_name], timeout_ms=10_000), 6)
    nobody = DeleteTopicState(name=None, topic_id=uuid.UUID(int=5))
    broker.ask("delete an unknown id", DeleteTopicsRequest(topics=[nobody], timeout_ms=10_000), 6)


def configs(broker: Conversation) -> None:
    topic, alter, set_to, remove, append, subtract = broker.name("t"), 2, 0, 1, 2, 3
    broker.create("t", retention_ms="1000")
    keys = ["retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "no.such.key"]

    def describe(label: str, name: str = topic, kind: int = alter, version: int = 4, **options: Any) -> None:
        options.setdefault("configuration_keys", keys)
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, **options)
        broker.ask(label, DescribeConfigsRequest(resources=[asked], include_synonyms=True), version)
        for result in broker.answers[-1][1]["results"]:
            result["configs"].sort(key=lambda each: each["name"])
            for config in result["configs"]:
                # Kafka's default is in hours; the value given to the broker is the same.
                config["synonyms"] = [
                    each
                    for each in config["synonyms"]
                    if (each["name"], each["source"]) not in (("log.retention.hours", 5), ("log.retention.ms", 5))
                ]

    def change(
        label: str, *changes: tuple[str, int, str | None], name: str = topic, validate_only: bool = False
    ) -> None:
        asked = [IncrementalConfig(name=key, config_operation=kind, value=value) for key, kind, value in changes]
        resource = IncrementalResource(resource_type=2, resource_name=name, configs=asked)
        broker.ask(label, IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only), 1)

    describe("described")
    for version in (1, 2, 3):
        describe(f"described v{version}", version=version)
    describe("of nothing", broker.name("none"))
    describe("of no kind", kind=77)
    change("set", ("retention.ms", set_to, "2000"))
    change("only asked", ("retention.ms", set_to, "3000"), validate_only=True)
    change("wrong value", ("retention.ms", set_to, "often"))
    change("unknown key", ("no.such.key", set_to, "1"))
    change("twice", ("retention.ms", set_to, "1"), ("retention.ms", set_to, "2"))
    change("append", ("cleanup.policy", append, "compact"))
    change("append again", ("cleanup.policy", append, "compact"))
    describe("then")
    change("subtract", ("cleanup.policy", subtract, "delete"))
    change("append to no list", ("retention.ms", append, "1"))
    change("remove", ("retention.ms", remove, None))
    change("remove what isn't set", ("segment.bytes", remove, None))
    change("no value", ("retention.ms", set_to, None))
    change("of nothing", ("retention.ms", set_to, "1"), name=broker.name("none"))
    describe("in the end")

    def replace(label: str, name: str = topic, validate_only: bool = False, **settings: str | None) -> None:
        asked = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
        resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=asked)
        broker.ask(label, AlterConfigsRequest(resources=[resource], validate_only=validate_only), 2)

    replace("all replaced", segment_bytes="3000000")
    describe("after that")
    replace("replaced by wrong ones", segment_bytes="many")
    replace("replaced by none")
    replace("of nothing", broker.name("none"), retention_ms="1")
    describe("as it was")


def a_group(broker: Conversation) -> None:
    group = broker.name("g")
    broker.create("t", 2)

    def join(label: str, member: str = "", version: int = 5, on: str = "", **fields: Any) -> Any:
        request = _join(group, member, **fields)
        broker.send(label, request, version, on=on)
        return broker.receive(on=on)

    def sync(label: str, generation: int, member: str, version: int = 5, **fields: Any) -> None:
        given = [SyncGroupRequestAssignment(member_id=member, assignment=b"all of it")]
        broker.ask(
            label,
            SyncGroupRequest(
                group_id=fields.pop("group", group),
                generation_id=generation,
                member_id=member,
                protocol_type=fields.pop("protocol_type", "consumer"),
                protocol_name=fields.pop("protocol_name", "range"),
                assignments=given,
            ),
            version,
        )

    def beat(label: str, generation: int, member: str, name: str = group, version: int = 4) -> None:
        broker.ask(label, HeartbeatRequest(group_id=name, generation_id=generation, member_id=member), version)

    def commit(label: str, generation: int, member: str, topic: str = "t", partition: int = 0, **fields: Any) -> None:
        part = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=fields.pop("offset", 5), **fields
        )
        broker.ask(
            label,
            OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=generation,
                member_id=member,
                topics=[OffsetCommitRequestTopic(name=broker.name(topic), partitions=[part])],
            ),
            8,
        )

    broker.await_coordinator(group)
    broker.ask("coordinator", FindCoordinatorRequest(key=group), 3)
    broker.ask("coordinators", FindCoordinatorRequest(coordinator_keys=[group, group + "2"]), 4)
    broker.ask("coordinator of no kind", FindCoordinatorRequest(key=group, key_type=7), 3)
    join("empty group", group="")
    join("session too long", session_timeout_ms=10_000_000)
    join("session too short", session_timeout_ms=1)
    join("unknown member", "nobody")
    beat("beat of an unknown group", 1, "nobody", broker.name("none"))
    commit("simple commit", -1, "")
    commit("simple commit, unknown topic", -1, "", topic="none")
    commit("simple commit, unknown partition", -1, "", partition=9)
    commit("simple commit, long metadata", -1, "", committed_metadata="x" * 5000)
    commit("commit of a member of nothing", 1, "nobody")
    member = join("must come with an id").member_id
    joined = join("first", member)
    beat("beat while completing", joined.generation_id, member)
    commit("commit while completing", joined.generation_id, member)
    sync("wrong generation", 9, member)
    sync("wrong member", joined.generation_id, "nobody")
    sync("wrong protocol", joined.generation_id, member, protocol_name="other")
    sync("wrong type", joined.generation_id, member, protocol_type="other")
    sync("sync", joined.generation_id, member)
    sync("sync again", joined.generation_id, member)
    beat("beat", joined.generation_id, member)
    beat("beat of an old generation", joined.generation_id - 1, member)
    beat("beat of a future generation", joined.generation_id + 1, member)
    beat("beat of a stranger", joined.generation_id, "nobody")
    commit("commit", joined.generation_id, member, offset=7, committed_leader_epoch=0, committed_metadata="mine")
    commit("commit of an old generation", joined.generation_id - 1, member)
    commit("commit of a stranger", joined.generation_id, "nobody")
    commit("simple commit to a group with members", -1, "")
    join("other type", protocol_type="connect", version=4)
    join("other protocols", protocols=("sticky",), version=4)
    join("the same again", member)
    describe(broker, "described", group, broker.name("none"))

    def offsets(label: str, *topics: str, version: int = 8, name: str = group) -> None:
        asked = [OffsetFetchRequestTopics(name=broker.name(each), partition_indexes=[0, 1, 5]) for each in topics]
        of_group = OffsetFetchRequestGroup(group_id=name, topics=asked or None)
        broker.ask(label, OffsetFetchRequest(groups=[of_group]), version)

    offsets("offsets", "t")
    offsets("all offsets")
    offsets("offsets of an unknown topic", "none")
    offsets("offsets of nobody", "t", name=broker.name("nobody"))
    offsets("all offsets of nobody", name=broker.name("nobody"))

    def forget(label: str, topic: str, name: str = group) -> None:
        asked = OffsetDeleteRequestTopic(
            name=broker.name(topic), partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        broker.ask(label, OffsetDeleteRequest(group_id=name, topics=[asked]), 0)

    forget("forget of nobody", "t", broker.name("nobody"))
    broker.ask("delete with members", DeleteGroupsRequest(groups_names=[group, broker.name("none")]), 2)
    broker.answers[-1][1]["results"].sort(key=lambda each: each["group_id"])

    def leave(label: str, *members: str, name: str = group) -> None:
        gone = [MemberIdentity(member_id=each) for each in members]
        broker.ask(label, LeaveGroupRequest(group_id=name, members=gone), 5)

    leave("a stranger leaves", "nobody")
    leave("leaves", member)
    leave("leaves again", member)
    leave("leaves no group", "nobody", name=broker.name("none"))
    describe(broker, "described empty", group)
    beat("beat after leaving", joined.generation_id, member)
    join("with the old id", member)
    offsets("offsets stay", "t")
    forget("forget", "t")
    forget("forget what isn't known", "none")
    offsets("offsets are forgotten", "t")
    broker.ask("delete", DeleteGroupsRequest(groups_names=[group]), 2)
    broker.ask("delete again", DeleteGroupsRequest(groups_names=[group]), 2)
    describe(broker, "described dead", group)


def _join(group_id: str, member: str = "", **fields: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=fields.pop("group", group_id),
        session_timeout_ms=fields.pop("session_timeout_ms", 30_000),
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type=fields.pop("protocol_type", "consumer"),
        protocols=[
            JoinGroupRequestProtocol(name=each, metadata=_subscription(group_id.removesuffix("g") + "t"))
            for each in fields.pop("protocols", ("range",))
        ],
        **fields,
    )


def _subscription(topic: str) -> bytes:
    """The subscription of a consumer to one topic, version 0, which Kafka's coordinator parses."""
    return struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic.encode(), -1)


def describe(broker: Conversation, label: str, *groups: str, version: int = 5) -> None:
    broker.ask(label, DescribeGroupsRequest(groups=list(groups)), version)


def two_members(broker: Conversation) -> None:
    group = broker.name("g")
    broker.create("t", 2)
    broker.await_coordinator(group)
    first = broker.ask("first", _join(group), 3, on="1")
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=first.generation_id,
        member_id=first.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"all")],
    )
    broker.ask("first syncs", sync, 3, on="1")
    broker.send("second", _join(group), 3, on="2")
    beat = HeartbeatRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id)
    while broker.ask("beat", beat, 3, on="1").error_code != 27:  # until the rebalance has begun
        broker.answers.pop()
    describe(broker, "while it is prepared", group)
    broker.send("first again", _join(group, first.member_id), 3, on="1")
    again = broker.receive(on="1")
    second = broker.receive(on="2")
    describe(broker, "while it is completed", group)
    follow = SyncGroupRequest(
        group_id=group, generation_id=second.generation_id, member_id=second.member_id, assignments=[]
    )
    broker.send("second syncs", follow, 3, on="2")
    lead = SyncGroupRequest(
        group_id=group,
        generation_id=again.generation_id,
        member_id=again.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"first half"),
            SyncGroupRequestAssignment(member_id=second.member_id, assignment=b"second half"),
        ],
    )
    broker.ask("first leads", lead, 3, on="1")
    broker.receive(on="2")
    describe(broker, "when it is stable", group)
    broker.ask("listed", ListGroupsRequest(states_filter=["Stable"]), 4)
    listed = broker.answers[-1][1]["groups"]
    listed[:] = [each for each in listed if each["group_id"] == "g"]
    leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=second.member_id)])
    broker.ask("second leaves", leave, 4, on="2")
    stale = HeartbeatRequest(group_id=group, generation_id=again.generation_id, member_id=first.member_id)
    broker.ask("first sees the rebalance", stale, 3, on="1")
    alone = broker.ask("first alone", _join(group, first.member_id), 3, on="1")
    broker.ask("the old generation syncs", lead, 3, on="1")
    describe(broker, "alone", group)
    gone = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=alone.member_id)])
    broker.ask("first leaves", gone, 4, on="1")
    describe(broker, "empty", group)


def static_members(broker: Conversation) -> None:
    group = broker.name("g")
    broker.await_coordinator(group)
    joined = broker.ask("first", _join(group, group_instance_id="one"), 5)

    def sync(label: str, member: str, instance: str | None = "one", generation: int = 1) -> None:
        given = [SyncGroupRequestAssignment(member_id=member, assignment=b"all")]
        broker.ask(
            label,
            SyncGroupRequest(
                group_id=group,
                generation_id=generation,
                member_id=member,
                group_instance_id=instance,
                assignments=given,
            ),
            4,
        )

    def beat(label: str, member: str, instance: str | None = "one", generation: int = 1) -> None:
        broker.ask(
            label,
            HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance),
            4,
        )

    sync("sync", joined.member_id)
    beat("beat", joined.member_id)
    beat("beat without its name", joined.member_id, None)
    beat("beat of another name", joined.member_id, "two")
    back = broker.ask("back, same subscription", _join(group, group_instance_id="one"), 9)
    describe(broker, "after it is back", group)
    beat("the old one is fenced", joined.member_id)
    sync("the old one syncs", joined.member_id)
    sync("the new one syncs", back.member_id)
    beat("the new one beats", back.member_id)
    broker.ask("the old one joins", _join(group, joined.member_id, group_instance_id="one"), 5)
    commit = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=1,
        member_id=joined.member_id,
        group_instance_id="one",
        topics=[],
    )
    broker.ask("the old one commits", commit, 8)
    changed_one = _join(group, group_instance_id="one", protocols=("range", "sticky"))
    other = broker.ask("back with another subscription", changed_one, 5)
    sync("it syncs", other.member_id, generation=other.generation_id)
    for label, members in {
        "a stranger leaves by name": [MemberIdentity(member_id="", group_instance_id="two")],
        "a fenced one leaves": [MemberIdentity(member_id=joined.member_id, group_instance_id="one")],
        "it leaves by name": [MemberIdentity(member_id="", group_instance_id="one")],
    }.items():
        broker.ask(label, LeaveGroupRequest(group_id=group, members=members), 4)
    describe(broker, "empty", group)


def authorized_operations(broker: Conversation) -> None:
    group, topic = broker.name("g"), broker.name("t")
    broker.create("t")
    broker.await_coordinator(group)

    def metadata(version: int, name: str | None, **fields: Any) -> None:
        topics = [MetadataRequestTopic(name=name, **fields)]
        request = MetadataRequest(
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=version <= 10,
        )
        broker.ask(f"metadata v{version} {name}", request, version)

    for version in (8, 10, 12):
        metadata(version, topic)
        metadata(version, broker.name("none"))
    metadata(12, None, topic_id=uuid.UUID(int=9))
    for version in (0, 1):
        broker.ask(f"cluster v{version}", DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    for version in (3, 5, 6):
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
        broker.ask(f"an unknown group v{version}", request, version)
    broker.ask("joins", _join(group), 3)
    broker.ask("a group", DescribeGroupsRequest(groups=[group], include_authorized_operations=True), 6)


SCENARIOS: list[Scenario] = [
    produce_refusals,
    idempotence,
    fetches,
    fetch_sessions,
    offsets_by_time,
    topics,
    configs,
    a_group,
    two_members,
    static_members,
    authorized_operations,
]


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
