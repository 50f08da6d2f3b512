"""The rows of `make bench`, and what their runs send."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from comparison.clients import CLIENTS, UnknownClientError, select_clients
from comparison.shapes import BLOCK, SHAPES, Mode, Shape, ShapeError, ValueKind, select_shapes
from comparison.workload import Workload, json_value

from headrace.producer import ProducerConfig


def test_the_names_of_the_shapes_are_unique():
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert len({shape.title for shape in SHAPES}) == len(SHAPES)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shape_has_what_its_runs_need(shape: Shape):
    ProducerConfig.resolve({"bootstrap.servers": "localhost:9092", **shape.config})
    for client in CLIENTS.values():
        if client.refusal(shape) is None and shape.mode is not Mode.COLD_START:
            records = shape.records_at(client.share)
            assert records >= BLOCK
            assert records % (BLOCK * shape.threads) == 0
    ours, theirs = ("headrace-async", "aiokafka") if shape.mode is Mode.GATHER else ("headrace", "confluent-kafka")
    assert CLIENTS[ours].refusal(shape) is None
    assert CLIENTS[theirs].refusal(shape) is None


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_values_are_distinct_and_have_the_declared_size(shape: Shape):
    workload = Workload(shape, shape.step * 3)
    assert workload.passes == 3
    assert {len(value) for value in workload.values} == {shape.value_bytes}
    assert len(set(workload.values)) == BLOCK
    assert {len(keys) for keys in workload.key_blocks} == {BLOCK}
    assert (workload.table is not None) == (shape.mode is Mode.ARROW)
    if shape.value_kind is ValueKind.JSON:
        assert [json.loads(value)["id"] for value in workload.values] == list(range(BLOCK))


def test_a_value_too_small_for_json_is_refused():
    with pytest.raises(ValueError, match="a JSON value of 50 bytes is too small; an event needs 1"):
        json_value(1, 50, random.Random(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"records": 1500}, "x: records is 1500; expected a multiple of 1000"),
        ({"records": 8000, "threads": 16}, "x: records is 8000; expected a multiple of 16000"),
        ({"partitions": 0}, "x: partitions is 0; expected at least 1"),
        ({"keyed": True, "headers": True}, "x: choose one of keyed, headers and callback"),
        ({"mode": Mode.ONE_BY_ONE, "callback": True}, "belong to the mode 'throughput'"),
        ({"mode": Mode.ARROW, "keyed": True}, "the mode 'arrow' has no keys"),
        ({"mode": Mode.PACED}, "x: rate is 0; only the mode 'paced' has one"),
        ({"rate": 100}, "x: rate is 100; only the mode 'paced' has one"),
    ],
)
def test_a_shape_that_can_not_be_measured_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(ShapeError, match=message):
        Shape(**{"name": "x", "title": "X", "records": 1000, **options})


def test_shapes_are_selected_in_the_order_of_the_table():
    assert select_shapes([]) == list(SHAPES)
    assert [shape.name for shape in select_shapes(["headers", "100b"])] == ["100b", "headers"]
    with pytest.raises(ShapeError, match="unknown shape '1mb'; expected one of 100b, 1kb"):
        select_shapes(["100b", "1mb"])


def test_clients_are_selected_in_the_given_order():
    assert list(select_clients(["aiokafka", "headrace"])) == ["aiokafka", "headrace"]
    with pytest.raises(UnknownClientError, match="unknown client 'sarama'; expected one of headrace, confluent-kafka"):
        select_clients(["sarama"])


def test_a_client_says_what_it_can_not_do():
    shapes = {shape.name: shape for shape in SHAPES}
    assert CLIENTS["aiokafka"].refusal(shapes["16-threads"]) == "its producer belongs to one thread"
    assert CLIENTS["kafka-python"].refusal(shapes["send-many"]) == "it has no mode 'lists'"
    assert "has no keys" in (CLIENTS["java"].refusal(shapes["128k-keyed"]) or "")
    assert CLIENTS["java"].refusal(shapes["paced"]) is None
