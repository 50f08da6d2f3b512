"""The advice in authorization errors: which ACL is missing."""

from __future__ import annotations


def missing_acl(operation: str, resource_type: str, name: str) -> str:
    """What to do about an authorization error, in Kafka's words for operations and resources."""
    what = "the cluster" if resource_type == "CLUSTER" else f"{resource_type} {name!r}"
    return f"the client's principal needs an ACL that allows {operation} on {what}"
