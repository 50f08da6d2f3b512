"""librdkafka's mock cluster in a process: ``python -m comparison.mock_cluster TOPIC PARTITIONS``.

It prints its bootstrap address and ends with its standard input. confluent-kafka has no call for topics with a chosen
number of partitions, so this uses the C functions of the librdkafka that confluent-kafka brings along.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from pathlib import Path

PRODUCER = 0


def librdkafka() -> ctypes.CDLL:
    """The library beside the installed confluent-kafka, or the system's. Raises SystemExit if there is none."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    folders = (package.with_name("confluent_kafka.libs"), package / ".dylibs")
    found = [str(path) for folder in folders for path in sorted(folder.glob("librdkafka*"))]
    name = found[0] if found else ctypes.util.find_library("rdkafka")
    if name is None:
        raise SystemExit(f"there is no librdkafka in {folders[0]}, {folders[1]} or on the system's library path")
    library = ctypes.CDLL(name)
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
    library.rd_kafka_new.restype = ctypes.c_void_p
    library.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
    library.rd_kafka_mock_topic_create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    return library


def main() -> None:
    topic, partitions = sys.argv[1], int(sys.argv[2])
    library = librdkafka()
    reason = ctypes.create_string_buffer(512)
    configuration = library.rd_kafka_conf_new()
    # it warns about missing bootstrap servers otherwise: the mock cluster is its own
    library.rd_kafka_conf_set(configuration, b"log_level", b"0", reason, len(reason))
    client = library.rd_kafka_new(PRODUCER, configuration, reason, len(reason))
    if not client:
        raise SystemExit(f"rd_kafka_new failed: {reason.value.decode()}")
    cluster = library.rd_kafka_mock_cluster_new(client, 1)
    if not cluster:
        raise SystemExit("rd_kafka_mock_cluster_new failed")
    if code := library.rd_kafka_mock_topic_create(cluster, topic.encode(), partitions, 1):
        raise SystemExit(f"rd_kafka_mock_topic_create failed for {partitions} partitions with error {code}")
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
