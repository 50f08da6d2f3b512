"""Tests Headrace in a zip passed with ``--py-files``: it runs interpreted, and each executor logs this once."""

from __future__ import annotations

import uuid
import zipfile
from collections import Counter
from pathlib import Path

from support.confluent import read_topic
from support.spark_driver import drive
from support.spark_session import needs_spark

import headrace.network
import headrace.producer
from headrace.broker import EmbeddedCluster

pytestmark = needs_spark


def test_a_zip(tmp_path: Path) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    with zipfile.ZipFile(tmp_path / "headrace.zip", "w") as archive:
        # like `zip -r`: without an entry for the folder Python finds no namespace package in a zip
        archive.writestr("headrace/", "")
        for package in (headrace.network, headrace.producer):
            folder = Path(package.__path__[0])
            for source in folder.rglob("*.py"):
                archive.write(source, Path("headrace", folder.name, source.relative_to(folder)))
    with EmbeddedCluster(num_partitions=3) as cluster:
        told = drive(
            """
            spark = start("local-cluster[2,2,1024]", {"spark.executor.memory": "512m"})
            spark.sparkContext.addPyFile(str(folder / "headrace.zip"))
            sink = KafkaSink(bootstrap_servers=servers, topic=topic)
            rows = spark.range(0, 2000, numPartitions=8).selectExpr("cast(id AS string) AS value")
            for _ in range(2):
                rows.foreachPartition(sink)
            written = sink.write(rows).rows

            def said(_):
                from pathlib import Path
                import headrace.network.clock
                yield headrace.network.clock.__file__, os.getcwd(), Path("stderr").read_text()

            told = spark.sparkContext.parallelize(range(16), 16).mapPartitions(said).collect()
            tell(written=written, files=[file for file, _, _ in told], said={where: text for _, where, text in told})
            spark.stop()
            """,
            cluster,
            topic,
            tmp_path,
        )
        found = Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))
    assert told["written"] == 2000
    assert found == Counter({b"%d" % number: 3 for number in range(2000)})
    assert all("headrace.zip" in file for file in told["files"])
    assert 1 <= len(told["said"]) <= 2
    for text in told["said"].values():
        assert text.count("Headrace runs interpreted on this executor") == 1
        assert "compiled modules can't be loaded from an archive" in text
