"""Ratios, tables and the check of `make bench`, with made-up results."""

from __future__ import annotations

import json

import pytest
from comparison.measurement import Measurement, quantiles_ms
from comparison.results import (
    ClientResult,
    Ratio,
    ShapeResult,
    fallen,
    has_fallen,
    latency_lines,
    lines,
    missing_lines,
    to_store,
)
from comparison.shapes import SHAPES, Shape

THROUGHPUT = next(shape for shape in SHAPES if shape.name == "1kb")
LATENCY = next(shape for shape in SHAPES if shape.name == "one-by-one")


def at_rates(*rates: float) -> ClientResult:
    return ClientResult(
        [Measurement(records=1000, written=1001, seconds=1000 / r, cpu_s=0.002, peak_kib=40 << 10) for r in rates]
    )


def at_latencies(*medians_ms: float) -> ClientResult:
    return ClientResult(
        [Measurement(1000, 1001, 1.0, 0.1, 40 << 10, {"p50": p50, "p99": 5.0, "p99.9": 9.0}) for p50 in medians_ms]
    )


def result(shape: Shape, ours: ClientResult, theirs: ClientResult) -> ShapeResult:
    return ShapeResult(shape, {"headrace": ours, "confluent-kafka": theirs})


def stored(name: str, ratio: float, low: float, high: float) -> dict[str, dict[str, dict[str, float]]]:
    return {"headrace / confluent-kafka": {name: {"ratio": ratio, "low": low, "high": high}}}


def test_the_ratio_of_rates_is_ours_by_theirs():
    ratio = result(THROUGHPUT, at_rates(300, 100, 200), at_rates(100, 100, 400)).ratios()["confluent-kafka"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.0, 0.5, 3.0))


def test_the_ratio_of_latencies_is_theirs_by_ours():
    ratio = result(LATENCY, at_latencies(1.0, 2.0), at_latencies(0.5, 0.5)).ratios()["confluent-kafka"]
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1 / 3, 0.25, 0.5))


def test_a_client_without_rounds_has_no_ratio():
    assert result(THROUGHPUT, at_rates(1), ClientResult(missing="failed")).ratios() == {}
    assert result(THROUGHPUT, ClientResult(missing="failed"), at_rates(1)).ratios() == {}


def test_quantiles_are_nearest_ranks_in_milliseconds():
    latencies = [number / 1000 for number in reversed(range(1000))]
    assert quantiles_ms(latencies) == pytest.approx({"p50": 500, "p99": 990, "p99.9": 999})
    assert quantiles_ms([0.25]) == {"p50": 250, "p99": 250, "p99.9": 250}


def test_a_row_has_the_ratio_with_its_range_both_rates_cpu_and_memory():
    (line,) = lines(result(THROUGHPUT, at_rates(300_000, 200_000), at_rates(50_000, 50_000)))
    assert " ".join(line.split()) == "1 KB 1.5 5.00 (4.00-6.00) 0.25 / 0.050 M/s 2.0 / 2.0 40 / 40"


def test_a_row_per_peer_names_it():
    both = ShapeResult(LATENCY, {"headrace": at_latencies(1), "java": at_latencies(2), "aiokafka": at_latencies(4)})
    assert [line.split()[-1] for line in lines(both)] == ["java", "aiokafka"]
    assert "1.00 / 4.00 ms" in lines(both)[1]


def test_a_row_without_a_peer_or_without_rounds():
    assert "0.30 M/s" in lines(ShapeResult(THROUGHPUT, {"headrace": at_rates(300_000)}))[0]
    (line,) = lines(result(THROUGHPUT, at_rates(300_000), ClientResult(missing="failed")))
    assert "0.30 / - M/s" in line


def test_what_was_not_measured_is_said_once_per_reason():
    gone = ClientResult(missing="not available: no Java")
    results = [ShapeResult(shape, {"headrace": at_rates(1), "java": gone}) for shape in (THROUGHPUT, LATENCY)]
    assert missing_lines(results) == ["java without 1kb, one-by-one: not available: no Java"]


def test_latencies_have_their_own_table():
    table = latency_lines([result(LATENCY, at_latencies(1, 3, 2), ClientResult(missing="failed"))])
    assert [line.split()[-3:] for line in table] == [["p50", "p99", "p99.9"], ["2.00", "5.00", "9.00"]]
    assert latency_lines([result(THROUGHPUT, at_rates(1), at_rates(1))]) == []


def test_results_are_written_as_json():
    written = json.loads(json.dumps(result(LATENCY, at_latencies(1, 3), ClientResult(missing="failed")).to_json()))
    assert written["clients"]["confluent-kafka"] == {"missing": "failed"}
    ours = written["clients"]["headrace"]
    assert (ours["unit"], ours["median"], ours["min"], ours["max"]) == ("ms", 2, 1, 3)
    assert ours["latency_ms"] == {"p50": 2, "p99": 5, "p99.9": 9}
    assert len(ours["rounds"]) == 2


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (Ratio(2.0, 1.9, 2.1), Ratio(1.5, 1.4, 1.6), True),
        # within the spread of the stored rounds, and of the fresh ones
        (Ratio(2.0, 1.4, 2.1), Ratio(1.5, 1.4, 1.6), False),
        (Ratio(2.0, 1.9, 2.1), Ratio(1.5, 1.4, 1.95), False),
        # so small a fall is none, even without spread
        (Ratio(2.0, 2.0, 2.0), Ratio(1.91, 1.91, 1.91), False),
        (Ratio(2.0, 2.0, 2.0), Ratio(1.89, 1.89, 1.89), True),
        (Ratio(2.0, 1.9, 2.1), Ratio(3.0, 2.9, 3.1), False),
    ],
)
def test_a_ratio_has_fallen_if_it_is_below_the_noise_of_both(before: Ratio, now: Ratio, expected: bool):
    assert has_fallen(before, now) is expected


def test_the_check_names_the_shape_and_both_ratios():
    measured = [result(THROUGHPUT, at_rates(100, 100), at_rates(100, 100))]
    assert fallen(stored("1kb", 2.0, 1.9, 2.1), measured) == [
        "1kb: 1.00 (1.00-1.00) of confluent-kafka, was 2.00 (1.90-2.10)"
    ]
    assert fallen(stored("1kb", 1.0, 0.9, 1.1), measured) == []
    assert fallen(stored("10kb", 2.0, 1.9, 2.1), measured) == []


def test_the_check_names_what_can_not_be_measured_any_more():
    measured = [result(THROUGHPUT, ClientResult(missing="failed"), at_rates(1))]
    assert fallen(stored("1kb", 2.0, 1.9, 2.1), measured) == [
        "1kb: not measured against confluent-kafka, was 2.00 (1.90-2.10) (headrace: failed)"
    ]


def test_stored_ratios_are_what_the_check_reads():
    measured = [result(THROUGHPUT, at_rates(300, 200), at_rates(100, 100))]
    kept = json.loads(json.dumps(to_store(measured, "2026-11-23")))
    (shapes,) = kept.values()
    assert shapes["1kb"].pop("medians") == [250.0, 100.0]
    assert len(shapes["1kb"].pop("cpu_us")) == 2
    assert shapes["1kb"].pop("date") == "2026-11-23"
    assert kept == stored("1kb", 2.5, 2.0, 3.0)
    assert fallen(kept, measured) == []
