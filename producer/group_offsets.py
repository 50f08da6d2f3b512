"""The offsets and the group metadata of other clients' consumers, as `send_offsets_to_transaction` accepts them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..network.cluster import TopicPartition
from ..network.protocol.errors import IllegalArgumentError
from ..network.topic_names import validate_topic_name
from .sender.transaction import GroupMember, Offset

#: The beginning of librdkafka's serialized group metadata, which confluent-kafka passes on as bytes.
LIBRDKAFKA_METADATA = b"CGMDv2:"
#: librdkafka's offset of a partition from which nothing was consumed.
LIBRDKAFKA_NO_OFFSET = -1001


def group_member(metadata: Any) -> GroupMember:
    """The group and its member from a consumer's group metadata, or from a group id, which fences no member.

    `metadata`: confluent-kafka's `consumer_group_metadata()`, kafka-python's `group_metadata()`, any object with its
    attributes, or a group id. Raises IllegalArgumentError.
    """
    if isinstance(metadata, str):
        member = GroupMember(metadata)
    elif isinstance(metadata, bytes):
        member = _from_librdkafka(metadata)
    elif hasattr(metadata, "group_id") and hasattr(metadata, "generation_id") and hasattr(metadata, "member_id"):
        member = GroupMember(
            metadata.group_id,
            metadata.generation_id,
            metadata.member_id or "",
            getattr(metadata, "group_instance_id", None),
        )
    else:
        raise IllegalArgumentError(
            f"group_metadata is {type(metadata).__name__}: pass a consumer's consumer_group_metadata() or "
            f"group_metadata(), or a group id"
        )
    if not isinstance(member.group_id, str) or not member.group_id:
        raise IllegalArgumentError("group_metadata has no group id: the consumer needs one to commit offsets")
    return member


def _from_librdkafka(metadata: bytes) -> GroupMember:
    """Decode ``rd_kafka_consumer_group_metadata_write``: generation, group, member, whether an instance is missing."""
    if not metadata.startswith(LIBRDKAFKA_METADATA):
        raise IllegalArgumentError(
            f"group_metadata is bytes, but not librdkafka's, which begin with {LIBRDKAFKA_METADATA!r}"
        )
    start = len(LIBRDKAFKA_METADATA)
    # the machine's byte order: it never leaves the process
    generation = int.from_bytes(metadata[start : start + 4], sys.byteorder, signed=True)
    try:
        group, member, rest = metadata[start + 4 :].split(b"\0", 2)
        instance = rest[1:].rstrip(b"\0").decode() if rest[:1] == b"\0" else None
        return GroupMember(group.decode(), generation, member.decode(), instance)
    except ValueError as wrong:
        raise IllegalArgumentError("group_metadata is not what confluent-kafka returned: it is cut short") from wrong


def offsets_by_partition(offsets: Any) -> dict[TopicPartition, Offset]:
    """The offsets from any of the shapes in which consumers keep them.

    `offsets`: a mapping of (topic, partition) to an offset, (offset, metadata), or an object with `offset` such as
    OffsetAndMetadata; or confluent-kafka's list of TopicPartition, without those that have no offset yet.
    Raises IllegalArgumentError.
    """
    if isinstance(offsets, Mapping):
        return {_partition(key): _offset(key, value) for key, value in offsets.items()}
    if isinstance(offsets, Iterable) and not isinstance(offsets, (str, bytes)):
        listed = list(offsets)
        if all(hasattr(each, "offset") and hasattr(each, "topic") for each in listed):
            return {_partition(each): _offset(each, each) for each in listed if each.offset != LIBRDKAFKA_NO_OFFSET}
    raise IllegalArgumentError(
        f"offsets are {type(offsets).__name__}: pass a mapping of TopicPartition to OffsetAndMetadata, or a list of "
        f"confluent_kafka.TopicPartition, such as consumer.position(consumer.assignment())"
    )


def _partition(key: Any) -> TopicPartition:
    if isinstance(key, tuple) and len(key) == 2:
        topic, partition = key
    else:
        topic, partition = getattr(key, "topic", None), getattr(key, "partition", None)
    if not isinstance(topic, str) or not isinstance(partition, int) or isinstance(partition, bool) or partition < 0:
        raise IllegalArgumentError(f"{key!r} is not a partition: expected a TopicPartition, or (topic, partition)")
    return TopicPartition(validate_topic_name(topic), partition)


def _offset(key: Any, value: Any) -> Offset:
    epoch: Any = None
    if hasattr(value, "offset"):
        offset, metadata = value.offset, getattr(value, "metadata", None)
        epoch = getattr(value, "leader_epoch", None)
    elif isinstance(value, tuple):
        offset, metadata, *_ = (*value, None, None)
    else:
        offset, metadata = value, None
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < 2**63:
        raise IllegalArgumentError(
            f"the offset of {key!r} is {offset!r}: expected the number of the next record to consume, 0 or more"
        )
    if metadata is not None and not isinstance(metadata, str):
        raise IllegalArgumentError(f"the metadata of {key!r} is {type(metadata).__name__}: expected text or None")
    return Offset(offset, metadata or "", epoch if isinstance(epoch, int) and epoch >= 0 else -1)
