"""A group's configuration, with Kafka's names.

Kafka's brokers apply it to groups of the newer protocols (KIP-848, KIP-932, KIP-1071). The classic groups of this
broker use none of it, so the configuration is stored and described, with a warning.
"""

from __future__ import annotations

from typing import Any

from ...network.config import INT32_MAX, Config, key

#: Keys without a broker key for their default. Each of the others has one, named `group.` and the group's key.
OF_GROUPS_ONLY = frozenset({"share_auto_offset_reset", "share_isolation_level", "share_renew_acknowledge_enable"})


def _count(default: int, doc: str, at_least: int = 1) -> Any:
    return key(default=default, at_least=at_least, at_most=INT32_MAX, doc=doc)


class GroupConfig(Config, listed_in="docs/broker-configuration.md"):
    """The keys that a group may override."""

    consumer_session_timeout_ms: int = _count(45_000, "Session timeout of a member (KIP-848).")
    consumer_heartbeat_interval_ms: int = _count(5_000, "Interval of a member's heartbeats (KIP-848).")
    consumer_assignment_interval_ms: int = _count(1_000, "Minimum interval between assignments (KIP-848).", 0)
    share_session_timeout_ms: int = _count(45_000, "Session timeout of a member (KIP-932).")
    share_heartbeat_interval_ms: int = _count(5_000, "Interval of a member's heartbeats (KIP-932).")
    share_assignment_interval_ms: int = _count(1_000, "Minimum interval between assignments (KIP-932).", 0)
    share_record_lock_duration_ms: int = _count(30_000, "How long a record is locked (KIP-932).", 1_000)
    share_delivery_count_limit: int = _count(5, "Maximum deliveries of a record (KIP-932).", 2)
    share_partition_max_record_locks: int = _count(2_000, "Maximum locked records per partition (KIP-932).", 100)
    share_auto_offset_reset: str = key(default="latest", doc="Where a new group starts reading (KIP-932).")
    share_isolation_level: str = key(
        default="read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        doc="Whether records of open transactions are read (KIP-932).",
    )
    share_renew_acknowledge_enable: bool = key(default=True, doc="Whether a lock may be renewed (KIP-1222).")
    streams_session_timeout_ms: int = _count(45_000, "Session timeout of a member (KIP-1071).")
    streams_heartbeat_interval_ms: int = _count(5_000, "Interval of a member's heartbeats (KIP-1071).")
    streams_assignment_interval_ms: int = _count(1_000, "Minimum interval between assignments (KIP-1071).", 0)
    streams_num_standby_replicas: int = _count(0, "Standby replicas of a task (KIP-1071).", 0)
    streams_initial_rebalance_delay_ms: int = _count(3_000, "How long a new group waits for members (KIP-1071).", 0)
