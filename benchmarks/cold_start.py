"""The time a new process takes: to create a producer, to print the version, and to serve a broker's first client.

    python benchmarks/cold_start.py [--rounds N]

Each measurement is a process of its own. The programs take turns in every round, after one round that is not counted,
so that all of them find their files in the page cache and their bytecode written. A producer's process ends as soon as
its constructor has returned. The broker's time ends with its response to an ApiVersions request. CPU time is the
kernel's for the whole process; read it rather than wall time where other programs use the machine.
"""

from __future__ import annotations

import argparse
import compileall
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

from headrace import broker, cli, network, producer

_EXIT = "; import os; os._exit(0)"
_CLI = [sys.executable, "-m", "headrace.cli"]
_PROGRAMS = {
    "interpreter": [sys.executable, "-c", _EXIT[2:]],
    "headrace: import": [sys.executable, "-c", f"import headrace.producer{_EXIT}"],
    "confluent-kafka: import": [sys.executable, "-c", f"import confluent_kafka{_EXIT}"],
    "headrace: import and construct": [
        sys.executable,
        "-c",
        f"from headrace.producer import KafkaProducer; p = KafkaProducer(bootstrap_servers='127.0.0.1:1'){_EXIT}",
    ],
    "confluent-kafka: import and construct": [
        sys.executable,
        "-c",
        "from confluent_kafka import Producer; "
        f"p = Producer({{'bootstrap.servers': '127.0.0.1:1', 'log_level': 0}}){_EXIT}",
    ],
    "headrace --version": [*_CLI, "--version"],
}
_BROKER = "headrace broker: first response"
#: ApiVersions version 0, correlation id 1, without a client id.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """The medians of each program, by its name: `wall_ms` and `cpu_ms`.

    The row `ratio` compares importing and constructing with confluent-kafka: of whole processes, and `net_*` without
    the time that the interpreter takes by itself.
    """
    _write_bytecode()
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in (*_PROGRAMS, _BROKER)}
    for _ in range(rounds + 1):
        for name, command in _PROGRAMS.items():
            results[name].append(_run(command))
        results[_BROKER].append(_first_response())
    table = {
        name: {
            "wall_ms": statistics.median(wall for wall, _ in times[1:]),
            "cpu_ms": statistics.median(cpu for _, cpu in times[1:]),
        }
        for name, times in results.items()
    }
    ours, theirs = table["headrace: import and construct"], table["confluent-kafka: import and construct"]
    empty = table["interpreter"]
    table["ratio"] = {
        **{unit: ours[unit] / theirs[unit] for unit in empty},
        **{f"net_{unit}": (ours[unit] - empty[unit]) / (theirs[unit] - empty[unit]) for unit in empty},
    }
    return table


@cache
def _write_bytecode() -> None:
    """Write what an installation writes, also where PYTHONDONTWRITEBYTECODE is set."""
    for package in (network, producer, broker, cli):
        compileall.compile_dir(str(Path(package.__file__ or "").parent), quiet=2)


def start_ms(client: str) -> float:
    """Milliseconds of a process that imports a client and constructs a producer. Raises LookupError if unknown."""
    _write_bytecode()
    return _run(_PROGRAMS[f"{client}: import and construct"])[0]


def _run(command: list[str]) -> tuple[float, float]:
    """Wall and CPU time of a process in milliseconds."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return _wait(process, started)


def _wait(process: subprocess.Popen[bytes], started: float) -> tuple[float, float]:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}; run it alone to see why")
    return (time.perf_counter() - started) * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def _first_response() -> tuple[float, float]:
    """Wall time until a broker's first response, and CPU time of its whole process, with its end."""
    started = time.perf_counter()
    process = subprocess.Popen([*_CLI, "broker"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process.stdout as output:
        host, _, port = output.readline().decode().strip().partition("=")[2].rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(_API_VERSIONS)
            if not connection.recv(4):
                raise RuntimeError("the broker closed the connection instead of responding")
            wall_ms = (time.perf_counter() - started) * 1000
        process.send_signal(signal.SIGTERM)
        output.read()
        _, cpu_ms = _wait(process, started)
    return wall_ms, cpu_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    table = measure(parser.parse_args().rounds)
    print(f"{'':40}{'wall ms':>9}{'CPU ms':>9}")
    for name, row in table.items():
        if name != "ratio":
            print(f"{name:40}{row['wall_ms']:9.1f}{row['cpu_ms']:9.1f}")
    ratio = table["ratio"]
    print(f"{'import and construct, ratio':40}{ratio['wall_ms']:9.2f}{ratio['cpu_ms']:9.2f}")
    print(f"{'the same without the interpreter':40}{ratio['net_wall_ms']:9.2f}{ratio['net_cpu_ms']:9.2f}")


if __name__ == "__main__":
    main()
