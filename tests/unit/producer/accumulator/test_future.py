"""The future of a record: waiting, callbacks, await and errors, with completion, splits and forks."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import threading
from typing import Any

import pytest

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotLeaderOrFollowerError,
)
from headrace.network.sections import here
from headrace.producer import threads
from headrace.producer.accumulator import batch_cy
from headrace.producer.accumulator.batch_cy import (
    ProducerBatch,
    RecordFuture,
)
from headrace.producer.accumulator.batch_split import split_batch
from headrace.producer.accumulator.buffer_pool_cy import BufferPool
from headrace.producer.accumulator.record_metadata_cy import RecordMetadata


def open_batch(capacity: int = 1000) -> ProducerBatch:
    return ProducerBatch("t", 3, bytearray(capacity), 0.0)


def complete(batch: ProducerBatch, *answer: Any) -> bool:
    return batch.complete(*answer) and callbacks_ran(batch)


def fail(batch: ProducerBatch, *error: Any) -> bool:
    return batch.fail(*error) and callbacks_ran(batch)


def callbacks_ran(batch: ProducerBatch) -> bool:
    """Run callbacks, as a producer's callback thread does."""
    if not batch.settled:
        batch.run_callbacks()
    return True


def append(batch: ProducerBatch, value: bytes | None = b"v", callback: Any = None, **fields: Any) -> RecordFuture:
    future = batch.append_record(
        fields.get("timestamp", 1000), fields.get("key"), value, fields.get("headers"), callback
    )
    assert future is not None
    return future


def split(batch: ProducerBatch) -> list[ProducerBatch]:
    batch.records = batch.builder.finish()
    children = split_batch(batch)
    batch.split_into(children)
    return [child for _, child in children]


class OnSenderThread:
    """Make the calling thread count as a sender thread."""

    def __enter__(self) -> None:
        here.section.acquire()

    def __exit__(self, *_: object) -> None:
        here.section.release()


def test_a_wait_has_one_deadline_however_often_its_batch_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = MockClock(1_000)
    monkeypatch.setattr(batch_cy, "SYSTEM_CLOCK", clock)
    batch = open_batch()
    futures = [append(batch) for _ in range(4)]
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            futures[0].get(60)
        except KafkaTimeoutError as error:
            raised.append(error)

    waits = threading.Event()
    monkeypatch.setattr(clock, "now_ms", lambda read=clock.now_ms: (read(), waits.set())[0])
    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(30)
    clock.advance(60_000)
    split(batch)
    # its minute has expired, so it doesn't wait another one for the part
    thread.join(30)
    assert not thread.is_alive()
    assert "not acknowledged within 60 s" in str(raised[0])


# --- Metadata ---


def test_metadata_has_the_sizes_and_the_timestamp_of_its_record() -> None:
    batch = open_batch()
    plain = append(batch, b"12345", key=b"12", timestamp=77)
    empty = append(batch, None, timestamp=78)
    assert complete(batch, 10)
    assert plain.get(0) == RecordMetadata("t", 3, 10, 77, 2, 5, -1)
    assert empty.get(0) == RecordMetadata("t", 3, 11, 78, -1, -1, -1)
    assert plain.get(0) != empty.get(0)
    assert len({plain.get(0), plain.get(0)}) == 1
    assert plain.get(0).topic_partition == ("t", 3)


def test_metadata_can_be_pickled_and_copied() -> None:
    metadata = RecordMetadata("t", 3, 10, 77, 2, 5, 0)
    assert pickle.loads(pickle.dumps(metadata)) == metadata
    assert copy.copy(metadata) == metadata


def test_without_an_offset_it_says_so() -> None:
    batch = open_batch()
    future = append(batch)
    complete(batch, -1)
    assert (future.get(0).offset, future.get(0).has_offset) == (-1, False)


# --- Completion ---


def test_a_batch_completes_once() -> None:
    batch = open_batch()
    future = append(batch)
    assert complete(batch, 1)
    assert not complete(batch, 2)
    assert not fail(batch, RuntimeError())
    assert future.get(0).offset == 1
    assert future.exception(0) is None


