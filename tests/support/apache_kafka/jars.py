"""Where Apache Kafka's jars are, and how they get there.

They are resolved once by Maven into the user's cache (`$XDG_CACHE_HOME/headrace/` or `~/.cache/headrace/`), in a folder
named by the content of the `pom.xml`, so that a new version resolves anew and an old one is still there offline.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
MAVEN_TIMEOUT_S = 300.0
NEEDED_JAVA = 17


class ApacheKafkaUnavailable(Exception):
    """Apache Kafka can't be had on this machine; the message names the part that is missing."""


def java_command() -> str:
    """The `java` to run, of $JAVA_HOME or on the path, known to be new enough.

    Raises ApacheKafkaUnavailable when there is none, or it is older than Kafka 4.x needs.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if command is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise ApacheKafkaUnavailable(f"java is missing: there is no java {where}")
    answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    said = (answer.stderr or answer.stdout).strip()
    version = re.search(r'version "(\d+)', said)
    if answer.returncode != 0 or version is None:
        raise ApacheKafkaUnavailable(f"java is missing: {command} -version says {said[:300]!r}")
    if int(version[1]) < NEEDED_JAVA:
        raise ApacheKafkaUnavailable(f"java is too old: {command} is {version[1]}, Kafka 4.x needs {NEEDED_JAVA}")
    return command


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    return Path(base, "headrace")


def jars_folder(pom: Path = POM) -> Path:
    """The folder with every jar that `pom` names, resolving them first where that has not been done yet.

    Raises ApacheKafkaUnavailable when Maven is missing or can't reach what it needs. Any number of processes may call
    it at once: each resolves into a folder of its own, and the first one to finish gives it its name.
    """
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    folder = _cache_folder() / f"apache-kafka-{key}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise ApacheKafkaUnavailable(
            "mvn is missing: Maven resolves Apache Kafka's jars, and there is no mvn on the PATH"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="resolving-") as scratch:
        resolved = Path(scratch, "jars")
        _resolve(maven, pom, resolved, Path(scratch))
        try:
            resolved.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _resolve(maven: str, pom: Path, target: Path, scratch: Path) -> None:
    # -U: a failed look-up of an earlier day, which Maven remembers, is not taken for an answer
    command = [maven, "-B", "-q", "-U", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    try:
        answer = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ApacheKafkaUnavailable(
            f"Maven Central is unreachable: mvn was not done in {late.timeout:.0f} s"
        ) from late
    if answer.returncode != 0 or not target.is_dir():
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in (answer.stdout + answer.stderr).splitlines()]
        errors = [line for line in lines if line.startswith("[ERROR] ")]
        said = (errors or [line for line in lines if line] or ["nothing"])[0]
        raise ApacheKafkaUnavailable(f"Maven Central is unreachable: mvn (exit code {answer.returncode}) says: {said}")
