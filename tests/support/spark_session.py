"""One Spark session, in the test process, for all tests that need one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

#: Spark's workers are separate processes. `make test` runs these tests only with the compiled modules, which suffices.
needs_spark = [
    pytest.mark.xdist_group("spark"),
    # the first test includes Spark's start, and a failed task ends its worker: this takes minutes under load
    pytest.mark.timeout(600),
    # PySpark 4.3 warns about pandas 3, which nothing here uses
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning:py4j"),
    # PySpark 4.0 and 4.1 do not close the sockets of `collect`; the garbage collector does
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]

#: The errors of a failed job. Before PySpark 4.2 RDDs raise the JVM's error.
JOB_ERRORS = (PySparkException, Py4JJavaError)


def java_is_missing() -> str | None:
    """The reason why Spark can't run here, or None if it can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    if java is None:
        return "no Java, which Spark needs (17 or later)"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    digits = version.partition('version "')[2].partition(".")[0]
    return None if digits.isdigit() and int(digits) >= 17 else f"Java {digits or '?'}, and Spark needs 17 or later"


def start(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session that logs nothing and listens on loopback only."""
    problem = java_is_missing()
    if problem is not None:
        pytest.skip(problem)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    }
    builder = SparkSession.builder.master(master).appName("headrace tests")
    for name, value in {**quiet, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def python_path(*more: Path) -> dict[str, str]:
    """The environment in which a process started by a test finds the package, `support`, and `more`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, more), *(path for path in sys.path if path)])}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two worker threads, in which a failing task has three attempts in total."""
    session = start("local[2,3]")
    yield session
    session.stop()
