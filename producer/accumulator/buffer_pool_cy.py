# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Memory for batches: bounded by ``buffer.memory``, and given to waiting threads in the order in which they came.

Theory of operation. Memory is handed out as leases. What is out is the table `_leases`, and only that: what is free is
computed from it, so that no step can be half done. A lease that goes back is taken from the table; one that is
dropped without having gone back, because a signal handler raised out of a send, is noticed by its weak reference and
taken from the table by whoever uses the pool next. Memory that is returned goes to the first thread in line and wakes
just that one.

Source: Kafka's BufferPool.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.clock import Clock
from ...network.latch import Latch
from ...network.metrics import Sensor
from ...network.protocol.errors import BufferExhaustedError, KafkaError, MessageSizeTooLargeError, ProducerClosedError
from ...network.sections import here

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.final
@cython.cclass
class Lease:
    """Bytes of ``buffer.memory`` that somebody holds, and the buffer they are for.

    `holders` is the number of batches that share it: more than one after a split. It goes back when the last of them
    has returned it.
    """

    if not cython.compiled:
        # for type checkers: a bytearray until the lease goes back
        buffer: Any
        reference: weakref.ref[Lease] | None

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.buffer = None
        self.holders = 1
        #: The key of the pool's table, None once the lease has gone back.
        self.reference = None


