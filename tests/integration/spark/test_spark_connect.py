"""Tests all ways to write in Spark Connect, whose driver is another process, without RDDs and accumulators."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
from support.confluent import committed_values, read_topic
from support.spark_session import needs_spark, python_path

from headrace.broker import EmbeddedCluster

_NEEDED = ("grpc", "grpc_status", "google.rpc", "pandas", "zstandard")


def _missing() -> list[str]:
    missing = []
    for name in _NEEDED:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            missing.append(name)
    return missing


pytestmark = [
    *needs_spark,
    pytest.mark.skipif(bool(_missing()), reason=f"Spark Connect needs {', '.join(_missing())}: pyspark[connect]"),
]

PROGRAM = """
    import json, os, sys, warnings
    from pathlib import Path
    # pandas 3 and Spark's gRPC emit warnings
    warnings.simplefilter("ignore")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from headrace.network.protocol.errors import KafkaConfigurationError
    from headrace.producer.spark import KafkaSink, register

    servers, topic, folder = sys.argv[1:]
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    rows = spark.range(0, 1000, numPartitions=4).selectExpr("cast(id AS string) AS value")
    sink = KafkaSink(options)
    told = {"write": sink.write(rows).rows, "report": sink.report.rows}

    register(spark)
    rows.write.format("headrace").options(**options).mode("append").save()
    rows.foreachPartition(sink)
    # a type that rows do not carry
    spark.sql("SELECT cast(0.1 AS float) AS value").foreachPartition(KafkaSink(options, value_format="string"))

    source = Path(folder, "in")
    source.mkdir()
    Path(source, "lines.txt").write_text("\\n".join(map(str, range(1000))))
    def run(name, writer):
        stream = spark.readStream.text(str(source)).writeStream.trigger(availableNow=True)
        query = writer(stream.option("checkpointLocation", str(Path(folder, name))))
        query.awaitTermination(120)
        if query.exception() is not None:
            raise query.exception()
    run("by format", lambda stream: stream.format("headrace").options(**options).start())
    run("by batch", lambda stream: stream.foreachBatch(sink.write_batch).start())

    def refused(call):
        try:
            call()
        except (KafkaConfigurationError, PySparkException) as error:
            return str(error)
    unnamed = rows.withColumnRenamed("value", "text")
    told["no value"] = refused(lambda: sink.write(unnamed))
    told["no value by format"] = refused(
        lambda: unnamed.write.format("headrace").options(**options).mode("append").save()
    )

    once = {**options, "topic": topic + "-once", "delivery.guarantee": "exactly_once"}
    named = KafkaSink(once, delivery_id="of-connect")
    for _ in range(2):
        named.write(rows)
    rows.write.format("headrace").options(**once).mode("append").save()
    run("once by format", lambda stream: stream.format("headrace").options(**once).start())
    run("once by batch", lambda stream: stream.foreachBatch(named.write_batch).start())
    for name in ("once by format", "once by batch"):
        for path in Path(folder, name, "commits").iterdir():
            path.unlink()
    run("once by format", lambda stream: stream.format("headrace").options(**once).start())
    run("once by batch", lambda stream: stream.foreachBatch(named.write_batch).start())
    told["unnamed"] = refused(
        lambda: run("unnamed", lambda stream: stream.foreachBatch(KafkaSink(once).write_batch).start())
    )
    told["poison"] = refused(lambda: sink.write(spark.sql("SELECT repeat('x', 2000000) AS value")))
    print("TOLD", json.dumps(told))
    spark.stop()
"""


#: Spark gives a worker ten seconds to start, which a busy machine may not keep.
SLOW_START = "Timed out while waiting for the Python worker to connect back"


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(program), *arguments],
        # with this PySpark's server takes a free port instead of a fixed one
        env={**python_path(), "SPARK_TESTING": "1"},
        cwd=program.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )


def test_all_doors(tmp_path: Path) -> None:
    path = tmp_path / "driver.py"
    path.write_text(dedent(PROGRAM))
    with EmbeddedCluster(num_partitions=3) as cluster:
        for attempt in range(3):
            topic, folder = f"topic-{uuid.uuid4().hex[:8]}", tmp_path / f"attempt-{attempt}"
            folder.mkdir()
            done = run(path, cluster.bootstrap_servers, topic, str(folder))
            if SLOW_START not in done.stderr:
                break
        assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
        found = Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))
        once = Counter(committed_values(cluster.bootstrap_servers, f"{topic}-once"))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    told = json.loads(line.removeprefix("TOLD "))
    assert told["write"] == told["report"] == 1000
    assert "there is no column 'value' among text" in told["no value"]
    assert "there is no column 'value' among text" in told["no value by format"]
    assert "was not delivered: MessageSizeTooLargeError" in told["poison"]
    assert "set delivery.id to a name that only this query has" in told["unnamed"]
    # one each for write, format and the two streams, whose last micro-batch Spark repeated
    assert once == Counter({b"%d" % number: 4 for number in range(1000)})
    # one each for rows, write, format, and the two streams
    assert found == Counter({b"0.1": 1, **{b"%d" % number: 5 for number in range(1000)}})
