"""aiokafka's arguments that have another name here."""

from __future__ import annotations

import asyncio

import pytest

from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.aio.aiokafka_names import translated


def test_max_batch_size_is_batch_size() -> None:
    assert translated({"max_batch_size": 5, "linger_ms": 1}) == {"batch_size": 5, "linger_ms": 1}


def test_other_keys_are_left_alone() -> None:
    assert translated({"acks": "all"}) == {"acks": "all"}


def test_both_names_of_a_key_are_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="max_batch_size"):
        translated({"max_batch_size": 5, "batch_size": 5})


def test_a_loop_is_refused_and_its_default_is_not() -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(KafkaConfigurationError, match="loop is not accepted"):
        translated({"loop": loop})
    loop.close()
    assert translated({"loop": None}) == {}
