"""The range assignor: which member of a consumer group reads which partitions (Kafka's `RangeAssignor`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: What Java's consumer, librdkafka and kafka-python support by default, too.
RANGE = "range"


class Subscriber(NamedTuple):
    """A member of the group, and the topics that it subscribes to."""

    member_id: str
    instance_id: str | None
    topics: Sequence[str]


#: The partitions of one member, by topic.
Assignment = dict[str, list[int]]


def assign_ranges(subscribers: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> dict[str, Assignment]:
    """The assignment of each member, by its id.

    Each topic is cut into consecutive ranges, one per subscriber: static members by instance id, then the others by
    member id. The first ranges are longer by one if the partitions can't be divided evenly. A topic without a count
    has no partitions.
    """
    assignments: dict[str, Assignment] = {each.member_id: {} for each in subscribers}
    in_order = sorted(subscribers, key=_place)
    for topic in sorted({topic for each in subscribers for topic in each.topics}):
        sharing = [each.member_id for each in in_order if topic in each.topics]
        size, longer = divmod(partition_counts.get(topic, 0), len(sharing))
        start = 0
        for index, member_id in enumerate(sharing):
            end = start + size + (index < longer)
            if end > start:
                assignments[member_id][topic] = list(range(start, end))
            start = end
    return assignments


def _place(subscriber: Subscriber) -> tuple[bool, str]:
    instance_id = subscriber.instance_id
    return (True, subscriber.member_id) if instance_id is None else (False, instance_id)
