"""The producer's configuration: the one table of its keys, with Kafka 4's names, defaults and ranges.

docs/configuration.md is generated from it (docs/generate.py). A key stands here only when something acts on it; keys
of other clients that are refused are in LEFT_OUT with the reason.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..network.addresses import Address
from ..network.config import INT32_MAX, Config, key
from ..network.protocol.errors import KafkaConfigurationError
from ..network.records.compression import Compression
from ..network.records.compression_config import configured_level, level_key, level_key_names
from .config_rules import (
    RULES,
    check_client_id,
    parse_acks,
    parse_bootstrap_servers,
    parse_pluggable,
    parse_plugins,
    parse_retries,
    show_acks,
    show_addresses,
)

# --- Keys of others ---

_TRANSACTIONS = "transactions are not there yet"
_SECURITY = "TLS and SASL are not there yet; only security.protocol=PLAINTEXT is"
_METRICS = "what is measured costs little enough to be measured always"
_INTERNAL = "it replaces a part inside kafka-python that doesn't exist here"
_PROXY = "connections through a proxy are not there yet"

LEFT_OUT = {
    "transactional.id": _TRANSACTIONS,
    "transaction.timeout.ms": _TRANSACTIONS,
    "transaction.two.phase.commit.enable": _TRANSACTIONS,
    "ssl.*": _SECURITY,
    "sasl.*": _SECURITY,
    "security.providers": "it names Java security providers, which need the JVM",
    "metrics.recording.level": _METRICS,
    "enable.metrics.push": "brokers can't ask this client for metrics (KIP-714)",
    "auto.include.jmx.reporter": "JMX needs the JVM",
    "config.providers": "they are Java classes and need the JVM; environment variables hold what no file should",
    "automatic.config.providers": "config providers are Java classes and need the JVM",
    "bootstrap.resolve.timeout.ms": "no time is set for the names of bootstrap servers (KIP-909): whoever waits for "
    "metadata is told at once that none can be resolved, and they are resolved again as long as the producer lives",
    "metadata.cluster.check.enable": "brokers are not told which cluster and node they are taken for (KIP-1242)",
    "socket.options": "TCP_NODELAY and SO_KEEPALIVE are set already; send.buffer.bytes and receive.buffer.bytes set "
    "the buffers",
    "kafka.client": _INTERNAL,
    "net": _INTERNAL,
    "selector": _INTERNAL,
    "bootstrap.topics.filter": _INTERNAL,
    "sock.chunk.bytes": _INTERNAL,
    "sock.chunk.buffer.count": _INTERNAL,
    "proxy.url": _PROXY,
    "socks5.proxy": _PROXY,
    "metadata.broker.list": "that is librdkafka's name; Kafka's is bootstrap.servers",
    "message.timeout.ms": "that is librdkafka's name; Kafka's is delivery.timeout.ms",
    "message.max.bytes": "that is librdkafka's name; Kafka's is max.request.size",
    "message.send.max.retries": "that is librdkafka's name; Kafka's is retries",
    "queue.buffering.max.ms": "that is librdkafka's name; Kafka's is linger.ms",
    "queue.buffering.max.kbytes": "that is librdkafka's name; Kafka's is buffer.memory, in bytes",
    "queue.buffering.max.messages": "buffer.memory bounds the bytes that wait; their number has no bound of its own",
    "request.required.acks": "that is librdkafka's name; Kafka's is acks",
    "compression.codec": "that is librdkafka's name; Kafka's is compression.type",
    "compression.level": f"that is librdkafka's name; Kafka's are {level_key_names()}",
    "max.in.flight": "that is librdkafka's name; Kafka's is max.in.flight.requests.per.connection",
    "socket.timeout.ms": "that is librdkafka's name; Kafka's is request.timeout.ms",
}

WITHOUT_EFFECT = {
    "api.version": "versions are negotiated on each connection",
    "api.version.auto.timeout.ms": "versions are negotiated on each connection",
    "bootstrap.timeout.ms": "the constructor doesn't wait for the network, and max.block.ms bounds the calls that do",
    "default.api.timeout.ms": "max.block.ms bounds every call that blocks",
    "metrics.enabled": _METRICS,
}

#: The defaults of kafka-python (2 and 3) for keys of LEFT_OUT and WITHOUT_EFFECT. Programs that start from a copy of
#: its `DEFAULT_CONFIG` pass them all, and ask for nothing by that.
KAFKA_PYTHON_DEFAULTS: dict[str, Callable[[Any], bool]] = {
    "transaction.timeout.ms": lambda given: given == 60_000,
    "ssl.check.hostname": lambda given: given is True,
    "sasl.kerberos.service.name": lambda given: given == "kafka",
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


# --- The table ---


def _level(codec: Compression) -> Any:
    return level_key(codec, doc=f"The level for `compression.type={codec.label}`.")


class ProducerConfig(
    Config,
    env_prefix="HEADRACE_",
    listed_in="docs/configuration.md",
    rules=RULES,
    left_out=LEFT_OUT,
    without_effect=WITHOUT_EFFECT,
    carried_along=KAFKA_PYTHON_DEFAULTS,
):
    """The producer's configuration in force. Frozen; `origins` says where each value came from."""

    # --- Where the cluster is, and who we are ---

    bootstrap_servers: tuple[Address, ...] = key(
        default=(),
        importance="high",
        parse=parse_bootstrap_servers,
        allowed="host:port texts, in a list or separated by commas; without the port it is 9092",
        show=show_addresses,
        default_text="none: it has to be given",
        doc="The brokers to ask first; the others are learnt from them. Two or three are enough, so that one may be "
        "down. An IPv6 address goes in brackets: `[::1]:9092`.",
    )
    client_id: str = key(
        default="",
        importance="medium",
        none_means="",
        check=check_client_id,
        default_text="`producer-<n>`, counting in the process",
        doc="A name for this producer, which brokers put into their logs and quotas and which this client puts into "
        "its own log lines.",
    )
    client_rack: str = key(
        default="",
        importance="low",
        none_means="",
        doc="Where this client stands, in the words of the brokers' `broker.rack`: a rack, or a cloud's availability "
        "zone. `partitioner.rack.aware` needs it.",
    )
    client_dns_lookup: str = key(
        default="use_all_dns_ips",
        importance="medium",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        doc="`use_all_dns_ips`: of a name with several addresses each is tried in turn until one connects, and the "
        "name is resolved again once all were used. `resolve_canonical_bootstrap_servers_only`: the same, but each "
        "bootstrap address is first replaced by the canonical names behind it, which Kerberos set-ups may need.",
    )
    security_protocol: str = key(
        default="PLAINTEXT",
        importance="medium",
        choices=("PLAINTEXT",),
        allowed="PLAINTEXT (TLS and SASL are not there yet)",
        doc="How to talk to the brokers: so far unencrypted and unauthenticated only.",
    )

    # --- What is promised for a record ---

    acks: int = key(
        default=-1,
        importance="low",
        parse=parse_acks,
        allowed="0, 1, all or -1 (which is all)",
        show=show_acks,
        doc="Whose word counts a record as written. `all`: the leader's, after every in-sync replica has the record, "
        "so that it survives as long as one of them does. `1`: the leader's alone; a record is lost when the leader "
        "dies before the followers fetched it. `0`: nobody's; the record counts as written when it is handed to the "
        "socket, its offset is unknown (-1) and nothing is retried.",
    )
    enable_idempotence: bool = key(
        default=True,
        importance="low",
        doc="Write each record exactly once and in order although requests are retried: brokers recognise a batch that "
        "they already have. Without it a retry after a lost answer may write a batch twice.",
    )
    delivery_timeout_ms: int = key(
        default=120_000,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The time within which a record is reported as written or failed. It covers the wait in the buffer, every "
        "attempt and every backoff, and is counted from the first record of the record's batch, as in the Java client. "
        "A record that joined its batch later therefore has less time from its own `send` on. A record fails earlier "
        "when retrying is hopeless.",
    )
    retries: int = key(
        default=INT32_MAX,
        at_least=0,
        at_most=INT32_MAX,
        importance="high",
        parse=parse_retries,
        allowed="a whole number, at least 0",
        doc="How often a batch is sent again after an error that may pass. Better left alone: `delivery.timeout.ms` "
        "ends the attempts in time. Without idempotence and with more than one request in flight, a retried batch may "
        "land behind a later one.",
    )
    max_in_flight_requests_per_connection: int = key(
        default=5,
        at_least=1,
        at_most=INT32_MAX,
        importance="low",
        doc="How many requests may be unanswered on one connection. Idempotence keeps the order with up to 5; without "
        "it only 1 does when something is retried.",
    )
    request_timeout_ms: int = key(
        default=30_000,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="How long to wait for the answer to one request. After that the connection is given up and the request is "
        "sent again, as far as `retries` and `delivery.timeout.ms` allow. It should be longer than the brokers' "
        "`replica.lag.time.max.ms`.",
    )
    retry_backoff_ms: int = key(
        default=100,
        at_least=0,
        importance="low",
        doc="The wait before a failed request is sent again for the first time. It doubles with each further failure, "
        "with 20 % of jitter either way.",
    )
    retry_backoff_max_ms: int = key(
        default=1000,
        at_least=0,
        importance="low",
        doc="Where the doubling of `retry.backoff.ms` ends.",
    )

    # --- Batches and memory ---

    batch_size: int = key(
        default=16_384,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The bytes that a batch for one partition is filled up to before it is sent; a larger record gets a batch "
        "of its own. Larger batches cost fewer requests and compress better. 0 sends every record alone.",
    )
    linger_ms: int = key(
        default=5,
        at_least=0,
        importance="medium",
        doc="How long a batch that isn't full waits for more records. It goes as soon as it is full, whatever is left "
        "of this time. 0 sends as soon as a request can take it.",
    )
    max_request_size: int = key(
        default=1_048_576,
        at_least=0,
        at_most=INT32_MAX,
        importance="medium",
        doc="The largest request in bytes, and with it the largest record, before compression. Brokers have a limit of "
        "their own for a batch (`message.max.bytes`).",
    )
    buffer_memory: int = key(
        default=33_554_432,
        at_least=0,
        importance="high",
        doc="The bytes that records may occupy until their batch is answered. When they are used up, `send` waits for "
        "up to `max.block.ms`. Compression and requests under way need some memory besides.",
    )
    max_block_ms: int = key(
        default=60_000,
        at_least=0,
        importance="medium",
        doc="How long `send` and `partitions_for` may block in all: for the topic's metadata and, in `send`, for room "
        "in the buffer. Time spent in serializers and partitioners doesn't count.",
    )
    compression_type: str = key(
        default="none",
        importance="high",
        choices=tuple(codec.label for codec in Compression),
        none_means="none",
        doc="How batches are compressed. Whole batches are, so larger batches compress better.",
    )
    compression_gzip_level: int = _level(Compression.GZIP)
    compression_lz4_level: int = _level(Compression.LZ4)
    compression_zstd_level: int = _level(Compression.ZSTD)

    # --- From objects to partitions ---

    key_serializer: Any = key(
        default=None,
        importance="high",
        none_means=None,
        parse=parse_pluggable,
        allowed="a name such as 'string' or 'json', a class, an instance or a callable",
        default_text="none: keys are bytes",
        doc="How a record's key becomes bytes: a built-in's name, a `Serializer` (class, instance or "
        "`package.module:Name`) or a callable that takes the key. See `headrace.producer.serializers`.",
    )
    value_serializer: Any = key(
        default=None,
        importance="high",
        none_means=None,
        parse=parse_pluggable,
        allowed="a name such as 'string' or 'json', a class, an instance or a callable",
        default_text="none: values are bytes",
        doc="How a record's value becomes bytes; like `key.serializer`.",
    )
    partitioner_class: Any = key(
        default=None,
        importance="medium",
        none_means=None,
        parse=parse_pluggable,
        allowed="a name such as 'round_robin', a class, an instance or a callable",
        aliases=("partitioner",),
        default_text="the built-in partitioning",
        doc="Who chooses the partition of a record that names none. The built-in partitioning puts equal keys into the "
        "same partition as the Java client does (murmur2), and fills batches of records without a key partition by "
        "partition (KIP-794). Otherwise a built-in's name, a `Partitioner` (class, instance or `package.module:Name`) "
        "or a callable. See `headrace.producer.partitioners`.",
    )
    partitioner_ignore_keys: bool = key(
        default=False,
        importance="medium",
        doc="Let the built-in partitioning treat records with a key like those without.",
    )
    partitioner_adaptive_partitioning_enable: bool = key(
        default=True,
        importance="low",
        doc="Let the built-in partitioning give more records without a key to partitions whose brokers are faster "
        "(those with shorter queues), instead of the same to all (KIP-794).",
    )
    partitioner_availability_timeout_ms: int = key(
        default=0,
        at_least=0,
        importance="low",
        doc="How long batches may wait for a broker before adaptive partitioning passes over its partitions. 0 never "
        "passes over any (KIP-794).",
    )
    partitioner_rack_aware: bool = key(
        default=False,
        importance="low",
        doc="Let the built-in partitioning put records without a key into partitions whose leader stands in "
        "`client.rack`, which spares traffic between racks; into others only while no such leader takes records. Where "
        "producers aren't spread over the racks as leaders are, partitions fill unevenly (KIP-1123). Kafka has this "
        "key since 4.4.",
    )
    interceptor_classes: tuple[Any, ...] = key(
        default=(),
        importance="low",
        none_means=(),
        parse=parse_plugins,
        allowed="instances, classes or `package.module:Name` texts, in a list; texts also separated by commas",
        doc="Interceptors, called in this order. See `headrace.producer.interceptors`.",
    )

    # --- Topics and brokers ---

    allow_auto_create_topics: bool = key(
        default=True,
        importance="medium",
        doc="Let the cluster create a topic that is asked for and doesn't exist, where the brokers' "
        "`auto.create.topics.enable` allows that. Kafka has this key for consumers only; its producers always do.",
    )
    metadata_max_age_ms: int = key(
        default=300_000,
        at_least=0,
        importance="low",
        doc="The age at which metadata is fetched anew although nothing asks for it, to notice new brokers and "
        "partitions.",
    )
    metadata_max_idle_ms: int = key(
        default=300_000,
        at_least=5000,
        importance="low",
        doc="How long a topic to which nothing is sent stays in the metadata.",
    )
    metadata_recovery_strategy: str = key(
        default="rebootstrap",
        importance="low",
        choices=("rebootstrap", "none"),
        doc="What to do when no broker of the last known metadata can be reached: `rebootstrap` starts again from "
        "`bootstrap.servers` (KIP-899), `none` goes on with the brokers it knows.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = key(
        default=300_000,
        at_least=0,
        importance="low",
        doc="With `metadata.recovery.strategy=rebootstrap`: how long no metadata may be obtained before the client "
        "starts again from `bootstrap.servers` (KIP-1102).",
    )

    # --- Connections ---

    socket_connection_setup_timeout_ms: int = key(
        default=10_000,
        at_least=1,
        importance="medium",
        doc="How long the first attempt to connect to a broker may take. It doubles with each attempt that fails, with "
        "20 % of jitter either way.",
    )
    socket_connection_setup_timeout_max_ms: int = key(
        default=30_000,
        at_least=1,
        importance="medium",
        doc="Where the doubling of `socket.connection.setup.timeout.ms` ends.",
    )
    reconnect_backoff_ms: int = key(
        default=50,
        at_least=0,
        importance="low",
        doc="The wait before a broker that was lost or not reached is connected again. It doubles with each failure, "
        "with 20 % of jitter either way.",
    )
    reconnect_backoff_max_ms: int = key(
        default=1000,
        at_least=0,
        importance="low",
        doc="Where the doubling of `reconnect.backoff.ms` ends.",
    )
    connections_max_idle_ms: int = key(
        default=540_000,
        at_least=-1,
        importance="medium",
        doc="How long a connection may be unused before it is closed; -1 keeps it. Brokers close theirs after 10 "
        "minutes.",
    )
    send_buffer_bytes: int = key(
        # not Kafka's 131072: of a request of four batches of that size the rest would wait for the broker to read
        default=-1,
        at_least=-1,
        at_most=INT32_MAX,
        importance="medium",
        none_means=-1,
        doc="The size of the sockets' send buffer (SO_SNDBUF); -1 leaves it to the operating system, which lets it "
        "grow with what the connection carries. Kafka's default, 131072, nearly halves what large batches reach.",
    )
    receive_buffer_bytes: int = key(
        default=32_768,
        at_least=-1,
        at_most=INT32_MAX,
        importance="medium",
        none_means=-1,
        doc="The size of the sockets' receive buffer (SO_RCVBUF); -1 leaves it to the operating system.",
    )
    receive_message_max_bytes: int = key(
        default=100_000_000,
        at_least=1000,
        at_most=INT32_MAX,
        importance="low",
        doc="The largest answer that is accepted from a broker; the connection is given up on a larger one. Kafka has "
        "no such key; the name is that of librdkafka and kafka-python.",
    )

    # --- What is measured ---

    metrics_sample_window_ms: int = key(
        default=30_000,
        at_least=1,
        importance="low",
        doc="How long a sample of a metric gathers observations. Averages, maxima and rates are those of the last "
        "`metrics.num.samples` samples.",
    )
    metrics_num_samples: int = key(
        default=2,
        at_least=1,
        at_most=1000,
        importance="low",
        doc="How many samples a metric keeps.",
    )
    metric_reporters: tuple[Any, ...] = key(
        default=(),
        importance="low",
        none_means=(),
        parse=parse_plugins,
        allowed="'prometheus', 'opentelemetry', instances, classes or `package.module:Name` texts, in a list; texts "
        "also separated by commas",
        doc="Where metrics are shown besides `producer.metrics()`: [Metrics](metrics.md) says how.",
    )

    @classmethod
    def resolve_from(
        cls, mapping: Mapping[str, Any] | None, keywords: Mapping[str, Any], environ: Mapping[str, str]
    ) -> ProducerConfig:
        """`Config.resolve_from`. Two ways of other clients to pass the configuration get an error of their own."""
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
        return super().resolve_from(mapping, keywords, environ)

    def __getitem__(self, name: str) -> Any:
        """The value of a key by any of its names, in a form that other clients take: addresses as `host:port` texts.

        Raises KeyError for another name, with the reason for a key that is not supported.
        """
        value = super().__getitem__(name)
        return [str(address) for address in value] if value is self.bootstrap_servers else value

    @property
    def compression(self) -> Compression:
        """The codec that `compression_type` names."""
        return Compression.labelled(self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """The level for `compression`; None where the codec has none."""
        return configured_level(self, self.compression)


#: Each key with its default, under the name that kafka-python has for it: programs start from a copy of kafka-python's
#: table of this name, or pick what to pass on from it.
DEFAULT_CONFIG: Mapping[str, Any] = MappingProxyType(
    {(*entry.aliases, entry.name)[0].replace(".", "_"): entry.default for entry in ProducerConfig.entries}
)
