"""A broker's side of client telemetry: who is asked for what, and which pushes are accepted."""

from __future__ import annotations

import dataclasses
import uuid

import pytest

from headrace.broker.metadata import CLIENT_METRICS, ClusterImage
from headrace.broker.telemetry import collector as module
from headrace.broker.telemetry.collector import Client, Collector
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    InvalidRecordError,
    InvalidRequestError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from headrace.network.protocol.messages.telemetry.push_telemetry import PushTelemetryRequest
from headrace.network.protocol.types import ZERO_UUID
from headrace.network.records.compression import Compression, compress

MAX_BYTES = 1000
INTERVAL_MS = 1000
CLIENT = Client("c", "headrace", "1.2.3", "127.0.0.1")


class Collecting:
    """A collector with subscriptions by name, and a client of it."""

    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.clock = MockClock(-1_000_000)
        self.image = ClusterImage("cluster", 0, -1, {}, {}, {})
        self.configure(**subscriptions)
        self.collector = Collector(1, self.clock, MAX_BYTES, lambda: self.image)
        self.instance_id = ZERO_UUID
        self.subscription_id = 0

    def configure(self, **subscriptions: dict[str, str]) -> None:
        configs = {(CLIENT_METRICS, name): of for name, of in subscriptions.items()}
        self.image = dataclasses.replace(self.image, configs=configs)

    def subscribe(self, client: Client = CLIENT):
        response = self.collector.subscribe(self.instance_id, client)
        self.instance_id, self.subscription_id = response.client_instance_id, response.subscription_id
        return response

    def push(self, data: bytes = b"metrics", codec: int = Compression.ZSTD, **fields) -> None:
        known = codec in set(Compression)
        request = PushTelemetryRequest(
            **{
                "client_instance_id": self.instance_id,
                "subscription_id": self.subscription_id,
                "terminating": False,
                "compression_type": codec,
                "metrics": compress(Compression(codec), data) if known else data,
                **fields,
            }
        )
        self.collector.push(request, CLIENT)

    @property
    def received(self) -> list[bytes]:
        return [push.data for push in self.collector.pushes()]


def every(interval_ms: int = INTERVAL_MS, metrics: str = "*", match: str = "") -> dict[str, str]:
    return {"metrics": metrics, "interval.ms": str(interval_ms), **({"match": match} if match else {})}


def test_a_client_without_an_id_gets_one_and_the_subscription():
    collecting = Collecting(all=every())
    response = collecting.subscribe()
    assert response.client_instance_id != ZERO_UUID
    assert response.requested_metrics == ["*"]
    assert (response.push_interval_ms, response.telemetry_max_bytes) == (INTERVAL_MS, MAX_BYTES)
    assert response.accepted_compression_types == [4, 3, 1, 2]
    assert response.delta_temporality


def test_an_id_is_kept():
    collecting = Collecting(all=every())
    collecting.instance_id = uuid.UUID(int=5)
    assert collecting.subscribe().client_instance_id == uuid.UUID(int=5)


def test_without_subscriptions_there_are_no_metrics():
    collecting = Collecting()
    assert not collecting.collector.is_enabled
    response = collecting.subscribe()
    assert (response.requested_metrics, response.push_interval_ms) == ([], 300_000)


def test_subscriptions_that_match_are_combined():
    collecting = Collecting(
        one=every(5000, "a.,b."),
        two=every(2000, "b.,c."),
        other=every(1000, "d.", "client_id=someone-else"),
    )
    assert collecting.collector.is_enabled
    response = collecting.subscribe()
    assert (response.requested_metrics, response.push_interval_ms) == (["a.", "b.", "c."], 2000)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=c", True),
        ("client_id=c.*", True),
        # the whole text has to match
        ("client_software_version=1", False),
        ("client_software_version=1\\..*", True),
        ("client_software_name=headrace,client_source_address=127\\.0\\.0\\.1", True),
        ("client_software_name=headrace,client_source_address=10\\..*", False),
    ],
)
def test_patterns_select_clients(match: str, matches: bool):
    assert Collecting(all=every(match=match)).subscribe().requested_metrics == (["*"] if matches else [])


