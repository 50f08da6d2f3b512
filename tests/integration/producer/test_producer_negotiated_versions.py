"""The producer with brokers of every age: each version of each API that it may have to use, on real sockets.

The embedded broker advertises and accepts no newer versions than the test sets, and records the versions of requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support.confluent import PATIENCE_S, create_topic, read_topic

from headrace.broker import EmbeddedCluster
from headrace.broker.api import registry
from headrace.broker.requests.control import Fault
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import NotLeaderForPartitionError, UnsupportedCompressionTypeError
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.producer import KafkaProducer

CLIENT_ID = "under-test"
HEADERS = [("h", b"v"), ("null", None)]
#: The newest versions that Apache Kafka advertises for the producer's APIs, by release.
RELEASES = {
    "2.1": {ApiKey.PRODUCE: 7, ApiKey.METADATA: 7, ApiKey.API_VERSIONS: 2, ApiKey.INIT_PRODUCER_ID: 1},
    "2.8": {ApiKey.PRODUCE: 9, ApiKey.METADATA: 11, ApiKey.API_VERSIONS: 3, ApiKey.INIT_PRODUCER_ID: 4},
    "3.9": {ApiKey.PRODUCE: 11, ApiKey.METADATA: 12, ApiKey.API_VERSIONS: 4, ApiKey.INIT_PRODUCER_ID: 5},
}
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_TOPIC_IDS = {ApiKey.PRODUCE: 13, ApiKey.METADATA: 10}


def versions_of(key: ApiKey) -> list[int]:
    """All versions that the embedded broker supports and the producer may use."""
    served = registry.apis[key].versions
    return list(range(served.min, served.max + 1))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(num_partitions=2, log_retention_ms=-1) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def as_built(cluster: EmbeddedCluster) -> Iterator[None]:
    yield
    cluster.control.max_versions = None
    cluster.control.clear()


def a_producer(cluster: EmbeddedCluster, **keywords: Any) -> KafkaProducer:
    return KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id=CLIENT_ID, **keywords)


def act_as(cluster: EmbeddedCluster, newest: Mapping[ApiKey, int]) -> None:
    """Limit the cluster to these newest versions from now on; other APIs keep all of theirs."""
    cluster.control.max_versions = {key: api.versions.max for key, api in registry.apis.items()} | dict(newest)
    cluster.control.requests.clear()


def asked_in(cluster: EmbeddedCluster) -> dict[ApiKey, set[int]]:
    """The versions of the producer's requests since `act_as`, by API."""
    asked: dict[ApiKey, set[int]] = {}
    # a client that created a topic earlier may still send requests
    for request in list(cluster.control.requests):
        if request.client_id == CLIENT_ID:
            asked.setdefault(request.api_key, set()).add(request.api_version)
    return asked


def produce_and_read_back(
    cluster: EmbeddedCluster, newest: Mapping[ApiKey, int], *, codec: str = "gzip"
) -> dict[ApiKey, set[int]]:
    """Send records to both partitions of a topic, with one failed attempt: the log has each once, and in order.

    The cluster supports no newer versions than `newest` meanwhile. Returns the requested versions.
    """
    topic = create_topic(cluster.bootstrap_servers, partitions=2)
    fault = cluster.control.fault(ApiKey.PRODUCE, Fault(error=NotLeaderForPartitionError, topic=topic, partition=1))
    act_as(cluster, newest)
    with a_producer(cluster, compression_type=codec, batch_size=1_000, retry_backoff_ms=10) as producer:
        futures = [
            producer.send(topic, b"value-%d" % number * 4, b"key", HEADERS, number % 2, timestamp_ms=1_000 + number)
            for number in range(200)
        ]
        answers = [future.get(PATIENCE_S) for future in futures]
    asked = asked_in(cluster)
    assert fault.hits == 1
    cluster.control.max_versions = None
    read = read_topic(cluster.bootstrap_servers, topic)
    assert {(message.partition(), message.offset(), message.timestamp()[1]) for message in read} == {
        (metadata.partition, metadata.offset, metadata.timestamp) for metadata in answers
    }
    for partition in (0, 1):
        values = [message.value() for message in read if message.partition() == partition]
        assert values == [b"value-%d" % number * 4 for number in range(partition, 200, 2)]
    assert {(message.key(), tuple(message.headers() or ())) for message in read} == {(b"key", tuple(HEADERS))}
    return asked


