"""Non-blocking name lookups: the system's resolver blocks, so it runs on helper threads.

Difference from Java: its client resolves names on the sender thread. A name service that takes five seconds to reject
the name of one broker delays the records for all the others.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ..clock import Clock
from ..protocol.errors import UnresolvableHostError
from ..sections import here, section_thread

_log = logging.getLogger(__name__)

Found = TypeVar("Found")

#: The number of lookups that run at a time; others are queued.
MAX_THREADS = 8
#: How long a connection attempt waits for the name service. After that it counts as failed, so that other nodes are
#: tried. The lookup continues, and a later attempt uses its result.
RESOLVE_PATIENCE_MS = 1_000.0
#: How long a result is valid if `find` has not returned it yet.
MAX_AGE_MS = 300_000.0


class NameLookups(Generic[Found]):
    """Calls a blocking lookup function for host names, on at most MAX_THREADS daemon threads.

    `find` belongs to the client's I/O thread. Threads exist only while lookups are pending, so an idle client has
    none. A process can exit while lookups hang.
    """

    def __init__(
        self,
        look_up: Callable[[str, int], Sequence[Found]],
        clock: Clock,
        *,
        on_answer: Callable[[], None],
        at_once: Callable[[str, int], Sequence[Found] | None] = lambda host, port: None,
    ) -> None:
        """Store the functions; no thread is started yet.

        `look_up` may block. It raises UnresolvableHostError for a name without addresses.
        `clock` measures the age of results.
        `on_answer` is called on a helper thread after each lookup.
        `at_once` returns the result for a name that needs no lookup, and None for any other.
        """
        self._look_up = look_up
        self._at_once = at_once
        self._clock = clock
        self._on_answer = on_answer
        self._lock = threading.RLock()
        # by (host, port): None while the lookup runs, else its completion time and its result
        self._answers: dict[tuple[str, int], tuple[float, Sequence[Found] | UnresolvableHostError] | None] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._threads = 0

    def find(self, host: str, port: int) -> Sequence[Found] | None:
        """The result for a name; None while its lookup runs. Call again after `on_answer`.

        Each result is returned once. The next call looks the name up again. Raises UnresolvableHostError.
        """
        found = self._at_once(host, port)
        if found is not None:
            return found
        key = (host, port)
        with here.section, self._lock:
            self._drop_old_answers()
            if key not in self._answers:
                self._answers[key] = None
                self._waiting.append(key)
                self._start_thread()
            answer = self._answers[key]
            if answer is None:
                return None
            del self._answers[key]
        _, outcome = answer
        if isinstance(outcome, UnresolvableHostError):
            raise outcome
        return outcome

    def _drop_old_answers(self) -> None:
        oldest_ms = self._clock.now_ms() - MAX_AGE_MS
        for key in [key for key, answer in self._answers.items() if answer is not None and answer[0] < oldest_ms]:
            del self._answers[key]

    def _start_thread(self) -> None:
        if self._threads == MAX_THREADS:
            return
        self._threads += 1
        try:
            section_thread(self._run, "headrace-names").start()
        except RuntimeError as error:
            # An interpreter that is shutting down starts no threads: block here rather than lose records.
            _log.debug("Looking names up on the I/O thread: %s", error)
            self._run()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                key = self._waiting.popleft()
            try:
                outcome: Sequence[Found] | UnresolvableHostError = self._look_up(*key)
            except UnresolvableHostError as error:
                outcome = error
            except Exception as error:
                # any other error must not leave the name without a result forever
                outcome = UnresolvableHostError(f"cannot resolve host name {key[0]!r} (port {key[1]}): {error!r}")
                outcome.__cause__ = error
            with self._lock:
                self._answers[key] = (self._clock.now_ms(), outcome)
            self._on_answer()
