"""The buffer pool: bounded, fair, and complete again after every kind of failure. Threads wait on a MockClock."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headrace.network.clock import MockClock
from headrace.network.latch_cy import Latch
from headrace.network.protocol.errors import (
    BufferExhaustedError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerClosedError,
)
from headrace.producer.accumulator.buffer_pool_cy import NO_WAIT, BufferPool, Lease, MemoryWait

FOREVER_MS = 1e9


class Caller:
    """A thread that allocates memory; the outcome is in `lease` or `error`."""

    def __init__(self, pool: BufferPool, size: int, max_block_ms: float = FOREVER_MS) -> None:
        self.lease: Lease | None = None
        self.error: KafkaError | None = None
        self._pool = pool
        self._thread = threading.Thread(target=self._run, args=(size, max_block_ms), daemon=True)
        waiting = pool.waiting
        self._thread.start()
        # joins the queue before the next one
        wait_until(lambda: pool.waiting > waiting or not self._thread.is_alive())

    def _run(self, size: int, max_block_ms: float) -> None:
        try:
            self.lease = self._pool.allocate(size, max_block_ms)
        except KafkaError as error:
            self.error = error

    def join(self) -> Caller:
        self._thread.join(30)
        assert not self._thread.is_alive(), "still waiting"
        return self

    @property
    def size(self) -> int:
        """The size of the allocated buffer in bytes."""
        assert self.lease is not None
        return len(self.lease.buffer)

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    gate = threading.Event()
    while not condition():
        gate.wait(0.0005)


def make(total: int = 100, poolable: int = 10) -> tuple[BufferPool, MockClock]:
    clock = MockClock()
    return BufferPool(total, poolable, clock), clock


def test_gives_what_is_asked_for_and_counts_it() -> None:
    pool, _ = make()
    lease = pool.allocate(30, 0)
    assert (len(lease.buffer), lease.size_bytes, pool.available_bytes) == (30, 30, 70)
    pool.deallocate(lease)
    assert pool.available_bytes == 100


def test_buffers_of_the_usual_size_are_used_again_and_others_are_not() -> None:
    pool, _ = make()
    leases = pool.allocate(10, 0), pool.allocate(20, 0)
    usual, other = leases[0].buffer, leases[1].buffer
    for lease in leases:
        pool.deallocate(lease)
        assert lease.buffer is None
    assert pool.allocate(20, 0).buffer is not other
    assert pool.allocate(10, 0).buffer is usual


def test_kept_buffers_are_dropped_for_a_request_of_another_size() -> None:
    pool, _ = make()
    kept = [pool.allocate(10, 0) for _ in range(10)]
    for buffer in kept:
        pool.deallocate(buffer)
    lease = pool.allocate(95, 0)
    assert len(lease.buffer) == 95
    assert pool.available_bytes == 5


def test_what_several_batches_share_goes_back_with_the_last_and_its_buffer_is_not_kept() -> None:
    # the parts of a split batch have their own buffers
    pool, _ = make()
    lease = pool.allocate(10, 0)
    lease.holders, lease.buffer = 3, None
    pool.deallocate(lease)
    pool.deallocate(lease)
    assert pool.available_bytes == 90
    pool.deallocate(lease)
    assert pool.available_bytes == 100
    pool.deallocate(lease)
    assert pool.available_bytes == 100


def test_what_is_dropped_without_going_back_is_free_again() -> None:
    # a signal handler may raise between allocation and release
    pool, _ = make()
    kept = pool.allocate(10, 0)
    pool.allocate(80, 0)
    assert pool.available_bytes == 90
    lease = pool.allocate(90, 0)
    assert len(lease.buffer) == 90
    assert kept.buffer is not None


def test_what_is_dropped_goes_to_those_who_wait_once_somebody_looks() -> None:
    pool, _ = make()
    dropped = pool.allocate(100, 0)
    caller = Caller(pool, 10)
    del dropped
    pool.reclaim()
    assert caller.join().size == 10
    assert pool.available_bytes == 90


def test_who_would_not_wait_gets_memory_that_is_free_and_nobody_waits_for() -> None:
    pool, _ = make()
    held = pool.try_allocate(10)
    assert held is not None
    assert len(held.buffer) == 10
    assert pool.try_allocate(91) is None
    large = Caller(pool, 95)
    assert pool.try_allocate(10) is None
    pool.deallocate(held)
    assert large.join().size == 95
    pool.close()
    assert pool.try_allocate(1) is None


def test_what_never_fits_is_refused_at_once_and_says_what_to_do() -> None:
    pool, _ = make()
    with pytest.raises(MessageSizeTooLargeError, match=r"buffer\.memory"):
        pool.allocate(101, FOREVER_MS)
    assert pool.available_bytes == 100


def test_nobody_waits_who_may_not() -> None:
    pool, _ = make()
    held = pool.allocate(95, 0)
    with pytest.raises(BufferExhaustedError, match=r"max\.block\.ms"):
        pool.allocate(10, 0)
    assert (pool.available_bytes, pool.waiting, held.size_bytes) == (5, 0, 95)
    assert issubclass(BufferExhaustedError, KafkaTimeoutError)


def test_a_waiter_gets_memory_when_it_is_returned() -> None:
    pool, _ = make()
    held = pool.allocate(100, 0)
    caller = Caller(pool, 10)
    pool.deallocate(held)
    assert caller.join().size == 10
    assert pool.available_bytes == 90


def test_a_waiter_gets_a_returned_buffer_of_the_usual_size_itself() -> None:
    pool, _ = make(total=10)
    held = pool.allocate(10, 0)
    buffer = held.buffer
    caller = Caller(pool, 10)
    pool.deallocate(held)
    lease = caller.join().lease
    assert lease is not None
    assert lease.buffer is buffer


def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    pool, _ = make()
    held = [pool.allocate(10, 0) for _ in range(10)]
    callers = [Caller(pool, 10) for _ in range(5)]
    for i, caller in enumerate(callers):
        pool.deallocate(held[i])
        assert caller.join().lease is not None
        assert all(later.waits for later in callers[i + 1 :])


def test_a_large_request_gathers_memory_bit_by_bit_and_is_not_overtaken_by_small_ones() -> None:
    pool, _ = make()
    held = [pool.allocate(10, 0) for _ in range(10)]
    large = Caller(pool, 60)
    small = [Caller(pool, 10) for _ in range(3)]
    for buffer in held[:5]:
        pool.deallocate(buffer)
        assert large.waits
        assert all(caller.waits for caller in small)
    pool.deallocate(held[5])
    assert large.join().size == 60
    for i, caller in enumerate(small):
        pool.deallocate(held[6 + i])
        assert caller.join().lease is not None
    pool.deallocate(held[9])
    assert pool.available_bytes == 10


def test_who_comes_while_others_wait_does_not_overtake_them_although_there_is_enough() -> None:
    pool, clock = make()
    held = pool.allocate(90, 0)
    large = Caller(pool, 50)
    with pytest.raises(BufferExhaustedError):
        pool.allocate(10, 0)
    small = Caller(pool, 10, max_block_ms=5)
    clock.advance(5)
    assert isinstance(small.join().error, BufferExhaustedError)
    pool.deallocate(held)
    assert large.join().lease is not None


def test_what_a_waiter_had_gathered_goes_back_when_its_time_passes_and_the_next_one_gets_it() -> None:
    pool, clock = make()
    held = [pool.allocate(10, 0) for _ in range(10)]
    large = Caller(pool, 60, max_block_ms=100)
    small = Caller(pool, 30)
    for buffer in held[:3]:
        pool.deallocate(buffer)
    assert small.waits
    clock.advance(100)
    assert isinstance(large.join().error, BufferExhaustedError)
    assert small.join().size == 30
    for buffer in held[3:]:
        pool.deallocate(buffer)
    assert pool.available_bytes == 70


def test_a_waiter_in_the_middle_may_give_up_without_harm_to_the_line() -> None:
    pool, clock = make()
    held = pool.allocate(100, 0)
    first = Caller(pool, 60)
    middle = Caller(pool, 60, max_block_ms=10)
    last = Caller(pool, 40)
    clock.advance(10)
    assert isinstance(middle.join().error, BufferExhaustedError)
    pool.deallocate(held)
    first.join()
    last.join()
    assert pool.available_bytes == 0


def test_one_return_of_much_serves_several_waiters() -> None:
    pool, _ = make()
    held = pool.allocate(100, 0)
    callers = [Caller(pool, size) for size in (10, 30, 60)]
    pool.deallocate(held)
    assert [caller.join().size for caller in callers] == [10, 30, 60]


def test_a_wait_ends_at_its_time_and_not_before() -> None:
    pool, clock = make()
    held = pool.allocate(100, 0)
    caller = Caller(pool, 10, max_block_ms=100)
    clock.advance(99.9)
    assert caller.waits
    clock.advance(0.1)
    assert isinstance(caller.join().error, BufferExhaustedError)
    assert (pool.exhausted_count, pool.wait_time_ms, held.size_bytes) == (1, 100.0, 100)


def test_closing_fails_those_who_wait_with_what_they_gathered_returned_and_all_who_come() -> None:
    pool, _ = make()
    held = [pool.allocate(10, 0) for _ in range(10)]
    callers = [Caller(pool, 60), Caller(pool, 10)]
    pool.deallocate(held[0])
    pool.close()
    for caller in callers:
        assert isinstance(caller.join().error, ProducerClosedError)
    with pytest.raises(ProducerClosedError):
        pool.allocate(1, 0)
    for buffer in held[1:]:
        pool.deallocate(buffer)
    assert (pool.available_bytes, pool.waiting) == (100, 0)


# --- Event loops, which take a place in the line instead of waiting ---


def test_without_waiting_memory_is_given_at_once_or_not_at_all() -> None:
    pool = BufferPool(1000, 100, MockClock())
    lease = pool.allocate(900, NO_WAIT)
    with pytest.raises(MemoryWait) as wait:
        pool.allocate(101, NO_WAIT)
    assert wait.value.size_bytes == 101
    assert pool.exhausted_count == 0
    pool.deallocate(lease)
    assert pool.allocate(101, NO_WAIT).size_bytes == 101


def test_a_place_in_line_is_granted_in_turn_and_its_memory_used_by_allocate() -> None:
    pool = BufferPool(1000, 100, MockClock())
    lease = pool.allocate(1000, 0)
    first, latch = Caller(pool, 600), Latch()
    turn = pool.join_line(600, latch)
    behind = Caller(pool, 300)
    pool.deallocate(lease)
    first.join()
    assert not latch.is_set, "there is no room for both"
    assert behind.waits, "it is behind the loop's place"
    assert turn.waits_for(600)
    assert not turn.waits_for(601)
    assert first.lease is not None
    pool.deallocate(first.lease)
    assert latch.is_set
    behind.join()
    granted = pool.allocate(500, NO_WAIT, turn)
    assert (granted.size_bytes, len(granted.buffer)) == (600, 600)
    assert pool.available_bytes == 100
    pool.leave_line(turn)
    assert pool.available_bytes == 100, "what was used is not returned"


def test_leaving_the_line_returns_what_was_granted_and_lets_the_next_proceed() -> None:
    pool = BufferPool(1000, 100, MockClock())
    lease = pool.allocate(1000, 0)
    latch = Latch()
    granted, waiting = pool.join_line(1000, latch), pool.join_line(400, Latch())
    behind = Caller(pool, 1000)
    pool.deallocate(lease)
    assert latch.is_set
    pool.leave_line(granted)
    assert not waiting.waits_for(1)
    pool.leave_line(waiting)
    assert behind.join().size == 1000
    assert pool.waiting == 0


def test_a_granted_turn_that_is_dropped_is_recovered() -> None:
    pool = BufferPool(1000, 100, MockClock())
    turn = pool.join_line(1000, Latch())
    assert turn.has_granted(1000)
    del turn
    assert pool.allocate(1000, 0).size_bytes == 1000


def test_closing_wakes_a_place_in_line_and_one_taken_later() -> None:
    pool = BufferPool(1000, 100, MockClock())
    lease = pool.allocate(1000, 0)
    before, after = Latch(), Latch()
    turn = pool.join_line(10, before)
    pool.close()
    pool.join_line(10, after)
    assert before.is_set
    assert after.is_set
    with pytest.raises(ProducerClosedError):
        pool.allocate(10, NO_WAIT, turn)
    pool.deallocate(lease)
