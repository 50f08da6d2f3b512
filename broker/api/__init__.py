"""The broker's answers, one file an API. Importing this package fills `registry.apis`."""

from __future__ import annotations

from . import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)

__all__ = [
    "api_versions",
    "create_topics",
    "delete_topics",
    "describe_cluster",
    "fetch",
    "find_coordinator",
    "init_producer_id",
    "list_offsets",
    "metadata",
    "produce",
]
