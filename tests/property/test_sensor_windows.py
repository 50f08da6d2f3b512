"""A sensor against an oracle that keeps every observation."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.network.clock import MockClock
from headrace.network.metrics import Metrics

WINDOW_MS = 10.0

steps = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0, 9.5, 10.0, 11.0, 25.0, 40.0]), st.integers(-50, 50)), max_size=60
)


@given(steps, st.integers(1, 4), st.sampled_from([0.0, 1.0, 9.5, 10.0, 19.0, 20.0, 31.0, 100.0]))
@settings(deadline=None)
def test_a_sensor_tells_what_all_observations_tell(
    observed: list[tuple[float, int]], samples: int, later_ms: float
) -> None:
    clock = MockClock(now_ms=1000.0)
    sensor = Metrics(clock, window_ms=WINDOW_MS, samples=samples).sensor()
    windows: list[list[tuple[float, int]]] = []  # (time, value) pairs per window; each begins with an observation
    for wait_ms, value in observed:
        clock.advance(wait_ms)
        now_ms = clock.now_ms()
        sensor.record(value, now_ms)
        if not windows or now_ms - windows[-1][0][0] >= WINDOW_MS:
            windows.append([])
        windows[-1].append((now_ms, value))
    clock.advance(later_ms)

    now_ms = clock.now_ms()
    live = [window for window in windows if now_ms - window[-1][0] < WINDOW_MS * samples]
    values = [value for window in live for _, value in window]
    every = [value for window in windows for _, value in window]
    assert sensor.total() == sum(every)
    assert sensor.count() == len(every)
    if values:
        assert sensor.average() == sum(values) / len(values)
        assert sensor.maximum() == max(values)
    else:
        assert math.isnan(sensor.average())
        assert math.isnan(sensor.maximum())
    passed_ms = now_ms - live[0][0][0] if live else 0.0
    while passed_ms < WINDOW_MS * (samples - 1):
        passed_ms += WINDOW_MS
    seconds = max(passed_ms, WINDOW_MS) / 1000
    assert math.isclose(sensor.rate(), sum(values) / seconds)
    assert math.isclose(sensor.occurrence_rate(), len(values) / seconds)
