"""What an adapter of a producer implements."""

from __future__ import annotations

import abc
import concurrent.futures
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from ..measurement import Measurement, measure
from ..shapes import IN_TRANSACTION, LATENCY_MODES, Mode, Shape
from ..workload import Workload

#: How long a client may take until everything is acknowledged, in seconds.
DELIVERY_S = 300
#: How often the mode PACED sends what is due, in seconds.
TICK_S = 0.001


class Unavailable(Exception):
    """This client can't run the shape here; the message says why."""


class Client(abc.ABC):
    """A producer in its own process, for one run."""

    #: The part of a shape's records that a run sends: slow clients send fewer.
    share: ClassVar[float] = 1.0
    modes: ClassVar[frozenset[Mode]] = frozenset({Mode.THROUGHPUT, *LATENCY_MODES})
    threads: ClassVar[bool] = True
    tls: ClassVar[bool] = False
    #: Environment variables of the client's process.
    environment: ClassVar[dict[str, str]] = {}

    def __init__(
        self, bootstrap_servers: str, topic: str, workload: Workload, security: Mapping[str, str] | None = None
    ) -> None:
        """`security` has the keys of TLS, by names that both confluent-kafka and headrace accept."""
        self.security = security or {}
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.workload = workload
        self.shape = workload.shape

    @classmethod
    def refusal(cls, shape: Shape) -> str | None:
        """Why this client never runs `shape`, None if it does."""
        if shape.mode not in cls.modes:
            return f"it has no mode {shape.mode.value!r}"
        if shape.threads > 1 and not cls.threads:
            return "its producer belongs to one thread"
        if shape.tls and not cls.tls:
            return "its adapter has no TLS"
        return None

    @abc.abstractmethod
    def measure(self) -> Measurement:
        """Send the records and return the measurement. Raises Unavailable or the client's error."""


class PythonClient(Client):
    """A client whose loops run in this process.

    They are written per client, as a user of that client writes them, without a call of the benchmark per record.
    `start` constructs the producer and waits for one acknowledged record; `measure` times the rest.
    """

    def measure(self) -> Measurement:
        """Start the producer and time `work`. Raises Unavailable or the client's error."""
        self.start()
        try:
            return measure(self.workload.records, 1, self.work)
        finally:
            self.close()

    def work(self) -> list[float] | None:
        """Send all records and wait for their acknowledgements. Returns their latencies in the modes about latency."""
        if self.shape.mode is Mode.ONE_BY_ONE:
            return self.send_one_by_one()
        if self.shape.mode is Mode.PACED:
            return self.send_paced()
        if self.shape.mode is Mode.LISTS:
            self.send_lists()
        elif self.shape.mode is Mode.ARROW:
            self.send_tables()
        elif self.shape.mode is Mode.GATHER:
            self.send_gathered()
        elif self.shape.mode is Mode.TRANSACTIONS:
            self.send_transactions()
        else:
            self.send_in_threads(self.chosen_loop())
        self.flush()
        return None

    def chosen_loop(self) -> Callable[[], None]:
        """The loop of one thread in the mode THROUGHPUT."""
        if self.shape.keyed:
            return self.send_keyed
        if self.shape.headers:
            return self.send_with_headers
        if self.shape.callback:
            return self.send_with_callback
        return self.send_values

    def send_in_threads(self, loop: Callable[[], None]) -> None:
        """Run `loop` in each of the shape's threads. Raises the first error."""
        if self.shape.threads == 1:
            loop()
            return
        with concurrent.futures.ThreadPoolExecutor(self.shape.threads) as threads:
            for done in [threads.submit(loop) for _ in range(self.shape.threads)]:
                done.result()

    def transactional(self) -> dict[str, str]:
        """The keys of a producer with transactions, which only the mode TRANSACTIONS has."""
        return {"transactional.id": "benchmark"} if self.shape.mode is Mode.TRANSACTIONS else {}

    def check_acknowledged(self, count: int) -> None:
        """Raises RuntimeError unless `count` is the number of records."""
        if count != self.workload.records:
            raise RuntimeError(f"{count} of {self.workload.records} records were acknowledged")

    @abc.abstractmethod
    def start(self) -> None:
        """Construct the producer and wait for one acknowledged record."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Wait until everything is acknowledged. Raises RuntimeError if something isn't."""

    @abc.abstractmethod
    def close(self) -> None: ...

    @abc.abstractmethod
    def send_values(self) -> None: ...

    @abc.abstractmethod
    def send_keyed(self) -> None: ...

    @abc.abstractmethod
    def send_with_headers(self) -> None: ...

    @abc.abstractmethod
    def send_with_callback(self) -> None:
        """Send with a callback per record, and return when all of them were called. Raises RuntimeError otherwise."""

    @abc.abstractmethod
    def send_one_by_one(self) -> list[float]: ...

    @abc.abstractmethod
    def send_paced(self) -> list[float]: ...

    def send_lists(self) -> None:
        """Send each pass with one call. Clients whose `modes` have LISTS implement it."""
        raise NotImplementedError

    def send_gathered(self) -> None:
        """Send each pass under one `asyncio.gather`. Clients whose `modes` have GATHER implement it."""
        raise NotImplementedError

    def send_transactions(self) -> None:
        """Send all transactions, one after the other."""
        for _ in range(self.workload.passes):
            for begin in range(0, len(self.workload.values), IN_TRANSACTION):
                self.send_transaction(self.workload.values[begin : begin + IN_TRANSACTION])

    def send_transaction(self, values: list[bytes]) -> None:
        """Send `values` in a transaction. Clients whose `modes` have TRANSACTIONS implement it."""
        raise NotImplementedError

    def send_tables(self) -> None:
        """Send each pass from a table. Clients whose `modes` have ARROW implement it."""
        raise NotImplementedError


class FutureClient(PythonClient):
    """A client whose ``producer.send(topic, value)`` returns a future with ``get(timeout)``."""

    producer: Any

    def send_one_by_one(self) -> list[float]:
        send, topic, now = self.producer.send, self.topic, time.perf_counter
        latencies = []
        for _ in range(self.workload.passes):
            for value in self.workload.values:
                began = now()
                send(topic, value).get(DELIVERY_S)
                latencies.append(now() - began)
        return latencies

    def send_at_rate(self, send_one: Callable[[bytes], None]) -> None:
        """Call `send_one` at the shape's rate, and wait until everything is acknowledged."""
        value = self.workload.values[0]
        for due, wait_s in ticks(self.workload.records, self.shape.rate):
            for _ in range(due):
                send_one(value)
            time.sleep(wait_s)
        self.flush()


def ticks(records: int, rate: int) -> Iterator[tuple[int, float]]:
    """The number of records due, and the time in seconds to wait before the next item. Records become due at `rate`
    per second; the last item has waiting time 0."""
    started = time.perf_counter()
    sent, tick = 0, 0
    while sent < records:
        due = min(int((time.perf_counter() - started) * rate) + 1, records) - sent
        sent += due
        tick += 1
        yield due, max(started + tick * TICK_S - time.perf_counter(), 0.0) if sent < records else 0.0
