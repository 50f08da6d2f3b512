from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.network.protocol.errors import KafkaConfigurationError, KafkaTimeoutError
from headrace.producer.plugins.interceptors import ProducerInterceptor, ProducerInterceptors
from headrace.producer.record import ProducerRecord

RECORD = ProducerRecord("t", b"v", partition=3)
METADATA = SimpleNamespace(topic="t", partition=3, offset=42)


class Appending(ProducerInterceptor):
    def __init__(self, text: bytes = b"+", seen: list[Any] | None = None) -> None:
        self.text = text
        self.seen: list[Any] = [] if seen is None else seen

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value + self.text, partition=record.partition)

    def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
        self.seen.append((self.text, metadata, exception))

    def close(self) -> None:
        self.seen.append((self.text, "closed"))


class Broken(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ZeroDivisionError("in on_send")

    def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
        raise ZeroDivisionError("in on_acknowledgement")

    def close(self) -> None:
        raise ZeroDivisionError("in close")


class Forgetful(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return None  # type: ignore[return-value]


def test_a_chain_passes_the_record_on() -> None:
    chain = ProducerInterceptors([Appending(b"1"), Appending(b"2")])
    assert chain.on_send(RECORD).value == b"v12"


def test_every_interceptor_hears_of_the_outcome_in_order() -> None:
    seen: list[Any] = []
    error = KafkaTimeoutError()
    chain = ProducerInterceptors([Appending(b"1", seen), Appending(b"2", seen)])
    chain.on_acknowledgement(METADATA, None)
    chain.on_acknowledgement(METADATA, error)
    chain.close()
    assert seen == [
        (b"1", METADATA, None),
        (b"2", METADATA, None),
        (b"1", METADATA, error),
        (b"2", METADATA, error),
        (b"1", "closed"),
        (b"2", "closed"),
    ]


@pytest.mark.parametrize("bad", [Broken(), Forgetful()])
def test_a_failing_interceptor_changes_nothing_and_is_logged_once(
    bad: ProducerInterceptor, caplog: pytest.LogCaptureFixture
) -> None:
    chain = ProducerInterceptors([Appending(b"1"), bad, Appending(b"2")])
    assert chain.on_send(RECORD).value == b"v12"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    text = caplog.records[0].getMessage()
    assert (
        text == f"{type(bad).__name__}.on_send failed for a record of topic t, partition 3; it is sent as it was before"
    )
    assert caplog.records[0].exc_info is not None


def test_a_failing_interceptor_silences_no_other(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    chain = ProducerInterceptors([Broken(), Appending(b"1", seen)])
    chain.on_acknowledgement(METADATA, None)
    chain.close()
    assert seen == [(b"1", METADATA, None), (b"1", "closed")]
    assert [record.getMessage() for record in caplog.records] == [
        "Broken.on_acknowledgement failed for topic t, partition 3, offset 42",
        "Broken.close failed",
    ]


def test_interceptors_may_have_only_some_methods() -> None:
    class Sending:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord("u")

    class Hearing:
        heard = 0

        def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
            self.heard += 1

    hearing = Hearing()
    chain = ProducerInterceptors.resolve([Sending(), hearing])
    assert chain.on_send(RECORD).topic == "u"
    chain.on_acknowledgement(METADATA, None)
    chain.close()
    assert hearing.heard == 1


def test_no_interceptors_cost_nothing() -> None:
    chain = ProducerInterceptors.resolve(())
    assert not chain
    assert chain.on_send(RECORD) is RECORD


def test_the_base_class_does_nothing() -> None:
    chain = ProducerInterceptors.resolve([ProducerInterceptor])
    assert chain
    assert chain.on_send(RECORD) == RECORD


class Changing(ProducerInterceptor):
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        record.topic += "+"
        assert isinstance(record.headers, list)
        record.headers.append(("changed", b""))
        if self.error is not None:
            raise self.error
        return record


def test_what_an_interceptor_changes_in_place_is_not_the_users() -> None:
    headers = [("h", b"0")]
    record = ProducerRecord("t", headers=headers)
    chain = ProducerInterceptors([Changing(), Changing(ZeroDivisionError()), Changing()])
    sent = chain.on_send(record)
    assert (sent.topic, sent.headers) == ("t++", [("h", b"0"), ("changed", b""), ("changed", b"")])
    assert record == ProducerRecord("t", headers=[("h", b"0")])
    assert record.headers is headers


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), GeneratorExit()])
def test_an_interceptor_that_would_end_the_thread_silences_no_other(error: BaseException) -> None:
    class Ending:
        def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
            raise error

    seen: list[Any] = []
    ProducerInterceptors([Ending(), Appending(b"1", seen)]).on_acknowledgement(METADATA, None)
    assert seen == [(b"1", METADATA, None)]


def test_an_interrupt_from_the_keyboard_passes() -> None:
    class Interrupted:
        def on_acknowledgement(self, metadata: Any, exception: BaseException | None) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ProducerInterceptors([Interrupted()]).on_acknowledgement(METADATA, None)


@pytest.mark.parametrize(
    "value",
    [
        "headrace.producer.interceptors:ProducerInterceptor",
        "headrace.producer.interceptors.ProducerInterceptor",
    ],
)
def test_interceptors_are_found_by_their_path(value: str) -> None:
    assert ProducerInterceptors.resolve([value])


class NeedsAnArgument(ProducerInterceptor):
    def __init__(self, argument: int) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("Thing", "interceptor.classes='Thing' is not an import path like package.module:Name"),
        ("no_such_module:Thing", "can't be imported (ModuleNotFoundError"),
        (NeedsAnArgument, "creating a NeedsAnArgument without arguments failed"),
        (5, "interceptor.classes contains an object of type int, which has neither on_send nor on_acknowledgement"),
    ],
)
def test_what_is_no_interceptor_is_refused(value: object, says: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        ProducerInterceptors.resolve([value])
    assert says in str(caught.value)
