"""Topics as the controller stores them in its file: JSON, one text per topic."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..log.files import decode_uuid, encode_uuid
from ..metadata import PartitionState, TopicState


class KeptTopic(NamedTuple):
    """A topic as last written, with its text."""

    state: TopicState
    text: str


def keep_topic(topic: TopicState) -> KeptTopic:
    return KeptTopic(topic, json.dumps(_topic_to_json(topic)))


def _topic_to_json(topic: TopicState) -> dict[str, object]:
    return {
        "name": topic.name,
        "topic_id": encode_uuid(topic.topic_id),
        "configs": dict(topic.configs),
        "partitions": [
            [
                list(partition.replicas),
                list(partition.isr),
                partition.leader,
                partition.leader_epoch,
                partition.partition_epoch,
                list(partition.adding),
                list(partition.removing),
            ]
            for partition in topic.partitions
        ],
    }


def topic_from_json(entry: dict) -> TopicState:
    partitions = tuple(
        PartitionState(tuple(replicas), tuple(isr), leader, leader_epoch, partition_epoch, *map(tuple, moving))
        for replicas, isr, leader, leader_epoch, partition_epoch, *moving in entry["partitions"]
    )
    return TopicState(entry["name"], decode_uuid(entry["topic_id"]), partitions, entry["configs"])
