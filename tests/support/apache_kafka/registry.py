"""Confluent's schema registry client and Avro serializers for Java, as a program that carries out commands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .jars import compile_plugin, jars_folder, java_command

POM = Path(__file__).with_name("pom-registry.xml")
PROGRAM = "RegistryPeer"
TIMEOUT_S = 120.0


class RegistryPeer:
    """`RegistryPeer.java`, compiled into `folder`.

    Raises ApacheKafkaUnavailable when Java, its compiler, Maven or Maven Central is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._java = java_command()
        jars = os.path.join(jars_folder(POM), "*")
        compile_plugin(PROGRAM, jars, folder)
        self._class_path = os.pathsep.join((str(folder), jars))

    def run(self, bootstrap_servers: str, registry_url: str, *commands: tuple[str, ...]) -> list[list[str]]:
        """Carry out the commands one after the other in a JVM of their own, and return the fields of each answer.

        Each command is its name and its arguments. An error of the registry is the answer "error", the HTTP status, the
        error code and the message. Raises RuntimeError with the program's output when it ends otherwise.
        """
        command = [
            *(self._java, "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
            *("-cp", self._class_path, PROGRAM, bootstrap_servers, registry_url),
        ]
        lines = "".join("\t".join(each) + "\n" for each in commands)
        done = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=TIMEOUT_S, check=False)
        answers = done.stdout.decode().splitlines()
        if done.returncode != 0 or len(answers) != len(commands):
            raise RuntimeError(f"{PROGRAM} ended with {done.returncode}:\n{done.stdout!r}\n{done.stderr.decode()}")
        return [answer.split("\t") for answer in answers]
