# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Waits until one of many sockets is ready, or until another thread wakes it; reads and writes a few bytes.

A system call that releases the GIL costs more than itself: while another thread computes, it takes up to the
interpreter's switch interval to get the GIL back. Calls that return at once therefore keep it: the check for events
that are there already, a wakeup, and reads and writes of little. Only the interpreter's own calls are used if this
module is not compiled.

Linux has epoll and an eventfd. Edge-triggered, the eventfd reports each wakeup once and is never read. Elsewhere the
`selectors` module and a pair of sockets do the same.
"""

from __future__ import annotations

import math
import os
import select
import selectors
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..latch_cy import LateWakes, ThreadTurn
from ..protocol.errors import IllegalStateError
from ..sections import here

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if cython.compiled and not TYPE_CHECKING:
    from cython.cimports.cpython.buffer import Py_buffer
    from cython.cimports.cpython.exc import PyErr_CheckSignals, PyErr_SetFromErrno
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER
    from cython.cimports.headrace.network.latch_cy import LateWakes, ThreadTurn
    from cython.cimports.libc.errno import EAGAIN, EINTR, errno

EVENT_READ = selectors.EVENT_READ
EVENT_WRITE = selectors.EVENT_WRITE

_HAS_EPOLL = hasattr(select, "epoll") and hasattr(os, "eventfd")
_EPOLLIN, _EPOLLOUT, _EPOLLET = 0x001, 0x004, 1 << 31
_MAX_EVENTS = 256
_MAX_WAKEUP_BYTES = 4096
_MAX_HELD = 64
#: Reads into larger buffers, and writes of more bytes, release the GIL: they copy for longer than that takes.
MAX_READ_BYTES = 128 * 1024
MAX_WRITE_BYTES = 32 * 1024


@cython.final
@cython.cclass
class Poller:
    """The events of file descriptors. Belongs to one thread; any thread and any signal handler may call `wakeup`.

    A wakeup costs a system call only if the thread really waits. `wait` first sets `_waiting` and then checks
    `_requested`; `wakeup` first sets `_requested` and then checks `_waiting`. One of the two therefore sees the other.
    `wakeup` returns early if `_requested` is set: what its caller has written before is read by the thread after `wait`
    has cleared it. Without a GIL, processors keep neither order by themselves; hence the fences, of which
    the interpreter needs none.
    """

    if not cython.compiled:
        # for type checkers; poller_cy.pxd has the C types
        _data: dict[int, Any]
        _epoll: Any
        _selector: Any
        _reader: Any
        _writer: Any
        _held: list[Any]

    def __init__(self, late_wakes: LateWakes | None = None) -> None:
        """Open the poller. `late_wakes`: threads that `wait` wakes as it gives the GIL away."""
        self._late_wakes = late_wakes
        self._data = {}  # what was registered, by descriptor
        # Reentrant, because a signal handler or a finalizer may call wakeup while this thread is inside it.
        self._lock = threading.RLock()
        self._waiting = False
        self._requested = False
        self._closed = False
        self._epoll = None
        self._selector = None
        self._reader = None
        self._writer = None
        self._epoll_fd = -1
        self._wakeup_fd = -1
        if _HAS_EPOLL:
            self._epoll = select.epoll()
            self._epoll_fd = self._epoll.fileno()
            # as a file it is closed with this object, for instance in a forked child
            self._writer = FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "w")  # type: ignore[attr-defined]
            self._wakeup_fd = self._writer.fileno()
            self._epoll.register(self._wakeup_fd, _EPOLLIN | _EPOLLET)
        else:
            self._selector = selectors.DefaultSelector()
            self._reader, self._writer = socket.socketpair()
            self._reader.setblocking(False)
            self._writer.setblocking(False)
            self._selector.register(self._reader, EVENT_READ)

    def register(self, fd: int, events: int, data: object) -> None:
        """Watch a descriptor for EVENT_READ, EVENT_WRITE or both, and report them with `data`."""
        if self._selector is not None:
            self._selector.register(fd, events)
        else:
            self._epoll.register(fd, _epoll_events(events))
        self._data[fd] = data

    def modify(self, fd: int, events: int) -> None:
        """Watch a registered descriptor for other events."""
        if self._selector is not None:
            self._selector.modify(fd, events)
        else:
            self._epoll.modify(fd, _epoll_events(events))

    def unregister(self, fd: int) -> None:
        """Stop watching a descriptor. To be called before it is closed."""
        del self._data[fd]
        if self._selector is not None:
            self._selector.unregister(fd)
        else:
            self._epoll.unregister(fd)

    @cython.ccall
    def wait(self, timeout_ms: cython.double) -> list:
        """Wait at most `timeout_ms` for events, and return them with their data: pairs of data and events.

        Returns without waiting if there was a wakeup since the last call. Raises IllegalStateError once closed.
        """
        ready: list = []
        self._waiting = timeout_ms > 0.0
        if cython.compiled:
            full_fence()  # type: ignore  # noqa: F821
        if self._requested:
            timeout_ms = 0.0
        if self._closed:
            raise IllegalStateError("the selector is closed")
        try:
            self._collect(timeout_ms, ready)
        finally:
            self._waiting = False
            self._requested = False
            if cython.compiled:
                full_fence()  # type: ignore  # noqa: F821
        return ready

    @cython.cfunc
    def _collect(self, timeout_ms: cython.double, ready: list) -> object:
        if self._late_wakes is not None and (self._selector is not None or not cython.compiled):
            self._late_wakes.wake()
        if self._selector is not None:
            for key, mask in self._selector.select(timeout_ms / 1000.0):
                self._add(ready, key.fd, mask)
            with suppress(BlockingIOError):
                self._reader.recv(_MAX_WAKEUP_BYTES)
            return None
        # epoll counts in whole milliseconds: rounded up, it does not return before the time
        timeout: cython.int = math.ceil(timeout_ms)
        if cython.compiled:
            index: cython.int
            # the turns outlive the call, and with them their locks
            turns: list | None = None if self._late_wakes is None else self._late_wakes.take(_MAX_HELD)
            held_count: cython.int = 0 if turns is None else self._held_locks(turns)
            count: cython.int = epoll_events(  # type: ignore  # noqa: F821
                self._epoll_fd, self._fds, self._events, _MAX_EVENTS, timeout, self._held, held_count
            )
            if count < 0:
                if errno != EINTR:  # pyright: ignore[reportPossiblyUnboundVariable]
                    PyErr_SetFromErrno(OSError)  # pyright: ignore[reportPossiblyUnboundVariable]
                PyErr_CheckSignals()  # pyright: ignore[reportPossiblyUnboundVariable]
                return None
            for index in range(count):
                self._add(ready, self._fds[index], self._events[index])
        else:
            for fd, events in self._epoll.poll(timeout / 1000.0, _MAX_EVENTS):
                self._add(ready, fd, (EVENT_READ if events & ~_EPOLLOUT else 0) | (events & ~_EPOLLIN and EVENT_WRITE))
        return None

    @cython.cfunc
    def _held_locks(self, turns: list) -> cython.int:
        turn: ThreadTurn
        index: cython.int = 0
        for turn in turns:
            self._held[index] = turn._lock
            index += 1
        return index

    @cython.cfunc
    def _add(self, ready: list, fd: cython.int, events: cython.int) -> object:
        data = self._data.get(fd)
        if data is not None:
            # anything but readiness to write, an error for instance, is found by reading, and vice versa
            ready.append((data, events))
        return None

    @cython.ccall
    def wakeup(self) -> object:
        """Make the running `wait`, or else the next one, return without waiting. Any thread."""
        if cython.compiled:
            full_fence()  # type: ignore  # noqa: F821
        if self._requested:
            return None  # the wait that will see the request has not returned, so its caller will check the state again
        if cython.compiled and self._reader is None:
            # no Python code runs in it, so with the GIL no other thread comes between the check and the write
            with cython.critical_section(self):
                self._request()
        else:
            with here.section, self._lock:
                self._request()
        return None

    @cython.cfunc
    def _request(self) -> object:
        if self._requested or self._closed:
            return None
        # No Python function is called between this and the write, so no exception of a signal handler comes between
        # them. The write cannot block: there is one at most for each `wait`.
        self._requested = True
        if cython.compiled:
            full_fence()  # type: ignore  # noqa: F821
        if self._waiting:
            if self._reader is not None:
                self._writer.send(b"\0")
            elif cython.compiled:
                wake(self._wakeup_fd)  # type: ignore  # noqa: F821
            else:
                os.eventfd_write(self._wakeup_fd, 1)  # type: ignore[attr-defined]
        return None

    def close(self) -> bool:
        """Stop watching, for good; False if that was done before."""
        with here.section, self._lock:
            if self._closed:
                return False
            with cython.critical_section(self):
                self._closed = True
            # from here on nothing is written to it
            self._writer.close()
            if self._reader is not None:
                self._reader.close()
                self._selector.close()
            else:
                self._epoll.close()
        self._data.clear()
        return True


def _epoll_events(events: int) -> int:
    return (_EPOLLIN if events & EVENT_READ else 0) | (_EPOLLOUT if events & EVENT_WRITE else 0)


def receive(sock: socket.socket, fd: int, buffer: Any) -> int | None:
    """Read from a non-blocking socket, `sock` or its descriptor `fd`, into a writable buffer.

    Returns the number of bytes, 0 at the end of the stream, None if there are none now. Raises OSError.
    """
    if cython.compiled:
        view = buffer if type(buffer) is memoryview else memoryview(buffer)
        target: cython.pointer(Py_buffer) = PyMemoryView_GET_BUFFER(view)  # type: ignore
        if 0 < target.len <= MAX_READ_BYTES:
            while True:
                count: cython.Py_ssize_t = recv(fd, target.buf, target.len, 0)  # type: ignore  # noqa: F821
                if count >= 0:
                    return count
                if errno == EAGAIN:  # pyright: ignore
                    return None
                if errno != EINTR:  # pyright: ignore
                    PyErr_SetFromErrno(OSError)  # pyright: ignore
                PyErr_CheckSignals()  # pyright: ignore
    try:
        return sock.recv_into(buffer)
    except BlockingIOError:
        return None


def transmit(sock: socket.socket, fd: int, buffers: Sequence[memoryview], flags: int) -> int:
    """Write a gather list to a non-blocking socket, `sock` or its descriptor `fd`.

    Returns the number of bytes that it took. Raises OSError.
    """
    if cython.compiled:
        total: cython.Py_ssize_t = 0
        for each in buffers:
            total += len(each)
        if 0 < total <= MAX_WRITE_BYTES:
            data: bytes = b"".join(buffers)
            while True:
                count: cython.Py_ssize_t = send(fd, cython.cast(cython.p_const_char, data), total, flags)  # type: ignore  # noqa: F821
                if count >= 0:
                    return count
                if errno == EAGAIN:  # pyright: ignore
                    return 0
                if errno != EINTR:  # pyright: ignore
                    PyErr_SetFromErrno(OSError)  # pyright: ignore
                PyErr_CheckSignals()  # pyright: ignore
    try:
        return sock.sendmsg(buffers, (), flags)
    except BlockingIOError:
        return 0