def test_states_before_and_after() -> None:
    good, bad = open_batch(), open_batch()
    delivered, failed = append(good), append(bad)
    for future in (delivered, failed):
        assert not future.done()
        assert not future.is_done
        assert not future.succeeded()
        assert not future.failed()
        assert future.value is None
        assert "pending" in repr(future)
    complete(good, 1)
    fail(bad, NotLeaderOrFollowerError("moved"))
    assert delivered.done()
    assert delivered.succeeded()
    assert delivered.value == delivered.get(0)
    assert not delivered.failed()
    assert failed.failed()
    assert failed.retriable()
    assert failed.value is None
    assert not failed.cancelled()
    assert "offset=1" in repr(delivered)
    assert "moved" in repr(failed)


def test_the_error_of_a_record_of_its_own_and_that_of_the_batch() -> None:
    batch = open_batch()
    first, second = append(batch), append(batch)
    own = ValueError("bad key")
    whole = RuntimeError("one of them is bad")
    fail(batch, whole, {1: own})
    assert (first.exception(0), second.exception(0)) == (whole, own)


def test_waiting_again_and_again_for_a_failed_record_does_not_grow_its_traceback() -> None:
    batch = open_batch()
    future = append(batch)
    fail(batch, RuntimeError("once"))

    def depth() -> int:
        try:
            future.get(0)
        except RuntimeError as error:
            count, traceback = 0, error.__traceback__
            while traceback is not None:
                count, traceback = count + 1, traceback.tb_next
            return count
        raise AssertionError

    first = depth()
    assert [depth() for _ in range(20)] == [first] * 20


def test_a_wait_that_is_too_long_says_that_the_record_is_on_its_way() -> None:
    future = append(open_batch())
    with pytest.raises(KafkaTimeoutError, match=r"delivery\.timeout\.ms"):
        future.get(0)
    with pytest.raises(KafkaTimeoutError):
        future.exception(0)


def test_a_thread_that_waits_is_woken() -> None:
    batch = open_batch()
    futures = [append(batch) for _ in range(3)]
    got: list[int] = []
    threads = [
        threading.Thread(target=lambda future=future: got.append(future.result(30).offset)) for future in futures
    ]
    for thread in threads:
        thread.start()
    complete(batch, 5)
    for thread in threads:
        thread.join(30)
    assert sorted(got) == [5, 6, 7]


def test_it_can_not_be_waited_for_on_the_thread_that_completes_it() -> None:
    batch = open_batch()
    future = append(batch)
    with OnSenderThread():
        with pytest.raises(IllegalStateError, match="a future can't wait here"):
            future.get()
        complete(batch, 1)
        assert future.get().offset == 1


def test_a_callback_that_blocks_holds_nobody_up_who_waits_for_a_record() -> None:
    batch = open_batch()
    entered, leave = threading.Event(), threading.Event()
    seen: list[Any] = []

    def callback(metadata: RecordMetadata, error: BaseException | None) -> None:
        seen.append((future.done(), future.get(0).offset, neighbour.get(0).offset))
        entered.set()
        leave.wait(30)

    future = append(batch, callback=callback)
    neighbour = append(batch)
    batch.complete(1)

    def callbacks() -> None:
        threads.enter_callback_thread()
        batch.run_callbacks()
        threads.leave_callback_thread()

    thread = threading.Thread(target=callbacks)
    thread.start()
    entered.wait(30)
    assert future.done()
    assert (future.get().offset, neighbour.get().offset) == (1, 2)
    assert not batch.wait_settled(0), "a flush waits for the callbacks"
    leave.set()
    thread.join(30)
    assert batch.wait_settled(0)
    assert seen == [(True, 1, 2)]


