"""`add_acl` and `remove_acls`: each wrong argument has its own error, and none is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.broker import EmbeddedCluster
from headrace.broker.cluster.acl_arguments import acl_of, filter_of
from headrace.broker.security.acls import AclFilter, AclOperation, PatternType, PermissionType, ResourceType
from headrace.network.protocol.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError

GIVEN: dict[str, Any] = {
    "topic": "t",
    "group": None,
    "transactional_id": None,
    "cluster": False,
    "pattern": "literal",
    "permission": "ALLOW",
    "host": "*",
}
NOTHING: dict[str, Any] = {**dict.fromkeys(GIVEN), "cluster": False}


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [
        ({"topic": "t"}, ResourceType.TOPIC, "t"),
        ({"topic": None, "group": "g"}, ResourceType.GROUP, "g"),
        ({"topic": None, "transactional_id": "x"}, ResourceType.TRANSACTIONAL_ID, "x"),
        ({"topic": None, "cluster": True}, ResourceType.CLUSTER, "kafka-cluster"),
    ],
)
def test_the_resource(given: dict[str, Any], kind: ResourceType, name: str) -> None:
    acl = acl_of("User:a", "write", **{**GIVEN, **given})
    assert acl == (kind, name, PatternType.LITERAL, "User:a", "*", AclOperation.WRITE, PermissionType.ALLOW)


def test_names_of_codes_in_any_case() -> None:
    acl = acl_of("User:a", "Describe Configs", **{**GIVEN, "pattern": PatternType.PREFIXED, "permission": "deny"})
    assert acl.operation == AclOperation.DESCRIBE_CONFIGS
    assert (acl.pattern_type, acl.permission_type) == (PatternType.PREFIXED, PermissionType.DENY)


@pytest.mark.parametrize(
    ("principal", "operation", "given", "told"),
    [
        ("User:a", "WRITE", {"topic": None}, "no resource; give topic, group, transactional_id or cluster=True"),
        ("User:a", "WRITE", {"group": "g"}, "topic and group are given"),
        ("User:a", "WRITE", {"topic": ""}, r"topic is '' \(str\)"),
        ("User:a", "WRITE", {"topic": 7}, r"topic is 7 \(int\)"),
        ("User:a", "WRITE", {"cluster": "yes"}, "cluster is 'yes'; give True"),
        ("User:a", "PRODUCE", {}, "operation is 'PRODUCE' .*READ, WRITE"),
        ("User:a", "ANY", {}, "AclOperation is 1"),
        ("User:a", 4, {}, r"operation is 4 \(int\)"),
        ("User:a", "WRITE", {"pattern": "match"}, "PatternType is 2"),
        ("User:a", "WRITE", {"permission": "maybe"}, "give one of DENY, ALLOW"),
        ("User:a", "WRITE", {"host": None}, "host is None"),
        ("alice", "WRITE", {}, "'alice' is not a principal; .* User:alice"),
        (None, "WRITE", {}, "principal is None"),
    ],
)
def test_wrong_acls(principal: Any, operation: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises(IllegalArgumentError, match=told):
        acl_of(principal, operation, **{**GIVEN, **given})


def test_a_filter_for_everything() -> None:
    assert filter_of(None, None, **NOTHING) == AclFilter()


def test_a_filter_with_all_arguments() -> None:
    given = {**GIVEN, "pattern": "match", "permission": "deny", "host": "10.0.0.1"}
    assert filter_of("User:a", "read", **given) == (
        ResourceType.TOPIC, "t", PatternType.MATCH, "User:a", "10.0.0.1", AclOperation.READ, PermissionType.DENY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("principal", "given", "told"),
    [("alice", {}, "not a principal"), (None, {"topic": "t", "group": "g"}, "one resource"), ("", {}, "principal is")],
)
def test_wrong_filters(principal: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises(IllegalArgumentError, match=told):
        filter_of(principal, None, **{**NOTHING, **given})


def test_acls_need_an_authorizer() -> None:
    cluster = EmbeddedCluster()
    with pytest.raises(IllegalStateError, match="authorizer_class_name='StandardAuthorizer'"):
        cluster.add_acl(operation="READ", topic="t")
    with pytest.raises(IllegalStateError, match="authorizer_class_name='StandardAuthorizer'"):
        cluster.remove_acls()


# --- The configuration ---


def test_the_authorizer_has_kafkas_name_or_a_short_one() -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert EmbeddedCluster(authorizer_class_name="StandardAuthorizer").config.authorizer_class_name == name
    assert EmbeddedCluster(config={"authorizer.class.name": name}).config.authorizer_class_name == name
    assert EmbeddedCluster(config={"authorizer.class.name": ""}).config.authorizer_class_name == ""
    assert EmbeddedCluster(authorizer_class_name=None).config.authorizer_class_name == ""


def test_another_authorizer_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"'x\.Y' .*Java classes can't be loaded.*StandardAuthorizer"):
        EmbeddedCluster(authorizer_class_name="x.Y")


@pytest.mark.parametrize(("name", "value"), [("super_users", "User:a"), ("allow_everyone_if_no_acl_found", True)])
def test_keys_that_need_an_authorizer(name: str, value: object) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"no authorizer .* set authorizer\.class\.name"):
        EmbeddedCluster(**{name: value})  # pyright: ignore
    EmbeddedCluster(authorizer_class_name="StandardAuthorizer", **{name: value})  # pyright: ignore


def test_wrong_super_users() -> None:
    with pytest.raises(KafkaConfigurationError, match="has 'admin', which is not a principal"):
        EmbeddedCluster(authorizer_class_name="StandardAuthorizer", super_users="admin")
