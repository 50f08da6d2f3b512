"""The row of the cold start, which `benchmarks/cold_start.py` measures."""

from __future__ import annotations

from .clients import Unavailable
from .measurement import Measurement


def measure_cold_start(client: str) -> Measurement:
    """Import and construct a producer in a new interpreter. Raises Unavailable if nothing measures it."""
    try:
        import cold_start  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as missing:
        raise Unavailable("benchmarks/cold_start.py is missing") from missing
    return cold_start.measure(client)
