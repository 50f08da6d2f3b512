"""Creates topics for the commands."""

from __future__ import annotations

from ..network.protocol.errors import TopicAlreadyExistsError
from ..network.protocol.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from .client import Client, topic_error

_TIMEOUT_MS = 30_000


def create_topic(
    client: Client, topic: str, *, partitions: int = -1, replication_factor: int = -1, configs: dict[str, str]
) -> tuple[int, int]:
    """Create a topic. Returns its partitions and replicas, -1 from brokers before Kafka 2.4. Raises KafkaError."""
    created = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    (result,) = client.ask(CreateTopicsRequest(topics=[created], timeout_ms=_TIMEOUT_MS), client.controller()).topics
    if result.error_code:
        raise topic_error(result.name, result.error_code, result.error_message)
    return result.num_partitions, result.replication_factor


def create_missing_topic(client: Client, topic: str, partitions: int | None) -> None:
    """Create the topic with this many partitions, unless it exists or `partitions` is None. Raises KafkaError."""
    if partitions is None:
        return
    try:
        create_topic(client, topic, partitions=partitions, configs={})
    except TopicAlreadyExistsError:
        return
