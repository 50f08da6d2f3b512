"""What the page asks for is checked, member by member, before the cluster does it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker import ApiKey, Fault
from headrace.broker.console.actions import Actions, choices, content_of
from headrace.broker.services.observation import NewRecord
from headrace.network.protocol.errors import IllegalArgumentError, NotLeaderForPartitionError


class RecordedCluster:
    """Remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.faults: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, *arguments, *keywords.items()))
            return 12 if name == "append_record" else SimpleNamespace(number=3)

        return call


@pytest.fixture
def cluster() -> Any:
    return RecordedCluster()


RECORD = {"topic": "t", "partition": 0, "key": {"as": "text", "text": "ü"}, "value": {"as": "hex", "text": "00 fF"}}


def test_a_record_of_text_and_bytes(cluster):
    made = Actions(cluster).produce({**RECORD, "headers": [["a", "b"]], "timestamp": 5})
    assert made == {"topic": "t", "partition": 0, "offset": 12}
    assert cluster.calls == [("append_record", NewRecord("t", 0, "ü".encode(), b"\x00\xff", [("a", b"b")], 5))]


@pytest.mark.parametrize(
    ("given", "content"),
    [
        (None, None),
        ({"as": "text", "text": ""}, b""),
        ({"as": "json", "text": '{"a": 1}'}, b'{"a": 1}'),
        ({"as": "hex", "text": ""}, b""),
    ],
)
def test_the_forms_of_content(given, content):
    assert content_of(given, "value") == content


@pytest.mark.parametrize(
    "change",
    [
        {"topic": ""},
        {"topic": 5},
        {"partition": -1},
        {"partition": True},
        {"partition": 2**31},
        {"timestamp": -1},
        {"timestamp": 2**63},
        {"key": "text"},
        {"key": {"as": "text"}},
        {"key": {"as": "text", "text": "x", "more": 1}},
        {"key": {"as": "yaml", "text": "x"}},
        {"value": {"as": "json", "text": "{"}},
        {"value": {"as": "json", "text": "[" * 100_000}},
        {"value": {"as": "hex", "text": "0"}},
        {"value": {"as": "text", "text": "\ud800"}},
        {"headers": {"a": "b"}},
        {"headers": [["a"]]},
        {"headers": [["a", 1]]},
        {"compression": "gzip"},
    ],
    ids=str,
)
def test_a_record_that_is_not_right_is_not_appended(cluster, change):
    with pytest.raises(IllegalArgumentError):
        Actions(cluster).produce({**RECORD, **change})
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"kind": "error", "error": "NOT_LEADER_FOR_PARTITION"}, Fault(error=NotLeaderForPartitionError)),
        ({"kind": "delay", "ms": 30}, Fault(delay_ms=30)),
        ({"kind": "throttle", "ms": 30}, Fault(throttle_ms=30)),
        ({"kind": "close", "topic": "t", "partition": 0}, Fault(close=True, topic="t", partition=0)),
        ({"kind": "lose_answer"}, Fault(lose_answer=True)),
        ({"kind": "silent"}, Fault(silent=True)),
        ({"kind": "cut", "bytes": 0}, Fault(cut_after_bytes=0)),
        ({"kind": "half_close"}, Fault(half_close=True)),
    ],
    ids=lambda each: each["kind"] if isinstance(each, dict) else "",
)
def test_every_kind_of_fault(cluster, body, fault):
    actions = Actions(cluster)
    assert actions.inject({"api": "PRODUCE", "times": 2, "node_id": 1, **body}) == {"number": 3}
    actions.inject({"api": None, "times": None, **body})
    assert cluster.calls == [
        ("inject", ApiKey.PRODUCE, fault, ("times", 2), ("node_id", 1)),
        ("inject", None, fault, ("times", None), ("node_id", None)),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "explode"},
        {"kind": ["close"]},
        {"kind": "close", "api": "produce"},
        {"kind": "close", "api": "VOTE"},
        {"kind": "close", "ms": 5},
        {"kind": "delay"},
        {"kind": "delay", "ms": 0},
        {"kind": "error", "error": "BAD_LUCK"},
        {"kind": "close", "times": 0},
        {"kind": "close", "partition": 1},
    ],
    ids=str,
)
def test_a_fault_that_is_not_right_is_not_injected(cluster, body):
    with pytest.raises(IllegalArgumentError):
        Actions(cluster).inject(body)
    assert cluster.calls == []


def test_only_the_fault_with_the_number_is_removed(cluster):
    removed = []
    cluster.faults = [SimpleNamespace(number=at, remove=lambda at=at: removed.append(at)) for at in range(3)]
    Actions(cluster).remove_fault({"number": 1})
    assert removed == [1]
    with pytest.raises(IllegalArgumentError, match="removed already"):
        Actions(cluster).remove_fault({"number": 9})


@pytest.mark.parametrize("action", ["kill", "stop", "start"])
def test_brokers_end_and_start(cluster, action):
    Actions(cluster).change_broker({"node_id": 2, "action": action})
    assert cluster.calls == [(f"{action}_broker", 2)]


@pytest.mark.parametrize(
    "body", [{}, {"node_id": 1}, {"node_id": "1", "action": "kill"}, {"node_id": 1, "action": "x"}]
)
def test_a_broker_is_not_touched_by_mistake(cluster, body):
    with pytest.raises(IllegalArgumentError):
        Actions(cluster).change_broker(body)
    assert cluster.calls == []


def test_a_topic(cluster):
    Actions(cluster).create_topic({"name": "t", "partitions": 2, "replication_factor": 1})
    assert cluster.calls == [("create_topic", "t", 2, 1)]
    with pytest.raises(IllegalArgumentError):
        Actions(cluster).create_topic({"name": "t", "partitions": 0, "replication_factor": 1})


def test_the_choices_are_those_that_the_cluster_accepts(cluster):
    found = choices()
    assert found["apis"][0] == "PRODUCE"
    for api in found["apis"]:
        Actions(cluster).inject({"api": api, "kind": "close"})
    for error in found["errors"]:
        Actions(cluster).inject({"api": "PRODUCE", "kind": "error", "error": error})
