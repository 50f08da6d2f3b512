"""What the console sees of one broker, as plain values that can go to another process, and its append.

Every answer is bounded, whatever the broker has: `MAX_PARTITIONS` and the other limits below.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ...network.protocol.errors import (
    CorruptRecordError,
    IllegalStateError,
    KafkaStorageError,
    KafkaTimeoutError,
    UnsupportedCompressionTypeError,
)
from ...network.protocol.other_errors import OffsetOutOfRangeError
from ...network.records.batch import RecordBatch, read_batches
from ...network.records.builder_cy import build_batch
from ...network.records.record import Record
from ..group.group import Group
from ..log.log import Log
from ..log.markers import read_marker
from ..log.transaction_index import AbortedTransaction
from ..metadata import PartitionKey
from ..replica.delayed_produce import ProduceResult
from ..requests.control import RequestSeen
from ..transaction.transaction import TransactionValues
from .inspection import transactions
from .services import BrokerServices

MAX_PARTITIONS = 5_000
MAX_GROUPS = 500
MAX_GROUP_OFFSETS = 1_000
MAX_MEMBERS = 100
MAX_PRODUCERS = 500
MAX_REQUESTS = 500
MAX_TRANSACTIONS = 500
#: The largest decompressed batch that is shown.
MAX_BATCH_BYTES = 64 * 2**20
#: A read ends after that many bytes of the log or records, even if fewer records than requested were found.
MAX_SCANNED_BYTES = 32 * 2**20
MAX_SCANNED_RECORDS = 50_000
#: The bytes of a key, a value or a header that leave the broker for a list of records.
PREVIEW_BYTES = 4_096
#: The first headers of a record, which leave the broker.
MAX_HEADERS = 50
_READ_BYTES = 2**20
#: The offsets in which the newest records are looked for first.
_FIRST_WINDOW = 16
_APPEND_TIMEOUT_MS = 5_000.0


class PartitionSeen(NamedTuple):
    """A replica on this broker."""

    topic: str
    partition: int
    is_leader: bool
    log_start: int
    high_watermark: int
    last_stable: int
    log_end: int
    size_bytes: int


class GroupSeen(NamedTuple):
    """A group that this broker coordinates. `offsets`: topic, partition and offset."""

    group_id: str
    state: str
    generation: int
    protocol: str
    members: tuple[tuple[str, str, str], ...]
    offsets: tuple[tuple[str, int, int], ...]


class ProducerSeen(NamedTuple):
    """An idempotent producer in a partition that this broker leads."""

    producer_id: int
    epoch: int
    topic: str
    partition: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    open_since_offset: int


class BrokerSeen(NamedTuple):
    """One broker at one moment. clock_offset_ms: the wall clock minus the clock of `received_ms`. requests: the recent
    ones, oldest first, and `requests_left_off` more of the same time. left_off: the names of the lists that were cut at
    their limit."""

    node_id: int
    connections: int
    clock_offset_ms: float
    requests: list[RequestSeen]
    requests_left_off: int
    partitions: list[PartitionSeen]
    groups: list[GroupSeen]
    producers: list[ProducerSeen]
    transactions: dict[str, TransactionValues]
    left_off: tuple[str, ...]


class RecordSeen(NamedTuple):
    """A record, or in place of it what is wrong with its batch. `kind` is "record", "commit", "abort" (markers) or
    "unreadable"; `status` is "", "committed", "aborted" or "open" for the transaction. `headers` are the first ones of
    `header_count`. `sizes` are those of the whole key and value in bytes, -1 for null."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    header_count: int
    sizes: tuple[int, int]
    kind: str
    status: str
    producer_id: int
    producer_epoch: int
    sequence: int
    compression: str
    problem: str = ""


class RecordQuery(NamedTuple):
    """At most `max_records` records of a partition, up to the high watermark.

    They begin at `offset`, or at the first record with at least `timestamp`; without either these are the newest ones.
    contains: only records whose key contains these bytes. preview_bytes: keys, values and headers are cut there.
    """

    topic: str
    partition: int
    max_records: int
    offset: int | None = None
    timestamp: int | None = None
    contains: bytes | None = None
    preview_bytes: int = PREVIEW_BYTES