@cython.final
@cython.cclass
class _Turn:
    """A thread's place in the line for memory. `granted` is set under the pool's lock, before the thread is woken."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.granted = False
        self.latch = Latch()


@cython.final
@cython.cclass
class BufferPool:
    """Buffers of at most `total_bytes` in all, handed out fairly.

    Buffers of `poolable_bytes` (``batch.size``) are kept and used again; others are made and dropped. A thread that
    finds too little free waits behind those that came before it, so that a large request isn't starved by small ones.

    Invariants, under the lock: ``_leased_bytes == sum(_leases.values()) <= total_bytes``, and with the buffers kept in
    `_free` the pool never holds more than `total_bytes`.
    Used by any thread that sends, and by the sender thread, which only returns memory and never waits.
    """

    def __init__(self, total_bytes: int, poolable_bytes: int, clock: Clock) -> None:
        self.total_bytes = total_bytes
        self.poolable_bytes = poolable_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._free: list[bytearray] = []
        # weak reference of a lease -> its bytes
        self._leases: dict[Any, int] = {}
        self._leased_bytes = 0
        # References of leases that are no more. Appended to by the collection of a lease, wherever it happens.
        self._dropped: deque[Any] = deque()
        self._line: deque[_Turn] = deque()
        self._closed = False
        self._cause: KafkaError | None = None
        #: Milliseconds threads have waited for memory, added up, and the number of waits that timed out.
        self.wait_time_ms = 0.0
        self.exhausted_count = 0
        #: Record the milliseconds of each wait for memory, and each timeout; None: not measured.
        self.wait_sensor: Sensor | None = None
        self.exhausted_sensor: Sensor | None = None

    def allocate(self, size_bytes: int, max_block_ms: float) -> Lease:
        """A buffer of `size_bytes`, waiting for memory at most `max_block_ms` milliseconds.

        Raises MessageSizeTooLargeError if the pool could never give it, BufferExhaustedError after `max_block_ms`,
        ProducerClosedError if the producer is closed, or the error its sender thread died of.
        """
        if size_bytes > self.total_bytes:
            raise MessageSizeTooLargeError(
                f"a batch of {size_bytes} bytes does not fit into buffer.memory ({self.total_bytes} bytes): "
                f"raise buffer.memory or send smaller records"
            )
        lease: Lease = self._new_lease(size_bytes)
        closed: cython.bint
        leased: cython.bint = False
        with here.section:
            with self._lock:
                closed = self._closed
                if not closed and not self._line and self._has_room(size_bytes):
                    self._give(lease)
                    leased = True
            if closed:
                raise self._closed_error("the producer is closed: create a new one to send on")
            if not leased:
                self._queue_up(lease, max_block_ms)
        if lease.buffer is None:
            try:
                lease.buffer = bytearray(size_bytes)
            except MemoryError:
                self.deallocate(lease)
                raise
        return lease

    def try_allocate(self, size_bytes: int) -> Lease | None:
        """A buffer of `size_bytes` if it can be had at once, and nobody waits for memory; else None. Any thread."""
        lease: Lease = self._new_lease(size_bytes)
        leased: cython.bint = False
        with here.section, self._lock:
            if not self._closed and not self._line and self._has_room(size_bytes):
                self._give(lease)
                leased = True
        if not leased:
            lease.reference = None
            return None
        if lease.buffer is None:
            lease.buffer = bytearray(size_bytes)
        return lease

    @cython.cfunc
    def _new_lease(self, size_bytes: cython.Py_ssize_t) -> Lease:
        lease: Lease = Lease(size_bytes)
        lease.reference = weakref.ref(lease, self._dropped.append)
        # a reference remembers its hash, and can't be asked for it any more once the lease is gone
        hash(lease.reference)
        return lease

    @cython.cfunc
    def _queue_up(self, lease: Lease, max_block_ms: cython.double) -> object:
        """Wait in line until the lease is granted. In a section."""
        turn: _Turn = _Turn(lease)
        start_ms: cython.double = self._clock.now_ms()
        returned: cython.bint = False
        granted: cython.bint = False
        closed: cython.bint = False
        try:
            with self._lock:
                closed = self._closed
                self._line.append(turn)
                self._serve()
            if not closed:
                self._clock.await_latch(turn.latch, start_ms + max_block_ms)
            returned = True
        finally:
            with self._lock:
                # whatever ended the wait, the line goes on without this thread
                with suppress(ValueError):
                    self._line.remove(turn)
                granted = turn.granted
                if granted and not returned:
                    self._take_back(lease)
                self._serve()
                closed = self._closed
                self.wait_time_ms += self._clock.now_ms() - start_ms
                if returned and not granted and not closed:
                    self.exhausted_count += 1
            if self.wait_sensor is not None:
                self.wait_sensor.record(self._clock.now_ms() - start_ms, self._clock.now_ms())
        if granted:
            return None
        if closed:
            raise self._closed_error("the producer was closed while this record waited for memory")
        if self.exhausted_sensor is not None:
            self.exhausted_sensor.record(1, self._clock.now_ms())
        raise BufferExhaustedError(
            f"no {lease.size_bytes} bytes of buffer.memory ({self.total_bytes} bytes) became free within max.block.ms "
            f"({max_block_ms:.0f} ms): records are sent faster than the brokers take them, or no broker answers. "
            f"Slow down, or raise buffer.memory or max.block.ms."
        )

    @cython.cfunc
    def _has_room(self, size_bytes: cython.Py_ssize_t) -> cython.bint:
        """Whether so many bytes are free. Locked."""
        if self._leased_bytes + size_bytes > self.total_bytes and self._dropped:
            self._collect_dropped()
        return self._leased_bytes + size_bytes <= self.total_bytes

    @cython.cfunc
    def _give(self, lease: Lease) -> object:
        """Hand out a lease there is room for, with a kept buffer if one fits. Locked."""
        size: cython.Py_ssize_t = lease.size_bytes
        if size == self.poolable_bytes and self._free:
            lease.buffer = self._free.pop()
        while self._free and self._leased_bytes + size + len(self._free) * self.poolable_bytes > self.total_bytes:
            self._free.pop()
        # two statements without a call: no exception can come between them
        self._leases[lease.reference] = size
        self._leased_bytes += size
        return None

    @cython.cfunc
    def _take_back(self, lease: Lease) -> object:
        """Take a lease from the table, and keep its buffer if it is of the usual size. Locked."""
        reference = lease.reference
        if reference is None:
            return None
        self._leased_bytes -= self._leases[reference]
        del self._leases[reference]
        lease.reference = None
        buffer = lease.buffer
        lease.buffer = None
        if buffer is not None and len(buffer) == self.poolable_bytes == lease.size_bytes and not self._closed:
            self._free.append(buffer)
        return None

    @cython.cfunc
    def _collect_dropped(self) -> object:
        """Take the leases from the table that were dropped without going back. Locked."""
        while self._dropped:
            # taken off last: an exception in between leaves it for the next time
            reference = self._dropped[0]
            if reference in self._leases:
                self._leased_bytes -= self._leases[reference]
                del self._leases[reference]
            self._dropped.popleft()
        return None

    @cython.cfunc
    def _serve(self) -> object:
        """Give what is free to those in line, as far as it goes. Locked."""
        turn: _Turn
        while self._line and not self._closed:
            turn = self._line[0]
            if not turn.granted:
                if not self._has_room(turn.lease.size_bytes):
                    return None
                self._give(turn.lease)
                turn.granted = True
            turn.latch.set()
            self._line.popleft()
        return None

    def deallocate(self, lease: Lease) -> None:
        """Return a lease; nobody may use its buffer afterwards. Returning it again does nothing. Any thread."""
        with here.section, self._lock:
            if lease.holders > 1:
                lease.holders -= 1
            else:
                self._take_back(lease)
                self._serve()

    def reclaim(self) -> None:
        """Recover the leases that an exception out of a send has dropped, for those in line. Any thread."""
        if self._dropped:
            with here.section, self._lock:
                self._collect_dropped()
                self._serve()

    @property
    def available_bytes(self) -> int:
        """Bytes nobody holds."""
        with here.section, self._lock:
            self._collect_dropped()
            return self.total_bytes - self._leased_bytes

    @property
    def waiting(self) -> int:
        """The number of threads that wait for memory. Read without the lock: an estimate."""
        return len(self._line)

    def close(self, cause: KafkaError | None = None) -> None:
        """Fail those who wait and all who come later, with `cause` unless the producer was simply closed. The memory
        that is out may still be returned. Any thread."""
        turn: _Turn
        with here.section, self._lock:
            self._closed = True
            self._cause = self._cause or cause
            for turn in self._line:
                turn.latch.set()

    @cython.cfunc
    def _closed_error(self, message: str) -> Any:
        if self._cause is not None:
            return self._cause.with_traceback(None)
        return ProducerClosedError(message)
