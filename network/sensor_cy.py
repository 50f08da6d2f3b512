# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Sensors: what metrics are computed from. Recording takes no lock, because it happens several times per batch.

Source: Kafka's common.metrics (Sensor, SampledStat, Rate), with its windows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from . import _cython as cython
from .sections import here

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .clock import Clock
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.time_cy import Clock

_NAN = float("nan")


class _Sample:
    """The observations of one window."""

    __slots__ = ("greatest", "last_ms", "observations", "start_ms", "total")

    def __init__(self, start_ms: float, last_ms: float, observations: int, total: float, greatest: float) -> None:
        self.start_ms = start_ms
        self.last_ms = last_ms
        self.observations = observations
        self.total = total
        self.greatest = greatest


@cython.cclass
class Sensor:
    """Observations of one quantity. One thread records; any thread reads.

    An observation starts a new sample if the current one is at least `window_ms` old. A sample counts if its last
    observation is younger than `samples` windows. One more than `samples` is kept, because the oldest may overlap the
    start of the window.

    The current sample is written without a lock. A reader may see the count, the sum and the maximum of the current
    sample one observation apart, and nothing else: the change to a new sample takes the lock, which is a leaf.
    """

    if not cython.compiled:
        # for type checkers; sensor_cy.pxd has the C types
        _finished: list[_Sample]
        _clock: Any

    def __init__(self, clock: Clock, window_ms: float, samples: int) -> None:
        self._clock = clock
        self._window_ms = window_ms
        self._samples = samples
        # the current sample
        self._start_ms = float("-inf")
        self._last_ms = float("-inf")
        self._count = 0
        self._total = 0.0
        self._greatest = float("-inf")
        # those before it, at most `samples`
        self._finished = []
        # totals of the samples that were dropped
        self._earlier_count = 0
        self._earlier_total = 0.0
        self._lock = threading.RLock()

    @cython.ccall
    def record(self, value: cython.double, now_ms: cython.double) -> object:
        """Record one observation."""
        if now_ms - self._start_ms >= self._window_ms:
            self._begin_sample(now_ms)
        self._count += 1
        self._total += value
        self._last_ms = now_ms
        if value > self._greatest:  # noqa: PLR1730  (a call of max takes as long as everything else)
            self._greatest = value
        return None

    @cython.ccall
    def record_all(
        self, count: cython.longlong, total: cython.double, greatest: cython.double, now_ms: cython.double
    ) -> object:
        """Record `count` observations with the sum `total` and the maximum `greatest`."""
        if now_ms - self._start_ms >= self._window_ms:
            self._begin_sample(now_ms)
        self._count += count
        self._total += total
        self._last_ms = now_ms
        if greatest > self._greatest:  # noqa: PLR1730
            self._greatest = greatest
        return None

    @cython.cfunc
    def _begin_sample(self, now_ms: cython.double) -> object:
        with here.section, self._lock:
            if self._count:
                self._finished.append(self._current())
                if len(self._finished) > self._samples:
                    oldest = self._finished.pop(0)
                    self._earlier_count += oldest.observations
                    self._earlier_total += oldest.total
            self._start_ms = now_ms
            self._last_ms = now_ms
            self._count = 0
            self._total = 0.0
            self._greatest = float("-inf")
        return None

    @cython.cfunc
    def _current(self) -> Any:
        return _Sample(self._start_ms, self._last_ms, self._count, self._total, self._greatest)

    def _all(self) -> list[_Sample]:
        """The samples that are kept. The caller holds the lock."""
        return [*self._finished, self._current()] if self._count else list(self._finished)

    def _live(self, now_ms: float) -> list[_Sample]:
        """The samples within the window. The caller holds the lock."""
        return [sample for sample in self._all() if now_ms - sample.last_ms < self._window_ms * self._samples]

    def average(self) -> float:
        """The average of the observations in the window; NaN if there are none."""
        with here.section, self._lock:
            live = self._live(self._clock.now_ms())
            count = sum([sample.observations for sample in live])
            return sum([sample.total for sample in live]) / count if count else _NAN

    def maximum(self) -> float:
        """The maximum of the observations in the window; NaN if there are none."""
        with here.section, self._lock:
            return float(max([sample.greatest for sample in self._live(self._clock.now_ms())], default=_NAN))

    def rate(self) -> float:
        """The sum of the observations in the window, per second."""
        with here.section, self._lock:
            now_ms = self._clock.now_ms()
            live = self._live(now_ms)
            return sum([sample.total for sample in live]) / self._elapsed_seconds(live, now_ms)

    def occurrence_rate(self) -> float:
        """The number of observations in the window, per second."""
        with here.section, self._lock:
            now_ms = self._clock.now_ms()
            live = self._live(now_ms)
            return sum([sample.observations for sample in live]) / self._elapsed_seconds(live, now_ms)

    def _elapsed_seconds(self, live: list[_Sample], now_ms: float) -> float:
        # As in Kafka's Rate, all windows but the last count as elapsed, so that the first value is not inflated. A
        # single window counts as a whole one; Kafka takes the part that has elapsed, even if it is a millisecond.
        elapsed_ms = now_ms - live[0].start_ms if live else 0.0
        whole = int(elapsed_ms // self._window_ms)
        elapsed_ms += max(self._samples - 1 - whole, 0) * self._window_ms
        return max(elapsed_ms, self._window_ms) / 1000.0

    def total(self) -> float:
        """The sum of all observations since the start."""
        with here.section, self._lock:
            return self._earlier_total + sum([sample.total for sample in self._all()])

    def count(self) -> float:
        """The number of all observations since the start."""
        with here.section, self._lock:
            return float(self._earlier_count + sum([sample.observations for sample in self._all()]))
