"""The row of the cold start, which `benchmarks/cold_start.py` measures.

Of that module it uses one function: ``start_ms(client: str) -> float`` starts a new interpreter that imports the client
of this name in `clients.CLIENTS` and constructs a producer, and returns how many milliseconds that took. It raises
LookupError for a client that it doesn't know.
"""

from __future__ import annotations

import resource
import time

from .clients import Unavailable
from .measurement import Measurement, max_rss_kib, quantiles_ms


def measure_cold_start(client: str, starts: int) -> Measurement:
    """Start `starts` interpreters one after the other; CPU and memory are theirs. Raises Unavailable if it can't."""
    try:
        from cold_start import start_ms  # pyright: ignore[reportMissingImports]
    except ImportError as missing:
        raise Unavailable(f"benchmarks/cold_start.py: {missing}") from missing
    began = time.perf_counter()
    try:
        latencies = [start_ms(client) / 1e3 for _ in range(starts)]
    except LookupError as unknown:
        raise Unavailable(f"benchmarks/cold_start.py has no {client}") from unknown
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Measurement(
        records=starts,
        written=0,
        seconds=time.perf_counter() - began,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_kib=max_rss_kib(used),
        latency_ms=quantiles_ms(latencies),
    )
