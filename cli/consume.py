"""`headrace consume`: print the records of a topic from any Kafka cluster, one per line.

Without --follow it prints the records that exist at the start, and ends. A line has the partition and offset, the
record's time (UTC), key, value and headers. Records of aborted transactions are printed, too.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

from ..network.protocol.errors import (
    IllegalArgumentError,
    InvalidMetadataError,
    KafkaError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    make_error,
)
from ..network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from ..network.protocol.messages.records.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..network.records.batch import RecordBatch, read_batches
from ..network.records.record import Record
from .arguments import whole_number
from .client import Client, add_bootstrap_argument, leaders_of, topic_error
from .text import bytes_text, time_text

_WAIT_MS = 500
_TIMEOUT_MS = 30_000
_FETCH_BYTES = 10 * 2**20
_PARTITION_BYTES = 2**20
_MOST_PARTITION_BYTES = 128 * 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_argument(parser)
    parser.add_argument(
        "--partition",
        "-p",
        type=whole_number(0),
        action="append",
        metavar="N",
        help="only this partition; may be given several times",
    )
    parser.add_argument(
        "--from",
        dest="start",
        default="beginning",
        metavar="WHERE",
        help="beginning, end, an offset, or -N for the last N of each partition (as in --from=-10); default: beginning",
    )
    parser.add_argument("--max", "-n", type=whole_number(0), metavar="N", help="end after N records")
    parser.add_argument("--follow", "-f", action="store_true", help="keep printing new records until interrupted")
    parser.add_argument("--width", type=whole_number(1), metavar="N", help="cut keys and values after N characters")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per line; bytes that are not UTF-8 as {'base64': ...}"
    )


def run(options: argparse.Namespace) -> int:
    """Print the records. Raises KafkaError."""
    printed = 0
    if options.max == 0:
        return 0
    with Client(options.bootstrap_server, options.command_config) as client:
        reader = _Reader(client, options.topic, options.partition)
        for note in reader.begin(options.start):
            print(f"headrace consume: {note}", file=sys.stderr)
        for partition, record in reader.records(follow=options.follow):
            line = _json(partition, record) if options.json else _line(partition, record, options.width)
            print(line, flush=options.follow)
            printed += 1
            if printed == options.max:
                break
        if not printed and not options.follow and options.start != "end":
            where = "" if options.start == "beginning" else f" from {options.start} onward"
            print(f"headrace consume: {options.topic} has no records{where}", file=sys.stderr)
    return 0


class _Reader:
    """The leader and the next offset of each partition of a topic."""

    def __init__(self, client: Client, topic: str, partitions: list[int] | None) -> None:
        self._client = client
        self._topic = topic
        self._chosen = partitions
        self._partition_bytes = _PARTITION_BYTES
        self.find_leaders()
        self.next_offsets: dict[int, int] = dict.fromkeys(self._leaders, 0)
        self.ends: dict[int, int] = {}

    def find_leaders(self) -> None:
        (topic,) = self._client.metadata([self._topic]).topics
        leaders = leaders_of(topic)
        unknown = sorted(set(self._chosen or ()) - set(leaders))
        if unknown:
            raise UnknownTopicOrPartitionError(f"{self._topic} has partitions 0 to {len(leaders) - 1}, not {unknown}")
        self._leaders = {each: leaders[each] for each in leaders if self._chosen is None or each in self._chosen}
        self._topic_id = topic.topic_id

    def _by_leader(self, partitions: list[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for partition in partitions:
            found.setdefault(self._leaders[partition], []).append(partition)
        return found

    def _offsets_at(self, timestamp: int) -> dict[int, int]:
        offsets = {}
        for leader, partitions in self._by_leader(list(self._leaders)).items():
            asked = [ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in partitions]
            topics = [ListOffsetsTopic(name=self._topic, partitions=asked)]
            answer = self._client.ask(ListOffsetsRequest(topics=topics, timeout_ms=_TIMEOUT_MS), leader)
            for part in answer.topics[0].partitions:
                if part.error_code:
                    raise topic_error(f"{self._topic}-{part.partition_index}", part.error_code)
                offsets[part.partition_index] = part.offset
        return offsets

    def begin(self, start: str) -> list[str]:
        """Seek to `start`, and record the current end of each partition. Raises IllegalArgumentError.

        Returns a note for each partition that lacks this offset and starts at the closest one.
        """
        self.ends = self._offsets_at(ListOffsetsRequest.LATEST_TIMESTAMP)
        firsts = self._offsets_at(ListOffsetsRequest.EARLIEST_TIMESTAMP)
        notes = []
        for partition, end in self.ends.items():
            first = firsts[partition]
            if start in {"beginning", "end"}:
                self.next_offsets[partition] = first if start == "beginning" else end
                continue
            try:
                wanted = int(start)
            except ValueError:
                raise IllegalArgumentError(f"--from takes beginning, end, an offset or -N, not {start!r}") from None
            if wanted > end:
                notes.append(f"{self._topic}-{partition} ends before offset {wanted}; the next one there is {end}")
            elif 0 <= wanted < first:
                notes.append(f"{self._topic}-{partition} no longer has offset {wanted}; the first one there is {first}")
            self.next_offsets[partition] = min(max(wanted if wanted >= 0 else end + wanted, first), end)
        return notes

    def records(self, *, follow: bool) -> Iterator[tuple[int, Record]]:
        """Partition and record, in offset order within a partition; without `follow`, up to the recorded ends."""
        while True:
            unread = [each for each in self._leaders if follow or self.next_offsets[each] < self.ends[each]]
            if not unread:
                return
            for leader, partitions in self._by_leader(unread).items():
                for part in self._fetch(leader, partitions):
                    for record in self._take(part):
                        if follow or record.offset < self.ends[part.partition_index]:
                            yield part.partition_index, record

    def _fetch(self, leader: int, partitions: list[int]) -> list[Any]:
        asked = [
            FetchPartition(
                partition=each, fetch_offset=self.next_offsets[each], partition_max_bytes=self._partition_bytes
            )
            for each in partitions
        ]
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=max(_FETCH_BYTES, self._partition_bytes),
            topics=[FetchTopic(topic=self._topic, topic_id=self._topic_id, partitions=asked)],
        )
        answer = self._client.ask(request, leader)
        if answer.error_code:
            raise make_error(answer.error_code)
        return [part for topic in answer.responses for part in topic.partitions]

    def _take(self, part: Any) -> Iterator[Record]:
        """The records in one partition's response, starting at the next offset, which advances past them."""
        partition = part.partition_index
        try:
            if part.error_code:
                raise topic_error(f"{self._topic}-{partition}", part.error_code)
        except OffsetOutOfRangeError:
            # Retention or DeleteRecords has just deleted the next records.
            self.next_offsets[partition] = max(
                self._offsets_at(ListOffsetsRequest.EARLIEST_TIMESTAMP)[partition], self.next_offsets[partition]
            )
            return
        except InvalidMetadataError:
            self.find_leaders()
            return
        found = False
        for batch in read_batches(part.records or b""):
            found = True
            batch.validate()
            if not (isinstance(batch, RecordBatch) and batch.is_control):
                for record in batch.records():
                    if record.offset >= self.next_offsets[partition]:
                        yield record
            self.next_offsets[partition] = batch.next_offset
        if not found and part.records:
            # Kafka before 0.10.1 truncates large batches rather than exceed the requested size; so may a proxy.
            if self._partition_bytes >= _MOST_PARTITION_BYTES:
                raise KafkaError(f"{self._topic}-{partition} has a batch of more than {self._partition_bytes} bytes")
            self._partition_bytes *= 2


def _line(partition: int, record: Record, width: int | None) -> str:
    parts = [f"{partition}:{record.offset}", time_text(record.timestamp)]
    parts += [bytes_text(record.key, width), bytes_text(record.value, width)]
    if record.headers:
        parts.append("{" + ", ".join(f"{name}: {bytes_text(value, width)}" for name, value in record.headers) + "}")
    return "  ".join(parts)


def _json(partition: int, record: Record) -> str:
    return json.dumps(
        {
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _json_value(record.key),
            "value": _json_value(record.value),
            "headers": [[name, _json_value(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def _json_value(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
