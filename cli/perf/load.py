"""The load of `headrace perf`: the records, their pace, and the measurements.

One thread sends. Timed records carry a callback, which runs on the producer's callback thread and adds to a histogram.
Each timed record stands for those sent since the one before, so that the histogram counts every record. The reports are
made on the sending thread, between two records.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import KafkaConfigurationError, KafkaError
from ...producer import KafkaProducer
from ..parallel import within
from .report import Report
from .results import PERCENTILES, Summary, Window

_TIMED_PER_SECOND = 20_000
_RANDOM_VALUES = 1024
_RANDOM_BYTES = 16 * 2**20
_LETTERS = bytes(range(65, 91))
_MAX_LATENCY_US = 3_600_000_000
_CHECK_EVERY_S = 0.02
_WINDOW_S = 1.0
#: Seconds that the abort of a transaction may take after Ctrl-C.
_ABORT_TIMEOUT_S = 0.3
#: Seconds that a producer may take to end after Ctrl-C.
_CLOSE_TIMEOUT_S = 0.5


class Payloads:
    """The values to send."""

    def __init__(self, values: Callable[[], Iterator[bytes]], size_text: str) -> None:
        """`values` returns an endless iterator; `size_text` describes their size."""
        self.values = values
        self.size_text = size_text

    @classmethod
    def random(cls, size_bytes: int) -> Payloads:
        """Values of random letters, as in Kafka's tool, from a fixed seed. Not too many: making them costs time."""
        source = random.Random(0)
        count = max(1, min(_RANDOM_VALUES, _RANDOM_BYTES // max(size_bytes, 1)))
        made = [bytes(source.choices(_LETTERS, k=size_bytes)) for _ in range(count)]
        return cls(lambda: _cycle(made), f"{size_bytes} bytes")

    @classmethod
    def picked(cls, values: list[bytes]) -> Payloads:
        """Values picked at random, from a fixed seed."""
        mean = sum(map(len, values)) / len(values)
        return cls(lambda: _pick(values), f"{mean:.0f} bytes on average")

    @classmethod
    def counting(cls) -> Payloads:
        """The numbers from 0 as text."""
        return cls(_count, "a few bytes")


def _cycle(values: list[bytes]) -> Iterator[bytes]:
    while True:
        yield from values


def _pick(values: list[bytes]) -> Iterator[bytes]:
    source = random.Random(0)
    while True:
        yield from source.choices(values, k=_RANDOM_VALUES)


def _count() -> Iterator[bytes]:
    number = 0
    while True:
        yield b"%d" % number
        number += 1


class TimedSend:
    """Sends one record after the other."""

    def __init__(self, topic: str, payloads: Payloads, *, keys: int, headers: int) -> None:
        """`keys` is the number of different keys, 0 for records without one; `headers` the number per record."""
        self.topic = topic
        self.values = payloads.values()
        self._keys = _cycle([b"%d" % number for number in range(keys)]) if keys else None
        self._headers = [(f"header-{number}", b"%d" % number) for number in range(headers)] or None

    def send(self, producer: KafkaProducer, callback: Callable[..., object] | None) -> int:
        """Send the next record. Returns the size of its value. Raises KafkaError."""
        value = next(self.values)
        key = None if self._keys is None else next(self._keys)
        producer.send(self.topic, value, key, self._headers, callback=callback)
        return len(value)


class Latencies:
    """A histogram of latencies, in microseconds with three significant digits. Any thread."""

    def __init__(self) -> None:
        try:
            from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - of the extra cli
        except ImportError:
            raise KafkaConfigurationError(
                "the package hdrhistogram is missing; install it with: pip install 'headrace[cli]'"
            ) from None
        self._new: Callable[[], Any] = lambda: HdrHistogram(1, _MAX_LATENCY_US, 3)
        self._lock = threading.Lock()
        self._all = self._new()
        self._window = self._new()

    def record(self, latency_us: float, count: int) -> None:
        """Add `count` records of one latency."""
        value = min(max(int(latency_us), 1), _MAX_LATENCY_US)
        with self._lock:
            self._window.record_value(value, count)

    def take_window(self) -> Any:
        """The histogram since the last call, added to that of all."""
        with self._lock:
            window, self._window = self._window, self._new()
        self._all.add(window)
        return window

    @property
    def all(self) -> Any:
        """The histogram of everything taken so far. For the thread that calls `take_window`."""
        return self._all


class Load:
    """One run. `run` may be called once."""

    def __init__(
        self,
        config: Mapping[str, Any],
        source: TimedSend,
        *,
        count: int,
        warmup: int,
        throughput: float,
        byte_limit: int | None,
        report: Report,
        interval_ms: int = 5000,
        seconds: float = math.inf,
        drain: bool = True,
        transaction_ms: int | None = None,
    ) -> None:
        """`config` has the producer's keys.

        `source` sends the records.
        `count` and `warmup` are the numbers of records that are measured, and sent before them.
        `throughput` is in records per second, unlimited if not positive.
        `byte_limit` ends the run after this many bytes of values.
        `report` is called with each window.
        `interval_ms` is the time between reports.
        `seconds` ends the run after this time.
        `drain` waits for the acknowledgements of all records. Otherwise the run counts only those acknowledged in time,
        and the rest is abandoned.
        `transaction_ms` is the time after which each transaction is committed; None for a producer without.
        """
        self._config = config
        self._source = source
        self._count = count
        self._warmup = warmup
        self._throughput = throughput
        self._byte_limit = math.inf if byte_limit is None else byte_limit
        self._interval_s = interval_ms / 1000.0
        self._seconds = seconds
        self._drain = drain
        self._transaction_s = None if transaction_ms is None else transaction_ms / 1000.0
        self._transaction_ends_s = math.inf
        self._transactions = 0
        self._is_over = False
        self._report = report
        self._latencies = Latencies()
        self._first_error: str | None = None
        self._windows: list[Window] = []
        self._sent = 0
        self._bytes = 0
        self._every = 1
        self._began_s = 0.0
        self._window_began_s = 0.0
        self._reported_s = 0.0

    def run(self) -> Summary:
        """Send everything and wait for the acknowledgements, or until Ctrl-C. Raises KafkaError."""
        producer = KafkaProducer(**self._config)
        interrupted = False
        try:
            # a wrong address or topic is reported at once, and not once per record
            producer.partitions_for(self._source.topic)
            if self._transaction_s is not None:
                producer.init_transactions()
                self._begin_transaction(producer)
            for _ in range(self._warmup):
                self._source.send(producer, None)
            if self._warmup and self._transaction_s is not None:
                producer.commit_transaction()
                self._begin_transaction(producer)
            producer.flush()
            cpu_s = _cpu_seconds()
            self._began_s = self._window_began_s = self._reported_s = _now_s()
            try:
                self._send_all(producer)
                if self._transaction_s is not None:
                    self._commit_transaction(producer)
                elif self._drain:
                    producer.flush()
            except KeyboardInterrupt:
                interrupted = True
            elapsed_s = _now_s() - self._began_s
            cpu_s = _cpu_seconds() - cpu_s
            is_cut = interrupted or not self._drain
            metrics = _plain(producer)
            if is_cut:
                self._end_window(metrics)
            if interrupted and self._transaction_s is not None:
                self._abort_transaction(producer)
        finally:
            producer.close(None if self._drain and not interrupted else 0 if not interrupted else _CLOSE_TIMEOUT_S)
        if not is_cut:
            self._end_window(metrics)
        failed = int(metrics["record-error-total"])
        histogram = self._latencies.all
        sent = histogram.get_total_count() + failed if is_cut else self._sent
        return Summary(
            sent=sent,
            failed=failed,
            size_bytes=int(self._bytes * sent / max(self._sent, 1)),
            enqueued_bytes=self._bytes,
            elapsed_s=elapsed_s,
            cpu_s=cpu_s,
            latencies=histogram,
            windows=self._windows,
            metrics=metrics,
            first_error=self._first_error,
            interrupted=interrupted,
            transactions=self._transactions,
        )

    def _begin_transaction(self, producer: KafkaProducer) -> None:
        assert self._transaction_s is not None
        producer.begin_transaction()
        self._transaction_ends_s = _now_s() + self._transaction_s

    def _commit_transaction(self, producer: KafkaProducer) -> None:
        producer.commit_transaction()
        self._transactions += 1

    def _abort_transaction(self, producer: KafkaProducer) -> None:
        """End the transaction after Ctrl-C: consumers would wait for it until transaction.timeout.ms."""
        # the records that are still pending fail, but not because of the cluster
        self._is_over = True
        with contextlib.suppress(TimeoutError, KafkaError):
            within(producer.abort_transaction, _ABORT_TIMEOUT_S)

    def _send_all(self, producer: KafkaProducer) -> None:
        untimed = 0
        check_s = 0.0
        now = _now_s
        end_s = self._began_s + self._seconds
        while self._sent < self._count and self._bytes < self._byte_limit:
            untimed += 1
            if untimed >= self._every or self._sent == self._count - 1:
                began_s = now()
                callback = partial(self._acknowledged, began_s, untimed)
                untimed = 0
                self._bytes += self._source.send(producer, callback)
                if began_s >= check_s:
                    if began_s >= end_s:
                        self._sent += 1
                        return
                    check_s = began_s + _CHECK_EVERY_S
                    self._check(producer, began_s)
            else:
                self._bytes += self._source.send(producer, None)
            self._sent += 1
            if self._transaction_s is not None and now() >= self._transaction_ends_s:
                self._commit_transaction(producer)
                self._begin_transaction(producer)
            if self._throughput > 0:
                self._wait_for_turn(producer)

    def _wait_for_turn(self, producer: KafkaProducer) -> None:
        due_s = self._began_s + self._sent / self._throughput
        while (wait_s := due_s - _now_s()) > 0:
            SYSTEM_CLOCK.sleep(min(wait_s, _CHECK_EVERY_S) * 1000.0)
            self._check(producer, _now_s())

    def _check(self, producer: KafkaProducer, now_s: float) -> None:
        elapsed_s = now_s - self._began_s
        if elapsed_s > _CHECK_EVERY_S:
            self._every = max(1, math.ceil(self._sent / elapsed_s / _TIMED_PER_SECOND))
        if now_s - self._window_began_s >= min(_WINDOW_S, self._interval_s):
            self._end_window(_plain(producer))

    def _end_window(self, metrics: Mapping[str, float]) -> None:
        now_s = _now_s()
        histogram = self._latencies.take_window()
        count = histogram.get_total_count()
        seconds = now_s - self._window_began_s
        window = Window(
            at_s=round(now_s - self._began_s, 3),
            seconds=seconds,
            records=count,
            size_bytes=int(self._bytes / max(self._sent, 1) * count),
            latency_avg_ms=histogram.get_mean_value() / 1000.0 if count else 0.0,
            latency_max_ms=histogram.get_max_value() / 1000.0 if count else 0.0,
            latency_ms={
                f"p{each:g}": histogram.get_value_at_percentile(each) / 1000.0 if count else 0.0 for each in PERCENTILES
            },
            sent=self._sent,
            failed=int(metrics["record-error-total"]),
            retries=int(metrics["record-retry-total"]),
            in_flight=int(metrics["requests-in-flight"]),
            queue_bytes=int(metrics["buffer-total-bytes"] - metrics["buffer-available-bytes"]),
            batch_bytes=_number(metrics["batch-size-avg"]),
            compression_ratio=_number(metrics["compression-rate-avg"]),
        )
        self._windows.append(window)
        self._window_began_s = now_s
        is_due = now_s - self._reported_s >= self._interval_s
        if is_due:
            self._reported_s = now_s
        self._report.window(window, is_due=is_due)

    def _acknowledged(self, began_s: float, count: int, _: object, error: BaseException | None) -> None:
        """On the callback thread."""
        if error is None:
            self._latencies.record((_now_s() - began_s) * 1e6, count)
        elif self._first_error is None and not self._is_over:
            self._first_error = f"{type(error).__name__}: {error}"


def _plain(producer: KafkaProducer) -> Mapping[str, float]:
    """The producer's own metrics."""
    return producer.metrics()["producer-metrics"]


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else float(value)


def _now_s() -> float:
    return SYSTEM_CLOCK.now_ms() / 1000.0


def _cpu_seconds() -> float:
    """The CPU time of this process, in seconds."""
    times = os.times()
    return times.user + times.system
