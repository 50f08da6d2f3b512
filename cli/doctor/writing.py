"""The step that sends one record with the producer itself."""

from __future__ import annotations

import logging
from typing import Any

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import AuthorizationError, KafkaError
from ...producer import KafkaProducer
from ...producer.config import ProducerConfig
from .findings import Findings, Step

_VALUE = b"a record of headrace doctor"
_KEY = b"headrace-doctor"
_SKEW_MS = 1000.0
#: Seconds after delivery.timeout.ms within which the record's own error arrives.
_PATIENCE_S = 10.0
#: Keys that would run the program's own code, or take over its transactions.
_WITHOUT = {
    "key_serializer": None,
    "value_serializer": None,
    "partitioner_class": None,
    "interceptor_classes": (),
    "metric_reporters": (),
    "transactional_id": None,
}
_LOG_APPEND_TIME = "LogAppendTime"


def write_record(
    config: ProducerConfig, topic: str, timestamp_type: str | None, timeout_ms: float, findings: Findings
) -> None:
    """Send a record and report its latency, and the clock skew if the broker sets the time of records.

    `timestamp_type`: the topic's `message.timestamp.type`; None if it isn't known.
    """
    logger, silence = logging.getLogger("headrace"), logging.NullHandler()
    # the producer's warnings are about the failures that the finding names
    logger.addHandler(silence)
    try:
        with KafkaProducer(**_keys(config, timeout_ms)) as producer:
            try:
                producer.partitions_for(topic)
                began_ms, sent_ms = SYSTEM_CLOCK.now_ms(), SYSTEM_CLOCK.wall_ms()
                metadata = producer.send(topic, _VALUE, _KEY, timestamp_ms=sent_ms).get(
                    timeout_ms / 1000.0 + _PATIENCE_S
                )
                latency_ms = SYSTEM_CLOCK.now_ms() - began_ms
            finally:
                producer.close(0)
    except KafkaError as error:
        step = Step.ACCESS if isinstance(error, AuthorizationError) else Step.WRITE
        cause = "" if error.__cause__ is None else f" ({type(error.__cause__).__name__})"
        findings.fail(step, topic, f"a record was not acknowledged: {type(error).__name__}: {error}{cause}")
        return
    finally:
        logger.removeHandler(silence)
    findings.ok(
        Step.WRITE,
        topic,
        f"a record was acknowledged after {latency_ms:.1f} ms: partition {metadata.partition}, offset "
        f"{metadata.offset}",
        latency_ms=round(latency_ms, 1),
        partition=metadata.partition,
        offset=metadata.offset,
    )
    if timestamp_type == _LOG_APPEND_TIME or metadata.timestamp != sent_ms:
        _report_skew(topic, metadata.timestamp, sent_ms, latency_ms, findings)
    else:
        findings.skip(
            Step.CLOCK, topic, "the clock skew was not measured: the topic has message.timestamp.type=CreateTime"
        )


def _keys(config: ProducerConfig, timeout_ms: float) -> dict[str, Any]:
    given = {name: config[name] for name in config if config.is_explicit(name)}
    bound_ms = int(timeout_ms)
    timeouts = {
        "linger_ms": 0,
        "request_timeout_ms": bound_ms,
        "delivery_timeout_ms": bound_ms,
        "max_block_ms": bound_ms,
    }
    return {**given, **_WITHOUT, **timeouts}


def _report_skew(topic: str, appended_ms: int, sent_ms: int, latency_ms: float, findings: Findings) -> None:
    """The broker's clock showed `appended_ms` at some moment between the send and its acknowledgement."""
    skew_ms, error_ms = appended_ms - (sent_ms + latency_ms / 2), latency_ms / 2
    facts = {"skew_ms": round(skew_ms, 1), "error_ms": round(error_ms, 1)}
    text = f"the broker's clock is {abs(skew_ms):.1f} ms {'ahead' if skew_ms >= 0 else 'behind'}, ± {error_ms:.1f} ms"
    if abs(skew_ms) - error_ms > _SKEW_MS:
        findings.warn(
            Step.CLOCK, topic, text, "synchronize the clocks of both machines, with NTP for instance", **facts
        )
    else:
        findings.ok(Step.CLOCK, topic, text, **facts)
