"""Where log lines go, and how often a producer repeats one."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.client_harness import ClientHarness
from support.sender_harness import SenderHarness

from headrace.network.protocol.errors import UnresolvableHostError

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    path for package in ("network", "registry", "producer", "broker", "cli") for path in (ROOT / package).rglob("*.py")
)
OF_THE_ROOT_LOGGER = ("basicConfig", "debug", "info", "warning", "error", "exception", "critical", "log")
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7


def logging_calls(path: Path) -> Iterator[ast.Call]:
    """Calls to functions of the module `logging` itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of = node.func.value
            if isinstance(of, ast.Name) and of.id == "logging":
                yield node


def test_every_logger_is_below_headrace() -> None:
    seen = 0
    for path in MODULES:
        for call in logging_calls(path):
            assert isinstance(call.func, ast.Attribute)
            if call.func.attr != "getLogger":
                # programs may configure or write to the root logger, libraries may not
                in_a_program = path.relative_to(ROOT).parts[0] in ("cli", "broker")
                assert in_a_program or call.func.attr not in OF_THE_ROOT_LOGGER, f"{path}:{call.lineno}"
                continue
            seen += 1
            (name,) = call.args
            if isinstance(name, ast.Constant):
                assert str(name.value).partition(".")[0] == "headrace", f"{path}:{call.lineno}"
            else:
                assert isinstance(name, ast.Name), f"{path}:{call.lineno}"
                assert name.id == "__name__"
    assert seen > 10


def test_retries_are_warned_of_once_a_minute_for_a_topic_and_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace.producer")
    harness = SenderHarness()
    caplog.clear()
    _, request = harness.request(b"v")
    for error_code in (NOT_LEADER_OR_FOLLOWER, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER):
        harness.answer(request, error_code)
        (request,) = harness.retry()
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.WARNING]
    assert "attempt 1 failed, will be sent again" in caplog.records[0].getMessage()
    assert "attempt 3 failed" in caplog.records[1].getMessage()
    harness.clock.advance(61_000)
    harness.answer(request, NOT_LEADER_OR_FOLLOWER)
    assert len(caplog.records) == 3


def test_names_that_cannot_be_resolved_are_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")

    def canonical_names(host: str, port: int) -> list[str]:
        raise UnresolvableHostError(f"cannot resolve {host!r}")

    harness = ClientHarness(bootstrap=[("one", 1), ("two", 2)], canonical_names=canonical_names)
    for _ in range(50):
        harness.step()
        harness.clock.advance(1000)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "Cannot bootstrap from one:1" in caplog.text
    assert "Cannot bootstrap from two:2" in caplog.text


def test_a_node_that_cannot_be_resolved_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")
    harness = ClientHarness(bootstrap=[("nowhere", 9000)])
    while len(harness.names.asked) < 20:
        harness.step()
        harness.clock.advance(1000)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
