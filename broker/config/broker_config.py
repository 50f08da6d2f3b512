"""The broker's configuration, by Kafka's names (`server.properties`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...network.config import INT32_MAX, INT64_MAX, Config, key, parse_list
from .topic_config import CODECS, TopicConfig, check_cleanup_policy

# Topic-level key -> the broker's default for it, where the names differ by more than a leading `log.`.
DEFAULTS_OF_TOPICS = {
    "segment_bytes": "log_segment_bytes",
    "segment_ms": "log_roll_ms",
    "segment_index_bytes": "log_index_size_max_bytes",
    "index_interval_bytes": "log_index_interval_bytes",
    "retention_ms": "log_retention_ms",
    "retention_bytes": "log_retention_bytes",
    "cleanup_policy": "log_cleanup_policy",
    "max_message_bytes": "message_max_bytes",
    "message_timestamp_type": "log_message_timestamp_type",
    "message_timestamp_before_max_ms": "log_message_timestamp_before_max_ms",
    "message_timestamp_after_max_ms": "log_message_timestamp_after_max_ms",
    "min_insync_replicas": "min_insync_replicas",
    "compression_type": "compression_type",
    "flush_messages": "log_flush_interval_messages",
    "flush_ms": "log_flush_interval_ms",
    "file_delete_delay_ms": "log_segment_delete_delay_ms",
    "delete_retention_ms": "log_cleaner_delete_retention_ms",
    "min_cleanable_dirty_ratio": "log_cleaner_min_cleanable_ratio",
    "min_compaction_lag_ms": "log_cleaner_min_compaction_lag_ms",
    "unclean_leader_election_enable": "unclean_leader_election_enable",
}


class BrokerConfig(
    Config,
    without_effect={
        "transaction.state.log.replication.factor": "there are no transactions",
        "transaction.state.log.min.isr": "there are no transactions",
        "transaction.state.log.num.partitions": "there are no transactions",
        "num.io.threads": "the network threads handle short requests themselves, one thread all others",
        "num.replica.fetchers": "a broker has one fetcher for each leader",
        "num.recovery.threads.per.data.dir": "logs are loaded one after the other",
        "group.coordinator.rebalance.protocols": "groups follow the classic protocol",
        "process.roles": "the controller is the cluster's",
        "controlled.shutdown.enable": "a clean stop always hands leadership over first",
    },
    left_out={
        "listeners": "give host and port to the cluster (or --host and --port) instead",
        "advertised.listeners": "give host and port to the cluster (or --host and --port) instead",
        "log.dirs": "give data_dir to the cluster (or --data-dir) instead",
        "log.dir": "give data_dir to the cluster (or --data-dir) instead",
        "node.id": "brokers are numbered from 1",
        "broker.id": "brokers are numbered from 1",
        "zookeeper.connect": "there is no ZooKeeper",
    },
):
    """One broker's settings. Those that a topic may override are the defaults of `TopicConfig`."""

    # Sockets
    socket_request_max_bytes: int = key(
        default=100 * 2**20, at_least=1, at_most=INT32_MAX, doc="Largest request; a longer frame closes its connection."
    )
    max_connections: int = key(
        default=10_000, at_least=1, at_most=INT32_MAX, doc="Connections beyond this number are closed at once."
    )
    connections_max_idle_ms: int = key(
        default=600_000, at_least=1, at_most=INT64_MAX, doc="A connection without traffic for so long is closed."
    )
    num_network_threads: int = key(
        default=1,
        at_least=1,
        at_most=64,
        doc="Threads that serve connections. Python runs one at a time; more help only while others wait for the disk.",
    )
    queued_max_requests: int = key(
        default=500,
        at_least=1,
        at_most=INT32_MAX,
        doc="Unanswered requests on one connection; beyond it no more is read from it until answers have gone out.",
    )
    queued_max_request_bytes: int = key(
        default=512 * 2**20,
        at_least=1,
        at_most=INT64_MAX,
        doc="Memory for requests of which not all has arrived, on all connections; beyond it the connection that holds "
        "most of it is closed.",
    )
    # Cluster
    broker_rack: str | None = key(
        default=None, doc="Where the broker stands; consumers may prefer replicas of their rack."
    )
    default_replication_factor: int = key(
        default=1, at_least=1, at_most=32767, doc="Replicas of a topic that names no number."
    )
    num_partitions: int = key(
        default=1, at_least=1, at_most=INT32_MAX, doc="Partitions of a topic that names no number.", importance="high"
    )
    auto_create_topics_enable: bool = key(
        default=True, doc="Whether a topic is made when a client first asks for it.", importance="high"
    )
    delete_topic_enable: bool = key(default=True, doc="Whether topics may be deleted.")
    # Replication
    replica_lag_time_max_ms: int = key(
        default=30_000,
        at_least=1,
        at_most=INT64_MAX,
        doc="A follower that hasn't caught up for so long leaves the in-sync replicas.",
    )
    replica_fetch_wait_max_ms: int = key(
        default=500, at_least=0, at_most=INT32_MAX, doc="How long a follower's fetch may wait for records."
    )
    replica_fetch_min_bytes: int = key(
        default=1, at_least=0, at_most=INT32_MAX, doc="Bytes a follower's fetch waits for."
    )
    replica_fetch_max_bytes: int = key(
        default=2**20, at_least=0, at_most=INT32_MAX, doc="Bytes a follower fetches of one partition at a time."
    )
    replica_fetch_response_max_bytes: int = key(
        default=10 * 2**20, at_least=0, at_most=INT32_MAX, doc="Bytes of one answer to a follower."
    )
    replica_fetch_backoff_ms: int = key(
        default=50, at_least=0, at_most=INT32_MAX, doc="Pause of a follower after a failed fetch."
    )
    replica_socket_timeout_ms: int = key(
        default=30_000, at_least=1, at_most=INT32_MAX, doc="How long a follower waits for an answer."
    )
    unclean_leader_election_enable: bool = key(
        default=False, doc="Whether a replica that may lack acknowledged records may lead when no other is left."
    )
    min_insync_replicas: int = key(
        default=1, at_least=1, at_most=INT32_MAX, doc="In-sync replicas without which acks=all is refused."
    )
    # Fetching
    fetch_max_bytes: int = key(
        default=55 * 2**20, at_least=1024, at_most=INT32_MAX, doc="Bytes of one fetch answer at most."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        default=1000, at_least=0, at_most=INT32_MAX, doc="Fetch sessions kept."
    )
    # Logs
    message_max_bytes: int = key(
        default=2**20 + 12,
        at_least=0,
        at_most=INT32_MAX,
        doc="Largest record batch that is accepted.",
        importance="high",
    )
    compression_type: str = key(
        default="producer",
        choices=("producer", *CODECS),
        doc="The codec batches are kept in: the one their producer chose, or always the same.",
    )
    log_segment_bytes: int = key(
        default=2**30,
        at_least=14,
        at_most=INT32_MAX,
        doc="Size at which a log begins a new segment.",
        importance="high",
    )
    log_roll_ms: int = key(
        default=7 * 86_400_000, at_least=1, at_most=INT64_MAX, doc="Age at which a log begins a new segment."
    )
    log_index_size_max_bytes: int = key(
        default=10 * 2**20, at_least=12, at_most=INT32_MAX, doc="Most bytes of a segment's index."
    )
    log_index_interval_bytes: int = key(
        default=4096, at_least=0, at_most=INT32_MAX, doc="Bytes of log between two index entries."
    )
    log_retention_ms: int = key(
        default=7 * 86_400_000,
        at_least=-1,
        at_most=INT64_MAX,
        doc="Age at which segments are deleted; -1: never.",
        importance="high",
    )
    log_retention_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT64_MAX,
        doc="Size of a partition beyond which segments are deleted; -1: none.",
        importance="high",
    )
    log_retention_check_interval_ms: int = key(
        default=300_000, at_least=1, at_most=INT64_MAX, doc="How often retention is applied."
    )
    log_cleanup_policy: tuple[str, ...] = key(
        default=("delete",),
        parse=parse_list,
        check=check_cleanup_policy,
        allowed="delete, compact, or both separated by a comma",
        show=",".join,
        doc="What happens to old segments: deleted by age and size, or compacted to the last value of each key.",
    )
    log_message_timestamp_type: str = key(
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        doc="Whether records get the time of the append as their timestamp.",
    )
    log_message_timestamp_before_max_ms: int = key(
        default=INT64_MAX,
        at_least=0,
        at_most=INT64_MAX,
        doc="How far behind the broker's clock a record's timestamp may be.",
    )
    log_message_timestamp_after_max_ms: int = key(
        default=3_600_000,
        at_least=0,
        at_most=INT64_MAX,
        doc="How far ahead of the broker's clock a record's timestamp may be.",
    )
    log_flush_interval_messages: int = key(
        default=INT64_MAX, at_least=1, at_most=INT64_MAX, doc="Records after which a log is forced to the disk."
    )
    log_flush_interval_ms: int = key(
        default=INT64_MAX, at_least=0, at_most=INT64_MAX, doc="Time after which a log is forced to the disk."
    )
    log_flush_scheduler_interval_ms: int = key(
        default=3_000, at_least=1, at_most=INT64_MAX, doc="How often it is looked for logs to force to the disk."
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        default=60_000, at_least=1, at_most=INT64_MAX, doc="How often recovery points and high watermarks are written."
    )
    log_segment_delete_delay_ms: int = key(
        default=60_000, at_least=0, at_most=INT64_MAX, doc="How long the directory of a deleted partition stays."
    )
    log_cleaner_enable: bool = key(default=True, doc="Whether compaction runs.")
    log_cleaner_backoff_ms: int = key(
        default=15_000, at_least=1, at_most=INT64_MAX, doc="How often it is looked for logs to compact."
    )
    log_cleaner_delete_retention_ms: int = key(
        default=86_400_000, at_least=0, at_most=INT64_MAX, doc="How long compaction keeps a tombstone."
    )
    log_cleaner_min_cleanable_ratio: float = key(
        default=0.5,
        parse=float,
        allowed="a number from 0 to 1",
        check=lambda ratio: None if 0 <= ratio <= 1 else "is not from 0 to 1",
        doc="Share of a log that must be uncompacted before compaction runs.",
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        default=0, at_least=0, at_most=INT64_MAX, doc="How long a record stays uncompacted at least."
    )
    producer_id_expiration_ms: int = key(
        default=86_400_000,
        at_least=1,
        at_most=INT64_MAX,
        doc="Quiet time after which an idempotent producer is forgotten.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        default=600_000, at_least=1, at_most=INT64_MAX, doc="How often quiet producers are looked for."
    )
    # Groups
    group_initial_rebalance_delay_ms: int = key(
        default=0,
        at_least=0,
        at_most=INT32_MAX,
        doc="How long a new group waits for more members. Kafka's default is 3000; tests shouldn't wait.",
    )
    group_min_session_timeout_ms: int = key(
        default=1,
        at_least=1,
        at_most=INT32_MAX,
        doc="Shortest session timeout a member may ask for. Kafka's default is 6000.",
    )
    group_max_session_timeout_ms: int = key(
        default=1_800_000, at_least=1, at_most=INT32_MAX, doc="Longest session timeout a member may ask for."
    )
    group_max_size: int = key(default=INT32_MAX, at_least=1, at_most=INT32_MAX, doc="Most members of a group.")
    offsets_topic_num_partitions: int = key(
        default=4, at_least=1, at_most=INT32_MAX, doc="Partitions that groups are kept in. Kafka's default is 50."
    )
    offsets_topic_replication_factor: int = key(
        default=3, at_least=1, at_most=32767, doc="Replicas of the offsets topic; fewer where there are fewer brokers."
    )
    offsets_topic_segment_bytes: int = key(
        default=100 * 2**20, at_least=1, at_most=INT32_MAX, doc="Segment size of the offsets topic."
    )
    offsets_retention_check_interval_ms: int = key(
        default=600_000, at_least=1, at_most=INT64_MAX, doc="How often it is looked for offsets to forget."
    )
    offset_metadata_max_bytes: int = key(
        default=4096, at_least=0, at_most=INT32_MAX, doc="Largest note beside a committed offset."
    )
    offsets_retention_minutes: int = key(
        default=10_080, at_least=1, at_most=INT32_MAX, doc="How long an empty group's offsets are kept."
    )

    def topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """A topic's configuration: its own keys (dotted), this broker's for the rest. Raises
        KafkaConfigurationError."""
        # Most topics of a cluster are configured alike, and a thousand may be made at once.
        return _topic_config(
            tuple(getattr(self, name) for name in DEFAULTS_OF_TOPICS.values()), tuple(overrides.items())
        )


@lru_cache(maxsize=64)
def _topic_config(broker_values: tuple[Any, ...], overrides: tuple[tuple[str, Any], ...]) -> TopicConfig:
    defaults = dict(zip(DEFAULTS_OF_TOPICS, broker_values, strict=True))
    for name, _ in overrides:
        defaults.pop(name.replace(".", "_"), None)
    return TopicConfig.resolve_from({**defaults, **dict(overrides)}, {}, {})
