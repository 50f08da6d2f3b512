"""The wheel, its buckets and the queue of buckets, without a timer."""

from __future__ import annotations

from headrace.broker.timer.timer_task import TimerTask, TimerTaskEntry, TimerTaskList
from headrace.broker.timer.timing_wheel import DelayQueue, TimingWheel


class Task(TimerTask):
    def run(self) -> None:
        raise AssertionError("no test of the wheel runs a task")


class NoTimer:
    def cancel_entry(self, entry: TimerTaskEntry) -> None:
        raise AssertionError("no test of the wheel cancels a task")


def entry_at(expiration_ms: int) -> TimerTaskEntry:
    return TimerTaskEntry(Task(0), expiration_ms, NoTimer())


def a_wheel(*, tick_ms: int = 1, wheel_size: int = 3, start_ms: int = 0) -> tuple[TimingWheel, DelayQueue, list[None]]:
    new_firsts: list[None] = []
    queue = DelayQueue(on_new_first=lambda: new_firsts.append(None))
    return TimingWheel(tick_ms=tick_ms, wheel_size=wheel_size, start_ms=start_ms, queue=queue), queue, new_firsts


def drain(wheel: TimingWheel, queue: DelayQueue, until_ms: int) -> list[tuple[int, list[int]]]:
    """Turn the wheel as the timer does. Returns (time of a bucket, expirations due at that time)."""
    seen = []
    while (bucket := queue.poll(until_ms)) is not None:
        time_ms = bucket.expiration_ms
        wheel.advance_clock(time_ms)
        seen.append((time_ms, [entry.expiration_ms for entry in bucket.flush() if not wheel.add(entry)]))
    return seen


def test_a_bucket_keeps_the_order_of_coming():
    bucket, entries = TimerTaskList(), [entry_at(number) for number in range(4)]
    for entry in entries:
        bucket.add(entry)
    assert list(bucket.flush()) == entries
    assert list(bucket.flush()) == []


def test_entries_leave_a_bucket_from_anywhere():
    entries = [entry_at(number) for number in range(5)]
    for leaving in ([0], [4], [2], [0, 1], [4, 3], [1, 3, 2], [0, 1, 2, 3, 4], [4, 0, 2, 3, 1]):
        bucket = TimerTaskList()
        for entry in entries:
            bucket.add(entry)
        for number in leaving:
            bucket.remove(entries[number])
            assert entries[number].bucket is None
        staying = [entry for number, entry in enumerate(entries) if number not in leaving]
        assert all(entry.bucket is bucket for entry in staying)
        assert list(bucket.flush()) == staying


def test_an_entry_can_be_added_again_while_its_bucket_is_flushed():
    bucket, other = TimerTaskList(), TimerTaskList()
    for number in range(3):
        bucket.add(entry_at(number))
    for entry in bucket.flush():
        (other if entry.expiration_ms else bucket).add(entry)
    assert [entry.expiration_ms for entry in bucket.flush()] == [0]
    assert [entry.expiration_ms for entry in other.flush()] == [1, 2]


def test_the_queue_gives_buckets_when_they_are_due_in_order():
    new_firsts: list[int | None] = []
    queue = DelayQueue(on_new_first=lambda: new_firsts.append(queue.next_expiration_ms()))
    for expiration_ms in (30, 10, 20, 10):
        bucket = TimerTaskList()
        bucket.expiration_ms = expiration_ms
        queue.offer(bucket)
    assert new_firsts == [30, 10]
    assert queue.poll(9.99) is None
    polled = []
    while (bucket := queue.poll(20)) is not None:
        polled.append(bucket.expiration_ms)
    assert polled == [10, 10, 20]
    assert queue.next_expiration_ms() == 30


def test_what_is_due_in_the_current_tick_has_expired():
    wheel, queue, _ = a_wheel(tick_ms=10, start_ms=105)
    assert wheel.current_ms == 100
    assert not wheel.add(entry_at(90))
    assert not wheel.add(entry_at(109))
    assert wheel.add(entry_at(110))
    assert queue.next_expiration_ms() == 110


def test_entries_of_a_tick_share_a_bucket_which_is_queued_once():
    wheel, queue, new_firsts = a_wheel(tick_ms=10, wheel_size=8)
    for expiration_ms in (20, 25, 29):
        assert wheel.add(entry_at(expiration_ms))
    assert len(new_firsts) == 1
    assert drain(wheel, queue, 100) == [(20, [20, 25, 29])]


def test_the_article_s_six_jobs_come_down_the_wheels():
    """The walk-through of the article: three ticks per wheel, jobs at 1, 17, 3, 5, 9 and 14."""
    wheel, queue, _ = a_wheel()
    for expiration_ms in (1, 17, 3, 5, 9, 14):
        assert wheel.add(entry_at(expiration_ms))
    assert drain(wheel, queue, 1) == [(1, [1])]
    assert drain(wheel, queue, 3) == [(3, [3])]  # 5 moved down to the finest wheel
    assert drain(wheel, queue, 5) == [(5, [5])]
    assert drain(wheel, queue, 9) == [(9, [9])]  # 17 and 14 moved down to the middle one
    assert drain(wheel, queue, 14) == [(12, []), (14, [14])]
    assert drain(wheel, queue, 17) == [(15, []), (17, [17])]
    assert queue.next_expiration_ms() is None


def test_the_same_time_finds_the_same_bucket_however_far_the_clock_has_moved():
    wheel, queue, _ = a_wheel(tick_ms=10, wheel_size=20)
    wheel.add(entry_at(161))
    wheel.add(entry_at(100))
    assert drain(wheel, queue, 100) == [(100, [100])]
    wheel.add(entry_at(163))
    assert drain(wheel, queue, 200) == [(160, [161, 163])]


def test_overflow_wheels_are_made_when_first_needed_and_reach_as_far_as_a_request_may_ask():
    wheel, queue, _ = a_wheel(wheel_size=20)
    assert wheel._overflow_wheel is None
    assert wheel.add(entry_at(19))
    assert wheel._overflow_wheel is None
    assert wheel.add(entry_at(20))
    assert wheel._overflow_wheel is not None
    longest_ms = 2**31 - 1  # a timeout on the wire is an int32
    assert wheel.add(entry_at(longest_ms))
    depth, each = 0, wheel
    while each is not None:
        depth, each = depth + 1, each._overflow_wheel
    assert depth == 8
    due = [(time_ms, expired) for time_ms, expired in drain(wheel, queue, longest_ms) if expired]
    assert due == [(19, [19]), (20, [20]), (longest_ms, [longest_ms])]


def test_a_coarse_wheel_moves_with_the_fine_one():
    wheel, queue, _ = a_wheel()
    first_far = entry_at(100)
    wheel.add(first_far)
    wheel.add(entry_at(2))
    assert drain(wheel, queue, 2) == [(2, [2])]
    wheel.add(entry_at(4))
    assert drain(wheel, queue, 4) == [(4, [4])]
    overflow = wheel._overflow_wheel
    assert overflow is not None
    assert (wheel.current_ms, overflow.current_ms) == (4, 3)
    assert wheel.add(entry_at(12))  # the coarse wheel reaches to 12, exclusive
    assert overflow._buckets[12 // 3 % 3]._first is None
    assert drain(wheel, queue, 12) == [(9, []), (12, [12])]
