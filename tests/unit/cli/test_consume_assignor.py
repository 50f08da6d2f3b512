"""The range assignor of `headrace consume`, and the bytes that members of a group exchange."""

from __future__ import annotations

import pytest

from headrace.cli.consume.assignor import Subscriber, assign_ranges
from headrace.cli.consume.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.network.protocol.errors import MalformedMessageError


def members(*ids: str, topics: tuple[str, ...] = ("t",)) -> list[Subscriber]:
    return [Subscriber(each, None, topics) for each in ids]


def test_each_member_reads_a_range_and_the_first_ones_read_one_more():
    assert assign_ranges(members("b", "c", "a"), {"t": 5}) == {
        "a": {"t": [0, 1]},
        "b": {"t": [2, 3]},
        "c": {"t": [4]},
    }


def test_more_members_than_partitions():
    assert assign_ranges(members("a", "b", "c"), {"t": 2}) == {"a": {"t": [0]}, "b": {"t": [1]}, "c": {}}


def test_a_topic_is_shared_by_those_who_subscribe_to_it():
    subscribers = [*members("a", topics=("t", "u")), *members("b", topics=("u",)), *members("c", topics=("gone",))]
    assert assign_ranges(subscribers, {"t": 2, "u": 2}) == {"a": {"t": [0, 1], "u": [0]}, "b": {"u": [1]}, "c": {}}


def test_static_members_come_first_by_their_instance_ids():
    subscribers = [Subscriber("a", None, ["t"]), Subscriber("z", "i1", ["t"]), Subscriber("y", "i2", ["t"])]
    assert assign_ranges(subscribers, {"t": 3}) == {"z": {"t": [0]}, "y": {"t": [1]}, "a": {"t": [2]}}


def test_round_trips():
    assert decode_subscription(encode_subscription(["orders", "größe"])) == ["orders", "größe"]
    assignment = {"orders": [0, 2], "größe": [1]}
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(encode_assignment({})) == {}
    # a leader that forgot this member
    assert decode_assignment(b"") == {}


@pytest.mark.parametrize("size", range(1, len(encode_assignment({"t": [7]})) - 4))
def test_an_assignment_that_is_cut(size):
    with pytest.raises(MalformedMessageError, match="does another program use the same group"):
        decode_assignment(encode_assignment({"t": [7]})[:size])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it ends after 0 bytes"),
        (b"\xff\xff", "its version is -1"),
        (b"\x00\x00\xff\xff\xff\xff", "it announces -1 elements"),
        (b"\x00\x00\x7f\xff\xff\xff", "it announces 2147483647 elements"),
        (b"\x00\x00\x00\x00\x00\x01\xff\xffab", "it ends after"),
        (b"\x00\x00\x00\x00\x00\x01\x00\x01\xff", "the name of a topic is not UTF-8"),
    ],
)
def test_a_subscription_that_is_none(content, said):
    with pytest.raises(MalformedMessageError, match=said):
        decode_subscription(content)
