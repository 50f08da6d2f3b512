"""Batches that were drained, compressed, and put back because the request has no room for them after all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.sender_harness import LINGER_MS, SenderHarness, batches_of
from support.transaction_harness import HELD, TransactionHarness

from headrace.network.client.request import ClientRequest
from headrace.network.protocol import errors
from headrace.network.protocol.messages.records.produce import ProduceRequest
from headrace.network.records import compression
from headrace.network.records.compression import Compression
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.accumulator.queues_cy import PartitionQueue

BATCH = 20_000
NOISE = random.Random(3).randbytes(BATCH)


def a_harness(**options: object) -> SenderHarness:
    """A producer with one request in flight, in which there is room for one batch of noise."""
    defaults: dict = {
        "compression": Compression.LZ4,
        "batch_size": BATCH,
        "memory": 50_000_000,
        "max_request_bytes": BATCH + 5_000,
        "max_in_flight": 1,
    }
    h = SenderHarness(**{**defaults, **options})
    expect_a_quarter(h)
    return h


def expect_a_quarter(h: SenderHarness | TransactionHarness) -> None:
    """Batches are expected to shrink to a quarter, because another topic's did."""
    h.accumulator.topic_queues("other", lambda: h.metadata.cluster)
    for _ in range(100):
        h.accumulator.note_compression(ProducerBatch("other", 0, bytearray(100), 0.0), 100, 10)


def queues(h: SenderHarness) -> list[PartitionQueue]:
    return h.accumulator.topic_queues(h.topic, lambda: h.metadata.cluster).queues


def partitions_of(request: ClientRequest) -> list[int]:
    return [partition for _, partition, _ in batches_of(request)]


def test_it_has_no_sequence_number_and_its_partition_comes_next() -> None:
    h = a_harness(partitions=3)
    for partition in (0, 1, 2):
        h.append(NOISE[:19_000], partition=partition)
    h.append(NOISE[:19_000], partition=0)
    (first,) = h.send()
    assert partitions_of(first) == [0]
    assert [queue.batches[0].has_sequence for queue in queues(h)] == [False] * 3
    order = []
    pending = first
    for _ in range(3):
        h.answer(pending)
        (pending,) = h.client.requests
        order.append(partitions_of(pending))
    assert order == [[1], [2], [0]]


@pytest.mark.parametrize(("idempotent", "max_in_flight"), [(True, 1), (False, 5)])
def test_no_partition_starves_beside_records_that_do_not_compress(idempotent: bool, max_in_flight: int) -> None:
    h = a_harness(partitions=6, max_request_bytes=2 * BATCH + 500, idempotent=idempotent, max_in_flight=max_in_flight)
    delivered: Counter[int] = Counter()
    waiting: list[ClientRequest] = []
    for _ in range(60):
        for partition, queue in enumerate(queues(h)):
            while len(queue.batches) < 8:
                # two values of noise nearly fill a request
                value = NOISE[:19_700] if partition < 2 else NOISE[:400] + bytes(19_300)
                h.append(value, partition=partition)
        sent = len(h.client.sent)
        h.step(1000)
        waiting += h.client.sent[sent:]
        # the broker takes one request per second
        answered = waiting.pop(0)
        delivered.update(partitions_of(answered))
        h.answer(answered, step=False)
    assert set(delivered) == set(range(6))
    assert min(delivered.values()) > 0.8 * max(delivered.values()), delivered


def test_aborting_it_leaves_no_gap_in_the_sequence_numbers() -> None:
    h = a_harness(partitions=2)
    futures = [h.append(NOISE[:19_000], partition=partition) for partition in (0, 1)]
    (request,) = h.send()
    h.sender.request_abort()
    h.answer(request)
    h.step()
    assert isinstance(futures[1].exception(0), errors.RecordAbortedError)
    assert h.transactions is not None
    assert h.transactions.producer_epoch == 0
    later = h.append(b"later", partition=1)
    (request,) = h.send()
    h.answer(request)
    assert later.succeeded()


def test_a_transaction_that_is_aborted_does_not_send_it() -> None:
    h = TransactionHarness(
        level=2,
        partitions=2,
        compression=Compression.LZ4,
        batch_size=BATCH,
        memory=5_000_000,
        max_request_bytes=BATCH + 5_000,
        max_in_flight=1,
    )
    h.init()
    h.transaction.begin()
    expect_a_quarter(h)
    futures = [h.append(NOISE[:19_000], partition=partition) for partition in (0, 1)]
    h.script("Produce", HELD)
    h.step(10)
    h.step(1)
    (held,) = [request for request in h.client.requests if isinstance(request.message, ProduceRequest)]
    assert partitions_of(held) == [0]
    with pytest.raises(errors.KafkaTimeoutError):
        h.transaction.abort()
    sent = len(h.client.sent)
    h.answers["Produce"].clear()
    h.run()
    assert [type(request.message).__name__ for request in h.client.sent[sent:]] == ["EndTxnRequest"]
    assert all(future.done() and not future.succeeded() for future in futures)


def test_a_retry_does_not_back_off_again() -> None:
    h = a_harness(partitions=2, backoff=lambda attempts: 1000.0)
    _, request = h.request(NOISE[:19_000], partition=1)
    h.answer(request, errors.NotLeaderOrFollowerError.code)
    retried = queues(h)[1]
    # the new leader is known, which ends the backoff (KIP-951)
    retried.leader_epoch += 1
    expect_a_quarter(h)
    h.append(NOISE[:19_000], partition=0)
    # the other partition comes first, as if it had lingered before
    h.accumulator.waiting.take_lingered(h.clock.now_ms() + LINGER_MS, [])
    retried.to_end_of_line()
    (request,) = h.send()
    assert partitions_of(request) == [0]
    h.answer(request)
    (request,) = h.client.requests
    assert partitions_of(request) == [1]


def while_compressing(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen whenever a batch is compressed."""
    row = compression.CODECS[Compression.LZ4]

    def compress(*arguments: Any) -> Any:
        act()
        return row.compress(*arguments)

    monkeypatch.setitem(compression.CODECS, Compression.LZ4, row._replace(compress=compress))


def test_a_forced_close_sends_nothing_that_was_compressed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    h = a_harness(partitions=2)
    futures = [h.append(NOISE[:19_000], partition=partition) for partition in (0, 1)]
    while_compressing(monkeypatch, lambda: h.sender.close(force=True))
    h.clock.advance(10)
    h.sender.run()
    assert not [request for request in h.client.sent if isinstance(request.message, ProduceRequest)]
    assert all(isinstance(future.exception(0), errors.ProducerClosedError) for future in futures)
    assert h.free_bytes == 50_000_000


def test_the_time_that_compressing_took_is_not_slept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    h = a_harness(partitions=2, linger_ms=1000, max_request_bytes=1_000_000)
    h.append(b"x", partition=1)
    h.clock.advance(100)
    for _ in range(2):
        h.append(NOISE[:19_000], partition=0)
    while_compressing(monkeypatch, lambda: h.clock.advance(700))
    began_ms = h.clock.now_ms()
    h.sender.run_once()
    # the batch of partition 1 has lingered for 800 of its 1000 ms
    assert h.accumulator.next_look_ms == began_ms + 900
    assert h.client.polls[-1] == 200
