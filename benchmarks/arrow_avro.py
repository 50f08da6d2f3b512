"""Whole Arrow tables as Avro: `send_arrow` compared with arrow-kafka-pyo3, which does the same on librdkafka.

    pip install arrow-kafka-pyo3
    python benchmarks/arrow_avro.py [--broker mock|embedded|apache-kafka] [--rows N] [--rounds N]

The table has eight columns: whole numbers, floating-point numbers, text, booleans, and a time, one of them with nulls.
Both derive the schema, register it with the embedded registry in its own process, and send idempotently with acks=all
and the same linger and batch size, with the first column as the key (`keyed`) or without keys. The time begins after
one acknowledged table and ends when every record is acknowledged. They take turns, each in its own process; the table
has medians. `encode` is the encoding alone. A client that is not installed is left out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa
from comparison.brokers import BROKERS, select_broker

CLIENTS = ("headrace", "arrow-kafka-pyo3")
LINGER_MS = 20
BATCH_SIZE = 131072
TABLE_ROWS = 10_000


def flights(rows: int) -> pa.Table:
    """A table of the widths of a usual business record: about 70 bytes as Avro."""
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()).cast(pa.string()),
            "flight": pa.array([number % 9000 for number in range(rows)], pa.int32()),
            "distance": pa.array([number * 17 for number in range(rows)], pa.int64()),
            "delay": pa.array([None if number % 10 == 0 else number / 7 for number in range(rows)], pa.float64()),
            "carrier": pa.array([("UA", "DL", "AA")[number % 3] for number in range(rows)]),
            "origin": pa.array([f"airport {number % 50}" for number in range(rows)]),
            "late": pa.array([number % 4 == 0 for number in range(rows)]),
            "at": pa.array(
                [at + datetime.timedelta(minutes=number) for number in range(rows)], pa.timestamp("us", "UTC")
            ),
        }
    )


def run_headrace(servers: str, registry: str, topic: str, rows: int, keyed: bool) -> float:
    """Rows per second of `send_arrow`, acknowledgements included."""
    from headrace.producer import KafkaProducer
    from headrace.registry import AvroSerializer, SchemaRegistryClient

    table = flights(TABLE_ROWS)
    if keyed:
        table = table.append_column("key", table["id"])
    with KafkaProducer(
        bootstrap_servers=servers,
        linger_ms=LINGER_MS,
        batch_size=BATCH_SIZE,
        key_serializer="string",
        value_serializer=AvroSerializer(SchemaRegistryClient({"url": registry})),
    ) as producer:
        producer.send_arrow(topic, table, value=None).get(60)
        started = time.perf_counter()
        futures = [producer.send_arrow(topic, table, value=None) for _ in range(rows // TABLE_ROWS)]
        producer.flush()
        for future in futures:
            future.get(60)
        return rows / (time.perf_counter() - started)


def run_pyo3(servers: str, registry: str, topic: str, rows: int, keyed: bool) -> float:
    """Rows per second of arrow-kafka-pyo3, acknowledgements included."""
    from arrow_kafka_pyo3 import ArrowKafkaSink  # pyright: ignore[reportMissingImports]

    table = flights(TABLE_ROWS)
    keys = ["id"] if keyed else None
    sink = ArrowKafkaSink(
        servers,
        registry,
        max_in_flight=5,
        linger_ms=LINGER_MS,
        batch_size=BATCH_SIZE,
        enable_idempotence=True,
        acks="all",
    )
    sink.consume_arrow(table, topic, key_cols=keys)
    sink.flush(timeout_ms=60_000)
    started = time.perf_counter()
    for _ in range(rows // TABLE_ROWS):
        sink.consume_arrow(table, topic, key_cols=keys)
    sink.flush(timeout_ms=60_000)
    rate = rows / (time.perf_counter() - started)
    sink.close()
    return rate


def run_encode(rows: int) -> float:
    """Rows per second of the encoding alone."""
    import fastavro

    from headrace.producer.columns.avro import avro_column
    from headrace.producer.columns.avro_schema import derived_schema

    batch = flights(TABLE_ROWS).combine_chunks().to_batches()[0]
    column = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    schema = fastavro.parse_schema(derived_schema(column.type, "flights_value"))
    started = time.perf_counter()
    for _ in range(rows // TABLE_ROWS):
        avro_column(column, schema, b"\0\0\0\0\1", "", 0)
    return rows / (time.perf_counter() - started)


def measure(broker: Any, client: str, registry: str, rows: int, keyed: bool) -> float:
    """One run in its own process. Checks that the topic has every row."""
    with broker.topic(6) as topic:
        command = [
            sys.executable,
            __file__,
            "--child",
            client,
            topic.bootstrap_servers,
            registry,
            topic.name,
            str(rows),
        ]
        done = subprocess.run([*command, *(["keyed"] if keyed else [])], stdout=subprocess.PIPE, check=True, text=True)
        stored = topic.records()
        if stored != rows + TABLE_ROWS:
            raise SystemExit(f"{client}: the topic has {stored} records, not {rows + TABLE_ROWS}")
    return json.loads(done.stdout)


def child(client: str, servers: str, registry: str, topic: str, rows: str, *keyed: str) -> None:
    """The measuring process: prints rows per second."""
    run = run_headrace if client == "headrace" else run_pyo3
    print(run(servers, registry, topic, int(rows), bool(keyed)))


def is_installed(client: str) -> bool:
    """Whether a client can be measured here."""
    if client == "headrace":
        return True
    try:
        import arrow_kafka_pyo3  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    return True


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=sorted(BROKERS), default="mock")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    clients = [client for client in CLIENTS if is_installed(client)]
    rates: dict[tuple[str, bool], list[float]] = {}
    program = "import sys; from headrace.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", program, "registry", "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            registry = server.stdout.readline().strip().partition("=")[2]
            with select_broker(options.broker)() as broker:
                for _ in range(options.rounds):
                    for keyed in (False, True):
                        for client in clients:
                            rate = measure(broker, client, registry, options.rows, keyed)
                            rates.setdefault((client, keyed), []).append(rate)
        finally:
            server.terminate()
    print(f"encode             {run_encode(options.rows):12,.0f} rows/s")
    for (client, keyed), found in rates.items():
        print(f"{client:18} {statistics.median(found):12,.0f} rows/s{' keyed' if keyed else ''}")


if __name__ == "__main__":
    main()
