"""Reads the partitions of a topic over a `Client`, one fetch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...network.protocol.errors import (
    IllegalArgumentError,
    InvalidMetadataError,
    KafkaError,
    UnknownTopicOrPartitionError,
    make_error,
)
from ...network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from ...network.protocol.messages.records.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...network.protocol.other_errors import OffsetOutOfRangeError
from ...network.records.batch import RecordBatch, read_batches
from ...network.records.record import Record
from ..client import Client, leaders_of, topic_error

_WAIT_MS = 500
_TIMEOUT_MS = 30_000
_FETCH_BYTES = 10 * 2**20
_PARTITION_BYTES = 2**20
_MOST_PARTITION_BYTES = 128 * 2**20


class Reader:
    """Reads a topic: the leader and the next offset of each partition."""

    def __init__(self, client: Client, topic: str, partitions: list[int] | None) -> None:
        """`partitions` None stands for all. Raises KafkaError."""
        self._client = client
        self._topic = topic
        self._chosen = partitions
        self._partition_bytes = _PARTITION_BYTES
        self.next_offsets: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.find_leaders()

    def find_leaders(self) -> None:
        (topic,) = self._client.metadata([self._topic]).topics
        leaders = leaders_of(topic)
        unknown = sorted(set(self._chosen or ()) - set(leaders))
        if unknown:
            raise UnknownTopicOrPartitionError(f"{self._topic} has partitions 0 to {len(leaders) - 1}, not {unknown}")
        self._leaders = {each: leaders[each] for each in leaders if self._chosen is None or each in self._chosen}
        for partition in self._leaders:
            # one that was added since has nothing but new records
            self.next_offsets.setdefault(partition, 0)
            self.ends.setdefault(partition, 0)
        self.topic_id = topic.topic_id

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
                    raise topic_error(self._topic, part.error_code, partition=part.partition_index)
                offsets[part.partition_index] = part.offset
        return offsets

    def begin(
        self, start: str, *, since_ms: int | None = None, committed: Mapping[int, int] | None = None
    ) -> list[str]:
        """Seek to `start`, and record the current end of each partition. Raises IllegalArgumentError.

        `since_ms`: seek to the first record of that time or later instead. `committed`: the offsets of partitions that
        start there, whatever the rest says. Returns a note for each partition that lacks its offset and starts at the
        closest one.
        """
        self.ends = self._offsets_at(ListOffsetsRequest.LATEST_TIMESTAMP)
        firsts = self._offsets_at(ListOffsetsRequest.EARLIEST_TIMESTAMP)
        at_time = {} if since_ms is None else self._offsets_at(since_ms)
        notes = []
        for partition, end in self.ends.items():
            first = firsts[partition]
            if committed is not None and partition in committed:
                notes += self._seek(partition, committed[partition], first, end)
                continue
            if since_ms is not None:
                # -1: no record is as late
                self.next_offsets[partition] = at_time[partition] if at_time[partition] >= 0 else end
                continue
            if start in {"beginning", "end"}:
                self.next_offsets[partition] = first if start == "beginning" else end
                continue
            try:
                wanted = int(start)
            except ValueError:
                raise IllegalArgumentError(f"--from takes beginning, end, an offset or -N, not {start!r}") from None
            notes += self._seek(partition, wanted, first, end)
        return notes

    def _seek(self, partition: int, wanted: int, first: int, end: int) -> list[str]:
        self.next_offsets[partition] = min(max(wanted if wanted >= 0 else end + wanted, first), end)
        if wanted > end:
            return [f"{self._topic}-{partition} ends before offset {wanted}; the next one there is {end}"]
        if 0 <= wanted < first:
            return [f"{self._topic}-{partition} no longer has offset {wanted}; the first one there is {first}"]
        return []

    def records(self, *, follow: bool, go_on: Callable[[], bool] = lambda: True) -> Iterator[tuple[int, Record]]:
        """Partition and record, in offset order within a partition; without `follow`, up to the recorded ends.

        `go_on` is called after each response of a leader, when every record of it was taken, and returns whether to
        ask on.
        """
        while True:
            unread = [each for each in self._leaders if follow or self.next_offsets[each] < self.ends[each]]
            if not unread:
                return
            for leader, partitions in self._by_leader(unread).items():
                for part in self._fetch(leader, partitions):
                    for record in self._take(part):
                        if follow or record.offset < self.ends[part.partition_index]:
                            yield part.partition_index, record
                if not go_on():
                    return

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
            topics=[FetchTopic(topic=self._topic, topic_id=self.topic_id, partitions=asked)],
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
                raise topic_error(self._topic, part.error_code, partition=partition, operation="READ")
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
