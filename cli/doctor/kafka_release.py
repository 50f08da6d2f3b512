"""Which Kafka a broker looks like, from the API versions that it offers."""

from __future__ import annotations

from ...network.client.api_versions import NodeApiVersions
from ...network.protocol.api_keys import ApiKey

#: The releases, the newest first, each with an API version that it was the first to have. Some releases added none.
_FIRST_WITH: tuple[tuple[str, int, int], ...] = (
    ("4.1 or later", ApiKey.PRODUCE, 13),
    ("4.0", ApiKey.PRODUCE, 12),
    ("3.9", ApiKey.FETCH, 17),
    ("3.8", ApiKey.PRODUCE, 11),
    ("3.7", ApiKey.PRODUCE, 10),
    ("3.5 or 3.6", ApiKey.FETCH, 15),
    ("3.3 or 3.4", ApiKey.DESCRIBE_LOG_DIRS, 4),
    ("3.2", ApiKey.JOIN_GROUP, 9),
    ("3.1", ApiKey.FETCH, 13),
    ("3.0", ApiKey.DESCRIBE_TRANSACTIONS, 0),
    ("2.8", ApiKey.PRODUCE, 9),
    ("2.7", ApiKey.FETCH, 12),
    ("2.5 or 2.6", ApiKey.INIT_PRODUCER_ID, 3),
    ("2.4", ApiKey.PRODUCE, 8),
    ("2.3", ApiKey.FETCH, 11),
    ("2.1 or 2.2", ApiKey.PRODUCE, 7),
    ("2.0", ApiKey.FETCH, 8),
    ("1.1", ApiKey.FETCH, 7),
    ("1.0", ApiKey.PRODUCE, 5),
    ("0.11", ApiKey.PRODUCE, 3),
    ("0.10.2", ApiKey.CREATE_TOPICS, 1),
    ("0.10.1", ApiKey.FETCH, 3),
    ("0.10.0", ApiKey.PRODUCE, 2),
)


def release_of(versions: NodeApiVersions) -> str:
    """The release of Apache Kafka with the same APIs: "3.9", "2.5 or 2.6" or "unknown"."""
    for release, api_key, version in _FIRST_WITH:
        offered = versions.range_of(api_key)
        if offered is not None and offered[1] >= version:
            return release
    return "unknown"
