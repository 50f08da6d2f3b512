"""Deliveries as futures of `concurrent.futures`: the real `wait`, `as_completed` and `wrap_future` with them, and what
those and `asyncio.wait` raise for the future that `send` returns."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, ThreadPoolExecutor
from typing import Any

import pytest

from headrace.network.cluster import TopicPartition
from headrace.network.protocol.errors import IllegalStateError, MessageSizeTooLargeError, RowDeliveryError
from headrace.network.sections import here
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.accumulator.batch_split import split_batch
from headrace.producer.accumulator.concurrent_future import ConcurrentFuture
from headrace.producer.columns.rows_future import RowsFuture, RowsMetadata

PATIENCE_S = 30


class Sent:
    """A future of a record or of a row, and how its producer completes it."""

    def __init__(self, future: Any, complete: Callable[[], object], fail: Callable[[BaseException], object]) -> None:
        self.future = future
        self.complete = complete
        self.fail = fail


def record() -> Sent:
    batch = ProducerBatch("t", 3, bytearray(1000), 0.0)
    future = batch.append_record(1000, None, b"v", None, None)

    def complete() -> None:
        batch.complete(7)
        batch.run_callbacks()

    def fail(error: BaseException) -> None:
        batch.fail(error)
        batch.run_callbacks()

    return Sent(future, complete, fail)


def row() -> Sent:
    batch = ProducerBatch("t", 3, bytearray(1000), 0.0)
    future = RowsFuture(1)
    return Sent(
        future,
        lambda: future.delivered(batch, 7, 1),
        lambda error: future.failed(0, 1, TopicPartition("t", 3), error),
    )


@pytest.fixture(params=[record, row])
def sent(request: pytest.FixtureRequest) -> Sent:
    return request.param()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def test_it_has_the_result_of_the_delivery(sent: Sent) -> None:
    future = sent.future.as_concurrent()
    assert isinstance(future, ConcurrentFuture)
    assert future.running()
    assert not future.done()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    sent.complete()
    assert future.result(0) == sent.future.get(0) == sent.future.as_concurrent().result(0)
    assert future.exception(0) is None


def test_it_has_the_error_of_the_delivery(sent: Sent) -> None:
    future = sent.future.as_concurrent()
    sent.fail(MessageSizeTooLargeError("too large"))
    with pytest.raises((MessageSizeTooLargeError, RowDeliveryError), match="too large"):
        future.result(0)
    assert future.exception(0) is sent.future.exception(0)


def test_raising_it_again_and_again_does_not_grow_its_traceback(sent: Sent) -> None:
    future = sent.future.as_concurrent()
    sent.fail(MessageSizeTooLargeError("too large"))

    def depth() -> int:
        with pytest.raises((MessageSizeTooLargeError, RowDeliveryError)) as caught:
            future.result(0)
        return len(caught.traceback)

    assert depth() == depth() == depth()


def test_it_can_not_be_cancelled(sent: Sent) -> None:
    future = sent.future.as_concurrent()
    assert not future.cancel()
    assert not future.cancelled()
    sent.complete()
    assert future.done()


@pytest.mark.parametrize("until", [ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION])
def test_wait_beside_futures_of_an_executor(until: str, executor: ThreadPoolExecutor) -> None:
    one, other = record(), row()
    gate = threading.Event()
    of_executor = executor.submit(gate.wait, PATIENCE_S)
    futures = [one.future.as_concurrent(), other.future.as_concurrent(), of_executor]
    done, pending = concurrent.futures.wait(futures, timeout=0, return_when=until)
    assert (done, pending) == (set(), set(futures))
    waiting = executor.submit(concurrent.futures.wait, futures, PATIENCE_S, until)
    one.fail(MessageSizeTooLargeError("too large"))
    if until != ALL_COMPLETED:
        assert futures[0] in waiting.result(PATIENCE_S).done
    other.complete()
    gate.set()
    if until == ALL_COMPLETED:
        assert waiting.result(PATIENCE_S) == (set(futures), set())


def test_as_completed_gives_them_as_they_come() -> None:
    sent = [record(), row(), record()]
    futures = [each.future.as_concurrent() for each in sent]
    coming = concurrent.futures.as_completed(futures, PATIENCE_S)
    for at in (1, 0, 2):
        sent[at].complete()
        assert next(coming) is futures[at]


def test_it_follows_its_record_into_a_part_of_a_split_batch() -> None:
    batch = ProducerBatch("t", 3, bytearray(1000), 0.0)
    futures = [batch.append_record(1000, None, b"v", None, None) for _ in range(2)]
    last = futures[1].as_concurrent()
    batch.records = batch.builder.finish()
    parts = split_batch(batch)
    batch.split_into(parts)
    parts[0][1].complete(5)
    assert not last.done()
    parts[1][1].complete(9)
    assert last.result(0).offset == 9


def test_its_callbacks_run_with_those_of_the_delivery(sent: Sent) -> None:
    future = sent.future.as_concurrent()
    called: list[Any] = []
    future.add_done_callback(lambda done: called.append((done, done.done())))
    assert called == []
    sent.complete()
    assert called == [(future, True)]
    future.add_done_callback(called.append)
    assert called[1:] == [future]


def test_the_sender_thread_completes_it_and_leaves_callbacks_to_their_thread() -> None:
    batch = ProducerBatch("t", 3, bytearray(1000), 0.0)
    future = batch.append_record(1000, None, b"v", None, None).as_concurrent()
    called: list[Any] = []
    future.add_done_callback(called.append)
    batch.complete(7)
    assert future.result(0).offset == 7
    assert called == []
    batch.run_callbacks()
    assert called == [future]


def test_a_callback_that_raises_is_logged(sent: Sent, caplog: pytest.LogCaptureFixture) -> None:
    sent.future.as_concurrent().add_done_callback(lambda _: 1 / 0)
    sent.complete()
    assert "ZeroDivisionError" in caplog.text


def test_an_event_loop_wraps_it(sent: Sent) -> None:
    async def wrapped() -> Any:
        waiter = asyncio.wrap_future(sent.future.as_concurrent())
        threading.Thread(target=sent.complete).start()
        return await asyncio.wait_for(waiter, PATIENCE_S)

    assert asyncio.run(wrapped()) == sent.future.get(0)


def test_where_waiting_would_never_end_it_raises(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    future = sent.future.as_concurrent()
    with here.section:
        for wait in (future.result, future.exception):
            with pytest.raises(IllegalStateError, match="a future can't wait here"):
                wait()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    for wait in (future.result, future.exception):
        with pytest.raises(IllegalStateError, match="forked"):
            wait()
    sent.complete()
    assert future.exception(0) is None


# --- The future itself, if it is not accepted ---


def all_as_completed(futures: list[Any]) -> None:
    assert list(concurrent.futures.as_completed(futures)) == []


@pytest.mark.parametrize("wait", [concurrent.futures.wait, all_as_completed])
def test_concurrent_futures_says_what_to_pass_and_leaves_no_lock(
    wait: Callable[[list[Any]], object], sent: Sent, executor: ThreadPoolExecutor
) -> None:
    gate = threading.Event()
    of_executor = executor.submit(gate.wait, PATIENCE_S)
    with pytest.raises(AttributeError, match=r"don't accept this future: pass its as_concurrent\(\)"):
        wait([of_executor, sent.future])
    gate.set()
    # the executor takes its lock to complete it
    assert of_executor.result(PATIENCE_S)


def test_asyncio_wait_says_what_to_pass_instead_of_hanging(sent: Sent) -> None:
    async def wait(*futures: Any) -> Any:
        return await asyncio.wait(futures, timeout=PATIENCE_S)

    async def wrapped() -> Any:
        return await wait(asyncio.ensure_future(sent.future))

    if "ensure_future" not in inspect.getsource(asyncio.wait):  # Python 3.10 does it by itself
        with pytest.raises(TypeError, match=r"pass asyncio\.ensure_future\(future\)"):
            asyncio.run(wait(sent.future))
    sent.complete()
    (done,), pending = asyncio.run(wrapped())
    assert (done.result(), pending) == (sent.future.get(0), set())


def test_asyncio_gathers_and_bounds_the_future_itself(sent: Sent) -> None:
    async def both() -> Any:
        threading.Thread(target=sent.complete).start()
        return await asyncio.wait_for(asyncio.gather(sent.future, asyncio.ensure_future(sent.future)), PATIENCE_S)

    one, other = asyncio.run(both())
    assert one == other == sent.future.get(0)


def test_it_can_still_be_looked_at(sent: Sent) -> None:
    assert not hasattr(sent.future, "_state")
    assert dict(inspect.getmembers(sent.future))["done"]() is False


def test_rows_that_are_none_are_done_at_once() -> None:
    assert RowsFuture(0).as_concurrent().result(0) == RowsMetadata()
