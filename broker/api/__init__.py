"""The broker's answers, one file an API. Importing this package fills `registry.apis`."""

from __future__ import annotations

from . import (
    api_versions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
)

__all__ = [
    "api_versions",
    "create_topics",
    "delete_groups",
    "delete_topics",
    "describe_cluster",
    "describe_groups",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "init_producer_id",
    "join_group",
    "leave_group",
    "list_groups",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_delete",
    "offset_fetch",
    "produce",
    "sync_group",
]
