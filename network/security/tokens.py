"""Credentials that are bearer tokens: fetched on a thread of their own, ahead of their expiry.

Theory of operation. `TokenCredentials` is in one of three states:

- Usable: there is a token, and it has not expired. `begin` returns a mechanism with it.
- Pending: there is none, and no fetch has failed for good. `begin` returns None; the wakeup follows.
- Failed: there is none, and fetches fail. `begin` raises until one succeeds.

The first `begin` starts the thread. It fetches a token, then its successor at the time that `refresh_at_ms` returns. A
failed fetch is repeated with exponential backoff, without end, whatever the state. An error that another attempt may
correct (RetriableError, OSError) leads to Failed only after `sasl.login.retry.backoff.max.ms`, as one login lasts that
long in Kafka's HttpJwtRetriever; any other leads there at once.

A token of unknown lifetime is not refreshed ahead: it is used for `sasl.login.refresh.min.period.seconds` and fetched
again by the `begin` after that. A token that the broker rejects is fetched again, too, unless it is very young.

Everything that changes is guarded by the thread's condition, which is never held while a source fetches. The only thing
that a blocked source delays is the next authentication that needs its token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..backoff import ExponentialBackoff
from ..chance import random_unit as any_unit
from ..clock import LONG_AGO_MS, NEVER_MS, SYSTEM_CLOCK, Clock
from ..protocol.errors import IllegalStateError, RetriableError, SaslAuthenticationFailedError
from ..repeats import Repeats
from ..sections import here
from .login_thread import LoginThread, start_thread
from .mechanism import ClientMechanism
from .mechanism_names import OAUTHBEARER
from .oauthbearer import OAuthBearerClient
from .refresh import RefreshPolicy, refresh_at_ms
from .token import Token, TokenSource, scrubbed

#: A pending fetch is reported after this time, and then once a minute.
SLOW_FETCH_MS = 10_000.0

#: A token of unknown lifetime is used for at least this long, or authentications would never find one.
MIN_USE_MS = 1_000.0

_log = logging.getLogger(__name__)


class TokenCredentials:
    """Credentials of OAUTHBEARER with a token source. Implements Credentials. Its repr has no secret."""

    def __init__(
        self,
        source: TokenSource,
        policy: RefreshPolicy,
        *,
        clock: Clock = SYSTEM_CLOCK,
        random_unit: Callable[[], float] = any_unit,
        start: Callable[[Callable[[], object], str], object] = start_thread,
    ) -> None:
        """Store the arguments; nothing is fetched yet. `start` starts the thread; tests start none."""
        self._source = source
        self._policy = policy
        self._clock = clock
        self._random_unit = random_unit
        self._backoff = ExponentialBackoff(
            policy.retry_backoff_ms, policy.retry_backoff_max_ms, random_unit=random_unit
        )
        self._wakeup: Callable[[], object] = lambda: None
        self._thread = LoginThread("headrace-tokens", self.due_ms, self.fetch, source.close, clock, start)
        self._repeats = Repeats()
        self._token: Token | None = None
        self._fetched_ms = LONG_AGO_MS
        self._due_ms = NEVER_MS
        self._fetching_since_ms: float | None = None
        self._failures = 0
        self._failing_since_ms = NEVER_MS
        self._error: BaseException | None = None
        self._is_awaited = False

    def __repr__(self) -> str:
        return f"TokenCredentials({self._source!r})"

    # --- Credentials ---

    @property
    def mechanism(self) -> str:
        return OAUTHBEARER

    def start(self, wakeup: Callable[[], object]) -> None:
        self._wakeup = wakeup

    def begin(self, host: str) -> ClientMechanism | None:
        now_ms = self._clock.now_ms()
        with here.section, self._thread.condition:
            if self._thread.is_closed:
                raise IllegalStateError("the token credentials are closed")
            token = self._usable(now_ms)
            if token is not None:
                return OAuthBearerClient(token.value, token.extensions, lambda: self._fetch_again(token))
            error = self._error
            if error is None:
                self._is_awaited = True
                self._report_slow_fetch(now_ms)
                if self._failures == 0 and self._fetching_since_ms is None:
                    self._due_ms = now_ms
        self._thread.wake()
        if error is None:
            return None
        raise SaslAuthenticationFailedError(self._text(error)) from error

    def close(self) -> None:
        self._thread.close()

    def _usable(self, now_ms: float) -> Token | None:
        token = self._token
        if token is None:
            return None
        if token.expires_ms is None:
            lifetime_ms = max(self._policy.min_period_seconds * 1000.0, MIN_USE_MS)
            return token if now_ms < self._fetched_ms + lifetime_ms else None
        return token if self._clock.wall_ms() < token.expires_ms else None

    def _fetch_again(self, rejected: Token) -> None:
        """Fetch the successor of a token that the broker rejected, but do not flood the source."""
        now_ms = self._clock.now_ms()
        with here.section, self._thread.condition:
            is_young = now_ms < self._fetched_ms + self._policy.retry_backoff_max_ms
            if self._token is rejected and not is_young and self._failures == 0 and self._fetching_since_ms is None:
                self._due_ms = now_ms
        self._thread.wake()

    def _report_slow_fetch(self, now_ms: float) -> None:
        since_ms = self._fetching_since_ms
        if since_ms is not None and now_ms - since_ms >= SLOW_FETCH_MS:
            level = self._repeats.level("slow", logging.WARNING, now_ms)
            seconds = (now_ms - since_ms) / 1000.0
            _log.log(
                level, "Waiting for a token from %r for %.0f s; no connection can authenticate", self._source, seconds
            )

    def _text(self, error: BaseException) -> str:
        if isinstance(error, SaslAuthenticationFailedError | RetriableError):
            reason = str(error)
        else:
            reason = f"{type(error).__name__}: {scrubbed(str(error))}"
        return f"no token from {self._source!r}: {reason}"

    # --- The thread ---

    def due_ms(self) -> float:
        """When the next fetch is due, on the monotonic clock."""
        return self._due_ms

    def fetch(self) -> None:
        """Fetch a token now, and store it or the error. Blocks as long as the source does."""
        started_ms = self._clock.now_ms()
        with here.section, self._thread.condition:
            self._fetching_since_ms = started_ms
            self._due_ms = NEVER_MS
        try:
            token = self._source.fetch()
            self._check_expiry(token)
        except BaseException as error:
            # user code may raise SystemExit or CancelledError, too: the thread goes on
            self._store_error(error)
        else:
            self._store(token)

    def _check_expiry(self, token: Token) -> None:
        now_ms = self._clock.wall_ms()
        if token.expires_ms is not None and token.expires_ms <= now_ms:
            late_s = (now_ms - token.expires_ms) / 1000.0
            raise SaslAuthenticationFailedError(
                f"the token expired {late_s:.0f} s before it arrived, by this machine's clock; check that the clocks "
                "of this machine and of the identity provider agree"
            )

    def _store(self, token: Token) -> None:
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        with here.section, self._thread.condition:
            was_failing, self._failures, self._error = self._failures > 0, 0, None
            self._failing_since_ms = NEVER_MS
            self._fetching_since_ms = None
            self._token, self._fetched_ms = token, now_ms
            if token.expires_ms is not None:
                at_ms = refresh_at_ms(self._policy, wall_ms, token.issued_ms, token.expires_ms, self._random_unit)
                self._due_ms = now_ms + max(at_ms - wall_ms, MIN_USE_MS)
            was_awaited, self._is_awaited = self._is_awaited, False
            self._repeats.over("slow")
            self._repeats.over("failed")
        if was_failing:
            _log.info("Got a token from %r again", self._source)
        if was_awaited:
            self._wakeup()

    def _store_error(self, error: BaseException) -> None:
        now_ms = self._clock.now_ms()
        with here.section, self._thread.condition:
            self._fetching_since_ms = None
            self._failing_since_ms = min(self._failing_since_ms, now_ms)
            delay_ms = self._backoff.backoff_ms(self._failures)
            self._failures += 1
            self._due_ms = now_ms + delay_ms
            may_recover = isinstance(error, RetriableError | OSError)
            if not may_recover or now_ms - self._failing_since_ms >= self._policy.retry_backoff_max_ms:
                self._error = error
            was_awaited = self._is_awaited and self._error is not None
            if was_awaited:
                self._is_awaited = False
            level = self._repeats.level("failed", logging.WARNING, now_ms)
        _log.log(level, "Trying again in %.1f s: %s", delay_ms / 1000.0, self._text(error))
        if was_awaited:
            self._wakeup()
