"""The futures of an event loop: asyncio's protocol, one registration per batch, splits, slices, and a closed loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.network.clock import SYSTEM_CLOCK, MockClock
from headrace.network.protocol.errors import KafkaTimeoutError
from headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
from headrace.producer.accumulator.record_metadata_cy import RecordMetadata
from headrace.producer.aio.futures_cy import AsyncRecordFuture, Completions

Program = Callable[["Batch", Completions], Coroutine[Any, Any, None]]


class Batch:
    """A batch of records that a test completes."""

    def __init__(self, records: int = 3) -> None:
        self.batch = ProducerBatch("t", 2, bytearray(1000), 0.0)
        self.records = [self.append() for _ in range(records)]

    def append(self) -> RecordFuture:
        record = self.batch.append_record(7, None, b"v", None, None)
        assert record is not None
        return record


def run(program: Program) -> None:
    async def main() -> None:
        await program(Batch(), Completions(asyncio.get_running_loop(), SYSTEM_CLOCK))

    asyncio.run(main())


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_asyncio_takes_it_for_a_future_of_its_loop() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        assert asyncio.isfuture(future)
        assert asyncio.ensure_future(future) is future
        assert future.get_loop() is asyncio.get_running_loop()
        assert future.topic_partition == ("t", 2)

    run(program)


def test_an_await_returns_the_metadata() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        task = asyncio.ensure_future(_awaited(completions.future_of(batch.records[1])))
        await turns()
        assert not task.done()
        batch.batch.complete(40)
        metadata = await task
        assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == ("t", 2, 41, 7)

    run(program)


async def _awaited(future: AsyncRecordFuture) -> Any:
    return await future


def test_an_await_of_a_done_record_does_not_suspend() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        batch.batch.complete(40)
        future = completions.future_of(batch.records[0])
        with pytest.raises(StopIteration) as stopped:
            future.__await__().__next__()
        assert stopped.value.value.offset == 40

    run(program)


def test_several_tasks_may_await_one_future() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        tasks = [asyncio.ensure_future(_awaited(future)) for _ in range(3)]
        await turns()
        batch.batch.complete(5)
        assert [metadata.offset for metadata in await asyncio.gather(*tasks)] == [5, 5, 5]

    run(program)


def test_an_error_is_raised_by_each_await() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        task = asyncio.ensure_future(_awaited(future))
        await turns()
        error = KafkaTimeoutError("no")
        batch.batch.fail(error)
        for _ in range(2):
            with pytest.raises(KafkaTimeoutError):
                await task
            with pytest.raises(KafkaTimeoutError):
                await future
        assert future.exception() is error

    run(program)


def test_before_it_is_done_there_is_no_result() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        assert not future.done()
        with pytest.raises(asyncio.InvalidStateError):
            future.result()
        with pytest.raises(asyncio.InvalidStateError):
            future.exception()

    run(program)


def test_gather_wait_wait_for_and_shield_take_it() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        first, second, third = [completions.future_of(record) for record in batch.records]
        asyncio.get_running_loop().call_soon(batch.batch.complete, 10)
        done, pending = await asyncio.wait([first, second], timeout=60)
        assert (done, pending) == ({first, second}, set())
        assert [each.offset for each in await asyncio.gather(first, second)] == [10, 11]
        assert (await asyncio.wait_for(third, 60)).offset == 12
        assert (await asyncio.shield(third)).offset == 12

    run(program)


def test_cancelling_a_task_ends_its_wait_and_not_the_delivery() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        task = asyncio.ensure_future(_awaited(future))
        await turns()
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        assert future.cancelled()
        assert future.done()
        assert not future.cancel()
        with pytest.raises(asyncio.CancelledError):
            future.exception()
        batch.batch.complete(3)
        await turns()
        assert batch.records[0].get(0).offset == 3

    run(program)


def test_a_done_future_cannot_be_cancelled() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        batch.batch.complete(3)
        assert not future.cancel()
        assert not future.cancelled()
        assert future.result().offset == 3

    run(program)


def test_gather_reports_a_future_that_is_cancelled() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        first, second, third = [completions.future_of(record) for record in batch.records]
        asyncio.get_running_loop().call_soon(first.cancel, "enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await asyncio.gather(first, second)
        batch.batch.complete(4)
        cancelled, metadata = await asyncio.gather(first, third, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert cancelled.args == ("enough",)
        assert isinstance(metadata, RecordMetadata)
        assert metadata.offset == 6

    run(program)


def test_callbacks_run_in_order_in_their_contexts_and_can_be_removed() -> None:
    variable = contextvars.ContextVar("variable", default="outside")

    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        called: list[tuple[str, str]] = []

        def first(_: object) -> None:
            called.append(("first", variable.get()))

        def second(_: object) -> None:
            called.append(("second", variable.get()))

        def removed(_: object) -> None:
            called.append(("removed", ""))

        variable.set("at first")
        future.add_done_callback(first)
        future.add_done_callback(removed)
        variable.set("at second")
        future.add_done_callback(second)
        assert future.remove_done_callback(removed) == 1
        assert future.remove_done_callback(removed) == 0
        batch.batch.complete(0)
        assert called == []
        await turns()
        assert called == [("first", "at first"), ("second", "at second")]
        future.add_done_callback(first)
        await turns()
        assert called[2:] == [("first", "at second")]

    run(program)


def test_a_callback_added_after_all_were_removed_is_called() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        called: list[object] = []
        future.add_done_callback(called.append)
        future.remove_done_callback(called.append)
        future.add_done_callback(called.append)
        batch.batch.complete(0)
        await turns()
        assert called == [future]

    run(program)


def test_a_callback_that_raises_is_reported_and_the_next_is_called() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        future = completions.future_of(batch.records[0])
        called: list[object] = []
        future.add_done_callback(lambda _: 1 / 0)
        future.add_done_callback(called.append)
        batch.batch.complete(0)
        await turns()
        assert called == [future]
        assert isinstance(reported[0]["exception"], ZeroDivisionError)

    run(program)


def test_a_batch_wakes_the_loop_once() -> None:
    class CountingLoop:
        """Counts what the sender thread asks of the loop."""

        def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
            self.loop, self.calls = loop, 0

        def call_soon_threadsafe(self, *arguments: Any) -> Any:
            self.calls += 1
            return self.loop.call_soon_threadsafe(*arguments)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.loop, name)

    async def main() -> None:
        loop: Any = CountingLoop(asyncio.get_running_loop())
        completions = Completions(loop, SYSTEM_CLOCK)
        batches = [Batch(20) for _ in range(3)]
        called: list[object] = []
        for batch in batches:
            for record in batch.records:
                completions.future_of(record).add_done_callback(called.append)
        for batch in batches:
            batch.batch.complete(0)
        assert loop.calls == 1
        await turns()
        assert len(called) == 60
        assert completions.is_settled

    asyncio.run(main())


def test_the_parts_of_a_split_batch_settle_by_themselves() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        futures = [completions.future_of(record) for record in batch.records]
        called: list[AsyncRecordFuture] = []
        for future in futures:
            future.add_done_callback(called.append)
        parts = []
        for start, records in ((0, 2), (2, 1)):
            part = Batch(records).batch
            part.become_part(batch.batch, start)
            parts.append((start, part))
        batch.batch.split_into(parts)
        parts[0][1].complete(100)
        await turns()
        assert called == futures[:2]
        parts[1][1].complete(200)
        await turns()
        assert called == futures
        assert [future.result().offset for future in futures] == [100, 101, 200]

    run(program)


def test_a_callback_added_after_a_split_is_called_though_the_earlier_were_removed() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        future = completions.future_of(batch.records[0])
        other = completions.future_of(batch.records[1])
        called: list[object] = []
        other.add_done_callback(called.append)
        future.add_done_callback(called.append)
        future.remove_done_callback(called.append)
        part, rest = Batch(1).batch, Batch(2).batch
        part.become_part(batch.batch, 0)
        rest.become_part(batch.batch, 1)
        batch.batch.split_into([(0, part), (1, rest)])
        rest.complete(8)
        await turns()
        assert called == [other]
        future.add_done_callback(called.append)
        part.complete(7)
        await turns()
        assert called == [other, future]

    run(program)


def test_what_waits_is_settled_in_slices() -> None:
    async def main() -> None:
        clock = MockClock()
        completions = Completions(asyncio.get_running_loop(), clock)
        batch = Batch(0)
        called: list[int] = []

        def callback(_: object) -> None:
            called.append(0)
            clock.advance(1.0)

        for _ in range(100):
            record = batch.batch.append_record(0, None, b"", None, None)
            assert record is not None
            completions.future_of(record).add_done_callback(callback)
        batch.batch.complete(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < len(called) < 100
        assert not completions.is_settled
        while not completions.is_settled:
            await asyncio.sleep(0)
        assert len(called) == 100

    asyncio.run(main())


def test_a_batch_that_completes_after_its_loop_was_closed_disturbs_nothing() -> None:
    loop = asyncio.new_event_loop()
    completions = Completions(loop, SYSTEM_CLOCK)
    batch = Batch()
    called: list[object] = []
    completions.future_of(batch.records[0]).add_done_callback(called.append)
    loop.close()
    assert batch.batch.complete(9)
    assert called == []
    assert batch.records[0].get(0).offset == 9


def test_a_batch_can_be_awaited_as_a_whole() -> None:
    async def program(batch: Batch, completions: Completions) -> None:
        done = completions.batch_done(batch.batch)
        await turns()
        assert not done.done()
        batch.batch.fail(KafkaTimeoutError("no"))
        assert await done is None

    run(program)
