"""Spark's own Kafka connector, from Maven Central, for what reads with it or is compared with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

POM = Path(__file__).with_name("spark-sql-kafka.xml")


class NoConnector(Exception):
    """The connector can't be had here; the message says why."""


#: Tried after the version of the Spark that is installed: its connector works with all of Spark 4.
OLDEST = "4.0.0"


def connector_jars() -> str:
    """The jars of Spark's Kafka connector, as ``spark.jars`` takes them; resolved by Maven once into the user's cache.

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
            raise NoConnector("there is no mvn on the PATH to resolve spark-sql-kafka-0-10 with")
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