def test_get_returns_after_callbacks_that_do_not_block() -> None:
    batch = open_batch()
    called: list[str] = []
    future = append(batch, callback=lambda metadata, error: called.append("callback"))
    batch.complete(1)
    waiting = threading.Event()

    def callbacks() -> None:
        waiting.wait(30)
        batch.run_callbacks()

    thread = threading.Thread(target=callbacks)
    thread.start()
    waiting.set()
    assert (future.get().offset, batch.wait_settled(30), called) == (1, True, ["callback"])
    thread.join(30)


def test_those_who_await_are_woken_by_the_sender_thread_whatever_callbacks_do() -> None:
    batch = open_batch()
    future = append(batch, callback=lambda metadata, error: None)
    woken: list[int] = []
    assert batch.listen(future, lambda metadata, error: woken.append(metadata.offset), True)
    batch.complete(5)
    assert woken == [5]
    assert not batch.settled


# --- Callbacks ---


def test_callbacks_are_called_in_the_order_of_the_records_then_in_that_of_their_adding() -> None:
    batch = open_batch()
    called: list[str] = []
    first = append(batch, callback=lambda metadata, error: called.append("first"))
    second = append(batch, callback=lambda metadata, error: called.append("second"))
    second.add_callback(lambda metadata: called.append("second, added"))
    first.add_callback(lambda metadata: called.append("first, added"))
    complete(batch, 0)
    assert called == ["first", "second", "second, added", "first, added"]


def test_callbacks_and_errbacks_get_what_they_should_with_the_given_arguments() -> None:
    called: list[Any] = []

    def note(*args: Any, **kwargs: Any) -> None:
        called.append((args, kwargs))

    good, bad = open_batch(), open_batch()
    error = RuntimeError()
    for batch in (good, bad):
        future = append(batch)
        assert future.add_callback(note, 1, a=2) is future
        assert future.add_errback(note, 3, b=4) is future
        future.add_both(note, 5)
        future.add_done_callback(note)
    complete(good, 9)
    assert [args[:-1] for args, _ in called] == [(1,), (5,), ()]
    assert called[0][0][1].offset == called[1][0][1].offset == 9
    assert called[0][1] == {"a": 2}
    assert isinstance(called[2][0][0], RecordFuture)
    called.clear()
    fail(bad, error)
    assert called[0] == ((3, error), {"b": 4})
    assert called[1] == ((5, error), {})
    assert isinstance(called[2][0][0], RecordFuture)


def test_a_callback_that_is_added_late_is_called_at_once_and_may_raise(caplog: pytest.LogCaptureFixture) -> None:
    batch = open_batch()
    future = append(batch)
    complete(batch, 4)
    called: list[int] = []
    future.add_callback(lambda metadata: called.append(metadata.offset))
    assert called == [4]

    def bad(metadata: RecordMetadata) -> None:
        raise ValueError("bang")

    future.add_callback(bad)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "t-3" in caplog.text


def test_a_callback_that_raises_is_logged_with_its_record(caplog: pytest.LogCaptureFixture) -> None:
    batch = open_batch()

    def bad(metadata: RecordMetadata, error: BaseException | None) -> None:
        raise asyncio.CancelledError

    future = append(batch, callback=bad)
    complete(batch, 4)
    assert "t-3, offset 4" in caplog.text
    assert len(caplog.records) == 1
    assert future.get(0).offset == 4


