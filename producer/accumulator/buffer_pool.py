"""Memory for batches: bounded by ``buffer.memory``, and given to waiting threads in the order in which they came.

Source: Kafka's BufferPool.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import NoReturn

from ...network.clock import Clock
from ...network.metrics import Sensor
from ...network.protocol.errors import BufferExhaustedError, KafkaError, MessageSizeTooLargeError, ProducerClosedError


class BufferPool:
    """Buffers of at most `total_bytes` in all, handed out fairly.

    Buffers of `poolable_bytes` (``batch.size``) are kept and used again; others are made and dropped. A thread that
    finds too little free waits behind those that came before it, and takes memory bit by bit as it is returned, so
    that a large request isn't starved by small ones. What a waiter has taken goes back if its time passes.

    Invariant, under the lock: ``available + poolable_bytes * len(free) + handed out == total_bytes``.
    Used by any thread that sends, and by the sender thread, which only returns memory and never waits.
    """

    def __init__(self, total_bytes: int, poolable_bytes: int, clock: Clock) -> None:
        self.total_bytes = total_bytes
        self.poolable_bytes = poolable_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._free: list[bytearray] = []
        self._unallocated_bytes = total_bytes
        self._waiters: deque[threading.Condition] = deque()
        self._closed = False
        self._cause: KafkaError | None = None
        #: Milliseconds that threads have waited for memory, all together, and how often one gave up.
        self.wait_time_ms = 0.0
        self.exhausted_count = 0
        #: Told the milliseconds of each wait for memory, and of each one that was in vain; None: nobody measures.
        self.wait_sensor: Sensor | None = None
        self.exhausted_sensor: Sensor | None = None

    def allocate(self, size_bytes: int, max_block_ms: float) -> bytearray:
        """A buffer of `size_bytes`, waiting for memory at most `max_block_ms` milliseconds.

        Raises MessageSizeTooLargeError where the pool could never give it, BufferExhaustedError where the time passed,
        ProducerClosedError where the producer was closed meanwhile, what its sender thread died of where that was so.
        """
        if size_bytes > self.total_bytes:
            raise MessageSizeTooLargeError(
                f"a batch of {size_bytes} bytes does not fit into buffer.memory ({self.total_bytes} bytes): "
                f"raise buffer.memory or send smaller records"
            )
        with self._lock:
            if self._closed:
                self._raise_closed("the producer is closed: create a new one to send on")
            if size_bytes == self.poolable_bytes and self._free and not self._waiters:
                return self._free.pop()
            free_bytes = self._unallocated_bytes + len(self._free) * self.poolable_bytes
            if free_bytes >= size_bytes and not self._waiters:
                self._release_free(size_bytes)
                self._unallocated_bytes -= size_bytes
                pooled = None
            else:
                pooled = self._wait_for(size_bytes, max_block_ms)
        if pooled is not None:
            return pooled
        try:
            return bytearray(size_bytes)
        except MemoryError:
            self._give_back(size_bytes)
            raise

    def _wait_for(self, size_bytes: int, max_block_ms: float) -> bytearray | None:
        """Queue up for `size_bytes`; returns a pooled buffer, or None when that much has been set aside. Locked."""
        turn = threading.Condition(self._lock)
        accumulated = 0
        pooled: bytearray | None = None
        start_ms = self._clock.now_ms()
        deadline_ms = start_ms + max_block_ms
        # last: who sees it wait can rely on its time running
        self._waiters.append(turn)
        try:
            while accumulated < size_bytes:
                if self._clock.now_ms() >= deadline_ms:
                    self.exhausted_count += 1
                    if self.exhausted_sensor is not None:
                        self.exhausted_sensor.record(1, self._clock.now_ms())
                    raise BufferExhaustedError(
                        f"no {size_bytes} bytes of buffer.memory ({self.total_bytes} bytes) became free within "
                        f"max.block.ms ({max_block_ms:.0f} ms): records are sent faster than the brokers take them, "
                        f"or no broker answers. Slow down, or raise buffer.memory or max.block.ms."
                    )
                self._clock.wait_until(turn, deadline_ms)
                if self._closed:
                    self._raise_closed("the producer was closed while this record waited for memory")
                if self._waiters[0] is not turn:
                    continue
                if accumulated == 0 and size_bytes == self.poolable_bytes and self._free:
                    pooled = self._free.pop()
                    accumulated = size_bytes
                else:
                    self._release_free(size_bytes - accumulated)
                    taken = min(size_bytes - accumulated, self._unallocated_bytes)
                    self._unallocated_bytes -= taken
                    accumulated += taken
            accumulated = 0
            return pooled
        finally:
            now_ms = self._clock.now_ms()
            self.wait_time_ms += now_ms - start_ms
            if self.wait_sensor is not None:
                self.wait_sensor.record(now_ms - start_ms, now_ms)
            self._unallocated_bytes += accumulated
            self._waiters.remove(turn)
            if self._waiters and (self._unallocated_bytes or self._free):
                self._waiters[0].notify()

    def _release_free(self, size_bytes: int) -> None:
        """Drop kept buffers until `size_bytes` are unallocated, or none is left. Locked."""
        while self._free and self._unallocated_bytes < size_bytes:
            self._free.pop()
            self._unallocated_bytes += self.poolable_bytes

    def deallocate(self, buffer: bytearray, size_bytes: int) -> None:
        """Return the `size_bytes` that were allocated for `buffer`; nobody may use it afterwards. Any thread."""
        with self._lock:
            if size_bytes == len(buffer) == self.poolable_bytes and not self._closed:
                self._free.append(buffer)
            else:
                self._unallocated_bytes += size_bytes
            if self._waiters:
                self._waiters[0].notify()

    def _give_back(self, size_bytes: int) -> None:
        with self._lock:
            self._unallocated_bytes += size_bytes
            if self._waiters:
                self._waiters[0].notify()

    @property
    def available_bytes(self) -> int:
        """Bytes that nobody holds."""
        with self._lock:
            return self._unallocated_bytes + len(self._free) * self.poolable_bytes

    @property
    def waiting(self) -> int:
        """How many threads wait for memory. Read without the lock: an estimate."""
        return len(self._waiters)

    def close(self, cause: KafkaError | None = None) -> None:
        """Fail those who wait and all who come later, with `cause` where the producer hasn't just been closed. The
        memory that is out may still be returned."""
        with self._lock:
            self._closed = True
            self._cause = self._cause or cause
            for turn in self._waiters:
                turn.notify()

    def _raise_closed(self, message: str) -> NoReturn:
        if self._cause is not None:
            raise self._cause.with_traceback(None)
        raise ProducerClosedError(message)
