"""The arguments of aiokafka's AIOKafkaProducer that have another name here, or none."""

from __future__ import annotations

from typing import Any

from ...network.protocol.errors import KafkaConfigurationError


def translated(keywords: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments with Kafka's keys instead of aiokafka's. Raises KafkaConfigurationError."""
    if not keywords.keys() & {"loop", "max_batch_size"}:
        return keywords
    translated = dict(keywords)
    if translated.pop("loop", None) is not None:
        raise KafkaConfigurationError(
            "loop is not accepted: the producer serves the event loop that runs when it is used. Leave it out"
        )
    if "max_batch_size" in translated:
        if "batch_size" in translated:
            raise KafkaConfigurationError("max_batch_size is aiokafka's name of batch.size: give one of the two")
        translated["batch_size"] = translated.pop("max_batch_size")
    return translated
