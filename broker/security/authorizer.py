"""The authorizer: whether a principal may do something, by the cluster's access control entries.

The rules are those of Kafka's StandardAuthorizer:

- A super user may do everything.
- An entry applies if its pattern matches the resource (the same name, a prefix of it, or `*`), and its principal
  (or `User:*`), its host (or `*`) and its operation (or ALL) match, too.
- ALLOW for READ, WRITE, DELETE or ALTER implies DESCRIBE; ALLOW for ALTER_CONFIGS implies DESCRIBE_CONFIGS. DENY
  implies nothing.
- One DENY that applies decides, however many entries allow. Without it, one ALLOW decides.
- Without either: denied. If no entry at all, for whatever principal, has a pattern that matches the resource,
  `allow.everyone.if.no.acl.found` decides.

An authorizer never changes; `with_acls` makes another, so any thread may use one without a lock. A decision costs a
dictionary lookup per length that the prefixes of that resource type have, and a look at each entry found.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator

from ..config.principal import EVERYONE
from .acls import OPERATIONS_OF, WILDCARD, AclBinding, AclOperation, PatternType, PermissionType, ResourceType

#: An operation -> those that imply it if they are allowed.
_IMPLIED_BY: dict[int, frozenset[int]] = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}

#: A name that `allows_any` checks like Kafka, for super users and clusters that allow everyone by default.
_ANY_NAME = "hardcode"


class _Patterns:
    """The entries of one resource type, by pattern."""

    __slots__ = ("literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, list[AclBinding]] = {}
        self.prefixed: dict[str, list[AclBinding]] = {}
        self.prefix_lengths: tuple[int, ...] = ()

    def matching(self, name: str) -> Iterator[AclBinding]:
        """The entries whose pattern matches a name."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())

    def all(self) -> Iterator[AclBinding]:
        for by_name in (self.literal, self.prefixed):
            for acls in by_name.values():
                yield from acls


class Authorizer:
    """Decides by a set of entries. Immutable, so any thread may use it. Source: Kafka's StandardAuthorizerData."""

    __slots__ = ("_allow_everyone", "_patterns", "_super_users", "acls")

    def __init__(
        self, super_users: Collection[str] = (), *, allow_everyone: bool = False, acls: Iterable[AclBinding] = ()
    ) -> None:
        """`allow_everyone`: whether everyone may use a resource that no entry's pattern matches."""
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self.acls = frozenset(acls)
        self._patterns: dict[int, _Patterns] = {}
        for acl in self.acls:
            patterns = self._patterns.setdefault(acl.resource_type, _Patterns())
            by_name = patterns.prefixed if acl.pattern_type == PatternType.PREFIXED else patterns.literal
            by_name.setdefault(acl.resource_name, []).append(acl._replace(host=_canonical(acl.host)))
        for patterns in self._patterns.values():
            patterns.prefix_lengths = tuple(sorted({len(name) for name in patterns.prefixed}))

    def with_acls(self, acls: Iterable[AclBinding]) -> Authorizer:
        """The same authorizer with other entries."""
        return Authorizer(self._super_users, allow_everyone=self._allow_everyone, acls=acls)

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether a principal that connects from `host` (an address) may do `operation` on a resource."""
        if principal in self._super_users:
            return True
        patterns = self._patterns.get(resource_type)
        if patterns is None:
            return self._allow_everyone
        has_acls = allowed = False
        for acl in patterns.matching(name):
            has_acls = True
            if acl.principal not in (principal, EVERYONE) or acl.host not in (host, WILDCARD):
                continue
            if acl.permission_type == PermissionType.DENY:
                if acl.operation in (operation, AclOperation.ALL):
                    return False
            elif acl.operation in (operation, AclOperation.ALL) or acl.operation in _IMPLIED_BY.get(operation, ()):
                allowed = True
        return allowed or (not has_acls and self._allow_everyone)

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a resource of this type on which the principal may do `operation`.

        Kafka's rules for it (`Authorizer.authorizeByResourceType`) differ from those of `allows` in two points: no
        operation implies another, and an entry that allows is outweighed only by an entry that denies the same name, a
        prefix of it, or everything.
        """
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        patterns = self._patterns.get(resource_type)
        if patterns is None:
            return False
        allowed: list[AclBinding] = []
        denied: set[tuple[int, str]] = set()
        for acl in patterns.all():
            if (
                acl.principal not in (principal, EVERYONE)
                or acl.host not in (host, WILDCARD)
                or acl.operation not in (operation, AclOperation.ALL)
            ):
                continue
            if acl.permission_type == PermissionType.DENY:
                denied.add((acl.pattern_type, acl.resource_name))
            else:
                allowed.append(acl)
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(
            (acl.pattern_type, acl.resource_name) == (PatternType.LITERAL, WILDCARD) or not _is_denied(acl, denied)
            for acl in allowed
        )

    def operations(self, principal: str, host: str, resource_type: ResourceType, name: str) -> list[AclOperation]:
        """The operations that the principal may do on a resource (KIP-430)."""
        return [
            each for each in OPERATIONS_OF[resource_type] if self.allows(principal, host, each, resource_type, name)
        ]


def _canonical(host: str) -> str:
    """A host as sockets report it: Java writes `::1` as `0:0:0:0:0:0:0:1`."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host  # no client has such an address


def _is_denied(acl: AclBinding, denied: set[tuple[int, str]]) -> bool:
    """Whether an entry that denies covers all that an entry allows."""
    name = acl.resource_name
    if acl.pattern_type == PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
