"""Tests exactly-once writes whose driver is killed as by `kill -9`, at chosen points of the commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from support.confluent import check_committed, committed_values, create_topic
from support.spark_driver import PREAMBLE
from support.spark_session import needs_spark, python_path
from support.spark_storm import CONFIG, Storm

from headrace.broker import EmbeddedCluster

pytestmark = needs_spark

PATIENCE_S = 300

#: The driver, its JVM and its workers die before the `stop`th call of `name`. `stop` 0: never.
PROGRAM = """
    from headrace.producer.resumption import AbandonedTransactions
    from headrace.producer.spark.commit_log import CommitLog

    name, stop = (folder / "stop").read_text().split()
    kind = AbandonedTransactions if name == "end" else CommitLog
    call = getattr(kind, name)
    calls = [0]
    def counted(*arguments, **keywords):
        calls[0] += 1
        if calls[0] == int(stop):
            os.killpg(os.getpgid(0), signal.SIGKILL)
        return call(*arguments, **keywords)
    setattr(kind, name, counted)

    spark = start("local[2]")
    sink = KafkaSink({"bootstrap.servers": servers}, topic=topic, delivery_guarantee="exactly_once")
    rows = spark.readStream.text(str(folder / "in")).repartition(3)
    writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint"))
    writer.foreachBatch(sink.write_batch).start().awaitTermination()
    spark.stop()
"""


@pytest.mark.parametrize(
    ("name", "stop", "is_recorded"),
    [
        ("append", 1, False),
        ("end", 3, True),
        ("append", 2, True),
    ],
    ids=["before the record", "before the last commit", "before the end of the record"],
)
def test_a_driver_that_is_killed_at_a_chosen_point(tmp_path: Path, name: str, stop: int, is_recorded: bool) -> None:
    lines = [f"row {number}" for number in range(300)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("\n".join(lines))
    path = tmp_path / "driver.py"
    path.write_text(dedent(PREAMBLE) + dedent(PROGRAM))

    def run(name: str, stop: int) -> int:
        (tmp_path / "stop").write_text(f"{name} {stop}")
        return subprocess.run(
            [sys.executable, "-W", "ignore", str(path), cluster.bootstrap_servers, topic, str(tmp_path)],
            env=python_path(),
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            start_new_session=True,
        ).returncode

    with EmbeddedCluster() as cluster:
        topic = create_topic(cluster.bootstrap_servers, partitions=2)
        assert run(name, stop) == -signal.SIGKILL
        states = [found.state.label for found in cluster.transactions().values()]
        assert len(states) == 3
        assert ("Ongoing" in states) == ((name == "append" and stop == 1) or name == "end")
        assert len(committed_values(cluster.bootstrap_servers, topic)) < 300 or stop == 2
        assert run("end", 0) == 0
        check_committed(cluster.bootstrap_servers, topic, sorted(line.encode() for line in lines))
        # a recorded micro-batch is finished, and not written again
        assert len(cluster.transactions()) == (3 if is_recorded else 6)
        assert "Ongoing" not in {found.state.label for found in cluster.transactions().values()}


def test_a_query_whose_driver_is_killed_at_random_and_during_a_commit(tmp_path: Path) -> None:
    """`make storm` does this for longer, and kills workers and brokers, too."""
    seed = int.from_bytes(os.urandom(2), "big")
    with (
        EmbeddedCluster(3, config=CONFIG) as cluster,
        Storm(cluster, tmp_path, sink="format", beside=False, seed=seed) as storm,
    ):
        storm.run(2)
        assert storm.check() >= 500, f"seed {seed}"
