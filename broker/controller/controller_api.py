"""The controller's interface for brokers, in the same or another process."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...network.protocol.errors import BrokerResponseError
from ..metadata import ClusterImage, PartitionState, TopicState
from ..security.acls import AclBinding, AclFilter


class NewTopic(NamedTuple):
    """A topic to create. -1 is the broker's default.

    assignments: replicas by partition, in place of the numbers.
    configs: dotted names, values as text.
    """

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
    """The total number of partitions that a topic should have, and the replicas of the new ones."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


class IsrChange(NamedTuple):
    """The in-sync replicas that a partition's leader proposes, with the epochs that it knows."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[int]


class Reassignment(NamedTuple):
    """The brokers to which a partition's replicas move; None cancels the move in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ScramDeletion(NamedTuple):
    """The SCRAM credential to remove. `type_id` is the mechanism's number (KIP-554)."""

    name: str
    type_id: int


class ScramUpsertion(NamedTuple):
    """The SCRAM credential to store, in place of an earlier one. Secret."""

    name: str
    type_id: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.name!r}, {self.type_id}, {self.iterations})"


class ElectionOutcome(NamedTuple):
    """The outcome of a leader election. Without an error the partition has a new leader."""

    topic: str
    partition: int
    error: BrokerResponseError | None


class ControllerApi(ABC):
    """The controller as brokers call it.

    Calls about several topics or partitions return an outcome for each, in order, and put all successful changes into
    one image: a thousand changes are published to the brokers once. The errors listed per method are returned as
    outcomes, unless the method "raises" them. Any thread may call the methods.
    """

    image: ClusterImage

    @abstractmethod
    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        """Create topics. Errors: InvalidTopicError, TopicAlreadyExistsError, InvalidPartitionsError,
        PolicyViolationError, InvalidReplicationFactorError, InvalidReplicationAssignmentError,
        InvalidConfigurationError, KafkaStorageError."""

    @abstractmethod
    def delete_topics(self, topics: Sequence[TopicRef]) -> list[TopicState | BrokerResponseError]:
        """Delete topics. Errors: UnknownTopicOrPartitionError, UnknownTopicIdError, KafkaStorageError."""

    @abstractmethod
    def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicState | BrokerResponseError]:
        """Add partitions to topics. Errors: UnknownTopicOrPartitionError, InvalidPartitionsError,
        PolicyViolationError, InvalidReplicationAssignmentError, KafkaStorageError."""

    @abstractmethod
    def set_topic_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace a topic's overrides. Raises UnknownTopicOrPartitionError, InvalidConfigurationError."""

    @abstractmethod
    def set_resource_configs(
        self, resource_type: int, name: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the dynamic configuration of a broker, of all brokers (an empty name) or of a group. Raises
        InvalidRequestError, InvalidConfigurationError, KafkaStorageError."""

    @abstractmethod
    def elect_leaders(
        self, partitions: Sequence[tuple[str, int]] | None, *, is_unclean: bool = False
    ) -> list[ElectionOutcome]:
        """Make each partition's first replica its leader; with `is_unclean`, elect any live replica where there is no
        leader. None stands for all partitions that need an election, and only those get an outcome. Errors:
        UnknownTopicOrPartitionError, ElectionNotNeededError, PreferredLeaderNotAvailableError,
        EligibleLeadersNotAvailableError, KafkaStorageError."""

    @abstractmethod
    def alter_reassignments(
        self, changes: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> list[PartitionState | BrokerResponseError]:
        """Begin to move replicas, or cancel a move. Errors: UnknownTopicOrPartitionError,
        InvalidReplicationAssignmentError, InvalidReplicationFactorError, NoReassignmentInProgressError,
        KafkaStorageError."""

    @abstractmethod
    def alter_isrs(self, changes: Sequence[IsrChange]) -> list[PartitionState | BrokerResponseError]:
        """Change in-sync replicas (AlterPartition). Errors: UnknownTopicOrPartitionError, FencedLeaderEpochError,
        InvalidUpdateVersionError if the leader's view is out of date, KafkaStorageError."""

    @abstractmethod
    def alter_scram(
        self, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
    ) -> dict[str, BrokerResponseError]:
        """Change SCRAM credentials. Returns the errors by user; the others are changed: DuplicateResourceError,
        ResourceNotFoundError, UnacceptableCredentialError, UnsupportedSaslMechanismError. Raises KafkaStorageError."""

    @abstractmethod
    def update_features(self, features: Mapping[str, int]) -> None:
        """Finalize the levels of features for all brokers; the others keep theirs. Raises InvalidUpdateVersionError for
        an unknown feature or level, KafkaStorageError."""

    @abstractmethod
    def allocate_producer_ids(self) -> tuple[int, int]:
        """Allocate a block of producer ids for one broker. Returns the first id and the number of ids."""

    @abstractmethod
    def create_acls(self, acls: Sequence[AclBinding]) -> list[AclBinding | BrokerResponseError]:
        """Create access control entries; one that exists already is left as it is. Errors: InvalidRequestError,
        KafkaStorageError."""

    @abstractmethod
    def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[AclBinding] | BrokerResponseError]:
        """Delete the entries that any filter selects; the outcomes are those of each filter, sorted. Errors:
        InvalidRequestError, KafkaStorageError."""

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
        """Create one topic. Raises the errors of `create_topics`."""
        topic = NewTopic(name, num_partitions, replication_factor, assignments, configs)
        return _only(self.create_topics([topic], validate_only=validate_only))

    def delete_topic(self, name: str | None, topic_id: uuid.UUID | None = None) -> TopicState:
        """Delete one topic. Raises the errors of `delete_topics`."""
        return _only(self.delete_topics([TopicRef(name, topic_id)]))


def _only(outcomes: Sequence[TopicState | BrokerResponseError]) -> TopicState:
    (outcome,) = outcomes
    if isinstance(outcome, BrokerResponseError):
        raise outcome
    return outcome
