"""kafka-python's producer and this one compared by attributes: what a program may read, pass, catch and measure.

Each name is looked up in both. Differences must be listed, in backticks, in docs/from-kafka-python.md.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
import kafka.producer.future
import pytest
from kafka.producer.future import FutureRecordMetadata

from headrace.broker import EmbeddedCluster
from headrace.producer import KafkaProducer, RecordFuture, RecordMetadata, errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "from-kafka-python.md").read_text(encoding="utf-8")
#: Every word that the page shows as code; `ssl_*` stands for all names with that prefix.
LISTED = {word for code in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"[\w.*-]+", code)}
PATIENCE_S = 60

ERRORS = {
    name: cls
    for name, cls in vars(kafka.errors).items()
    if isinstance(cls, type) and issubclass(cls, kafka.errors.KafkaError)
}
#: The base classes by which programs catch many errors.
FAMILIES = ("KafkaError", "RetriableError", "InvalidMetadataError", "BrokerResponseError", "AuthorizationError")
#: The attribute by which the page lists that a class is in another family.
FAMILY_ATTRIBUTES = {
    "RetriableError": "retriable",
    "InvalidMetadataError": "invalid_metadata",
    "BrokerResponseError": "errno",
}


def is_listed(name: str) -> bool:
    return name in LISTED or any(name.startswith(each[:-1]) for each in LISTED if each.endswith("*") and each != "*")


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(auto_create_topics_enable=False) as cluster:
        yield cluster


def test_the_page_is_read() -> None:
    assert {"init_transactions", "ssl_*", "future.exception", "throttle-time-avg"} <= LISTED
    assert is_listed("ssl_cafile")
    assert not is_listed("partitions_for_topic")


def test_attributes_of_the_producer(cluster: EmbeddedCluster) -> None:
    with (
        kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as theirs,
        KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as ours,
    ):
        missing = public(theirs) - public(ours)
    assert {name for name in missing if not is_listed(name) and not is_listed(f"KafkaProducer.{name}")} == set()
    assert "config" not in missing
    assert "DEPRECATED_CONFIGS" in missing


@pytest.mark.parametrize("name", sorted(public(kafka.KafkaProducer) & public(KafkaProducer)))
def test_arguments_of_a_method(name: str) -> None:
    theirs, ours = getattr(kafka.KafkaProducer, name), getattr(KafkaProducer, name)
    assert callable(theirs) == callable(ours)
    if callable(theirs):
        taken = [(each.name, each.default, each.kind) for each in inspect.signature(theirs).parameters.values()]
        ours_taken = [(each.name, each.default, each.kind) for each in inspect.signature(ours).parameters.values()]
        assert ours_taken[: len(taken)] == taken


def test_attributes_of_a_future() -> None:
    missing = public(FutureRecordMetadata) - public(RecordFuture)
    assert {name for name in missing if not is_listed(f"future.{name}")} == set()
    for name in public(FutureRecordMetadata) - missing:
        theirs, ours = getattr(FutureRecordMetadata, name), getattr(RecordFuture, name)
        is_method = inspect.isfunction(theirs)
        assert callable(ours) == is_method or is_listed(f"future.{name}"), name


def test_values_of_a_future_and_of_its_metadata(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("metadata", 2)
    seen: list[dict[str, Any]] = []
    for at, producer_class in enumerate((kafka.KafkaProducer, KafkaProducer)):
        with producer_class(bootstrap_servers=cluster.bootstrap_servers) as producer:
            future = producer.send("metadata", b"value", key=b"k", partition=at, timestamp_ms=1_600_000_000_123)
            metadata = future.get(timeout=PATIENCE_S)
            answers = {name: getattr(future, name)() for name in ("succeeded", "failed", "retriable")}
            values = {name: getattr(metadata, name) for name in kafka.producer.future.RecordMetadata._fields}
            assert values.pop("partition") == at
            assert values.pop("topic_partition") == ("metadata", at)
            assert future.is_done
            assert future.value == metadata
            seen.append({**values, **answers})
    assert seen[0] == seen[1]
    assert is_listed("_asdict")
    assert not hasattr(RecordMetadata, "_asdict")


def test_names_of_errors() -> None:
    missing = {name for name in (*ERRORS, "for_code", "kafka_errors") if not hasattr(errors, name)}
    assert {name for name in missing if not is_listed(name)} == set()
    assert len(ERRORS) > 120


@pytest.mark.parametrize("name", [name for name in ERRORS if hasattr(errors, name)])
def test_attributes_of_an_error(name: str) -> None:
    theirs, ours = ERRORS[name], getattr(errors, name)
    for attribute in ("errno", "message", "retriable", "invalid_metadata"):
        if hasattr(theirs, attribute):
            same = getattr(theirs, attribute) == getattr(ours, attribute)
            assert same != is_listed(f"{name}.{attribute}"), f"{name}.{attribute}"
            # a caught instance has it, too
            assert getattr(ours(), attribute) == getattr(ours, attribute)
    if getattr(theirs, "errno", None) is not None:
        assert isinstance(ours.description, str)
    for family in FAMILIES:
        same = issubclass(theirs, getattr(kafka.errors, family)) == issubclass(ours, getattr(errors, family))
        attribute = FAMILY_ATTRIBUTES.get(family)
        assert same or is_listed(f"{name}.{attribute}"), f"{name} and {family}"


def test_classes_by_code() -> None:
    for code, cls in kafka.errors.kafka_errors.items():
        if code is not None:
            assert errors.for_code(code).__name__ == errors.kafka_errors[code].__name__ == cls.__name__
    assert issubclass(kafka.errors.for_code(9999), kafka.errors.UnknownError)
    assert issubclass(errors.for_code(9999), errors.UnknownError)


def test_every_default_may_be_passed(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    config = {**kafka.KafkaProducer.DEFAULT_CONFIG, "bootstrap_servers": cluster.bootstrap_servers}
    cluster.create_topic("defaults")
    with caplog.at_level("WARNING"), KafkaProducer(**config) as producer:
        assert producer.send("defaults", b"x", key=b"k").get(PATIENCE_S).offset == 0
    assert [record.getMessage() for record in caplog.records if record.name.startswith("headrace")] == []


@pytest.mark.parametrize("name", kafka.KafkaProducer.DEFAULT_CONFIG)
def test_a_default(name: str) -> None:
    """A default that differs is listed, and so is a key whose value can't be read."""
    theirs = kafka.KafkaProducer.DEFAULT_CONFIG[name]
    with KafkaProducer(bootstrap_servers="localhost:1") as producer:
        ours = producer.config.get(name, "no value")
        if name in KafkaProducer.DEFAULT_CONFIG:
            assert ours == theirs or is_listed(name), f"{name} is {ours!r}, and {theirs!r} in kafka-python"
        else:
            assert is_listed(name)
            assert ours == "no value"
            with pytest.raises(KeyError, match="has no value: "):
                _ = producer.config[name]


def test_names_of_metrics(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("measured")
    measured = []
    for producer_class in (kafka.KafkaProducer, KafkaProducer):
        with producer_class(bootstrap_servers=cluster.bootstrap_servers, client_id="c") as producer:
            producer.send("measured", b"x").get(PATIENCE_S)
            end = time.monotonic() + PATIENCE_S
            while "producer-node-metrics.node-1" not in producer.metrics():
                assert time.monotonic() < end
                time.sleep(0.01)
            measured.append({group: set(names) for group, names in producer.metrics().items()})
    theirs, ours = measured
    missing_groups = theirs.keys() - ours.keys()
    assert {group for group in missing_groups if not is_listed(group)} == set()
    missing = {name for group in theirs.keys() & ours.keys() for name in theirs[group] - ours[group]}
    assert {name for name in missing if not is_listed(name)} == set()
    assert len(ours["producer-metrics"] & theirs["producer-metrics"]) > 20
    assert {"produce-throttle-time-avg", "produce-throttle-time-max"} <= ours["producer-metrics"]
