"""Name lookups on helper threads: queries, answers, and limits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

import pytest

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import UnresolvableHostError
from headrace.network.sockets import resolver
from headrace.network.sockets.name_lookups import MAX_AGE_MS, MAX_THREADS, NameLookups
from headrace.network.sockets.resolver import numeric_addresses

PATIENCE_S = 30.0


class Service:
    """A name service whose answers the test releases; the semaphore `told` counts the calls of `on_answer`."""

    def __init__(self) -> None:
        self.gates: dict[str, threading.Event] = {}
        self.asked: list[str] = []
        self.clock = MockClock()
        self.told = threading.Semaphore(0)
        self.busy = 0
        self.most_busy = 0
        self.all_busy = threading.Event()
        self._lock = threading.Lock()
        self.lookups = NameLookups(self.look_up, self.clock, on_answer=self.told.release, at_once=self.at_once)

    def at_once(self, host: str, port: int) -> Sequence[str] | None:
        return [f"{host}:{port}"] if host == "at-once" else None

    def look_up(self, host: str, port: int) -> Sequence[str]:
        with self._lock:
            self.asked.append(host)
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
            if self.busy == MAX_THREADS:
                self.all_busy.set()
        gate = self.gates.get(host)
        if gate is not None:
            assert gate.wait(PATIENCE_S)
        with self._lock:
            self.busy -= 1
        if host.startswith("nowhere"):
            raise UnresolvableHostError(f"cannot resolve host name {host!r}")
        if host == "broken":
            raise ValueError("a resolver with a fault")
        return [f"{host}:{port}"]

    def answer(self, host: str, port: int = 1) -> Sequence[str]:
        """Look up, wait for the answer, and look up again."""
        assert self.lookups.find(host, port) is None
        assert self.told.acquire(timeout=PATIENCE_S)
        found = self.lookups.find(host, port)
        assert found is not None
        return found


def test_an_answer_comes_later_and_is_given_once() -> None:
    service = Service()
    assert service.answer("a", 7) == ["a:7"]
    assert service.answer("a", 7) == ["a:7"]
    assert service.asked == ["a", "a"]


def test_a_name_is_looked_up_once_at_a_time() -> None:
    service = Service()
    service.gates["slow"] = threading.Event()
    for _ in range(5):
        assert service.lookups.find("slow", 1) is None
    service.gates["slow"].set()
    assert service.told.acquire(timeout=PATIENCE_S)
    assert service.lookups.find("slow", 1) == ["slow:1"]
    assert service.asked == ["slow"]


def test_slow_names_do_not_hold_up_others() -> None:
    service = Service()
    service.gates["slow"] = threading.Event()
    assert service.lookups.find("slow", 1) is None
    assert service.answer("quick") == ["quick:1"]
    service.gates["slow"].set()


@pytest.mark.parametrize(("host", "said"), [("nowhere", "cannot resolve"), ("broken", "a resolver with a fault")])
def test_what_the_lookup_raises_is_raised_once(host: str, said: str) -> None:
    service = Service()
    for _ in range(2):
        with pytest.raises(UnresolvableHostError, match=said):
            service.answer(host)


def test_lookups_are_bounded_and_the_rest_wait_for_their_turn() -> None:
    service = Service()
    names = [f"slow{number}" for number in range(3 * MAX_THREADS)]
    gate = threading.Event()
    service.gates.update(dict.fromkeys(names, gate))
    for name in names:
        assert service.lookups.find(name, 1) is None
    assert service.all_busy.wait(PATIENCE_S)
    gate.set()
    for _ in names:
        assert service.told.acquire(timeout=PATIENCE_S)
    assert [service.lookups.find(name, 1) for name in names] == [[f"{name}:1"] for name in names]
    assert service.most_busy == MAX_THREADS


def test_an_answer_that_nobody_takes_grows_old() -> None:
    service = Service()
    assert service.lookups.find("a", 1) is None
    assert service.told.acquire(timeout=PATIENCE_S)
    service.clock.advance(MAX_AGE_MS + 1)
    assert service.answer("a") == ["a:1"]
    assert service.asked == ["a", "a"]


def test_what_needs_no_lookup_is_answered_at_once() -> None:
    service = Service()
    assert service.lookups.find("at-once", 9) == ["at-once:9"]
    assert service.asked == []


def test_where_no_thread_can_be_started_the_caller_looks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    service = Service()
    assert service.lookups.find("a", 1) == ["a:1"]
    assert service.lookups.find("b", 1) == ["b:1"]


def test_only_addresses_are_numeric() -> None:
    assert [address.sockaddr[:2] for address in numeric_addresses("127.0.0.1", 9092) or ()] == [("127.0.0.1", 9092)]
    assert [address.sockaddr[:2] for address in numeric_addresses("::1", 9092) or ()] == [("::1", 9092)]
    for name in ("localhost", "broker", "a..b", "x" * 100):
        assert numeric_addresses(name, 9092) is None


@pytest.mark.parametrize(
    ("host", "encoded"), [("kafka.example", b"kafka.example"), ("b\u00fccher.example", b"xn--bcher-kva.example")]
)
def test_a_name_is_encoded_for_the_resolver(host: str, encoded: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    address = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 9092))
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: asked.append(host) or [address])
    assert resolver.resolve_host(host, 9092) == [(socket.AF_INET, ("192.0.2.1", 9092))]
    assert numeric_addresses(host, 9092) is not None
    assert asked == [encoded] * 2


@pytest.mark.parametrize("host", ["\u00fc..example", "\u00fc" * 64])
def test_a_name_that_cannot_be_encoded_does_not_resolve(host: str) -> None:
    with pytest.raises(UnresolvableHostError, match=r"bootstrap\.servers"):
        resolver.resolve_host(host, 9092)
    assert numeric_addresses(host, 9092) is None
