"""Access control entries, and the filters that select them (Kafka's `AclBinding` and `AclBindingFilter`).

Source: KIP-11, KIP-140, KIP-290; Kafka's AclControlManager for the checks.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from ...network.protocol.errors import InvalidRequestError
from ..config.principal import parse_principal

#: The only name of the resource type CLUSTER.
CLUSTER_NAME = "kafka-cluster"

#: As the name of a literal pattern: every resource. As a host: every host.
WILDCARD = "*"


class ResourceType(enum.IntEnum):
    """Kafka's codes of resource types."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """Kafka's codes of pattern types. MATCH is for filters: every pattern that applies to the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """Kafka's codes of operations."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(enum.IntEnum):
    """Kafka's codes of permissions."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


#: The operations of a resource that responses report as authorized (KIP-430).
OPERATIONS_OF: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}


class AclBinding(NamedTuple):
    """One entry: a permission of a principal, from a host, for an operation on the resources of a pattern."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def __str__(self) -> str:
        what = ResourceType(self.resource_type).name
        prefixed = "prefix " if self.pattern_type == PatternType.PREFIXED else ""
        return (
            f"{PermissionType(self.permission_type).name} {self.principal} {AclOperation(self.operation).name} on "
            f"{what} {prefixed}{self.resource_name!r} from host {self.host}"
        )


class AclFilter(NamedTuple):
    """Selects entries. None, and the code ANY of an enumeration, select any value."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = PermissionType.ANY

    def matches(self, acl: AclBinding) -> bool:
        """Whether the filter selects an entry. The pattern type MATCH selects the entries that apply to the name."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD


def check_acl(acl: AclBinding) -> AclBinding:
    """Return an entry unchanged. Raises InvalidRequestError unless it can be created."""
    _check_code(acl.resource_type, ResourceType, {ResourceType.UNKNOWN, ResourceType.ANY})
    _check_code(acl.pattern_type, PatternType, {PatternType.UNKNOWN, PatternType.ANY, PatternType.MATCH})
    _check_code(acl.operation, AclOperation, {AclOperation.UNKNOWN, AclOperation.ANY})
    _check_code(acl.permission_type, PermissionType, {PermissionType.UNKNOWN, PermissionType.ANY})
    if not acl.resource_name:
        raise InvalidRequestError("the name of the resource is empty; give a name, or * for all")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"the cluster's only name is {CLUSTER_NAME!r}, not {acl.resource_name!r}")
    try:
        parse_principal(acl.principal)
    except ValueError as wrong:
        raise InvalidRequestError(str(wrong)) from None
    return acl


def check_filter(acl_filter: AclFilter) -> AclFilter:
    """Return a filter unchanged. Raises InvalidRequestError if one of its codes is unknown."""
    _check_code(acl_filter.resource_type, ResourceType, {ResourceType.UNKNOWN})
    _check_code(acl_filter.pattern_type, PatternType, {PatternType.UNKNOWN})
    _check_code(acl_filter.operation, AclOperation, {AclOperation.UNKNOWN})
    _check_code(acl_filter.permission_type, PermissionType, {PermissionType.UNKNOWN})
    return acl_filter


def _check_code(code: int, kind: type[enum.IntEnum], excluded: set[enum.IntEnum]) -> None:
    allowed = {each.value: each.name for each in kind if each not in excluded}
    if code not in allowed:
        known = ", ".join(f"{name} ({value})" for value, name in allowed.items())
        raise InvalidRequestError(f"the {kind.__name__} is {code}; give one of {known}")
