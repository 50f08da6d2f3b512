"""A user's token callback, in the shapes of this client and of others."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import aiokafka.abc
import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaConfigurationError, SaslAuthenticationFailedError
from headrace.network.sections import interrupted
from headrace.network.security.refresh import RefreshPolicy
from headrace.network.security.token import Token
from headrace.network.security.token_callbacks import CallbackSource
from headrace.network.security.tokens import TokenCredentials

MS = 1_900_000_000_000


class KafkaPythonProvider(AbstractTokenProvider):
    def token(self) -> str:
        return "abc"

    def extensions(self) -> dict[str, str]:
        return {"traceId": "1"}


class AiokafkaProvider(aiokafka.abc.AbstractTokenProvider):
    async def token(self) -> str:
        await asyncio.sleep(0)
        return "abc"


class AzureToken(NamedTuple):
    token: str
    expires_on: int


async def coroutine() -> tuple[str, int]:
    await asyncio.sleep(0)
    return "abc", MS


def confluent(config: str) -> tuple[str, float, str, dict[str, str]]:
    assert config == "the config"
    return "abc", MS / 1000, "principal", {"traceId": "1"}


def optional(config: str = "own") -> str:
    assert config == "own"
    return "abc"


@pytest.mark.parametrize(
    ("provider", "expires_ms", "extensions"),
    [
        (lambda: "abc", None, {}),
        (lambda: ("abc", None), None, {}),
        (lambda: ("abc", MS), MS, {}),
        (lambda: ("abc", MS / 1000), MS, {}),
        (lambda: ["abc", MS, {"traceId": "1"}], MS, {"traceId": "1"}),
        (lambda: ("abc", MS, "principal"), MS, {}),
        (lambda: ("abc", MS, None, None), MS, {}),
        (lambda: AzureToken("abc", MS // 1000), MS, {}),
        (lambda: Token("abc", expires_ms=MS), MS, {}),
        (confluent, MS, {"traceId": "1"}),
        (optional, None, {}),
        (coroutine, MS, {}),
        (functools.partial(coroutine), MS, {}),
        (KafkaPythonProvider(), None, {"traceId": "1"}),
        (AiokafkaProvider(), None, {}),
    ],
)
def test_every_shape(provider: Any, expires_ms: float | None, extensions: Mapping[str, str]):
    source = CallbackSource(provider, "the config", {"configured": "x"})
    token = source.fetch()
    source.close()
    assert (token.value, token.expires_ms) == ("abc", expires_ms)
    assert token.extensions == {"configured": "x", **extensions}


@pytest.mark.parametrize("provider", [None, "token", 3, object(), lambda a, b: "abc", lambda *, a: "abc"])
def test_what_is_no_provider_is_an_error(provider: Any):
    with pytest.raises(KafkaConfigurationError, match="sasl_oauth_token_provider"):
        CallbackSource(provider)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (None, "NoneType"),
        (b"planted-secret", "bytes"),
        ("", "empty"),
        ("planted-secret\n", r"U\+000A"),
        (("planted-secret",), "tuple of 1"),
        (("planted-secret", 1, 2, 3, 4), "tuple of 5"),
        (("planted-secret", "soon"), "expiry of type str"),
        (("planted-secret", True), "expiry of type bool"),
        (("planted-secret", -1), "expiry"),
        (("planted-secret", float("nan")), "expiry"),
        (("planted-secret", MS, 7), "extensions of type int"),
        (("planted-secret", MS, {"auth": "planted-secret"}), "'auth'"),
        (("planted-secret", MS, {"a": "planted-secret\x00"}), "extension a"),
    ],
)
def test_another_result_is_an_error_without_it(returned: Any, problem: str):
    with pytest.raises(SaslAuthenticationFailedError, match=problem) as raised:
        CallbackSource(lambda: returned).fetch()
    assert "planted-secret" not in str(raised.value)


def test_coroutines_run_on_one_loop_of_the_fetching_thread():
    loops: list[asyncio.AbstractEventLoop] = []

    async def provide() -> str:
        loops.append(asyncio.get_running_loop())
        return "abc"

    source = CallbackSource(provide)
    source.fetch()
    source.fetch()
    assert loops[0] is loops[1]
    assert not loops[0].is_closed()
    source.close()
    assert loops[0].is_closed()


def test_asynchronous_generators_are_closed_with_the_loop():
    is_closed: list[bool] = []

    async def session() -> AsyncIterator[str]:
        try:
            yield "abc"
            yield "def"
        finally:
            is_closed.append(True)

    tokens = session()

    async def provide() -> str:
        return await anext(tokens)

    source = CallbackSource(provide)
    assert source.fetch().value == "abc"
    source.close()
    assert is_closed == [True]


def test_the_repr_does_not_show_the_provider():
    class Provider:
        def __repr__(self) -> str:
            return "planted-secret"

        def token(self) -> str:
            return "abc"

    assert repr(CallbackSource(Provider())).endswith("Provider")
    assert "planted-secret" not in repr(CallbackSource(Provider()))


# --- On the thread ---


class Threaded:
    """Credentials with their thread, and an event that the wakeup sets."""

    def __init__(self, provider: Any) -> None:
        self.woken = threading.Event()
        self.credentials = TokenCredentials(CallbackSource(provider), RefreshPolicy(), clock=MockClock())
        self.credentials.start(self.woken.set)


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "headrace-tokens"]


def test_a_callback_that_blocks_delays_only_authentications():
    entered, release = threading.Event(), threading.Event()
    seen: list[str] = []

    def provide() -> tuple[str, int]:
        seen.append(threading.current_thread().name)
        entered.set()
        release.wait(60)
        return "abc", MS

    login = Threaded(provide)
    assert login.credentials.begin("b") is None
    assert entered.wait(10)
    # none of these waits for the callback
    assert login.credentials.begin("b") is None
    login.credentials.start(login.woken.set)
    assert not login.woken.is_set()
    release.set()
    assert login.woken.wait(10)
    assert login.credentials.begin("b") is not None
    assert seen == ["headrace-tokens"]
    [thread] = threads()
    login.credentials.close()
    thread.join(10)
    assert not thread.is_alive()


def test_closing_does_not_wait_for_a_callback_that_blocks():
    entered, release = threading.Event(), threading.Event()

    def provide() -> str:
        entered.set()
        release.wait(60)
        return "abc"

    login = Threaded(provide)
    login.credentials.begin("b")
    assert entered.wait(10)
    [thread] = threads()
    assert thread.daemon
    login.credentials.close()
    assert thread.is_alive()
    release.set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_callback_that_raises_fails_the_authentication_with_its_error():
    def provide() -> str:
        raise LookupError("the vault is sealed; eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.sig")

    login = Threaded(provide)
    login.credentials.begin("b")
    assert login.woken.wait(10)
    with pytest.raises(SaslAuthenticationFailedError, match=r"LookupError: the vault is sealed; \*\*\*\*\*\*$"):
        login.credentials.begin("b")
    [thread] = threads()
    login.credentials.close()
    thread.join(10)
    assert not thread.is_alive()


def test_without_threads_the_calling_thread_fetches():
    """As at the exit of the interpreter, which starts no threads."""

    def no_threads(run: object, name: str) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    woken: list[bool] = []
    credentials = TokenCredentials(CallbackSource(lambda: ("abc", MS)), RefreshPolicy(), start=no_threads)
    credentials.start(lambda: woken.append(True))
    assert credentials.begin("b") is None
    assert woken == [True]
    assert credentials.begin("b") is not None


def test_a_callback_may_use_the_credentials_that_it_feeds():
    """A callback that sends with its own producer finds no token, and does not wait for one."""
    login: Threaded
    seen: list[object] = []

    def provide() -> tuple[str, int]:
        seen.append(login.credentials.begin("b"))
        seen.append(interrupted())
        return "abc", MS

    login = Threaded(provide)
    login.credentials.begin("b")
    assert login.woken.wait(10)
    assert seen == [None, True]
    login.credentials.close()
