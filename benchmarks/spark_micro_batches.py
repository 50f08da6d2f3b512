"""Compare large micro-batches of Spark's structured streaming: at least once, exactly once, and Spark's own sink.

    python benchmarks/spark_micro_batches.py [--rows N] [--micro-batches N] [--rounds N]
                                             [--bootstrap HOST:PORT | --apache]

A micro-batch reads two Parquet files of `--rows` / 2 rows of 130 bytes, in two tasks. Each contender has its own Spark
(local[2]) and its own topic in each round, and writes all micro-batches one after the other. The first two are a
warm-up. The program prints medians of the time that Spark reports for a micro-batch, and of its part that writes
(addBatch). One Spark may be half as fast as the next, whatever it writes: only rounds make a ratio.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import multiprocessing
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from page_memory import touch_memory
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from spark_bench import ROOT, SHAPES, Topics, broker

from headrace.producer.spark import KafkaSink, register

sys.path.append(str(ROOT / "examples"))

from spark_kafka_jars import NoConnector, connector_jars  # pyright: ignore[reportMissingImports]
from spark_session import require_java, start_spark  # pyright: ignore[reportMissingImports]

SHAPE = SHAPES["130b"]
TASKS = 2
WARM_UPS = 2
ONCE = {"delivery.guarantee": "exactly_once"}

Stream = Callable[[DataStreamWriter, str, str], DataStreamWriter]


def by_format(writer: DataStreamWriter, servers: str, topic: str, **options: str) -> DataStreamWriter:
    return writer.format("headrace").options(**{"kafka.bootstrap.servers": servers, "topic": topic, **options})


def by_foreach_batch(writer: DataStreamWriter, servers: str, topic: str, **options: str) -> DataStreamWriter:
    return writer.foreachBatch(KafkaSink({"bootstrap.servers": servers, **options}, topic=topic).write_batch)


def by_format_once(writer: DataStreamWriter, servers: str, topic: str) -> DataStreamWriter:
    return by_format(writer, servers, topic, **ONCE)


def by_foreach_batch_once(writer: DataStreamWriter, servers: str, topic: str) -> DataStreamWriter:
    return by_foreach_batch(writer, servers, topic, **ONCE)


def by_spark(writer: DataStreamWriter, servers: str, topic: str) -> DataStreamWriter:
    return writer.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": topic})


SPARKS = "Spark's own sink"
CONTENDERS: dict[str, Stream] = {
    "format": by_format,
    "format, exactly once": by_format_once,
    "foreachBatch": by_foreach_batch,
    "foreachBatch, exactly once": by_foreach_batch_once,
    SPARKS: by_spark,
}
PAIRS = (("format, exactly once", "format"), ("foreachBatch, exactly once", "foreachBatch"), ("format", SPARKS))


# --- Functions that a contender's process runs ---


def start(settings: dict[str, str]) -> None:
    session = start_spark("headrace micro-batches", master=f"local[{TASKS}]", settings=settings)
    session.sparkContext.setLogLevel("OFF")  # each commit logs its report
    register(session)


def make_files(folder: str, rows: int, micro_batches: int) -> None:
    """Write the files of all micro-batches: copies of one."""
    made = SparkSession.active().range(0, rows // TASKS, numPartitions=1)
    made.selectExpr(f"rpad(cast(id AS string), {SHAPE.row_bytes}, 'x') AS value").write.parquet(f"{folder}/made")
    (first,) = Path(folder, "made").glob("*.parquet")
    Path(folder, "rows").mkdir()
    for number in range(TASKS * micro_batches):
        shutil.copy(first, Path(folder, "rows", f"{number:04}.parquet"))


def run(contender: Stream, servers: str, topic: str, folder: str) -> tuple[float, float]:
    """The medians of a micro-batch's time and of its `addBatch`, in milliseconds."""
    files = SparkSession.active().readStream.schema("value string").option("maxFilesPerTrigger", TASKS)
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = files.parquet(f"{folder}/rows").writeStream.option("checkpointLocation", checkpoint)
        query = contender(writer, servers, topic).trigger(availableNow=True).start()
        query.awaitTermination()
        found = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]]
    measured = found[WARM_UPS:]
    return (
        statistics.median(each["triggerExecution"] for each in measured),
        statistics.median(each["addBatch"] for each in measured),
    )


def end() -> None:
    SparkSession.active().stop()


# --- All contenders ---


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_500_000, help="rows of a micro-batch")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="every other one in the reverse order")
    parser.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    parser.add_argument("--apache", action="store_true", help="write to Apache Kafka")
    arguments = parser.parse_args()
    if arguments.micro_batches <= WARM_UPS:
        parser.error(f"--micro-batches must be more than {WARM_UPS}, which are the warm-up")
    require_java()
    settings = {}
    try:
        settings["spark.jars"] = connector_jars()
    except NoConnector as missing:
        print(f"without {SPARKS}: {missing}")
        del CONTENDERS[SPARKS]
    totals: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    adding: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    context = multiprocessing.get_context("spawn")
    with broker(arguments) as servers, tempfile.TemporaryDirectory() as folder:
        topics = Topics(servers, SHAPE.partitions)
        with concurrent.futures.ProcessPoolExecutor(1, context, start, (settings,)) as process:
            process.submit(make_files, folder, arguments.rows, arguments.micro_batches).result()
            process.submit(end).result()
        for number in range(arguments.rounds):
            print(f"round {number + 1}, ms per micro-batch of {arguments.rows:,} rows:")
            for name, contender in sorted(CONTENDERS.items(), reverse=number % 2 == 1):
                topic = topics.make()
                touch_memory(arguments.rows * arguments.micro_batches * SHAPE.row_bytes)
                with concurrent.futures.ProcessPoolExecutor(1, context, start, (settings,)) as process:
                    total, part = process.submit(run, contender, servers, topic, folder).result()
                    process.submit(end).result()
                totals[name].append(total)
                adding[name].append(part)
                found = topics.records(topic)
                # with exactly once, the end of each transaction takes an offset in each partition
                if found < arguments.rows // TASKS * TASKS * arguments.micro_batches:
                    raise SystemExit(f"{name}: only {found} records are in Kafka")
                topics.remove(topic)
                print(f"  {name:27} {total:8.0f}, of which addBatch {part:8.0f}", flush=True)
    print("medians of the rounds:")
    for name, found in totals.items():
        print(f"  {name:27} {statistics.median(found):8.0f}, of which addBatch {statistics.median(adding[name]):8.0f}")
    for ours, theirs in PAIRS:
        if theirs in totals:
            ratios = [other / own for other, own in zip(totals[theirs], totals[ours], strict=True)]
            spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
            print(f"  throughput, {ours} / {theirs}: {statistics.median(ratios):.2f} ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
