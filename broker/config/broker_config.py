"""The broker's configuration, with Kafka's names (`server.properties`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ...network.config import INT32_MAX, INT64_MAX, Draft, Rule, key
from ...network.config_values import parse_list
from ...network.protocol.errors import KafkaConfigurationError
from ...network.records.compression import Compression
from ...network.security.tls_config import SECURITY_PROTOCOLS
from .acl_keys import allow_everyone_key, authorizer_class_name_key, check_authorizer, super_users_key
from .kafka_keys import FIXED, LEFT_OUT, WITHOUT_EFFECT
from .listeners import (
    DEFAULT_PROTOCOL_MAP,
    PLAINTEXT,
    Listener,
    check_listeners,
    parse_listeners,
    parse_protocol_map,
    protocols_of,
    show_listeners,
)
from .profiles import PROFILES, check_profile
from .sasl_keys import SaslBrokerConfig
from .topic_config import CODECS, TopicConfig, check_cleanup_policy, codec_level_key
from .topic_defaults import DEFAULTS_OF_TOPICS
from .transaction_config import TransactionConfig

#: Defaults that differ from Apache Kafka's in every profile -> the reason.
OWN_DEFAULTS: dict[str, str] = {
    "num.network.threads": "Python runs one thread at a time; Kafka's default is 3",
    "sasl.enabled.mechanisms": "users with passwords are simple to set up; Kafka's default GSSAPI needs Kerberos",
    "sasl.mechanism.inter.broker.protocol": "Kafka's default GSSAPI needs Kerberos",
    "queued.max.request.bytes": "memory is bounded; Kafka's default -1 is unlimited",
    "replica.socket.receive.buffer.bytes": "the system adapts the buffer to the traffic; Kafka's default is 65536",
    "socket.listen.backlog.size": "many clients may start at the same time; Kafka's default is 50",
    "socket.receive.buffer.bytes": "the system adapts the buffer to the traffic; Kafka's default is 102400",
    "ssl.keystore.type": "the file's content is recognized, and JKS is not supported; Kafka's default is JKS",
    "ssl.truststore.type": "the file's content is recognized, and JKS is not supported; Kafka's default is JKS",
    "socket.send.buffer.bytes": "the system adapts the buffer to the traffic; Kafka's default is 102400",
}

#: The origins of values that were changed while the broker runs.
DYNAMIC_OWN = "dynamic, of this broker"
DYNAMIC_OF_ALL = "dynamic, of all brokers"

#: Keys that can be changed while the broker runs (Kafka's update mode "cluster-wide"). The others can't.
DYNAMIC = frozenset(
    {attribute for synonyms in DEFAULTS_OF_TOPICS.values() for attribute, _ in synonyms}
    - {
        *("log_retention_minutes", "log_retention_hours", "log_roll_hours", "log_roll_jitter_hours"),
        "log_flush_scheduler_interval_ms",
    }
    | {
        *("max_connections", "max_connections_per_ip", "max_connections_per_ip_overrides"),
        "replica_alter_log_dirs_io_max_bytes_per_second",
        "transaction_partition_verification_enable",
    }
)


def _parse_per_ip(value: Any) -> tuple[str, ...]:
    """Parse `host:count` entries. Raises ValueError."""
    for entry in (entries := parse_list(value)):
        address, _, count = entry.rpartition(":")
        if not address or not count.isdigit():
            raise ValueError(f"has {entry!r}, which is not an address and a number, such as 10.0.0.1:200")
    return entries


def _check_directories(draft: Draft) -> None:
    """Each directory of `log.dirs` is listed once."""
    directories = draft["log_dirs"] or ()
    if len(set(directories)) < len(directories):
        draft.problem(f"log.dirs has a directory twice: {', '.join(directories)}; list each once")


class BrokerConfig(
    TransactionConfig,
    SaslBrokerConfig,
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
        Rule(("authorizer_class_name", "super_users", "allow_everyone_if_no_acl_found"), check_authorizer),
    ),
):
    """One broker's settings. Those that a topic may override are the defaults of `TopicConfig`."""

    # --- Identity and addresses ---

    node_id: int | None = key(
        default=None,
        at_least=0,
        at_most=INT32_MAX,
        aliases=("broker.id",),
        default_text="1",
        doc="The id of the broker. A cluster of several brokers has its ids from `node_ids` (`--node-ids`), or numbers "
        "them from 1.",
        importance="high",
    )
    listeners: tuple[Listener, ...] = key(
        default=(Listener("PLAINTEXT", "", 9092),),
        parse=parse_listeners,
        allowed="NAME://host:port, several separated by commas",
        show=show_listeners,
        default_text="from the cluster's `host` and `port`",
        doc="The addresses that the broker listens on. Without a host: all addresses; with port 0: a free port. Each "
        "further broker of a cluster uses the next port of each. Listeners in `controller.listener.names` are ignored.",
        importance="high",
    )
    advertised_listeners: tuple[Listener, ...] | None = key(
        default=None,
        parse=parse_listeners,
        allowed="NAME://host:port, several separated by commas",
        show=show_listeners,
        default_text="those of `listeners`",
        doc="The addresses that clients are given to connect to, one per listener: for a broker behind NAT or in a "
        "container. Each further broker of a cluster has the next port of each.",
        importance="high",
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        default=DEFAULT_PROTOCOL_MAP,
        parse=parse_protocol_map,
        allowed="NAME:PROTOCOL, several separated by commas",
        show=",".join,
        doc="The security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    inter_broker_listener_name: str | None = key(
        default=None,
        default_text="the first of `listeners` with `security.inter.broker.protocol`",
        doc="The listener that brokers use to replicate from each other.",
    )
    security_inter_broker_protocol: str = key(
        default=PLAINTEXT,
        choices=SECURITY_PROTOCOLS,
        doc="The security protocol between brokers, in place of `inter.broker.listener.name`: they use the first "
        "listener that has it.",
    )
    controller_listener_names: tuple[str, ...] = key(
        default=(),
        show=",".join,
        doc="Listeners of Kafka's controllers. They are ignored: only the cluster's own brokers reach its controller.",
    )
    log_dirs: tuple[str, ...] | None = key(
        default=None,
        parse=parse_list,
        allowed="paths separated by commas",
        show=lambda paths: ",".join(paths or ()),
        aliases=("log.dir",),
        default_text="`data_dir` of the cluster, or a temporary directory",
        doc="The directories of the logs. A new replica goes to the directory with the fewest logs. In a cluster of "
        "several brokers, each uses `broker-<id>` below them.",
        importance="high",
    )
    metadata_log_dir: str | None = key(
        default=None,
        default_text="the first of `log.dirs`",
        doc="Where the controller stores topics and dynamic configurations.",
    )

    # --- Sockets ---

    socket_request_max_bytes: int = key(
        default=100 * 2**20, at_least=1, at_most=INT32_MAX, doc="Largest request; a larger one closes its connection."
    )
    max_connections: int = key(
        default=INT32_MAX,
        at_least=0,
        at_most=INT32_MAX,
        doc="Maximum number of connections; further ones are closed immediately.",
    )
    max_connections_per_ip: int = key(
        default=INT32_MAX,
        at_least=0,
        at_most=INT32_MAX,
        doc="Maximum number of connections from one address; further ones are closed immediately.",
    )
    max_connections_per_ip_overrides: tuple[str, ...] = key(
        default=(),
        parse=_parse_per_ip,
        allowed="address:number, several separated by commas",
        show=",".join,
        doc="Maximum number of connections from particular addresses, in place of `max.connections.per.ip`.",
    )
    socket_send_buffer_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        doc="The send buffer of a connection (SO_SNDBUF) in bytes; -1: the system's default.",
    )
    socket_receive_buffer_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        doc="The receive buffer of a connection (SO_RCVBUF) in bytes; -1: the system's default.",
    )
    socket_listen_backlog_size: int = key(
        default=1_024, at_least=1, at_most=INT32_MAX, doc="Maximum number of connections not accepted yet."
    )
    connections_max_idle_ms: int = key(
        default=600_000, at_least=1, at_most=INT64_MAX, doc="A connection idle for this time is closed."
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
        doc="Maximum number of unanswered requests per connection. Further ones are not read until responses have been "
        "sent.",
    )
    queued_max_request_bytes: int = key(
        default=512 * 2**20,
        at_least=-1,
        at_most=INT64_MAX,
        check=lambda size: None if size else "is not a size; give -1 for unlimited",
        doc="Memory for partially received requests on all connections. Beyond it the connection with the largest "
        "share is closed. -1: unlimited.",
    )

    # --- Cluster ---

    broker_rack: str | None = key(
        default=None,
        doc="The rack of the broker, which clients receive with the metadata. The broker itself does not use it.",
    )
    default_replication_factor: int = key(
        default=1, at_least=1, at_most=32767, doc="Replicas of a topic created without a replication factor."
    )
    num_partitions: int = key(
        default=1,
        at_least=1,
        at_most=INT32_MAX,
        doc="Partitions of a topic created without a partition count.",
        importance="high",
    )
    auto_create_topics_enable: bool = key(
        default=True, doc="Whether a topic is created when a client first requests it.", importance="high"
    )
    delete_topic_enable: bool = key(default=True, doc="Whether topics may be deleted.")

    # --- Authorization ---

    authorizer_class_name: str = authorizer_class_name_key()
    super_users: tuple[str, ...] = super_users_key()
    allow_everyone_if_no_acl_found: bool = allow_everyone_key()

    # --- Replication ---

    replica_lag_time_max_ms: int = key(
        default=30_000,
        at_least=1,
        at_most=INT64_MAX,
        doc="A follower that has not caught up for this time is removed from the in-sync replicas.",
    )
    replica_fetch_wait_max_ms: int = key(
        default=500, at_least=0, at_most=INT32_MAX, doc="Maximum wait of a follower's fetch for records."
    )
    replica_fetch_min_bytes: int = key(
        default=1, at_least=0, at_most=INT32_MAX, doc="Minimum bytes that a follower's fetch waits for."
    )
    replica_fetch_max_bytes: int = key(
        default=2**20, at_least=0, at_most=INT32_MAX, doc="Maximum bytes per partition in a follower's fetch."
    )
    replica_fetch_response_max_bytes: int = key(
        default=10 * 2**20, at_least=0, at_most=INT32_MAX, doc="Maximum bytes in a response to a follower's fetch."
    )
    replica_fetch_backoff_ms: int = key(
        default=1_000, at_least=0, at_most=INT32_MAX, doc="Backoff of a follower after a failed fetch."
    )
    replica_socket_timeout_ms: int = key(
        default=30_000, at_least=1, at_most=INT32_MAX, doc="Timeout of a follower's requests."
    )
    replica_socket_receive_buffer_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        doc="The receive buffer of a follower's connection (SO_RCVBUF) in bytes; -1: the system's default.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = key(
        default=INT64_MAX,
        at_least=0,
        at_most=INT64_MAX,
        doc="Maximum bytes per second at which replicas move between `log.dirs`.",
    )
    auto_leader_rebalance_enable: bool = key(
        default=True,
        doc="Whether leadership returns to the first replica of each partition once it is in sync.",
        importance="high",
    )
    leader_imbalance_check_interval_seconds: int = key(
        default=300,
        at_least=1,
        at_most=INT32_MAX,
        doc="How often the controller checks for partitions whose first replica could lead.",
    )
    unclean_leader_election_enable: bool = key(
        default=False,
        doc="Whether a replica that may lack acknowledged records may become leader if no in-sync replica is alive.",
    )
    min_insync_replicas: int = key(
        default=1, at_least=1, at_most=INT32_MAX, doc="With fewer in-sync replicas, acks=all is rejected."
    )

    # --- Fetching ---

    fetch_max_bytes: int = key(
        default=55 * 2**20, at_least=1024, at_most=INT32_MAX, doc="Maximum bytes in a fetch response."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        default=1000, at_least=0, at_most=INT32_MAX, doc="Maximum number of cached fetch sessions."
    )
    telemetry_max_bytes: int = key(
        default=1_048_576, at_least=1, at_most=INT32_MAX, doc="Maximum size of a client's pushed metrics (KIP-714)."
    )
    max_request_partition_size_limit: int = key(
        default=2_000, at_least=1, at_most=INT32_MAX, doc="Maximum partitions in a DescribeTopicPartitions response."
    )
    producer_purgatory_purge_interval_requests: int = key(
        default=1_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Number of completed produce requests in the purgatory after which it is purged.",
    )
    fetch_purgatory_purge_interval_requests: int = key(
        default=1_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Number of completed fetch requests in the purgatory after which it is purged.",
    )

    # --- Logs ---

    message_max_bytes: int = key(
        default=2**20 + 12,
        at_least=0,
        at_most=INT32_MAX,
        doc="Largest record batch accepted, in bytes.",
        importance="high",
    )
    compression_type: str = key(
        default="producer",
        choices=("producer", *CODECS),
        doc="The codec in which batches are stored: the producer's, or always the same.",
    )
    compression_gzip_level: int = codec_level_key(Compression.GZIP)
    compression_lz4_level: int = codec_level_key(Compression.LZ4)
    compression_zstd_level: int = codec_level_key(Compression.ZSTD)
    log_segment_bytes: int = key(
        default=2**30,
        at_least=14,
        at_most=INT32_MAX,
        doc="Size at which a log rolls a new segment.",
        importance="high",
    )
    log_roll_ms: int | None = key(
        default=None,
        at_least=1,
        at_most=INT64_MAX,
        default_text="`log.roll.hours`",
        doc="Age at which a log rolls a new segment.",
    )
    log_roll_hours: int = key(
        default=168, at_least=1, at_most=INT32_MAX, doc="`log.roll.ms` in hours, used if that is not set."
    )
    log_roll_jitter_ms: int | None = key(
        default=None,
        at_least=0,
        at_most=INT64_MAX,
        default_text="`log.roll.jitter.hours`",
        doc="Upper bound of a random time by which a segment is rolled earlier.",
    )
    log_roll_jitter_hours: int = key(
        default=0, at_least=0, at_most=INT32_MAX, doc="`log.roll.jitter.ms` in hours, used if that is not set."
    )
    log_index_size_max_bytes: int = key(
        default=10 * 2**20, at_least=12, at_most=INT32_MAX, doc="Largest index of a segment, in bytes."
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
        doc="`log.retention.ms` in minutes, used if that is not set.",
        importance="high",
    )
    log_retention_hours: int = key(
        default=168,
        at_least=-1,
        at_most=INT32_MAX,
        doc="`log.retention.ms` in hours, used if neither of the other two is set.",
        importance="high",
    )
    log_retention_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT64_MAX,
        doc="Size of a partition beyond which segments are deleted; -1: unlimited.",
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
        doc="Whether records keep their producer's timestamp or get the time of the append.",
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
        default=INT64_MAX,
        at_least=1,
        at_most=INT64_MAX,
        doc="Number of records after which a log is flushed to the disk.",
    )
    log_flush_interval_ms: int | None = key(
        default=None,
        at_least=0,
        at_most=INT64_MAX,
        default_text="`log.flush.scheduler.interval.ms`",
        doc="Time after which a log is flushed to the disk.",
    )
    log_flush_scheduler_interval_ms: int = key(
        default=INT64_MAX,
        at_least=1,
        at_most=INT64_MAX,
        doc="How often the broker checks for logs to flush; without it, `flush.ms` of a topic has no effect.",
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        default=60_000, at_least=1, at_most=INT32_MAX, doc="How often recovery points are checkpointed."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        default=60_000, at_least=1, at_most=INT32_MAX, doc="How often log start offsets are checkpointed."
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        default=5_000, at_least=1, at_most=INT64_MAX, doc="How often high watermarks are checkpointed."
    )
    log_segment_delete_delay_ms: int = key(
        default=60_000, at_least=0, at_most=INT64_MAX, doc="How long the directory of a deleted partition is kept."
    )
    log_cleaner_enable: bool = key(default=True, doc="Whether compaction runs.")
    log_cleaner_backoff_ms: int = key(
        default=15_000, at_least=1, at_most=INT64_MAX, doc="How often the cleaner checks for logs to compact."
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
        default=0, at_least=0, at_most=INT64_MAX, doc="Minimum time before a record is compacted."
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        default=INT64_MAX, at_least=1, at_most=INT64_MAX, doc="Maximum time before a record is compacted."
    )
    producer_id_expiration_ms: int = key(
        default=86_400_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Idle time after which the state of an idempotent producer is dropped.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        default=600_000, at_least=1, at_most=INT64_MAX, doc="How often the broker checks for idle producers."
    )

    # --- Groups ---

    group_initial_rebalance_delay_ms: int = key(
        default=3_000,
        at_least=0,
        at_most=INT32_MAX,
        doc="How long an empty group waits for further members before its first rebalance.",
    )
    group_min_session_timeout_ms: int = key(
        default=6_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Minimum session timeout that a member may request.",
    )
    group_max_session_timeout_ms: int = key(
        default=1_800_000, at_least=1, at_most=INT32_MAX, doc="Maximum session timeout that a member may request."
    )
    group_max_size: int = key(
        default=INT32_MAX, at_least=1, at_most=INT32_MAX, doc="Maximum number of members in a group."
    )
    offsets_topic_num_partitions: int = key(
        default=50, at_least=1, at_most=INT32_MAX, doc="Partitions of the offsets topic."
    )
    offsets_topic_replication_factor: int = key(
        default=3, at_least=1, at_most=32767, doc="Replicas of the offsets topic; fewer if there are fewer brokers."
    )
    offsets_topic_segment_bytes: int = key(
        default=100 * 2**20, at_least=1, at_most=INT32_MAX, doc="Segment size of the offsets topic."
    )
    offsets_retention_check_interval_ms: int = key(
        default=600_000, at_least=1, at_most=INT64_MAX, doc="How often the broker checks for expired offsets."
    )
    offsets_commit_timeout_ms: int = key(
        default=5_000, at_least=1, at_most=INT32_MAX, doc="Timeout for the replication of an offset commit."
    )
    offset_metadata_max_bytes: int = key(
        default=4096, at_least=0, at_most=INT32_MAX, doc="Maximum bytes of metadata in a committed offset."
    )
    offsets_retention_minutes: int = key(
        default=10_080, at_least=1, at_most=INT32_MAX, doc="How long the offsets of an empty group are kept."
    )

    @classmethod
    def of_profile(cls, profile: str, mapping: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> BrokerConfig:
        """The given settings over a profile's defaults. Raises KafkaConfigurationError."""
        return cls._resolve_over(PROFILES[check_profile(profile)], f"profile {profile}", mapping, keywords, {})

    def check_dynamic(self, texts: Mapping[str, str]) -> None:
        """Raise KafkaConfigurationError unless these keys can be changed to these values while a broker runs."""
        fixed = sorted(name for name in texts if name in self._names and self._names[name].attribute not in DYNAMIC)
        if fixed:
            raise KafkaConfigurationError(
                f"{', '.join(fixed)} can't be changed while a broker runs; restart it with the new value"
            )
        type(self).resolve_from(texts, {}, {})

    def with_dynamic(self, of_all: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        """The configuration with the dynamic values of all brokers and of this one. The latter take precedence."""
        texts = {self._names[name].name: text for name, text in {**of_all, **own}.items() if name in self._names}
        if not texts:
            return self
        given = type(self).resolve_from(texts, {}, {})
        names = {self._names[name].name for name in own if name in self._names}
        origins = {name: DYNAMIC_OWN if name in names else DYNAMIC_OF_ALL for name in texts}
        return self._replaced({self._names[name].attribute: given[name] for name in texts}, origins)

    @property
    def request_memory_per_thread(self) -> int:
        """The share of `queued.max.request.bytes` per network thread."""
        size_bytes = self.queued_max_request_bytes
        return INT64_MAX if size_bytes < 0 else size_bytes // self.num_network_threads

    @property
    def given(self) -> frozenset[str]:
        """The names of the keys that the user has set."""
        return frozenset(name for name, origin in self.origins.items() if not origin.startswith(("default", "profile")))

    def protocol_of(self, listener: str) -> str:
        """The security protocol of a listener."""
        return protocols_of(self.listener_security_protocol_map)[listener]

    def max_connections_of(self, address: str) -> int:
        """The most connections that an address may have."""
        for entry in self.max_connections_per_ip_overrides:
            name, _, count = entry.rpartition(":")
            if name == address:
                return int(count)
        return self.max_connections_per_ip

    def topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """A topic's configuration: its own keys (dotted names), with this broker's as defaults. Raises
        KafkaConfigurationError."""
        # Cached: most topics of a cluster have the same configuration, and a thousand may be created at once.
        return _topic_config(tuple(map(self.default_of_topics, DEFAULTS_OF_TOPICS)), tuple(overrides.items()))

    def default_of_topics(self, attribute: str) -> Any:
        """This broker's default for a topic-level key (an attribute of `TopicConfig`)."""
        for own, unit in DEFAULTS_OF_TOPICS[attribute]:
            value = getattr(self, own)
            if value is not None:
                # A negative value means "never" in every unit.
                return value if unit == 1 or value < 0 else value * unit
        raise LookupError(attribute)


@lru_cache(maxsize=64)
def _topic_config(broker_values: tuple[Any, ...], overrides: tuple[tuple[str, Any], ...]) -> TopicConfig:
    defaults = dict(zip(DEFAULTS_OF_TOPICS, broker_values, strict=True))
    for name, _ in overrides:
        defaults.pop(name.replace(".", "_"), None)
    return TopicConfig.resolve_from({**defaults, **dict(overrides)}, {}, {})
