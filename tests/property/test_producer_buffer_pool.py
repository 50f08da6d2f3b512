"""The buffer pool under many threads: never more than the total is leased, nothing is lost, every caller is served."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.errors import BufferExhaustedError
from headrace.producer.accumulator.buffer_pool_cy import BufferPool, Lease

TOTAL = 64
POOLABLE = 8


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, TOTAL), st.sampled_from([0.0, 1.0, 60_000.0, 60_000.0])), max_size=25),
        min_size=2,
        max_size=6,
    )
)
def test_the_sum_holds_whatever_threads_do(plans: list[list[tuple[int, float]]]) -> None:
    pool = BufferPool(TOTAL, POOLABLE, SYSTEM_CLOCK)
    lock = threading.Lock()
    out_bytes = 0
    most_bytes = 0
    failed: list[BaseException] = []

    def run(plan: list[tuple[int, float]]) -> None:
        nonlocal out_bytes, most_bytes
        try:
            for size, max_block_ms in plan:
                try:
                    lease = pool.allocate(size, max_block_ms)
                except BufferExhaustedError:
                    assert max_block_ms < 60_000.0
                    continue
                assert len(lease.buffer) == lease.size_bytes == size
                with lock:
                    out_bytes += size
                    most_bytes = max(most_bytes, out_bytes)
                with lock:
                    out_bytes -= size
                pool.deallocate(lease)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(plan,), daemon=True) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not any(thread.is_alive() for thread in threads), "a thread starves"
    assert not failed
    assert most_bytes <= TOTAL
    assert pool.available_bytes == TOTAL
    assert pool.waiting == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(1, TOTAL), st.just(-1), st.just(-2), st.just(-3)), max_size=60))
def test_the_sum_holds_after_each_step(steps: list[int]) -> None:
    """A size allocates that much; -1 returns the oldest lease, -2 the newest, -3 drops the oldest."""
    pool = BufferPool(TOTAL, POOLABLE, SYSTEM_CLOCK)
    out: list[Lease] = []
    for step in steps:
        if step < 0:
            if out:
                lease = out.pop(-1 if step == -2 else 0)
                if step != -3:
                    pool.deallocate(lease)
                del lease
        else:
            fits = step <= TOTAL - sum(lease.size_bytes for lease in out)
            try:
                out.append(pool.allocate(step, 0))
            except BufferExhaustedError:
                assert not fits
            else:
                assert fits
        assert pool.available_bytes + sum(lease.size_bytes for lease in out) == TOTAL
        assert len({id(lease.buffer) for lease in out}) == len(out)
