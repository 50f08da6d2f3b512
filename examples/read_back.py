"""Reads a topic back with confluent-kafka, which shares no code with Headrace, for comparison with a DataFrame."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.cimpl import KafkaError

#: Give up if nothing arrives for this long.
PATIENCE_SECONDS = 30.0


class ReadBack(NamedTuple):
    """The contents of a topic: the number of records, how often each fingerprint occurred, the partitions of each key,
    and a description of the first record read."""

    records: int
    fingerprints: Counter[bytes]
    partitions_of_key: dict[bytes | None, set[int]]
    first: str


def fingerprint(key: bytes | None, value: bytes | None) -> bytes:
    """A 128-bit hash of a key and a value; None and empty differ."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (key, value):
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()


def fingerprints(pairs: Iterable[tuple[str | bytes | None, str | bytes | None]]) -> Counter[bytes]:
    """The fingerprints of the expected keys and values; text is encoded as UTF-8."""
    return Counter(fingerprint(_bytes(key), _bytes(value)) for key, value in pairs)


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part


def high_watermarks(bootstrap_servers: str, topic: str, partitions: int) -> Callable[[], int]:
    """A function that returns the current number of acknowledged records in a topic."""
    consumer = _consumer(bootstrap_servers)

    def total() -> int:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)

    return total


def read_back(bootstrap_servers: str, topic: str) -> ReadBack:
    """Read every record of a topic from the beginning; librdkafka checks the CRCs."""
    consumer = _consumer(bootstrap_servers)
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    unfinished = set(partitions)
    found: Counter[bytes] = Counter()
    partitions_of_key: dict[bytes | None, set[int]] = {}
    records = 0
    first = ""
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while unfinished:
            messages = consumer.consume(10_000, timeout=0.5)
            if messages:
                deadline = time.monotonic() + PATIENCE_SECONDS
            elif time.monotonic() > deadline:
                raise SystemExit(f"nothing more arrived from {topic}, partitions {sorted(unfinished)}, after {records}")
            for message in messages:
                error = message.error()
                if error is None:
                    first = (
                        first
                        or f"{topic}-{message.partition()} @ {message.offset()}: {message.key()} {message.value()}"
                    )
                    records += 1
                    found[fingerprint(message.key(), message.value())] += 1
                    partitions_of_key.setdefault(message.key(), set()).add(message.partition() or 0)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return ReadBack(records, found, partitions_of_key, first)


def _consumer(bootstrap_servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "headrace-read-back",  # required by the client; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
