"""Reads records of a topic for the page: some partitions, from a place, with a filter by key."""

from __future__ import annotations

from typing import Any

from ...network.protocol.errors import IllegalArgumentError, KafkaError, UnknownTopicOrPartitionError
from ..services.observation import RecordQuery, RecordSeen, RecordsRead
from .cluster import ConsoleCluster
from .readable import Decode, Readable, line_of, printable, raw_views, readable

MAX_RECORDS = 200
#: Of a single record: the bytes of the key and of the value that are shown.
WHOLE_BYTES = 256 * 1024
#: The partitions that one search reads.
MAX_PARTITIONS = 100


def list_records(
    cluster: ConsoleCluster,
    topic: str,
    partition: int | None,
    *,
    offset: int | None,
    timestamp: int | None,
    count: int,
    contains: str | None,
    decode: Decode | None,
) -> dict[str, Any]:
    """The newest records, or those from an offset or a timestamp, of one partition or all. In the result
    `next_offset` is where a read of one partition goes on, and `problems` has what could not be read.

    Raises UnknownTopicOrPartitionError, IllegalArgumentError.
    """
    state = cluster.controller.image.topics.get(topic)
    if state is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic!r}")
    if partition is not None and partition >= len(state.partitions):
        raise UnknownTopicOrPartitionError(
            f"there is no partition {topic}-{partition}; the topic has {len(state.partitions)}"
        )
    if offset is not None and partition is None and len(state.partitions) > 1:
        raise IllegalArgumentError("an offset belongs to one partition; choose the partition, too")
    indexes = range(len(state.partitions))[:MAX_PARTITIONS] if partition is None else [partition]
    wanted = None if not contains else contains.encode(errors="surrogatepass")
    newest = offset is None and timestamp is None
    found: list[RecordSeen] = []
    reads: dict[int, RecordsRead] = {}
    problems = []
    for index in indexes:
        try:
            read = cluster.read_records(RecordQuery(topic, index, count, offset, timestamp, wanted))
        except KafkaError as failed:
            problems.append(f"partition {index}: {failed}")
            continue
        reads[index] = read
        if newest and read.first_offset > read.log_start and len(read.records) < count:
            problems.append(f"partition {index}: searched back to offset {read.first_offset:,} only, not further")
        found += read.records
        # no more than the result needs stays in memory
        found = _first(found, count, newest=newest)
    if len(state.partitions) > MAX_PARTITIONS and partition is None:
        problems.append(f"only the first {MAX_PARTITIONS} partitions are read; choose a partition to see another one")
    only = next(iter(reads.values())) if len(reads) == 1 else None
    return {
        "rows": [record_row(each, decode) for each in found],
        "problems": problems,
        "next_offset": None if only is None or only.is_end else only.next_offset,
        "is_end": all(read.is_end for read in reads.values()),
        "offsets": {index: [read.log_start, read.high_watermark] for index, read in reads.items()},
    }


def _first(found: list[RecordSeen], count: int, *, newest: bool) -> list[RecordSeen]:
    """At most `count` records, of one partition by offset, of several by time."""
    is_one = len({each.partition for each in found}) <= 1

    def order(record: RecordSeen) -> tuple[int, ...]:
        return (record.offset,) if is_one else (record.timestamp, record.partition, record.offset)

    return sorted(found, key=order, reverse=newest)[:count]


def one_record(
    cluster: ConsoleCluster, topic: str, partition: int, offset: int, decode: Decode | None
) -> dict[str, Any]:
    """A record with all that is known of it. Raises IllegalArgumentError if there is none at the offset."""
    read = cluster.read_records(RecordQuery(topic, partition, 1, offset, preview_bytes=WHOLE_BYTES))
    if not read.records or read.records[0].offset != offset:
        raise IllegalArgumentError(
            f"there is no record at offset {offset} of {topic}-{partition}; it has offsets {read.log_start} to "
            f"{read.high_watermark - 1}, and compaction or transaction markers leave gaps"
        )
    record = read.records[0]
    row = record_row(record, decode)
    for name, content, size in (("key", record.key, record.sizes[0]), ("value", record.value, record.sizes[1])):
        shown = readable(content, size, _schema_header(record, name), decode)
        row[name] = {**_shown(shown), **raw_views(content), "size_bytes": size}
    row["headers"] = [
        {"name": printable(name, keep_lines=False), **_shown(readable(value, -1 if value is None else len(value)))}
        for name, value in record.headers
    ]
    row.update(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        sequence=record.sequence,
        compression=record.compression,
    )
    return row


def record_row(record: RecordSeen, decode: Decode | None) -> dict[str, Any]:
    """A record as a row of the list."""
    row: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "kind": record.kind,
        "status": record.status,
        "problem": record.problem,
        "header_count": record.header_count,
    }
    for name, content, size in (("key", record.key, record.sizes[0]), ("value", record.value, record.sizes[1])):
        shown = readable(content, size, _schema_header(record, name), decode, pretty=False)
        row[name] = {**_shown(shown), "text": line_of(shown), "size_bytes": size}
    return row


def _shown(shown: Readable) -> dict[str, str]:
    return {"format": shown.format, "text": shown.text, "readable": shown.text, "note": shown.note}


def _schema_header(record: RecordSeen, name: str) -> bytes | None:
    """The header that names the schema of the key or value, for what was written with framing by headers."""
    return next((value for header, value in record.headers if header == f"__{name}_schema_id"), None)
