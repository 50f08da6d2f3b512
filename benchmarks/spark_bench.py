"""Compare Headrace's ways to write Spark DataFrames with confluent-kafka and Spark's own sink.

    python benchmarks/spark_bench.py [--shape NAME] [--rows N] [--rounds N] [--bootstrap HOST:PORT | --apache]

All contenders write to one broker process, from a Parquet file, because generating rows costs Spark more than reading
them. They take turns for `--rounds` rounds, each into a new topic. The program prints medians
of rows/s, measured from the start of the job to its end, when every record is acknowledged. Each contender has its own
Spark (local[2]), like a user's job: some sinks are slower in a JVM that has run others before.
All have their defaults, but for what the shape sets, the guarantee of one, and idempotence, which librdkafka lacks by
default. Memory for the broker's log is touched in advance (`page_memory.py`). The no-op writers measure Spark itself:
they drop the rows or
Arrow batches that reach Python. Without ``--bootstrap`` the broker is ``headrace broker``; ``--apache`` starts Apache
Kafka (from Maven Central). Spark's own sink is included if Maven Central has its jar.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # pyright: ignore[reportPrivateImportUsage]
from page_memory import touch_memory
from pyspark.sql import DataFrame, SparkSession

from headrace.producer import KafkaProducer
from headrace.producer.spark import KafkaSink, register

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]

from spark_kafka_jars import NoConnector, connector_jars  # noqa: E402  # pyright: ignore[reportMissingImports]
from spark_session import require_java, start_spark  # noqa: E402  # pyright: ignore[reportMissingImports]


@dataclasses.dataclass(frozen=True)
class Shape:
    """A shape of work: the rows, the topic and the settings of all contenders."""

    row_bytes: int = 130
    partitions: int = 4
    keyed: bool = False
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


SHAPES = {
    "130b": Shape(),
    "1kb": Shape(row_bytes=1000),
    "keyed": Shape(partitions=100, keyed=True),
    "lz4": Shape(settings={"compression.type": "lz4"}),
    "128k": Shape(settings={"linger.ms": 5, "batch.size": 131_072}),
}
#: Deletes the files of a removed topic immediately; a minute later they would be flushed to disk during the next run.
BROKER_SETTINGS = {"log.segment.delete.delay.ms": "0"}
OURS_BY_BATCHES, OURS_BY_FORMAT, OURS_BY_ROWS = "headrace, Arrow (write)", "headrace, format", "headrace, rows"
OURS_ONCE = "headrace, exactly once"
ALONE = "send_arrow without Spark"
SPARKS, CONFLUENT = "Spark's own sink", "confluent-kafka, rows"
PAIRS = (
    (OURS_BY_BATCHES, SPARKS),
    (OURS_BY_FORMAT, SPARKS),
    (OURS_BY_ROWS, CONFLUENT),
    (OURS_ONCE, OURS_BY_BATCHES),
)

Contender = Callable[[DataFrame, str, str, Shape], object]


def by_rows(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    df.foreachPartition(KafkaSink({"bootstrap.servers": servers, **shape.settings}, topic=topic))


def by_batches(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    KafkaSink({"bootstrap.servers": servers, **shape.settings}, topic=topic).write(df)


def by_batches_once(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    options = {"bootstrap.servers": servers, "delivery.guarantee": "exactly_once", **shape.settings}
    KafkaSink(options, topic=topic).write(df)


def by_format(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": topic, **shape.settings}
    df.write.format("headrace").options(**options).mode("append").save()


def by_spark(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    options.update({f"kafka.{name}": str(value).lower() for name, value in shape.settings.items()})
    df.write.format("kafka").options(**options).save()


def by_confluent(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    settings = {
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 1_000_000,
        **shape.settings,
        "bootstrap.servers": servers,
    }
    keyed = shape.keyed

    def write(rows: Iterable[Any]) -> None:
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        producer = confluent_kafka.Producer(settings)
        for row in rows:
            while True:
                try:
                    producer.produce(topic, row.value, row.key if keyed else None, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush(120) or failed:
            raise RuntimeError(f"not delivered: {failed[:1]}")

    df.foreachPartition(write)


def no_op_rows(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    def drop(rows: Iterable[Any]) -> None:
        for _ in rows:
            pass

    df.foreachPartition(drop)


def no_op_batches(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    def drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows]})

    df.mapInArrow(drop, "rows long").collect()


def no_op_jvm(df: DataFrame, servers: str, topic: str, shape: Shape) -> None:
    df.write.format("noop").mode("overwrite").save()


@contextlib.contextmanager
def broker(arguments: argparse.Namespace) -> Iterator[str]:
    """The address of the broker that all contenders write to."""
    if arguments.bootstrap:
        yield arguments.bootstrap
        return
    if arguments.apache:
        from support.apache_kafka.cluster import SERVER_JVM_OPTIONS, ApacheKafka

        with ApacheKafka(jvm_options=SERVER_JVM_OPTIONS, properties=BROKER_SETTINGS) as kafka:
            yield kafka.bootstrap_servers
        return
    command = [sys.executable, "-m", "headrace.cli", "broker", "--port", "0"]
    command += [f"--config={name}={value}" for name, value in BROKER_SETTINGS.items()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().partition("=")[2]
        finally:
            process.terminate()


class Topics:
    """Creates a topic per run, and counts its records afterwards."""

    def __init__(self, servers: str, partitions: int) -> None:
        self._partitions = partitions
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def make(self) -> str:
        """A new topic whose partitions have leaders."""
        topic = f"bench-{uuid.uuid4().hex[:8]}"
        for future in self._admin.create_topics([NewTopic(topic, self._partitions)]).values():
            future.result(30)
        while not self._has_leaders(topic):
            time.sleep(0.1)
        return topic

    def _has_leaders(self, topic: str) -> bool:
        found = self._admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        return len(found) == self._partitions and all(partition.leader >= 0 for partition in found)

    def records(self, topic: str) -> int:
        latest: dict[Any, Any] = {
            confluent_kafka.TopicPartition(topic, partition): OffsetSpec.latest()
            for partition in range(self._partitions)
        }
        found = self._admin.list_offsets(latest)
        return sum(future.result(30).offset for future in found.values())

    def remove(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result(30)


def send_arrow_alone(servers: str, topic: str, rows: int, shape: Shape) -> float:
    """Rows/s of `send_arrow` in this process, including acknowledgements."""
    columns = {"value": [b"x" * shape.row_bytes] * 10_000}
    if shape.keyed:
        columns["key"] = [b"%d" % row for row in range(10_000)]
    batch = pa.RecordBatch.from_pydict(columns)
    with KafkaProducer({"bootstrap.servers": servers, **shape.settings}) as producer:
        producer.send_arrow(topic, batch).get(30)
        started = time.perf_counter()
        futures = [producer.send_arrow(topic, batch) for _ in range(rows // 10_000)]
        for future in futures:
            future.get(60)
        return len(futures) * 10_000 / (time.perf_counter() - started)


class Job:
    """A contender with its own Spark, in its own process."""

    def __init__(self, contender: Contender, shape: Shape, settings: dict[str, str], path: str) -> None:
        """`path`: the Parquet file, which need not exist yet."""
        self._contender = contender
        self._shape = shape
        self._path = path
        context = multiprocessing.get_context("spawn")
        self._process = concurrent.futures.ProcessPoolExecutor(1, context, _start, (settings,))

    def make_frame(self, rows: int) -> None:
        """Write the Parquet file for all jobs: four parts with distinct rows, and keys if the shape has them."""
        self._process.submit(_make_frame, self._path, rows, self._shape).result()

    def run(self, servers: str, topic: str) -> float:
        """Run the contender. Returns the time in seconds."""
        return self._process.submit(_run, self._contender, self._path, servers, topic, self._shape).result()

    def end(self) -> None:
        self._process.submit(_end).result()
        self._process.shutdown()


# --- Functions that a job's process runs: `_start` first, after which Spark keeps the session ---


def _start(settings: dict[str, str]) -> None:
    register(start_spark("headrace benchmark", settings=settings))


def _make_frame(path: str, rows: int, shape: Shape) -> None:
    made = SparkSession.active().range(0, rows, numPartitions=4)
    columns = [f"rpad(cast(id AS string), {shape.row_bytes}, 'x') AS value"]
    if shape.keyed:
        columns.append("cast(id % 10007 AS string) AS key")
    made.selectExpr(*columns).write.parquet(path)


def _run(contender: Contender, path: str, servers: str, topic: str, shape: Shape) -> float:
    df = SparkSession.active().read.parquet(path)
    started = time.perf_counter()
    contender(df, servers, topic, shape)
    return time.perf_counter() - started


def _end() -> None:
    SparkSession.active().stop()


@contextlib.contextmanager
def started_jobs(contenders: dict[str, Contender], shape: Shape, settings: dict[str, str]) -> Iterator[dict[str, Job]]:
    """One job per contender."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = {name: Job(contender, shape, settings, f"{folder}/rows") for name, contender in contenders.items()}
        try:
            yield jobs
        finally:
            for job in jobs.values():
                job.end()


