"""Tests that all ways to write the same DataFrame produce the same records, or all fail."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrame, SparkSession
from support.spark_session import JOB_ERRORS, needs_spark, spark

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.spark import KafkaSink, register

__all__ = ["spark"]

pytestmark = needs_spark

PARTITIONS = 3
REFUSED = (*JOB_ERRORS, PySparkException, KafkaConfigurationError)
#: The years 1 to 9999, in days since 1970.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DAY_US = 86_400_000_000

Options = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=PARTITIONS, log_retention_ms=-1) as cluster:
        yield cluster


def by_rows(df: DataFrame, options: Options) -> None:
    df.foreachPartition(KafkaSink(options))


def by_write(df: DataFrame, options: Options) -> None:
    KafkaSink(options).write(df)


def by_format(df: DataFrame, options: Options) -> None:
    register(df.sparkSession)
    df.write.format("headrace").options(**options).mode("append").save()


DOORS = (by_rows, by_write, by_format)


def outcome(door: Callable[[DataFrame, Options], None], df: DataFrame, cluster: EmbeddedCluster, **own: str) -> Any:
    """The records that one way wrote, or the text of its error."""
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic)
    try:
        door(df, {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic, **own})
    except REFUSED as error:
        reason = re.search(r"(was not delivered|KafkaConfigurationError): (.*)", str(error))
        return reason[2] if reason is not None else str(error)
    return Counter(
        (record.key, record.value, tuple(record.headers))
        for partition in range(PARTITIONS)
        for record in cluster.records(topic, partition)
    )


BYTES = st.binary(max_size=6) | st.text(max_size=4).map(str.encode)
# rows hold local times, so a few hours at either end of the range may be in another year
DAYS = st.integers(FIRST_DAY + 1, LAST_DAY - 1)
TIMES = DAYS.flatmap(lambda day: st.integers(day * DAY_US, (day + 1) * DAY_US - 1))
COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "text": ("binary", BYTES),
    "blob": ("binary", st.binary(max_size=6)),
    "whole": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "small": ("tinyint", st.integers(-128, 127)),
    "flag": ("boolean", st.booleans()),
    "real": ("double", st.floats()),
    "single": ("float", st.floats(width=32)),
    "price": ("decimal(20, 10)", st.decimals(-(10**9), 10**9, places=10)),
    "day": ("int", DAYS),
    "time": ("bigint", TIMES),
}
ROWS = st.lists(st.tuples(*(st.none() | values for _, values in COLUMNS.values())), min_size=5, max_size=30)

TEXT = "cast(text AS string)"
LEAVES = (
    f"{TEXT} AS text, blob, whole, small, flag, real, single, price, date_from_unix_date(day) AS day, "
    "timestamp_micros(time) AS time, cast(timestamp_micros(time) AS timestamp_ntz) AS local"
)
NESTED = (
    f"array({TEXT}) AS texts, array(timestamp_micros(time)) AS times, map('k', {TEXT}) AS map, "
    "array(struct(single, real)) AS singles, map(coalesce(single, 1), single) AS single_map"
)
STRUCT = f"struct({LEAVES}, {NESTED})"


def table(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    return spark.createDataFrame(rows, schema).coalesce(1)


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_values(spark: SparkSession, cluster: EmbeddedCluster, rows: list[tuple[Any, ...]]) -> None:
    df = table(spark, rows).selectExpr(
        f"{STRUCT} AS value", f"{TEXT} AS key", f"array(struct('h' AS key, {TEXT} AS value)) AS headers"
    )
    for value_format in ("json", "msgpack"):
        first, *others = (outcome(door, df, cluster, value_format=value_format) for door in DOORS)
        assert isinstance(first, Counter), first
        assert first.total() == len(rows)
        assert all(each == first for each in others)


def test_types_that_a_row_does_not_carry(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    singles = ("0.1", "16777217", "1e10", "1e-45", "3.4028235e38")
    df = spark.createDataFrame([(each,) for each in singles], "text string").selectExpr(
        "cast(text AS float) AS value", "timestamp_ntz'2020-02-29 01:02:03.5' AS key"
    )
    for value_format in ("string", "json"):
        for door in DOORS:
            found = outcome(door, df, cluster, value_format=value_format, key_format="string")
            assert {value for _, value, _ in found} == {
                b"0.1",
                b"16777216.0",
                b"10000000000.0",
                b"1e-45",
                b"3.4028235e+38",
            }
            assert {key for key, *_ in found} == {b"2020-02-29T01:02:03.500000"}


def test_an_rdd_has_no_types(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    df = spark.sql("SELECT cast(0.1 AS float) AS value")

    def by_rdd(df: DataFrame, options: Options) -> None:
        df.rdd.foreachPartition(KafkaSink(options))

    assert outcome(by_rdd, df, cluster, value_format="json") == {(None, b"0.10000000149011612", ()): 1}


@pytest.mark.parametrize("value_format", ["raw", "string", "json", "msgpack"])
def test_strings_that_are_no_utf8(spark: SparkSession, cluster: EmbeddedCluster, value_format: str) -> None:
    """Stray bytes, truncated or overlong sequences, and surrogates, which Java and Python count differently."""
    texts = [b"\xff", b"\xe2\x82", b"\xf0\x80\x80\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xed\xbf", b"ok", None]
    rows = spark.createDataFrame([(each,) for each in texts], "text binary").selectExpr(
        f"{TEXT} AS value", f"{TEXT} AS key", f"map(coalesce({TEXT}, ''), {TEXT}) AS headers"
    )
    first, *others = (outcome(door, rows, cluster, value_format=value_format) for door in DOORS)
    assert isinstance(first, Counter), first
    assert all(each == first for each in others)
    assert b"ok" in {key for key, *_ in first}


@pytest.mark.parametrize("value_format", ["json", "msgpack"])
def test_user_defined_types(spark: SparkSession, cluster: EmbeddedCluster, value_format: str) -> None:
    vectors = [(Vectors.dense([1.0, 2.5]),), (Vectors.sparse(3, {1: 4.0}),), (None,)]
    df = spark.createDataFrame(vectors, ["vector"])
    for value in ("vector", "struct(array(vector), map('k', vector))"):
        first, *others = (
            outcome(door, df.selectExpr(f"{value} AS value"), cluster, value_format=value_format) for door in DOORS
        )
        assert isinstance(first, Counter), first
        assert all(each == first for each in others)


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("SELECT array(date_from_unix_date(2932897)) AS value", "years 1 to 9999"),
        ("SELECT 1 AS value, timestamp_micros(-719164 * 86400000000) AS timestamp", "years 1 to 9999"),
        ("SELECT 1 AS value, -1 AS partition", "the column 'partition' holds -1; it has to be 0 or more"),
    ],
)
def test_what_each_door_refuses(spark: SparkSession, cluster: EmbeddedCluster, query: str, wrong: str) -> None:
    df = spark.sql(query)
    for door in DOORS:
        assert wrong in outcome(door, df, cluster, value_format="json")


@pytest.mark.parametrize(
    ("value", "own"),
    [
        ("struct(id, id + 1 AS id)", {"value_format": "json"}),
        ("map('k', array(struct(id, 'x' AS id)))", {"value_format": "msgpack"}),
        ("struct(id, id + 1 AS id)", {"kafka.value.serializer": "json"}),
    ],
)
def test_two_fields_of_one_name(spark: SparkSession, cluster: EmbeddedCluster, value: str, own: dict[str, str]) -> None:
    df = spark.range(1).selectExpr(f"{value} AS value")
    found = {outcome(door, df, cluster, **own) for door in DOORS}
    assert found == {"the column 'value': a struct has two fields named 'id': rename one of them"}
