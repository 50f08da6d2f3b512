"""The credentials of PLAIN and SCRAM: a name and a password, fixed or from a callable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..clock import LONG_AGO_MS, SYSTEM_CLOCK, Clock
from ..protocol.errors import SaslAuthenticationFailedError
from .mechanism import ClientMechanism
from .mechanism_names import PLAIN
from .plain import PlainClient
from .saslprep import saslprep
from .scram import ScramClient, ScramMechanism

#: How long the result of a callable is used: several connections are made at once, but a retry asks again.
FRESH_MS = 1000.0

#: Salted passwords that are remembered. Brokers of a cluster have one salt per user.
_MAX_REMEMBERED = 16


def password_problem(mechanism: str, username: str, password: str) -> str | None:
    """Why this name or password cannot be sent, as the rest of a sentence without the value; None if it can."""
    for what, value in (("the user name", username), ("the password", password)):
        if not value:
            return f"{what} is empty"
        try:
            if mechanism != PLAIN:
                if not saslprep(value):
                    return f"{what} has only characters that SASLprep (RFC 4013) removes"
            elif "\0" in value:
                return f"{what} has a NUL in it, which PLAIN cannot carry"
            value.encode()
        except UnicodeEncodeError:
            return f"{what} has characters that UTF-8 can't encode"
        except ValueError as error:
            return f"{what} {error}"
    return None


class PasswordCredentials:
    """A fixed name and password. Immutable but for the memory of salted passwords."""

    def __init__(self, mechanism: str, username: str, password: str) -> None:
        """Store the credentials, which `password_problem` has no objection to."""
        self._mechanism = mechanism
        self._username = username
        self._password = password
        self._scram = ScramMechanism.labelled(mechanism)
        self._lock = threading.Lock()
        self._salted: dict[tuple[bytes, int], bytes] = {}

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        return self._mechanism

    def begin(self, host: str) -> ClientMechanism:
        """The client's half of a new authentication."""
        del host  # the same for all brokers
        if self._scram is None:
            return PlainClient(self._username, self._password)
        return ScramClient(self._scram, saslprep(self._username), self._salt_password)

    def _salt_password(self, salt: bytes, iterations: int) -> bytes:
        """The salted password, computed once: the computation takes milliseconds on the sender thread."""
        assert self._scram is not None
        with self._lock:
            known = self._salted.get((salt, iterations))
        if known is not None:
            return known
        salted = self._scram.salted_password(self._password, salt, iterations)
        with self._lock:
            if len(self._salted) >= _MAX_REMEMBERED:
                self._salted.clear()
            self._salted[salt, iterations] = salted
        return salted

    def has(self, username: str, password: str) -> bool:
        """Whether these are the credentials."""
        return (self._username, self._password) == (username, password)

    def start(self, wakeup: Callable[[], object]) -> None:
        """Nothing has to be fetched."""

    def close(self) -> None:
        """Nothing has to be stopped."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mechanism}, {self._username!r})"


class PasswordCallback:
    """A callable that returns `(username, password)`, called for new authentications, so that both may change.

    It runs on a thread of its own, one call at a time, and its result is used for FRESH_MS. If it blocks, only
    authentications wait for it; if it raises, they fail until it is called again, after the reconnect backoff.
    """

    def __init__(self, mechanism: str, call: Callable[[], Any], clock: Clock = SYSTEM_CLOCK) -> None:
        """Store the callable; it is not called yet."""
        self._mechanism = mechanism
        self._call = call
        self._clock = clock
        self._lock = threading.Lock()
        self._wakeup: Callable[[], object] = _no_wakeup
        self._is_running = False
        self._closed = False
        self._result: PasswordCredentials | SaslAuthenticationFailedError | None = None
        self._result_ms = LONG_AGO_MS

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        return self._mechanism

    def begin(self, host: str) -> ClientMechanism | None:
        """The client's half with a fresh result; None while the callable runs. Raises what it failed with."""
        with self._lock:
            result = self._result
            is_fresh = self._clock.now_ms() - self._result_ms <= FRESH_MS
            if not is_fresh and not self._is_running and not self._closed:
                self._is_running = True
                threading.Thread(target=self._run, name="headrace-credentials", daemon=True).start()
        if not is_fresh or result is None:
            return None
        if isinstance(result, SaslAuthenticationFailedError):
            raise SaslAuthenticationFailedError(str(result)) from result.__cause__
        return result.begin(host)

    def _run(self) -> None:
        result: PasswordCredentials | SaslAuthenticationFailedError
        try:
            result = self._read(self._call())
        except SaslAuthenticationFailedError as error:
            result = error
        except Exception as error:  # the user's code
            # without its message, which may hold a secret
            result = SaslAuthenticationFailedError(
                f"the callable in sasl.credentials raised {type(error).__name__}; it must return a user name and a "
                "password"
            )
            result.__cause__ = error
        with self._lock:
            self._is_running = False
            self._result = result
            self._result_ms = self._clock.now_ms()
            wakeup = self._wakeup
        wakeup()

    def _read(self, given: Any) -> PasswordCredentials:
        if not (isinstance(given, (tuple, list)) and len(given) == 2 and all(isinstance(each, str) for each in given)):
            raise SaslAuthenticationFailedError(
                f"the callable in sasl.credentials returned a {type(given).__name__}; it must return a user name and a "
                "password, as a pair of texts"
            )
        username, password = given
        problem = password_problem(self._mechanism, username, password)
        if problem is not None:
            raise SaslAuthenticationFailedError(f"the callable in sasl.credentials: {problem}")
        with self._lock:
            before = self._result
        if isinstance(before, PasswordCredentials) and before.has(username, password):
            # it remembers the salted password
            return before
        return PasswordCredentials(self._mechanism, username, password)

    def start(self, wakeup: Callable[[], object]) -> None:
        """Store the wakeup. The callable is called for the first authentication."""
        with self._lock:
            self._wakeup = wakeup

    def close(self) -> None:
        """Call it no more. A call that runs is not waited for."""
        with self._lock:
            self._closed = True
            self._wakeup = _no_wakeup

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._mechanism})"


def _no_wakeup() -> None:
    """Before `start` and after `close`."""
