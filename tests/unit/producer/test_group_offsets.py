"""Offsets and group metadata in the shapes of other clients' consumers."""

from __future__ import annotations

import sys
from typing import Any

import aiokafka.structs
import confluent_kafka
import kafka.structs
import pytest

from headrace.network.cluster import TopicPartition
from headrace.network.protocol.errors import IllegalArgumentError, InvalidTopicError
from headrace.producer.group_offsets import group_member, offsets_by_partition
from headrace.producer.sender.transaction import GroupMember, Offset

WANTED = {TopicPartition("t", 0): Offset(5, "m", 2), TopicPartition("t", 1): Offset(0)}


def librdkafka_metadata(group: str, generation: int, member: str, instance: str | None) -> bytes:
    tail = b"\1" if instance is None else b"\0" + instance.encode() + b"\0"
    number = generation.to_bytes(4, sys.byteorder, signed=True)
    return b"CGMDv2:" + number + group.encode() + b"\0" + member.encode() + b"\0" + tail


@pytest.mark.parametrize(
    "given",
    [
        {
            kafka.structs.TopicPartition("t", 0): kafka.structs.OffsetAndMetadata(5, "m", 2),
            kafka.structs.TopicPartition("t", 1): kafka.structs.OffsetAndMetadata(0, "", -1),
        },
        [
            confluent_kafka.TopicPartition("t", 0, 5, "m", 2),
            confluent_kafka.TopicPartition("t", 1, 0),
            confluent_kafka.TopicPartition("t", 2),
        ],
        {
            confluent_kafka.TopicPartition("t", 0): confluent_kafka.TopicPartition("t", 0, 5, "m", 2),
            ("t", 1): 0,
        },
    ],
)
def test_offsets_of_every_client(given: Any) -> None:
    assert offsets_by_partition(given) == WANTED


def test_offsets_without_a_leader_epoch() -> None:
    given = {aiokafka.structs.TopicPartition("t", 0): aiokafka.structs.OffsetAndMetadata(5, "m"), ("t", 1): (6, "n")}
    assert offsets_by_partition(given) == {
        TopicPartition("t", 0): Offset(5, "m"),
        TopicPartition("t", 1): Offset(6, "n"),
    }
    assert offsets_by_partition({("t", 0): (7,)}) == {TopicPartition("t", 0): Offset(7)}
    assert offsets_by_partition({}) == offsets_by_partition([]) == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (5, "offsets are int: pass a mapping"),
        ("t", "offsets are str"),
        ([("t", 0)], "offsets are list"),
        ({"t": 5}, "'t' is not a partition"),
        ({("t", -1): 5}, "is not a partition"),
        ({("t", True): 5}, "is not a partition"),
        ({("t", 0): -1}, "expected the number of the next record to consume, 0 or more"),
        ({("t", 0): 2**63}, "expected the number"),
        ({("t", 0): "5"}, "is '5'"),
        ({("t", 0): True}, "is True"),
        ({("t", 0): (5, b"m")}, "metadata of .* is bytes"),
        ([confluent_kafka.TopicPartition("t", 0, -2)], "is -2"),
    ],
)
def test_offsets_that_are_none(given: Any, says: str) -> None:
    with pytest.raises(IllegalArgumentError, match=says):
        offsets_by_partition(given)


def test_offsets_of_a_topic_whose_name_is_invalid() -> None:
    with pytest.raises(InvalidTopicError):
        offsets_by_partition({("no such name", 0): 5})


class Metadata:
    """Java's names, as other clients use them."""

    group_id = "g"
    generation_id = 3
    member_id = None


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("g", GroupMember("g")),
        (kafka.structs.ConsumerGroupMetadata("g", 3, "m", "i"), GroupMember("g", 3, "m", "i")),
        (librdkafka_metadata("gé", 3, "m", None), GroupMember("gé", 3, "m")),
        (librdkafka_metadata("g", -1, "", "i"), GroupMember("g", -1, "", "i")),
        (Metadata(), GroupMember("g", 3)),
    ],
)
def test_group_metadata_of_every_client(given: Any, wanted: GroupMember) -> None:
    assert group_member(given) == wanted


def test_the_members_that_a_coordinator_can_fence() -> None:
    assert not GroupMember("g").is_named
    assert all(
        each.is_named for each in (GroupMember("g", 0), GroupMember("g", -1, "m"), GroupMember("g", -1, "", "i"))
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "has no group id"),
        (kafka.structs.ConsumerGroupMetadata(None, -1, "", None), "has no group id"),
        (5, "group_metadata is int: pass a consumer's"),
        (None, "group_metadata is NoneType"),
        (b"g", "is bytes, but not librdkafka's"),
        (b"CGMDv2:\0\0", "cut short"),
        (b"CGMDv2:\0\0\0\0\xff\0m\0\1", "cut short"),
    ],
)
def test_group_metadata_that_are_none(given: Any, says: str) -> None:
    with pytest.raises(IllegalArgumentError, match=says):
        group_member(given)