def run_once(name: str, job: Job, topics: Topics, servers: str, rows: int, row_bytes: int) -> float:
    """Run a job once, into a new topic. Returns the time in seconds."""
    topic = topics.make()
    touch_memory(rows * row_bytes)
    seconds = job.run(servers, topic)
    found = topics.records(topic)
    # the end of each transaction takes an offset in each partition that it wrote to
    is_wrong = found < rows if name == OURS_ONCE else found != rows
    if not name.startswith("no-op") and is_wrong:
        raise SystemExit(f"{name}: {found} records of {rows} rows are in Kafka")
    topics.remove(topic)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="130b")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap", help="HOST:PORT of a running broker")
    parser.add_argument("--apache", action="store_true", help="write to Apache Kafka")
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    require_java()
    contenders: dict[str, Contender] = {
        OURS_BY_BATCHES: by_batches,
        OURS_BY_FORMAT: by_format,
        OURS_ONCE: by_batches_once,
        SPARKS: by_spark,
        OURS_BY_ROWS: by_rows,
        CONFLUENT: by_confluent,
        "no-op, Arrow in Python": no_op_batches,
        "no-op, rows in Python": no_op_rows,
        "no-op, in the JVM": no_op_jvm,
    }
    settings = {}
    try:
        settings["spark.jars"] = connector_jars()
    except NoConnector as missing:
        print(f"without {SPARKS}: {missing}")
        del contenders[SPARKS]
    rates: dict[str, list[float]] = {name: [] for name in (*contenders, ALONE)}
    # the jobs end before the broker, because their idle producers would log lost connections
    with broker(arguments) as servers, started_jobs(contenders, shape, settings) as jobs:
        topics = Topics(servers, shape.partitions)
        jobs[OURS_BY_BATCHES].make_frame(arguments.rows)
        # the first round is a warm-up
        for number in range(arguments.rounds + 1):
            # in another order each round, so that no contender always follows the same one
            for name in random.Random(number).sample(list(contenders), len(contenders)):
                # twice, and the second run counts: during the other runs caches go cold, and Spark ends Python workers
                # that are idle for a minute
                run_once(name, jobs[name], topics, servers, arguments.rows, shape.row_bytes)
                seconds = run_once(name, jobs[name], topics, servers, arguments.rows, shape.row_bytes)
                if number:
                    rates[name].append(arguments.rows / seconds)
                    print(f"  round {number}: {name:26} {rates[name][-1]:12,.0f} rows/s", flush=True)
            if number:
                topic = topics.make()
                touch_memory(arguments.rows * shape.row_bytes)
                rates[ALONE].append(send_arrow_alone(servers, topic, arguments.rows, shape))
                topics.remove(topic)
    print(f"\nmedians of {arguments.rounds} rounds, shape {arguments.shape}, {arguments.rows:,} rows, local[2]:")
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, rate in medians.items():
        print(f"  {name:26} {rate:12,.0f} rows/s")
    for ours, theirs in PAIRS:
        if theirs in medians:
            print(f"  {ours} / {theirs}: {medians[ours] / medians[theirs]:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
