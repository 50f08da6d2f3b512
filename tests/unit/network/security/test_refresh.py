"""When a token is fetched again: the arithmetic of Kafka's ExpiringCredentialRefreshingLogin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.security.refresh import RefreshPolicy, refresh_at_ms

HOUR_MS = 3_600_000.0
POLICY = RefreshPolicy()


@pytest.mark.parametrize(
    ("policy", "now_ms", "issued_ms", "expires_ms", "unit", "expected_ms"),
    [
        (POLICY, 0.0, 0.0, HOUR_MS, 0.0, 0.8 * HOUR_MS),
        (POLICY, 0.0, 0.0, HOUR_MS, 1.0, 0.85 * HOUR_MS),
        # from its issue, not from now
        (POLICY, 0.2 * HOUR_MS, 0.0, HOUR_MS, 0.0, 0.8 * HOUR_MS),
        (POLICY, 0.2 * HOUR_MS, None, HOUR_MS, 0.0, 0.84 * HOUR_MS),
        # the buffer before the expiry
        (RefreshPolicy(window_factor=1.0), 0.0, 0.0, HOUR_MS, 0.0, HOUR_MS - 300_000),
        # the minimum period
        (RefreshPolicy(min_period_seconds=900), 0.79 * HOUR_MS, 0.0, 2 * HOUR_MS, 0.0, 1.6 * HOUR_MS),
        (RefreshPolicy(min_period_seconds=900), 0.79 * HOUR_MS, 0.0, 1.2 * HOUR_MS, 0.0, 0.79 * HOUR_MS + 900_000),
        # neither fits: the factor of what remains
        (POLICY, 0.0, 0.0, 300_000.0, 0.0, 240_000.0),
        (POLICY, 0.0, 0.0, 359_999.0, 0.0, 0.8 * 359_999),
        (POLICY, 0.0, 0.0, 360_000.0, 0.0, 60_000.0),
        # expired
        (POLICY, 10.0, 0.0, 5.0, 0.0, 5.0),
        # a jitter beyond the lifetime
        (RefreshPolicy(1.0, 0.25, 0, 0), 0.0, 0.0, 1000.0, 1.0, 1000.0),
    ],
)
def test_the_refresh_time(
    policy: RefreshPolicy, now_ms: float, issued_ms: float | None, expires_ms: float, unit: float, expected_ms: float
):
    assert refresh_at_ms(policy, now_ms, issued_ms, expires_ms, lambda: unit) == pytest.approx(expected_ms)


@given(
    st.builds(RefreshPolicy, st.floats(0.5, 1), st.floats(0, 0.25), st.integers(0, 900), st.integers(0, 3600)),
    st.floats(0, 1e12),
    st.floats(0, 1e12),
    st.floats(0, 1e9),
    st.floats(0, 1),
)
def test_the_refresh_time_is_between_now_and_the_expiry(
    policy: RefreshPolicy, now_ms: float, issued_ms: float, remaining_ms: float, unit: float
):
    expires_ms = now_ms + remaining_ms
    at_ms = refresh_at_ms(policy, now_ms, min(issued_ms, now_ms), expires_ms, lambda: unit)
    assert now_ms <= at_ms <= expires_ms
