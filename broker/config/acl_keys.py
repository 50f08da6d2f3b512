"""The broker's keys of the authorizer: `authorizer.class.name`, `super.users`, `allow.everyone.if.no.acl.found`."""

from __future__ import annotations

from typing import Any

from ...network.config import Draft, key
from .principal import parse_super_users

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SHORT_NAME = STANDARD_AUTHORIZER.rpartition(".")[2]


def _parse_authorizer(value: Any) -> str:
    """Parse the class name, also without its package. Raises ValueError."""
    name = value.strip() if isinstance(value, str) else value
    if name == _SHORT_NAME:
        return STANDARD_AUTHORIZER
    if name not in ("", STANDARD_AUTHORIZER):
        raise ValueError("is not an authorizer that this broker has: Java classes can't be loaded")
    return name


def authorizer_class_name_key() -> Any:
    return key(
        default="",
        none_means="",
        default_text="empty",
        parse=_parse_authorizer,
        allowed=f"{_SHORT_NAME}, with or without its package, or empty",
        show=str,
        doc=f"`{STANDARD_AUTHORIZER}` (or `{_SHORT_NAME}`) checks every request against the cluster's ACLs. Empty: "
        "every client may do everything, and there are no ACLs.",
    )


def super_users_key() -> Any:
    return key(
        default=(),
        parse=parse_super_users,
        allowed="principals separated by semicolons, such as User:admin;User:alice",
        show=";".join,
        default_text="empty",
        doc="Principals that may do everything. Brokers of the cluster always may.",
    )


def allow_everyone_key() -> Any:
    return key(
        default=False,
        doc="Whether everyone may use a resource for which there is no ACL. False: only super users may.",
    )


def check_authorizer(draft: Draft) -> None:
    """`super.users` and `allow.everyone.if.no.acl.found` need an authorizer."""
    if draft["authorizer_class_name"]:
        return
    for attribute in ("super_users", "allow_everyone_if_no_acl_found"):
        if draft.is_explicit(attribute):
            name = attribute.replace("_", ".")
            draft.problem(
                f"{name} is given, but there is no authorizer that would use it; set authorizer.class.name to "
                f"{_SHORT_NAME}, or leave {name} out"
            )