class NewRecord(NamedTuple):
    """A record to append. timestamp: in milliseconds since 1970; None is now."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int | None


class RecordsRead(NamedTuple):
    """The records of one read, in the order of offsets. The read began at `first_offset`, and the next one goes on at
    `next_offset`; `is_end`: there is nothing beyond it. `log_start` and `high_watermark` are the partition's."""

    records: list[RecordSeen]
    first_offset: int
    next_offset: int
    is_end: bool
    log_start: int
    high_watermark: int


# --- The state of a broker ---


def overview(broker: BrokerServices, connections: int, after: RequestSeen | None) -> BrokerSeen:
    """The broker's replicas, groups, producers and transactions, and its requests since the request `after`. Any
    thread."""
    replicas = broker.replicas.partitions
    left_off = []
    partitions = []
    producers: list[ProducerSeen] = []
    # The manager replaces nothing in the table, but adds and removes keys while others read.
    for partition in islice(list(replicas.values()), MAX_PARTITIONS):
        log = partition.log
        partitions.append(
            PartitionSeen(
                partition.topic,
                partition.index,
                partition.is_leader,
                log.log_start_offset,
                log.high_watermark,
                log.last_stable_offset,
                log.end.offset,
                log.size_bytes,
            )
        )
        if partition.is_leader and len(producers) < MAX_PRODUCERS:
            producers += _producers(log, MAX_PRODUCERS - len(producers))
    if len(replicas) > MAX_PARTITIONS:
        left_off.append("partitions")
    if len(producers) == MAX_PRODUCERS:
        left_off.append("producers")
    groups = sorted(broker.offsets.groups(), key=lambda each: each.group_id)
    if len(groups) > MAX_GROUPS:
        left_off.append("groups")
    known = transactions(broker)
    if len(known) > MAX_TRANSACTIONS:
        left_off.append("transactions")
    requests, requests_left_off = _requests(broker, after)
    return BrokerSeen(
        broker.node_id,
        connections,
        broker.clock.wall_ms() - broker.clock.now_ms(),
        requests,
        requests_left_off,
        partitions,
        [_group(each) for each in groups[:MAX_GROUPS]],
        producers,
        dict(islice(known.items(), MAX_TRANSACTIONS)),
        tuple(left_off),
    )


def _producers(log: Log, most: int) -> list[ProducerSeen]:
    with log.lock:
        entries = list(islice(log.producers.producers.values(), most))
        return [
            ProducerSeen(
                each.producer_id,
                each.producer_epoch,
                log.topic,
                log.partition,
                each.last_sequence,
                each.last_offset,
                each.last_timestamp,
                each.current_txn_first_offset,
            )
            for each in entries
        ]


def _group(group: Group) -> GroupSeen:
    with group.lock:
        return GroupSeen(
            group.group_id,
            group.state.value,
            group.generation,
            group.protocol_name or "",
            tuple(
                (each.member_id, each.client_id, each.client_host)
                for each in islice(group.members.values(), MAX_MEMBERS)
            ),
            tuple((*key, each.offset) for key, each in islice(group.offsets.items(), MAX_GROUP_OFFSETS)),
        )


def _requests(broker: BrokerServices, after: RequestSeen | None) -> tuple[list[RequestSeen], int]:
    found: list[RequestSeen] = []
    count = 0
    for each in reversed(broker.control.recent()):
        if each.node_id != broker.node_id:
            continue
        if each == after:
            break
        count += 1
        if count <= MAX_REQUESTS:
            found.append(each)
    return found[::-1], 0 if after is None else count - len(found)


# --- Records ---


