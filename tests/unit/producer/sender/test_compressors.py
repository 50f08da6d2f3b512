"""The batches of a request are compressed by several threads, with the result of one."""

from __future__ import annotations

import logging
import os
import random
import threading
from typing import Any

import pytest
from support.sender_harness import SenderHarness, batches_of

from headrace.network.records import compression
from headrace.network.records.compression import Compression, compress
from headrace.network.sections import interrupted
from headrace.producer.accumulator.batch_cy import ProducerBatch
from headrace.producer.sender import compressors
from headrace.producer.sender.compressors import MAX_HELPERS, MIN_SHARED_BYTES, Compressors, helpers_at_most

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
RANDOM = random.Random(7)


def a_batch(size: int, partition: int = 0) -> ProducerBatch:
    """A batch of about `size` bytes, half of them noise."""
    batch = ProducerBatch("topic", partition, bytearray(size + 200), 0.0)
    value = RANDOM.randbytes(size // 2)
    assert batch.builder.append(1, None, value + bytes(size - len(value)))
    return batch


class Memory:
    """What the compressors need of the accumulator."""

    def __init__(self) -> None:
        self.noted: list[tuple[int, int]] = []
        self.released: list[ProducerBatch] = []

    def note_compression(self, batch: ProducerBatch, raw_bytes: int, packed_bytes: int) -> None:
        self.noted.append((raw_bytes, packed_bytes))

    def release(self, batch: ProducerBatch) -> None:
        self.released.append(batch)


def some_compressors(helpers: int, codec: Compression = Compression.LZ4) -> tuple[Compressors, Memory]:
    memory = Memory()
    return Compressors(memory, codec, None, "test", helpers), memory  # type: ignore[arg-type]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.endswith(("-test", "-harness"))}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    yield
    assert not threads()


@pytest.mark.parametrize("codec", CODECS)
def test_helpers_compress_as_one_thread_does(codec: Compression) -> None:
    shared, memory = some_compressors(2, codec)
    for _ in range(10):
        batches = [a_batch(MIN_SHARED_BYTES // 2, partition) for partition in range(7)]
        plain = [bytes(b"".join(batch.builder.finish()))[61:] for batch in batches]
        shared.compress(batches)
        for batch, records in zip(batches, plain, strict=True):
            assert batch.compression is codec
            assert batch.raw_bytes == 61 + len(records)
            assert bytes(b"".join(batch.builder.finish(compression=codec)))[61:] == compress(codec, records)
    assert len(threads()) == 2
    assert len(memory.noted) == 70
    shared.close()


def test_a_request_with_little_to_compress_starts_no_thread() -> None:
    shared, _ = some_compressors(2)
    shared.compress([a_batch(1000, partition) for partition in range(50)])
    shared.compress([a_batch(MIN_SHARED_BYTES)])
    assert not threads()
    shared.close()


def test_batches_of_earlier_attempts_are_not_compressed_again() -> None:
    shared, memory = some_compressors(1)
    batches = [a_batch(MIN_SHARED_BYTES, partition) for partition in range(3)]
    shared.compress(batches[:2])
    sizes = [batch.builder.size_bytes for batch in batches[:2]]
    shared.compress(batches)
    assert [batch.builder.size_bytes for batch in batches[:2]] == sizes
    assert len(memory.noted) == 3
    shared.close()


class Death(BaseException):
    """What the interpreter raises on any thread, such as KeyboardInterrupt."""


def test_what_ends_a_helper_is_raised_once_all_batches_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = threading.get_ident()
    helped = threading.Event()
    row = compression.CODECS[Compression.LZ4]

    def fail_on_helpers(*arguments: Any) -> Any:
        if threading.get_ident() == caller:
            # the helper takes a batch before this thread takes the last one
            assert helped.wait(60)
            return row.compress(*arguments)
        helped.set()
        raise Death("on a helper")

    monkeypatch.setitem(compression.CODECS, Compression.LZ4, row._replace(compress=fail_on_helpers))
    shared, _ = some_compressors(1)
    with pytest.raises(Death, match="on a helper"):
        shared.compress([a_batch(MIN_SHARED_BYTES, partition) for partition in range(3)])
    monkeypatch.undo()
    # the helper still works
    batches = [a_batch(MIN_SHARED_BYTES, partition) for partition in range(3)]
    shared.compress(batches)
    assert all(batch.compression is Compression.LZ4 for batch in batches)
    shared.close()


def test_an_error_of_the_sender_thread_leaves_no_batch_with_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = threading.get_ident()
    row = compression.CODECS[Compression.LZ4]

    def fail_here(*arguments: Any) -> Any:
        if threading.get_ident() == caller:
            raise Death("here")
        return row.compress(*arguments)

    monkeypatch.setitem(compression.CODECS, Compression.LZ4, row._replace(compress=fail_here))
    shared, _ = some_compressors(1)
    batches = [a_batch(MIN_SHARED_BYTES, partition) for partition in range(3)]
    with pytest.raises(Death, match="here"):
        shared.compress(batches)
    assert [batch.compression for batch in batches] == [None, Compression.LZ4, Compression.LZ4]
    shared.close()


def test_a_batch_that_cannot_be_compressed_is_sent_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    row = compression.CODECS[Compression.LZ4]
    large = MIN_SHARED_BYTES

    def fail_for_large(data: Any, *arguments: Any) -> Any:
        if len(data) > large:
            raise MemoryError("no memory")
        return row.compress(data, *arguments)

    monkeypatch.setitem(compression.CODECS, Compression.LZ4, row._replace(compress=fail_for_large))
    shared, memory = some_compressors(1)
    batches = [
        a_batch(size, partition) for partition, size in enumerate([large // 2, large * 2, large // 2, large * 3])
    ]
    plain = [bytes(b"".join(batch.builder.finish())) for batch in batches]
    shared.compress(batches)
    assert [batch.compression for batch in batches] == [Compression.LZ4, Compression.NONE] * 2
    assert [bytes(b"".join(batch.builder.finish())) for batch in batches[1::2]] == plain[1::2]
    assert len(memory.noted) == 4
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "is sent uncompressed, because compressing it failed: MemoryError('no memory')" in warnings[0]
    shared.close()


def test_the_sender_thread_does_not_wait_for_a_helper_that_has_died(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reports:
        """The queue of what helpers have done, for one of which there is no memory."""

        def __init__(self) -> None:
            self.get = done.get

        def put(self, failure: BaseException | None) -> None:
            raise MemoryError("no memory to report")

    monkeypatch.setattr(compressors, "HELPER_CHECK_SECONDS", 0.05)
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    shared, _ = some_compressors(1)
    done = shared._done
    shared._done = Reports()  # type: ignore[assignment]
    helped = threading.Event()
    caller = threading.get_ident()
    row = compression.CODECS[Compression.LZ4]

    def let_help(*arguments: Any) -> Any:
        if threading.get_ident() == caller:
            assert helped.wait(60)
        else:
            helped.set()
        return row.compress(*arguments)

    monkeypatch.setitem(compression.CODECS, Compression.LZ4, row._replace(compress=let_help))
    with pytest.raises(RuntimeError, match="a thread that helps to compress has died"):
        shared.compress([a_batch(MIN_SHARED_BYTES, partition) for partition in range(2)])
    assert [each.exc_type for each in died] == [MemoryError]
    shared.close()


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), MemoryError("no memory for a thread")], ids=repr
)
def test_without_more_threads_the_sender_thread_compresses_alone(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(self: threading.Thread) -> None:
        raise error

    monkeypatch.setattr(threading.Thread, "start", start)
    shared, _ = some_compressors(3)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            batches = [a_batch(MIN_SHARED_BYTES, partition) for partition in range(3)]
            shared.compress(batches)
            assert all(batch.compression is Compression.LZ4 for batch in batches)
    assert [record.getMessage() for record in caplog.records] == [
        f"0 threads help to compress, no more can be started: {error}"
    ]
    shared.close()


def test_a_finalizer_on_a_helper_may_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    row = compression.CODECS[Compression.LZ4]
    seen: dict[str, bool] = {}
    met = threading.Barrier(2, timeout=60)

    def look(*arguments: Any) -> Any:
        seen[threading.current_thread().name] = interrupted()
        met.wait()
        return row.compress(*arguments)

    monkeypatch.setitem(compression.CODECS, Compression.LZ4, row._replace(compress=look))
    shared, _ = some_compressors(1)
    shared.compress([a_batch(MIN_SHARED_BYTES, partition) for partition in range(2)])
    (helper,) = threads()
    assert seen[helper]
    shared.close()


def test_as_much_memory_returns_as_is_compressed_next() -> None:
    shared, memory = some_compressors(1)
    done = [a_batch(100, partition) for partition in range(20)]
    for batch in done:
        shared.keep(batch)
    shared.compress([a_batch(1000)])
    assert memory.released == done[:1]
    shared.compress([a_batch(MIN_SHARED_BYTES, partition) for partition in range(2)])
    # one by each thread that compresses, before each batch that this thread takes
    assert 3 <= len(memory.released) <= 5
    shared.return_memory()
    assert memory.released == done
    shared.close()


def test_the_sender_shares_the_batches_of_a_request() -> None:
    requests = {}
    for helpers in (0, 2):
        h = SenderHarness(
            partitions=6,
            compression=Compression.ZSTD,
            helpers=helpers,
            batch_size=MIN_SHARED_BYTES,
            memory=10_000_000,
            max_request_bytes=10_000_000,
        )
        for partition in range(6):
            h.append(bytes(range(256)) * 400, partition=partition)
        (request,) = h.send()
        requests[helpers] = {partition: bytes(batch.buffer) for _, partition, batch in batches_of(request)}
        assert len(threads()) == helpers
        h.answer(request)
        h.run_to_the_end()
        assert h.free_bytes == 10_000_000
        assert not threads()
    assert requests[0] == requests[2]


def test_a_core_is_left_for_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, helpers in [(1, 0), (2, 1), (4, 3), (64, MAX_HELPERS)]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: set(range(cores)), raising=False)
        assert helpers_at_most() == helpers


def test_a_sandbox_may_hide_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(process: int) -> set[int]:
        raise PermissionError("sched_getaffinity")

    monkeypatch.setattr(os, "sched_getaffinity", forbidden, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert helpers_at_most() == 2
