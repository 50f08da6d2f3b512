"""The authorizer: Kafka's documented rules, case by case, and any set of ACLs against a model of the rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.security.acls import AclBinding, PatternType, PermissionType, ResourceType
from headrace.broker.security.acls import AclOperation as Op
from headrace.broker.security.authorizer import Authorizer

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
TOPIC = ResourceType.TOPIC


def acl(
    operation: Op,
    name: str = "orders",
    *,
    principal: str = ALICE,
    permission: PermissionType = ALLOW,
    pattern: PatternType = LITERAL,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def allows(*acls: AclBinding, operation: Op, name: str = "orders", principal: str = ALICE, **options: object) -> bool:
    return Authorizer(acls=acls, **options).allows(principal, HOST, operation, TOPIC, name)  # pyright: ignore


# --- Without an entry that applies ---


def test_without_any_acl_nobody_may_do_anything() -> None:
    assert not allows(operation=Op.READ)


def test_without_any_acl_everyone_may_if_the_cluster_is_configured_so() -> None:
    assert allows(operation=Op.READ, allow_everyone=True)


@pytest.mark.parametrize(
    "other",
    [
        acl(Op.READ, principal=BOB),
        acl(Op.WRITE, principal=BOB),
        acl(Op.READ, "*", principal=BOB),
        acl(Op.READ, "ord", principal=BOB, pattern=PREFIXED),
        acl(Op.READ, principal=BOB, permission=DENY),
    ],
    ids=str,
)
def test_an_acl_for_anybody_on_the_resource_ends_the_right_of_everyone(other: AclBinding) -> None:
    assert not allows(other, operation=Op.READ, allow_everyone=True)


@pytest.mark.parametrize(
    "other",
    [acl(Op.READ, "invoices"), acl(Op.READ, "order", pattern=LITERAL), acl(Op.READ, kind=ResourceType.GROUP)],
    ids=str,
)
def test_an_acl_on_another_resource_does_not(other: AclBinding) -> None:
    assert allows(other, operation=Op.READ, principal=BOB, allow_everyone=True)


def test_a_super_user_may_do_everything() -> None:
    denied = acl(Op.ALL, "*", principal="User:*", permission=DENY)
    assert allows(denied, operation=Op.WRITE, super_users=(ALICE,))
    assert not allows(denied, operation=Op.WRITE, principal=BOB, super_users=(ALICE,))


# --- Patterns, principals, hosts ---


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("orders", LITERAL, True),
        ("order", LITERAL, False),
        ("orders2", LITERAL, False),
        ("*", LITERAL, True),
        ("o", PREFIXED, True),
        ("orders", PREFIXED, True),
        ("orders2", PREFIXED, False),
        ("x", PREFIXED, False),
        # a prefix is text, and not a wildcard
        ("*", PREFIXED, False),
    ],
)
def test_a_pattern_matches_the_name_a_prefix_of_it_or_all_names(name: str, pattern: PatternType, matches: bool) -> None:
    assert allows(acl(Op.READ, name, pattern=pattern), operation=Op.READ) is matches


def test_an_acl_for_everyone_is_one_for_each() -> None:
    assert allows(acl(Op.READ, principal="User:*"), operation=Op.READ, principal=BOB)
    assert not allows(acl(Op.READ), operation=Op.READ, principal=BOB)


def test_the_host_is_the_address_of_the_client() -> None:
    assert allows(acl(Op.READ, host=HOST), operation=Op.READ)
    assert not allows(acl(Op.READ, host="10.0.0.2"), operation=Op.READ)


def test_an_ipv6_host_has_the_form_of_java_or_of_python() -> None:
    for written in ("::1", "0:0:0:0:0:0:0:1", "0000::0001"):
        authorizer = Authorizer(acls=[acl(Op.READ, host=written)])
        assert authorizer.allows(ALICE, "::1", Op.READ, TOPIC, "orders")
        assert not authorizer.allows(ALICE, "::2", Op.READ, TOPIC, "orders")
    assert not Authorizer(acls=[acl(Op.READ, host="a:b")]).allows(ALICE, "::1", Op.READ, TOPIC, "orders")


# --- Operations ---


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.DESCRIBE, Op.ALL])
def test_these_operations_allow_to_describe(operation: Op) -> None:
    assert allows(acl(operation), operation=Op.DESCRIBE)


@pytest.mark.parametrize("operation", [Op.CREATE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.CLUSTER_ACTION])
def test_these_operations_do_not(operation: Op) -> None:
    assert not allows(acl(operation), operation=Op.DESCRIBE)


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.ALTER, Op.DESCRIBE])
def test_only_altering_configurations_allows_to_describe_them(operation: Op) -> None:
    assert allows(acl(Op.ALTER_CONFIGS), operation=Op.DESCRIBE_CONFIGS)
    assert not allows(acl(operation), operation=Op.DESCRIBE_CONFIGS)


def test_one_operation_is_not_another() -> None:
    assert not allows(acl(Op.READ), operation=Op.WRITE)
    assert not allows(acl(Op.DESCRIBE), operation=Op.READ)


# --- Deny ---


@pytest.mark.parametrize(
    "denied",
    [
        acl(Op.WRITE, permission=DENY),
        acl(Op.ALL, permission=DENY),
        acl(Op.WRITE, "*", permission=DENY),
        acl(Op.WRITE, "ord", permission=DENY, pattern=PREFIXED),
        acl(Op.WRITE, permission=DENY, principal="User:*"),
        acl(Op.WRITE, permission=DENY, host=HOST),
    ],
    ids=str,
)
def test_a_denial_outweighs_what_allows(denied: AclBinding) -> None:
    allowed = [acl(Op.ALL), acl(Op.WRITE, "orders", pattern=PREFIXED), acl(Op.ALL, "*", principal="User:*")]
    assert not allows(*allowed, denied, operation=Op.WRITE)


def test_a_denial_implies_nothing() -> None:
    denied = acl(Op.READ, permission=DENY)
    assert allows(acl(Op.ALL), denied, operation=Op.DESCRIBE)
    assert not allows(acl(Op.ALL), denied, operation=Op.READ)


def test_a_denial_for_somebody_else_does_not_apply() -> None:
    others = [acl(Op.ALL, permission=DENY, principal=BOB), acl(Op.ALL, permission=DENY, host="10.9.9.9")]
    assert allows(acl(Op.WRITE), *others, operation=Op.WRITE)


# --- Any resource of a type ---


def allows_any(*acls: AclBinding, **options: object) -> bool:
    return Authorizer(acls=acls, **options).allows_any(ALICE, HOST, Op.WRITE, TOPIC)  # pyright: ignore


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl(Op.WRITE)], True),
        ([acl(Op.ALL, "o", pattern=PREFIXED)], True),
        ([acl(Op.READ)], False),
        ([acl(Op.WRITE, principal=BOB)], False),
        ([acl(Op.WRITE, host="10.9.9.9")], False),
        ([acl(Op.WRITE, kind=ResourceType.GROUP)], False),
        ([acl(Op.WRITE), acl(Op.WRITE, permission=DENY)], False),
        ([acl(Op.WRITE), acl(Op.READ, permission=DENY)], True),
        ([acl(Op.WRITE), acl(Op.WRITE, "*", permission=DENY)], False),
        ([acl(Op.WRITE), acl(Op.WRITE, "or", permission=DENY, pattern=PREFIXED)], False),
        ([acl(Op.WRITE), acl(Op.WRITE, "orders", permission=DENY, pattern=PREFIXED)], False),
        ([acl(Op.WRITE), acl(Op.WRITE, "orders2", permission=DENY, pattern=PREFIXED)], True),
        # names below the prefix are left
        ([acl(Op.WRITE, "o", pattern=PREFIXED), acl(Op.WRITE, permission=DENY)], True),
        ([acl(Op.WRITE, "o", pattern=PREFIXED), acl(Op.WRITE, "o", permission=DENY)], True),
        ([acl(Op.WRITE, "*"), acl(Op.WRITE, "or", permission=DENY, pattern=PREFIXED)], True),
    ],
)
def test_whether_any_topic_may_be_written(acls: list[AclBinding], expected: bool) -> None:
    assert allows_any(*acls) is expected


def test_any_topic_may_be_written_by_super_users_and_by_default() -> None:
    assert allows_any(super_users=(ALICE,))
    assert allows_any(allow_everyone=True)
    assert allows_any(acl(Op.WRITE, principal=BOB), allow_everyone=True)


def test_the_operations_of_a_resource() -> None:
    authorizer = Authorizer(acls=[acl(Op.WRITE), acl(Op.ALTER_CONFIGS)])
    told = authorizer.operations(ALICE, HOST, TOPIC, "orders")
    assert set(told) == {Op.WRITE, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS}


# --- Against a model ---

NAMES = st.text("ab", min_size=1, max_size=4)
ACLS = st.builds(
    AclBinding,
    st.sampled_from((TOPIC, ResourceType.GROUP)),
    NAMES | st.just("*"),
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from((ALICE, BOB, "User:*")),
    st.sampled_from((HOST, "10.0.0.2", "*")),
    st.sampled_from((Op.ALL, Op.READ, Op.WRITE, Op.DESCRIBE, Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS, Op.CREATE)),
    st.sampled_from((ALLOW, DENY)),
)


def model(acls: list[AclBinding], allow_everyone: bool, operation: Op, name: str) -> bool:
    """The rules read from Kafka's documentation, without an index."""

    def is_on_resource(each: AclBinding) -> bool:
        if each.resource_type != TOPIC:
            return False
        if each.pattern_type == PREFIXED:
            return name.startswith(each.resource_name)
        return each.resource_name in (name, "*")

    on_resource = [each for each in acls if is_on_resource(each)]
    ours = [each for each in on_resource if each.principal in (ALICE, "User:*") and each.host in (HOST, "*")]
    if any(each.permission_type == DENY and each.operation in (operation, Op.ALL) for each in ours):
        return False
    wide = {
        Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER},
        Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS},
    }
    enough = {operation, Op.ALL} | wide.get(operation, set())
    if any(each.permission_type == ALLOW and each.operation in enough for each in ours):
        return True
    return allow_everyone and not on_resource


@given(
    st.lists(ACLS, max_size=8),
    st.booleans(),
    st.sampled_from((Op.READ, Op.WRITE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.CREATE)),
    NAMES,
)
def test_any_set_of_acls_decides_as_the_rules_say(
    acls: list[AclBinding], allow_everyone: bool, operation: Op, name: str
) -> None:
    authorizer = Authorizer(allow_everyone=allow_everyone).with_acls(acls)
    assert authorizer.allows(ALICE, HOST, operation, TOPIC, name) is model(acls, allow_everyone, operation, name)


@given(st.lists(ACLS, max_size=6), NAMES)
def test_who_may_write_to_a_topic_may_write_to_any(acls: list[AclBinding], name: str) -> None:
    authorizer = Authorizer(acls=acls)
    if authorizer.allows(ALICE, HOST, Op.WRITE, TOPIC, name):
        assert authorizer.allows_any(ALICE, HOST, Op.WRITE, TOPIC)
