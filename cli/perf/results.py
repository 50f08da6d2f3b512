"""What `headrace perf` measures: windows of time, and the summary of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass
class Window:
    """The measurements of one stretch of time.

    `at_s`: its end, in seconds since the start. `records`: the records acknowledged in it. `sent`, `failed` and
    `retries` count from the start. `queue_bytes`: the buffer memory in use. `compression_ratio`: the compressed size
    by the uncompressed one.
    """

    at_s: float
    seconds: float
    records: int
    size_bytes: int
    latency_avg_ms: float
    latency_max_ms: float
    latency_ms: dict[str, float]
    sent: int
    failed: int
    retries: int
    in_flight: int
    queue_bytes: int
    batch_bytes: float
    compression_ratio: float


@dataclass
class Summary:
    """The results.

    `sent` and `size_bytes` count the records that were acknowledged or failed; `enqueued_bytes` also those abandoned.
    `latencies` is an HdrHistogram in microseconds. `transactions` are those that were committed.
    """

    sent: int
    failed: int
    size_bytes: int
    enqueued_bytes: int
    elapsed_s: float
    cpu_s: float
    latencies: Any
    windows: list[Window]
    metrics: Mapping[str, float] = field(default_factory=dict)
    first_error: str | None = None
    interrupted: bool = False
    transactions: int = 0

    @property
    def acknowledged(self) -> int:
        return self.sent - self.failed

    def latency_ms(self, percentile: float) -> float:
        """The latency that this percentage of the records did not exceed, in milliseconds."""
        return self.latencies.get_value_at_percentile(percentile) / 1000.0

    def as_dict(self) -> dict[str, Any]:
        """All results, for JSON."""
        seconds = max(self.elapsed_s, 1e-9)
        return {
            "records": self.sent,
            "failed": self.failed,
            "transactions": self.transactions,
            "bytes": self.size_bytes,
            "seconds": self.elapsed_s,
            "records_per_second": self.acknowledged / seconds,
            "mb_per_second": self.size_bytes / seconds / 2**20,
            "cpu_us_per_record": self.cpu_s * 1e6 / max(self.sent, 1),
            "latency_ms": {
                "avg": self.latencies.get_mean_value() / 1000.0,
                "max": self.latencies.get_max_value() / 1000.0,
                **{f"p{percentile:g}": self.latency_ms(percentile) for percentile in PERCENTILES},
            },
            "interrupted": self.interrupted,
            "first_error": self.first_error,
            "windows": [vars(window) for window in self.windows],
            "metrics": dict(self.metrics),
        }
