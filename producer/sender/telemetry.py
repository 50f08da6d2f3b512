"""Client telemetry (KIP-714): the producer pushes its own metrics to brokers that ask for them.

Every producer has a `Telemetry`, which only looks whether a broker serves telemetry; Apache Kafka does if it has a
receiver plugin. Everything else is in `telemetry_reporter`, which is imported when the first such broker is found.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ...network.clock import LONG_AGO_MS, Clock
from ...network.latch_cy import Latch
from ...network.metadata import Metadata
from ...network.protocol.api_keys import ApiKey
from ...network.protocol.errors import KafkaError, KafkaTimeoutError, ProducerClosedError, UnsupportedVersionError

if TYPE_CHECKING:
    from ...network.client.request import KafkaClient

#: The producer looks again after this long whether a broker serves telemetry (Java's DEFAULT_PUSH_INTERVAL_MS).
LOOK_AGAIN_MS = 300_000.0


class Reporter(Protocol):
    """What pushes the metrics when a broker serves telemetry: `TelemetryReporter`."""

    def step(self, now_ms: float) -> float:
        """Do what is due. Returns the time of the next call, as `Telemetry.step` does."""
        ...

    def begin_close(self, now_ms: float) -> None:
        """Push the metrics a last time."""
        ...

    def ending_ms(self, now_ms: float) -> float:
        """How many milliseconds the last push may still take; 0 when it has ended."""
        ...


class Telemetry:
    """One producer's telemetry. `client_instance_id` is for any thread, everything else for the sender's.

    `step` returns the time of the next call, on the monotonic clock. A time in the past means every turn of the sender,
    because what happens next depends on I/O or on another thread, and does not limit how long the sender may wait.
    """

    def __init__(
        self, *, client: KafkaClient, metadata: Metadata, clock: Clock, start: Callable[[Telemetry], Reporter]
    ) -> None:
        """`start` creates the reporter, once, on the sender thread."""
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._start = start
        self._reporter: Reporter | None = None
        self._is_wanted = False
        self._instance_id: uuid.UUID | None = None
        self._unavailable: KafkaError | None = None
        # set when there is an id or an error; replaced when the error is obsolete
        self._known = Latch()

    def step(self, now_ms: float) -> float:
        """Do what is due, without blocking."""
        if self._reporter is not None:
            return self._reporter.step(now_ms)
        versions = [
            known
            for node_id in self._metadata.cluster.nodes
            if (known := self._client.api_versions(node_id)) is not None
        ]
        if any(known.range_of(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) is not None for known in versions):
            if self._unavailable is not None:
                # in this order: `client_instance_id` reads them in the other one
                self._known = Latch()
                self._unavailable = None
            self._reporter = self._start(self)
            return self._reporter.step(now_ms)
        if versions:
            self.unavailable(
                UnsupportedVersionError(
                    f"{versions[0].name} serves no client telemetry: Apache Kafka 3.7 and later does so if a class of "
                    "metric.reporters implements ClientTelemetry"
                )
            )
            return now_ms + LOOK_AGAIN_MS
        if self._is_wanted:
            node = self._client.least_loaded_node(now_ms)
            if node is not None:
                self._client.ready(node, now_ms)
        return LONG_AGO_MS

    def begin_close(self, now_ms: float) -> None:
        """Push the metrics a last time, if a broker asks for any. The records have been delivered."""
        if self._reporter is not None:
            self._reporter.begin_close(now_ms)

    def ending_ms(self, now_ms: float) -> float:
        """How many milliseconds the last push may still take; 0 when it has ended."""
        return 0.0 if self._reporter is None else self._reporter.ending_ms(now_ms)

    def end(self) -> None:
        """The sender thread ends."""
        if self._instance_id is None:
            self.unavailable(
                ProducerClosedError("this producer was closed before a broker assigned a client instance id")
            )

    # --- The client instance id ---

    def assigned(self, instance_id: uuid.UUID) -> None:
        """A broker has assigned the client instance id."""
        self._instance_id = instance_id
        self._known.set()

    def unavailable(self, error: KafkaError) -> None:
        """No broker known so far assigns an id."""
        self._unavailable = error
        self._known.set()

    def client_instance_id(self, timeout_ms: float) -> uuid.UUID:
        """See `KafkaProducer.client_instance_id`."""
        end_ms = self._clock.now_ms() + timeout_ms
        self._is_wanted = True
        self._client.wakeup()
        while self._clock.await_latch(self._known, end_ms):
            error = self._unavailable
            if self._instance_id is not None:
                return self._instance_id
            if error is not None:
                raise error.with_traceback(None)
        raise KafkaTimeoutError(
            f"no broker assigned a client instance id within {timeout_ms / 1000.0:g} s: check that the brokers can be "
            "reached"
        )
