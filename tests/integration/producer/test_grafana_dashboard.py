"""The Grafana dashboard: every expression is valid and names metrics and labels that a producer's page really has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.broker import EmbeddedCluster
from headrace.producer import KafkaProducer
from headrace.producer.reporters import PrometheusReporter

FILE = Path(__file__).resolve().parents[3] / "docs" / "grafana-dashboard.json"
DASHBOARD = json.loads(FILE.read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [(panel["title"], target["expr"]) for panel in PANELS for target in panel["targets"]]
#: What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$__range": "30m", "$client": ".*", "$topic": ".*", "${datasource}": "uid"}


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The metrics of the page that a program serves, each with its labels."""
    registry = prometheus_client.CollectorRegistry()
    with (
        EmbeddedCluster() as cluster,
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, metric_reporters=[PrometheusReporter(registry)]
        ) as producer,
    ):
        producer.send("orders", b"lamp").get(30)
        page = prometheus_client.generate_latest(registry).decode()
    return {
        sample.name: set(sample.labels) for family in text_string_to_metric_families(page) for sample in family.samples
    }


def filled(expression: str) -> str:
    """The expression without Grafana's variables."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def selectors(expression: Any) -> Iterator[Any]:
    """The selectors of series within a parsed expression, each with the labels that are used of it."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs"):
        inner = getattr(expression, name, None)
        if inner is not None:
            yield from selectors(inner)
    for inner in getattr(expression, "args", ()):
        yield from selectors(inner)


def test_it_is_a_dashboard_that_grafana_imports():
    assert DASHBOARD["uid"]
    assert DASHBOARD["title"]
    assert DASHBOARD["schemaVersion"] >= 30
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "client", "topic"}
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_lie_side_by_side():
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells


@pytest.mark.parametrize(("panel", "expression"), EXPRESSIONS)
def test_an_expression_is_of_metrics_that_are_served(served, panel, expression):
    found = list(selectors(promql_parser.parse(filled(expression))))
    names = set(re.findall(r"kafka_\w+", expression))
    assert {selector.name for selector in found} == names
    assert names
    used = {"client_id"} | {name for group in re.findall(r"by \(([^)]*)\)", expression) for name in group.split(", ")}
    used |= set(re.findall(r"(\w+)=~", expression))
    for name in names:
        assert name in served, f"{panel} shows {name}, which no producer serves"
        assert used <= served[name], f"{panel} uses labels that {name} does not have"


def test_the_variables_are_of_metrics_that_are_served(served):
    queries = [each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    assert len(queries) == 2
    for query in queries:
        metric, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query).groups()
        assert label in served[metric]


def test_legends_name_labels_that_the_result_has():
    for panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            kept = re.search(r"by \(([^)]*)\)", target["expr"])
            if kept is not None:
                assert named <= set(kept[1].split(", ")), panel["title"]
            elif re.match(r"(sum|max|count)\(", target["expr"]):
                assert not named, panel["title"]
