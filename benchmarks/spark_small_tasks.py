"""Measure small tasks and small micro-batches: all ways to write, Spark's own sink, and no-ops.

    python benchmarks/spark_small_tasks.py [--tasks N] [--micro-batches N] [--conf NAME=VALUE ...]
                                           [--bootstrap HOST:PORT | --apache]

A task has ten rows; a micro-batch has twenty rows in two tasks. Each contender has its own Spark (local[2]), because a
Python worker keeps the modules that a contender loaded. Each writes once to warm up and once for the measurement: the
wall time per task (two run at a time), and the CPU per task of the JVM and of its Python processes. Micro-batches
follow each other without a pause; the program prints the medians of the stages that Spark reports. The no-ops measure
Spark itself.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from spark_bench import (
    ROOT,
    SHAPES,
    Shape,
    Topics,
    broker,
    by_batches,
    by_format,
    by_rows,
    by_spark,
    no_op_batches,
    no_op_jvm,
    no_op_rows,
)

from headrace.producer.spark import KafkaSink, register

sys.path.append(str(ROOT / "examples"))

from spark_kafka_jars import NoConnector, connector_jars  # pyright: ignore[reportMissingImports]
from spark_session import require_java, start_spark  # pyright: ignore[reportMissingImports]

ROWS_PER_TASK = 10
SHAPE = SHAPES["130b"]
CORES = 2
TICKS_PER_MS = os.sysconf("SC_CLK_TCK") / 1000

Batch = Callable[[DataFrame, str, str, Shape], None]
Stream = Callable[[DataStreamWriter, str, str], StreamingQuery]


def stream_by_format(writer: DataStreamWriter, servers: str, topic: str) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": servers, "topic": topic, **SHAPE.settings}
    return writer.format("headrace").options(**options).start()


def stream_by_foreach_batch(writer: DataStreamWriter, servers: str, topic: str) -> StreamingQuery:
    sink = KafkaSink({"bootstrap.servers": servers, **SHAPE.settings}, topic=topic)
    return writer.foreachBatch(sink.write_batch).start()


def stream_by_spark(writer: DataStreamWriter, servers: str, topic: str) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    options.update({f"kafka.{name}": str(value).lower() for name, value in SHAPE.settings.items()})
    return writer.format("kafka").options(**options).start()


def stream_no_op_batches(writer: DataStreamWriter, servers: str, topic: str) -> StreamingQuery:
    return writer.foreachBatch(lambda df, _: no_op_batches(df, servers, topic, SHAPE)).start()


def stream_no_op(writer: DataStreamWriter, servers: str, topic: str) -> StreamingQuery:
    return writer.format("noop").start()


BATCHES: dict[str, Batch] = {
    "headrace, write": by_batches,
    "headrace, format": by_format,
    "headrace, rows": by_rows,
    "Spark's own sink": by_spark,
    "no-op, Arrow in Python": no_op_batches,
    "no-op, rows in Python": no_op_rows,
    "no-op, in the JVM": no_op_jvm,
}
STREAMS: dict[str, Stream] = {
    "headrace, format": stream_by_format,
    "headrace, foreachBatch": stream_by_foreach_batch,
    "Spark's own sink": stream_by_spark,
    "no-op, foreachBatch in Arrow": stream_no_op_batches,
    "no-op, in the JVM": stream_no_op,
}


# --- Functions that a contender's process runs ---


def start(settings: dict[str, str]) -> None:
    session = start_spark("headrace small tasks", master=f"local[{CORES}]", settings=settings)
    # a stopped query logs what it was doing, and each commit of Headrace its report
    session.sparkContext.setLogLevel("OFF")
    register(session)


def run_tasks(contender: Batch, servers: str, topic: str, tasks: int) -> dict[str, float]:
    """Milliseconds per task."""
    df = SparkSession.active().range(0, tasks * ROWS_PER_TASK, numPartitions=tasks)
    rows = df.selectExpr("cast(id AS string) AS value")
    contender(rows, servers, topic, SHAPE)
    before, started = cpu_ms(), time.perf_counter()
    contender(rows, servers, topic, SHAPE)
    wall_ms = (time.perf_counter() - started) * 1000
    used = cpu_ms() - before
    return {"wall": wall_ms * CORES / tasks, **{name: used[name] / tasks for name in ("JVM", "Python")}}


def run_stream(contender: Stream, servers: str, topic: str, micro_batches: int) -> dict[str, float]:
    """Milliseconds per micro-batch and per stage."""
    rate = SparkSession.active().readStream.format("rate-micro-batch")
    events = rate.option("rowsPerBatch", CORES * ROWS_PER_TASK).option("numPartitions", CORES).load()
    with tempfile.TemporaryDirectory() as folder:
        rows = events.selectExpr("cast(value AS string) AS value").writeStream
        query = contender(rows.option("checkpointLocation", folder), servers, topic)
        while (query.lastProgress or {"batchId": 0})["batchId"] < 2 * micro_batches:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            time.sleep(0.1)
        found = [progress["durationMs"] for progress in query.recentProgress[-micro_batches:]]
        query.stop()
    return {
        stage: statistics.median(each.get(stage, 0) for each in found)
        for stage in ("triggerExecution", "addBatch", "walCommit", "commitOffsets", "queryPlanning")
    }


def end() -> None:
    SparkSession.active().stop()


def cpu_ms() -> Counter[str]:
    """The CPU time in milliseconds of the JVM under this process and of the JVM's Python processes."""
    processes = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        processes[int(stat.parent.name)] = (name, int(fields[1]), sum(map(int, fields[11:15])))
    used: Counter[str] = Counter()
    for number, (name, _, ticks) in processes.items():
        above = number
        while above in processes and above != os.getpid():
            above = processes[above][1]
        if above == os.getpid() != number:
            used["JVM" if name == "java" else "Python"] += round(ticks / TICKS_PER_MS)
    return used


# --- All contenders ---


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--micro-batches", type=int, default=40)
    parser.add_argument("--conf", action="append", default=[], help="a Spark setting, as NAME=VALUE")
    parser.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    parser.add_argument("--apache", action="store_true", help="write to Apache Kafka")
    arguments = parser.parse_args()
    require_java()
    settings = dict(setting.split("=", 1) for setting in arguments.conf)
    try:
        settings["spark.jars"] = connector_jars()
    except NoConnector as missing:
        print(f"without Spark's own sink: {missing}")
        del BATCHES["Spark's own sink"], STREAMS["Spark's own sink"]
    with broker(arguments) as servers:
        topics = Topics(servers, SHAPE.partitions)
        print(f"ms per task of {ROWS_PER_TASK} rows, {arguments.tasks} tasks, with CPU time:")
        for name, contender in BATCHES.items():
            report(name, settings, run_tasks, contender, servers, topics.make(), arguments.tasks)
        print(f"ms per micro-batch of {CORES * ROWS_PER_TASK} rows in {CORES} tasks, medians of its stages:")
        for name, contender in STREAMS.items():
            report(name, settings, run_stream, contender, servers, topics.make(), arguments.micro_batches)
    return 0


def report(name: str, settings: dict[str, str], run: Callable[..., dict[str, float]], *given: object) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context, start, (settings,)) as process:
        found = process.submit(run, *given).result()
        process.submit(end).result()
    print(f"  {name:29}", "  ".join(f"{part} {value:6.1f}" for part, value in found.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
