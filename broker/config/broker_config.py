"""The broker's configuration, by Kafka's names (`server.properties`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...network.config import INT32_MAX, INT64_MAX, Config, Draft, Rule, key
from ...network.config_values import parse_list
from ...network.protocol.errors import KafkaConfigurationError
from ...network.records.compression import Compression
from .kafka_keys import FIXED, LEFT_OUT, WITHOUT_EFFECT
from .listeners import (
    DEFAULT_PROTOCOL_MAP,
    Listener,
    check_listeners,
    parse_listeners,
    parse_protocol_map,
    show_listeners,
)
from .profiles import PROFILES, check_profile
from .topic_config import CODECS, TopicConfig, check_cleanup_policy, codec_level_key
from .topic_defaults import DEFAULTS_OF_TOPICS

#: Defaults that differ from Apache Kafka's in every profile, with the reason.
OWN_DEFAULTS: dict[str, str] = {
    "num.network.threads": "Python runs one thread at a time; Kafka has 3",
    "queued.max.request.bytes": "memory is bounded; Kafka's -1 is no bound",
    "replica.socket.receive.buffer.bytes": "the system's buffer grows with what a connection carries; Kafka has 65536",
    "socket.listen.backlog.size": "many clients may start at once; Kafka has 50",
    "socket.receive.buffer.bytes": "the system's buffer grows with what a connection carries; Kafka has 102400",
    "socket.send.buffer.bytes": "the system's buffer grows with what a connection carries; Kafka has 102400",
}

#: Where a value comes from that was changed while the broker runs.
DYNAMIC_OWN = "dynamic, of this broker"
DYNAMIC_OF_ALL = "dynamic, of all brokers"

#: Keys that take effect when they are changed while the broker runs (Kafka's update mode "cluster-wide"). The others
#: are decided at the start.
DYNAMIC = frozenset(
    {attribute for synonyms in DEFAULTS_OF_TOPICS.values() for attribute, _ in synonyms}
    - {
        *("log_retention_minutes", "log_retention_hours", "log_roll_hours", "log_roll_jitter_hours"),
        "log_flush_scheduler_interval_ms",
    }
    | {
        *("max_connections", "max_connections_per_ip", "max_connections_per_ip_overrides"),
        "replica_alter_log_dirs_io_max_bytes_per_second",
    }
)


def _parse_per_ip(value: Any) -> tuple[str, ...]:
    """`host:count` entries. Raises ValueError."""
    entries = parse_list(value)
    for entry in entries:
        _, _, count = entry.rpartition(":")
        if not entry.rpartition(":")[0] or not count.isdigit():
            raise ValueError(f"has {entry!r}, which is not an address and a number, such as 10.0.0.1:200")
    return entries


def _check_directories(draft: Draft) -> None:
    """Each directory of `log.dirs` is given once."""
    directories = draft["log_dirs"] or ()
    if len(set(directories)) < len(directories):
        draft.problem(f"log.dirs has a directory twice: {', '.join(directories)}; name each once")


class BrokerConfig(
    Config,
    listed_in="docs/broker-configuration.md",
    without_effect=WITHOUT_EFFECT,
    fixed=FIXED,
    left_out=LEFT_OUT,
    rules=(
        Rule(
            (
                *("listeners", "advertised_listeners", "listener_security_protocol_map"),
                *("inter_broker_listener_name", "controller_listener_names", "security_inter_broker_protocol"),
            ),
            check_listeners,
        ),
        Rule(("log_dirs",), _check_directories),
    ),
):
    """One broker's settings. Those that a topic may override are the defaults of `TopicConfig`."""

    # --- Where it is ---

    node_id: int | None = key(
        default=None,
        at_least=0,
        at_most=INT32_MAX,
        aliases=("broker.id",),
        default_text="1",
        doc="The number of the broker, where the cluster has one. Several have theirs from `node_ids` (`--node-ids`), "
        "or are numbered from 1.",
        importance="high",
    )
    listeners: tuple[Listener, ...] = key(
        default=(Listener("PLAINTEXT", "", 9092),),
        parse=parse_listeners,
        allowed="NAME://host:port, several separated by commas",
        show=show_listeners,
        default_text="as `host` and `port` of the cluster say",
        doc="Where the broker listens. Without a host: on all addresses; with port 0: on a free port. The next broker "
        "of a cluster takes the next port of each. Those that `controller.listener.names` names are passed over.",
        importance="high",
    )
    advertised_listeners: tuple[Listener, ...] | None = key(
        default=None,
        parse=parse_listeners,
        allowed="NAME://host:port, several separated by commas",
        show=show_listeners,
        default_text="those of `listeners`",
        doc="What clients are told to connect to, by the listener that they came in by: for a broker behind a NAT or "
        "in a container. The next broker of a cluster has the next port of each.",
        importance="high",
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        default=DEFAULT_PROTOCOL_MAP,
        parse=parse_protocol_map,
        allowed="NAME:PROTOCOL, several separated by commas",
        show=",".join,
        doc="The security protocol of each listener. Only PLAINTEXT is served.",
    )
    inter_broker_listener_name: str | None = key(
        default=None,
        default_text="the first of `listeners`",
        doc="The listener through which brokers copy from one another.",
    )
    security_inter_broker_protocol: str = key(
        default="PLAINTEXT", choices=("PLAINTEXT",), doc="The security protocol between brokers."
    )
    controller_listener_names: tuple[str, ...] = key(
        default=(),
        show=",".join,
        doc="Listeners of Kafka's controllers. They are passed over: the controller of a cluster is reached by its "
        "brokers only.",
    )
    log_dirs: tuple[str, ...] | None = key(
        default=None,
        parse=parse_list,
        allowed="paths separated by commas",
        show=lambda paths: ",".join(paths or ()),
        aliases=("log.dir",),
        default_text="`data_dir` of the cluster, or a temporary directory",
        doc="The directories of the logs. With several, a new replica goes to the one with the fewest. With several "
        "brokers, each has `broker-<id>` below them.",
        importance="high",
    )
    metadata_log_dir: str | None = key(
        default=None,
        default_text="the first of `log.dirs`",
        doc="Where the controller keeps topics and the configurations that were changed.",
    )

    # --- Sockets ---

    socket_request_max_bytes: int = key(
        default=100 * 2**20, at_least=1, at_most=INT32_MAX, doc="Largest request; a longer frame closes its connection."
    )
    max_connections: int = key(
        default=INT32_MAX, at_least=0, at_most=INT32_MAX, doc="Connections beyond this number are closed at once."
    )
    max_connections_per_ip: int = key(
        default=INT32_MAX,
        at_least=0,
        at_most=INT32_MAX,
        doc="Connections from one address beyond this number are closed.",
    )
    max_connections_per_ip_overrides: tuple[str, ...] = key(
        default=(),
        parse=_parse_per_ip,
        allowed="address:number, several separated by commas",
        show=",".join,
        doc="Other numbers for some addresses.",
    )
    socket_send_buffer_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        doc="The send buffer of a connection (SO_SNDBUF); -1: as the system has it.",
    )
    socket_receive_buffer_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        doc="The receive buffer of a connection (SO_RCVBUF); -1: as the system has it.",
    )
    socket_listen_backlog_size: int = key(
        default=1_024, at_least=1, at_most=INT32_MAX, doc="Connections that may wait to be accepted."
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
        at_least=-1,
        at_most=INT64_MAX,
        check=lambda size: None if size else "is no size; -1 is no bound",
        doc="Memory for requests of which not all has arrived, on all connections; beyond it the connection that holds "
        "most of it is closed. -1: no bound.",
    )

    # --- Cluster ---

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

    # --- Replication ---

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
        default=1_000, at_least=0, at_most=INT32_MAX, doc="Pause of a follower after a failed fetch."
    )
    replica_socket_timeout_ms: int = key(
        default=30_000, at_least=1, at_most=INT32_MAX, doc="How long a follower waits for an answer."
    )
    replica_socket_receive_buffer_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        doc="The receive buffer of a follower's connection (SO_RCVBUF); -1: as the system has it.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = key(
        default=INT64_MAX,
        at_least=0,
        at_most=INT64_MAX,
        doc="Bytes per second at which a replica is moved to another of `log.dirs`.",
    )
    auto_leader_rebalance_enable: bool = key(
        default=True,
        doc="Whether the first replica of each partition is made its leader again, where it is in sync.",
        importance="high",
    )
    leader_imbalance_check_interval_seconds: int = key(
        default=300,
        at_least=1,
        at_most=INT32_MAX,
        doc="How often partitions are looked for whose first replica could lead.",
    )
    unclean_leader_election_enable: bool = key(
        default=False, doc="Whether a replica that may lack acknowledged records may lead when no other is left."
    )
    min_insync_replicas: int = key(
        default=1, at_least=1, at_most=INT32_MAX, doc="In-sync replicas without which acks=all is refused."
    )

    # --- Fetching ---

    fetch_max_bytes: int = key(
        default=55 * 2**20, at_least=1024, at_most=INT32_MAX, doc="Bytes of one fetch answer at most."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        default=1000, at_least=0, at_most=INT32_MAX, doc="Fetch sessions kept."
    )
    max_request_partition_size_limit: int = key(
        default=2_000, at_least=1, at_most=INT32_MAX, doc="Partitions of one answer to DescribeTopicPartitions."
    )
    producer_purgatory_purge_interval_requests: int = key(
        default=1_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Produce requests that may be completed before they are removed from where they waited.",
    )
    fetch_purgatory_purge_interval_requests: int = key(
        default=1_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Fetch requests that may be completed before they are removed from where they waited.",
    )

    # --- Logs ---

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
    compression_gzip_level: int = codec_level_key(Compression.GZIP)
    compression_lz4_level: int = codec_level_key(Compression.LZ4)
    compression_zstd_level: int = codec_level_key(Compression.ZSTD)
    log_segment_bytes: int = key(
        default=2**30,
        at_least=14,
        at_most=INT32_MAX,
        doc="Size at which a log begins a new segment.",
        importance="high",
    )
    log_roll_ms: int | None = key(
        default=None,
        at_least=1,
        at_most=INT64_MAX,
        default_text="`log.roll.hours`",
        doc="Age at which a log begins a new segment.",
    )
    log_roll_hours: int = key(default=168, at_least=1, at_most=INT32_MAX, doc="The same in hours.")
    log_roll_jitter_ms: int | None = key(
        default=None,
        at_least=0,
        at_most=INT64_MAX,
        default_text="`log.roll.jitter.hours`",
        doc="A segment is rolled earlier than its age asks for, by a time drawn at random up to this.",
    )
    log_roll_jitter_hours: int = key(default=0, at_least=0, at_most=INT32_MAX, doc="The same in hours.")
    log_index_size_max_bytes: int = key(
        default=10 * 2**20, at_least=12, at_most=INT32_MAX, doc="Most bytes of a segment's index."
    )
    log_index_interval_bytes: int = key(
        default=4096, at_least=0, at_most=INT32_MAX, doc="Bytes of log between two index entries."
    )
    log_retention_ms: int | None = key(
        default=None,
        at_least=-1,
        at_most=INT64_MAX,
        default_text="`log.retention.minutes`",
        doc="Age at which segments are deleted; -1: never.",
        importance="high",
    )
    log_retention_minutes: int | None = key(
        default=None,
        at_least=-1,
        at_most=INT32_MAX,
        default_text="`log.retention.hours`",
        doc="The same in minutes, where `log.retention.ms` is not given.",
        importance="high",
    )
    log_retention_hours: int = key(
        default=168,
        at_least=-1,
        at_most=INT32_MAX,
        doc="The same in hours, where neither of them is given.",
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
    log_flush_interval_ms: int | None = key(
        default=None,
        at_least=0,
        at_most=INT64_MAX,
        default_text="`log.flush.scheduler.interval.ms`",
        doc="Time after which a log is forced to the disk.",
    )
    log_flush_scheduler_interval_ms: int = key(
        default=INT64_MAX,
        at_least=1,
        at_most=INT64_MAX,
        doc="How often it is looked for logs to force to the disk; without it, `flush.ms` of a topic does nothing.",
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        default=60_000, at_least=1, at_most=INT32_MAX, doc="How often recovery points are written."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        default=60_000, at_least=1, at_most=INT32_MAX, doc="How often the starts of logs are written."
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        default=5_000, at_least=1, at_most=INT64_MAX, doc="How often high watermarks are written."
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
    log_cleaner_max_compaction_lag_ms: int = key(
        default=INT64_MAX, at_least=1, at_most=INT64_MAX, doc="How long a record stays uncompacted at most."
    )
    producer_id_expiration_ms: int = key(
        default=86_400_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Quiet time after which an idempotent producer is forgotten.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        default=600_000, at_least=1, at_most=INT64_MAX, doc="How often quiet producers are looked for."
    )

    # --- Groups ---

    group_initial_rebalance_delay_ms: int = key(
        default=3_000,
        at_least=0,
        at_most=INT32_MAX,
        doc="How long a new group waits for more members.",
    )
    group_min_session_timeout_ms: int = key(
        default=6_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Shortest session timeout a member may ask for.",
    )
    group_max_session_timeout_ms: int = key(
        default=1_800_000, at_least=1, at_most=INT32_MAX, doc="Longest session timeout a member may ask for."
    )
    group_max_size: int = key(default=INT32_MAX, at_least=1, at_most=INT32_MAX, doc="Most members of a group.")
    offsets_topic_num_partitions: int = key(
        default=50, at_least=1, at_most=INT32_MAX, doc="Partitions that groups are kept in."
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
    offsets_commit_timeout_ms: int = key(
        default=5_000, at_least=1, at_most=INT32_MAX, doc="How long a commit waits until its replicas have it."
    )
    offset_metadata_max_bytes: int = key(
        default=4096, at_least=0, at_most=INT32_MAX, doc="Largest note beside a committed offset."
    )
    offsets_retention_minutes: int = key(
        default=10_080, at_least=1, at_most=INT32_MAX, doc="How long an empty group's offsets are kept."
    )

    @classmethod
    def of_profile(cls, profile: str, mapping: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> BrokerConfig:
        """The settings that are given, and a profile's defaults for the rest. Raises KafkaConfigurationError."""
        return cls._resolve_over(PROFILES[check_profile(profile)], f"profile {profile}", mapping, keywords, {})

    def check_dynamic(self, texts: Mapping[str, str]) -> None:
        """Raise KafkaConfigurationError unless these keys can be changed while a broker runs, to these values."""
        fixed = sorted(name for name in texts if name in self._names and self._names[name].attribute not in DYNAMIC)
        if fixed:
            raise KafkaConfigurationError(f"decided when a broker starts: {', '.join(fixed)}; restart it with others")
        type(self).resolve_from(texts, {}, {})

    def with_dynamic(self, of_all: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """With what was configured for all brokers, and for this one, which comes first."""
        # What changes nothing was accepted with a warning, once.
        texts = {self._names[name].name: text for name, text in {**of_all, **own}.items() if name in self._names}
        if not texts:
            return self
        given = type(self).resolve_from(texts, {}, {})
        names = {self._names[name].name for name in own if name in self._names}
        origins = {name: DYNAMIC_OWN if name in names else DYNAMIC_OF_ALL for name in texts}
        return self._replaced({self._names[name].attribute: given[name] for name in texts}, origins)

    @property
    def request_memory_per_thread(self) -> int:
        """What `queued.max.request.bytes` leaves to each network thread."""
        size_bytes = self.queued_max_request_bytes
        return INT64_MAX if size_bytes < 0 else size_bytes // self.num_network_threads

    @property
    def given(self) -> frozenset[str]:
        """The names of the keys that have a value of the user's."""
        return frozenset(name for name, origin in self.origins.items() if not origin.startswith(("default", "profile")))

    def max_connections_of(self, address: str) -> int:
        """How many connections an address may have."""
        for entry in self.max_connections_per_ip_overrides:
            name, _, count = entry.rpartition(":")
            if name == address:
                return int(count)
        return self.max_connections_per_ip

    def topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """A topic's configuration: its own keys (dotted), this broker's for the rest. Raises
        KafkaConfigurationError."""
        # Most topics of a cluster are configured alike, and a thousand may be made at once.
        return _topic_config(tuple(map(self.default_of_topics, DEFAULTS_OF_TOPICS)), tuple(overrides.items()))

    def default_of_topics(self, attribute: str) -> Any:
        """The value of a topic-level key (an attribute of `TopicConfig`) where the topic has none of its own."""
        for own, unit in DEFAULTS_OF_TOPICS[attribute]:
            value = getattr(self, own)
            if value is not None:
                # Negative is "never", in every unit.
                return value if unit == 1 or value < 0 else value * unit
        raise LookupError(attribute)


@lru_cache(maxsize=64)
def _topic_config(broker_values: tuple[Any, ...], overrides: tuple[tuple[str, Any], ...]) -> TopicConfig:
    defaults = dict(zip(DEFAULTS_OF_TOPICS, broker_values, strict=True))
    for name, _ in overrides:
        defaults.pop(name.replace(".", "_"), None)
    return TopicConfig.resolve_from({**defaults, **dict(overrides)}, {}, {})
