"""The calls of a producer that report its metrics: the part of `KafkaProducer` that `docs/metrics.md` describes.

Source: Kafka's KafkaProducer (KIP-714); `metrics` has kafka-python's name and argument.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from ..network.protocol.errors import IllegalArgumentError, IllegalStateError
from .threads import check_may_wait

if TYPE_CHECKING:
    from ..network.metrics import MetricGroups, MetricName
    from .description import ProducerDescription
    from .engine import Engine


class MetricsCalls:
    """The metrics of a `KafkaProducer`. Any thread."""

    if TYPE_CHECKING:
        _closed: bool
        _engine: Engine

        def _usable_engine(self) -> Engine: ...

    @overload
    def metrics(self, raw: Literal[False] = ...) -> MetricGroups: ...
    @overload
    def metrics(self, raw: Literal[True]) -> Mapping[MetricName, float | str]: ...
    @overload
    def metrics(self, raw: bool) -> Mapping[Any, Any]: ...
    def metrics(self, raw: bool = False) -> Mapping[Any, Any]:
        """Return the metrics as ``{group: {name: value}}`` with Kafka's groups, names and units.

        Metrics of a topic or a node have a group of their own: ``producer-topic-metrics.<topic>``. With `raw` the keys
        are `MetricName` objects, which have the tags and a description. An average without samples is NaN. Values are
        computed when read. Any thread.
        """
        registry = self._engine.metrics.registry
        return registry.values() if raw else registry.by_group()

    def describe(self) -> ProducerDescription:
        """Return a snapshot for a person: brokers, topics, queues, the oldest record, memory, retries, last errors.

        ``print(producer.describe())`` shows it as a page of text; ``as_dict()`` returns what JSON can have. It takes
        time in proportion to the pending batches, delays no send, and works on a closed producer, too. Any thread.
        """
        from .description import describe  # noqa: PLC0415 - for debugging only

        return describe(self._engine, is_closed=self._closed)

    def client_instance_id(self, timeout: float) -> uuid.UUID:
        """Return the id under which the brokers know this producer in client telemetry (KIP-714).

        `timeout`: seconds to wait for a broker to assign it, on the first call. Any thread, but not within a callback.

        Raises IllegalStateError if ``enable.metrics.push`` is false or within a callback of this producer,
        UnsupportedVersionError if no connected broker serves telemetry, which Apache Kafka does with a receiver plugin
        only, KafkaTimeoutError after the timeout, IllegalArgumentError for an invalid one, and ProducerClosedError.
        """
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
            raise IllegalArgumentError(f"a timeout is a number of seconds, 0 or more; not {timeout!r}")
        engine = self._usable_engine()
        if engine.telemetry is None:
            raise IllegalStateError(
                "this producer has enable.metrics.push=false, so no broker assigns it a client instance id"
            )
        check_may_wait("client_instance_id")
        if engine.is_own_thread:
            raise IllegalStateError("client_instance_id can't be called in a callback: it waits for the sender thread")
        return engine.telemetry.client_instance_id(timeout * 1000.0)
