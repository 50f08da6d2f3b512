# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Metrics of a `NetworkClient` and its selector: connections, requests, responses and bytes, overall and per node.

Source: Kafka's SelectorMetrics, with its names. Differences: bytes count when the request or response is complete, and
only established connections count as created and closed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..metrics import MetricName, Metrics, Reading, Tags

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ..sensor_cy import Sensor
    from ..sockets.selector_base_cy import SelectorCounters
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.sensor_cy import Sensor
    from cython.cimports.headrace.network.sockets.selector_base_cy import SelectorCounters

_AVG, _MAX, _RATE, _TOTAL = Sensor.average, Sensor.maximum, Sensor.rate, Sensor.total
_OFTEN, _COUNT = Sensor.occurrence_rate, Sensor.count
_NS_PER_MS = 1e6


def _share(sensor: Sensor) -> float:
    """Nanoseconds per nanosecond, for a sensor that records nanoseconds."""
    return sensor.rate() / 1e9


#: Sensor name -> its metrics. Kept per node and overall.
_TRAFFIC: dict[str, tuple[Reading, ...]] = {
    "requests": (
        Reading("request-rate", _OFTEN, "Requests of any kind sent per second"),
        Reading("request-total", _COUNT, "Requests of any kind sent"),
        Reading("request-size-avg", _AVG, "Average size of a request in bytes"),
        Reading("request-size-max", _MAX, "Size of the largest request in bytes"),
        Reading("outgoing-byte-rate", _RATE, "Bytes sent per second"),
        Reading("outgoing-byte-total", _TOTAL, "Bytes sent"),
    ),
    "responses": (
        Reading("response-rate", _OFTEN, "Responses received per second"),
        Reading("response-total", _COUNT, "Responses received"),
        Reading("incoming-byte-rate", _RATE, "Bytes received per second"),
        Reading("incoming-byte-total", _TOTAL, "Bytes received"),
    ),
}

#: Kept per node.
_PER_NODE: dict[str, tuple[Reading, ...]] = {
    **_TRAFFIC,
    "latency": (
        Reading("request-latency-avg", _AVG, "Average milliseconds from a request of any kind to its response"),
        Reading("request-latency-max", _MAX, "Maximum milliseconds from a request of any kind to its response"),
    ),
}

#: Kept overall; most are about the selector's loop.
_OVERALL: dict[str, tuple[Reading, ...]] = {
    **_TRAFFIC,
    "created": (
        Reading("connection-creation-rate", _RATE, "Connections established per second"),
        Reading("connection-creation-total", _TOTAL, "Connections established"),
    ),
    "closed": (
        Reading("connection-close-rate", _RATE, "Connections closed per second, by either side"),
        Reading("connection-close-total", _TOTAL, "Connections closed, by either side"),
    ),
    "operations": (
        Reading("network-io-rate", _RATE, "Reads and writes per second on all connections"),
        Reading("network-io-total", _TOTAL, "Reads and writes on all connections"),
    ),
    "wait": (
        Reading("select-rate", _OFTEN, "Polls for I/O per second by the sender thread"),
        Reading("select-total", _COUNT, "Polls for I/O by the sender thread"),
        Reading("io-wait-time-ns-avg", _AVG, "Average nanoseconds per poll that the sender thread waited for I/O"),
        Reading("io-wait-time-ns-total", _TOTAL, "Nanoseconds that the sender thread waited for I/O"),
        Reading("io-wait-ratio", _share, "Fraction of time that the sender thread waited for I/O"),
    ),
    "io": (
        Reading("io-time-ns-avg", _AVG, "Average nanoseconds per poll that the sender thread did I/O"),
        Reading("io-time-ns-total", _TOTAL, "Nanoseconds that the sender thread did I/O"),
        Reading("io-ratio", _share, "Fraction of time that the sender thread did I/O"),
    ),
}


@cython.final
@cython.cclass
class _NodeSensors:
    """The sensors of one node."""

    def __init__(self, sensors: dict) -> None:
        self.requests = sensors["requests"]
        self.responses = sensors["responses"]
        self.latency = sensors["latency"]


