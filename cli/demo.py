"""`headrace demo`: a broker, a producer and live metrics.

A Kafka broker runs in a process of its own, with its files in a temporary directory. A producer sends orders as JSON
to it, as fast as it can, with acks=all and idempotence, the defaults of Kafka 4, and linger.ms=20. At the end the
command compares what was sent with what is in the log. Nothing outside this machine is used, and nothing is left
behind.

  headrace demo
  headrace demo --seconds 60
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from .. import broker
from ..network import _build
from ..network.clock import SYSTEM_CLOCK
from ..producer import KafkaProducer
from .arguments import whole_number
from .signals import INTERRUPTED, stop_event

_TOPIC = "orders"
_PARTITIONS = 4
#: Records between two looks at the clock and at Ctrl-C: less than a millisecond.
_BURST = 500
_TERMINAL_MS, _PIPE_MS = 250.0, 1000.0
#: Seconds for the last records after the end.
_FLUSH_S = 10.0
_HISTORY = 40
_BARS = "▁▂▃▄▅▆▇█"
#: Old records are deleted, so that a long demo does not fill the disk.
_BROKER = {
    "log.retention.bytes": 64 * 2**20,
    "log.segment.bytes": 16 * 2**20,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--seconds", type=whole_number(1, 86_400), default=10, metavar="N", help="how long to send (default: 10)"
    )


def run(options: argparse.Namespace) -> int:
    """Send until the time is over, or until Ctrl-C or SIGTERM. These end the demo at once, without delivery."""
    stop = stop_event()
    out = sys.stdout
    print(f"Headrace {_build.VERSION} ({_build.describe()}). Starting a Kafka broker ...", flush=True)
    with broker.ProcessCluster(brokers=1, config=_BROKER) as cluster:
        cluster.create_topic(_TOPIC, num_partitions=_PARTITIONS)
        servers = cluster.bootstrap_servers
        print(
            f"Sending orders to topic {_TOPIC} with {_PARTITIONS} partitions at {servers}. Ctrl-C ends it.\n",
            flush=True,
        )
        producer = KafkaProducer(bootstrap_servers=servers, linger_ms=20)
        try:
            return _run(producer, options.seconds, stop, Display(out))
        finally:
            producer.close(0)


def _run(producer: KafkaProducer, seconds: int, stop: threading.Event, display: Display) -> int:
    started_ms = SYSTEM_CLOCK.now_ms()
    end_ms = started_ms + seconds * 1000.0
    orders = _orders()
    before = Snapshot.of(producer, started_ms, 0)
    sent = 0
    while (now_ms := SYSTEM_CLOCK.now_ms()) < end_ms and not stop.is_set():
        for key, value in (next(orders) for _ in range(_BURST)):
            producer.send(_TOPIC, value, key)
        sent += _BURST
        if now_ms - before.at_ms >= display.interval_ms:
            current = Snapshot.of(producer, now_ms, sent)
            display.show(current, before)
            before = current
    elapsed_s = (SYSTEM_CLOCK.now_ms() - started_ms) / 1000.0
    print(f"\n{sent:,} records in {elapsed_s:.1f} s: {sent / max(elapsed_s, 1e-9):,.0f} records/s")
    if stop.is_set():
        print("Interrupted: what was not acknowledged yet is given up.")
        return INTERRUPTED
    producer.flush(_FLUSH_S)
    return _compare(producer, sent)


def _compare(producer: KafkaProducer, sent: int) -> int:
    """Compare what was sent with the log. The offset of one last record per partition counts those before it."""
    last = [producer.send(_TOPIC, b"{}", partition=number) for number in range(_PARTITIONS)]
    producer.flush(_FLUSH_S)
    in_log = sum(future.get(0).offset for future in last)
    failed = int(producer.metrics()["producer-metrics"]["record-error-total"])
    if in_log != sent or failed:
        print(f"The log has {in_log:,} records, and {failed:,} failed.")
        return 1
    print(f"The log has {in_log:,} records: none is missing, none is there twice.")
    print("\nNext: headrace broker --port 9092, and KafkaProducer(bootstrap_servers='localhost:9092')")
    return 0


def _orders() -> Iterator[tuple[bytes, bytes]]:
    """Keys and values without end: a customer, and an order of about 70 bytes."""
    customers = [b"customer-%d" % number for number in range(1000)]
    items = (b"tea", b"coffee", b"bread", b"cheese", b"apples", b"oil", b"rice")
    number = 0
    while True:
        number += 1
        key = customers[number * 7919 % 1000]
        amount = number % 97 + 1
        yield key, b'{"order": %d, "item": "%s", "amount": %d, "paid": true}' % (number, items[number % 7], amount)


class Snapshot(NamedTuple):
    """The producer's metrics at a moment. Totals count from the start; averages are of the last half minute."""

    at_ms: float
    sent: int
    in_flight_and_queued: int
    bytes: float
    latency_ms: float
    latency_max_ms: float
    batch_bytes: float
    records_per_request: float

    @classmethod
    def of(cls, producer: KafkaProducer, now_ms: float, sent: int) -> Snapshot:
        values = producer.metrics()["producer-metrics"]
        return cls(
            now_ms,
            sent,
            int(values["buffer-total-bytes"] - values["buffer-available-bytes"]),
            values["byte-total"],
            values["request-latency-avg"],
            values["request-latency-max"],
            values["batch-size-avg"],
            values["records-per-request-avg"],
        )


class Display:
    """Shows metrics: on a terminal in the same lines, elsewhere as one line each."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._redraws = out.isatty()
        self._drawn = 0
        self._rates: deque[float] = deque(maxlen=_HISTORY)
        self.interval_ms = _TERMINAL_MS if self._redraws else _PIPE_MS

    def show(self, now: Snapshot, before: Snapshot) -> None:
        """Show the rates between two moments, and the rest as it is now."""
        seconds = max((now.at_ms - before.at_ms) / 1000.0, 1e-9)
        rate = (now.sent - before.sent) / seconds
        megabytes = (now.bytes - before.bytes) / seconds / 1e6
        self._rates.append(rate)
        if not self._redraws:
            print(
                f"{rate:,.0f} records/s, {megabytes:.1f} MB/s, latency {now.latency_ms:.1f} ms on average and "
                f"{now.latency_max_ms:.1f} ms at most, {now.in_flight_and_queued / 1e6:.1f} MB pending",
                file=self._out,
                flush=True,
            )
            return
        lines = [
            f"records/s   {rate:>12,.0f}   {self._chart()}",
            f"MB/s        {megabytes:>12.1f}",
            f"sent        {now.sent:>12,}",
            f"latency     {now.latency_ms:>9.1f} ms   at most {now.latency_max_ms:.1f} ms, per request",
            f"batch       {now.batch_bytes / 1000:>9.1f} KB   {now.records_per_request:,.0f} records per request",
            f"pending     {now.in_flight_and_queued / 1e6:>9.1f} MB   queued or in flight",
        ]
        # up to the first line of the last drawing, and clear each line before writing it
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._out.write(up + "".join(f"\r\x1b[K{line}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)

    def _chart(self) -> str:
        highest = max(self._rates) or 1.0
        bars = "".join(_BARS[min(int(rate / highest * len(_BARS)), len(_BARS) - 1)] for rate in self._rates)
        try:
            bars.encode(self._out.encoding or "ascii")
        except UnicodeEncodeError:
            return ""
        return bars
