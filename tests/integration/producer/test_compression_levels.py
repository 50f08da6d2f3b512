"""Batches are compressed with the configured level, up to the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.broker import EmbeddedCluster
from headrace.network.records.batch import RecordBatch
from headrace.network.records.builder_cy import RecordBatchBuilder
from headrace.network.records.compression import Compression, compress, has_lz4_levels
from headrace.producer import KafkaProducer

#: Text that higher levels compress better.
VALUES = [b"record %d of a thousand: %d, %x, %d" % (each, each**3, each**4, each % 97) for each in range(1000)]
TIME_MS = 1_600_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=1, log_retention_ms=-1) as cluster:
        yield cluster


def stored(cluster: EmbeddedCluster, codec: str, level: int | None) -> RecordBatch:
    """The only batch that a producer with this level has written to the log."""
    topic = f"{codec}{level}"
    cluster.create_topic(topic, 1)
    options = {} if level is None else {f"compression_{codec}_level": level}
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        compression_type=codec,
        batch_size=1_000_000,
        linger_ms=60_000,
        **options,
    ) as producer:
        for value in VALUES:
            producer.send(topic, value, timestamp_ms=TIME_MS)
    log = cluster.broker(cluster.leader_of(topic, 0)).replicas.partition((topic, 0)).log
    (batch,) = log.batches(0, log.end.offset)
    return batch


def raw() -> bytes:
    builder = RecordBatchBuilder(bytearray(1_000_000))
    for value in VALUES:
        assert builder.append(TIME_MS, None, value)
    return b"".join(builder.finish())[61:]


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        ("gzip", [1, None, 9]),
        pytest.param(
            "lz4", [1, None, 17], marks=[] if has_lz4_levels() else pytest.mark.skip("lz4 has one level before 2.14")
        ),
        ("zstd", [-7, 1, None, 19]),
        ("snappy", [None]),
    ],
)
def test_the_log_holds_what_the_codec_makes_of_the_records_at_that_level(
    cluster: EmbeddedCluster, codec: str, levels: list[int | None]
) -> None:
    records = raw()
    sizes = []
    for level in levels:
        batch = stored(cluster, codec, level)
        batch.validate()
        assert batch.compression == Compression[codec.upper()]
        assert bytes(batch.buffer[61:]) == compress(Compression[codec.upper()], records, level)
        assert [record.value for record in batch.records()] == VALUES
        sizes.append(batch.size_bytes)
    assert len(set(sizes)) == len(sizes)
    assert min(sizes) == sizes[-1]
