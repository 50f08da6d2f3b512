"""`headrace topics`: list, describe, create and delete the topics of a running cluster."""

from __future__ import annotations

import argparse
from typing import Any

from ..broker.log.files import encode_uuid
from ..network.protocol.errors import BrokerResponseError, make_error
from ..network.protocol.message import first_version_with
from ..network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ..network.protocol.messages.records.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ..network.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ..network.protocol.types import ZERO_UUID
from ..network.text import table
from .arguments import read_configs, whole_number
from .client import Client, add_bootstrap_argument, topic_error
from .topic_creation import create_topic

_TOPIC_RESOURCE = 2
_SET_ON_TOPIC = 1
_TIMEOUT_MS = 30_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list all topics, one per line")
    listing.add_argument("--internal", action="store_true", help="include Kafka's own topics")
    describing = actions.add_parser("describe", help="show partitions, replicas, offsets and configuration of topics")
    describing.add_argument("topics", nargs="+", metavar="TOPIC")
    creating = actions.add_parser("create", help="create a topic")
    creating.add_argument("topic", metavar="TOPIC")
    creating.add_argument(
        "--partitions", type=whole_number(1), default=-1, metavar="N", help="default: that of the brokers"
    )
    creating.add_argument(
        "--replication-factor", type=whole_number(1), default=-1, metavar="N", help="default: that of the brokers"
    )
    creating.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="a key of the topic, e.g. retention.ms=60000"
    )
    deleting = actions.add_parser("delete", help="delete topics with all their records")
    deleting.add_argument("topics", nargs="+", metavar="TOPIC")
    for action in (listing, describing, creating, deleting):
        add_bootstrap_argument(action)


def run(options: argparse.Namespace) -> int:
    """Run one of the actions. Raises KafkaError."""
    actions = {"list": _list, "describe": _describe, "create": _create, "delete": _delete}
    with Client(options.bootstrap_server, options.command_config) as client:
        return actions[options.action](client, options)


def _list(client: Client, options: argparse.Namespace) -> int:
    rows = [
        (topic.name, len(topic.partitions), _replication(topic))
        for topic in sorted(client.metadata().topics, key=lambda topic: topic.name or "")
        if options.internal or not topic.is_internal
    ]
    print(table(("topic", "partitions", "replicas"), rows) if rows else "no topics")
    return 0


def _replication(topic: Any) -> int:
    return max((len(partition.replica_nodes) for partition in topic.partitions), default=0)


def _describe(client: Client, options: argparse.Namespace) -> int:
    answer = client.metadata(options.topics)
    topics = {topic.name: topic for topic in answer.topics}
    configs = _configs(client, options.topics)
    for number, name in enumerate(options.topics):
        topic = topics[name]
        ends = _offsets(client, topic, ListOffsetsRequest.LATEST_TIMESTAMP)
        starts = _offsets(client, topic, ListOffsetsRequest.EARLIEST_TIMESTAMP)
        if number:
            print()
        print(f"topic {name}" + (f"  id {encode_uuid(topic.topic_id)}" if topic.topic_id != ZERO_UUID else ""))
        for key, value in configs[name]:
            print(f"  {key}={value}")
        rows = [
            (
                part.partition_index,
                part.leader_id if part.leader_id >= 0 else "none",
                _numbers(part.replica_nodes),
                _numbers(part.isr_nodes),
                starts.get(part.partition_index, "?"),
                ends.get(part.partition_index, "?"),
            )
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        ]
        print(table(("partition", "leader", "replicas", "in sync", "first offset", "next offset"), rows))
    return 0


def _numbers(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


def _configs(client: Client, names: list[str]) -> dict[str, list[tuple[str, str | None]]]:
    """The configuration overrides of the topics."""
    resources = [DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name) for name in names]
    found = {}
    for result in client.ask(DescribeConfigsRequest(resources=resources)).results:
        if result.error_code:
            raise topic_error(result.resource_name, result.error_code, result.error_message)
        entries = [entry for entry in result.configs if entry.config_source == _SET_ON_TOPIC]
        found[result.resource_name] = [(entry.name, entry.value) for entry in entries]
    return found


def _offsets(client: Client, topic: Any, timestamp: int) -> dict[int, int]:
    """The first or the next offset of each partition that has a leader."""
    by_leader: dict[int, list[int]] = {}
    for part in topic.partitions:
        if part.leader_id >= 0:
            by_leader.setdefault(part.leader_id, []).append(part.partition_index)
    found = {}
    for leader, partitions in by_leader.items():
        asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions]
        answer = client.ask(
            ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic.name, partitions=asked)], timeout_ms=_TIMEOUT_MS),
            leader,
        )
        for part in answer.topics[0].partitions:
            if part.error_code == 0:
                found[part.partition_index] = part.offset
    return found


def _create(client: Client, options: argparse.Namespace) -> int:
    partitions, replicas = create_topic(
        client,
        options.topic,
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        configs=read_configs(options.config),
    )
    # Brokers before Kafka 2.4 don't return the number of partitions and replicas.
    made = f": partitions {partitions}, replicas {replicas}" if partitions >= 0 else ""
    print(f"created {options.topic}{made}")
    return 0


def _delete(client: Client, options: argparse.Namespace) -> int:
    controller = client.controller()
    if client.version_of(DeleteTopicsRequest, controller) >= first_version_with(DeleteTopicsRequest, "topics"):
        states = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in options.topics]
        request = DeleteTopicsRequest(topics=states, timeout_ms=_TIMEOUT_MS)
    else:
        request = DeleteTopicsRequest(topic_names=options.topics, timeout_ms=_TIMEOUT_MS)
    failed: list[BrokerResponseError] = []
    for result in client.ask(request, controller).responses:
        if result.error_code:
            message = result.error_message or f"{result.name}: {make_error(result.error_code)}"
            failed.append(make_error(result.error_code, message))
        else:
            print(f"deleted {result.name}")
    if failed:
        raise type(failed[0])("; ".join(map(str, failed)))
    return 0
