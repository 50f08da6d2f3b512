"""What one run measures, and how a process measures itself."""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One run of a client. Times are in seconds unless the name says otherwise.

    `written`: the records that the run put into its topic, the warm-up included. `cpu_s`: all threads of the client's
    process, without the broker. `latency_ms`: quantile -> milliseconds, for shapes about latency.
    """

    records: int
    written: int
    seconds: float
    cpu_s: float
    peak_kib: int
    latency_ms: dict[str, float] | None = None

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU time per record."""
        return self.cpu_s / self.records * 1e6

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def measure(records: int, warm_up_records: int, work: Callable[[], Sequence[float] | None]) -> Measurement:
    """Run `work`, which returns when all records are acknowledged, with their latencies in seconds or None."""
    cpu, started = time.process_time(), time.perf_counter()
    latencies = work()
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return Measurement(
        records=records,
        written=records + warm_up_records,
        seconds=seconds,
        cpu_s=cpu_s,
        peak_kib=peak_kib(),
        latency_ms=None if latencies is None else quantiles_ms(latencies),
    )


def quantiles_ms(latencies: Sequence[float]) -> dict[str, float]:
    """The quantiles of latencies in seconds, by nearest rank, in milliseconds."""
    ordered = sorted(latencies)
    return {name: ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1e3 for name, part in QUANTILES.items()}


def peak_kib() -> int:
    """The peak resident memory of this process.

    Linux counts that of the process before `exec`, the one that started this one, into ``ru_maxrss``, but not into
    ``VmHWM``.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return max_rss_kib(resource.getrusage(resource.RUSAGE_SELF))
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def max_rss_kib(used: resource.struct_rusage) -> int:
    """The peak resident memory in a result of `getrusage` or `wait4`, which macOS gives in bytes."""
    return used.ru_maxrss // 1024 if sys.platform == "darwin" else used.ru_maxrss
