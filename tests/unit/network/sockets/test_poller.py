"""Poller, receive and transmit: with epoll and with the portable selectors, compiled and interpreted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from headrace.network import _build, latch_cy
from headrace.network.protocol.errors import IllegalStateError
from headrace.network.sockets import poller_cy as installed

interpreted = _build.interpreted("headrace.network.sockets.poller_cy")
FOREVER_MS = 60_000.0


@pytest.fixture(params=[installed, interpreted], ids=["installed", "interpreted"])
def module(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


@pytest.fixture(params=[True, False], ids=["epoll", "portable"])
def poller(request: pytest.FixtureRequest, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param and not module._HAS_EPOLL:
        pytest.skip("this system has no epoll")
    monkeypatch.setattr(module, "_HAS_EPOLL", request.param)
    poller = module.Poller()
    yield poller
    poller.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_events_come_with_what_was_registered(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), installed.EVENT_READ, "ours")
    assert poller.wait(0.0) == []
    theirs.send(b"x")
    assert poller.wait(FOREVER_MS) == [("ours", installed.EVENT_READ)]
    poller.modify(ours.fileno(), installed.EVENT_READ | installed.EVENT_WRITE)
    assert poller.wait(FOREVER_MS) == [("ours", installed.EVENT_READ | installed.EVENT_WRITE)]
    poller.unregister(ours.fileno())
    assert poller.wait(0.0) == []


def test_the_end_of_a_connection_is_an_event(poller: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    poller.register(ours.fileno(), installed.EVENT_READ, "ours")
    theirs.close()
    ((data, events),) = poller.wait(FOREVER_MS)
    assert data == "ours"
    assert events & installed.EVENT_READ


def test_a_wakeup_ends_the_wait_that_runs_or_else_the_next_one_and_no_other(poller: Any) -> None:
    for _ in range(100):
        thread = threading.Thread(target=poller.wakeup)
        thread.start()
        assert poller.wait(FOREVER_MS) == []
        thread.join()
        # a wakeup may have come twice, as a request and as an event
        poller.wait(0.0)


def test_a_closed_poller_says_so_and_ignores_wakeups(poller: Any) -> None:
    assert poller.close()
    assert not poller.close()
    poller.wakeup()
    with pytest.raises(IllegalStateError):
        poller.wait(0.0)


@pytest.mark.parametrize("size", [10, installed.MAX_WRITE_BYTES + 1])
def test_bytes_arrive_whole(module: ModuleType, pair: tuple[socket.socket, socket.socket], size: int) -> None:
    ours, theirs = pair
    parts = [memoryview(bytes([index]) * (size // 5)) for index in range(5)]
    sent = module.transmit(ours, ours.fileno(), parts, 0)
    assert sent == sum(map(len, parts))
    received = bytearray()
    while len(received) < sent:
        received += theirs.recv(sent)
    assert received == b"".join(parts)


@pytest.mark.parametrize("size", [10, installed.MAX_READ_BYTES + 1])
def test_reads_return_what_is_there_nothing_or_the_end(
    module: ModuleType, pair: tuple[socket.socket, socket.socket], size: int
) -> None:
    ours, theirs = pair
    buffer = memoryview(bytearray(size))
    assert module.receive(ours, ours.fileno(), buffer) is None
    theirs.send(b"abc")
    assert module.receive(ours, ours.fileno(), buffer) == 3
    assert buffer[:3] == b"abc"
    theirs.close()
    assert module.receive(ours, ours.fileno(), buffer) == 0


@pytest.mark.parametrize("size", [10, installed.MAX_WRITE_BYTES + 1])
def test_a_full_socket_takes_nothing(module: ModuleType, pair: tuple[socket.socket, socket.socket], size: int) -> None:
    ours, _ = pair
    while module.transmit(ours, ours.fileno(), [memoryview(bytes(10_000))], 0):
        pass
    assert module.transmit(ours, ours.fileno(), [memoryview(bytes(size))], 0) == 0


def test_errors_have_their_number(module: ModuleType, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(BrokenPipeError):
        module.transmit(ours, ours.fileno(), [memoryview(b"x")], socket.MSG_NOSIGNAL)


# --- Threads that it wakes ---


@pytest.mark.parametrize("threads", [1, 64, 70])
@pytest.mark.parametrize("waits", [True, False])
def test_a_wait_wakes_threads_as_it_gives_the_gil_away(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, threads: int, waits: bool
) -> None:
    latches = latch_cy if module is installed else _build.interpreted("headrace.network.latch_cy")
    late, latch = latches.LateWakes(), latches.Latch()
    for has_epoll in {module._HAS_EPOLL, False}:
        monkeypatch.setattr(module, "_HAS_EPOLL", has_epoll)
        poller = module.Poller(late)
        turns = [latch.join() for _ in range(threads)]
        late.add(latch)
        if waits:
            # the wait ends only because the thread was woken during it
            waker = threading.Thread(target=lambda turn=turns[0], end=poller.wakeup: turn.sleep(FOREVER_MS) and end())
            waker.start()
            poller.wait(FOREVER_MS)
            waker.join()
        else:
            poller.wait(0.0)
            assert turns[0].sleep(0.0)
        assert [turn.sleep(0.0) for turn in turns[1:]] == [True] * (threads - 1)
        poller.close()
