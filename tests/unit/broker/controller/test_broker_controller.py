"""The controller: topics, leaders, in-sync replicas and groups."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from headrace.broker.cluster.remote import decode_image, encode_image
from headrace.broker.config.broker_config import BrokerConfig
from headrace.broker.controller.controller import Controller
from headrace.broker.controller.controller_api import IsrChange, MorePartitions, NewTopic, TopicRef
from headrace.broker.group.group import CommittedOffset, Group, Member
from headrace.broker.group.store import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from headrace.broker.internal_topics import partition_for
from headrace.broker.metadata import BrokerEndpoint, PartitionState
from headrace.network.protocol.errors import (
    FencedLeaderEpochError,
    InvalidConfigurationError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.other_errors import (
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidUpdateVersionError,
)


def make(tmp_path=None, brokers=3, **config):
    path = tmp_path / "state.json" if tmp_path else None
    controller = Controller("cluster", BrokerConfig.resolve_from(config, {}, {}), path)
    controller.load({})
    images = []

    def take(image):
        images.append(image)
        return lambda: None

    endpoints = [BrokerEndpoint(node_id, "127.0.0.1", 9000 + node_id) for node_id in range(1, brokers + 1)]
    controller.register_brokers([(endpoint, take) for endpoint in endpoints])
    controller.images = images
    controller.take = take
    return controller


BROKER_3 = BrokerEndpoint(3, "127.0.0.1", 9003)


@pytest.fixture
def controller():
    return make()


def partition(controller, topic="t", index=0):
    return controller.image.partition(topic, index)


def test_replicas_and_leaders_are_spread(controller):
    controller.create_topic("t", num_partitions=6, replication_factor=2)
    partitions = controller.image.topics["t"].partitions
    assert sorted(each.leader for each in partitions) == [1, 1, 2, 2, 3, 3]
    assert all(len(set(each.replicas)) == 2 and each.isr == each.replicas for each in partitions)


def test_every_broker_hears_of_every_change_in_order(controller):
    controller.create_topic("t")
    controller.delete_topic("t")
    versions = [image.version for image in controller.images]
    assert versions == sorted(versions)
    assert controller.images[-1].topics == {}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_names_that_kafka_refuses(controller, name):
    with pytest.raises(InvalidTopicError):
        controller.create_topic(name)


def test_what_a_topic_cannot_be(controller):
    controller.create_topic("a.b", num_partitions=2)
    with pytest.raises(TopicAlreadyExistsError):
        controller.create_topic("a.b")
    with pytest.raises(InvalidTopicError, match="collides"):
        controller.create_topic("a_b")
    with pytest.raises(InvalidPartitionsError):
        controller.create_topic("t", num_partitions=0)
    with pytest.raises(InvalidReplicationFactorError):
        controller.create_topic("t", replication_factor=4)
    with pytest.raises(InvalidConfigurationError, match=r"retention\.ms"):
        controller.create_topic("t", configs={"retention.ms": "long"})
    with pytest.raises(InvalidReplicationAssignmentError):
        controller.create_topic("t", assignments={0: [1, 1]})
    with pytest.raises(InvalidReplicationAssignmentError):
        controller.create_topic("t", assignments={1: [1]})
    with pytest.raises(InvalidRequestError):
        controller.create_topic("t", assignments={0: [1]}, num_partitions=1)
    with pytest.raises(UnknownTopicOrPartitionError):
        controller.delete_topic("t")
    with pytest.raises(UnknownTopicIdError):
        controller.delete_topic(None)
    assert list(controller.image.topics) == ["a.b"]


def test_validation_makes_nothing(controller):
    controller.create_topic("t", validate_only=True)
    assert controller.image.topics == {}


def test_assignments_are_followed(controller):
    controller.create_topic("t", assignments={0: [3, 1], 1: [2, 3]})
    assert [each.replicas for each in controller.image.topics["t"].partitions] == [(3, 1), (2, 3)]
    assert partition(controller).leader == 3


def test_the_next_in_sync_replica_leads_when_the_leader_dies(controller):
    controller.create_topic("t", assignments={0: [1, 2, 3]})
    controller.unregister_broker(1)
    assert partition(controller) == PartitionState((1, 2, 3), (2, 3), 2, 1, 1)
    controller.unregister_broker(2)
    assert (partition(controller).leader, partition(controller).isr) == (3, (3,))
    controller.unregister_broker(3)
    # Only broker 3 has every acknowledged record, so no other broker may lead.
    assert (partition(controller).leader, partition(controller).isr) == (-1, (3,))
    controller.register_brokers([(BrokerEndpoint(1, "127.0.0.1", 9001), controller.take)])
    assert partition(controller).leader == -1
    controller.register_brokers([(BrokerEndpoint(3, "127.0.0.1", 9003), controller.take)])
    assert (partition(controller).leader, partition(controller).leader_epoch) == (3, 4)


def test_an_unclean_election_where_it_is_allowed():
    controller = make()
    controller.create_topic("t", assignments={0: [1, 2]}, configs={"unclean.leader.election.enable": "true"})
    controller.alter_isrs([IsrChange("t", 0, 1, 0, 0, [1])])
    controller.unregister_broker(1)
    assert (partition(controller).leader, partition(controller).isr) == (2, (2,))


def test_in_sync_replicas_are_changed_by_the_present_leader_only(controller):
    controller.create_topic("t", assignments={0: [1, 2, 3], 1: [1, 2, 3]})
    told = len(controller.images)
    changed, again, other, foreign, unknown = controller.alter_isrs(
        [
            IsrChange("t", 0, 1, 0, 0, [1, 3]),
            IsrChange("t", 0, 1, 0, 0, [1]),
            IsrChange("t", 1, 1, 0, 0, [1, 2]),
            IsrChange("t", 0, 2, 0, 1, [2]),
            IsrChange("t", 2, 1, 0, 0, [1]),
        ]
    )
    assert (changed.isr, changed.partition_epoch) == ((1, 3), 1)
    assert isinstance(again, InvalidUpdateVersionError)
    assert (other.isr, partition(controller, index=1)) == ((1, 2), other)
    assert isinstance(foreign, FencedLeaderEpochError)
    assert isinstance(unknown, UnknownTopicOrPartitionError)
    assert partition(controller) == changed
    assert len(controller.images) == told + 3  # one per broker
    with pytest.raises(InvalidRequestError):
        controller.move_leader("t", 0, 2)
    controller.move_leader("t", 0, 3)
    assert (partition(controller).leader, partition(controller).leader_epoch) == (3, 1)


def test_partitions_are_added(controller):
    controller.create_topic("t", num_partitions=1, replication_factor=2)
    controller.create_partitions([MorePartitions("t", 3)])
    controller.create_partitions([MorePartitions("t", 4, [[2, 1]])])
    assert [len(each.replicas) for each in controller.image.topics["t"].partitions] == [2, 2, 2, 2]
    assert partition(controller, index=3).leader == 2
    same, unassigned = controller.create_partitions([MorePartitions("t", 4), MorePartitions("t", 6, [[1]])])
    assert isinstance(same, InvalidPartitionsError)
    assert isinstance(unassigned, InvalidReplicationAssignmentError)
    assert len(controller.image.topics["t"].partitions) == 4


def test_a_request_is_one_image_and_each_topic_has_its_own_outcome(controller):
    told = len(controller.images)
    made = controller.create_topics([NewTopic("a", 2), NewTopic("a"), NewTopic("b.c"), NewTopic("b_c"), NewTopic("!")])
    assert [getattr(each, "name", type(each)) for each in made] == [
        "a",
        TopicAlreadyExistsError,
        "b.c",
        InvalidTopicError,
        InvalidTopicError,
    ]
    assert len(controller.images) == told + 3  # one per broker
    assert controller.image.changed == {"a", "b.c"}

    more = controller.create_partitions([MorePartitions("a", 3), MorePartitions("nobody", 3), MorePartitions("b.c", 2)])
    assert [type(each).__name__ for each in more] == ["TopicState", "UnknownTopicOrPartitionError", "TopicState"]
    assert len(controller.images) == told + 6

    gone = controller.delete_topics([TopicRef("a"), TopicRef("a"), TopicRef(None, made[2].topic_id), TopicRef(None)])
    assert [getattr(each, "name", type(each)) for each in gone] == [
        "a",
        UnknownTopicOrPartitionError,
        "b.c",
        UnknownTopicIdError,
    ]
    assert len(controller.images) == told + 9
    assert controller.image.topics == controller.image.topic_names == {}


def test_a_request_makes_a_bounded_number_of_partitions(controller):
    first, second, third = controller.create_topics([NewTopic("a", 9_000), NewTopic("b", 2_000), NewTopic("c", 1_000)])
    assert (first.name, type(second)) == ("a", PolicyViolationError)
    assert "b" not in controller.image.topics
    assert isinstance(third, PolicyViolationError)


def test_what_changed_between_two_images(controller):
    controller.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
    before = controller.image
    assert controller.image.changed_since(before) == []
    controller.delete_topic("a")
    assert set(controller.image.changed_since(before)) == {"a"}
    controller.create_topic("d")
    controller.create_topic("a")
    # Also over several changes, one of which recreates a topic under the same name.
    assert set(controller.image.changed_since(before)) == {"a", "d"}
    assert controller.image.topic_names[controller.image.topics["a"].topic_id] == "a"
    assert len(controller.image.topic_names) == 4
    controller.unregister_broker(3)
    assert set(controller.image.changed_since(before)) <= {"a", "b", "c", "d"}
    assert controller.image.brokers.keys() == {1, 2}


def test_an_image_travels_whole_or_as_what_has_changed(controller):
    controller.create_topics([NewTopic("a", 2), NewTopic("b")])
    first = controller.image
    known = decode_image(json.loads(json.dumps(encode_image(first, None))), None)
    assert known == replace(first, changed=frozenset())
    controller.delete_topic("a")
    second = controller.image
    part = json.loads(json.dumps(encode_image(second, first)))
    assert "topics" not in part
    assert decode_image(part, known) == second
    whole = json.loads(json.dumps(encode_image(second, None)))
    assert decode_image(whole, known) == replace(second, changed=frozenset())


def test_decisions_survive_a_restart(tmp_path):
    first = make(tmp_path)
    first.create_topic("t", num_partitions=2, replication_factor=3, configs={"retention.ms": "77"})
    first.create_topics([NewTopic("u"), NewTopic("gone")])
    first.delete_topic("gone")
    first.move_leader("t", 0, 2)
    ids = first.allocate_producer_ids()
    again = make(tmp_path)
    assert again.image.topics == first.image.topics
    assert again.allocate_producer_ids()[0] >= ids[0] + ids[1]


def test_a_topic_stays_deleted_until_all_that_hold_it_have_heard(tmp_path):
    first = make(tmp_path)
    gone = first.create_topic("gone", replication_factor=3)
    other = first.create_topic("other", replication_factor=1)
    first.unregister_broker(3)
    first.delete_topics([TopicRef("gone", None), TopicRef("other", None)])
    assert first.image.deleted == {gone.topic_id, other.topic_id}
    first.create_topic("next", replication_factor=1)
    assert first.image.deleted == {gone.topic_id}
    # Brokers that were away still have logs of the deleted topic, which must not bring it back.
    again = Controller("cluster", BrokerConfig.resolve_from({}, {}, {}), tmp_path / "state.json")
    again.load({"gone": gone, "unknown": replace(gone, name="unknown", topic_id=uuid.uuid4())})
    assert set(again.image.topics) == {"next", "unknown"}
    assert again.image.deleted == {gone.topic_id}
    again.register_brokers([(endpoint, first.take) for endpoint in (*first.image.brokers.values(), BROKER_3)])
    assert again.image.deleted == {gone.topic_id}
    again.create_topic("last", replication_factor=1)
    assert again.image.deleted == frozenset()


def test_a_deletion_is_kept_before_it_is_told(tmp_path):
    first = make(tmp_path)
    gone = first.create_topic("gone", replication_factor=3)

    def die(_image):
        raise SystemExit

    first.register_brokers([(BROKER_3, first.take)])
    first._listeners[1] = die
    with pytest.raises(SystemExit):
        first.delete_topic("gone")
    again = Controller("cluster", BrokerConfig.resolve_from({}, {}, {}), tmp_path / "state.json")
    again.load({"gone": gone})
    assert "gone" not in again.image.topics
    assert again.image.deleted == {gone.topic_id}


def test_producer_ids_are_given_once(controller):
    controller.skip_producer_ids(4711)
    first, count = controller.allocate_producer_ids()
    assert first == 4712
    assert controller.allocate_producer_ids()[0] == first + count


# --- Groups ---


def test_groups_are_kept_as_kafka_keeps_them():
    group = Group("g", protocol_type="consumer", generation=3, protocol_name="range", leader_id="m-1")
    group.add(Member("m-1", "i", "client", "/host", 10_000, 60_000, (("range", b"meta"),), assignment=b"assigned"))
    stored = decode_group(encode_group(group))
    assert (stored.protocol_type, stored.generation, stored.protocol_name, stored.leader_id) == (
        "consumer",
        3,
        "range",
        "m-1",
    )
    (member,) = stored.members
    assert member == ("m-1", "i", "client", "/host", 60_000, 10_000, b"meta", b"assigned")
    assert decode_key(encode_group_key("g")) == GroupKey("g")


def test_offsets_are_kept_as_kafka_keeps_them():
    offset = CommittedOffset(42, 3, "note", 1_600_000_000_000)
    assert decode_offset(encode_offset(offset)) == offset
    assert decode_key(encode_offset_key("g", "t", 7)) == OffsetKey("g", "t", 7)
    assert encode_offset_key("g", "t", 7) == b"\0\1\0\1g\0\1t\0\0\0\7"
    assert decode_key(b"\0\x09\0\0") is None


@pytest.mark.parametrize(
    ("group_id", "count", "expected"), [("", 50, 0), ("a", 50, 47), ("hello", 50, 22), ("g", 4, 3)]
)
def test_a_groups_partition_is_found_by_javas_hash(group_id, count, expected):
    assert partition_for(group_id, count) == expected