def test_pushes_are_kept_decompressed_and_in_order():
    collecting = Collecting(all=every())
    collecting.subscribe()
    collecting.push(b"one")
    collecting.clock.advance(INTERVAL_MS)
    collecting.push(b"two", Compression.GZIP)
    assert collecting.received == [b"one", b"two"]
    push = collecting.collector.pushes()[1]
    assert (push.client_instance_id, push.client_id, push.node_id) == (collecting.instance_id, "c", 1)
    assert (push.software_name, push.software_version, push.compression) == ("headrace", "1.2.3", "gzip")


def test_a_second_push_or_question_within_the_interval_is_throttled():
    collecting = Collecting(all=every())
    collecting.subscribe()
    with pytest.raises(ThrottlingQuotaExceededError):
        collecting.subscribe()
    # the first push comes at any time, because clients spread them
    collecting.push()
    collecting.clock.advance(INTERVAL_MS - 1)
    with pytest.raises(ThrottlingQuotaExceededError):
        collecting.push()
    with pytest.raises(ThrottlingQuotaExceededError):
        collecting.subscribe()
    collecting.clock.advance(1)
    collecting.push()
    assert len(collecting.received) == 2


def test_the_last_push_comes_at_any_time_and_nothing_after_it():
    collecting = Collecting(all=every())
    collecting.subscribe()
    collecting.push()
    collecting.push(terminating=True)
    assert [push.terminating for push in collecting.collector.pushes()] == [False, True]
    with pytest.raises(InvalidRequestError, match="last push already"):
        collecting.push(terminating=True)


def test_a_changed_subscription_has_another_id_and_may_be_asked_for_at_once():
    collecting = Collecting(all=every())
    collecting.subscribe()
    collecting.push()
    before = collecting.subscription_id
    collecting.configure(all=every(metrics="a."))
    collecting.clock.advance(INTERVAL_MS)
    with pytest.raises(UnknownSubscriptionIdError):
        collecting.push()
    collecting.configure(all=every(metrics="b."))
    assert collecting.subscribe().requested_metrics == ["b."]
    assert collecting.subscription_id != before
    collecting.push()


def test_a_change_of_another_resource_changes_no_id():
    collecting = Collecting(all=every())
    before = collecting.subscribe().subscription_id
    collecting.configure(all=every(), other=every(match="client_id=someone-else"))
    collecting.clock.advance(INTERVAL_MS)
    assert collecting.subscribe().subscription_id == before


def test_a_client_that_this_broker_does_not_know_may_push():
    """Another broker gave it the id and the subscription."""
    one, other = Collecting(all=every()), Collecting(all=every())
    one.subscribe()
    other.instance_id, other.subscription_id = one.instance_id, one.subscription_id
    other.push()
    assert other.received == [b"metrics"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_instance_id": ZERO_UUID}, InvalidRequestError),
        ({"codec": 9}, UnsupportedCompressionTypeError),
        ({"codec": Compression.NONE, "data": bytes(MAX_BYTES + 1)}, TelemetryTooLargeError),
        ({"metrics": b"no zstd frame"}, InvalidRecordError),
        ({"data": bytes(MAX_BYTES * 100)}, InvalidRecordError),
    ],
)
def test_pushes_that_are_refused(fields: dict, error: type[Exception]):
    collecting = Collecting(all=every())
    collecting.subscribe()
    with pytest.raises(error):
        collecting.push(**fields)
    assert collecting.received == []


def test_an_empty_push_is_accepted_and_not_kept():
    collecting = Collecting(all=every())
    collecting.subscribe()
    collecting.push(b"", Compression.NONE)
    assert collecting.received == []


def test_pushes_and_clients_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_PUSHES", 3)
    monkeypatch.setattr(module, "MAX_INSTANCES", 2)
    collecting = Collecting(all=every())
    for number in range(5):
        collecting.instance_id = uuid.UUID(int=number + 1)
        collecting.subscribe()
        collecting.push(b"%d" % number)
    assert collecting.received == [b"2", b"3", b"4"]
    assert len(collecting.collector._instances) == 2
    monkeypatch.setattr(module, "MAX_PUSHED_BYTES", 101)
    for number in range(2):
        collecting.clock.advance(INTERVAL_MS)
        collecting.push(b"%d" % number * 100)
    assert collecting.received == [b"1" * 100]
