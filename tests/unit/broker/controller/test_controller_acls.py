"""ACLs at the controller: kept in its file, published with the image, sent to other processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.broker.cluster.remote import decode_image, encode_image
from headrace.broker.config.broker_config import BrokerConfig
from headrace.broker.controller import controller as controller_module
from headrace.broker.controller.controller import Controller
from headrace.broker.controller.controller_api import NewTopic
from headrace.broker.metadata import BrokerEndpoint, ClusterImage
from headrace.broker.security.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from headrace.network.protocol.errors import InvalidRequestError, KafkaStorageError

READ = AclBinding(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, PermissionType.ALLOW
)
WRITE = READ._replace(operation=AclOperation.WRITE)
WRONG = READ._replace(principal="alice")


def make(tmp_path: Path) -> Controller:
    controller = Controller("cluster", BrokerConfig.resolve_from({}, {}, {}), tmp_path / "state.json")
    controller.load({})
    controller.register_brokers([(BrokerEndpoint(1, "127.0.0.1", 9092), lambda _: lambda: None)])
    return controller


def test_acls_outlive_the_controller(tmp_path: Path) -> None:
    first = make(tmp_path)
    assert first.create_acls([READ, WRITE]) == [READ, WRITE]
    first.create_topics([NewTopic("t")])
    assert make(tmp_path).image.acls == {READ, WRITE}


def test_each_acl_is_decided_by_itself(tmp_path: Path) -> None:
    controller = make(tmp_path)
    one, wrong, other = controller.create_acls([READ, WRONG, WRITE])
    assert (one, other) == (READ, WRITE)
    assert isinstance(wrong, InvalidRequestError)
    assert controller.image.acls == {READ, WRITE}


def test_an_acl_that_exists_changes_nothing(tmp_path: Path) -> None:
    controller = make(tmp_path)
    controller.create_acls([READ])
    version = controller.image.version
    assert controller.create_acls([READ]) == [READ]
    assert controller.image.version == version


def test_each_filter_reports_what_it_deletes(tmp_path: Path) -> None:
    controller = make(tmp_path)
    controller.create_acls([READ, WRITE])
    outcomes = controller.delete_acls(
        [AclFilter(operation=AclOperation.READ), AclFilter(operation=0), AclFilter(), AclFilter(resource_name="x")]
    )
    assert outcomes[0] == [READ]
    assert isinstance(outcomes[1], InvalidRequestError)
    assert outcomes[2:] == [[READ, WRITE], []]
    assert controller.image.acls == frozenset()


def test_acls_that_cannot_be_stored_are_not_in_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = make(tmp_path)
    controller.create_acls([READ])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(controller_module, "replace_file_over_spare", fail)
    (failed,) = controller.create_acls([WRITE])
    assert isinstance(failed, KafkaStorageError)
    (failed,) = controller.delete_acls([AclFilter()])
    assert isinstance(failed, KafkaStorageError)
    assert controller.image.acls == {READ}


def over_the_wire(image: ClusterImage, known: ClusterImage | None) -> ClusterImage:
    return decode_image(json.loads(json.dumps(encode_image(image, known))), known)


def test_another_process_gets_the_acls_and_only_when_they_change(tmp_path: Path) -> None:
    controller = make(tmp_path)
    controller.create_acls([READ])
    first = controller.image
    known = over_the_wire(first, None)
    assert (known.acls, known.broker_token) == (first.acls, first.broker_token)

    controller.create_topics([NewTopic("t")])
    assert "acls" not in encode_image(controller.image, first)
    second = decode_image(json.loads(json.dumps(encode_image(controller.image, first))), known)
    assert (second.acls, second.broker_token, list(second.topics)) == (first.acls, first.broker_token, ["t"])

    before = controller.image
    controller.delete_acls([AclFilter()])
    third = decode_image(json.loads(json.dumps(encode_image(controller.image, before))), second)
    assert third.acls == frozenset()


def test_the_token_of_the_brokers_is_in_no_text(tmp_path: Path) -> None:
    image = make(tmp_path).image
    assert image.broker_token
    assert image.broker_token not in repr(image)
    assert image.broker_token not in (tmp_path / "state.json").read_text()
    assert replace(image, version=2).broker_token == image.broker_token
