"""When the sender wakes the threads that wait for a record: as soon as it would give the GIL away, and always."""

from __future__ import annotations

import types
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.sender_harness import LINGER_MS, SenderHarness

from headrace.network.protocol.errors import KafkaTimeoutError
from headrace.producer.accumulator.batch_cy import RecordFuture


def waiting(h: SenderHarness, future: RecordFuture) -> list[tuple[int, int]]:
    """Wait for the record without a thread. The list gets the requests sent and the polls made before it is woken."""
    with pytest.raises(KafkaTimeoutError):
        future.get(0)
    woken: list[tuple[int, int]] = []
    latch = future.final_batch.latch
    assert latch is not None
    latch.add(types.SimpleNamespace(release=lambda: woken.append((len(h.client.sent), len(h.client.polls)))))
    return woken


def test_they_are_woken_before_the_next_poll() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"v")
    woken = waiting(h, future)
    h.answer(request)
    assert future.done()
    assert not woken
    polls = len(h.client.polls)
    h.step()
    assert woken == [(1, polls)]


def test_they_are_woken_before_the_next_request() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"v")
    woken = waiting(h, future)
    h.append(b"w")
    h.answer(request)
    h.clock.advance(LINGER_MS)
    h.step()
    assert len(h.client.sent) == 2
    assert [sent for sent, _ in woken] == [1]


def test_they_are_woken_if_the_record_fails() -> None:
    h = SenderHarness(retries=0)
    (future,), request = h.request(b"v")
    woken = waiting(h, future)
    h.answer(request, 87)
    assert future.failed()
    assert woken


def test_they_are_woken_before_the_last_metrics_are_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    h = SenderHarness(telemetry=True)
    (future,), request = h.request(b"v")
    woken = waiting(h, future)
    h.answer(request, step=False)
    seen = []
    begin_close = h.telemetry.begin_close
    monkeypatch.setattr(h.telemetry, "begin_close", lambda now_ms: seen.append(len(woken)) or begin_close(now_ms))
    h.run_to_the_end()
    assert seen == [1]


def test_they_are_woken_if_the_thread_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    h = SenderHarness()
    (future,), request = h.request(b"v")
    woken = waiting(h, future)
    h.answer(request)

    def fail(*_: object) -> list:
        raise RuntimeError("a defect")

    monkeypatch.setattr(type(h.client), "poll", fail)
    monkeypatch.setattr(h.accumulator, "wakeup", fail)
    h.sender.run()
    assert h.sender.death is not None
    assert woken
    assert future.succeeded()


def test_a_wait_whose_time_ends_before_it_is_woken_finds_the_record_done() -> None:
    h = SenderHarness()
    (future,), request = h.request(b"v")
    waiting(h, future)
    with ThreadPoolExecutor(1) as executor:
        got = executor.submit(future.get, 0.3)
        h.answer(request)
        # without a turn of the sender, which would wake it
        assert got.result() == future.get(0)
