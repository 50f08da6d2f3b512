# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Memory for batches, bounded by ``buffer.memory`` and granted to waiting threads in order of arrival.

Theory of operation. The pool hands out memory as leases and records them in the table `_leases`. Free memory is
computed from that table alone, so that no step can be half done. Returning a lease removes it from the table. A lease
can also be dropped without being returned, if a signal handler raises out of a send. Its weak reference then puts it
into `_dropped`, and the next user of the pool removes it from the table. Returned memory goes to the first thread in
line and wakes only that one.

A lease begins with one buffer and may be extended by more, which never waits. Buffers have the sizes of `chunk_bytes`,
so that those returned fit later requests.

Source: Kafka's BufferPool, and KIP-782 for batches that grow.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.latch_cy import Latch
from ...network.metrics import Sensor
from ...network.protocol.errors import BufferExhaustedError, KafkaError, MessageSizeTooLargeError, ProducerClosedError
from ...network.sections import here

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.clock import Clock
elif not TYPE_CHECKING:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize
    from cython.cimports.headrace.network.time_cy import Clock


#: For `allocate`: raise MemoryWait instead of waiting.
NO_WAIT = -1.0

#: The pool keeps returned buffers of ``batch.size`` and of its halves, down to this many bytes, and of its doubles.
SMALLEST_CHUNK_BYTES = 1024


@cython.cfunc
def new_buffer(size_bytes: cython.Py_ssize_t) -> bytearray:
    """A buffer whose bytes are undefined: clearing them would take longer than opening a batch."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size_bytes)  # pyright: ignore
    else:
        return bytearray(size_bytes)


@cython.final
@cython.cclass
class Lease:
    """A share of ``buffer.memory``, in bytes, and its buffers: `buffer`, and `more` since it was extended.

    `holders` is the number of batches that share the lease: more than one after a split. The memory becomes free when
    the last of them returns it. The buffers change under the pool's lock.
    """

    if not cython.compiled:
        # for type checkers: a bytearray until the lease is returned
        buffer: Any
        more: list[bytearray] | None
        reference: weakref.ref[Lease] | None

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.buffer = None
        self.more = None
        self.holders = 1
        #: Its key in the pool's table, None once the lease has been returned.
        self.reference = None

    @cython.ccall
    def share(self) -> object:
        """Count one more holder. Any thread: another holder may return it at the same time."""
        with cython.critical_section(self):
            self.holders += 1
        return None

    @cython.cfunc
    def is_returned(self) -> cython.bint:
        """Count one holder less; whether it was the last one."""
        with cython.critical_section(self):
            if self.holders > 1:
                self.holders -= 1
                return False
        return True


@cython.cfunc
def smallest_chunk(batch_size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """``batch.size`` halved as long as at least SMALLEST_CHUNK_BYTES are left."""
    size: cython.Py_ssize_t = batch_size
    while size // 2 >= SMALLEST_CHUNK_BYTES and size % 2 == 0:
        size //= 2
    return size


class MemoryWait(Exception):
    """No memory without waiting, for an event loop's thread, which must not wait. Never raised by a public call."""

    def __init__(self, size_bytes: int) -> None:
        """Ask the caller to wait for `size_bytes` with `BufferPool.join_line`, and then to repeat its call."""
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


@cython.final
@cython.cclass
class Turn:
    """A place in the line for memory: a thread's, or that of the sends of an event loop.

    `granted` is set under the pool's lock, before ``latch.set()``. `lease` is None once the memory has been used or
    returned.
    """

    if not cython.compiled:
        # for type checkers
        latch: Any
        lease: Any

    def __init__(self, lease: Lease, latch: Any) -> None:
        self.lease = lease
        self.granted = False
        self.latch = latch
        self.queued = False
        self.start_ms = 0.0

    @cython.ccall
    def has_granted(self, size_bytes: cython.Py_ssize_t) -> cython.bint:
        """Whether it has at least that much memory for `BufferPool.allocate` to use."""
        return self.granted and self.lease is not None and self.lease.size_bytes >= size_bytes

    def waits_for(self, size_bytes: int) -> bool:
        """Whether it is in line for at least that much memory."""
        return self.queued and not self.granted and self.lease.size_bytes >= size_bytes

    @property
    def size_bytes(self) -> int:
        """The bytes it waits for."""
        return 0 if self.lease is None else self.lease.size_bytes


