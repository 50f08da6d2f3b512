"""Runs Spark drivers in separate processes, because a process has only one SparkContext."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

from headrace.broker import EmbeddedCluster

from .spark_session import python_path

PREAMBLE = """
    import json, os, signal, sys, time
    from pathlib import Path
    import pyspark
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["SPARK_SCALA_VERSION"] = "2.13"
    from pyspark import TaskContext
    from headrace.producer.spark import KafkaSink, register
    from support.spark_session import start

    servers, topic, folder = sys.argv[1:]
    folder = Path(folder)
    def tell(**found):
        print("TOLD", json.dumps(found), flush=True)
"""


def drive(
    program: str,
    cluster: EmbeddedCluster | Mapping[str, str],
    topic: str,
    tmp_path: Path,
    *,
    paths: tuple[Path, ...] = (),
) -> dict[str, Any]:
    """Run a driver program, which may also import from `paths`, and return what it reported.

    Instead of a cluster, whose addresses the program has as `servers`, a client's configuration may be given, which it
    has there as JSON. Its log is left in `tmp_path`.
    """
    servers = json.dumps(cluster) if isinstance(cluster, Mapping) else cluster.bootstrap_servers
    path = tmp_path / "driver.py"
    path.write_text(dedent(PREAMBLE) + dedent(program))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path), servers, topic, str(tmp_path)],
        env=python_path(*paths),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    (tmp_path / "driver.log").write_text(done.stderr)
    told: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("TOLD "):
            told.update(json.loads(line[5:]))
    return told