def read_records(broker: BrokerServices, query: RecordQuery) -> RecordsRead:
    """Read records of a partition that this broker leads.

    Raises the errors of `Replicas.partition`, NotLeaderForPartitionError, KafkaStorageError.
    """
    partition = broker.replicas.partition((query.topic, query.partition))
    partition.check_leader()
    log = partition.log
    start, end = log.log_start_offset, log.high_watermark
    scan = _Scan(log, end, query)
    try:
        if query.offset is not None:
            scan.forward(min(max(query.offset, start), end))
        elif query.timestamp is not None:
            found = log.offset_for_timestamp(query.timestamp)
            scan.forward(end if found is None else min(found[0].offset, end))
        else:
            scan.backward(start)
    except OffsetOutOfRangeError:
        # records were deleted while they were read: what was found stands, and the next read begins at the new start
        scan.next_offset = max(scan.next_offset, log.log_start_offset)
    except (OSError, ValueError) as failed:
        raise KafkaStorageError(f"{log.topic}-{log.partition} can't be read: {failed}") from failed
    return RecordsRead(scan.found, scan.first_offset, scan.next_offset, scan.next_offset >= end, start, end)


class _Scan:
    """One read of a log, with its limits."""

    def __init__(self, log: Log, end: int, query: RecordQuery) -> None:
        self.found: list[RecordSeen] = []
        self.first_offset = self.next_offset = 0
        self._log = log
        self._end = end
        self._count = query.max_records
        self._contains = query.contains
        self._preview_bytes = query.preview_bytes
        self._bytes_left = MAX_SCANNED_BYTES
        self._records_left = MAX_SCANNED_RECORDS
        self._stable = log.last_stable_offset

    def forward(self, offset: int) -> None:
        """Collect the first records from `offset`."""
        self.first_offset = self.next_offset = offset
        for batch, aborted in self._batches(offset, self._end):
            for record in self._records(batch, aborted):
                if record.offset < offset:
                    continue
                self._records_left -= 1
                self.next_offset = record.offset + 1
                if self._matches(record):
                    self.found.append(record)
                if len(self.found) >= self._count or self._records_left <= 0:
                    return
            self.next_offset = max(self.next_offset, batch.next_offset)

    def backward(self, start: int) -> None:
        """Collect the last records, from windows that double until there are enough."""
        self.next_offset = upper = self._end
        self.first_offset = upper
        width = _FIRST_WINDOW
        newest: list[RecordSeen] = []
        while upper > start and len(newest) < self._count and self._records_left > 0:
            lower = max(upper - width, start)
            part: deque[RecordSeen] = deque(maxlen=self._count - len(newest))
            reached = lower
            for batch, aborted in self._batches(lower, upper):
                reached = batch.next_offset
                for record in self._records(batch, aborted):
                    if lower <= record.offset < upper:
                        self._records_left -= 1
                        if self._matches(record):
                            part.append(record)
            if self._bytes_left <= 0 and reached < upper:
                # What was read are the oldest of the window, with a gap before those that were found.
                if newest or width == 1:
                    break
                width, self._bytes_left = 1, MAX_SCANNED_BYTES
                continue
            newest = [*part, *newest]
            self.first_offset = upper = lower
            width = min(width * 2, MAX_SCANNED_RECORDS)
            if self._bytes_left <= 0:
                break
        self.found = newest

    def _matches(self, record: RecordSeen) -> bool:
        return self._contains is None or self._contains in (record.key or b"")

    def _batches(self, offset: int, end: int) -> Iterator[tuple[RecordBatch, list[AbortedTransaction]]]:
        """The batches with offsets from `offset` up to `end`, which may be within one, with the aborted transactions
        around them."""
        while offset < end and self._bytes_left > 0:
            read = self._log.read(offset, min(_READ_BYTES, self._bytes_left), up_to=self._end, min_one_batch=True)
            if read.region is None:
                return
            aborted = self._log.aborted_transactions(offset, read)
            file = read.region.file
            descriptor = file if isinstance(file, int) else file.fileno()
            content = os.pread(descriptor, read.region.size_bytes, read.region.offset)
            self._bytes_left -= len(content)
            before = offset
            for batch in read_batches(content):
                if not isinstance(batch, RecordBatch):
                    raise KafkaStorageError(f"the batch at offset {offset} has an old format, which is not supported")
                if batch.base_offset >= end:
                    return
                yield batch, aborted
                offset = max(offset, batch.next_offset)
            if offset == before:
                return

    def _records(self, batch: RecordBatch, aborted: list[AbortedTransaction]) -> Iterator[RecordSeen]:
        compression = batch.compression.label
        producer = batch.producer_id, batch.producer_epoch
        try:
            if batch.is_control:
                marker = read_marker(batch)
                kind = "record" if marker is None else "commit" if marker.is_commit else "abort"
                yield self._seen(Record(batch.base_offset, batch.max_timestamp, None, None), kind, "", producer, -1, "")
                return
            first_sequence = batch.base_sequence
            for record in batch.records(MAX_BATCH_BYTES):
                sequence = -1 if first_sequence < 0 else first_sequence + record.offset - batch.base_offset
                status = self._status(batch, record.offset, aborted)
                yield self._seen(record, "record", status, producer, sequence, compression)
        except (CorruptRecordError, UnsupportedCompressionTypeError) as wrong:
            offset = batch.base_offset
            problem = f"the batch of {batch.count} records at offset {offset} can't be read: {wrong}"
            empty = Record(offset, batch.max_timestamp, None, None)
            yield self._seen(empty, "unreadable", "", producer, -1, compression)._replace(problem=problem)

    def _status(self, batch: RecordBatch, offset: int, aborted: list[AbortedTransaction]) -> str:
        if not batch.is_transactional:
            return ""
        if offset >= self._stable:
            return "open"
        is_aborted = any(
            each.producer_id == batch.producer_id and each.first_offset <= offset <= each.last_offset
            for each in aborted
        )
        return "aborted" if is_aborted else "committed"

    def _seen(
        self, record: Record, kind: str, status: str, producer: tuple[int, int], sequence: int, compression: str
    ) -> RecordSeen:
        most = self._preview_bytes
        key, value = record.key, record.value
        return RecordSeen(
            self._log.topic,
            self._log.partition,
            record.offset,
            record.timestamp,
            None if key is None else key[:most],
            None if value is None else value[:most],
            tuple((name[:most], None if each is None else each[:most]) for name, each in record.headers[:MAX_HEADERS]),
            len(record.headers),
            (-1 if key is None else len(key), -1 if value is None else len(value)),
            kind,
            status,
            *producer,
            sequence,
            compression,
        )


