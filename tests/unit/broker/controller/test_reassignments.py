"""Replica reassignments, elections on request, and the configurations that the controller stores."""

from __future__ import annotations

import pytest

from headrace.broker.cluster.remote import decode_image, encode_image
from headrace.broker.config.broker_config import BrokerConfig
from headrace.broker.controller import reassignment
from headrace.broker.controller.controller import Controller
from headrace.broker.controller.controller_api import IsrChange, Reassignment
from headrace.broker.metadata import BROKER, GROUP, BrokerEndpoint, PartitionState
from headrace.network.protocol.errors import (
    InvalidConfigurationError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from headrace.network.protocol.other_errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    PreferredLeaderNotAvailableError,
)


def start(path=None, brokers=4):
    controller = Controller("cluster", BrokerConfig.resolve_from({}, {}, {}), path)
    controller.load({})
    endpoints = [BrokerEndpoint(node_id, "127.0.0.1", 9000 + node_id) for node_id in range(1, brokers + 1)]
    controller.register_brokers([(endpoint, lambda _image: lambda: None) for endpoint in endpoints])
    return controller


@pytest.fixture
def controller():
    controller = start()
    controller.create_topic("t", assignments={0: [1, 2]})
    return controller


def state(controller, topic="t", index=0):
    return controller.image.partition(topic, index)


def move(controller, *replicas, **options):
    (outcome,) = controller.alter_reassignments([Reassignment("t", 0, replicas)], **options)
    return outcome


def in_sync(controller, *isr):
    now = state(controller)
    change = IsrChange("t", 0, now.leader, now.leader_epoch, now.partition_epoch, isr)
    (outcome,) = controller.alter_isrs([change])
    return outcome


# --- Reassignment ---


def test_replicas_that_go_stay_until_those_that_come_are_in_sync(controller):
    assert move(controller, 3, 4) == state(controller)
    assert state(controller) == PartitionState((3, 4, 1, 2), (1, 2), 1, 0, 1, (3, 4), (1, 2))
    in_sync(controller, 1, 2, 3)
    assert state(controller).replicas == (3, 4, 1, 2)
    in_sync(controller, 1, 2, 3, 4)
    assert state(controller) == PartitionState((3, 4), (3, 4), 3, 1, 3)


def test_the_leader_stays_where_it_remains(controller):
    move(controller, 3, 1)
    in_sync(controller, 1, 2, 3)
    assert state(controller) == PartitionState((3, 1), (3, 1), 1, 0, 2)


def test_replicas_that_only_go_or_change_places_do_so_at_once(controller):
    move(controller, 2, 1)
    assert state(controller) == PartitionState((2, 1), (1, 2), 1, 0, 1)
    move(controller, 2)
    assert state(controller) == PartitionState((2,), (2,), 2, 1, 2)


def test_a_move_is_replaced_by_another(controller):
    move(controller, 3, 1)
    move(controller, 3, 4)
    assert state(controller) == PartitionState((3, 4, 1, 2), (1, 2), 1, 0, 2, (3, 4), (1, 2))


def test_a_move_is_cancelled(controller):
    move(controller, 3, 4)
    in_sync(controller, 1, 2, 3)
    (outcome,) = controller.alter_reassignments([Reassignment("t", 0, None)])
    assert outcome == PartitionState((1, 2), (1, 2), 1, 0, 3)
    (outcome,) = controller.alter_reassignments([Reassignment("t", 0, None)])
    assert isinstance(outcome, NoReassignmentInProgressError)


def test_a_move_is_not_cancelled_where_that_would_lose_records():
    moving = PartitionState((3, 1), (3,), 3, 0, 1, (3,), (1,))
    with pytest.raises(InvalidReplicationAssignmentError, match="only added replicas are in sync"):
        reassignment.cancel(moving, {1, 3})


def test_a_move_to_a_broker_that_dies_waits_for_it(controller):
    move(controller, 3, 1)
    controller.unregister_broker(3)
    assert state(controller).is_moving
    controller.unregister_broker(1)
    assert (state(controller).leader, state(controller).isr) == (2, (2,))


@pytest.mark.parametrize(
    ("replicas", "options", "error"),
    [
        ((), {}, InvalidReplicationAssignmentError),
        ((1, 1), {}, InvalidReplicationAssignmentError),
        ((1, 9), {}, InvalidReplicationAssignmentError),
        ((1, 2, 3), {"allow_factor_change": False}, InvalidReplicationFactorError),
    ],
)
def test_moves_that_can_not_be(controller, replicas, options, error):
    before = state(controller)
    assert isinstance(move(controller, *replicas, **options), error)
    assert state(controller) is before


def test_moves_of_nothing(controller):
    outcomes = controller.alter_reassignments([Reassignment("t", 1, [3]), Reassignment("u", 0, [3])])
    assert [type(each) for each in outcomes] == [UnknownTopicOrPartitionError] * 2


