"""Has librdkafka write the batches that test_golden_batches.py reads, one "name hex" pair per line.

    python write_batches_librdkafka.py > librdkafka_batches.txt

A confluent-kafka producer sends to librdkafka's own mock broker, and a raw Fetch request reads the bytes as stored.
"""

from __future__ import annotations

import socket
import struct

import confluent_kafka

TIME_MS = 1_600_000_000_000


def fetch(address: tuple[str, int], topic: str) -> bytes:
    """The records of partition 0, by a hand-encoded Fetch request of version 4."""
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1)
    body += struct.pack(f">h{len(name)}si", len(name), name, 1) + struct.pack(">iqi", 0, 0, 1 << 20)
    request = struct.pack(">hhih", 1, 4, 1, -1) + body
    with socket.create_connection(address, timeout=10) as connection, connection.makefile("rb") as stream:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", stream.read(4))
        response = stream.read(size)
    # correlation id, throttle time, one topic, its name, one partition: id, error, two offsets, aborted transactions
    position = 4 + 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted = struct.unpack_from(">ihqqi", response, position)
    position += 26 + 16 * max(aborted, 0)
    if error:
        raise SystemExit(f"the mock broker answered with error {error}")
    (size,) = struct.unpack_from(">i", response, position)
    return response[position + 4 : position + 4 + size]


def main() -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = confluent_kafka.Producer(
            {"test.mock.num.brokers": 1, "compression.type": codec, "linger.ms": 200, "enable.idempotence": True}
        )
        broker = next(iter(producer.list_topics(codec, timeout=10).brokers.values()))
        append = [
            (b"k0", b"v0", 0, []),
            (None, b"value", 5, [("trace", b"\x00\x01"), ("empty", b""), ("none", None), ("поток", "вода".encode())]),
            (b"", None, 2, []),
            (b"k3", b"water " * 50, 1_000_000, []),
        ]
        for key, value, later_ms, headers in append:
            producer.produce(codec, value, key, 0, timestamp=TIME_MS + later_ms, headers=headers)
        producer.flush(10)
        print(codec, fetch((broker.host, broker.port), codec).hex())


if __name__ == "__main__":
    main()
