"""Tests Spark with executors in separate processes: lost ones, slow ones, and workers that live for one task.

Each test runs its driver in a separate process, because a process has only one SparkContext.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pyspark
import pytest
from support.confluent import read_topic
from support.processes import child
from support.spark_driver import PREAMBLE, drive
from support.spark_session import needs_spark, python_path

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK

pytestmark = needs_spark


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=3) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def values(cluster: EmbeddedCluster, topic: str) -> Counter[bytes | None]:
    return Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))


def test_executors_as_processes_of_their_own(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    told = drive(
        """
        spark = start("local-cluster[2,1,1024]", {"spark.executor.memory": "512m"})
        rows = spark.range(0, 2000, numPartitions=4).selectExpr("cast(id AS string) AS value")
        sink = KafkaSink(bootstrap_servers=servers, topic=topic)
        rows.foreachPartition(sink)
        tell(rows=sink.report.rows, batches=sink.write(rows).rows)
        register(spark)
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        rows.write.format("headrace").options(**options).mode("append").save()
        spark.stop()
        """,
        cluster,
        topic,
        tmp_path,
    )
    assert told == {"rows": 2000, "batches": 2000}
    assert values(cluster, topic) == Counter({b"%d" % number: 3 for number in range(2000)})
    # the data source's report, logged when the write is committed
    log = (tmp_path / "driver.log").read_text()
    assert f"written to {topic} at {cluster.bootstrap_servers}: 2000 rows" in log


def test_an_executor_that_is_killed_in_the_middle(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    told = drive(
        """
        spark = start("local-cluster[2,1,1024]", {"spark.executor.memory": "512m"})
        sink = KafkaSink(bootstrap_servers=servers, topic=topic, linger_ms=0)

        def kill_the_executor():
            daemon = os.getppid()
            jvm = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(jvm, signal.SIGKILL)

        def rows(numbers):
            for number in numbers:
                if number == 3500 and not (folder / "killed").exists():
                    (folder / "killed").touch()
                    kill_the_executor()
                yield {"value": str(number)}

        spark.sparkContext.parallelize(range(4000), 2).mapPartitions(rows).foreachPartition(sink)
        tell(rows=sink.report.rows, tasks=sink.report.tasks)

        def batches(found):
            import pyarrow as pa
            for batch in found:
                for number in batch.column("id").to_pylist():
                    if number == 7500 and not (folder / "killed again").exists():
                        (folder / "killed again").touch()
                        kill_the_executor()
                yield pa.RecordBatch.from_pydict({"value": [str(number) for number in batch.column("id").to_pylist()]})

        df = spark.range(4000, 8000, numPartitions=2).mapInArrow(batches, "value string")
        report = sink.write(df)
        tell(batches=report.rows, batch_tasks=report.tasks)
        spark.stop()
        """,
        cluster,
        topic,
        tmp_path,
    )
    # the reports count only the rows of tasks that Spark considers finished
    assert told == {"rows": 4000, "tasks": 2, "batches": 4000, "batch_tasks": 2}
    assert (tmp_path / "killed").exists()
    assert (tmp_path / "killed again").exists()
    found = values(cluster, topic)
    assert set(found) == {b"%d" % number for number in range(8000)}
    # only rows of the first attempts at the second halves may be duplicated (a worker outlives its executor for a
    # while)
    twice = [int(value or b"") for value, count in found.items() if count > 1]
    assert all(2000 <= number < 4000 or 6000 <= number < 8000 for number in twice)
    assert max(found.values()) <= 2


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark cluster with workers at two addresses of this machine, which Spark treats as two hosts."""
    home = Path(pyspark.__file__).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {**python_path(), "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "PYSPARK_PYTHON": sys.executable}

    def spark_class(host: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host, *arguments],
            env={**common, "SPARK_LOCAL_IP": host},
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    address = f"spark://127.0.0.1:{port}"
    processes = [spark_class("127.0.0.1", "master.Master", "--port", str(port), "--webui-port", "0")]
    for host in ("127.0.0.2", "127.0.0.3"):
        limits = ("--cores", "1", "--memory", "600m", "--webui-port", "0", "--work-dir", str(tmp_path / host))
        processes.append(spark_class(host, "worker.Worker", *limits, address))
    try:
        yield address
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_slow_task_that_is_run_twice_at_a_time(
    cluster: EmbeddedCluster, topic: str, tmp_path: Path, standalone: str
) -> None:
    settings = {
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "50ms",
    }
    told = drive(
        f"""
        spark = start({standalone!r}, {settings!r})
        sink = KafkaSink(bootstrap_servers=servers, topic=topic, linger_ms=0)

        def rows(numbers):
            for number in numbers:
                if number == 3500 and TaskContext.get().attemptNumber() == 0:
                    # until the copy on the other host is done
                    while not (folder / "overtaken").exists():
                        time.sleep(0.02)
                yield {{"value": str(number)}}
            if TaskContext.get().partitionId() == 3 and TaskContext.get().attemptNumber() == 1:
                (folder / "overtaken").touch()

        spark.sparkContext.parallelize(range(4000), 4).mapPartitions(rows).foreachPartition(sink)
        tell(rows=sink.report.rows, tasks=sink.report.tasks)
        spark.stop()
        """,
        cluster,
        topic,
        tmp_path,
    )
    assert told == {"rows": 4000, "tasks": 4}
    assert (tmp_path / "overtaken").exists()
    found = values(cluster, topic)
    assert set(found) == {b"%d" % number for number in range(4000)}
    assert max(found.values()) == 2


def test_workers_that_live_for_one_task(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    """Spark ends them with os._exit, which skips all exit handlers."""
    told = drive(
        """
        spark = start("local[2]", {"spark.python.worker.reuse": "false"})
        sink = KafkaSink(bootstrap_servers=servers, topic=topic, linger_ms=10_000)
        rows = spark.range(0, 2000, numPartitions=10).selectExpr("cast(id AS string) AS value")
        rows.foreachPartition(sink)
        tell(rows=sink.report.rows, batches=sink.write(rows).rows)
        spark.stop()
        """,
        cluster,
        topic,
        tmp_path,
    )
    assert told == {"rows": 2000, "batches": 2000}
    assert values(cluster, topic) == Counter({b"%d" % number: 2 for number in range(2000)})


def test_a_streaming_driver_that_is_killed(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    """The driver is killed with its JVM and workers at any point; the next one resumes from the checkpoint."""
    cluster.create_topic(topic)
    program = """
        spark = start("local[2]")
        register(spark)
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).option("numPartitions", 2)
        rows = source.load().selectExpr("cast(value AS string) AS value")
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        stream = rows.writeStream.format("headrace").options(**options)
        stream.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    """
    path = tmp_path / "driver.py"
    path.write_text(dedent(PREAMBLE) + dedent(program))
    for until in (1200, 2700):
        with child(
            [sys.executable, "-W", "ignore", str(path), cluster.bootstrap_servers, topic, str(tmp_path)],
            env=python_path(),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as driver:
            try:
                while sum(len(cluster.records(topic, partition)) for partition in range(3)) < until:
                    assert driver.poll() is None
                    SYSTEM_CLOCK.sleep(20)
            finally:
                os.killpg(driver.pid, signal.SIGKILL)
    found = values(cluster, topic)
    highest = max(int(value or b"") for value in found)
    assert highest >= 2000
    # except for the last micro-batch, which has not been repeated yet
    committed = highest - highest % 500
    assert set(found) >= {b"%d" % number for number in range(committed)}
    # only micro-batches in progress when a driver was killed were written twice
    assert len({int(value or b"") // 500 for value, count in found.items() if count > 1}) <= 1


def test_what_the_ui_shows(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    """The UI has a write's name, its metrics as accumulators per stage and per task, and no secret anywhere."""
    told = drive(
        """
        from urllib.request import urlopen

        spark = start("local[2]", {"spark.ui.enabled": "true", "spark.ui.port": "0"})
        context = spark.sparkContext
        def shown(what):
            return json.load(urlopen(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{what}"))

        sink = KafkaSink(bootstrap_servers=servers, topic=topic)
        rows = spark.range(0, 2000, numPartitions=4).selectExpr("cast(id AS string) AS value")
        report = sink.write(rows)
        (stage,) = shown("stages")
        tasks = shown(f"stages/{stage['stageId']}/0?details=true")["tasks"].values()
        everything = json.dumps([shown("jobs"), shown("stages"), shown("sql?details=true&planDescription=true")])
        register(spark)
        try:
            rows.write.format("headrace").options(
                **{"kafka.bootstrap.servers": servers, "topic": topic, "kafka.sasl.jaas.config": "password=hunter2"}
            ).mode("append").save()
        except Exception as refused:
            everything += str(refused)
        everything += json.dumps([shown("jobs"), shown("sql?details=true&planDescription=true")])
        tell(
            description=stage["description"],
            accumulators={each["name"]: int(each["value"]) for each in stage["accumulatorUpdates"]},
            by_task=sorted(
                int(each["update"]) for task in tasks for each in task["accumulatorUpdates"] if "rows" in each["name"]
            ),
            report={"rows": report.rows, "bytes": report.bytes, "batches": report.batches, "retries": report.retries},
            secret="hunter2" in everything,
            left=context.getLocalProperty("spark.job.description"),
        )
        spark.stop()
        """,
        cluster,
        topic,
        tmp_path,
    )
    report = told["report"]
    assert told["accumulators"] == {
        "headrace: rows": 2000,
        "headrace: bytes": report["bytes"],
        "headrace: batches": report["batches"],
        "headrace: batches sent again": report["retries"],
    }
    assert report["rows"] == 2000
    assert told["by_task"] == [500] * 4
    assert told["description"] == f"headrace: to {topic} at {cluster.bootstrap_servers}"
    assert told["left"] is None
    assert not told["secret"]
