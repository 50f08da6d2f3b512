"""The broker keys that are the defaults of a topic's configuration."""

from __future__ import annotations

from collections.abc import Sequence

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

#: Topic-level key -> the broker keys for its default, each with its unit as a multiple of the topic key's. The first
#: one that is set applies (Kafka's `ServerTopicConfigSynonyms`).
DEFAULTS_OF_TOPICS: dict[str, Sequence[tuple[str, int]]] = {
    "segment_bytes": [("log_segment_bytes", 1)],
    "segment_ms": [("log_roll_ms", 1), ("log_roll_hours", _HOUR_MS)],
    "segment_jitter_ms": [("log_roll_jitter_ms", 1), ("log_roll_jitter_hours", _HOUR_MS)],
    "segment_index_bytes": [("log_index_size_max_bytes", 1)],
    "index_interval_bytes": [("log_index_interval_bytes", 1)],
    "retention_ms": [("log_retention_ms", 1), ("log_retention_minutes", _MINUTE_MS), ("log_retention_hours", _HOUR_MS)],
    "retention_bytes": [("log_retention_bytes", 1)],
    "cleanup_policy": [("log_cleanup_policy", 1)],
    "max_message_bytes": [("message_max_bytes", 1)],
    "message_timestamp_type": [("log_message_timestamp_type", 1)],
    "message_timestamp_before_max_ms": [("log_message_timestamp_before_max_ms", 1)],
    "message_timestamp_after_max_ms": [("log_message_timestamp_after_max_ms", 1)],
    "min_insync_replicas": [("min_insync_replicas", 1)],
    "compression_type": [("compression_type", 1)],
    "compression_gzip_level": [("compression_gzip_level", 1)],
    "compression_lz4_level": [("compression_lz4_level", 1)],
    "compression_zstd_level": [("compression_zstd_level", 1)],
    "flush_messages": [("log_flush_interval_messages", 1)],
    "flush_ms": [("log_flush_interval_ms", 1), ("log_flush_scheduler_interval_ms", 1)],
    "file_delete_delay_ms": [("log_segment_delete_delay_ms", 1)],
    "delete_retention_ms": [("log_cleaner_delete_retention_ms", 1)],
    "min_cleanable_dirty_ratio": [("log_cleaner_min_cleanable_ratio", 1)],
    "min_compaction_lag_ms": [("log_cleaner_min_compaction_lag_ms", 1)],
    "max_compaction_lag_ms": [("log_cleaner_max_compaction_lag_ms", 1)],
    "unclean_leader_election_enable": [("unclean_leader_election_enable", 1)],
}
