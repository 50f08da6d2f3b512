"""Batches fill batch.size on the wire, not in memory: the estimated compression ratio and its effects."""

from __future__ import annotations

import random

import pytest
from support.sender_harness import SenderHarness, batch_of, batches_of

from headrace.network.client.request import ClientRequest
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.batch_cy import ProducerBatch

BATCH = 16_384
CODECS = [codec for codec in Compression if codec is not Compression.NONE]
RANDOM = random.Random(5)
#: Half of each record is the same for every one.
VALUES = [
    b"the half that is alike in every record, and longer than it need be; " + RANDOM.randbytes(68) for _ in range(999)
]


def a_harness(codec: Compression, partitions: int = 1) -> SenderHarness:
    return SenderHarness(
        compression=codec, batch_size=BATCH, memory=4_000_000, partitions=partitions, max_request_bytes=10_000_000
    )


def send_full_batch(h: SenderHarness, values: list[bytes], partition: int = 0) -> int:
    """Append records until a batch is closed, and deliver it; returns its size in bytes on the wire."""
    queue = h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster).queues[partition]
    index = 0
    while len(queue.batches) < 2:
        h.append(values[index % len(values)], partition=partition)
        index += 1
    requests = h.send()
    for request in requests:
        h.answer(request)
    return len(batch_of(requests[0]).buffer)


def ratio_of(h: SenderHarness) -> float:
    return h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster).compression_ratio


def note(h: SenderHarness, packed: int, raw: int = BATCH) -> float:
    batch = ProducerBatch(h.topic, 0, bytearray(100), 0.0)
    h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster)
    h.accumulator.note_compression(batch, raw, packed)
    return ratio_of(h)


@pytest.mark.parametrize("codec", CODECS)
def test_from_the_second_batch_on_they_fill_their_size_on_the_wire(codec: Compression) -> None:
    h = a_harness(codec)
    sizes = [send_full_batch(h, VALUES) for _ in range(20)]
    assert sizes[0] < 0.75 * BATCH
    for size in sizes[1:]:
        assert 0.9 * BATCH < size < 1.05 * BATCH


@pytest.mark.parametrize("codec", CODECS)
def test_what_does_not_shrink_fills_its_size_too(codec: Compression) -> None:
    h = a_harness(codec)
    values = [RANDOM.randbytes(100) for _ in range(300)]
    for _ in range(3):
        assert 0.9 * BATCH < send_full_batch(h, values) <= BATCH


@pytest.mark.parametrize("codec", CODECS)
def test_what_shrinks_to_nearly_nothing_takes_eight_times_the_memory_at_most(codec: Compression) -> None:
    h = a_harness(codec)
    for _ in range(3):
        send_full_batch(h, [b"a" * 100])
    assert ratio_of(h) < 0.125
    queue = h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster).queues[0]
    while len(queue.batches) < 2:
        h.append(b"a" * 100)
    batch, _ = h.accumulator.take_everything()
    assert 7 * BATCH < batch.size_bytes <= 8 * BATCH


def test_what_one_partition_teaches_holds_for_the_topic() -> None:
    h = a_harness(Compression.ZSTD, partitions=2)
    send_full_batch(h, VALUES)
    assert send_full_batch(h, VALUES, partition=1) > 0.9 * BATCH


@pytest.mark.parametrize("codec", CODECS)
def test_who_sends_faster_than_the_sender_thread_compresses_fills_them_too(codec: Compression) -> None:
    h = a_harness(codec)
    for turn in range(3):
        for value in VALUES:
            h.append(value + b"%d" % turn)
    sizes = [len(batch_of(request).buffer) for request in h.send()]
    assert len(sizes) > 3
    assert sizes[0] < 0.75 * BATCH
    for size in sizes[1:-1]:
        assert 0.85 * BATCH < size < 1.1 * BATCH