# --- The console's own record ---


def append_record(broker: BrokerServices, record: NewRecord) -> int:
    """Append a record as a client's batch with acks=all, and return its offset.

    It runs on the broker's request thread, which a broker that stops waits for; a file of a log must not be used after
    that. Blocks the caller for 5 s at most, and is not for the broker's own threads.

    Raises the errors of `Partition.append`, KafkaTimeoutError, and IllegalStateError if the broker stops.
    """
    timestamp = broker.clock.wall_ms() if record.timestamp is None else record.timestamp
    batch = build_batch([(timestamp, record.key, record.value, record.headers)])
    key = (record.topic, record.partition)
    answered = threading.Event()
    results: dict[PartitionKey, ProduceResult] = {}

    def respond(outcome: dict[PartitionKey, ProduceResult]) -> None:
        results.update(outcome)
        answered.set()

    broker.request_thread.submit(
        lambda: broker.replicas.append_records(_APPEND_TIMEOUT_MS, -1, [(key, batch)], respond)
    )
    if not answered.wait(_APPEND_TIMEOUT_MS / 1_000.0):
        raise KafkaTimeoutError(
            f"broker {broker.node_id} has not acknowledged the record to {key[0]}-{key[1]} within "
            f"{_APPEND_TIMEOUT_MS / 1_000.0:.0f} s; the record may be in the log: look before you send it again"
        )
    result = results[key]
    if result.error is not None:
        raise result.error
    if result.info is None:
        raise IllegalStateError(f"broker {broker.node_id} returned no offset")
    return result.info.first_offset
