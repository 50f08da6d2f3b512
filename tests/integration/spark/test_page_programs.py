"""Runs the Spark programs of the README and of docs/ unchanged, in one session against the embedded cluster.

`spark`, a DataFrame `df` of flights with the columns key and value, and a stream `events` are predefined. The programs
define everything else they use; see `support.pages`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.confluent import read_committed
from support.pages import SPARK, Block, cases, is_spark, program_of
from support.spark_session import needs_spark, spark

from headrace.broker import EmbeddedCluster

__all__ = ["spark"]

pytestmark = needs_spark

FLIGHTS = [("UA", 1545, "EWR", "IAH", 1400), ("UA", 1714, "LGA", "IAH", 1416), ("DL", 461, "LGA", "ATL", 762)]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


def names_for(spark: SparkSession, directory: Path) -> dict[str, Any]:
    """The names predefined for a program."""
    flights = spark.createDataFrame(FLIGHTS, ["carrier", "flight", "origin", "dest", "distance"])
    df = flights.selectExpr("*", "carrier AS key", "CAST(flight AS STRING) AS value")
    source = directory / "events"
    source.mkdir()
    (source / "events.txt").write_text("one\ntwo\nthree\n")
    return {"spark": spark, "df": df, "events": spark.readStream.text(str(source))}


@pytest.mark.parametrize("block", cases(is_spark))
def test_a_program(block: Block, spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    text = program_of(block, cluster.bootstrap_servers, SPARK)
    # absolute paths on the reader's machine
    text = re.sub(r'"/(?=[\w/]+")', f'"{tmp_path}/', text)
    topics = set(re.findall(r"""topic["']?\s*[=:,]\s*["']([\w.-]+)""", text))
    try:
        exec(compile(text, str(block), "exec"), names_for(spark, tmp_path))
        for query in spark.streams.active:
            query.processAllAvailable()
    finally:
        for query in spark.streams.active:
            query.stop()
    for topic in topics:
        assert read_committed(cluster.bootstrap_servers, topic), topic
