"""The steps about a topic: its partitions, access to it, and its settings beside those of the producer."""

from __future__ import annotations

from typing import Any

from ...network.acl_advice import missing_acl, no_acl_for_topic
from ...network.client.blocking_connection import BlockingConnection
from ...network.protocol.errors import (
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    make_error,
)
from ...network.protocol.message import first_version_with
from ...network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ...network.protocol.messages.topics.metadata import MetadataRequest
from ...network.text import counted, duration_text, size_text
from ...producer.config import ProducerConfig
from ..client import metadata_request
from .findings import Findings, Step

_TOPIC_RESOURCE = 2
#: The bit of WRITE in the authorized operations (Kafka's AclOperation), and the value that means that none were sent.
_WRITE_BIT = 1 << 4
_NO_OPERATIONS = -(2**31)
_SHORT_RETENTION_MS = 3_600_000
_ACKS_ALL = -1


class TopicCheck:
    """Checks one topic over one connection. `configs` has the topic's settings, if they could be read."""

    def __init__(self, connection: BlockingConnection, topic: str, config: ProducerConfig, findings: Findings) -> None:
        self._connection = connection
        self._topic = topic
        self._config = config
        self._findings = findings
        self.configs: dict[str, str | None] = {}

    def run(self) -> bool:
        """Whether records can be sent to the topic, as far as can be said without sending one."""
        topic = self._describe()
        if topic is None:
            return False
        before = self._findings.exit_code
        self._check_partitions(topic)
        self._check_access(topic)
        if self._read_configs():
            self._check_replicas(topic)
            self._check_sizes()
            self._check_retention()
        return self._findings.exit_code == before

    def _describe(self) -> Any:
        try:
            version = self._connection.usable_version(MetadataRequest)
            asked = metadata_request([self._topic], version)
            if version >= first_version_with(MetadataRequest, "include_topic_authorized_operations"):
                asked.include_topic_authorized_operations = True
            found = self._connection.request(asked).topics
        except KafkaError as error:
            self._findings.fail(Step.TOPIC, self._topic, f"its metadata can't be read: {error}")
            return None
        if not found:
            self._findings.fail(Step.TOPIC, self._topic, "the broker's metadata leaves it out")
            return None
        topic = found[0]
        if topic.error_code == 0:
            return topic
        error = make_error(topic.error_code)
        if isinstance(error, TopicAuthorizationFailedError):
            self._findings.fail(Step.ACCESS, self._topic, str(error), no_acl_for_topic(self._topic))
        elif isinstance(error, UnknownTopicOrPartitionError):
            self._findings.fail(
                Step.TOPIC,
                self._topic,
                "there is no such topic",
                f"create it (headrace topics create {self._topic}); brokers with auto.create.topics.enable do so at "
                "the first send, with their defaults",
            )
        elif isinstance(error, InvalidTopicError):
            self._findings.fail(Step.TOPIC, self._topic, f"it is not a topic's name: {error}", "correct the name")
        else:
            self._findings.fail(Step.TOPIC, self._topic, str(error), "wait a moment and try again")
            if topic.partitions:
                self._check_partitions(topic)
        return None

    # --- Partitions and access ---

    def _check_partitions(self, topic: Any) -> None:
        total = len(topic.partitions)
        leaderless = sorted(each.partition_index for each in topic.partitions if each.leader_id < 0)
        offline = sorted({node for each in topic.partitions for node in each.offline_replicas})
        if leaderless:
            self._findings.fail(
                Step.TOPIC,
                self._topic,
                f"{len(leaderless)} of {counted(total, 'partition')} have no leader: {_numbers(leaderless)}",
                "start the brokers that have their replicas"
                + (f" ({_numbers(offline)} are offline)" if offline else "")
                + "; records for these partitions wait until delivery.timeout.ms",
                leaderless=leaderless,
            )
        else:
            self._findings.ok(Step.TOPIC, self._topic, f"it has {counted(total, 'partition')}, each with a leader")
        if topic.is_internal:
            self._findings.fail(
                Step.ACCESS,
                self._topic,
                "it is one of Kafka's own topics, which reject the records of clients",
                "send to a topic of your own",
            )

    def _check_access(self, topic: Any) -> None:
        operations = topic.topic_authorized_operations
        if operations == _NO_OPERATIONS:
            self._findings.skip(Step.ACCESS, self._topic, "the brokers don't say which operations are allowed")
        elif operations & _WRITE_BIT:
            self._findings.ok(Step.ACCESS, self._topic, "WRITE is allowed")
        else:
            self._findings.fail(
                Step.ACCESS,
                self._topic,
                "WRITE is not allowed: for this client the topic is read-only",
                missing_acl("WRITE", "TOPIC", self._topic),
            )

    # --- Settings ---

    def _read_configs(self) -> bool:
        resource = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=self._topic)
        try:
            results = self._connection.request(DescribeConfigsRequest(resources=[resource])).results
            for result in results:
                if result.error_code:
                    raise make_error(result.error_code, result.error_message)
        except KafkaError as error:
            reason = str(error)
            if isinstance(error, TopicAuthorizationFailedError):
                reason = missing_acl("DESCRIBE_CONFIGS", "TOPIC", self._topic)
            self._findings.skip(Step.TOPIC, self._topic, f"its settings were not compared: {reason}")
            return False
        self.configs = {entry.name: entry.value for result in results for entry in result.configs}
        return True

    def _number(self, name: str) -> int | None:
        value = self.configs.get(name)
        try:
            return None if value is None else int(value)
        except ValueError:
            return None

    def _check_replicas(self, topic: Any) -> None:
        required = self._number("min.insync.replicas")
        replicas = min((len(each.replica_nodes) for each in topic.partitions), default=0)
        if required is None or not replicas:
            return
        text = f"min.insync.replicas={required}, {counted(replicas, 'replica')}"
        if self._config.acks != _ACKS_ALL:
            self._findings.warn(
                Step.TOPIC,
                self._topic,
                f"{text}, but acks={self._config.acks}: records are acknowledged before they are replicated",
                "set acks=all if a record must survive the loss of a broker",
            )
        elif required > replicas:
            self._findings.fail(
                Step.TOPIC,
                self._topic,
                f"{text}: with acks=all no record can ever be acknowledged",
                f"lower min.insync.replicas to at most {replicas}, or add replicas",
            )
        else:
            below = sorted(
                each.partition_index
                for each in topic.partitions
                if each.leader_id >= 0 and len(each.isr_nodes) < required
            )
            if below:
                self._findings.fail(
                    Step.TOPIC,
                    self._topic,
                    f"fewer than {required} replicas (min.insync.replicas) are in sync in "
                    f"{counted(len(below), 'partition')} ({_numbers(below)}), which reject records with acks=all",
                    "start the brokers that are down, or wait until their replicas have caught up",
                    below=below,
                )
            elif replicas == 1:
                self._findings.warn(
                    Step.TOPIC,
                    self._topic,
                    f"{text}: a record is lost with the one broker that has it",
                    "give the topic more replicas if its records matter",
                )
            else:
                self._findings.ok(Step.TOPIC, self._topic, f"{text} and acks=all fit together")

    def _check_sizes(self) -> None:
        limit = self._number("max.message.bytes")
        if limit is None:
            return
        config = self._config
        largest = min(config.max_request_size, config.buffer_memory)
        if config.batch_size > limit:
            self._findings.warn(
                Step.TOPIC,
                self._topic,
                f"batch.size is {config.batch_size}, but max.message.bytes is {limit}: the brokers reject full "
                "batches, which are then split and sent again",
                f"set batch.size below {limit}",
                max_message_bytes=limit,
            )
        elif largest > limit:
            self._findings.warn(
                Step.TOPIC,
                self._topic,
                f"the producer accepts records of up to {size_text(largest)} (max.request.size), but the topic only "
                f"batches of up to {size_text(limit)} (max.message.bytes)",
                f"set max.request.size to {limit}, so that `send` rejects larger records, or raise max.message.bytes",
                max_message_bytes=limit,
            )
        else:
            self._findings.ok(
                Step.TOPIC,
                self._topic,
                f"every record that the producer accepts fits into max.message.bytes={limit}",
                max_message_bytes=limit,
            )
        codec = self.configs.get("compression.type")
        if codec not in {None, "producer", config.compression_type.partition(":")[0]}:
            self._findings.warn(
                Step.TOPIC,
                self._topic,
                f"the topic has compression.type={codec} and the producer {config.compression_type}: the brokers "
                "compress every batch again",
                f"set compression.type={codec} in the producer, or compression.type=producer on the topic",
            )

    def _check_retention(self) -> None:
        policy = self.configs.get("cleanup.policy") or "delete"
        retention_ms, retention_bytes = self._number("retention.ms"), self._number("retention.bytes")
        parts = [f"cleanup.policy={policy}"]
        if "delete" in policy:
            kept = "forever" if retention_ms is None or retention_ms < 0 else f"for {duration_text(retention_ms)}"
            parts.append(f"records are kept {kept}")
            if retention_bytes is not None and retention_bytes >= 0:
                parts.append(f"at most {size_text(retention_bytes)} per partition")
        text = ", ".join(parts)
        facts = {"cleanup_policy": policy, "retention_ms": retention_ms, "retention_bytes": retention_bytes}
        if "delete" in policy and retention_ms is not None and 0 <= retention_ms < _SHORT_RETENTION_MS:
            self._findings.warn(
                Step.TOPIC,
                self._topic,
                text,
                "consumers that are down for longer miss records; raise retention.ms",
                **facts,
            )
        elif "compact" in policy:
            self._findings.warn(
                Step.TOPIC, self._topic, text, "a compacted topic rejects records without a key; give each one", **facts
            )
        else:
            self._findings.ok(Step.TOPIC, self._topic, text, **facts)


def _numbers(values: list[int], limit: int = 20) -> str:
    return ", ".join(map(str, values[:limit])) + (", ..." if len(values) > limit else "")
