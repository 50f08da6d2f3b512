"""The directories of a cluster: where each broker keeps its logs, and the topics that they hold at the start."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...network.protocol.errors import KafkaStorageError
from ..config.broker_config import BrokerConfig
from ..controller.controller import Controller
from ..log.files import META_PROPERTIES_FILE, encode_uuid, read_properties, read_topic_id
from ..log.log_directory import parse_directory_name
from ..metadata import PartitionState, TopicState

STATE_FILE = "headrace-controller.json"


@dataclass(frozen=True, slots=True)
class ClusterDirectories:
    """Where a cluster keeps its files: the directories of each broker by its id, and the file of the controller's state
    (None: the state is not kept)."""

    of_brokers: Mapping[int, tuple[Path, ...]]
    state_path: Path | None
    temporary: Path | None = None

    @classmethod
    def make(
        cls, given: Sequence[Path], node_ids: Collection[int], *, metadata_directory: str | None
    ) -> ClusterDirectories:
        """Create the directories that don't exist: `broker-<id>` below each given one, or the given one itself for a
        single broker. Raises KafkaStorageError."""
        temporary = None
        if not given:
            temporary = Path(tempfile.mkdtemp(prefix="headrace-"))
            given = [temporary]
        for directory in given:
            make_directory(directory)
        state_directory = given[0] if metadata_directory is None else Path(metadata_directory)
        make_directory(state_directory)
        return cls(
            {
                node_id: tuple(each / f"broker-{node_id}" if len(node_ids) > 1 else each for each in given)
                for node_id in node_ids
            },
            None if temporary is not None and metadata_directory is None else state_directory / STATE_FILE,
            temporary,
        )

    def remove(self) -> None:
        """Remove the temporary directory, if any."""
        if self.temporary is not None:
            shutil.rmtree(self.temporary, ignore_errors=True)


def make_directory(directory: Path) -> None:
    """Create the directory unless it exists. Raises KafkaStorageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as failed:
        reason = "there is a file of that name" if isinstance(failed, FileExistsError) else failed.strerror
        raise KafkaStorageError(
            f"can't make the data directory {directory}: {reason}; choose one that this user may write to"
        ) from failed


def make_controller(directories: ClusterDirectories, config: BrokerConfig) -> Controller:
    """The controller, with the cluster id, state and topics found in the directories. Raises KafkaStorageError."""
    try:
        of_all = [each for of_one in directories.of_brokers.values() for each in of_one]
        known = (read_properties(each / META_PROPERTIES_FILE) for each in of_all)
        cluster_ids = (each.get("cluster.id") for each in known if each is not None)
        cluster_id = next((each for each in cluster_ids if each), None) or encode_uuid(uuid.uuid4())
        controller = Controller(cluster_id, config, directories.state_path)
        controller.load(topics_of_directories(directories.of_brokers))
    except OSError as failed:
        raise KafkaStorageError(f"can't read the data directories: {failed}") from failed
    return controller


def topics_of_directories(directories: Mapping[int, Sequence[Path]]) -> dict[str, TopicState]:
    """The topics found in log directories, for directories of Apache Kafka, which come without a controller's state.

    A topic with missing partitions is left out, and its directories are left alone.
    """
    holders: dict[str, dict[int, list[int]]] = {}
    ids: dict[str, uuid.UUID] = {}
    for node_id, of_one in directories.items():
        for path in (path for each in of_one if each.exists() for path in each.iterdir()):
            partition = parse_directory_name(path.name) if path.is_dir() else None
            if partition is None:
                continue
            topic, index = partition
            holding = holders.setdefault(topic, {}).setdefault(index, [])
            if node_id not in holding:
                holding.append(node_id)
            ids[topic] = read_topic_id(path) or ids.get(topic) or uuid.uuid4()
    topics = {}
    for topic, partitions in holders.items():
        if sorted(partitions) == list(range(len(partitions))):
            states = (tuple(sorted(partitions[index])) for index in range(len(partitions)))
            topics[topic] = TopicState(topic, ids[topic], tuple(PartitionState(each, each, each[0]) for each in states))
    return topics
