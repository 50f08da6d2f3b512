"""A quiet Spark session for the examples: loopback only, only errors logged, and a clear message if Java is missing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

LEAST_JAVA = 17

_GREETINGS = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j",
    b"Setting default log level",
    b"To adjust",
)


def require_java() -> None:
    """Exit with instructions if there is no Java that Spark 4 can use."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    advice = (
        f"Spark needs Java {LEAST_JAVA} or later. Install it (Debian and Ubuntu: apt-get install "
        f"openjdk-{LEAST_JAVA}-jre-headless) and, if it isn't on the PATH, set JAVA_HOME."
    )
    if java is None:
        raise SystemExit(f"There is no java {f'in JAVA_HOME={home}' if home else 'on the PATH'}. {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', said.stderr + said.stdout)
    if version is None or int(version[1]) < LEAST_JAVA:
        found = version[1] if version else "of an unknown version"
        raise SystemExit(f"{java} is Java {found}. {advice}")


def start_spark(name: str, master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with its own JVM, listening on loopback only."""
    require_java()
    # PySpark 4.3 warns about pandas 3, which is not used here; its workers read the filter from the environment
    warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
    os.environ.setdefault("PYTHONWARNINGS", "ignore:PySpark does not yet:FutureWarning")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging = Path(__file__).with_name("log4j2.properties").resolve()
    builder = SparkSession.builder.appName(name).master(master)
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in {**quiet, **(settings or {})}.items():
        builder = builder.config(key, value)
    with _greetings_dropped():
        return builder.getOrCreate()


@contextlib.contextmanager
def _greetings_dropped() -> Iterator[None]:
    """Drop the JVM's startup notices from standard error. All its other output, and that of Spark's Python workers,
    passes through."""
    reading, writing = os.pipe()
    original = os.dup(2)
    sys.stderr.flush()
    os.dup2(writing, 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(writing)
        threading.Thread(target=_pass_on, args=(reading, original), daemon=True).start()


def _pass_on(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            if not line.startswith(_GREETINGS):
                os.write(target, line)
