"""Entries and filters: what can be created, and what a filter selects."""

from __future__ import annotations

import pytest

from headrace.broker.config.principal import parse_principal, parse_super_users
from headrace.broker.security.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    check_acl,
    check_filter,
)
from headrace.network.protocol.errors import InvalidRequestError

ACL = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, PermissionType.ALLOW
)
WILDCARD = ACL._replace(resource_name="*")
PREFIX = ACL._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)


@pytest.mark.parametrize(
    "acl",
    [
        ACL,
        WILDCARD,
        PREFIX,
        ACL._replace(resource_type=ResourceType.CLUSTER, resource_name="kafka-cluster"),
        ACL._replace(principal="User:CN=alice,OU=x"),
    ],
    ids=str,
)
def test_what_can_be_created(acl: AclBinding) -> None:
    assert check_acl(acl) is acl


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"resource_type": 0}, "ResourceType is 0"),
        ({"resource_type": 1}, "ResourceType is 1"),
        ({"resource_type": 99}, "ResourceType is 99"),
        ({"pattern_type": PatternType.MATCH}, "PatternType is 2"),
        ({"operation": AclOperation.ANY}, "AclOperation is 1"),
        ({"operation": -1}, "AclOperation is -1"),
        ({"permission_type": PermissionType.ANY}, "PermissionType is 1"),
        ({"resource_name": ""}, "name of the resource is empty"),
        ({"resource_type": ResourceType.CLUSTER}, "only name is 'kafka-cluster', not 'orders'"),
        ({"principal": "alice"}, "'alice' is not a principal"),
        ({"principal": "User:"}, "'User:' is not a principal"),
        ({"principal": ":alice"}, "':alice' is not a principal"),
    ],
)
def test_what_cannot(changes: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        check_acl(ACL._replace(**changes))  # pyright: ignore


@pytest.mark.parametrize("name", ["resource_type", "pattern_type", "operation", "permission_type"])
@pytest.mark.parametrize("code", [0, 99])
def test_a_filter_with_an_unknown_code(name: str, code: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"is {code}"):
        check_filter(AclFilter()._replace(**{name: code}))  # pyright: ignore


def selected(**wanted: object) -> list[AclBinding]:
    return [each for each in (ACL, WILDCARD, PREFIX) if AclFilter(**wanted).matches(each)]  # pyright: ignore


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, [ACL, WILDCARD, PREFIX]),
        ({"resource_type": ResourceType.TOPIC}, [ACL, WILDCARD, PREFIX]),
        ({"resource_type": ResourceType.GROUP}, []),
        ({"resource_name": "orders"}, [ACL]),
        ({"resource_name": "*"}, [WILDCARD]),
        ({"resource_name": "ord"}, [PREFIX]),
        ({"resource_name": "orders", "pattern_type": PatternType.LITERAL}, [ACL]),
        ({"resource_name": "orders", "pattern_type": PatternType.PREFIXED}, []),
        ({"pattern_type": PatternType.PREFIXED}, [PREFIX]),
        ({"resource_name": "orders", "pattern_type": PatternType.MATCH}, [ACL, WILDCARD, PREFIX]),
        ({"resource_name": "other", "pattern_type": PatternType.MATCH}, [WILDCARD]),
        ({"resource_name": "ord", "pattern_type": PatternType.MATCH}, [WILDCARD, PREFIX]),
        ({"pattern_type": PatternType.MATCH}, [ACL, WILDCARD, PREFIX]),
        ({"principal": "User:alice"}, [ACL, WILDCARD, PREFIX]),
        # a filter selects entries, not whom they apply to
        ({"principal": "User:*"}, []),
        ({"host": "10.0.0.1"}, []),
        ({"operation": AclOperation.READ, "permission_type": PermissionType.ALLOW}, [ACL, WILDCARD, PREFIX]),
        ({"operation": AclOperation.ALL}, []),
        ({"permission_type": PermissionType.DENY}, []),
    ],
)
def test_what_a_filter_selects(wanted: dict[str, object], expected: list[AclBinding]) -> None:
    assert selected(**wanted) == expected


def test_an_acl_in_words() -> None:
    assert str(ACL) == "ALLOW User:alice READ on TOPIC 'orders' from host *"
    assert str(PREFIX) == "ALLOW User:alice READ on TOPIC prefix 'ord' from host *"


# --- Principals ---


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("User:admin; User:CN=a,OU=b;;User:admin") == ("User:admin", "User:CN=a,OU=b")
    assert parse_super_users(["User:admin", "User:b"]) == ("User:admin", "User:b")
    assert parse_super_users("") == ()


@pytest.mark.parametrize("wrong", ["admin", "User:a;b", ["User:a", 1], 7, ["User:"]])
def test_what_is_no_list_of_super_users(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"principal|text"):
        parse_super_users(wrong)


def test_a_principal_may_have_colons_in_its_name() -> None:
    assert parse_principal("User:a:b") == "User:a:b"