def fill_all(h: SenderHarness, partitions: int, values: list[bytes]) -> None:
    """Append to each partition until its first batch is closed."""
    queues = h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster).queues
    for partition in range(partitions):
        index = 0
        while len(queues[partition].batches) < 2:
            h.append(values[index % len(values)], partition=partition)
            index += 1


def wire_bytes(request: ClientRequest) -> int:
    return sum(len(batch.buffer) for _, _, batch in batches_of(request))


@pytest.mark.parametrize("codec", CODECS)
def test_requests_are_filled_to_their_size_on_the_wire(codec: Compression) -> None:
    h = SenderHarness(compression=codec, batch_size=BATCH, memory=4_000_000, partitions=8, max_request_bytes=4 * BATCH)
    for _ in range(40):
        send_full_batch(h, VALUES)
    fill_all(h, 8, VALUES)
    first = h.send()[0]
    # not compressed, two of these batches have the size of a request
    assert len(list(batches_of(first))) in (3, 4)
    assert 2.8 * BATCH < wire_bytes(first) < 4.2 * BATCH


def test_no_request_exceeds_its_size_if_records_compress_worse_than_expected() -> None:
    h = SenderHarness(
        compression=Compression.LZ4, batch_size=BATCH, memory=4_000_000, partitions=8, max_request_bytes=4 * BATCH
    )
    for _ in range(40):
        send_full_batch(h, VALUES)
    fill_all(h, 8, [RANDOM.randbytes(136) for _ in range(2000)])
    delivered: list[int] = []
    while h.accumulator.has_undrained:
        requests = h.send()
        assert requests
        for request in requests:
            assert wire_bytes(request) <= 4 * BATCH
            delivered += [partition for _, partition, _ in batches_of(request)]
            h.answer(request)
    # each partition's full batch and the one behind it; those put back were sent once
    assert sorted(delivered) == sorted([*range(8), *range(8)])
    h.sender.run_once()
    assert h.free_bytes == 4_000_000


def test_short_batches_of_noise_do_not_exceed_it_either() -> None:
    h = SenderHarness(
        compression=Compression.LZ4, batch_size=BATCH, memory=4_000_000, partitions=8, max_request_bytes=2 * BATCH
    )
    for _ in range(40):
        send_full_batch(h, [b"a" * 100])
    for _ in range(3):
        for partition in range(8):
            h.append(RANDOM.randbytes(BATCH * 2 // 5), partition=partition)
        requests = h.send()
        while requests:
            assert max(map(wire_bytes, requests)) <= 2 * BATCH
            for request in requests:
                h.answer(request)
            requests = h.send()
        assert not h.accumulator.has_undrained


def test_a_short_batch_that_was_closed_by_a_long_record_is_no_sample() -> None:
    h = a_harness(Compression.GZIP)
    for value in (b"short", b"a" * 20_000, b"a" * 20_000):
        h.append(value)
    assert ratio_of(h) == 0.0


def test_without_compression_nothing_is_estimated() -> None:
    h = a_harness(Compression.NONE)
    for _ in range(3):
        send_full_batch(h, VALUES)
    assert ratio_of(h) == 0.0


def test_the_estimate_believes_the_first_batch_then_goes_up_at_once_and_down_slowly() -> None:
    h = a_harness(Compression.GZIP)
    assert note(h, BATCH // 4) == 0.25
    assert note(h, BATCH // 2) == 0.5
    # slightly worse: one step up
    assert note(h, BATCH * 33 // 64) == pytest.approx(0.55)
    assert note(h, BATCH // 4) == pytest.approx(0.52)
    assert note(h, BATCH) == 1.0
    h.accumulator.note_rejected(ProducerBatch(h.topic, 0, bytearray(100), 0.0))
    assert note(h, BATCH // 2) == pytest.approx(0.95)


def test_a_batch_that_was_not_filled_teaches_nothing() -> None:
    h = a_harness(Compression.GZIP)
    assert note(h, 500, raw=500) == 0.0
    assert note(h, BATCH // 4) == 0.25
    assert note(h, 500, raw=500) == 0.25
