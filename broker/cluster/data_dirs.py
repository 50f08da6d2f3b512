"""The directories of a cluster: where each broker keeps its logs, and what they tell before anybody runs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from ...network.protocol.errors import KafkaStorageError
from ..config.broker_config import BrokerConfig
from ..controller.controller import Controller
from ..log.files import META_PROPERTIES_FILE, encode_uuid, read_properties, read_topic_id
from ..log.manager import parse_directory_name
from ..metadata import PartitionState, TopicState

STATE_FILE = "headrace-controller.json"


def make_directory(directory: Path) -> None:
    """Make the directory unless it is there. Raises KafkaStorageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        reason = "there is a file of that name" if isinstance(failed, FileExistsError) else failed.strerror
        raise KafkaStorageError(
            f"can't make the data directory {directory}: {reason}; choose one that this user may write to"
        ) from failed


def broker_directories(directory: Path, count: int) -> dict[int, Path]:
    """Each broker's directory by its id: `broker-<id>`, or the directory itself for a broker that is alone."""
    if count == 1:
        return {1: directory}
    return {node_id: directory / f"broker-{node_id}" for node_id in range(1, count + 1)}


def make_controller(directory: Path, count: int, config: BrokerConfig, *, keeps_state: bool) -> Controller:
    """The controller for what is kept in `directory`; `keeps_state`: it keeps its decisions there, too.

    Raises KafkaStorageError.
    """
    directories = broker_directories(directory, count)
    try:
        known = (read_properties(each / META_PROPERTIES_FILE) for each in directories.values())
        cluster_ids = (each.get("cluster.id") for each in known if each is not None)
        cluster_id = next((each for each in cluster_ids if each), None) or encode_uuid(uuid.uuid4())
        controller = Controller(cluster_id, config, directory / STATE_FILE if keeps_state else None)
        controller.load(topics_of_directories(directories))
    except OSError as failed:
        raise KafkaStorageError(f"can't read the data directory {directory}: {failed}") from failed
    return controller


def topics_of_directories(directories: Mapping[int, Path]) -> dict[str, TopicState]:
    """Topics as log directories tell them: for those of Apache Kafka, about which nothing else is known.

    A topic some of whose partitions are missing is left out, and its directories alone.
    """
    holders: dict[str, dict[int, list[int]]] = {}
    ids: dict[str, uuid.UUID] = {}
    for node_id, directory in directories.items():
        for path in directory.iterdir() if directory.exists() else ():
            partition = parse_directory_name(path.name) if path.is_dir() else None
            if partition is None:
                continue
            topic, index = partition
            holders.setdefault(topic, {}).setdefault(index, []).append(node_id)
            ids[topic] = read_topic_id(path) or ids.get(topic) or uuid.uuid4()
    topics = {}
    for topic, partitions in holders.items():
        if sorted(partitions) == list(range(len(partitions))):
            states = (tuple(sorted(partitions[index])) for index in range(len(partitions)))
            topics[topic] = TopicState(topic, ids[topic], tuple(PartitionState(each, each, each[0]) for each in states))
    return topics
