"""A topic's configuration, by Kafka's topic-level names. The broker's defaults for it stand in `broker_config.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...network.config import INT32_MAX, INT64_MAX, Config, key
from ...network.config_values import parse_list
from ...network.records.compression import Compression
from ...network.records.compression_config import COMPRESSION_RULE, configured_level, level_key

CLEANUP_POLICIES = ("delete", "compact")
#: What `compression.type` may name beside `producer`.
CODECS: dict[str, Compression] = {
    "uncompressed" if codec is Compression.NONE else codec.label: codec for codec in Compression
}


class SegmentLimits(NamedTuple):
    """What makes a segment full (`segment.bytes`, `segment.ms`, `segment.jitter.ms`)."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int = 0


def codec_level_key(codec: Compression) -> Any:
    """The key of a codec's level, for topics and for brokers."""
    return level_key(codec, doc=f"The level where the broker compresses with {codec.label} (`compression.type`).")


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
    """What a topic may override. Frozen: a change makes a new instance, which the topic's logs then take."""

    segment_bytes: int = key(
        default=2**30,
        at_least=14,
        at_most=INT32_MAX,
        doc="Size at which a log begins a new segment.",
        importance="high",
    )
    segment_ms: int = key(
        default=7 * 86_400_000, at_least=1, at_most=INT64_MAX, doc="Age at which a log begins a new segment."
    )
    segment_jitter_ms: int = key(
        default=0,
        at_least=0,
        at_most=INT64_MAX,
        doc="A segment is rolled earlier than its age asks for, by a time drawn at random up to this.",
    )
    segment_index_bytes: int = key(
        default=10 * 2**20,
        at_least=12,
        at_most=INT32_MAX,
        doc="Most bytes of a segment's index; a full one ends the segment.",
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
        doc="Size of a partition beyond which segments are deleted; -1: none.",
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
        doc="Largest record batch that is accepted.",
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
        doc="In-sync replicas without which acks=all is refused.",
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
    flush_messages: int = key(
        default=INT64_MAX, at_least=1, at_most=INT64_MAX, doc="Records after which a log is forced to the disk."
    )
    flush_ms: int = key(
        default=INT64_MAX, at_least=0, at_most=INT64_MAX, doc="Time after which a log is forced to the disk."
    )
    file_delete_delay_ms: int = key(
        default=60_000, at_least=0, at_most=INT64_MAX, doc="How long the directory of a deleted partition stays."
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
        default=0, at_least=0, at_most=INT64_MAX, doc="How long a record stays uncompacted at least."
    )
    max_compaction_lag_ms: int = key(
        default=INT64_MAX, at_least=1, at_most=INT64_MAX, doc="How long a record stays uncompacted at most."
    )
    unclean_leader_election_enable: bool = key(
        default=False, doc="Whether a replica that may lack acknowledged records may lead when no other is left."
    )

    @property
    def segment_limits(self) -> SegmentLimits:
        # Compaction leaves the active segment alone, which must therefore end in time (KIP-354).
        segment_ms = min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
        return SegmentLimits(self.segment_bytes, segment_ms, self.segment_jitter_ms)

    @property
    def codec(self) -> Compression | None:
        """The codec of all batches; None: that of their producer."""
        return CODECS.get(self.compression_type)

    @property
    def codec_level(self) -> int | None:
        """The level for `codec`; None where it has none."""
        return None if self.codec is None else configured_level(self, self.codec)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    def texts(self) -> list[tuple[str, str]]:
        """Every topic-level key with its value as Kafka spells it."""
        return [
            (entry.name, config_text(getattr(self, entry.attribute)))
            for entry in self.entries
            if entry.name != "config.file"
        ]


def config_text(value: object) -> str:
    """A configuration value as Kafka spells it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
