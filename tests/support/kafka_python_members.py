"""Members of consumer groups, from kafka-python."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import kafka

PATIENCE_S = 60.0


@contextlib.contextmanager
def member(bootstrap_servers: str, topic: str, group: str, **config: Any) -> Iterator[Any]:
    """A consumer that has partitions of the topic, and is closed at the end.

    A group leader of kafka-python 3.0.12 that has no metadata of the topic assigns nothing, and may hang when it gets
    the metadata while it joins again. So the metadata is fetched first.
    """
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, group_id=group, **config)
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not consumer.partitions_for_topic(topic):
            assert time.monotonic() < end_s, f"kafka-python doesn't find {topic}"
        while not consumer.assignment():
            assert time.monotonic() < end_s, f"kafka-python gets no partition in group {group}"
            consumer.poll(100)
        yield consumer
    finally:
        consumer.close()