def test_callbacks_added_while_others_append_to_the_same_batch_never_mix() -> None:
    batch = open_batch(10_000_000)
    first = append(batch)
    counts = [0, 0]
    per_thread = 20_000

    def one(metadata: RecordMetadata, error: BaseException | None) -> None:
        counts[0] += 1

    def two(metadata: RecordMetadata) -> None:
        counts[1] += 1

    def appending() -> None:
        for _ in range(per_thread):
            append(batch, callback=one)

    def adding() -> None:
        for _ in range(per_thread):
            first.add_callback(two)

    threads = [threading.Thread(target=target) for target in (appending, adding, adding)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    complete(batch, 0)
    assert counts == [per_thread, 2 * per_thread]


# --- Splits ---


def test_futures_follow_their_records_through_splits_of_splits() -> None:
    batch = open_batch()
    called: list[tuple[int, int]] = []
    futures = [
        append(batch, b"%d" % i, callback=lambda metadata, error, i=i: called.append((i, metadata.offset)))
        for i in range(7)
    ]
    left, right = split(batch)
    assert (left.count, right.count) == (4, 3)
    left_left, left_right = split(left)
    futures[3].add_callback(lambda metadata: called.append((33, metadata.offset)))
    complete(left_left, 100)
    complete(right, 300)
    assert not futures[3].done()
    complete(left_right, 200)
    assert [future.get(0).offset for future in futures] == [100, 101, 200, 201, 300, 301, 302]
    assert called == [(0, 100), (1, 101), (4, 300), (5, 301), (6, 302), (2, 200), (3, 201), (33, 201)]


def test_the_parts_have_the_records_and_share_the_memory() -> None:
    pool = BufferPool(1001, 1001, MockClock())
    lease = pool.allocate(1001, 0)
    batch = ProducerBatch("t", 3, lease.buffer, 0.0, lease)
    for i in range(3):
        append(batch, b"%d" % i, key=b"k", timestamp=100 + i, headers=None)
    parts = split(batch)
    assert batch.take_lease() is lease
    for part in parts:
        assert pool.available_bytes == 0
        assert part.take_lease() is lease
        pool.deallocate(lease)
    assert pool.available_bytes == 1001
    assert all(part.closed for part in parts)
    assert [part.created_ms for part in parts] == [batch.created_ms] * 2


def test_who_waits_for_a_record_of_a_batch_that_is_split_goes_on_waiting() -> None:
    batch = open_batch()
    first, second = append(batch), append(batch)
    got: list[Any] = []

    def wait(future: RecordFuture) -> None:
        got.append(future.exception(30) or future.get(30).offset)

    threads = [threading.Thread(target=wait, args=(future,)) for future in (first, second)]
    for thread in threads:
        thread.start()
    left, right = split(batch)
    complete(left, 1)
    threads[0].join(30)
    assert got == [1]
    error = MessageSizeTooLargeError("too large")
    fail(right, error)
    threads[1].join(30)
    assert got == [1, error]


# --- Await ---


def test_await_in_order_out_of_order_and_late() -> None:
    async def run() -> list[Any]:
        batches = [open_batch() for _ in range(3)]
        futures = [append(batch) for batch in batches]
        complete(batches[2], 30)
        fail(batches[1], RuntimeError("no"))
        threading.Thread(target=batches[0].complete, args=(10,)).start()
        return await asyncio.gather(*futures, return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert (first.offset, str(second), third.offset) == (10, "no", 30)


def test_awaiting_many_futures_takes_no_threads() -> None:
    async def run() -> None:
        batch = open_batch(1_000_000)
        futures = [append(batch) for _ in range(10_000)]
        waiting = asyncio.gather(*futures)
        await asyncio.sleep(0)
        before = threading.active_count()
        complete(batch, 0)
        got = await waiting
        assert threading.active_count() == before
        assert [metadata.offset for metadata in got] == list(range(10_000))

    asyncio.run(run())


def test_a_task_that_is_cancelled_while_it_awaits_harms_nobody() -> None:
    async def run() -> None:
        batch = open_batch()
        future = append(batch)

        async def wait() -> RecordMetadata:
            return await future

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        complete(batch, 1)
        assert (await future).offset == 1

    asyncio.run(run())


def test_a_loop_that_was_closed_meanwhile_harms_nobody() -> None:
    batch = open_batch()
    future = append(batch)

    async def run() -> None:
        async def wait() -> None:
            await future

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(run())
    complete(batch, 1)
    assert future.get(0).offset == 1


# --- A forked child ---


def test_an_abandoned_batch_fails_who_waits_and_calls_nobody() -> None:
    batch = open_batch()
    called: list[Any] = []
    future = append(batch, callback=lambda *args: called.append(args))
    batch.abandon(IllegalStateError("the parent's"))
    with pytest.raises(IllegalStateError, match="parent"):
        future.get()
    assert called == []
    assert not complete(batch, 1)
