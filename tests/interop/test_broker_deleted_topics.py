"""A deleted topic that a client still requests is created again if the client allows it, by Apache Kafka and here."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator

import pytest
from support.apache_kafka.fixtures import start_or_skip
from support.waiting import wait_until

from headrace.broker import ProcessCluster
from headrace.network.addresses import parse_address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.errors import UnknownTopicOrPartitionError
from headrace.network.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.network.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.network.protocol.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from headrace.network.protocol.types import ZERO_UUID

Connections = list[BlockingConnection]


@pytest.fixture(scope="module", params=["Apache Kafka", "embedded"])
def connections(request: pytest.FixtureRequest) -> Iterator[Connections]:
    """One connection to each of three brokers that create topics on demand."""
    if request.param == "embedded":
        cluster = ProcessCluster(3).__enter__()
    else:
        cluster = start_or_skip(brokers=3, properties={"auto.create.topics.enable": "true"})
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.__exit__, None, None, None)
        made = [
            BlockingConnection(parse_address(address), client_id="test", timeout_ms=30_000, max_response_bytes=2**20)
            for address in cluster.bootstrap_servers.split(",")
        ]
        yield made
        for each in made:
            each.close()


def ask(connection: BlockingConnection, name: str, *, may_create: bool) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=may_create)
    (topic,) = connection.request(request).topics
    return topic.error_code


def make_and_delete(connections: Connections) -> str:
    name = f"t-{uuid.uuid4()}"
    first = connections[0]
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    (made,) = first.request(CreateTopicsRequest(topics=[topic], timeout_ms=20_000)).topics
    assert made.error_code == 0
    for each in connections:
        wait_until(lambda each=each: ask(each, name, may_create=False) == 0)
    state = DeleteTopicState(name=name, topic_id=ZERO_UUID)
    (gone,) = first.request(DeleteTopicsRequest(topics=[state], timeout_ms=20_000)).responses
    assert gone.error_code == 0
    return name


@pytest.mark.timeout(600)
def test_it_stays_deleted_for_clients_that_do_not_create(connections: Connections) -> None:
    name = make_and_delete(connections)
    for each in connections:
        wait_until(lambda each=each: ask(each, name, may_create=False) == UnknownTopicOrPartitionError.code)
    for each in connections * 3:
        assert ask(each, name, may_create=False) == UnknownTopicOrPartitionError.code


@pytest.mark.timeout(600)
def test_it_is_made_anew_for_clients_that_create(connections: Connections) -> None:
    name = make_and_delete(connections)
    wait_until(lambda: ask(connections[1], name, may_create=False) == UnknownTopicOrPartitionError.code)
    ask(connections[1], name, may_create=True)
    for each in connections:
        wait_until(lambda each=each: ask(each, name, may_create=False) == 0)
