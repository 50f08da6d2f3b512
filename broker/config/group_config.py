"""A group's configuration, by Kafka's names.

Kafka's brokers apply it to groups of the newer protocols (KIP-848, KIP-932, KIP-1071). The classic groups here have
nothing of it, so it is kept and described, with a warning.
"""

from __future__ import annotations

from ...network.config import INT32_MAX, Config, key


class GroupConfig(Config, listed_in="docs/broker-configuration.md"):
    """What a group may override."""

    consumer_session_timeout_ms: int = key(
        default=45_000, at_least=1, at_most=INT32_MAX, doc="Quiet time after which a member is removed (KIP-848)."
    )
    consumer_heartbeat_interval_ms: int = key(
        default=5_000, at_least=1, at_most=INT32_MAX, doc="Time between two heartbeats of a member (KIP-848)."
    )
    share_session_timeout_ms: int = key(
        default=45_000, at_least=1, at_most=INT32_MAX, doc="The same of a share group (KIP-932)."
    )
    share_heartbeat_interval_ms: int = key(
        default=5_000, at_least=1, at_most=INT32_MAX, doc="The same of a share group (KIP-932)."
    )
    share_record_lock_duration_ms: int = key(
        default=30_000, at_least=1_000, at_most=INT32_MAX, doc="How long a share group's record is locked (KIP-932)."
    )
    share_auto_offset_reset: str = key(default="latest", doc="Where a share group begins (KIP-932).")
    share_isolation_level: str = key(
        default="read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        doc="Whether a share group reads records of open transactions (KIP-932).",
    )
    streams_session_timeout_ms: int = key(
        default=45_000, at_least=1, at_most=INT32_MAX, doc="The same of a streams group (KIP-1071)."
    )
    streams_heartbeat_interval_ms: int = key(
        default=5_000, at_least=1, at_most=INT32_MAX, doc="The same of a streams group (KIP-1071)."
    )
    streams_num_standby_replicas: int = key(
        default=0, at_least=0, at_most=INT32_MAX, doc="Standby replicas per task of a streams group (KIP-1071)."
    )
