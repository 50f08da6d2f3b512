"""ACLs in the words of a test: `add_acl(principal="User:alice", operation="WRITE", topic="orders")`."""

from __future__ import annotations

import enum
from typing import Any, TypeVar

from ...network.protocol.errors import IllegalArgumentError, InvalidRequestError
from ..config.principal import parse_principal
from ..security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
    check_acl,
    check_filter,
)

_Code = TypeVar("_Code", bound=enum.IntEnum)


def acl_of(
    principal: Any,
    operation: Any,
    *,
    topic: Any,
    group: Any,
    transactional_id: Any,
    cluster: Any,
    pattern: Any,
    permission: Any,
    host: Any,
) -> AclBinding:
    """The entry for the arguments of `add_acl`. Raises IllegalArgumentError."""
    resource = _resource(topic, group, transactional_id, cluster)
    if resource is None:
        raise IllegalArgumentError("the ACL has no resource; give topic, group, transactional_id or cluster=True")
    kind, name = resource
    acl = AclBinding(
        kind,
        name,
        code_of(PatternType, "pattern", pattern),
        _text("principal", principal),
        _text("host", host),
        code_of(AclOperation, "operation", operation),
        code_of(PermissionType, "permission", permission),
    )
    try:
        return check_acl(acl)
    except InvalidRequestError as wrong:
        raise IllegalArgumentError(str(wrong)) from None


def filter_of(
    principal: Any,
    operation: Any,
    *,
    topic: Any,
    group: Any,
    transactional_id: Any,
    cluster: Any,
    pattern: Any,
    permission: Any,
    host: Any,
) -> AclFilter:
    """The filter for the arguments of `remove_acls`; None selects any value. Raises IllegalArgumentError."""
    kind, name = _resource(topic, group, transactional_id, cluster) or (ResourceType.ANY, None)
    if principal is not None:
        try:
            parse_principal(_text("principal", principal))
        except ValueError as wrong:
            raise IllegalArgumentError(str(wrong)) from None
    acl_filter = AclFilter(
        kind,
        name,
        PatternType.ANY if pattern is None else code_of(PatternType, "pattern", pattern),
        principal,
        None if host is None else _text("host", host),
        AclOperation.ANY if operation is None else code_of(AclOperation, "operation", operation),
        PermissionType.ANY if permission is None else code_of(PermissionType, "permission", permission),
    )
    try:
        return check_filter(acl_filter)
    except InvalidRequestError as wrong:
        raise IllegalArgumentError(str(wrong)) from None


def _resource(topic: Any, group: Any, transactional_id: Any, cluster: Any) -> tuple[ResourceType, str] | None:
    if not isinstance(cluster, bool):
        raise IllegalArgumentError(f"cluster is {cluster!r}; give True for an ACL of the cluster itself")
    given = [
        (kind, name, value)
        for kind, name, value in (
            (ResourceType.TOPIC, "topic", topic),
            (ResourceType.GROUP, "group", group),
            (ResourceType.TRANSACTIONAL_ID, "transactional_id", transactional_id),
            (ResourceType.CLUSTER, "cluster", CLUSTER_NAME if cluster else None),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise IllegalArgumentError(
            f"an ACL is for one resource, but {' and '.join(name for _, name, _ in given)} are given; add one for each"
        )
    for kind, name, value in given:
        return kind, _text(name, value)
    return None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise IllegalArgumentError(f"{name} is {value!r} ({type(value).__name__}); give a text that is not empty")
    return value


def code_of(kind: type[_Code], argument: str, value: object) -> _Code:
    """A member of an enumeration, or the one of that name in any case. Raises IllegalArgumentError."""
    if isinstance(value, kind):
        return value
    name = value.upper().replace(" ", "_") if isinstance(value, str) else ""
    if name not in kind.__members__ or name == "UNKNOWN":
        names = ", ".join(each for each in kind.__members__ if each not in ("UNKNOWN", "ANY", "MATCH"))
        raise IllegalArgumentError(f"{argument} is {value!r} ({type(value).__name__}); give one of {names}")
    return kind[name]
