"""The keys of SASL, their rules, and the credentials that they result in."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaConfigurationError, SaslAuthenticationFailedError
from headrace.network.security.passwords import FRESH_MS, PasswordCallback, PasswordCredentials
from headrace.network.security.sasl_config import credentials_of
from headrace.producer import ProducerConfig

JAAS = 'a.PlainLoginModule required username="alice" password="hush";'
BASE = {"bootstrap.servers": "a", "security.protocol": "SASL_PLAINTEXT"}


def config(**keys: Any) -> ProducerConfig:
    return ProducerConfig.resolve_from({**BASE, **keys}, {}, {})


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, r"needs sasl\.mechanism; set it to one that the brokers offer: PLAIN, SCRAM"),
        ({"sasl.mechanism": "PLAIN"}, r"sasl\.mechanism=PLAIN needs sasl\.username and sasl\.password"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, r"needs sasl\.password$"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": ""}, r"needs sasl\.password$"),
        ({"sasl.mechanism": "CRAM-MD5"}, "not a valid value"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS}, "PlainLoginModule, which is for PLAIN, but"),
        ({"sasl.jaas.config": JAAS, "sasl.username": "a"}, "exclude each other"),
        ({"sasl.jaas.config": "a.PlainLoginModule required;"}, "has no username and no password"),
        ({"sasl.jaas.config": 'a.PlainLoginModule required username="a";'}, "has no password; add password="),
        ({"sasl.jaas.config": "hush"}, "is not a login module"),
        ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.credentials": "hush"}, "is not a callable"),
        ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.credentials": str}, "is not a callable"),
        ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a", "sasl.password": "\x07hush"}, "SASLprep"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "hush\0"}, "NUL"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "hush\ud800"}, "UTF-8"),
        (
            {
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.jaas.config": 'a.ScramLoginModule required username="a" password="hush" tokenauth="true";',
            },
            "delegation tokens",
        ),
        ({"security.protocol": "PLAINTEXT", "sasl.jaas.config": JAAS}, "does not authenticate; set it to SASL_SSL or"),
        (
            {"security.protocol": "SSL", "sasl.oauth.token.provider": lambda: "hush"},
            "sasl_oauth_token_provider is set, but security.protocol=SSL does not authenticate; set it to SASL_SSL",
        ),
        (
            {"sasl.mechanism": "GSSAPI", "sasl.username": "a", "sasl.password": "hush"},
            r"sasl\.username and sasl\.password would have no effect with sasl\.mechanism=GSSAPI; remove them, or set",
        ),
        (
            {"sasl.mechanism": "AWS_MSK_IAM", "sasl.credentials": lambda: ("a", "hush")},
            r"sasl\.credentials would have no effect with sasl\.mechanism=AWS_MSK_IAM; remove it, or set",
        ),
        ({"sasl.login.class": "x"}, r"Java class.* give a callable as .*sasl\.credentials for PLAIN and SCRAM"),
    ],
)
def test_a_problem_names_the_key_and_shows_no_secret(keys, problem):
    with pytest.raises(KafkaConfigurationError, match=problem) as failed:
        config(**keys)
    assert "hush" not in str(failed.value)


def test_the_spellings_of_other_clients_mean_the_same():
    kafka_python = config(sasl_mechanism="plain", sasl_plain_username="alice", sasl_plain_password="hush")
    librdkafka = config(**{"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": "hush"})
    java = config(**{"sasl.jaas.config": JAAS})
    clock = MockClock()
    for each in (kafka_python, librdkafka, java):
        credentials = credentials_of(each, clock)
        assert credentials is not None
        assert credentials.mechanism == "PLAIN"
        mechanism = credentials.begin("host")
        assert mechanism is not None
        assert mechanism.initial_message() == b"\0alice\0hush"
        assert "hush" not in repr(each) + each.describe() + repr(credentials)


def test_without_sasl_there_are_no_credentials():
    assert credentials_of(config(**{"security.protocol": "PLAINTEXT"}), MockClock()) is None


def test_salted_passwords_are_remembered():
    credentials = PasswordCredentials("SCRAM-SHA-256", "alice", "hush")
    first = credentials._salt_password(b"salt", 4096)
    assert credentials._salt_password(b"salt", 4096) is first
    assert credentials._salt_password(b"other", 4096) != first


# --- Callables ---


class Callback:
    """A PasswordCallback, and a wakeup to wait for."""

    def __init__(self, call) -> None:
        self.clock = MockClock()
        self.woken = threading.Event()
        self.credentials = PasswordCallback("PLAIN", call, self.clock)
        self.credentials.start(self.woken.set)

    def begin(self) -> bytes:
        """Begin, wait and begin again; the first message."""
        self.woken.clear()
        mechanism = self.credentials.begin("host")
        if mechanism is None:
            assert self.woken.wait(30)
            mechanism = self.credentials.begin("host")
        assert mechanism is not None
        return mechanism.initial_message()


def test_a_callable_is_called_again_once_its_result_is_old():
    passwords = iter(["one", "two", "three"])
    callback = Callback(lambda: ("alice", next(passwords)))
    assert callback.begin() == b"\0alice\0one"
    callback.clock.advance(FRESH_MS)
    assert callback.begin() == b"\0alice\0one"
    callback.clock.advance(1)
    assert callback.begin() == b"\0alice\0two"
    assert "one" not in repr(callback.credentials)


def test_the_caller_never_waits_and_there_is_one_call_at_a_time():
    calls: list[None] = []
    go = threading.Event()

    def call():
        calls.append(None)
        go.wait(30)
        return ["alice", "hush"]

    callback = Callback(call)
    for _ in range(3):
        assert callback.credentials.begin("host") is None
    go.set()
    assert callback.woken.wait(30)
    assert callback.credentials.begin("host") is not None
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (ValueError("hush"), "raised ValueError"),
        (None, "returned a NoneType"),
        (("alice", b"hush"), "returned a tuple"),
        (("alice", ""), "the password is empty"),
        (("", "hush"), "the user name is empty"),
    ],
)
def test_a_bad_result_fails_the_authentication_until_the_next_call(result, problem):
    results = [result, ("alice", "fine")]

    def call():
        given = results.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    callback = Callback(call)
    with pytest.raises(SaslAuthenticationFailedError, match=problem) as failed:
        callback.begin()
    assert "hush" not in str(failed.value)
    callback.clock.advance(FRESH_MS + 1)
    assert callback.begin() == b"\0alice\0fine"


def test_a_closed_callable_is_not_called():
    callback = Callback(lambda: ("alice", "hush"))
    callback.credentials.close()
    assert callback.credentials.begin("host") is None
    assert not callback.woken.is_set()
