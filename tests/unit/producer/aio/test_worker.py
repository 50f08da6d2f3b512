"""The thread for blocking calls: order, errors, cancelling, and its end."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from headrace.producer.aio.worker import BlockingCalls


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_it_starts_with_the_first_call_and_runs_calls_in_order() -> None:
    async def main() -> None:
        calls = BlockingCalls("calls-in-order")
        assert not threads("calls-in-order")
        ran: list[int] = []
        await asyncio.gather(*(calls.run(lambda number=number: ran.append(number)) for number in range(5)))
        assert ran == [0, 1, 2, 3, 4]
        (thread,) = threads("calls-in-order")
        calls.finish()
        thread.join(30)
        assert not thread.is_alive()

    asyncio.run(main())


def test_an_error_is_raised_where_the_call_is_awaited() -> None:
    async def main() -> None:
        calls = BlockingCalls("calls-with-errors")
        with pytest.raises(ZeroDivisionError):
            await calls.run(lambda: 1 // 0)
        assert await calls.run(lambda: 5) == 5
        calls.finish()

    asyncio.run(main())


def test_a_call_that_is_cancelled_before_it_begins_is_skipped_if_it_may_be() -> None:
    async def main() -> None:
        calls = BlockingCalls("calls-cancelled")
        gate, ran = threading.Event(), []
        first = asyncio.ensure_future(calls.run(gate.wait))
        skipped = asyncio.ensure_future(calls.run(lambda: ran.append("skipped")))
        kept = asyncio.ensure_future(calls.run(lambda: ran.append("kept"), may_skip=False))
        await asyncio.sleep(0)
        skipped.cancel()
        kept.cancel()
        await asyncio.sleep(0)
        gate.set()
        await first
        await calls.run(lambda: None)
        assert ran == ["kept"]
        calls.finish()

    asyncio.run(main())


def test_the_thread_ends_when_its_owner_is_dropped() -> None:
    async def main() -> threading.Thread:
        calls = BlockingCalls("calls-dropped")
        await calls.run(lambda: None)
        return threads("calls-dropped")[0]

    thread = asyncio.run(main())
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def test_an_outcome_for_a_closed_loop_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    calls = BlockingCalls("calls-of-a-closed-loop")
    gate, began = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        gate.wait(30)

    task = loop.create_task(calls.run(wait))
    loop.run_until_complete(asyncio.sleep(0))
    assert began.wait(30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    gate.set()
    assert asyncio.run(calls.run(lambda: 7)) == 7
    calls.finish()