@cython.final
@cython.cclass
class ClientMetrics:
    """The network metrics of one client, in the groups ``<prefix>-metrics`` and ``<prefix>-node-metrics``.

    Updated by the client's I/O thread only: once per poll, per request and per response. Bounded by the cluster's
    nodes.
    """

    def __init__(self, registry: Metrics, counters: SelectorCounters, *, prefix: str, tags: Tags) -> None:
        """`counters` are those of the client's selector."""
        self._registry = registry
        self._counters = counters
        self._node_group = f"{prefix}-node-metrics"
        self._tags = tags
        sensors = registry.add_sensors(f"{prefix}-metrics", tags, _OVERALL)
        registry.add(
            MetricName("connection-count", f"{prefix}-metrics", "Open connections", tags),
            lambda: float(counters.connections),
        )
        self._requests = sensors["requests"]
        self._responses = sensors["responses"]
        self._created = sensors["created"]
        self._closed = sensors["closed"]
        self._operations = sensors["operations"]
        self._wait = sensors["wait"]
        self._io = sensors["io"]
        self._nodes = {}
        # the selector's counters as of the last poll
        self._seen_created = 0
        self._seen_closed = 0
        self._seen_operations = 0
        self._seen_waited_ms = 0.0

    @cython.ccall
    def polled(self, duration_ms: cython.double, now_ms: cython.double) -> object:
        """Record a poll of the selector that took `duration_ms`, waiting included."""
        counters: SelectorCounters = self._counters
        all_waited_ms: cython.double = counters.waited_ms
        waited_ms: cython.double = all_waited_ms - self._seen_waited_ms
        self._seen_waited_ms = all_waited_ms
        self._wait.record(waited_ms * _NS_PER_MS, now_ms)
        self._io.record(max(duration_ms - waited_ms, 0.0) * _NS_PER_MS, now_ms)
        if counters.operations != self._seen_operations:
            self._operations.record(counters.operations - self._seen_operations, now_ms)
            self._seen_operations = counters.operations
        if counters.connections_created != self._seen_created:
            self._created.record(counters.connections_created - self._seen_created, now_ms)
            self._seen_created = counters.connections_created
        if counters.connections_closed != self._seen_closed:
            self._closed.record(counters.connections_closed - self._seen_closed, now_ms)
            self._seen_closed = counters.connections_closed
        return None

    @cython.ccall
    def sent(self, node_id: Any, size_bytes: cython.double, now_ms: cython.double) -> object:
        """Record a request that was written. `size_bytes` includes the length prefix."""
        node: _NodeSensors = self._node(node_id)
        self._requests.record(size_bytes, now_ms)
        node.requests.record(size_bytes, now_ms)
        return None

    @cython.ccall
    def answered(
        self, node_id: Any, size_bytes: cython.double, latency_ms: cython.double, now_ms: cython.double
    ) -> object:
        """Record a response that arrived `latency_ms` after its request was created.

        `size_bytes` includes the length prefix.
        """
        node: _NodeSensors = self._node(node_id)
        self._responses.record(size_bytes, now_ms)
        node.responses.record(size_bytes, now_ms)
        node.latency.record(latency_ms, now_ms)
        return None

    def keep_nodes(self, node_ids: Collection[int]) -> None:
        """Drop the metrics of every node that is not in `node_ids`."""
        gone = [node_id for node_id in self._nodes if node_id not in node_ids]
        if gone:
            for node_id in gone:
                del self._nodes[node_id]
            self._registry.remove(self._tags_of(node_id) for node_id in gone)

    @cython.cfunc
    def _node(self, node_id: Any) -> _NodeSensors:
        known: _NodeSensors | None = self._nodes.get(node_id)
        if known is None:
            sensors = self._registry.add_sensors(self._node_group, self._tags_of(node_id), _PER_NODE)
            known = self._nodes[node_id] = _NodeSensors(sensors)
        return known

    def _tags_of(self, node_id: int) -> Tags:
        return (*self._tags, ("node-id", f"node-{node_id}"))
