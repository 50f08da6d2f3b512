"""The API versions of released versions of Apache Kafka, so that a broker can act as one of them toward clients."""

from __future__ import annotations

from ...network.protocol.api import ApiKey
from ...network.protocol.errors import KafkaConfigurationError

_RELEASES = ("2.1", "2.6", "2.8", "3.0", "3.6", "3.9")

# API -> its highest version in each of the releases; None if the release doesn't have the API.
_HIGHEST: dict[ApiKey, tuple[int | None, ...]] = {
    ApiKey.PRODUCE: (7, 8, 9, 9, 9, 11),
    ApiKey.FETCH: (10, 11, 12, 12, 15, 17),
    ApiKey.LIST_OFFSETS: (4, 5, 6, 7, 8, 9),
    ApiKey.METADATA: (7, 9, 11, 11, 12, 12),
    ApiKey.OFFSET_COMMIT: (6, 8, 8, 8, 8, 9),
    ApiKey.OFFSET_FETCH: (5, 7, 7, 8, 8, 9),
    ApiKey.FIND_COORDINATOR: (2, 3, 3, 4, 4, 6),
    ApiKey.JOIN_GROUP: (3, 7, 7, 7, 9, 9),
    ApiKey.HEARTBEAT: (2, 4, 4, 4, 4, 4),
    ApiKey.LEAVE_GROUP: (2, 4, 4, 4, 5, 5),
    ApiKey.SYNC_GROUP: (2, 5, 5, 5, 5, 5),
    ApiKey.DESCRIBE_GROUPS: (2, 5, 5, 5, 5, 5),
    ApiKey.LIST_GROUPS: (2, 4, 4, 4, 4, 5),
    ApiKey.API_VERSIONS: (2, 3, 3, 3, 3, 4),
    ApiKey.CREATE_TOPICS: (3, 5, 7, 7, 7, 7),
    ApiKey.DELETE_TOPICS: (3, 4, 6, 6, 6, 6),
    ApiKey.DELETE_RECORDS: (1, 2, 2, 2, 2, 2),
    ApiKey.INIT_PRODUCER_ID: (1, 3, 4, 4, 4, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (1, 1, 3, 3, 4, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (1, 1, 3, 3, 3, 4),
    ApiKey.END_TXN: (1, 1, 3, 3, 3, 4),
    ApiKey.WRITE_TXN_MARKERS: (0, 0, 1, 1, 1, 1),
    ApiKey.TXN_OFFSET_COMMIT: (2, 3, 3, 3, 3, 4),
    ApiKey.DESCRIBE_PRODUCERS: (None, None, 0, 0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (None, None, None, 0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: (None, None, None, 0, 0, 1),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 3, 4, 4, 4, 4),
    ApiKey.DESCRIBE_CONFIGS: (2, 3, 4, 4, 4, 4),
    ApiKey.ALTER_CONFIGS: (1, 1, 2, 2, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 2, 2, 2, 4, 4),
    ApiKey.CREATE_PARTITIONS: (1, 2, 3, 3, 3, 3),
    ApiKey.DELETE_GROUPS: (1, 2, 2, 2, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 1, 2, 2, 2, 2),
    ApiKey.ELECT_LEADERS: (None, 2, 2, 2, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (None, 1, 1, 1, 1, 1),
    ApiKey.OFFSET_DELETE: (None, 0, 0, 0, 0, 0),
    ApiKey.DESCRIBE_CLUSTER: (None, None, 0, 0, 0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (None, 0, 0, 0, 0, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (None, 0, 0, 0, 0, 0),
    ApiKey.DESCRIBE_QUORUM: (None, None, None, None, 1, 2),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (None, None, None, None, None, 0),
    ApiKey.PUSH_TELEMETRY: (None, None, None, None, None, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (None, None, None, None, None, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (None, None, None, None, None, 0),
}

#: Release -> the highest version of each of its APIs.
HIGHEST_VERSIONS: dict[str, dict[ApiKey, int]] = {
    release: {api_key: highest for api_key, row in _HIGHEST.items() if (highest := row[at]) is not None}
    for at, release in enumerate(_RELEASES)
}


def highest_versions(release: str | None) -> dict[ApiKey, int] | None:
    """The API versions of a release; None, for all supported versions, without one. Raises KafkaConfigurationError."""
    if release is not None and release not in HIGHEST_VERSIONS:
        raise KafkaConfigurationError(
            f"there are no API versions for Kafka {release!r}; known releases are {', '.join(HIGHEST_VERSIONS)}"
        )
    return None if release is None else HIGHEST_VERSIONS[release]
