# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Records what a produce request holds into the producer's sensors: several observations per batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..network import _cython as cython
from ..network.records.batch import RECORD_BATCH_OVERHEAD

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ..network.sensor_cy import Sensor
    from .accumulator.batch_cy import ProducerBatch
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.sensor_cy import Sensor
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch


def record_answered(
    overall: dict[str, Any], latency_ms: cython.double, throttle_ms: cython.double, now_ms: cython.double
) -> None:
    """Record the response to a request, into the producer's sensors `overall`. Sender thread."""
    sensor: Sensor = overall["latency"]
    sensor.record(latency_ms, now_ms)
    sensor = overall["throttle"]
    sensor.record(throttle_ms, now_ms)


def record_sent(
    overall: dict[str, Any],
    topics: dict[str, dict[str, Any]],
    of_topic: Callable[[str], dict[str, Any]],
    batches: list,
    now_ms: cython.double,
) -> None:
    """Record a request with these batches. Sender thread.

    `overall`: the producer's sensors by name. `topics`: those of the topics; `of_topic` adds those of another one.
    """
    batch_size: Sensor = overall["batch_size"]
    queue_time: Sensor = overall["queue_time"]
    compression: Sensor = overall["compression"]
    record_size: Sensor = overall["record_size"]
    batch: ProducerBatch
    sensor: Sensor
    count: cython.longlong
    raw_bytes: cython.longlong
    size_bytes: cython.longlong
    records: cython.longlong = 0
    total_bytes: cython.longlong = 0
    ratio: cython.double
    for batch in batches:
        count = batch.builder.count
        size_bytes = batch.builder.earlier_bytes + batch.builder.position
        raw_bytes = batch.raw_bytes
        ratio = cython.cast(cython.double, size_bytes) / max(raw_bytes, 1)
        batch_size.record(size_bytes, now_ms)
        queue_time.record(batch.drained_ms - batch.created_ms, now_ms)
        compression.record(ratio, now_ms)
        record_size.record_all(count, raw_bytes - RECORD_BATCH_OVERHEAD, batch.builder.max_record_bytes, now_ms)
        topic = topics.get(batch.topic)
        if topic is None:
            topic = of_topic(batch.topic)
        sensor = topic["compression"]
        sensor.record(ratio, now_ms)
        sensor = topic["records"]
        sensor.record(count, now_ms)
        sensor = topic["bytes"]
        sensor.record(size_bytes, now_ms)
        records += count
        total_bytes += size_bytes
    sensor = overall["records"]
    sensor.record(records, now_ms)
    sensor = overall["records_per_request"]
    sensor.record(records, now_ms)
    sensor = overall["bytes"]
    sensor.record(total_bytes, now_ms)
