"""What the sender writes for brokers without record batches (before Kafka 0.11) or without zstd (before 2.1).

The tests compare the bytes with hand-encoded ones, and read them with kafka-python and aiokafka.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable
from typing import Any

import aiokafka.record.memory_records
import kafka.record
import pytest
from support.mock_client import latest_api_versions
from support.sender_harness import LINGER_MS, MEMORY, PRODUCER_ID, SenderHarness, batch_of, values_of

from headrace.network.client.request import ClientRequest
from headrace.network.cluster import TopicPartition
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.network.records.builder_cy import encode_headers
from headrace.network.records.columns_cy import Columns, column_of
from headrace.network.records.compression import Compression
from headrace.producer import OffsetRange
from headrace.producer.accumulator.batch_cy import RecordFuture
from headrace.producer.columns.rows_cy import Rows
from headrace.producer.columns.rows_future import RowsFuture, RowsOfTopic

MESSAGE_TOO_LARGE = 10
#: Long and similar, so that every codec makes them smaller.
VALUES = [b"value %d " % number * 4 for number in range(6)]


def a_harness(newest_produce: int, **options: Any) -> SenderHarness:
    """A sender whose only broker supports Produce up to that version."""
    h = SenderHarness(**{"idempotent": False, "batch_size": 2_000, **options})
    h.client.node_api_versions[0] = latest_api_versions({ApiKey.PRODUCE: (0, newest_produce)})
    return h


def append(
    h: SenderHarness, value: bytes, *headers: tuple[str, bytes], callback: Callable | None = None
) -> RecordFuture:
    """Append a record to the open batch, with headers if there are any."""
    queues = h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster)
    encoded = encode_headers(headers) if headers else None
    return h.accumulator.append(queues, 0, h.clock.wall_ms(), None, value, encoded, callback, 0)


def turn_often(h: SenderHarness) -> list[ClientRequest]:
    """Run enough turns to split a batch and send its parts; returns the new produce requests."""
    before = len(h.client.sent)
    h.clock.advance(LINGER_MS)
    for _ in range(10):
        h.sender.run_once()
    return h.client.sent[before:]


def records_of(request: ClientRequest) -> bytes:
    """The bytes for the only partition of a produce request."""
    ((data,),) = [topic.partition_data for topic in request.message.topic_data]
    return b"".join(data.records) if isinstance(data.records, list) else data.records


def read_by_others(data: bytes, magic: int) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    """(offset, timestamp, key, value) of every record in a message set, with all CRCs checked.

    Reads with kafka-python if it needs no further package for the codec, otherwise with aiokafka.
    """
    found = []
    by_aiokafka = data[17] in (Compression.SNAPPY, Compression.LZ4)
    batches: Any = (aiokafka.record.memory_records if by_aiokafka else kafka.record).MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert data[16] == magic
        assert batch.validate_crc()
        for record in batch:
            assert by_aiokafka or record.validate_crc()
            found.append((record.offset, record.timestamp, record.key, record.value))
    return found


def a_message(offset: int, body: bytes) -> bytes:
    """A message around the bytes that its CRC covers: offset, size, CRC, body."""
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def test_before_timestamps_the_bytes_are_messages_of_format_v0() -> None:
    h = a_harness(1)
    futures = [h.append(b"one", key=b"k"), h.append(None, key=b""), h.append(b"two")]
    (request,) = h.send()
    # magic and attributes; key and value, each after its size, which is -1 for null
    assert records_of(request) == (
        a_message(0, bytes.fromhex("00 00  00000001 6b  00000003 6f6e65"))
        + a_message(1, bytes.fromhex("00 00  00000000  ffffffff"))
        + a_message(2, bytes.fromhex("00 00  ffffffff  00000003 74776f"))
    )
    h.answer(request, base_offset=70)
    assert [future.get(0).offset for future in futures] == [70, 71, 72]
    assert h.free_bytes == MEMORY


def test_before_record_batches_the_bytes_are_messages_of_format_v1() -> None:
    h = a_harness(2)
    first_ms = h.clock.wall_ms()
    futures = [h.append(b"one", key=b"k")]
    h.clock.advance(1)
    futures.append(h.append(None))
    (request,) = h.send()
    # as in v0, with the timestamp before the key
    assert records_of(request) == (
        a_message(
            0, bytes.fromhex("01 00") + struct.pack(">q", first_ms) + bytes.fromhex("00000001 6b 00000003 6f6e65")
        )
        + a_message(1, bytes.fromhex("01 00") + struct.pack(">q", first_ms + 1) + bytes.fromhex("ffffffff ffffffff"))
    )
    h.answer(request, base_offset=7)
    assert [(future.get(0).offset, future.get(0).timestamp) for future in futures] == [(7, first_ms), (8, first_ms + 1)]


@pytest.mark.parametrize(
    ("newest_produce", "magic", "codec"),
    [
        (0, 0, Compression.NONE),
        (0, 0, Compression.GZIP),
        (1, 0, Compression.SNAPPY),  # only Kafka itself reads lz4 in format v0
        (2, 1, Compression.NONE),
        (2, 1, Compression.GZIP),
        (2, 1, Compression.SNAPPY),
        (2, 1, Compression.LZ4),
    ],
)
def test_others_read_every_codec(newest_produce: int, magic: int, codec: Compression) -> None:
    h = a_harness(newest_produce, compression=codec)
    for value in VALUES:
        h.append(value, key=b"key")
        h.clock.advance(1)
    (request,) = h.send()
    data = records_of(request)
    # the first message has the codec in its attributes; it is the wrapper if there is one
    assert (data[16], data[17]) == (magic, codec)
    sent_ms = h.clock.wall_ms() - 5 - len(VALUES)
    assert read_by_others(data, magic) == [
        (offset, sent_ms + offset if magic else None, b"key", value) for offset, value in enumerate(VALUES)
    ]


def test_brokers_since_0_11_get_the_batch_as_it_is() -> None:
    for newest in (3, 6, 7, 13):
        h = a_harness(newest)
        _, request = h.request(b"a")
        assert batch_of(request).magic == 2


def test_a_lost_answer_is_followed_by_the_same_bytes() -> None:
    h = a_harness(2, compression=Compression.GZIP)
    for value in VALUES:
        h.append(value)
    (request,) = h.send()
    h.lose(request)
    (again,) = h.retry()
    assert [value for *_, value in read_by_others(records_of(again), 1)] == VALUES
    h.answer(again, base_offset=3)
    h.step()
    assert h.free_bytes == MEMORY


def test_a_message_set_that_is_too_large_is_split() -> None:
    h = a_harness(2, compression=Compression.GZIP)
    futures = [h.append(value) for value in VALUES]
    (request,) = h.send()
    h.answer(request, MESSAGE_TOO_LARGE)
    first, second = turn_often(h)
    h.answer(first, base_offset=0)
    h.answer(second, base_offset=3)
    halves = [[value for *_, value in read_by_others(records_of(half), 1)] for half in (first, second)]
    assert halves == [VALUES[:3], VALUES[3:]]
    assert [future.get(0).offset for future in futures] == list(range(6))


# --- Features that the old formats lack ---


def test_records_with_headers_fail_and_their_neighbours_are_sent_in_order() -> None:
    h = a_harness(2)
    told: list[tuple[int, BaseException | None]] = []

    def tell(metadata: Any, error: BaseException | None) -> None:
        told.append((metadata.offset, error))

    futures = [
        append(h, b"a"),
        append(h, b"b", ("h", b"1"), callback=tell),
        append(h, b"c", ("h", b"2")),
        append(h, b"d", callback=tell),
        append(h, b"e"),
        append(h, b"f", ("h", b"3")),
    ]
    requests = turn_often(h)
    assert [[value for *_, value in read_by_others(records_of(each), 1)] for each in requests] == [[b"a"], [b"d", b"e"]]
    h.answer(requests[0], base_offset=10)
    h.answer(requests[1], base_offset=11)
    assert [future.get(0).offset for future in (futures[0], futures[3], futures[4])] == [10, 11, 12]
    for future in (futures[1], futures[2], futures[5]):
        error = future.exception(0)
        assert isinstance(error, errors.UnsupportedForMessageFormatError)
        assert "the mock broker is older than Kafka 0.11" in str(error)
        assert "has no headers" in str(error)
    assert told == [(-1, futures[1].exception(0)), (11, None)]
    assert h.free_bytes == MEMORY
    assert not h.accumulator.has_incomplete


def test_rows_of_columns_with_headers_fail_and_the_others_are_told_where_they_are() -> None:
    h = a_harness(2)
    queues = h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster)
    values = column_of([b"a", b"b", b"c", b"d", b"e"])
    headers = column_of([None, encode_headers([("h", b"1")]), encode_headers([("h", b"2")]), None, None])
    columns = Columns(values, None, headers, None, array("q", [0] * 5), h.clock.wall_ms())
    future = RowsFuture(5)
    rows = Rows(columns, None, 1, True)
    rows.append_to(h.accumulator, queues, RowsOfTopic(future, rows.order_array, 100), 0.0)
    for place, request in enumerate(turn_often(h)):
        h.answer(request, base_offset=10 + place)
    error = future.exception(0)
    assert error is not None
    assert error.row == 101
    assert isinstance(error.__cause__, errors.UnsupportedForMessageFormatError)
    assert future.metadata.rows == 3
    assert future.metadata.offsets == {TopicPartition(h.topic, 0): OffsetRange(10, 12, 3)}
    assert h.free_bytes == MEMORY


def test_with_one_request_in_flight_the_records_around_headers_keep_their_order() -> None:
    h = a_harness(2, max_in_flight=1)
    append(h, b"a")
    append(h, b"b", ("h", b"1"))
    append(h, b"c")
    (first,) = turn_often(h)
    h.lose(first)
    (again,) = h.retry()
    h.answer(again)
    (last,) = turn_often(h)
    requests = [first, again, last]
    assert [[value for *_, value in read_by_others(records_of(each), 1)] for each in requests] == [
        [b"a"],
        [b"a"],
        [b"c"],
    ]


def test_a_producer_id_that_no_broker_gives_is_told_with_what_to_do() -> None:
    h = a_harness(2, idempotent=True, with_producer_id=False, established=False)
    h.client.node_api_versions[0] = latest_api_versions({ApiKey.PRODUCE: (0, 2), ApiKey.INIT_PRODUCER_ID: (-1, -1)})
    future = h.append(b"a")
    assert h.send() == []
    h.step()
    error = future.exception(0)
    assert isinstance(error, errors.UnsupportedVersionError)
    assert "set enable.idempotence=false for brokers older than 0.11" in str(error)


def test_a_leader_older_than_the_broker_that_gave_the_producer_id_is_a_fatal_error() -> None:
    h = a_harness(2, idempotent=True)
    first, second = h.append(b"a"), h.append(b"b")
    assert h.send() == []
    for future in (first, second):
        error = future.exception(0)
        assert isinstance(error, errors.UnsupportedVersionError)
        assert "does not support idempotent producers: set enable.idempotence=false" in str(error)
    assert h.transactions is not None
    assert h.transactions.fatal_error is not None
    assert h.free_bytes == MEMORY


@pytest.mark.parametrize("newest_produce", [1, 2, 3, 6])
def test_zstd_fails_where_the_broker_would_not_know_it(newest_produce: int) -> None:
    h = a_harness(newest_produce, compression=Compression.ZSTD)
    futures = [h.append(value) for value in VALUES]
    assert h.send() == []
    for future in futures:
        error = future.exception(0)
        assert isinstance(error, errors.UnsupportedCompressionTypeError)
        assert "set compression.type to another codec" in str(error)
    assert h.free_bytes == MEMORY


def test_zstd_goes_out_where_the_broker_knows_it() -> None:
    h = a_harness(7, compression=Compression.ZSTD, idempotent=True)
    futures, request = h.request(*VALUES)
    assert (batch_of(request).compression, batch_of(request).producer_id) == (Compression.ZSTD, PRODUCER_ID)
    h.answer(request)
    assert futures[5].get(0).offset == 5


@pytest.mark.parametrize(("newest_produce", "magic"), [(2, 1), (6, 2)])
def test_records_that_zstd_did_not_make_smaller_go_out_everywhere(newest_produce: int, magic: int) -> None:
    h = a_harness(newest_produce, compression=Compression.ZSTD)
    h.append(b"a")
    (request,) = h.send()
    assert records_of(request)[16] == magic


def test_a_batch_that_cannot_be_sent_does_not_keep_the_others_of_its_request_back() -> None:
    h = a_harness(3, compression=Compression.ZSTD, partitions=2)
    refused = h.append(VALUES[0] * 10, partition=0)
    other = h.append(b"b", partition=1)
    (request,) = h.send()
    assert values_of(request) == [b"b"]
    h.answer(request, base_offset=4)
    assert isinstance(refused.exception(0), errors.UnsupportedCompressionTypeError)
    assert other.get(0).offset == 4
