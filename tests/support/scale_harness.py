"""A producer's engine over a `SimulatedCluster`: the real accumulator, sender, network client and metadata, with the
configuration's defaults, stepped by hand."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headrace.network.backoff import ExponentialBackoff
from headrace.network.client.network_client_cy import NetworkClient
from headrace.network.clock import MockClock
from headrace.network.metadata import Metadata
from headrace.network.sockets.resolver import ResolvedAddress
from headrace.producer.accumulator.accumulator_cy import RecordAccumulator
from headrace.producer.accumulator.batch_cy import RecordFuture
from headrace.producer.accumulator.buffer_pool_cy import BufferPool
from headrace.producer.config import ProducerConfig
from headrace.producer.metrics import ProducerMetrics
from headrace.producer.sender.sender_cy import Sender
from headrace.producer.sender.transaction_manager_cy import TransactionManager
from support.sender_harness import InlineCallbacks
from support.simulated_cluster import FIRST_PORT, SimulatedCluster


def resolve(host: str, port: int) -> Sequence[ResolvedAddress]:
    """Any name has the same address: the port names the broker."""
    return [ResolvedAddress(2, ("10.0.0.1", port))]


class ScaleHarness:
    """`turn` runs one turn of the sender and returns its CPU time, without that of the simulated brokers."""

    def __init__(
        self,
        *,
        topics: int,
        partitions: int,
        brokers: int,
        buffer_memory: int = 0,
        keep_values: bool = False,
        keep_logs: bool = True,
        seed: int = 2025,
        **settings: Any,
    ) -> None:
        """`partitions`: those of each topic. `buffer_memory`: 0 for the default. `seed`: for jitter.

        `settings`: of the producer.
        """
        random_unit = random.Random(seed).random
        settings["bootstrap_servers"] = f"broker-0:{FIRST_PORT}"
        if buffer_memory:
            settings["buffer_memory"] = buffer_memory
        self.config = config = ProducerConfig.resolve_from(None, settings, {})
        self.topics = [f"topic-{number:03}" for number in range(topics)]
        self.clock = MockClock()
        self.cluster = SimulatedCluster(
            self.clock,
            dict.fromkeys(self.topics, partitions),
            brokers=brokers,
            keep_values=keep_values,
            keep_logs=keep_logs,
        )
        self.metadata = Metadata(
            clock=self.clock,
            bootstrap_servers=config.bootstrap_servers,
            refresh_backoff_ms=config.retry_backoff_ms,
            refresh_backoff_max_ms=config.retry_backoff_max_ms,
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=config.metadata_max_idle_ms,
            random_unit=random_unit,
        )
        self.client = NetworkClient(
            selector=self.cluster,
            metadata=self.metadata,
            clock=self.clock,
            client_id="scale",
            resolver=resolve,
            random_unit=random_unit,
            max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        )
        self.pool = BufferPool(config.buffer_memory, config.batch_size, self.clock)
        self.transactions = TransactionManager()
        self.accumulator = RecordAccumulator(
            pool=self.pool,
            batch_size=config.batch_size,
            max_batch_size=min(config.batch_max_size, config.max_request_size),
            compression=config.compression,
            linger_ms=config.linger_ms,
            retry_backoff=ExponentialBackoff(
                config.retry_backoff_ms, config.retry_backoff_max_ms, random_unit=random_unit
            ).backoff_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            clock=self.clock,
            transactions=self.transactions,
        )
        self.metrics = ProducerMetrics(
            self.clock,
            "scale",
            self.pool,
            window_ms=config.metrics_sample_window_ms,
            samples=config.metrics_num_samples,
            requests_in_flight=self.client.in_flight_request_count,
            metadata_age_seconds=lambda: 0.0,
        )
        self.sender = Sender(
            client=self.client,
            metadata=self.metadata,
            accumulator=self.accumulator,
            transactions=self.transactions,
            clock=self.clock,
            acks=config.acks,
            max_request_bytes=config.max_request_size,
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            retries=config.retries,
            keep_order=False,
            retry_backoff_ms=config.retry_backoff_ms,
            metrics=self.metrics,
            callbacks=InlineCallbacks(),
        )
        self.accumulator.wakeup = self.sender.wakeup
        self.metadata.add_listener(self.accumulator.update_metadata)

    # --- Steps ---

    def cpu_s(self) -> float:
        """The CPU seconds that this thread has taken, without those of the simulated brokers."""
        return time.thread_time() - self.cluster.working_s

    def turn(self) -> float:
        """Run one turn of the sender; returns the CPU seconds of the client."""
        started_s = self.cpu_s()
        self.sender.run_once()
        return self.cpu_s() - started_s

    def run_until(self, condition: Callable[[], bool], *, turns: int = 1_000_000) -> tuple[int, float]:
        """Run turns until the condition holds. Returns their number and the client's CPU seconds."""
        spent_s = 0.0
        for number in range(turns):
            if condition():
                return number, spent_s
            spent_s += self.turn()
        raise AssertionError(f"{condition} does not hold after {turns} turns")

    def run_for(self, duration_ms: float) -> tuple[int, float]:
        """Run turns for so long in virtual time. Returns as `run_until`."""
        end_ms = self.clock.now_ms() + duration_ms
        self.cluster.at(end_ms, lambda: None)
        return self.run_until(lambda: self.clock.now_ms() >= end_ms)

    def deliver(self) -> tuple[int, float]:
        """Run turns until every record is acknowledged. Returns as `run_until`."""
        return self.run_until(lambda: not self.accumulator.has_incomplete)

    def learn(self, topics: Iterable[str]) -> tuple[int, float]:
        """Fetch the metadata of these topics. Returns as `run_until`."""
        wanted = list(topics)
        for topic in wanted:
            self.metadata.add_topic(topic, self.clock.now_ms())
            self.accumulator.topic(topic)
        return self.run_until(lambda: all(self.metadata.cluster.partitions_for(topic) for topic in wanted))

    # --- Records ---

    def append(self, topic: str, partition: int, value: bytes = b"v") -> RecordFuture:
        """Append a record. Raises BufferExhaustedError if there is no memory."""
        queues = self.accumulator.topic_queues(topic, lambda: self.metadata.cluster, partition)
        return self.accumulator.append(queues, partition, self.clock.wall_ms(), None, value, None, None, 0)

    def partitions(self) -> list[tuple[str, int]]:
        """All partitions, topic after topic."""
        return [
            (topic, info.partition)
            for topic in self.topics
            for info in self.metadata.cluster.partitions_for(topic) or ()
        ]

    def one_per_broker(self) -> list[tuple[str, int]]:
        """A partition that each broker leads now."""
        led = {self.cluster.leader(topic, partition): (topic, partition) for topic, partition in self.partitions()}
        return list(led.values())
