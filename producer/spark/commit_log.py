"""The log of commits: what Spark's driver records durably before and after it commits the transactions of its tasks.

It is the compacted topic `__headrace_commits` in the cluster that is written to, with one partition, in which the last
record of a key counts. The key is a query or a job. A driver creates the topic if it is missing.

The last record of a key is searched from the end of the log in growing steps: that of a running query is near the end,
whereas a job without a record needs the whole log, which compaction keeps small.

Source: Kafka Connect's internal topics (KafkaBasedLog, TopicAdmin).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ...network.acl_advice import missing_acl
from ...network.addresses import Address
from ...network.protocol.errors import (
    AuthorizationError,
    InvalidMetadataError,
    KafkaConfigurationError,
    OffsetNotAvailableError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    make_error,
)
from ...network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...network.protocol.messages.records.fetch import FetchPartition, FetchRequest, FetchTopic
from ...network.protocol.messages.records.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...network.protocol.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ...network.records.batch import RecordBatch, read_batches
from ...network.records.record import Record
from ...network.security.client_config import ClientSecurityConfig
from ..blocking_cluster import BlockingCluster
from ..config import ProducerConfig
from ..kafka_producer import KafkaProducer
from .options import digest_of
from .producers import worker_producers

TOPIC = "__headrace_commits"
_PARTITION = 0
_REPLICAS = 3
#: The size of the part that is never compacted, because it is still being written.
_SEGMENT_BYTES = 16 * 2**20
_FETCH_BYTES = 4 * 2**20
_FETCH_WAIT_MS = 500
#: The first step back from the end, in records, and by how much each next one is larger.
_FIRST_STEP = 32
_GROWTH = 8
_TOPIC_RESOURCE = 2

T = TypeVar("T")


class CommitLog:
    """Reads and writes the log. For one thread. Every method raises KafkaError, such as KafkaTimeoutError.

    Creates the topic when it is first used and missing.
    """

    def __init__(self, config: ProducerConfig, cluster: BlockingCluster) -> None:
        """`config`: the sink's, whose addresses and security are used. `cluster`: connections; the caller closes it."""
        self._config = config
        self._cluster = cluster
        self._leader: Address | None = None
        self._topic_id: Any = None

    def last(self, key: str) -> bytes | None:
        """The value of a key's last record, None if it has none."""
        start = self._bound(ListOffsetsRequest.EARLIEST_TIMESTAMP)
        end = self._bound(ListOffsetsRequest.LATEST_TIMESTAMP)
        step = _FIRST_STEP
        wanted = key.encode()
        while end > start:
            first = max(start, end - step)
            found: Record | None = None
            for record in self._records(first, end):
                if record.key == wanted:
                    found = record
            if found is not None:
                return found.value
            end, step = first, step * _GROWTH
        return None

    def append(self, key: str, value: bytes | None) -> None:
        """Append a record, and return when all in-sync replicas have it. None deletes the key."""
        self._known_leader()
        config = _producer_config(self._config)
        with worker_producers().lease(digest_of(config), config) as producer:
            self._send(producer, key, value)

    def _send(self, producer: KafkaProducer, key: str, value: bytes | None) -> None:
        try:
            producer.send(TOPIC, value, key=key.encode(), partition=_PARTITION).get()
        except TopicAuthorizationFailedError as denied:
            raise type(denied)(f"{TOPIC}: {missing_acl('WRITE', 'TOPIC', TOPIC)}") from denied

    # --- Reading ---

    def _records(self, first: int, end: int) -> Iterator[Record]:
        """The records at the offsets from `first` to `end`, without `end`."""
        offset = first
        while offset < end:
            at = offset
            batches = self._at_leader("Fetch", lambda leader, at=at: self._fetch(leader, at, end))
            for batch in batches:
                batch.validate()
                offset = max(offset, batch.next_offset)
                if isinstance(batch, RecordBatch) and batch.is_control:
                    continue
                yield from (record for record in batch.records() if first <= record.offset < end)
            if not batches:
                # compaction has removed the rest
                return

    def _fetch(self, leader: Address, offset: int, end: int) -> list[Any]:
        """The batches from an offset on; none if there are none before `end`."""
        part = FetchPartition(partition=_PARTITION, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[FetchTopic(topic=TOPIC, topic_id=self._topic_id, partitions=[part])],
        )
        response = self._cluster.ask(request, leader)
        _check(response.error_code, "READ")
        (found,) = [part for topic in response.responses for part in topic.partitions]
        _check(found.error_code, "READ")
        if found.high_watermark < end:
            # without this, records that it does not show yet would be taken for compacted ones
            raise OffsetNotAvailableError(
                f"the leader of {TOPIC} shows offsets up to {found.high_watermark}, and a leader before it up to {end}"
            )
        return list(read_batches(found.records or b""))

    def _bound(self, timestamp: int) -> int:
        """The first offset, or that after the last."""
        part = ListOffsetsPartition(partition_index=_PARTITION, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[part])])

        def ask(leader: Address) -> int:
            (found,) = self._cluster.ask(request, leader).topics[0].partitions
            _check(found.error_code, "DESCRIBE")
            return found.offset

        return self._at_leader("ListOffsets", ask)

    # --- The leader and the topic ---

    def _at_leader(self, what: str, ask: Callable[[Address], T]) -> T:
        def attempt() -> T:
            leader = self._known_leader()
            try:
                return ask(leader)
            except InvalidMetadataError:
                self._leader = None
                raise

        return self._cluster.retrying(f"{what} of {TOPIC}", attempt)

    def _known_leader(self) -> Address:
        if self._leader is None:
            self._leader = self._cluster.retrying(f"finding the leader of {TOPIC}", self._find_leader)
        return self._leader

    def _find_leader(self) -> Address:
        metadata = self._cluster.metadata([TOPIC])
        (topic,) = metadata.topics
        if topic.error_code == UnknownTopicOrPartitionError.code:
            self._create(len(metadata.brokers))
        _check(topic.error_code, "DESCRIBE")
        self._topic_id = topic.topic_id
        addresses = {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}
        for partition in topic.partitions:
            if partition.partition_index == _PARTITION and partition.leader_id in addresses:
                return addresses[partition.leader_id]
        raise InvalidMetadataError(f"{TOPIC}-{_PARTITION} has no leader now")

    def _create(self, brokers: int) -> None:
        """Create the topic. Another driver may do so at the same time."""
        replicas = min(_REPLICAS, brokers)
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": str(_SEGMENT_BYTES),
            "min.insync.replicas": str(max(1, replicas - 1)),
        }
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
        )
        metadata = self._cluster.metadata()
        controller = {each.node_id: Address(each.host, each.port) for each in metadata.brokers}.get(
            metadata.controller_id
        )
        (result,) = self._cluster.ask(CreateTopicsRequest(topics=[topic]), controller).topics
        if result.error_code in (0, TopicAlreadyExistsError.code):
            return
        error = make_error(result.error_code, result.error_message)
        if isinstance(error, AuthorizationError):
            raise type(error)(
                f"{TOPIC}, which exactly_once needs, does not exist, and this client must not create it: create it "
                f"with one partition and cleanup.policy=compact, or: {missing_acl('CREATE', 'TOPIC', TOPIC)}"
            )
        raise error

    def check_compacted(self) -> None:
        """Raise KafkaConfigurationError if the brokers delete old records of the topic: it was created otherwise."""
        resource = DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=["cleanup.policy"]
        )
        self._known_leader()
        (result,) = self._cluster.retrying(
            "DescribeConfigs", lambda: self._cluster.ask(DescribeConfigsRequest(resources=[resource]))
        ).results
        # without the right to see the configuration, which is not needed otherwise, there is nothing to check
        policies = [entry.value for entry in result.configs if entry.name == "cleanup.policy"]
        if not result.error_code and policies and policies != ["compact"]:
            raise KafkaConfigurationError(
                f"{TOPIC} has cleanup.policy={policies[0]}, which deletes what exactly_once has to remember; set it to "
                f"compact"
            )


def _producer_config(config: ProducerConfig) -> ProducerConfig:
    """The configuration of the producer that writes to the log. Of the sink's it has the cluster and security only."""
    kept = ["bootstrap_servers", "client_id", *(entry.attribute for entry in ClientSecurityConfig.entries)]
    given = {"bootstrap_servers": "localhost", "compression_type": "gzip", "linger_ms": 0}
    base = ProducerConfig.resolve_from(None, given, {})
    return base._replaced({name: getattr(config, name) for name in kept}, {})


def _check(code: int, operation: str) -> None:
    """Raise the error of a code in a response about the topic."""
    if not code:
        return
    error = make_error(code)
    if isinstance(error, TopicAuthorizationFailedError):
        raise type(error)(f"{TOPIC}: {missing_acl(operation, 'TOPIC', TOPIC)}")
    raise make_error(code, f"{TOPIC}: {error}")
