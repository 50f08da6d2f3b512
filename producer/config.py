"""The producer's configuration: a single table of keys, with Kafka 4's names, defaults and ranges.

docs/generate.py generates docs/configuration.md from it. The table holds only keys that have an effect. LEFT_OUT gives
the reason for each key of another client that is rejected.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..network.addresses import Address
from ..network.config import DEFAULT, INT32_MAX, Key, dotted, key
from ..network.protocol.errors import KafkaConfigurationError
from ..network.records.compression import Compression
from ..network.records.compression_config import configured_level, level_key, level_key_names
from ..network.security.client_config import ClientSecurityConfig
from .config_rules import (
    RULES,
    check_client_id,
    check_transactional_id,
    parse_acks,
    parse_bootstrap_servers,
    parse_pluggable,
    parse_plugins,
    parse_retries,
    show_acks,
    show_addresses,
)
from .peer_keys import LIBRDKAFKA_DROPPED, LIBRDKAFKA_NAMES

# --- Keys of other clients ---

_METRICS = "metrics are cheap enough to be always on"
_INTERNAL = "it replaces an internal part of kafka-python that doesn't exist here"
_PROXY = "connections through a proxy are not supported yet"

LEFT_OUT = {
    "transaction.two.phase.commit.enable": "no release of Kafka supports two-phase commit yet (KIP-939)",
    "security.providers": "it names Java security providers, which need the JVM",
    "metrics.recording.level": _METRICS,
    "auto.include.jmx.reporter": "JMX needs the JVM",
    "config.providers": "they are Java classes and need the JVM; keep secrets in environment variables instead",
    "automatic.config.providers": "config providers are Java classes and need the JVM",
    "bootstrap.resolve.timeout.ms": "resolving bootstrap servers has no timeout (KIP-909): if no name resolves, calls "
    "that wait for metadata fail immediately, and the producer keeps trying to resolve the names until it is closed",
    "metadata.cluster.check.enable": "requests do not name the expected cluster and node (KIP-1242)",
    "socket.options": "TCP_NODELAY and SO_KEEPALIVE are already set; set the buffers with send.buffer.bytes and "
    "receive.buffer.bytes",
    "kafka.client": _INTERNAL,
    "net": _INTERNAL,
    "selector": _INTERNAL,
    "bootstrap.topics.filter": _INTERNAL,
    "sock.chunk.bytes": _INTERNAL,
    "sock.chunk.buffer.count": _INTERNAL,
    "proxy.url": _PROXY,
    "socks5.proxy": _PROXY,
    **{dotted(name): reason for name, reason in LIBRDKAFKA_DROPPED.items()},
    **{name: renamed.reason for name, renamed in LIBRDKAFKA_NAMES.items()},
    "compression.level": f"that is librdkafka's name; Kafka's are {level_key_names()}",
}

WITHOUT_EFFECT = {
    "api.version": "versions are negotiated on each connection",
    "api.version.auto.timeout.ms": "versions are negotiated on each connection",
    "bootstrap.timeout.ms": "the constructor doesn't wait for the network, and max.block.ms bounds the calls that do",
    "default.api.timeout.ms": "max.block.ms bounds every call that blocks",
    "metrics.enabled": _METRICS,
}

#: Recognizes the defaults of kafka-python 2 and 3 for keys of LEFT_OUT and WITHOUT_EFFECT. A program that starts from
#: a copy of kafka-python's `DEFAULT_CONFIG` passes them all, so they are ignored.
KAFKA_PYTHON_DEFAULTS: dict[str, Callable[[Any], bool]] = {
    "socket.options": lambda given: given == [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    "selector": lambda given: given is selectors.DefaultSelector,
    "kafka.client": lambda given: isinstance(given, type) and given.__module__.partition(".")[0] == "kafka",
    "bootstrap.topics.filter": lambda given: given == set(),
    "sock.chunk.bytes": lambda given: given == 4096,
    "sock.chunk.buffer.count": lambda given: given == 1000,
    "api.version.auto.timeout.ms": lambda given: given == 2000,
    "bootstrap.timeout.ms": lambda given: given == 30_000,
    "metrics.enabled": lambda given: given is True,
}


#: The defaults of `AsyncKafkaProducer` that are not those of the table.
_ASYNC_DEFAULTS = {"linger.ms": 0}

# --- The table ---


def _level(codec: Compression) -> Any:
    return level_key(codec, doc=f"The compression level for `compression.type={codec.label}`.")


class ProducerConfig(
    ClientSecurityConfig,
    env_prefix="HEADRACE_",
    listed_in="docs/configuration.md",
    rules=RULES,
    left_out=LEFT_OUT,
    without_effect=WITHOUT_EFFECT,
    carried_along=KAFKA_PYTHON_DEFAULTS,
):
    """The producer's configuration in effect. Frozen; `origins` names the source of each value."""

    # --- The cluster and the client ---

    bootstrap_servers: tuple[Address, ...] = key(
        default=(),
        importance="high",
        parse=parse_bootstrap_servers,
        accepts="str | Collection[str | tuple[str, int]]",
        allowed="host:port strings, as a list or separated by commas; the default port is 9092",
        show=show_addresses,
        default_text="none; required",
        doc="The brokers used to discover the cluster. The client learns the other brokers from them, so list only "
        "two or three, in case one is down. Put an IPv6 address in brackets: `[::1]:9092`.",
    )
    client_id: str = key(
        default="",
        importance="medium",
        none_means="",
        check=check_client_id,
        default_text="`producer-<n>`, numbered per process",
        doc="A name for this producer, which appears in the brokers' logs and quotas and in this client's logs and "
        "metrics.",
    )
    client_rack: str = key(
        default="",
        importance="low",
        none_means="",
        doc="The rack or availability zone this client is in, as in the brokers' `broker.rack`. Required by "
        "`partitioner.rack.aware`.",
    )
    client_dns_lookup: str = key(
        default="use_all_dns_ips",
        importance="medium",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        doc="How host names are resolved. `use_all_dns_ips`: if a name has several addresses, try each in turn until "
        "one connects, and resolve the name again after all have been tried. "
        "`resolve_canonical_bootstrap_servers_only`: the same, but first replace each bootstrap address with "
        "its canonical names, which Kerberos may require.",
    )

    # --- Delivery guarantees ---

    acks: int = key(
        default=-1,
        importance="low",
        parse=parse_acks,
        accepts='Literal["all", -1, 0, 1] | int | str',
        allowed="0, 1, all or -1 (the same as all)",
        show=show_acks,
        doc="The acknowledgement required before a record counts as written. `all`: the leader responds after every "
        "in-sync replica has the record, so the record survives as long as one of them does. `1`: the leader responds "
        "after writing the record itself; the record is lost if the leader fails before a follower fetches it. `0`: "
        "no acknowledgement; the record counts as written once it is handed to the socket, its offset is unknown "
        "(-1), and failures are not retried.",
    )
    enable_idempotence: bool = key(
        default=True,
        importance="low",
        doc="Whether each record is written exactly once and in order, even if requests are retried: brokers detect "
        "batches they already have. Without idempotence, a retry after a lost response may write a batch twice.",
    )
    transactional_id: str | None = key(
        default=None,
        importance="low",
        none_means=None,
        check=check_transactional_id,
        doc="The name under which this producer writes transactions; None: none. A producer that calls "
        "`init_transactions` with the same id aborts what an earlier one left unfinished, and fences that producer. "
        "Each producer that runs at the same time needs an id of its own: see `docs/transactions.md`. It needs Kafka "
        "0.11 or later.",
    )
    transaction_timeout_ms: int = key(
        default=60_000,
        at_least=1,
        at_most=INT32_MAX,
        importance="low",
        doc="The maximum time that a transaction may stay open before the transaction coordinator aborts it. The "
        "brokers' `transaction.max.timeout.ms` limits it (15 minutes by default); `init_transactions` raises "
        "InvalidTransactionTimeoutError for more.",
    )
    delivery_timeout_ms: int = key(
        default=120_000,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The maximum time until a record is reported as written or failed. It covers queueing, all attempts and "
        "all backoffs, and starts with the first record of the batch, as in the Java client. A batch accepts no more "
        "records once it is older than both `linger.ms` and a tenth of this timeout, so each record has at least nine "
        "tenths of the timeout, or the timeout minus `linger.ms` if that is less. A record may fail earlier if an "
        "error cannot be retried. A batch is not sent if its response is not expected in time, judging by the "
        "broker's recent responses; an overloaded broker thus gets no records that would fail anyway.",
    )
    retries: int = key(
        default=INT32_MAX,
        at_least=0,
        at_most=INT32_MAX,
        importance="high",
        parse=parse_retries,
        accepts="int | float",
        allowed="a whole number, at least 0",
        doc="The maximum number of retries of a batch after a retriable error. Leave it at the default and limit "
        "retrying by `delivery.timeout.ms`. Without idempotence and with more than one request in flight, a retried "
        "batch may be written after a later one.",
    )
    max_in_flight_requests_per_connection: int = key(
        default=5,
        at_least=1,
        at_most=INT32_MAX,
        importance="low",
        doc="The maximum number of requests in flight per connection. With idempotence, up to 5 preserve the order of "
        "records. Without it, retries may reorder records unless this is 1.",
    )
    request_timeout_ms: int = key(
        default=30_000,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The maximum time to wait for the response to a request. After that the client closes the connection and "
        "retries the request, within `retries` and `delivery.timeout.ms`. Set it higher than the brokers' "
        "`replica.lag.time.max.ms`.",
    )
    retry_backoff_ms: int = key(
        default=100,
        at_least=0,
        importance="low",
        doc="The time to wait before the first retry of a request. It doubles with each further failure, with 20 % "
        "jitter either way.",
    )
    retry_backoff_max_ms: int = key(
        default=1000,
        at_least=0,
        importance="low",
        doc="The limit up to which the backoff of `retry.backoff.ms` grows.",
    )

    # --- Batches and memory ---

    batch_size: int = key(
        default=16_384,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The size from which a batch for one partition is ready to be sent without waiting for `linger.ms`, in "
        "bytes. 0 sends every record in its own batch.",
    )
    batch_max_size: int = key(
        default=524_288,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The size up to which a batch that is ready grows while it can't be sent yet, in bytes (KIP-782). Larger "
        "batches need fewer requests and compress better. At most `batch.size` above 0, batches don't grow. At most "
        "`max.request.size` is used.",
    )
    linger_ms: int = key(
        default=5,
        at_least=0,
        importance="medium",
        doc="The time a batch waits for more records before it is sent. A full batch is sent without waiting. With 0, "
        "a batch is sent as soon as a request can carry it. The default of `AsyncKafkaProducer` is 0: tasks that await "
        "their records would wait for it each time.",
    )
    max_request_size: int = key(
        default=1_048_576,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The maximum size of a request in bytes, and of a single record before compression. Brokers limit batches "
        "separately (`message.max.bytes`).",
    )
    buffer_memory: int = key(
        default=33_554_432,
        at_least=0,
        importance="high",
        doc="The bytes of memory for records that are not acknowledged yet. When it is exhausted, `send` blocks for "
        "up to `max.block.ms`. Compression and requests in flight need some additional memory.",
    )
    max_block_ms: int = key(
        default=60_000,
        at_least=0,
        importance="medium",
        doc="The maximum time `send` and `partitions_for` block in total: for the topic's metadata and, in `send`, "
        "for buffer memory. Time spent in serializers and partitioners doesn't count.",
    )
    compression_type: str = key(
        default="none",
        importance="high",
        choices=tuple(codec.label for codec in Compression),
        none_means="none",
        doc="The compression codec. It compresses whole batches, so larger batches compress better.",
    )
    compression_gzip_level: int = _level(Compression.GZIP)
    compression_lz4_level: int = _level(Compression.LZ4)
    compression_zstd_level: int = _level(Compression.ZSTD)

    # --- Serialization and partitioning ---

    key_serializer: Any = key(
        default=None,
        importance="high",
        none_means=None,
        parse=parse_pluggable,
        accepts="str | Callable[..., Any] | HasSerialize",
        allowed="a name such as 'string' or 'json', a class, an instance or a callable",
        default_text="none; keys must be bytes",
        doc="Converts a record's key to bytes: the name of a built-in serializer, a `Serializer` (class, instance or "
        "`package.module:Name`), or a callable that takes the key, such as those of `headrace.registry`. See "
        "`headrace.producer.serializers`.",
    )
    value_serializer: Any = key(
        default=None,
        importance="high",
        none_means=None,
        parse=parse_pluggable,
        accepts="str | Callable[..., Any] | HasSerialize",
        allowed="a name such as 'string' or 'json', a class, an instance or a callable",
        default_text="none; values must be bytes",
        doc="Converts a record's value to bytes. Takes the same values as `key.serializer`.",
    )
    partitioner_class: Any = key(
        default=None,
        importance="medium",
        none_means=None,
        parse=parse_pluggable,
        accepts="str | Callable[..., Any] | HasPartition",
        allowed="a name such as 'round_robin', a class, an instance or a callable",
        aliases=("partitioner",),
        default_text="the built-in partitioner",
        doc="Chooses the partition of a record that names none: the name of a built-in partitioner, a `Partitioner` "
        "(class, instance or `package.module:Name`), or a callable. By default, records with the same key go to the "
        "same partition, which is the one the Java client chooses (murmur2), and records without a key fill a batch "
        "for one partition before moving on to another (KIP-794). See `headrace.producer.partitioners`.",
    )
    partitioner_ignore_keys: bool = key(
        default=False,
        importance="medium",
        doc="Whether the built-in partitioner ignores keys, as if no record had any.",
    )
    partitioner_adaptive_partitioning_enable: bool = key(
        default=True,
        importance="low",
        doc="Whether the built-in partitioner sends more records without a key to partitions on faster brokers, which "
        "have shorter queues. If false, it distributes them evenly (KIP-794).",
    )
    partitioner_availability_timeout_ms: int = key(
        default=0,
        at_least=0,
        importance="low",
        doc="The time batches may wait for a broker before adaptive partitioning avoids the broker's partitions "
        "(KIP-794). 0 disables the check.",
    )
    partitioner_rack_aware: bool = key(
        default=False,
        importance="low",
        doc="Whether the built-in partitioner sends records without a key to partitions whose leader is in "
        "`client.rack`, which reduces traffic between racks. It uses other partitions only while no leader in that "
        "rack is available. If producers are not spread over the racks as leaders are, partitions fill unevenly "
        "(KIP-1123, Kafka 4.4).",
    )
    interceptor_classes: tuple[Any, ...] = key(
        default=(),
        importance="low",
        none_means=(),
        parse=parse_plugins,
        accepts="str | Sequence[object]",
        allowed="a list of 'opentelemetry', instances, classes or `package.module:Name` strings; strings also "
        "separated by commas",
        doc="The interceptors, called in this order. See `headrace.producer.interceptors`. `opentelemetry` traces the "
        "sends, see [Tracing](tracing.md).",
    )

    # --- Topics and brokers ---

    allow_auto_create_topics: bool = key(
        default=True,
        importance="medium",
        doc="Whether requesting metadata of a missing topic creates the topic, if the brokers' "
        "`auto.create.topics.enable` allows it. In Kafka this key exists only for consumers; its producers always "
        "allow it.",
    )
    metadata_max_age_ms: int = key(
        default=300_000,
        at_least=0,
        importance="low",
        doc="The time after which metadata is refreshed even if nothing requests it, to discover new brokers and "
        "partitions.",
    )
    metadata_max_idle_ms: int = key(
        default=300_000,
        at_least=5000,
        importance="low",
        doc="The time after which a topic that receives no records is dropped from the metadata.",
    )
    metadata_recovery_strategy: str = key(
        default="rebootstrap",
        importance="low",
        choices=("rebootstrap", "none"),
        doc="What the client does if none of the known brokers is reachable. `rebootstrap`: start again from "
        "`bootstrap.servers` (KIP-899). `none`: keep trying the known brokers.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = key(
        default=300_000,
        at_least=0,
        importance="low",
        doc="The time without a successful metadata response after which the client starts again from "
        "`bootstrap.servers` (KIP-1102). Applies only with `metadata.recovery.strategy=rebootstrap`.",
    )

    # --- Connections ---

    socket_connection_setup_timeout_ms: int = key(
        default=10_000,
        at_least=1,
        importance="medium",
        doc="The maximum time to wait for a connection to a broker to be established. It doubles with each failed "
        "attempt, with 20 % jitter either way.",
    )
    socket_connection_setup_timeout_max_ms: int = key(
        default=30_000,
        at_least=1,
        importance="medium",
        doc="The limit up to which `socket.connection.setup.timeout.ms` grows.",
    )
    reconnect_backoff_ms: int = key(
        default=50,
        at_least=0,
        importance="low",
        doc="The time to wait before reconnecting to a broker. It doubles with each failed attempt, with 20 % jitter "
        "either way.",
    )
    reconnect_backoff_max_ms: int = key(
        default=1000,
        at_least=0,
        importance="low",
        doc="The limit up to which the backoff of `reconnect.backoff.ms` grows.",
    )
    connections_max_idle_ms: int = key(
        default=540_000,
        at_least=-1,
        importance="medium",
        doc="The time after which an idle connection is closed; -1 keeps it open. Brokers close idle connections "
        "after 10 minutes.",
    )
    send_buffer_bytes: int = key(
        # Not Kafka's 131072: the rest of a larger request would wait for the broker to read the first part.
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        importance="medium",
        none_means=-1,
        doc="The size of the TCP send buffer (SO_SNDBUF); -1 uses the operating system's default, which grows with "
        "the throughput of the connection. Kafka's default, 131072, nearly halves the throughput of large batches.",
    )
    receive_buffer_bytes: int = key(
        default=32_768,
        at_least=-1,
        at_most=INT32_MAX,
        importance="medium",
        none_means=-1,
        doc="The size of the TCP receive buffer (SO_RCVBUF); -1 uses the operating system's default.",
    )
    receive_message_max_bytes: int = key(
        default=100_000_000,
        at_least=1000,
        at_most=INT32_MAX,
        importance="low",
        doc="The maximum size of a response from a broker. A larger response closes the connection. Kafka has no such "
        "key; the name comes from librdkafka and kafka-python.",
    )

    # --- Metrics ---

    metrics_sample_window_ms: int = key(
        default=30_000,
        at_least=1,
        importance="low",
        doc="The time window of a metrics sample. Averages, maxima and rates are computed over the last "
        "`metrics.num.samples` samples.",
    )
    metrics_num_samples: int = key(
        default=2,
        at_least=1,
        at_most=1000,
        importance="low",
        doc="The number of samples kept per metric.",
    )
    metric_reporters: tuple[Any, ...] = key(
        default=(),
        importance="low",
        none_means=(),
        parse=parse_plugins,
        accepts="str | Sequence[object]",
        allowed="a list of 'prometheus', 'opentelemetry', instances, classes or `package.module:Name` strings; strings "
        "also separated by commas",
        doc="The reporters that export metrics, in addition to `producer.metrics()`. See [Metrics](metrics.md).",
    )
    enable_metrics_push: bool = key(
        default=True,
        importance="low",
        doc="Whether brokers that ask for this producer's metrics get them (KIP-714); most don't ask. It needs "
        "`pip install 'headrace[telemetry]'`: without it nothing is pushed, with one warning per process if a broker "
        "asks or the key is set. See [Metrics](metrics.md#client-telemetry).",
    )

    @classmethod
    def resolve_async(cls, mapping: Mapping[str, Any] | None = None, /, **keywords: Any) -> ProducerConfig:
        """`resolve`, with the defaults of `AsyncKafkaProducer`. Raises what `resolve` raises."""
        return cls._resolve_over(_ASYNC_DEFAULTS, DEFAULT, mapping, keywords, os.environ)

    @classmethod
    def _resolve_over(
        cls,
        defaults: Mapping[str, Any],
        defaults_origin: str,
        mapping: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> ProducerConfig:
        """`Config._resolve_over`, with specific errors for two ways in which other clients pass the configuration."""
        if isinstance(mapping, (str, list, tuple)):
            example = repr("localhost:9092") if "@" in repr(mapping) else repr(mapping)
            raise KafkaConfigurationError(
                f"the configuration is a {type(mapping).__name__}, not a dict of keys; addresses of brokers go into "
                f"bootstrap_servers: KafkaProducer(bootstrap_servers={example})"
            )
        if isinstance(keywords.get("config"), Mapping):
            raise KafkaConfigurationError(
                "config is not a configuration key; pass the dict of keys as the first argument, KafkaProducer({...}), "
                "or as keywords, KafkaProducer(**{...})"
            )
        return super()._resolve_over(defaults, defaults_origin, mapping, keywords, environ)

    def __getitem__(self, name: str) -> Any:
        """The value of a key by any of its names, with addresses as `host:port` strings, which other clients accept.

        Raises KeyError for any other name, with the reason if the key is not supported.
        """
        value = super().__getitem__(name)
        return [str(address) for address in value] if value is self.bootstrap_servers else value

    @property
    def compression(self) -> Compression:
        """The codec that `compression_type` names."""
        return Compression.labelled(self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """The level for `compression`; None if the codec has no levels."""
        return configured_level(self, self.compression)


#: The aliases that are kafka-python's; the others are librdkafka's and aiokafka's.
_KAFKA_PYTHON_ALIASES = frozenset(
    {
        *("partitioner", "sasl.plain.username", "sasl.plain.password", "ssl.cafile", "ssl.certfile", "ssl.keyfile"),
        *("ssl.password", "ssl.ciphers", "ssl.check.hostname"),
    }
)


def _kafka_python_name(entry: Key) -> str:
    theirs = next((name for name in entry.aliases if name in _KAFKA_PYTHON_ALIASES), entry.name)
    return theirs.replace(".", "_")


#: The default of each key, under kafka-python's name for the key. Programs written for kafka-python copy its table of
#: this name, or filter their settings by it.
DEFAULT_CONFIG: Mapping[str, Any] = MappingProxyType(
    {_kafka_python_name(entry): entry.default for entry in ProducerConfig.entries}
)
