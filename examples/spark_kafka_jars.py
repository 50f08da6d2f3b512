"""Spark's own Kafka connector, from Maven Central, for examples that read with it and benchmarks that compare it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

POM = Path(__file__).with_name("spark-sql-kafka.xml")


class NoConnector(Exception):
    """The connector is not available; the message gives the reason."""


#: The fallback after the installed Spark's version: this connector works with every Spark 4.
OLDEST = "4.0.0"


def connector_jars() -> str:
    """The value of ``spark.jars`` with Spark's Kafka connector; Maven resolves it once into the user's cache.

    Raises NoConnector.
    """
    try:
        return _jars(pyspark.__version__)
    except NoConnector:
        return _jars(OLDEST)


def _jars(version: str) -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    folder = Path(base, "headrace", f"spark-sql-kafka-{version}")
    if not folder.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise NoConnector("Maven (mvn), which resolves spark-sql-kafka-0-10, is not on the PATH")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            resolved = Path(scratch, "jars")
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={resolved}", f"-Dspark.version={version}"]
            command = [maven, "-B", "-q", "-f", str(POM), *goal]
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0 or not resolved.is_dir():
                said = next(iter((done.stdout + done.stderr).splitlines()), "nothing")
                raise NoConnector(f"Maven can't resolve spark-sql-kafka-0-10 {version}: {said[:500]}")
            if not folder.is_dir():
                resolved.rename(folder)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
