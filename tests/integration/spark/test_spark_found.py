"""Tests ``format("headrace")`` without `register`: PySpark finds it by the module `pyspark_headrace`.

Each test runs its driver in a separate process, because PySpark searches for data sources once per driver.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.confluent import read_topic
from support.spark_driver import drive
from support.spark_session import needs_spark

import pyspark_headrace
from headrace.broker import EmbeddedCluster

pytestmark = needs_spark


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=3) as cluster:
        yield cluster


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the module, because PySpark's search does not find an editable installation."""
    folder = tmp_path / "site"
    folder.mkdir()
    module = Path(pyspark_headrace.__file__).parent
    (folder / module.name).symlink_to(module, target_is_directory=True)
    return folder


def test_without_register(cluster: EmbeddedCluster, tmp_path: Path, installed: Path) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    told = drive(
        """
        import threading
        spark = start("local[2]")
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        rows = spark.range(0, 100, numPartitions=2).selectExpr("cast(id AS string) AS value")
        def write():
            rows.write.format("headrace").options(**options).mode("append").save()
        def refused(**wrong):
            try:
                rows.write.format("headrace").options(**{**options, **wrong}).mode("append").save()
            except Exception as error:
                return str(error)
        write()
        (folder / "in").mkdir()
        (folder / "in" / "lines.txt").write_text("\\n".join(map(str, range(100))))
        stream = spark.readStream.text(str(folder / "in")).writeStream.trigger(availableNow=True).format("headrace")
        query = stream.options(**options).option("checkpointLocation", str(folder / "checkpoint")).start()
        ended = query.awaitTermination(300)

        # register makes a session active if it is not, and is harmless otherwise
        register(spark)
        write()
        other = spark.newSession()
        register(other)
        thread = threading.Thread(target=lambda: (register(spark), write()))
        thread.start()
        thread.join()
        tell(ended=ended, wrong=refused(topik="t"))
        spark.stop()
        """,
        cluster,
        topic,
        tmp_path,
        paths=(installed,),
    )
    assert told["ended"]
    assert "did you mean topic" in told["wrong"]
    found = Counter(message.value() for message in read_topic(cluster.bootstrap_servers, topic))
    assert found == Counter({b"%d" % number: 4 for number in range(100)})
    assert "Skipping the lookup of Python Data Sources" not in (tmp_path / "driver.log").read_text()


def test_other_data_sources_are_found_where_headrace_is_broken(
    cluster: EmbeddedCluster, tmp_path: Path, installed: Path
) -> None:
    """PySpark aborts its whole search at the first module that can't be imported."""
    (installed / "headrace").mkdir()
    (installed / "headrace" / "__init__.py").write_text("raise ImportError('headrace is broken here')")
    (installed / "pyspark_other.py").write_text(
        "from pyspark.sql.datasource import DataSource\n"
        "class DefaultSource(DataSource):\n"
        "    name = classmethod(lambda cls: 'other')\n"
        "    schema = lambda self: 'a int'\n"
        "    reader = lambda self, schema: Reader()\n"
        "from pyspark.sql.datasource import DataSourceReader\n"
        "class Reader(DataSourceReader):\n"
        "    read = lambda self, partition: iter([(1,)])\n"
    )
    # the driver itself imports the working package; only the JVM's search finds the broken one
    told = drive(
        """
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "site"), os.environ["PYTHONPATH"]])
        spark = start("local[2]")
        other = [row.a for row in spark.read.format("other").load().collect()]
        try:
            spark.range(1).write.format("headrace").mode("append").save()
            refused = None
        except Exception as error:
            refused = str(error)
        tell(other=other, refused=refused)
        spark.stop()
        """,
        cluster,
        "t",
        tmp_path,
    )
    assert told["other"] == [1]
    assert "headrace is broken here" in told["refused"]
