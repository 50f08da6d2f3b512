"""Metadata by itself: what it keeps, when it is due, which callers it wakes, and with which result."""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Collection
from typing import Any

import pytest
from support.client_harness import Waiter, WatchedClock, no_jitter
from support.mock_client import metadata_response

from headrace.network.cluster import Cluster, Node, TopicPartition
from headrace.network.metadata import Metadata
from headrace.network.metadata_fetch import MetadataFetch
from headrace.network.protocol.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    ProducerClosedError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse

MAX_AGE_MS = 300_000
MAX_IDLE_MS = 60_000
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, INVALID_TOPIC, UNAUTHORIZED = 3, 5, 17, 29


class Stage:
    """A Metadata with a clock, and a broker that answers at once."""

    def __init__(self, **settings: Any) -> None:
        self.clock = WatchedClock()
        self.metadata = Metadata(
            clock=self.clock,
            bootstrap_servers=[("host0", 9092), ("host1", 9093)],
            refresh_backoff_ms=100,
            refresh_backoff_max_ms=1000,
            max_age_ms=MAX_AGE_MS,
            max_idle_ms=MAX_IDLE_MS,
            random_unit=no_jitter,
            **settings,
        )

    @property
    def now_ms(self) -> float:
        return self.clock.now_ms()

    @property
    def due_in_ms(self) -> float:
        return self.metadata.time_to_next_update(self.now_ms)

    def add(self, *topics: str) -> None:
        for topic in topics:
            self.metadata.add_topic(topic, self.now_ms)

    def asked_for(self) -> list[str | None]:
        """The topics that a request would name now."""
        return [topic.name for topic in self.metadata.next_fetch(self.now_ms).message.topics or []]

    def fetch(self, response: MetadataResponse, version: int = 13) -> None:
        """Make a request, and answer it."""
        fetch = self.metadata.next_fetch(self.now_ms)
        self.metadata.update(response, self.now_ms, version=version, fetch=fetch)


@pytest.fixture
def stage() -> Stage:
    return Stage()


class TestBootstrap:
    def test_configured_addresses_are_nodes_with_negative_ids(self, stage: Stage) -> None:
        cluster = stage.metadata.cluster
        assert cluster.is_bootstrap
        assert [(node.id, node.address) for node in cluster.nodes.values()] == [(-1, "host0:9092"), (-2, "host1:9093")]
        assert stage.metadata.version == 0
        assert stage.due_in_ms == 0

    def test_the_first_update_replaces_them(self, stage: Stage) -> None:
        stage.fetch(metadata_response(brokers=2))
        cluster = stage.metadata.cluster
        assert not cluster.is_bootstrap
        assert list(cluster.nodes) == [0, 1]
        assert cluster.cluster_id == "mock-cluster"
        assert cluster.controller == cluster.nodes[0]
        assert stage.metadata.version == 1