@cython.final
@cython.cclass
class BufferPool:
    """Buffers of at most `total_bytes` in total, handed out fairly.

    Buffers of the sizes of `chunk_bytes` are kept for reuse; others are allocated and dropped. A thread that finds too
    little free memory waits in line, so that small requests never starve a large one.

    Invariants, under the lock: ``_leased_bytes == sum(_leases.values()) <= total_bytes``; leased memory and the buffers
    kept in `_free`, which have `_kept_bytes`, together never exceed `total_bytes`.
    Used by any thread that sends, and by the sender thread, which never waits.
    """

    def __init__(self, total_bytes: int, poolable_bytes: int, clock: Clock) -> None:
        self.total_bytes = total_bytes
        self.poolable_bytes = poolable_bytes
        self._clock = clock
        if not cython.compiled:
            self._lock = threading.Lock()
        self._smallest_bytes = smallest_chunk(poolable_bytes)
        #: The largest buffer that is kept: a small share of all memory, so that buffers of other sizes find room.
        self._largest_bytes = max(poolable_bytes, total_bytes // 32)
        self._free: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0
        # weak reference of a lease -> its bytes
        self._leases: dict[Any, int] = {}
        self._leased_bytes = 0
        # References to leases that were collected; appended by the collection of a lease, on any thread.
        self._dropped: deque[Any] = deque()
        self._line: deque[Turn] = deque()
        self._closed = False
        self._cause: KafkaError | None = None
        #: Total milliseconds threads have waited for memory, and the number of waits that timed out.
        self.wait_time_ms = 0.0
        self.exhausted_count = 0
        #: Called when a thread begins to wait for memory.
        self.on_wait: Callable[[], object] | None = None
        #: The sensors for the milliseconds of each wait for memory, and for timeouts; None: not measured.
        self.wait_sensor: Sensor | None = None
        self.exhausted_sensor: Sensor | None = None

    @cython.ccall
    def chunk_bytes(self, size_bytes: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The size of a buffer for at least `size_bytes`: the next one of those kept, if any is that large."""
        size: cython.Py_ssize_t = self._smallest_bytes
        if size_bytes > self._largest_bytes:
            return size_bytes
        while size < size_bytes:
            size *= 2
        return size if size <= self._largest_bytes else size_bytes

    @cython.ccall
    def allocate(self, size_bytes: cython.Py_ssize_t, max_block_ms: cython.double, turn: Turn | None = None) -> Lease:
        """Return a lease with a buffer of `size_bytes`, waiting at most `max_block_ms` for memory. Any thread.

        With NO_WAIT it raises MemoryWait instead of waiting, unless `turn` has been granted that much memory. The
        buffer may then be larger.

        Raises MessageSizeTooLargeError if it exceeds the whole pool, BufferExhaustedError after `max_block_ms`, and
        ProducerClosedError if the producer is closed, or instead the error its sender thread died of.
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
                if closed:
                    pass
                elif turn is not None and turn.has_granted(size_bytes):
                    lease = turn.lease
                    turn.lease = None
                    leased = True
                elif not self._line and self._has_room(size_bytes):
                    self._give(lease)
                    leased = True
            if closed:
                raise self._closed_error("the producer is closed: create a new one to send on")
            if not leased:
                if max_block_ms < 0:
                    raise MemoryWait(size_bytes)
                self._queue_up(lease, max_block_ms)
        if lease.buffer is None:
            try:
                lease.buffer = new_buffer(lease.size_bytes)
            except MemoryError:
                self.deallocate(lease)
                raise
        return lease

    def try_allocate(self, size_bytes: int) -> Lease | None:
        """Return a lease of `size_bytes` if that much is free and no thread waits for memory; else None. Any thread."""
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
            lease.buffer = new_buffer(size_bytes)
        return lease

    @cython.ccall
    def extend(self, lease: Lease, size_bytes: cython.Py_ssize_t) -> bytearray | None:
        """Add a buffer of `size_bytes` to a lease and return it; None without that much free memory. Never waits.

        None as well if threads wait for memory, which comes first to them, or if the lease has been returned meanwhile.
        Any thread.
        """
        kept: list | None
        buffer: bytearray | None = None
        with here.section, self._lock:
            reference = lease.reference
            if reference is None or self._closed or self._line or not self._has_room(size_bytes):
                return None
            kept = self._free.get(size_bytes)
            if kept:
                buffer = kept.pop()
                self._kept_bytes -= size_bytes
            self._drop_kept(size_bytes)
            # without a call in between, as in `_give`
            self._leases[reference] += size_bytes
            self._leased_bytes += size_bytes
            if buffer is None:
                buffer = new_buffer(size_bytes)
            if lease.more is None:
                lease.more = []
            lease.more.append(buffer)
        return buffer

    @cython.cfunc
    def _new_lease(self, size_bytes: cython.Py_ssize_t) -> Lease:
        lease: Lease = Lease(size_bytes)
        lease.reference = weakref.ref(lease, self._dropped.append)
        # a reference caches its hash, which can't be computed once the lease has been collected
        hash(lease.reference)
        return lease

    @cython.cfunc
    def _queue_up(self, lease: Lease, max_block_ms: cython.double) -> object:
        """Wait in line until the lease is granted. In a section."""
        turn: Turn = Turn(lease, Latch())
        start_ms: cython.double = self._clock.now_ms()
        returned: cython.bint = False
        granted: cython.bint = False
        closed: cython.bint = False
        try:
            with self._lock:
                closed = self._closed
                self._line.append(turn)
                turn.queued = True
                self._serve()
            if not closed:
                if self.on_wait is not None:
                    self.on_wait()
                self._clock.await_latch(turn.latch, start_ms + max_block_ms)
            returned = True
        finally:
            with self._lock:
                # however the wait ended, the line continues without this thread
                if turn.queued:
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
        raise self.exhausted_error(lease.size_bytes, max_block_ms)

    def exhausted_error(self, size_bytes: int, max_block_ms: float) -> BufferExhaustedError:
        """The error of a wait of `max_block_ms` for `size_bytes`."""
        return BufferExhaustedError(
            f"no {size_bytes} bytes of buffer.memory ({self.total_bytes} bytes) became free within max.block.ms "
            f"({max_block_ms:.0f} ms): records are sent faster than the brokers take them, or no broker answers. "
            f"Slow down, or raise buffer.memory or max.block.ms."
        )

    def join_line(self, size_bytes: int, latch: Any) -> Turn:
        """Stand in line for `size_bytes`, which at most equal the pool, without waiting. Any thread.

        ``latch.set()`` is called once the memory is granted, or the pool is closed: on any thread, under the pool's
        lock, perhaps before this returns. `allocate` uses the memory; `leave_line` must follow in any case.
        """
        turn: Turn = Turn(self._new_lease(size_bytes), latch)
        turn.start_ms = self._clock.now_ms()
        with here.section, self._lock:
            if self._closed:
                turn.latch.set()
            else:
                self._line.append(turn)
                turn.queued = True
                self._serve()
        if self.on_wait is not None:
            self.on_wait()
        return turn

    def leave_line(self, turn: Turn) -> None:
        """Leave the line and return memory that was granted but not used. Any thread."""
        now_ms: cython.double = self._clock.now_ms()
        with here.section, self._lock:
            if turn.queued:
                turn.queued = False
                with suppress(ValueError):
                    self._line.remove(turn)
            if turn.granted and turn.lease is not None:
                self._take_back(turn.lease)
            turn.lease = None
            self._serve()
            self.wait_time_ms += now_ms - turn.start_ms
        if self.wait_sensor is not None:
            self.wait_sensor.record(now_ms - turn.start_ms, now_ms)

    def note_exhausted(self, count: int) -> None:
        """Count records of an event loop whose wait for memory has timed out. Any thread."""
        with here.section, self._lock:
            self.exhausted_count += count
        if self.exhausted_sensor is not None:
            self.exhausted_sensor.record(count, self._clock.now_ms())

    @cython.cfunc
    def _has_room(self, size_bytes: cython.Py_ssize_t) -> cython.bint:
        """Whether `size_bytes` are free. Locked."""
        if self._leased_bytes + size_bytes > self.total_bytes and self._dropped:
            self._collect_dropped()
        return self._leased_bytes + size_bytes <= self.total_bytes

    @cython.cfunc
    def _give(self, lease: Lease) -> object:
        """Grant a lease that there is room for, with a kept buffer if it fits. Locked."""
        size: cython.Py_ssize_t = lease.size_bytes
        kept: list | None = self._free.get(size)
        if kept:
            lease.buffer = kept.pop()
            self._kept_bytes -= size
        self._drop_kept(size)
        # two statements without a call: no exception can come between them
        self._leases[lease.reference] = size
        self._leased_bytes += size
        return None

    @cython.cfunc
    def _drop_kept(self, size_bytes: cython.Py_ssize_t) -> object:
        """Drop kept buffers until `size_bytes` can be leased beside the rest, the largest first. Locked."""
        size: cython.Py_ssize_t
        while self._leased_bytes + size_bytes + self._kept_bytes > self.total_bytes and self._kept_bytes > 0:
            size = max([each for each, buffers in self._free.items() if buffers] or [0])
            if size == 0:
                # interpreted, an exception may have come between taking a kept buffer and counting it
                self._kept_bytes = 0
                return None
            self._free[size].pop()
            self._kept_bytes -= size
        return None

    @cython.cfunc
    def _keep(self, buffer: bytearray) -> object:
        """Keep a returned buffer if it has one of the sizes that are asked for again. Locked."""
        size: cython.Py_ssize_t = len(buffer)
        if size <= self._largest_bytes and size == self.chunk_bytes(size):
            kept: list | None = self._free.get(size)
            if kept is None:
                kept = self._free[size] = []
            kept.append(buffer)
            self._kept_bytes += size
        return None

    @cython.cfunc
    def _take_back(self, lease: Lease) -> object:
        """Remove a lease from the table, and keep its buffers if they are of the sizes that are kept. Locked."""
        reference = lease.reference
        if reference is None:
            return None
        self._leased_bytes -= self._leases[reference]
        del self._leases[reference]
        lease.reference = None
        buffer = lease.buffer
        more: list | None = lease.more
        lease.buffer = None
        lease.more = None
        if buffer is not None and not self._closed:
            self._keep(buffer)
            if more is not None:
                for buffer in more:
                    self._keep(buffer)
        return None

    @cython.cfunc
    def _collect_dropped(self) -> object:
        """Remove leases from the table that were dropped without being returned. Locked."""
        while self._dropped:
            # removed last: an exception before that leaves it for the next call
            reference = self._dropped[0]
            if reference in self._leases:
                self._leased_bytes -= self._leases[reference]
                del self._leases[reference]
            self._dropped.popleft()
        return None

    @cython.cfunc
    def _serve(self) -> object:
        """Grant free memory to the threads in line, in order. Locked."""
        turn: Turn
        while self._line and not self._closed:
            turn = self._line[0]
            if not turn.granted:
                if not self._has_room(turn.lease.size_bytes):
                    return None
                self._give(turn.lease)
                turn.granted = True
            turn.latch.set()
            turn.queued = False
            self._line.popleft()
        return None

    @cython.ccall
    def deallocate(self, lease: Lease) -> object:
        """Return a lease, whose buffer must not be used afterwards. Returning it again does nothing. Any thread."""
        with here.section, self._lock:
            if lease.is_returned():
                self._take_back(lease)
                self._serve()
        return None

    def drop_buffers(self, lease: Lease) -> None:
        """Drop a lease's buffers and keep its share of the memory: for a batch that was split. Any thread."""
        with here.section, self._lock:
            lease.buffer = None
            lease.more = None

    def reclaim(self) -> None:
        """Recover leases that an exception out of a send has dropped, and grant them to waiting threads. Any thread."""
        if self._dropped:
            with here.section, self._lock:
                self._collect_dropped()
                self._serve()

    @property
    def available_bytes(self) -> int:
        """Bytes that are not leased."""
        with here.section, self._lock:
            self._collect_dropped()
            return self.total_bytes - self._leased_bytes

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_awaited(self) -> cython.bint:
        """Whether threads wait for memory, by the same estimate."""
        return len(self._line) > 0

    @property
    def waiting(self) -> int:
        """Number of threads that wait for memory; an estimate, because it is read without the lock."""
        return len(self._line)

    def close(self, cause: KafkaError | None = None) -> None:
        """Fail waiting and later requests, with `cause` or else ProducerClosedError. Any thread.

        Leased memory may still be returned.
        """
        turn: Turn
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
