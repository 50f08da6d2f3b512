"""Compressing the batches of a request on several threads: the sender thread, and helpers that it starts.

Compressing a record takes more CPU than the call of `send`, so one thread that compresses for all partitions limits the
producer. Codecs release the GIL, so a helper can use another core. It compresses batches that the sender thread has
drained; the sender thread waits for it and does everything else.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING

from ...network.clock import LONG_AGO_MS
from ...network.records.compression import Compression
from ...network.records.workspace import Workspace
from ...network.sections import section_thread

if TYPE_CHECKING:
    from ..accumulator.accumulator_cy import RecordAccumulator
    from ..accumulator.batch_cy import ProducerBatch

_log = logging.getLogger(__name__)

#: With lz4, four threads compress faster than one thread sends.
MAX_HELPERS = 3
#: Batches of fewer bytes together aren't shared: lz4 compresses 64 KiB in 0.1 ms, and handing over isn't free.
MIN_SHARED_BYTES = 128 * 1024
#: How often the sender thread checks that the helpers it waits for live.
HELPER_CHECK_SECONDS = 1.0


class Compressors:
    """Compresses batches, and returns the memory of completed ones at the pace at which it does.

    The sender thread calls all methods. Helpers are daemon threads, started by the first request that has work for
    them.
    """

    def __init__(
        self, accumulator: RecordAccumulator, compression: Compression, level: int | None, name: str, helpers: int
    ) -> None:
        """`level` None is the codec's default. `name` is part of the threads' names, `helpers` their maximum number."""
        self.level = level
        self._accumulator = accumulator
        self._compression = compression
        self._name = name
        self._max_helpers = helpers
        self._helpers: list[threading.Thread] = []
        #: Batches that any of the threads may take; None ends a helper.
        self._work: queue.SimpleQueue[ProducerBatch | None] = queue.SimpleQueue()
        #: For each batch that a helper took, what went wrong.
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._unreturned: deque[ProducerBatch] = deque()
        self._failure_logged = False
        #: The sender thread's.
        self._workspace = Workspace()

    def fitting(self, batches: list[ProducerBatch], max_bytes: int) -> list[ProducerBatch]:
        """Compress drained batches and return those for one request, of at most `max_bytes` or of one batch.

        `Drain.drain` only expects sizes: batches for which there is no room after all go back to their queues.
        """
        self.compress(batches)
        size = 0
        for index, batch in enumerate(batches):
            size += batch.builder.size_bytes
            if size > max_bytes and index > 0:
                self._put_back(batches[index:], batches[:index])
                return batches[:index]
        return batches

    def compress(self, batches: list[ProducerBatch]) -> None:
        """Compress those of the drained `batches` that no earlier attempt has compressed."""
        fresh = [batch for batch in batches if batch.compression is None]
        if not fresh:
            return
        for batch in fresh:
            batch.raw_bytes = batch.builder.size_bytes
        helpers = self._helpers_for(fresh)
        if not helpers:
            for batch in fresh:
                self._return_one()
                self._compress(batch, self._workspace)
        else:
            self._share(fresh, helpers)
        for batch in fresh:
            self._accumulator.note_compression(batch, batch.raw_bytes, batch.builder.size_bytes)

    def keep(self, batch: ProducerBatch) -> None:
        """Return the memory of a completed batch before another one is compressed, or in `return_memory`.

        One at a time: compressing releases the GIL, and callers that wait for memory fill it meanwhile. With all of it
        at once they would hold the GIL for longer than that.
        """
        self._unreturned.append(batch)

    def return_memory(self) -> None:
        """Return the memory that is left, as no batch is being compressed."""
        while self._unreturned:
            self._return_one()

    def close(self) -> None:
        """End the helpers."""
        for _ in self._helpers:
            self._work.put(None)
        for helper in self._helpers:
            helper.join()

    def _put_back(self, left: list[ProducerBatch], sent: list[ProducerBatch]) -> None:
        """Put batches back as if they had not been drained: their partitions come before those of `sent`."""
        for batch in left:
            # a retry has backed off
            batch.retry_at_ms = LONG_AGO_MS
            self._accumulator.put_back(batch)
        for batch in sent:
            self._accumulator.queue_of(batch).to_end_of_line()

    def _helpers_for(self, batches: list[ProducerBatch]) -> int:
        """How many helpers these batches keep busy; that many are running."""
        wanted = min(len(batches) - 1, self._max_helpers)
        if wanted == 0 or sum([batch.raw_bytes for batch in batches]) < MIN_SHARED_BYTES:
            return 0
        while len(self._helpers) < wanted:
            helper = section_thread(self._help, f"headrace-compressor-{len(self._helpers) + 1}-{self._name}")
            try:
                helper.start()
            except (RuntimeError, MemoryError) as error:
                # the interpreter is ending, or the system has no more threads
                self._max_helpers = len(self._helpers)
                _log.info("%d threads help to compress, no more can be started: %s", self._max_helpers, error)
                break
            self._helpers.append(helper)
        return min(wanted, len(self._helpers))

    def _share(self, batches: list[ProducerBatch], helpers: int) -> None:
        """Compress the batches together with the helpers."""
        given = 0
        mine: ProducerBatch | None = batches[0]
        try:
            for batch in batches[1:]:
                self._work.put(batch)
                given += 1
            while mine is not None:
                for _ in range(1 + helpers):
                    self._return_one()
                self._compress(mine, self._workspace)
                try:
                    mine = self._work.get_nowait()
                    given -= 1
                except queue.Empty:
                    mine = None
        finally:
            # nobody else changes a batch before this
            failures = [self._next_done() for _ in range(given)]
        for failure in failures:
            if failure is not None:
                raise failure

    def _next_done(self) -> BaseException | None:
        """What went wrong with a batch that a helper took."""
        while True:
            try:
                return self._done.get(timeout=HELPER_CHECK_SECONDS)
            except queue.Empty:
                # without memory a helper may end before it can report
                if not all([helper.is_alive() for helper in self._helpers]):
                    return RuntimeError("a thread that helps to compress has died")

    def _help(self) -> None:
        workspace = Workspace()
        while (batch := self._work.get()) is not None:
            failure: BaseException | None = None
            try:
                self._compress(batch, workspace)
            except BaseException as error:
                failure = error  # the sender thread raises it
            # a helper that waits must not keep a batch alive
            del batch
            self._done.put(failure)
            del failure

    def _compress(self, batch: ProducerBatch, workspace: Workspace) -> None:
        try:
            packed = batch.builder.packed(self._compression, self.level, workspace)
        except Exception as error:
            # most likely for want of memory; nothing of the batch has changed
            level = logging.DEBUG if self._failure_logged else logging.WARNING
            self._failure_logged = True
            _log.log(level, "%r is sent uncompressed, because compressing it failed: %r", batch, error)
            packed = None
        if packed is None:
            batch.compression = Compression.NONE
        else:
            batch.builder.replace_records(packed)
            batch.compression = self._compression

    def _return_one(self) -> None:
        if self._unreturned:
            self._accumulator.release(self._unreturned.popleft())


def helpers_at_most() -> int:
    """One helper fewer than this process has cores, up to `MAX_HELPERS`."""
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        # not on Linux, or forbidden by a sandbox
        cores = os.cpu_count() or 1
    return min(cores - 1, MAX_HELPERS)
