"""`headrace consume` as the leader of a group assigns what kafka-python does, in bytes that kafka-python reads."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from headrace.cli.consume.assignor import Subscriber, assign_ranges
from headrace.cli.consume.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

TOPICS = ["a", "b", "größe"]
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))
topics = st.lists(st.sampled_from(TOPICS), unique=True, min_size=1)


@given(st.dictionaries(st.text("abcxyz", min_size=1), st.tuples(st.booleans(), topics), min_size=1), counts)
def test_assignments_are_those_of_kafka_python(drawn, counts):
    # kafka-python expects the static members together
    subscribers = sorted(
        (Subscriber(name, name if is_static else None, wanted) for name, (is_static, wanted) in drawn.items()),
        key=lambda each: each.instance_id is None,
    )
    theirs = RangePartitionAssignor.assign(
        SimpleNamespace(partitions_for_topic=lambda topic: set(range(counts[topic])) if topic in counts else None),
        [
            SimpleNamespace(member_id=m, group_instance_id=i, metadata=SimpleNamespace(topics=t))
            for m, i, t in subscribers
        ],
    )
    ours = assign_ranges(subscribers, counts)
    assert ours.keys() == theirs.keys()
    for member_id, assignment in ours.items():
        partitions = set(ConsumerProtocolAssignment.decode(encode_assignment(assignment)).partitions())
        assert partitions == set(theirs[member_id].partitions())


@given(topics, st.integers(0, 3), st.binary(max_size=20))
def test_subscriptions_of_every_version(topics, version, user_data):
    theirs = ConsumerProtocolSubscription(version, topics, user_data).encode()
    assert decode_subscription(theirs) == topics
    assert ConsumerProtocolSubscription.decode(encode_subscription(topics)).topics == topics


@given(st.dictionaries(st.sampled_from(TOPICS), st.lists(st.integers(0, 2**31 - 1))), st.integers(0, 3))
def test_assignments_of_every_version(assignment, version):
    assert decode_assignment(ConsumerProtocolAssignment(version, list(assignment.items()), b"x").encode()) == assignment
