"""When a credential that expires is fetched again (Kafka's ExpiringCredentialRefreshingLogin)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..chance import random_unit as any_unit


class RefreshPolicy(NamedTuple):
    """The keys `sasl.login.refresh.*` and `sasl.login.retry.*`. Immutable."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: float = 60
    buffer_seconds: float = 300
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 10_000


def refresh_at_ms(
    policy: RefreshPolicy,
    now_ms: float,
    issued_ms: float | None,
    expires_ms: float,
    random_unit: Callable[[], float] = any_unit,
) -> float:
    """When to fetch the successor of a credential, on the clock of the arguments; never after `expires_ms`.

    At `window_factor` of its lifetime plus a random part of `window_jitter`; not within `buffer_seconds` of its expiry;
    not within `min_period_seconds` from now. Both limits are ignored if the credential has less time left than their
    sum; then the factor applies to the remaining time.
    """
    fraction = policy.window_factor + policy.window_jitter * random_unit()
    buffer_ms, min_period_ms = policy.buffer_seconds * 1000.0, policy.min_period_seconds * 1000.0
    if now_ms + buffer_ms + min_period_ms > expires_ms:
        proposed_ms = now_ms + max(expires_ms - now_ms, 0.0) * fraction
    else:
        start_ms = now_ms if issued_ms is None else issued_ms
        proposed_ms = start_ms + (expires_ms - start_ms) * fraction
        proposed_ms = max(min(proposed_ms, expires_ms - buffer_ms), now_ms + min_period_ms)
    return min(proposed_ms, expires_ms)
