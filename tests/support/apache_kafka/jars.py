"""Finds Apache Kafka's jars, and has Maven download them once.

They are kept in the user's cache (`$XDG_CACHE_HOME/headrace/` or `~/.cache/headrace/`), in a folder named after the
hash of the `pom.xml`: a new version is downloaded again, and an old one stays available offline.
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
    """Apache Kafka is not available on this machine; the message names the missing part."""


def java_command() -> str:
    """The `java` to run, from $JAVA_HOME or the path.

    Raises ApacheKafkaUnavailable when there is none, or it is older than Kafka 4.x requires.
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


def compile_plugin(name: str, class_path: str, target: Path) -> None:
    """Compile a Java class beside this file into `target`, with the compiler beside `java`.

    Raises ApacheKafkaUnavailable without a compiler, and RuntimeError with its output when it fails.
    """
    compiler = shutil.which("javac", path=os.path.dirname(java_command())) or shutil.which("javac")
    if compiler is None:
        raise ApacheKafkaUnavailable(
            "javac is missing: there is a Java runtime, but no compiler beside it or on the PATH"
        )
    source = Path(__file__).with_name(f"{name}.java")
    answer = subprocess.run(
        [compiler, "-nowarn", "-proc:none", "-cp", class_path, "-d", str(target), str(source)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if answer.returncode != 0:
        raise RuntimeError(f"{source.name} can't be compiled:\n{answer.stdout}{answer.stderr}")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(Path.home(), ".cache")
    return Path(base, "headrace")


def jars_folder(pom: Path = POM) -> Path:
    """The folder with every jar that `pom` names; resolves them first if necessary.

    Raises ApacheKafkaUnavailable when Maven is missing or can't download them. Safe to call from several processes at
    once: each resolves into its own folder, and the first to finish renames that to the final name.
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
    # -U: retry downloads whose earlier failure Maven remembers
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
