"""The advice in authorization errors: which ACL is missing."""

from __future__ import annotations


def missing_acl(operation: str, resource_type: str, name: str) -> str:
    """What to do about an authorization error, in Kafka's words for operations and resources."""
    what = "the cluster" if resource_type == "CLUSTER" else f"{resource_type} {name!r}"
    return f"the client's principal needs an ACL that allows {operation} on {what}"


def no_acl_for_topic(topic: str) -> str:
    """What to do if the metadata of a topic has an authorization error. Brokers return the same error for a topic that
    exists and for one that the client may not create."""
    return (
        "the brokers don't let this client describe it, or create it if it doesn't exist: "
        f"{missing_acl('WRITE', 'TOPIC', topic)}, and CREATE if it is to create the topic"
    )
