"""One Spark session for all tests that need one, in the process that runs them."""

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

#: Spark's workers are processes of their own. `make test` runs these with the compiled modules only: one run is enough.
needs_spark = [
    pytest.mark.xdist_group("spark"),
    # Spark's start is the first test's time, and a task that failed takes its worker along: minutes, under load
    pytest.mark.timeout(600),
    # PySpark 4.3 says so of pandas 3, which nothing here uses
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning:pyspark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning:py4j"),
    # PySpark 4.0 and 4.1 leave the sockets over which they collect to Python's own collector
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]

#: What a job that failed raises; of an RDD, before PySpark 4.2, what the JVM raised.
JOB_ERRORS = (PySparkException, Py4JJavaError)


def java_is_missing() -> str | None:
    """Why Spark can't run here; None where it can."""
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
    """What a process started by a test needs in its environment to find the package, `support`, and `more`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, more), *(path for path in sys.path if path)])}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two worker threads, in which a task that fails is tried three times in all."""
    session = start("local[2,3]")
    yield session
    session.stop()
