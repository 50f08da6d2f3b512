"""A topic's configuration, with Kafka's topic-level names. `broker_config.py` has the broker's defaults for it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...network.config import INT32_MAX, INT64_MAX, Config, key
from ...network.config_values import parse_list
from ...network.records.compression import Compression
from ...network.records.compression_config import COMPRESSION_RULE, configured_level, level_key

CLEANUP_POLICIES = ("delete", "compact")
#: The codecs that `compression.type` may name, besides `producer`.
CODECS: dict[str, Compression] = {
    "uncompressed" if codec is Compression.NONE else codec.label: codec for codec in Compression
}


class SegmentLimits(NamedTuple):
    """The limits of a segment (`segment.bytes`, `segment.ms`, `segment.jitter.ms`)."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int = 0


def codec_level_key(codec: Compression) -> Any:
    """The key of a codec's compression level, for topics and for brokers."""
    return level_key(codec, doc=f"The level at which the broker compresses with {codec.label} (`compression.type`).")


def check_cleanup_policy(policies: tuple[str, ...]) -> str | None:
    return None if set(policies) <= set(CLEANUP_POLICIES) else "may hold delete and compact only"


class TopicConfig(
    Config,
    listed_in="docs/broker-configuration.md",
    rules=(COMPRESSION_RULE,),
    without_effect={
        "preallocate": "files grow as they are written",
        "leader.replication.throttled.replicas": "replication is never throttled",
        "follower.replication.throttled.replicas": "replication is never throttled",
        "message.downconversion.enable": "there is one message format",
        "message.format.version": "there is one message format",
        "local.retention.ms": "there is no remote storage",
        "local.retention.bytes": "there is no remote storage",
        "remote.log.copy.disable": "there is no remote storage",
        "remote.log.delete.on.disable": "there is no remote storage",
    },
    fixed={"remote.storage.enable": ("false", "there is no remote storage")},
):
    """The keys that a topic may override. Frozen: a change creates a new instance, which replaces that of the logs."""

    segment_bytes: int = key(
        default=2**30,
        at_least=14,
        at_most=INT32_MAX,
        doc="Size at which a log rolls a new segment.",
        importance="high",
    )
    segment_ms: int = key(
        default=7 * 86_400_000, at_least=1, at_most=INT64_MAX, doc="Age at which a log rolls a new segment."
    )
    segment_jitter_ms: int = key(
        default=0,
        at_least=0,
        at_most=INT64_MAX,
        doc="Upper bound of a random time by which a segment is rolled earlier.",
    )
    segment_index_bytes: int = key(
        default=10 * 2**20,
        at_least=12,
        at_most=INT32_MAX,
        doc="Largest index of a segment, in bytes; a full index ends the segment.",
    )
    index_interval_bytes: int = key(
        default=4096, at_least=0, at_most=INT32_MAX, doc="Bytes of log between two index entries."
    )
    retention_ms: int = key(
        default=7 * 86_400_000,
        at_least=-1,
        at_most=INT64_MAX,
        doc="Age at which segments are deleted; -1: never.",
        importance="high",
    )
    retention_bytes: int = key(
        default=-1,
        at_least=-1,
        at_most=INT64_MAX,
        doc="Size of a partition beyond which segments are deleted; -1: unlimited.",
        importance="high",
    )
    cleanup_policy: tuple[str, ...] = key(
        default=("delete",),
        parse=parse_list,
        check=check_cleanup_policy,
        allowed="delete, compact, or both separated by a comma",
        show=",".join,
        doc="What happens to old segments: deleted by age and size, or compacted to the last value of each key.",
        importance="high",
    )
    max_message_bytes: int = key(
        default=2**20 + 12,
        at_least=0,
        at_most=INT32_MAX,
        doc="Largest record batch accepted, in bytes.",
        importance="high",
    )
    message_timestamp_type: str = key(
        default="CreateTime",
        choices=("CreateTime", "LogAppendTime"),
        doc="Whether records keep their producer's timestamp or get the time of the append.",
    )
    message_timestamp_before_max_ms: int = key(
        default=INT64_MAX,
        at_least=0,
        at_most=INT64_MAX,
        doc="How far behind the broker's clock a record's timestamp may be.",
    )
    message_timestamp_after_max_ms: int = key(
        default=3_600_000,
        at_least=0,
        at_most=INT64_MAX,
        doc="How far ahead of the broker's clock a record's timestamp may be.",
    )
    min_insync_replicas: int = key(
        default=1,
        at_least=1,
        at_most=INT32_MAX,
        doc="With fewer in-sync replicas, acks=all is rejected.",
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
    flush_messages: int = key(
        default=INT64_MAX,
        at_least=1,
        at_most=INT64_MAX,
        doc="Number of records after which a log is flushed to the disk.",
    )
    flush_ms: int = key(
        default=INT64_MAX, at_least=0, at_most=INT64_MAX, doc="Time after which a log is flushed to the disk."
    )
    file_delete_delay_ms: int = key(
        default=60_000, at_least=0, at_most=INT64_MAX, doc="How long the directory of a deleted partition is kept."
    )
    delete_retention_ms: int = key(
        default=86_400_000,
        at_least=0,
        at_most=INT64_MAX,
        doc="How long compaction keeps a tombstone, so that readers see it.",
    )
    min_cleanable_dirty_ratio: float = key(
        default=0.5,
        parse=float,
        allowed="a number from 0 to 1",
        check=lambda ratio: None if 0 <= ratio <= 1 else "is not from 0 to 1",
        doc="Share of a log that must be uncompacted before compaction runs.",
    )
    min_compaction_lag_ms: int = key(
        default=0, at_least=0, at_most=INT64_MAX, doc="Minimum time before a record is compacted."
    )
    max_compaction_lag_ms: int = key(
        default=INT64_MAX, at_least=1, at_most=INT64_MAX, doc="Maximum time before a record is compacted."
    )
    unclean_leader_election_enable: bool = key(
        default=False,
        doc="Whether a replica that may lack acknowledged records may become leader if no in-sync replica is alive.",
    )

    @property
    def segment_limits(self) -> SegmentLimits:
        # Compaction skips the active segment, so that must be rolled in time (KIP-354).
        segment_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
        return SegmentLimits(self.segment_bytes, segment_ms, self.segment_jitter_ms)

    @property
    def codec(self) -> Compression | None:
        """The codec of all batches; None to keep the producer's."""
        return CODECS.get(self.compression_type)

    @property
    def codec_level(self) -> int | None:
        """The compression level for `codec`; None if the codec has none."""
        return None if self.codec is None else configured_level(self, self.codec)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    def texts(self) -> list[tuple[str, str]]:
        """Every topic-level key with its value in Kafka's spelling."""
        return [
            (entry.name, config_text(getattr(self, entry.attribute)))
            for entry in self.entries
            if entry.name != "config.file"
        ]


def config_text(value: object) -> str:
    """A configuration value in Kafka's spelling."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
