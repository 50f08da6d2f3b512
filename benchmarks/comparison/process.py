"""The process of one measurement: ``python -m comparison.process``, in the directory `benchmarks`.

It reads a job as JSON from its standard input and prints the outcome as the last line of its output: a measurement, or
the reason why the client is unavailable. On an error it exits with 1, and the traceback is on stderr.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .measurement import Measurement
from .shapes import SHAPES, Mode

#: The longest run, in seconds, with the start of its process.
RUN_S = 600


class RunFailedError(Exception):
    """A measurement's process failed; the message has the end of its output."""


class ClientUnavailableError(Exception):
    """The client can't run this shape on this machine; the message says why."""


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: the names of a client and a shape, where to send, how many records, and the keys of TLS."""

    client: str
    shape: str
    bootstrap_servers: str
    topic: str
    records: int
    security: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run(self, environment: dict[str, str]) -> Measurement:
        """Run the job in a new process with these further environment variables.

        Raises ClientUnavailableError, or RunFailedError if the process fails or takes longer than RUN_S.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).resolve().parents[1],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(json.dumps(dataclasses.asdict(self)), RUN_S)
        except BaseException as ended:
            # the whole group: Java's adapter has a process of its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(ended, subprocess.TimeoutExpired):
                raise RunFailedError(f"{self.client}, {self.shape}: not done in {RUN_S} s") from ended
            raise
        lines = output.splitlines()
        if process.returncode != 0 or not lines:
            said = (errors or output).strip()[-2000:]
            raise RunFailedError(f"{self.client}, {self.shape}: exit code {process.returncode}: {said}")
        outcome: dict[str, Any] = json.loads(lines[-1])
        if "unavailable" in outcome:
            raise ClientUnavailableError(outcome["unavailable"])
        return Measurement(**outcome)


def perform(job: Job) -> Measurement:
    """Run the job in this process. Raises Unavailable or the client's error."""
    from .clients import CLIENTS
    from .workload import Workload

    shape = next(each for each in SHAPES if each.name == job.shape)
    if shape.mode is Mode.COLD_START:
        from .cold import measure_cold_start

        return measure_cold_start(job.client, job.records)
    return CLIENTS[job.client](job.bootstrap_servers, job.topic, Workload(shape, job.records), job.security).measure()


def main() -> None:
    from .clients import Unavailable

    job = Job(**json.load(sys.stdin))
    try:
        outcome = perform(job).to_json()
    except Unavailable as missing:
        outcome = {"unavailable": str(missing)}
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