def test_a_move_goes_on_after_a_restart_and_over_a_link(tmp_path):
    path = tmp_path / "state.json"
    first = start(path)
    first.create_topic("t", assignments={0: [1, 2]})
    move(first, 3, 4)
    again = start(path)
    assert state(again).adding == (3, 4)
    assert decode_image(encode_image(again.image, None), None).partition("t", 0) == state(again)
    in_sync(again, 1, 2, 3, 4)
    assert state(again).replicas == (3, 4)


# --- Elections ---


def errors_of(outcomes):
    return [(each.topic, each.partition, type(each.error)) for each in outcomes]


def test_the_first_replica_leads_again(controller):
    controller.move_leader("t", 0, 2)
    controller.create_topic("u", assignments={0: [2, 1]})
    assert errors_of(controller.elect_leaders(None)) == [("t", 0, type(None))]
    assert (state(controller).leader, state(controller).leader_epoch) == (1, 2)
    assert controller.elect_leaders(None) == []


def test_elections_that_are_not_needed_or_can_not_be(controller):
    version = controller.image.version
    outcomes = controller.elect_leaders([("t", 0), ("t", 1), ("u", 0)])
    unknown = UnknownTopicOrPartitionError
    assert errors_of(outcomes) == [("t", 0, ElectionNotNeededError), ("t", 1, unknown), ("u", 0, unknown)]
    assert controller.image.version == version
    controller.unregister_broker(1)
    assert errors_of(controller.elect_leaders([("t", 0)])) == [("t", 0, PreferredLeaderNotAvailableError)]


def test_any_replica_leads_where_that_is_asked_for(controller):
    assert errors_of(controller.elect_leaders([("t", 0)], is_unclean=True)) == [("t", 0, ElectionNotNeededError)]
    controller.unregister_broker(2)
    controller.unregister_broker(1)
    assert errors_of(controller.elect_leaders([("t", 0)], is_unclean=True)) == [
        ("t", 0, EligibleLeadersNotAvailableError)
    ]
    controller.register_brokers([(BrokerEndpoint(2, "127.0.0.1", 9002), lambda _image: lambda: None)])
    assert state(controller).leader == -1
    assert errors_of(controller.elect_leaders(None, is_unclean=True)) == [("t", 0, type(None))]
    assert (state(controller).leader, state(controller).isr) == (2, (2,))


# --- Configurations ---


def test_configurations_are_kept_and_travel(tmp_path):
    path = tmp_path / "state.json"
    first = start(path)
    first.set_resource_configs(BROKER, "", {"log.retention.ms": "7"})
    first.set_resource_configs(GROUP, "g", {"consumer.session.timeout.ms": "50000"})
    again = start(path)
    assert again.image.configs == {
        (BROKER, ""): {"log.retention.ms": "7"},
        (GROUP, "g"): {"consumer.session.timeout.ms": "50000"},
    }
    assert again.config.topic_config({}).retention_ms == 7
    assert decode_image(encode_image(again.image, None), None).configs == again.image.configs
    again.set_resource_configs(BROKER, "", {})
    assert (BROKER, "") not in again.image.configs
    assert again.config.topic_config({}).retention_ms == 7 * 86_400_000


@pytest.mark.parametrize(
    ("kind", "configs", "error", "message"),
    [
        (BROKER, {"log.dirs": "/x", "node.id": "3"}, InvalidRequestError, "log.dirs, node.id can.t be changed while"),
        (BROKER, {"log.retention.ms": "soon"}, InvalidRequestError, "'soon' is not a whole number"),
        (BROKER, {"log.retention.mss": "1"}, InvalidRequestError, r"did you mean log\.retention\.ms"),
        (GROUP, {"consumer.session.timeout.ms": "0"}, InvalidConfigurationError, "'0' is too small"),
        (GROUP, {"session.timeout.ms": "1"}, InvalidConfigurationError, "is not a configuration key"),
    ],
)
def test_configurations_that_can_not_be(controller, kind, configs, error, message):
    with pytest.raises(error, match=message):
        controller.set_resource_configs(kind, "1", configs)
    assert controller.image.configs == {}


def test_validation_changes_nothing(controller):
    controller.set_resource_configs(BROKER, "1", {"log.retention.ms": "7"}, validate_only=True)
    assert controller.image.configs == {}


def test_a_brokers_own_value_comes_before_that_of_all():
    config = BrokerConfig.resolve_from({"log.retention.ms": "3"}, {}, {})
    both = config.with_dynamic({"log.retention.ms": "7", "num.io.threads": "9"}, {"log.retention.ms": "8"})
    assert (both.log_retention_ms, config.log_retention_ms) == (8, 3)
    assert config.with_dynamic({"log.retention.ms": "7"}, {}).log_retention_ms == 7
    assert config.with_dynamic({"num.io.threads": "9"}, {}) is config