@pytest.mark.parametrize("version", versions_of(ApiKey.PRODUCE))
def test_each_version_of_produce(cluster: EmbeddedCluster, version: int) -> None:
    codec = "gzip" if version < FIRST_VERSION_WITH_ZSTD else "zstd"
    asked = produce_and_read_back(cluster, {ApiKey.PRODUCE: version}, codec=codec)
    assert asked[ApiKey.PRODUCE] == {version}


@pytest.mark.parametrize("version", versions_of(ApiKey.METADATA))
def test_each_version_of_metadata(cluster: EmbeddedCluster, version: int) -> None:
    asked = produce_and_read_back(cluster, {ApiKey.METADATA: version})
    assert asked[ApiKey.METADATA] == {version}
    # without topic ids in the metadata, the producer names topics
    newest = max(versions_of(ApiKey.PRODUCE))
    knows_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS[ApiKey.METADATA]
    assert asked[ApiKey.PRODUCE] == {newest if knows_ids else FIRST_VERSION_WITH_TOPIC_IDS[ApiKey.PRODUCE] - 1}


@pytest.mark.parametrize("version", versions_of(ApiKey.INIT_PRODUCER_ID))
def test_each_version_of_init_producer_id(cluster: EmbeddedCluster, version: int) -> None:
    asked = produce_and_read_back(cluster, {ApiKey.INIT_PRODUCER_ID: version})
    assert asked[ApiKey.INIT_PRODUCER_ID] == {version}


@pytest.mark.parametrize("version", versions_of(ApiKey.API_VERSIONS))
def test_each_version_of_api_versions(cluster: EmbeddedCluster, version: int) -> None:
    asked = produce_and_read_back(cluster, {ApiKey.API_VERSIONS: version})
    # first the newest, then the one that the broker supports
    assert asked[ApiKey.API_VERSIONS] == {ApiVersionsRequest.versions.max, version}


@pytest.mark.parametrize("release", RELEASES)
def test_the_versions_of_a_release(cluster: EmbeddedCluster, release: str) -> None:
    asked = produce_and_read_back(cluster, RELEASES[release], codec="zstd")
    for key, version in RELEASES[release].items():
        assert min(asked[key]) == version


@pytest.mark.parametrize("version", versions_of(ApiKey.METADATA))
def test_a_topic_is_made_on_demand(cluster: EmbeddedCluster, version: int) -> None:
    act_as(cluster, {ApiKey.METADATA: version})
    with a_producer(cluster) as producer:
        assert producer.send(f"made-by-metadata-{version}", b"value").get(PATIENCE_S).offset == 0
    assert asked_in(cluster)[ApiKey.METADATA] == {version}


@pytest.mark.parametrize("version", range(3, FIRST_VERSION_WITH_ZSTD))
def test_zstd_is_not_sent_where_it_is_not_known(cluster: EmbeddedCluster, version: int) -> None:
    topic = f"no-zstd-{version}"
    act_as(cluster, {ApiKey.PRODUCE: version})
    with a_producer(cluster, compression_type="zstd") as producer:
        error = producer.send(topic, b"value" * 100, partition=0).exception(PATIENCE_S)
        assert isinstance(error, UnsupportedCompressionTypeError)
        assert "set compression.type to another codec" in str(error)
        # data that zstd doesn't make smaller is sent, also after the failure
        assert producer.send(topic, b"v", partition=0).get(PATIENCE_S).offset == 0
    assert asked_in(cluster)[ApiKey.PRODUCE] == {version}
