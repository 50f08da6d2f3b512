"""What brokers ask of the controller, whichever process it is in."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...network.protocol.errors import BrokerResponseError
from ..metadata import ClusterImage, PartitionState, TopicState


class NewTopic(NamedTuple):
    """A topic to be made; -1 stands for the broker's default. `assignments`: replicas by partition, instead of
    numbers. `configs`: dotted names, as text."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, str] | None = None


class TopicRef(NamedTuple):
    """A topic by its name or its id."""

    name: str | None
    topic_id: uuid.UUID | None = None


class MorePartitions(NamedTuple):
    """How many partitions a topic is to have, and the replicas of those that are new."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


class IsrChange(NamedTuple):
    """The in-sync replicas that the leader of a partition asks for, in the epochs that it knows."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[int]


class Reassignment(NamedTuple):
    """The brokers that are to have a partition; None: those that it had before the move in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ElectionOutcome(NamedTuple):
    """What became of the election of a partition's leader; no error: it has a new one."""

    topic: str
    partition: int
    error: BrokerResponseError | None


class ControllerApi(ABC):
    """The calls about several topics or partitions give an outcome for each, in their order, and make one image of all
    that went well, so that a thousand are told to the brokers once and not a thousand times. Any thread."""

    image: ClusterImage

    @abstractmethod
    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        """Make topics. InvalidTopicError, TopicAlreadyExistsError, InvalidPartitionsError, PolicyViolationError,
        InvalidReplicationFactorError, InvalidReplicationAssignmentError, InvalidConfigurationError,
        KafkaStorageError."""

    @abstractmethod
    def delete_topics(self, topics: Sequence[TopicRef]) -> list[TopicState | BrokerResponseError]:
        """Delete topics. UnknownTopicOrPartitionError, UnknownTopicIdError, KafkaStorageError."""

    @abstractmethod
    def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        """Raise topics' numbers of partitions. UnknownTopicOrPartitionError, InvalidPartitionsError,
        PolicyViolationError, InvalidReplicationAssignmentError, KafkaStorageError."""

    @abstractmethod
    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace a topic's overrides. Raises UnknownTopicOrPartitionError, InvalidConfigurationError."""

    @abstractmethod
    def set_resource_configs(
        self, resource_type: int, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace what was configured of a broker, of all (an empty name) or of a group. Raises InvalidRequestError,
        InvalidConfigurationError, KafkaStorageError."""

    @abstractmethod
    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]] | None, *, is_unclean: bool = False
    ) -> list[ElectionOutcome]:
        """Make each partition's first replica its leader, or any replica that is alive (`is_unclean`) where there is no
        leader. UnknownTopicOrPartitionError, ElectionNotNeededError, PreferredLeaderNotAvailableError,
        EligibleLeadersNotAvailableError, KafkaStorageError. None: all partitions that need it, and only of these there
        is an outcome."""

    @abstractmethod
    def alter_reassignments(
        self, changes: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> list[PartitionState | BrokerResponseError]:
        """Begin to move replicas, or cancel that. UnknownTopicOrPartitionError, InvalidReplicationAssignmentError,
        InvalidReplicationFactorError, NoReassignmentInProgressError, KafkaStorageError."""

    @abstractmethod
    def alter_isrs(self, changes: Sequence[IsrChange]) -> list[PartitionState | BrokerResponseError]:
        """New in-sync replicas of partitions (AlterPartition). UnknownTopicOrPartitionError, FencedLeaderEpochError,
        InvalidUpdateVersionError where the leader's view is out of date, KafkaStorageError."""

    @abstractmethod
    def allocate_producer_ids(self) -> tuple[int, int]:
        """A block of producer ids that no other broker gets: first id and number."""

    def create_topic(
        self,
        name: str,
        *,
        num_partitions: int = -1,
        replication_factor: int = -1,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicState:
        """Make one topic; raises what `create_topics` tells."""
        topic = NewTopic(name, num_partitions, replication_factor, assignments, configs)
        return _only(self.create_topics([topic], validate_only=validate_only))

    def delete_topic(self, name: str | None, topic_id: uuid.UUID | None = None) -> TopicState:
        """Delete one topic; raises what `delete_topics` tells."""
        return _only(self.delete_topics([TopicRef(name, topic_id)]))


def _only(outcomes: Sequence[TopicState | BrokerResponseError]) -> TopicState:
    (outcome,) = outcomes
    if isinstance(outcome, BrokerResponseError):
        raise outcome
    return outcome
