"""Streaming queries whose driver, workers and brokers are killed: read_committed has to see each row of the input once.

python tests/support/spark_storm.py --kills 50
python tests/support/spark_storm.py --kills 50 --sink foreachBatch --beside   # and Spark's own Kafka sink, to compare

The input is Spark's source rate-micro-batch, which numbers its rows, so that the output is known. Half of the drivers
are killed when the log of commits grows, which is between the record of a micro-batch and its last commit, or shortly
after. The others, a Python worker, or a broker are killed at random. A driver that ends is started again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK
from support.confluent import committed_values, create_topic
from support.pages import ROOT
from support.spark_session import python_path

ROWS_PER_BATCH = 100
TASKS = 2
PATIENCE_S = 300.0
#: Seconds between two kills, and for which a broker is down.
KILL_EVERY_S = (0.5, 4.0)
DOWN_S = (0.2, 3.0)
LOG_OF_COMMITS = "__headrace_commits"
SINKS = ("format", "foreachBatch")
CONFIG = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


def drive(servers: str, topic: str, beside: str, sink: str, folder: str) -> None:
    """A driver, until it is killed or a query fails."""
    from headrace.producer.spark import KafkaSink, register  # noqa: PLC0415
    from support.spark_session import start  # noqa: PLC0415  (only drivers need Spark)

    settings = {}
    if beside:
        sys.path.insert(0, str(ROOT / "examples"))
        from spark_kafka_jars import connector_jars  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

        settings["spark.jars"] = connector_jars()
    spark = start("local[2,4]", settings)
    register(spark)
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "delivery.guarantee": "exactly_once"}

    def writer(name: str):  # type: ignore[no-untyped-def]
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        rows = source.option("numPartitions", TASKS).load().selectExpr("cast(value AS string) AS value")
        return rows.writeStream.option("checkpointLocation", f"{folder}/{name}")

    if sink == "format":
        writer("headrace").format("headrace").options(**options).start()
    else:
        writer("headrace").foreachBatch(KafkaSink(options).write_batch).start()
    if beside:
        writer("spark").format("kafka").options(**{**options, "topic": beside}).start()
    spark.streams.awaitAnyTermination()
    failed = [str(query.exception()) for query in spark.streams.active if query.exception() is not None]
    raise SystemExit("\n".join(failed) or "a query has ended")


class Storm:
    """A driver with its query, which is started again whenever it ends, and what is done to it."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, *, sink: str, beside: bool, seed: int) -> None:
        self.cluster = cluster
        self.folder = folder
        self.sink = sink
        self.random = random.Random(seed)
        self.topic = create_topic(cluster.bootstrap_servers, partitions=3, replication_factor=3)
        self.beside = create_topic(cluster.bootstrap_servers, partitions=3, replication_factor=3) if beside else ""
        self.log = folder / "driver.log"
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self._driver: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Storm:
        self._start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._kill_driver()

    def _start(self) -> None:
        self.starts += 1
        arguments = (self.cluster.bootstrap_servers, self.topic, self.beside, self.sink, str(self.folder))
        with self.log.open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-W", "ignore", __file__, "--drive", *arguments],
                env=python_path(),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _kill_driver(self) -> None:
        assert self._driver is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()

    def keep_running(self) -> None:
        """Start the driver again if it has ended. An error that loses rows ends the storm."""
        assert self._driver is not None
        if self._driver.poll() is not None:
            told = self.log.read_text(errors="replace")
            assert "DeliveryPartlyLostError" not in told, told[-3000:]
            self._kill_driver()
            self._start()

    def rows(self) -> int:
        """The number of records in the topic, also those that are not committed."""
        return sum(len(self.cluster.records(self.topic, partition)) for partition in range(3))

    def progress(self) -> int:
        """The number of micro-batches that Spark considers written."""
        commits = self.folder / "headrace" / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1) + 1 if commits.is_dir() else 0

    def wait_for_progress(self, batches: int = 2) -> None:
        """Wait until this number of further micro-batches is written."""
        goal = self.progress() + batches
        deadline_ms = SYSTEM_CLOCK.now_ms() + PATIENCE_S * 1000
        while self.progress() < goal:
            self.keep_running()
            assert SYSTEM_CLOCK.now_ms() < deadline_ms, self.log.read_text(errors="replace")[-3000:]
            time.sleep(0.05)

    # --- Kills ---

    def kill_driver_at_random(self) -> None:
        time.sleep(self.random.uniform(*KILL_EVERY_S))
        self._kill_driver()

    def kill_driver_during_a_commit(self) -> None:
        recorded = len(self.cluster.records(LOG_OF_COMMITS, 0))
        deadline_ms = SYSTEM_CLOCK.now_ms() + PATIENCE_S * 1000
        while len(self.cluster.records(LOG_OF_COMMITS, 0)) == recorded and SYSTEM_CLOCK.now_ms() < deadline_ms:
            self.keep_running()
        time.sleep(self.random.uniform(0, 0.02))
        self._kill_driver()

    def kill_a_worker(self) -> None:
        time.sleep(self.random.uniform(*KILL_EVERY_S))
        workers = self._workers()
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(workers), signal.SIGKILL)

    def kill_a_broker(self) -> None:
        time.sleep(self.random.uniform(*KILL_EVERY_S))
        broker = self.random.choice(list(self.cluster.node_ids))
        self.cluster.kill_broker(broker)
        time.sleep(self.random.uniform(*DOWN_S))
        self.cluster.start_broker(broker)

    def _workers(self) -> list[int]:
        """The Python workers of the driver's session that its daemons have forked."""
        assert self._driver is not None
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                is_ours = int(fields[3]) == self._driver.pid
                if is_ours and b"pyspark.daemon" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found

    def run(self, kills: int) -> None:
        """Kill something this number of times, with progress between two kills."""
        kinds = (
            self.kill_driver_at_random,
            self.kill_driver_during_a_commit,
            self.kill_a_worker,
            self.kill_a_broker,
        )
        self.wait_for_progress()
        for number in range(kills):
            # each kind at least once
            kind = kinds[number] if number < len(kinds) else self.random.choice(kinds)
            kind()
            self.kills[kind.__name__] += 1
            self.keep_running()
            self.wait_for_progress(1)

    # --- The outcome ---

    def check(self) -> int:
        """Stop, and compare what is committed with the input. Returns the number of rows."""
        self.wait_for_progress()
        self._kill_driver()
        # the last micro-batch may be in the log of commits and not finished
        self._start()
        self.wait_for_progress()
        self._kill_driver()
        batches = self.progress()
        found = Counter(committed_values(self.cluster.bootstrap_servers, self.topic))
        expected = {b"%d" % number for number in range(batches * ROWS_PER_BATCH)}
        missing = expected - found.keys()
        assert not missing, f"{len(missing)} rows are missing, as {sorted(missing)[:5]}"
        doubled = [value for value, count in found.items() if count > 1]
        assert not doubled, f"{len(doubled)} rows were written twice, as {sorted(doubled)[:5]}"
        # the driver may have been killed between its commit and Spark's, and no later
        more = found.keys() - expected
        following = {b"%d" % (batches * ROWS_PER_BATCH + number) for number in range(ROWS_PER_BATCH)}
        assert more <= following, f"{len(more)} rows are not in the input, as {sorted(more)[:5]}"
        return len(found)

    def doubles_beside(self) -> tuple[int, int]:
        """The rows that Spark's own sink wrote, and how many of them more than once."""
        found = Counter(committed_values(self.cluster.bootstrap_servers, self.beside))
        return len(found), sum(count > 1 for count in found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--sink", choices=SINKS, default="format")
    parser.add_argument("--beside", action="store_true", help="also write with Spark's own Kafka sink")
    parser.add_argument("--level", type=int, default=2, help="of the embedded cluster's transaction.version")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(*options.drive)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(3, config=CONFIG, features={"transaction.version": options.level}) as cluster,
        Storm(cluster, Path(folder), sink=options.sink, beside=options.beside, seed=options.seed) as storm,
    ):
        storm.run(options.kills)
        rows = storm.check()
        kills = ", ".join(f"{count} × {name}" for name, count in sorted(storm.kills.items()))
        print(f"{options.sink}: {rows} rows, {storm.starts} starts of the driver ({kills}): each row once")
        if options.beside:
            written, doubled = storm.doubles_beside()
            print(f"Spark's own sink beside it: {written} rows, {doubled} of them more than once")


if __name__ == "__main__":
    main()
