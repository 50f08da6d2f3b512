"""Handlers for topics: metadata, creation, deletion, partitions, leaders and replicas."""

from . import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
    metadata,
)

__all__ = [
    "alter_partition_reassignments",
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_topic_partitions",
    "elect_leaders",
    "list_partition_reassignments",
    "metadata",
]