class TestWhenDue:
    def test_by_age(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        assert stage.due_in_ms == MAX_AGE_MS
        stage.clock.advance(MAX_AGE_MS)
        assert stage.due_in_ms == 0

    def test_on_demand_but_not_within_the_backoff(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        assert stage.metadata.request_update() == 1
        assert stage.metadata.update_requested
        assert stage.due_in_ms == pytest.approx(100)
        stage.clock.advance(100)
        assert stage.due_in_ms == 0

    def test_failures_wait_longer_and_longer(self, stage: Stage) -> None:
        waits = []
        for _ in range(6):
            stage.metadata.failed_update(stage.now_ms)
            waits.append(stage.due_in_ms)
            stage.clock.advance(waits[-1])
        assert waits == pytest.approx([100, 200, 400, 800, 1000, 1000])
        stage.fetch(metadata_response())
        stage.metadata.failed_update(stage.now_ms)
        stage.metadata.request_update()
        assert stage.due_in_ms == pytest.approx(100)

    def test_answers_that_bring_nothing_new_wait_longer_and_longer(self, stage: Stage) -> None:
        stage.add("topic")
        stage.fetch(metadata_response({"topic": 1}, leader_epoch=1))
        waits = []
        for _ in range(6):
            stage.metadata.request_update()
            waits.append(stage.due_in_ms)
            stage.clock.advance(waits[-1])
            stage.fetch(metadata_response({"topic": 1}, leader_epoch=1))
        assert waits == pytest.approx([100, 100, 200, 400, 800, 1000])
        # a change resets the backoff
        stage.fetch(metadata_response({"topic": 1}, leader_epoch=2))
        stage.metadata.request_update()
        assert stage.due_in_ms == pytest.approx(100)

    def test_a_failure_counts_alone(self, stage: Stage) -> None:
        stage.add("topic")
        for _ in range(8):
            stage.fetch(metadata_response({"topic": 1}))
        stage.metadata.failed_update(stage.now_ms)
        stage.metadata.request_update()
        assert stage.due_in_ms == pytest.approx(100)

    def test_somebody_who_wants_something_else_does_not_wait_for_that(self, stage: Stage) -> None:
        stage.add("topic")
        for _ in range(5):
            stage.fetch(metadata_response({"topic": 1}))
        stage.metadata.request_update(reset_backoff=True)
        assert stage.due_in_ms == pytest.approx(100)

    def test_a_new_topic_does_not_wait(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.metadata.failed_update(stage.now_ms)
        stage.add("topic")
        assert stage.due_in_ms == 0

    def test_nor_does_one_that_was_added_while_a_request_was_under_way(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.add("one")
        fetch = stage.metadata.next_fetch(stage.now_ms)
        stage.add("two")
        stage.metadata.update(metadata_response({"one": 1}), stage.now_ms, fetch=fetch)
        assert stage.due_in_ms == 0
        assert stage.asked_for() == ["two"]

    def test_nor_is_anything_asked_for_once_more_because_somebody_waits_for_what_is_under_way(
        self, stage: Stage
    ) -> None:
        stage.fetch(metadata_response())
        stage.add("one")
        fetch = stage.metadata.next_fetch(stage.now_ms)
        stage.metadata.request_update_for_topic("one", 1)
        stage.metadata.update(metadata_response({"one": 1}), stage.now_ms, fetch=fetch)
        assert stage.due_in_ms == MAX_AGE_MS

    def test_nor_because_the_answer_came_before_the_question(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.add("one")
        seen = stage.metadata.version
        stage.metadata.update(
            metadata_response({"one": 1}), stage.now_ms, fetch=stage.metadata.next_fetch(stage.now_ms)
        )
        stage.metadata.request_update_for_topic("one", seen)
        assert stage.due_in_ms == MAX_AGE_MS
        stage.metadata.request_update_for_topic("one", stage.metadata.version)
        assert stage.due_in_ms < MAX_AGE_MS, "a caller that asks again after that response gets another one"

    def test_fresh_metadata_are_fetched_after_the_request(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.metadata.request_update()
        earlier = stage.metadata.next_fetch(stage.now_ms)
        wanted = stage.metadata.request_fresh()
        stage.metadata.update(metadata_response(), stage.now_ms, fetch=earlier)
        assert not stage.metadata.is_answered(wanted)
        assert stage.metadata.update_requested
        stage.metadata.add_topic("new", stage.now_ms)
        stage.metadata.update(
            metadata_response({"new": 1}), stage.now_ms, fetch=stage.metadata.next_fetch(stage.now_ms)
        )
        assert stage.metadata.is_answered(wanted)

    def test_a_partial_update_is_not_fresh(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.add("new")
        partial = stage.metadata.next_fetch(stage.now_ms)
        assert partial.is_partial
        wanted = stage.metadata.request_fresh()
        stage.metadata.update(metadata_response({"new": 1}), stage.now_ms, fetch=partial)
        assert not stage.metadata.is_answered(wanted)


class TestTopics:
    def test_new_topics_are_asked_for_alone_and_merged(self, stage: Stage) -> None:
        stage.add("old")
        stage.fetch(metadata_response({"old": 2}, brokers=2))
        stage.add("new")
        fetch = stage.metadata.next_fetch(stage.now_ms)
        assert fetch.is_partial
        assert [topic.name for topic in fetch.message.topics or []] == ["new"]
        stage.metadata.update(metadata_response({"new": 3}, brokers=2), stage.now_ms, fetch=fetch)
        cluster = stage.metadata.cluster
        assert cluster.partition_count("old") == 2
        assert cluster.partition_count("new") == 3
        assert stage.due_in_ms == MAX_AGE_MS

    def test_a_partial_answer_does_not_make_the_rest_younger(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.clock.advance(MAX_AGE_MS - 10)
        stage.add("new")
        stage.fetch(metadata_response({"new": 1}))
        assert stage.due_in_ms == pytest.approx(100)  # expired in 10 ms, but the backoff is longer
        stage.clock.advance(100)
        assert not stage.metadata.next_fetch(stage.now_ms).is_partial

    def test_a_full_request_names_all_topics_and_drops_those_that_are_not_answered(self, stage: Stage) -> None:
        stage.add("b", "a")
        assert stage.asked_for() == ["a", "b"]
        stage.fetch(metadata_response({"a": 1, "b": 1}))
        stage.metadata.request_update()
        stage.fetch(metadata_response({"a": 1}))
        assert list(stage.metadata.cluster.topics) == ["a"]

    def test_topics_that_nobody_asked_for_are_not_kept(self, stage: Stage) -> None:
        stage.add("mine")
        stage.fetch(metadata_response({"mine": 1, "other": 1}))
        assert list(stage.metadata.cluster.topics) == ["mine"]

    def test_retained_partitions_move_to_the_nodes_of_a_partial_answer(self, stage: Stage) -> None:
        stage.add("old")
        stage.fetch(metadata_response({"old": 2}, brokers=2))
        stage.add("new")
        response = metadata_response({"new": 1}, brokers=1)
        response.brokers[0].host = "moved"
        stage.fetch(response)
        cluster = stage.metadata.cluster
        leaders = [info.leader for info in cluster.partitions_for("old") or ()]
        assert leaders == [Node(0, "moved", 9092), None]

    def test_unused_topics_expire_with_an_update(self, stage: Stage) -> None:
        stage.add("used", "unused")
        stage.fetch(metadata_response({"used": 1, "unused": 1}))
        stage.clock.advance(MAX_IDLE_MS - 1)
        stage.add("used")
        stage.clock.advance(1)
        assert stage.metadata.contains_topic("unused")
        stage.fetch(metadata_response({"used": 1, "unused": 1}))
        assert not stage.metadata.contains_topic("unused")
        assert list(stage.metadata.cluster.topics) == ["used"]
        stage.metadata.request_update()
        assert stage.asked_for() == ["used"]
        stage.fetch(metadata_response({"used": 1}))
        # a forgotten topic counts as new when it returns
        stage.add("unused")
        assert stage.due_in_ms == 0
        assert stage.asked_for() == ["unused"]

    def test_topics_expire_with_a_partial_update_too(self, stage: Stage) -> None:
        stage.add("unused")
        stage.fetch(metadata_response({"unused": 1}, errors={}))
        stage.clock.advance(MAX_IDLE_MS)
        stage.add("new")
        stage.fetch(metadata_response({"new": 1}))
        assert list(stage.metadata.cluster.topics) == ["new"]

    def test_a_topic_that_was_never_answered_does_not_expire(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.add("new")
        stage.clock.advance(MAX_IDLE_MS + 1)
        stage.metadata.update(metadata_response(), stage.now_ms)
        assert stage.metadata.contains_topic("new")
        stage.fetch(metadata_response({"new": 1}))
        assert stage.metadata.contains_topic("new"), "it was new until now"
        stage.fetch(metadata_response({"new": 1}))
        assert not stage.metadata.contains_topic("new")

    def test_a_topic_that_is_used_again_and_again_expires_once_it_is_not(self, stage: Stage) -> None:
        stage.add("used")
        stage.fetch(metadata_response({"used": 1}))
        for _ in range(5):
            stage.clock.advance(MAX_IDLE_MS / 2)
            stage.add("used")
            stage.fetch(metadata_response({"used": 1}))
        stage.clock.advance(MAX_IDLE_MS - 1)
        stage.fetch(metadata_response({"used": 1}))
        assert stage.metadata.contains_topic("used")
        stage.clock.advance(1)
        stage.fetch(metadata_response({"used": 1}))
        assert not stage.metadata.contains_topic("used")

    def test_one_that_is_used_in_the_moment_in_which_it_expires_does_so_later(self, stage: Stage) -> None:
        stage.add("used")
        stage.fetch(metadata_response({"used": 1}))
        stage.clock.advance(MAX_IDLE_MS)
        stage.fetch(metadata_response({"used": 1}))
        assert not stage.metadata.contains_topic("used")
        # `add_topic` does this without the lock if it has still found the topic
        stage.metadata._topics["used"] = stage.now_ms + MAX_IDLE_MS
        stage.fetch(metadata_response({"used": 1}))
        assert stage.metadata.contains_topic("used")
        stage.clock.advance(MAX_IDLE_MS)
        stage.fetch(metadata_response({"used": 1}))
        assert not stage.metadata.contains_topic("used")

    def test_creation_may_be_forbidden(self) -> None:
        stage = Stage(allow_auto_topic_creation=False)
        stage.add("topic")
        assert not stage.metadata.next_fetch(0).message.allow_auto_topic_creation
        assert Stage().metadata.next_fetch(0).message.allow_auto_topic_creation

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/b", "\ud800", "new\n"])
    def test_a_name_that_no_topic_can_have_is_refused(self, stage: Stage, name: str) -> None:
        with pytest.raises(InvalidTopicError):
            stage.add(name)
        assert not stage.metadata.contains_topic(name)

    def test_what_is_no_text_is_no_topic(self, stage: Stage) -> None:
        with pytest.raises(InvalidTopicError, match="bytes"):
            stage.metadata.add_topic(b"topic", 0)  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", ["a", "x" * 249, "A.b_c-9", "__consumer_offsets", "..."])
    def test_legal_names(self, stage: Stage, name: str) -> None:
        stage.add(name)
        assert stage.metadata.contains_topic(name)

    def test_topic_ids_come_and_go_with_the_latest_answer(self, stage: Stage) -> None:
        topic_id = uuid.uuid4()
        stage.add("topic", "old-style")
        stage.fetch(metadata_response({"topic": 1, "old-style": 1}, topic_ids={"topic": topic_id}))
        cluster = stage.metadata.cluster
        assert cluster.topic_id("topic") == topic_id
        assert cluster.topic_name(topic_id) == "topic"
        assert cluster.topic_id("old-style") is None
        assert cluster.topic_name(uuid.uuid4()) is None
        stage.add("new")
        stage.fetch(metadata_response({"new": 1}))
        assert stage.metadata.cluster.topic_id("topic") == topic_id
        stage.metadata.request_update()
        stage.fetch(metadata_response({"topic": 1}))
        assert stage.metadata.cluster.topic_id("topic") is None

    def test_partitions_are_sorted_however_they_come(self, stage: Stage) -> None:
        stage.add("topic")
        response = metadata_response({"topic": 5})
        response.topics[0].partitions.reverse()
        stage.fetch(response)
        assert [info.partition for info in stage.metadata.cluster.partitions_for("topic") or ()] == [0, 1, 2, 3, 4]

    def test_a_broker_cannot_have_the_id_of_a_bootstrap_address(self, stage: Stage) -> None:
        response = metadata_response(brokers=2)
        response.brokers[0].node_id = -1
        stage.fetch(response)
        assert list(stage.metadata.cluster.nodes) == [1]

    def test_a_topic_without_partitions_is_not_known_yet(self, stage: Stage) -> None:
        stage.add("topic")
        stage.fetch(metadata_response({"topic": 0}))
        assert stage.metadata.cluster.partition_count("topic") is None


class TestTopicErrors:
    @pytest.mark.parametrize(
        ("code", "error_class"),
        [
            (UNKNOWN_TOPIC, UnknownTopicOrPartitionError),
            (LEADER_NOT_AVAILABLE, LeaderNotAvailableError),
            (INVALID_TOPIC, InvalidTopicError),
            (UNAUTHORIZED, TopicAuthorizationFailedError),
        ],
    )
    def test_are_kept_by_topic(self, stage: Stage, code: int, error_class: type[Exception]) -> None:
        stage.add("bad", "good")
        stage.fetch(metadata_response({"good": 1}, errors={"bad": code}))
        error = stage.metadata.topic_error("bad")
        assert isinstance(error, error_class)
        assert "'bad'" in str(error)
        assert stage.metadata.topic_error("good") is None
        assert stage.metadata.topic_error("never heard of") is None
        assert stage.metadata.cluster.partition_count("bad") is None
        assert stage.metadata.cluster.partition_count("good") == 1

    def test_invalid_and_unauthorized_topics_are_in_the_cluster(self, stage: Stage) -> None:
        stage.add("invalid", "secret")
        stage.fetch(metadata_response(errors={"invalid": INVALID_TOPIC, "secret": UNAUTHORIZED}))
        assert stage.metadata.cluster.invalid_topics == {"invalid"}
        assert stage.metadata.cluster.unauthorized_topics == {"secret"}

    def test_retriable_ones_ask_for_an_update_others_do_not(self, stage: Stage) -> None:
        stage.add("a", "b")
        stage.fetch(metadata_response(errors={"a": INVALID_TOPIC, "b": UNAUTHORIZED}))
        assert not stage.metadata.update_requested
        stage.fetch(metadata_response(errors={"a": UNKNOWN_TOPIC}))
        assert stage.metadata.update_requested

    def test_a_topic_that_is_to_be_asked_for_again_is_asked_for_by_itself(self, stage: Stage) -> None:
        stage.add("settled")
        stage.fetch(metadata_response({"settled": 1}))
        stage.add("new")
        stage.fetch(metadata_response(errors={"new": LEADER_NOT_AVAILABLE}))
        assert stage.due_in_ms == pytest.approx(100)
        stage.clock.advance(100)
        assert stage.asked_for() == ["new"]
        stage.add("newer")
        assert stage.asked_for() == ["new", "newer"]
        stage.fetch(metadata_response({"newer": 1}, errors={"new": UNKNOWN_TOPIC}))
        assert 0 < stage.due_in_ms < MAX_AGE_MS
        assert stage.asked_for() == ["new"]
        stage.metadata.failed_update(stage.now_ms)
        assert stage.asked_for() == ["new"]
        stage.fetch(metadata_response({"new": 1}))
        assert stage.due_in_ms == MAX_AGE_MS - 100
        assert set(stage.metadata.cluster.topics) == {"settled", "new", "newer"}

    def test_nor_does_waiting_for_it_ask_for_more(self, stage: Stage) -> None:
        stage.add("settled")
        stage.fetch(metadata_response({"settled": 1}))
        stage.add("new")
        stage.metadata.request_update_for_waiting(["new"])
        stage.fetch(metadata_response(errors={"new": LEADER_NOT_AVAILABLE}))
        stage.metadata.request_update_for_topic("new", 2)
        stage.metadata.request_update_for_waiting(["new"])
        assert stage.asked_for() == ["new"]
        assert stage.due_in_ms == pytest.approx(100), "and it does not hurry"
        stage.metadata.request_update_for_waiting(["new", "settled"])
        assert stage.asked_for() == ["new", "settled"]

    @pytest.mark.parametrize("is_full", [True, False])
    def test_nobody_asks_again_for_a_topic_that_expired(self, stage: Stage, is_full: bool) -> None:
        stage.add("gone")
        stage.fetch(metadata_response(errors={"gone": UNKNOWN_TOPIC}))
        stage.clock.advance(MAX_IDLE_MS)
        if is_full:
            stage.metadata.request_update()
        stage.fetch(metadata_response(errors={"gone": UNKNOWN_TOPIC}))
        assert stage.due_in_ms > 1000
        stage.clock.advance(1)
        stage.add("new")
        assert stage.asked_for() == ["new"]

    def test_a_full_answer_settles_all_that_it_does_not_name(self, stage: Stage) -> None:
        stage.add("a", "b")
        stage.fetch(metadata_response(errors={"a": UNKNOWN_TOPIC, "b": UNKNOWN_TOPIC}))
        stage.metadata.request_update()
        stage.fetch(metadata_response({"a": 1}, errors={"b": UNKNOWN_TOPIC}))
        assert stage.asked_for() == ["b"]

    def test_they_go_with_the_next_answer_that_covers_the_topic(self, stage: Stage) -> None:
        stage.add("bad")
        stage.fetch(metadata_response(errors={"bad": UNAUTHORIZED}))
        stage.add("new")
        stage.fetch(metadata_response({"new": 1}))
        assert stage.metadata.topic_error("bad") is not None
        stage.metadata.request_update()
        stage.fetch(metadata_response({"bad": 1, "new": 1}))
        assert stage.metadata.topic_error("bad") is None

    def test_a_code_from_the_future_is_an_error_all_the_same(self, stage: Stage) -> None:
        stage.add("bad")
        stage.fetch(metadata_response(errors={"bad": 12_345}))
        assert stage.metadata.topic_error("bad") is not None

    def test_a_partition_without_a_leader_asks_for_an_update(self, stage: Stage) -> None:
        stage.add("topic")
        response = metadata_response({"topic": 2})
        partition = response.topics[0].partitions[1]
        partition.error_code, partition.leader_id = LEADER_NOT_AVAILABLE, -1
        stage.fetch(response)
        assert stage.metadata.update_requested
        cluster = stage.metadata.cluster
        assert cluster.partition_count("topic") == 2
        assert cluster.partition(TopicPartition("topic", 1)).leader is None
        assert [info.partition for info in cluster.available_partitions_for("topic")] == [0]


class TestLeaderEpochs:
    TP = TopicPartition("topic", 0)

    def fetch(self, stage: Stage, leader_id: int, epoch: int, *, topic_id: uuid.UUID | None = None, **how: Any) -> None:
        response = metadata_response({"topic": 1}, brokers=3, topic_ids={"topic": topic_id} if topic_id else None)
        partition = response.topics[0].partitions[0]
        partition.leader_id, partition.leader_epoch = leader_id, epoch
        stage.fetch(response, **how)

    def leader(self, stage: Stage) -> tuple[int | None, int]:
        cluster = stage.metadata.cluster
        known = cluster.partition(self.TP)
        return None if known.leader is None else known.leader.id, known.leader_epoch

    def test_older_epochs_are_ignored(self, stage: Stage) -> None:
        stage.add("topic")
        self.fetch(stage, 1, 5)
        self.fetch(stage, 2, 4)
        assert self.leader(stage) == (1, 5)
        self.fetch(stage, 2, 5)
        assert self.leader(stage) == (2, 5)
        self.fetch(stage, 0, 6)
        assert self.leader(stage) == (0, 6)

    def test_the_leader_kept_is_one_of_the_nodes_of_the_new_answer(self, stage: Stage) -> None:
        stage.add("topic")
        self.fetch(stage, 1, 5)
        response = metadata_response({"topic": 1}, brokers=1, leader_epoch=4)
        stage.fetch(response)
        assert self.leader(stage) == (None, 5)

    def test_another_topic_of_the_same_name_begins_anew(self, stage: Stage) -> None:
        stage.add("topic")
        first, second = uuid.uuid4(), uuid.uuid4()
        self.fetch(stage, 1, 5, topic_id=first)
        self.fetch(stage, 2, 0, topic_id=first)
        assert self.leader(stage) == (1, 5)
        self.fetch(stage, 2, 0, topic_id=second)
        assert self.leader(stage) == (2, 0)

    def test_epochs_of_old_brokers_are_not_believed(self, stage: Stage) -> None:
        stage.add("topic")
        self.fetch(stage, 1, 5, version=8)
        assert self.leader(stage) == (1, -1)
        self.fetch(stage, 2, 4, version=8)
        assert self.leader(stage) == (2, -1)

    def test_rebootstrapping_forgets_them(self, stage: Stage) -> None:
        stage.add("topic")
        self.fetch(stage, 1, 5)
        stage.metadata.rebootstrap()
        assert self.leader(stage) == (None, 5)
        self.fetch(stage, 2, 1)
        assert self.leader(stage) == (2, 1)

    def test_leaders_told_by_a_produce_response(self, stage: Stage) -> None:
        stage.add("topic")
        self.fetch(stage, 1, 5)
        heard: list[Cluster] = []
        stage.metadata.add_listener(lambda cluster, _: heard.append(cluster))
        version = stage.metadata.version
        new = Node(7, "new", 9099)
        assert stage.metadata.update_leaders({self.TP: (7, 6)}, [new]) == {self.TP}
        assert self.leader(stage) == (7, 6)
        assert heard == [stage.metadata.cluster]
        assert stage.metadata.cluster.nodes[7] == new
        assert list(stage.metadata.cluster.nodes) == [0, 1, 2, 7]
        assert stage.metadata.version == version
        # metadata with an older leader epoch
        self.fetch(stage, 1, 5)
        assert self.leader(stage) == (None, 6)

    @pytest.mark.parametrize(
        ("told", "why"),
        [
            ((2, 5), "not newer"),
            ((2, 4), "older"),
            ((-1, 6), "no leader"),
            ((2, -1), "no epoch"),
            ((9, 6), "unknown node"),
        ],
    )
    def test_leaders_that_cannot_be_used_are_ignored(self, stage: Stage, told: tuple[int, int], why: str) -> None:
        stage.add("topic")
        self.fetch(stage, 1, 5)
        assert stage.metadata.update_leaders({self.TP: told}, []) == set(), why
        assert self.leader(stage) == (1, 5)

    def test_leaders_of_unknown_partitions_are_ignored(self, stage: Stage) -> None:
        stage.add("topic")
        self.fetch(stage, 1, 5)
        leaders = {TopicPartition("topic", 1): (1, 9), TopicPartition("other", 0): (1, 9)}
        assert stage.metadata.update_leaders(leaders, []) == set()


class TestRebootstrap:
    def test_a_partition_without_a_leader_does_not_get_the_first_address_as_its_leader(self, stage: Stage) -> None:
        # "no leader" and the first bootstrap address both have id -1
        stage.add("topic")
        response = metadata_response({"topic": 1})
        response.topics[0].partitions[0].leader_id = -1
        response.controller_id = -1
        stage.fetch(response)
        stage.metadata.rebootstrap()
        assert stage.metadata.cluster.partition(TopicPartition("topic", 0)).leader is None
        assert stage.metadata.cluster.controller is None

    def test_asks_for_a_full_update_and_wakes_nobody(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        version = stage.metadata.version
        stage.metadata.rebootstrap()
        cluster = stage.metadata.cluster
        assert cluster.is_bootstrap
        assert stage.metadata.version == version
        assert stage.metadata.update_requested
        stage.metadata.rebootstrap()
        assert stage.metadata.cluster is cluster


class TestWaiting:
    def test_a_version_that_is_there_needs_no_wait(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.metadata.await_update(0, 0)

    def test_every_update_wakes(self, stage: Stage) -> None:
        waiters = [Waiter(stage.metadata, stage.clock) for _ in range(3)]
        stage.fetch(metadata_response())
        for waiter in waiters:
            waiter.result()

    def test_times_out(self, stage: Stage) -> None:
        waiter = Waiter(stage.metadata, stage.clock, timeout_ms=500)
        stage.clock.advance(499)
        assert waiter.is_waiting
        stage.clock.advance(1)
        with pytest.raises(KafkaTimeoutError, match="500 ms: no broker was asked yet"):
            waiter.result()

    def test_no_time_at_all(self, stage: Stage) -> None:
        with pytest.raises(KafkaTimeoutError):
            stage.metadata.await_update(0, 0)

    def test_a_timeout_tells_the_last_error_and_an_update_forgets_it(self, stage: Stage) -> None:
        error = KafkaConnectionError("host0:9092: refused")
        stage.metadata.record_error(error)
        with pytest.raises(KafkaTimeoutError, match="host0:9092: refused") as caught:
            stage.metadata.await_update(0, 0)
        assert caught.value.__cause__ is error
        assert stage.metadata.last_error is error
        stage.fetch(metadata_response())
        assert stage.metadata.last_error is None

    def test_a_fatal_error_reaches_everybody_who_waits_and_nobody_who_comes_later(self, stage: Stage) -> None:
        waiters = [Waiter(stage.metadata, stage.clock) for _ in range(3)]
        stage.metadata.fatal_error(SaslAuthenticationFailedError("wrong password"))
        for waiter in waiters:
            with pytest.raises(SaslAuthenticationFailedError, match="wrong password"):
                waiter.result()
        late = Waiter(stage.metadata, stage.clock)
        assert late.is_waiting
        stage.fetch(metadata_response())
        late.result()

    def test_close_ends_all_waits_now_and_later(self, stage: Stage) -> None:
        waiter = Waiter(stage.metadata, stage.clock)
        stage.metadata.close()
        with pytest.raises(ProducerClosedError):
            waiter.result()
        with pytest.raises(ProducerClosedError):
            stage.metadata.await_update(0, 1000)
        assert stage.metadata.is_closed

    def test_close_may_tell_why(self, stage: Stage) -> None:
        cause = IllegalStateError("the sender died")
        stage.metadata.close(cause)
        stage.metadata.close()
        with pytest.raises(IllegalStateError, match="the sender died") as caught:
            stage.metadata.await_update(0, 1000)
        assert caught.value.__cause__ is cause

    def test_an_update_after_close_is_a_mistake(self, stage: Stage) -> None:
        stage.metadata.close()
        with pytest.raises(IllegalStateError):
            stage.fetch(metadata_response())

    def test_a_wait_for_a_topic_asks_for_it(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        stage.add("new")
        stage.metadata.failed_update(stage.now_ms)
        stage.metadata.request_update_for_topic("new", 1)
        assert stage.due_in_ms == 0
        assert stage.asked_for() == ["new"]
        stage.fetch(metadata_response({"new": 1}))
        stage.metadata.request_update_for_topic("new", 2)
        assert stage.due_in_ms == pytest.approx(100)


class TestListeners:
    def test_hear_every_snapshot_after_it_can_be_seen_and_without_the_lock(self, stage: Stage) -> None:
        heard: list[tuple[Cluster, int]] = []

        def listener(cluster: Cluster, changed: Collection[str]) -> None:
            # another thread can call it, so the lock is free
            thread = threading.Thread(target=stage.metadata.request_update)
            thread.start()
            thread.join(10)
            assert not thread.is_alive()
            heard.append((cluster, stage.metadata.version))

        stage.metadata.add_listener(listener)
        stage.fetch(metadata_response())
        stage.fetch(metadata_response(brokers=2))
        assert [version for _, version in heard] == [1, 2]
        assert heard[-1][0] is stage.metadata.cluster


class TestChanges:
    """What listeners receive: the topics whose partitions have changed since the previous call."""

    @pytest.fixture
    def heard(self, stage: Stage) -> list[set[str]]:
        heard: list[set[str]] = []
        stage.metadata.add_listener(lambda cluster, changed: heard.append(set(changed)))
        stage.add("a", "b")
        stage.fetch(metadata_response({"a": 2, "b": 2}, brokers=2))
        assert heard.pop() == {"a", "b"}
        return heard

    def test_a_new_topic(self, stage: Stage, heard: list[set[str]]) -> None:
        stage.add("c")
        stage.fetch(metadata_response({"c": 1}, brokers=2))
        assert heard == [{"c"}]

    def test_nothing(self, stage: Stage, heard: list[set[str]]) -> None:
        before = stage.metadata.cluster
        stage.metadata.request_update()
        stage.fetch(metadata_response({"b": 2, "a": 2}, brokers=2))
        assert heard == [set()]
        assert stage.metadata.cluster.partitions_for("a") is before.partitions_for("a")

    def test_more_partitions_and_another_leader(self, stage: Stage, heard: list[set[str]]) -> None:
        stage.metadata.request_update()
        stage.fetch(metadata_response({"a": 3, "b": 2}, brokers=2))
        stage.metadata.request_update()
        moved = metadata_response({"a": 3, "b": 2}, brokers=2)
        moved.topics[1].partitions[0].leader_id = 1
        stage.fetch(moved)
        assert heard == [{"a"}, {"b"}]

    def test_a_topic_that_vanishes_or_expires(self, stage: Stage, heard: list[set[str]]) -> None:
        stage.metadata.request_update()
        stage.fetch(metadata_response({"a": 2}, errors={"b": UNKNOWN_TOPIC}, brokers=2))
        stage.clock.advance(MAX_IDLE_MS)
        stage.add("c")
        stage.metadata.update(
            metadata_response({"c": 1}, brokers=2),
            stage.now_ms,
            fetch=MetadataFetch(MetadataRequest(topics=[]), 9, 0, True),
        )
        assert heard == [{"b"}, {"a", "c"}]

    def test_nodes_that_moved_or_left(self, stage: Stage, heard: list[set[str]]) -> None:
        stage.add("c")
        response = metadata_response({"c": 1}, brokers=2)
        response.brokers[0].port = 1
        stage.fetch(response)
        assert heard == [{"a", "b", "c"}]

    def test_a_leader_that_a_produce_response_tells(self, stage: Stage, heard: list[set[str]]) -> None:
        stage.metadata.update_leaders({TopicPartition("b", 0): (1, 5)}, [])
        stage.metadata.update_leaders({TopicPartition("a", 0): (7, 5)}, [Node(7, "new", 1)])
        assert heard[0] == {"b"}
        assert heard[1] == {"a"}, "an unknown node led no partition"

    def test_what_changes_while_it_bootstraps_again(self, stage: Stage, heard: list[set[str]]) -> None:
        stage.metadata.rebootstrap()
        assert heard == [], "batches may still go to their old leaders"
        without = metadata_response({"a": 2, "b": 1}, brokers=2)
        del without.brokers[1]
        stage.fetch(without)
        assert heard == [{"a", "b"}]
        assert stage.metadata.cluster.partition(TopicPartition("a", 1)).leader is None


class TestManyTopics:
    def test_ten_thousand_topics_one_after_the_other(self, stage: Stage) -> None:
        stage.fetch(metadata_response())
        for index in range(2_000):
            stage.add(f"topic-{index}")
            stage.fetch(metadata_response({f"topic-{index}": 1}))
        names = {f"topic-{index}": 1 for index in range(10_000)}
        stage.add(*names)
        stage.fetch(metadata_response(names))
        assert len(list(stage.metadata.cluster.topics)) == 10_000
        assert stage.due_in_ms < math.inf


def test_callers_and_the_sender_at_once() -> None:
    """Threads add topics and read while the sender updates and expires them: no call fails, and nothing is lost."""
    stage = Stage()
    stop = threading.Event()
    failures: list[BaseException] = []

    def call(number: int) -> None:
        try:
            for index in range(300):
                topic = f"topic-{(index * 7 + number) % 50}"
                stage.metadata.add_topic(topic, stage.now_ms)
                for name in list(stage.metadata.cluster.topics):
                    assert stage.metadata.cluster.partition_count(name) in (1, None)
                stage.metadata.topic_error(topic)
                stage.metadata.request_update_for_topic(topic, stage.metadata.version)
        except BaseException as error:
            failures.append(error)

    def serve() -> None:
        try:
            while not stop.is_set():
                fetch = stage.metadata.next_fetch(stage.now_ms)
                asked = [topic.name for topic in fetch.message.topics or [] if topic.name is not None]
                stage.metadata.update(metadata_response(dict.fromkeys(asked, 1)), stage.now_ms, fetch=fetch)
                stage.clock.advance(MAX_IDLE_MS / 10)
        except BaseException as error:
            failures.append(error)

    sender = threading.Thread(target=serve)
    callers = [threading.Thread(target=call, args=(number,)) for number in range(3)]
    for thread in [sender, *callers]:
        thread.start()
    for thread in callers:
        thread.join(60)
    stop.set()
    sender.join(60)
    assert failures == []
    stage.add("last")
    stage.fetch(metadata_response({"last": 1}))
    assert stage.metadata.cluster.partition_count("last") == 1
