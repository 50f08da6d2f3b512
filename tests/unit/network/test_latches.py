"""Latches, the turns of the threads that wait for them, and `LateWakes`: compiled and interpreted."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headrace.network import _build
from headrace.network import latch_cy as installed

interpreted = _build.interpreted("headrace.network.latch_cy")
PATIENCE_S = 60.0


@pytest.fixture(params=[installed, interpreted], ids=["installed", "interpreted"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def waiting_thread(latch: Any, ended: list[bool]) -> threading.Thread:
    """A thread that waits for the latch, once it has begun to."""
    joined = threading.Event()

    def wait() -> None:
        turn = latch.join()
        joined.set()
        ended.append(turn.sleep(-1.0))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert joined.wait(PATIENCE_S)
    return thread


def test_set_releases_every_waiting_thread(module: ModuleType) -> None:
    latch, ended = module.Latch(), list[bool]()
    threads = [waiting_thread(latch, ended) for _ in range(3)]
    latch.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert ended == [True] * 3
    assert latch.wait()


def test_a_wait_ends_with_its_time(module: ModuleType) -> None:
    latch = module.Latch()
    assert not latch.wait(0)
    assert not latch.wait(-1)
    assert not latch.wait(0.001)
    assert latch.join().sleep(0.0) is False


def test_a_released_turn_does_not_sleep(module: ModuleType) -> None:
    turn = module.ThreadTurn()
    turn.release()
    assert turn.sleep(-1.0)


def test_who_leaves_is_not_released(module: ModuleType) -> None:
    latch = module.Latch()
    stays, leaves = latch.join(), latch.join()
    latch.leave(leaves)
    latch.leave(leaves)
    latch.set()
    assert (stays.sleep(0.0), leaves.sleep(0.0)) == (True, False)


@contextlib.contextmanager
def signals(handle: Callable[[], None]) -> Iterator[None]:
    """Signal this process every few milliseconds from another thread; `handle` runs on the main one."""
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.005):
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handle())
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_raises_out_of_a_wait(module: ModuleType) -> None:
    class Raised(Exception):
        pass

    latch, arrived = module.Latch(), list[int]()

    def handle() -> None:
        arrived.append(1)
        if len(arrived) == 1:
            raise Raised

    with signals(handle), pytest.raises(Raised):
        latch.wait(PATIENCE_S)
    latch.set()
    assert latch.wait()


def test_a_signal_handler_that_returns_does_not_end_a_wait(module: ModuleType) -> None:
    latch, arrived = module.Latch(), list[int]()

    def handle() -> None:
        arrived.append(1)
        if len(arrived) == 3:
            latch.set()

    with signals(handle):
        assert latch.wait(PATIENCE_S)
    assert len(arrived) >= 3


def test_late_wakes_let_the_threads_sleep_on(module: ModuleType) -> None:
    late, latch = module.LateWakes(), module.Latch()
    turn = latch.join()
    late.add(latch)
    assert not turn.sleep(0.0)
    late.wake()
    assert turn.sleep(-1.0)
    assert latch.wait()
    assert late.take(10) is None


def test_late_wakes_release_what_is_no_thread_at_once(module: ModuleType) -> None:
    late, latch, released = module.LateWakes(), module.Latch(), list[str]()
    latch.add(SimpleNamespace(release=lambda: released.append("loop")))
    late.add(latch)
    assert late.take(10) is None
    assert released == ["loop"]


def test_more_threads_than_are_taken_are_woken_at_once(module: ModuleType) -> None:
    late, latch = module.LateWakes(), module.Latch()
    turns = [latch.join() for _ in range(5)]
    late.add(latch)
    taken = late.take(3)
    assert len(taken) == 3
    assert {turn.sleep(0.0) for turn in turns if turn not in taken} == {True}
    assert {turn.sleep(0.0) for turn in taken} == {False}
