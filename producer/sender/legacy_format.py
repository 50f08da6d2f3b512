"""Conversion of batches for old brokers: message sets before Kafka 0.11, no zstd before 2.1.

The slow path, once per attempt: the sealed batch is decoded and written in the old format. That takes additional
memory while the request is in flight; a message takes about 27 bytes more than a record of format v2.

Source: KIP-98, KIP-110 and Kafka's RecordsUtil.downConvert, ProduceRequest.validateRecords.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ...network.client.api_versions import NodeApiVersions
from ...network.protocol.errors import (
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from ...network.protocol.messages.records.produce import ProduceRequest
from ...network.records.batch import RecordBatch, joined
from ...network.records.compression import CODECS, Compression
from ..accumulator.batch_cy import ProducerBatch

#: The first version of Produce that accepts every batch unchanged: in format v2, with any codec.
FIRST_VERSION_WITH_ALL_BATCHES = max(
    ProduceRequest.FIRST_VERSION_WITH_RECORD_BATCHES, *(codec.first_produce_version for codec in CODECS.values())
)


def prepare() -> None:
    """Import what conversion to message sets needs, as `compression.prepare` does for a codec. Any thread."""
    from ...network.records import legacy  # noqa: F401, PLC0415 - only producers without idempotence need it


def needs_conversion(versions: NodeApiVersions | None) -> bool:
    """Whether a broker with these versions may not take every batch as it is."""
    produce = None if versions is None else versions.range_of(ProduceRequest.api_key)
    return produce is not None and produce[1] < FIRST_VERSION_WITH_ALL_BATCHES


def records_for(batch: ProducerBatch, versions: NodeApiVersions, level: int | None) -> Any:
    """Return a sealed batch in the newest format of a broker with these versions. Sender thread.

    `level`: the compression level of a converted batch.
    Raises UnsupportedVersionError for a batch of an idempotent producer, UnsupportedForMessageFormatError for one with
    headers, UnsupportedCompressionTypeError for a codec that the version doesn't support.
    """
    produce = versions.range_of(ProduceRequest.api_key)
    assert produce is not None
    version, broker = produce[1], versions.name
    compression = Compression(batch.compression)
    codec = CODECS[compression]
    if version < codec.first_produce_version:
        raise UnsupportedCompressionTypeError(
            f"{broker} is older than Kafka {codec.first_release} and does not support {codec.label}: set "
            f"compression.type to another codec"
        )
    if version >= ProduceRequest.FIRST_VERSION_WITH_RECORD_BATCHES:
        return batch.records
    if batch.has_sequence:
        raise UnsupportedVersionError(
            f"{broker} is older than Kafka 0.11 and does not support idempotent producers: set enable.idempotence=false"
        )
    magic = ProduceRequest.newest_magic(version)
    records = list(RecordBatch(joined(batch.records)).records())
    if any(record.headers for record in records):
        raise UnsupportedForMessageFormatError(
            f"{broker} is older than Kafka 0.11, and its message format (v{magic}) has no headers: send without them"
        )
    from ...network.records.legacy import build_message_set  # noqa: PLC0415 - see prepare

    return build_message_set(
        ((record.timestamp, record.key, record.value) for record in records),
        magic=magic,
        compression=compression,
        level=level,
    )


def starts_of_runs(batch: ProducerBatch) -> list[int]:
    """The indices at which a sealed batch changes between records with headers and records without."""
    with_headers = [bool(record.headers) for record in RecordBatch(joined(batch.records)).records()]
    return [index for index, (before, here) in enumerate(pairwise(with_headers), 1) if before is not here]
