"""Tokens from a user's callable or token provider (`sasl_oauth_token_provider`), in the shapes of other clients.

Accepted are:

- a callable without arguments, plain or `async`;
- a callable with one argument, called with the value of `sasl.oauthbearer.config` (confluent-kafka's `oauth_cb`);
- an object with `token()`, plain or `async`, and perhaps `extensions()` (`AbstractTokenProvider` of kafka-python and
  aiokafka).

They return the token, or a tuple that begins with the token and its expiry. Then may follow the extensions, or
confluent-kafka's principal and extensions. The AccessToken of azure-identity is such a tuple. An expiry is the time
since 1970, in seconds or milliseconds; None if it is to be read from the token.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..protocol.errors import KafkaConfigurationError, SaslAuthenticationFailedError
from .token import Token

# In milliseconds this is 1973, in seconds the year 5138.
_FIRST_MILLISECONDS = 1e11


class CallbackSource:
    """Tokens from a user's callable or provider. Implements TokenSource.

    Coroutines run on an event loop that belongs to the fetching thread and lives until `close`, so that a provider may
    keep a session of an HTTP client. Between two fetches the loop stands still.
    """

    def __init__(self, provider: Any, config: str = "", extensions: Mapping[str, str] | None = None) -> None:
        """Store the provider, its argument `sasl.oauthbearer.config`, and the extensions that each token gets.

        Raises KafkaConfigurationError if the provider has none of the accepted shapes.
        """
        self._provider = provider
        self._call = _callable_of(provider, config)
        self._extensions = extensions or {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        # not the repr of the provider, which may show what it was made with
        return f"sasl_oauth_token_provider {_name(self._provider)}"

    def fetch(self) -> Token:
        token = _token_of(self._resolve(self._call()))
        extensions = {**self._extensions, **self._provided_extensions(), **token.extensions}
        return Token(token.value, expires_ms=token.expires_ms, issued_ms=token.issued_ms, extensions=extensions)

    def _provided_extensions(self) -> Mapping[str, str]:
        """What the method `extensions` of a token provider returns."""
        method = getattr(self._provider, "extensions", None)
        if not callable(method) or not callable(getattr(self._provider, "token", None)):
            return {}
        return _checked_extensions(self._resolve(method()) or {})

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _resolve(self, result: Any) -> Any:
        if not inspect.isawaitable(result):
            return result
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(_awaited(result))


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _name(provider: Any) -> str:
    return getattr(provider, "__qualname__", None) or type(provider).__qualname__


def _callable_of(provider: Any, config: str) -> Callable[[], Any]:
    method = getattr(provider, "token", None)
    if callable(method) and not isinstance(provider, type):
        return method
    if not callable(provider):
        raise KafkaConfigurationError(
            f"sasl_oauth_token_provider is of type {type(provider).__name__}; expected a callable that returns a "
            "token, or an object with a method token()"
        )
    try:
        parameters = inspect.signature(provider).parameters.values()
    except (TypeError, ValueError):
        return provider  # a callable of C without a signature
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [each for each in parameters if each.default is each.empty and each.kind in positional]
    if len(required) == 1:
        return lambda: provider(config)
    if required or any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        raise KafkaConfigurationError(
            f"sasl_oauth_token_provider {_name(provider)} requires more than one argument; expected a callable without "
            "arguments, or with one for sasl.oauthbearer.config"
        )
    return provider


def _token_of(result: Any) -> Token:
    if isinstance(result, Token):
        return result
    if isinstance(result, str):
        return Token(result)
    if not isinstance(result, (tuple, list)) or not 2 <= len(result) <= 4:
        size = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
        raise SaslAuthenticationFailedError(
            f"it returned a {type(result).__name__}{size}; expected a token (str), or a tuple (token, expiry), "
            "(token, expiry, extensions) or (token, expiry, principal, extensions)"
        )
    value, expiry, *rest = result
    extensions = rest[-1] if rest and not isinstance(rest[-1], str) else None
    return Token(value, expires_ms=_expires_ms(expiry), extensions=_checked_extensions(extensions or {}))


def _expires_ms(expiry: Any) -> float | None:
    if expiry is None:
        return None
    if isinstance(expiry, bool) or not isinstance(expiry, (int, float)) or not math.isfinite(expiry) or expiry <= 0:
        raise SaslAuthenticationFailedError(
            f"it returned an expiry of type {type(expiry).__name__}; expected the time since 1970 in seconds or "
            "milliseconds, or None"
        )
    return float(expiry) if expiry >= _FIRST_MILLISECONDS else expiry * 1000.0


def _checked_extensions(extensions: Any) -> Mapping[str, str]:
    if not isinstance(extensions, Mapping):
        raise SaslAuthenticationFailedError(
            f"it returned extensions of type {type(extensions).__name__}; expected a dict of str"
        )
    return extensions
