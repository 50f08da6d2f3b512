"""The controller's decisions about access control entries. The controller stores and publishes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...network.protocol.errors import BrokerResponseError, KafkaStorageError
from ..security.acls import AclBinding, AclFilter, check_acl, check_filter

_T = TypeVar("_T")


def create(acls: frozenset[AclBinding], asked: Sequence[AclBinding]) -> tuple[list, frozenset[AclBinding]]:
    """The outcome for each entry to create, and all entries then."""
    outcomes = [_checked(check_acl, acl) for acl in asked]
    new = {each for each in outcomes if isinstance(each, AclBinding)} - acls
    return outcomes, acls | new if new else acls


def delete(acls: frozenset[AclBinding], filters: Sequence[AclFilter]) -> tuple[list, frozenset[AclBinding]]:
    """The entries that each filter deletes, sorted, or its error; and the entries that are left."""
    outcomes: list[list[AclBinding] | BrokerResponseError] = []
    doomed: set[AclBinding] = set()
    for each in filters:
        checked = _checked(check_filter, each)
        if isinstance(checked, AclFilter):
            found = sorted(filter(checked.matches, acls))
            doomed.update(found)
            outcomes.append(found)
        else:
            outcomes.append(checked)
    return outcomes, acls - doomed if doomed else acls


def failed(outcomes: Sequence[_T | BrokerResponseError], error: KafkaStorageError) -> list[_T | BrokerResponseError]:
    """The outcomes if the change could not be stored."""
    return [each if isinstance(each, BrokerResponseError) else error for each in outcomes]


def _checked(check: Callable[[_T], _T], value: _T) -> _T | BrokerResponseError:
    try:
        return check(value)
    except BrokerResponseError as refused:
        return refused
