"""The calls of `send_and_wait`: a coroutine and a future at once, which begins where a task would."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaTimeoutError
from headrace.producer.accumulator.batch_cy import ProducerBatch, RecordFuture
from headrace.producer.aio.coroutine_functions import coroutine_function
from headrace.producer.aio.futures_cy import AsyncRecordFuture, Completions
from headrace.producer.aio.sends_cy import LoopSends, NotAppended, NotDirect
from headrace.producer.record import ProducerRecord


class Producer:
    """A producer with one batch. Values in `waits` take the path with awaits, until `go_on`."""

    def __init__(self, is_direct: bool = True) -> None:
        self.batch = ProducerBatch("t", 0, bytearray(10_000), 0.0)
        self.appended: list[Any] = []
        self.waits: dict[Any, asyncio.Future[None]] = {}
        self.in_line: list[Any] = []
        self.clock = MockClock()
        self.sends = self._sends_here(is_direct)
        self.fails: Callable[[], object] = lambda: None

    def _sends_here(self, is_direct: bool = True) -> LoopSends:
        completions = Completions(asyncio.get_running_loop(), self.clock)
        return LoopSends(completions, self.clock, self.send, (), is_direct)

    def send(self, topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp_ms: Any) -> RecordFuture:
        self.fails()
        if value in self.waits:
            raise NotDirect
        return self.append(value)

    def append(self, value: Any) -> RecordFuture:
        record = self.batch.append_record(0, None, b"", None, None)
        assert record is not None
        self.appended.append(value)
        return record

    def call(self, value: Any) -> Any:
        return self.sends.awaited(self, "t", value, None, None, None, None)

    def _completions_here(self) -> Completions:
        return self._sends_here().completions

    async def _send_with_waits(self, sends: LoopSends | None, topic: Any, value: Any, *_: Any) -> AsyncRecordFuture:
        if value in self.waits:
            self.in_line.append(value)
            try:
                await asyncio.sleep(0)
                await self.waits[value]
            finally:
                self.in_line.remove(value)
        completions = self._completions_here() if sends is None else sends.completions
        return completions.future_of(self.append(value))

    def wait(self, value: Any) -> asyncio.Future[None]:
        """Let a value wait for a future before it is appended."""
        self.waits[value] = asyncio.get_running_loop().create_future()
        return self.waits[value]


def run(program: Callable[[Producer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await program(Producer())

    asyncio.run(main())


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def awaited(call: Awaitable[Any]) -> Any:
    return await call


# --- A coroutine ---


def test_nothing_is_sent_before_it_is_awaited() -> None:
    async def program(producer: Producer) -> None:
        call = producer.call(1)
        await turns()
        assert producer.appended == []
        assert "not begun" in repr(call)
        asyncio.get_running_loop().call_soon(producer.batch.complete, 40)
        assert (await call).offset == 40
        assert producer.appended == [1]

    run(program)


def test_it_is_a_coroutine_that_a_task_runs() -> None:
    async def program(producer: Producer) -> None:
        call = producer.call(1)
        assert asyncio.iscoroutine(call)
        assert inspect.isawaitable(call)
        task = asyncio.create_task(call)
        await turns()
        assert producer.appended == [1]
        assert not task.done()
        producer.batch.complete(40)
        assert (await task).offset == 40

    run(program)


def test_one_that_is_never_awaited_warns_and_sends_nothing() -> None:
    async def program(producer: Producer) -> None:
        with pytest.warns(RuntimeWarning, match="send_and_wait' was never awaited"):
            producer.call(1)
        closed = producer.call(2)
        closed.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del closed
            gc.collect()
        assert caught == []
        await turns()
        assert producer.appended == []

    run(program)


def test_throwing_ends_it_and_nothing_is_sent() -> None:
    async def program(producer: Producer) -> None:
        for arguments in ((ValueError("no"),), (ValueError, "no"), (ValueError, ValueError("no"), None)):
            call = producer.call(1)
            with pytest.raises(ValueError, match="no"):
                call.throw(*arguments)
            assert call.cancelled()
        await turns()
        assert producer.appended == []

    run(program)


def test_a_task_that_is_cancelled_before_it_begins_has_not_sent() -> None:
    async def program(producer: Producer) -> None:
        task = asyncio.create_task(producer.call(1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert producer.appended == []

    run(program)


def test_created_on_one_loop_it_can_be_awaited_on_another() -> None:
    async def program(producer: Producer) -> None:
        called = [producer.call(1), producer.call(2)]

        async def elsewhere() -> None:
            call, gathered = called
            assert not asyncio.isfuture(call)
            asyncio.get_running_loop().call_soon(producer.batch.complete, 7)
            assert [each.offset for each in await asyncio.gather(awaited(call), gathered)] == [7, 8]

        thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
        thread.start()
        thread.join()
        assert producer.appended == [1, 2]

    run(program)


def test_outside_a_loop_it_is_no_future() -> None:
    async def created() -> Any:
        return Producer().call(1)

    call = asyncio.run(created())
    assert asyncio.iscoroutine(call)
    assert not asyncio.isfuture(call)
    call.close()


# --- A future ---


def test_gather_takes_it_for_a_future_and_makes_no_task() -> None:
    async def program(producer: Producer) -> None:
        before = asyncio.all_tasks()
        gathered = asyncio.gather(*(producer.call(number) for number in range(5)))
        assert producer.appended == []
        await turns()
        assert producer.appended == [0, 1, 2, 3, 4]
        assert asyncio.all_tasks() == before
        producer.batch.complete(10)
        assert [each.offset for each in await gathered] == [10, 11, 12, 13, 14]

    run(program)


def test_ensure_future_sends_without_an_await() -> None:
    async def program(producer: Producer) -> None:
        call = producer.call(1)
        future = asyncio.ensure_future(call)
        assert future is call
        assert future.get_loop() is asyncio.get_running_loop()
        with pytest.raises(asyncio.InvalidStateError):
            _ = call.topic_partition
        await turns()
        assert producer.appended == [1]
        assert call.topic_partition == ("t", 0)
        assert not future.done()
        with pytest.raises(asyncio.InvalidStateError):
            future.result()
        producer.batch.complete(3)
        assert future.result().offset == 3
        assert (await future).offset == 3

    run(program)


def test_it_begins_where_a_task_would() -> None:
    async def program(producer: Producer) -> None:
        started = [
            asyncio.create_task(producer.call(1)),
            asyncio.ensure_future(producer.call(2)),
            asyncio.create_task(awaited(producer.call(3))),
            asyncio.ensure_future(producer.call(4)),
        ]
        await asyncio.sleep(0)
        assert producer.appended == [1, 2, 3, 4]
        producer.batch.complete(0)
        assert [each.offset for each in await asyncio.gather(*started)] == [0, 1, 2, 3]

    run(program)


def test_it_sends_in_a_copy_of_the_context() -> None:
    variable = contextvars.ContextVar("variable", default="outside")

    async def program(producer: Producer) -> None:
        seen: list[str] = []

        def look() -> None:
            seen.append(variable.get())
            variable.set("within")

        producer.fails = look
        variable.set("at the call")
        future = asyncio.ensure_future(producer.call(1))
        variable.set("afterwards")
        await turns()
        assert seen == ["at the call"]
        assert variable.get() == "afterwards"
        producer.batch.complete(0)
        await future

    run(program)


def test_wait_for_and_shield_take_it() -> None:
    async def program(producer: Producer) -> None:
        asyncio.get_running_loop().call_later(0, producer.batch.complete, 0)
        assert (await asyncio.wait_for(producer.call(1), 60)).offset == 0
        producer.batch = ProducerBatch("t", 0, bytearray(1000), 0.0)
        outer = asyncio.ensure_future(asyncio.shield(producer.call(2)))
        await turns()
        outer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await outer
        assert producer.appended == [1, 2]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.call(3), 0)
        assert producer.appended == [1, 2]

    run(program)


def test_a_future_that_is_cancelled_before_it_begins_has_not_sent() -> None:
    async def program(producer: Producer) -> None:
        called: list[object] = []
        future = asyncio.ensure_future(producer.call(1))
        future.add_done_callback(called.append)
        assert future.cancel("enough")
        assert not future.cancel()
        await turns()
        assert called == [future]
        assert producer.appended == []
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await future

    run(program)


def test_cancelling_a_gather_ends_the_waits_and_not_the_deliveries() -> None:
    async def program(producer: Producer) -> None:
        calls = [producer.call(number) for number in range(3)]
        gathered = asyncio.gather(*calls)
        await turns()
        gathered.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gathered
        assert all(call.cancelled() for call in calls)
        assert producer.batch.complete(5)
        assert calls[2].record.get(0).offset == 7

    run(program)


def test_several_tasks_may_await_it() -> None:
    async def program(producer: Producer) -> None:
        call = producer.call(1)
        tasks = [asyncio.create_task(awaited(call)) for _ in range(3)]
        await turns()
        producer.batch.complete(5)
        assert [each.offset for each in await asyncio.gather(*tasks)] == [5, 5, 5]
        assert producer.appended == [1]

    run(program)


def test_a_callback_of_its_own_is_enough_to_send() -> None:
    async def program(producer: Producer) -> None:
        call, called = producer.call(1), []
        call.add_done_callback(called.append)
        call.add_done_callback(called.append)
        call.add_done_callback(called.clear)
        assert call.remove_done_callback(called.clear) == 1
        await turns()
        producer.batch.complete(5)
        await turns()
        assert called == [call, call]

    run(program)


# --- Errors ---


def test_an_error_of_the_send_is_raised_by_each_way_of_waiting() -> None:
    async def program(producer: Producer) -> None:
        error = KafkaTimeoutError("no")

        def fail() -> None:
            raise error

        producer.fails = fail
        for way in (awaited, asyncio.create_task, asyncio.gather, asyncio.shield):
            with pytest.raises(KafkaTimeoutError, match="no"):
                await way(producer.call(1))
        future = asyncio.ensure_future(producer.call(1))
        await turns()
        assert future.done()
        assert future.exception() is error
        (found,) = await asyncio.gather(producer.call(1), return_exceptions=True)
        assert found is error
        assert producer.appended == []

    run(program)


def test_an_error_of_the_delivery_is_raised() -> None:
    async def program(producer: Producer) -> None:
        gathered = asyncio.gather(producer.call(1), producer.call(2))
        await turns()
        producer.batch.fail(KafkaTimeoutError("no"))
        with pytest.raises(KafkaTimeoutError):
            await gathered

    run(program)


@pytest.mark.parametrize("way", [awaited, asyncio.gather])
def test_stop_iteration_does_not_pass_for_a_result(way: Callable[[Any], Awaitable[Any]]) -> None:
    async def program(producer: Producer) -> None:
        def stop() -> None:
            raise StopIteration(7)

        producer.fails = stop
        with pytest.raises(RuntimeError, match="StopIteration"):
            await way(producer.call(1))

    run(program)


def test_an_interrupt_while_it_begins_reaches_the_loop() -> None:
    async def program(producer: Producer) -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        producer.fails = interrupt
        asyncio.ensure_future(producer.call(1)).add_done_callback(lambda future: future.exception())
        await turns()

    with pytest.raises(KeyboardInterrupt):
        run(program)


def test_an_error_that_nobody_retrieves_is_reported_as_a_tasks_is() -> None:
    async def program(producer: Producer) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        error = KafkaTimeoutError("no")
        retrieved, dropped = [asyncio.ensure_future(producer.call(number)) for number in range(2)]
        await turns()
        producer.batch.fail(error)
        await turns()
        assert retrieved.exception() is error
        del retrieved, dropped
        gc.collect()
        assert [context["exception"] for context in reported] == [error]

    run(program)


# --- Records that wait ---


def test_records_that_wait_take_their_places_in_order() -> None:
    async def program(producer: Producer) -> None:
        first, second = producer.wait(1), producer.wait(2)
        gathered = asyncio.gather(producer.call(1), producer.call(2), producer.call(3))
        await asyncio.sleep(0)
        # before the next turn, in which another task could send
        assert producer.in_line == [1, 2]
        assert producer.appended == [3]
        await turns()
        first.set_result(None)
        await turns()
        assert producer.appended == [3, 1]
        second.set_result(None)
        await turns()
        producer.batch.complete(0)
        assert [each.offset for each in await gathered] == [1, 2, 0]

    run(program)


@pytest.mark.parametrize("way", [awaited, asyncio.create_task])
def test_a_coroutine_waits_too(way: Callable[[Any], Any]) -> None:
    async def program(producer: Producer) -> None:
        gate = producer.wait(1)
        waiting = asyncio.ensure_future(way(producer.call(1)))
        await turns()
        assert producer.in_line == [1]
        gate.set_result(None)
        await turns()
        assert producer.appended == [1]
        producer.batch.complete(4)
        assert (await waiting).offset == 4

    run(program)


@pytest.mark.parametrize("turns_before", [1, 4])
@pytest.mark.parametrize("way", [asyncio.ensure_future, asyncio.create_task])
def test_one_that_is_cancelled_while_it_waits_leaves_its_line(way: Callable[[Any], Any], turns_before: int) -> None:
    async def program(producer: Producer) -> None:
        gate = producer.wait(1)
        waiting = way(producer.call(1))
        await turns(turns_before)
        assert producer.in_line == [1]
        waiting.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()
        await turns()
        assert producer.in_line == []
        assert gate.cancelled() is (turns_before == 4)
        assert producer.appended == []

    run(program)


def test_one_that_is_cancelled_when_its_wait_is_over_leaves_its_line() -> None:
    async def program(producer: Producer) -> None:
        gate = producer.wait(1)
        future = asyncio.ensure_future(producer.call(1))
        await turns()
        gate.set_result(None)
        assert future.cancel()
        assert not future.cancel()
        with pytest.raises(asyncio.CancelledError):
            await future
        await turns()
        assert producer.in_line == []
        assert producer.appended == []

    run(program)


def test_an_error_while_it_waits_is_raised() -> None:
    async def program(producer: Producer) -> None:
        gate = producer.wait(1)
        gathered = asyncio.gather(producer.call(1))
        await turns()
        gate.set_exception(KafkaTimeoutError("no memory"))
        with pytest.raises(KafkaTimeoutError, match="no memory"):
            await gathered
        assert producer.appended == []

    run(program)


def test_closing_the_coroutine_around_it_leaves_the_line() -> None:
    async def program(producer: Producer) -> None:
        producer.wait(1)
        outer = awaited(producer.call(1))
        outer.send(None)
        assert producer.in_line == [1]
        await turns()
        outer.close()
        await turns()
        assert producer.in_line == []
        assert producer.appended == []

    run(program)


def test_a_serialized_record_is_handed_to_the_path_with_awaits() -> None:
    async def program(producer: Producer) -> None:
        record = ProducerRecord("t", b"serialized")

        def not_appended() -> None:
            raise NotAppended(record)

        producer.fails = not_appended
        future = asyncio.ensure_future(producer.call(1))
        await turns()
        assert producer.sends.serialized is record
        producer.batch.complete(0)
        await future

    run(program)


def test_a_producer_whose_records_may_not_be_sent_directly_has_none() -> None:
    async def main() -> None:
        assert Producer(is_direct=False).call(1) is None

    asyncio.run(main())


# --- What inspect says ---


def test_a_method_can_pass_for_a_coroutine_function() -> None:
    class Sender:
        @coroutine_function
        def send(self, value: int, *, twice: bool = False) -> Coroutine[Any, Any, int]:
            """Send."""

            async def sent() -> int:
                return value * (2 if twice else 1)

            return sent()

        def plain(self) -> None:
            """Not one."""

    for send in (Sender().send, Sender.send):
        assert inspect.iscoroutinefunction(send)
        assert asyncio.iscoroutinefunction(send)
        assert send.__doc__ == "Send."
        assert send.__name__ == "send"
    assert not inspect.iscoroutinefunction(Sender().plain)
    assert list(inspect.signature(Sender().send).parameters) == ["value", "twice"]
    assert list(inspect.signature(Sender.send).parameters) == ["self", "value", "twice"]
    assert asyncio.run(Sender().send(3, twice=True)) == 6
    assert asyncio.run(Sender.send(Sender(), 3)) == 3
