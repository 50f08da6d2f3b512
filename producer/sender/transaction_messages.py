"""The requests and responses of transactions, built from and taken apart into what `transaction_requests` uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...network.client.api_versions import NodeApiVersions
from ...network.cluster import TopicPartition
from ...network.protocol.errors import KafkaError, OperationNotAttemptedError, make_error
from ...network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ...network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from ...network.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ...network.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ...network.protocol.messages.transactions.end_txn import EndTxnRequest
from ...network.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from .transaction import OffsetsToCommit
from .transaction_errors import Reaction, reaction_to

TRANSACTION_COORDINATOR = 1
GROUP_COORDINATOR = 0

#: The reactions to several errors of one response: the first is the one to follow.
_BY_WEIGHT = (
    Reaction.FATAL,
    Reaction.DENIED,
    Reaction.FENCED,
    Reaction.NEW_EPOCH,
    Reaction.ABORT,
    Reaction.FIND_COORDINATOR,
    Reaction.RETRY,
)


class Identity(NamedTuple):
    """What identifies the producer of a transaction in every request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def find_coordinator(versions: NodeApiVersions, key: str, kind: int) -> FindCoordinatorRequest:
    """The request for the coordinator of a transactional id or a group, in the form of the node's version."""
    if versions.usable_version(FindCoordinatorRequest) >= FindCoordinatorRequest.FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    return FindCoordinatorRequest(key=key, key_type=kind)


def init_producer_id(who: Identity, timeout_ms: int) -> InitProducerIdRequest:
    """The request for a producer id, or for the next epoch of the given one. `timeout_ms`: transaction.timeout.ms."""
    return InitProducerIdRequest(
        transactional_id=who.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
    )


def end_txn(who: Identity, *, commit: bool) -> EndTxnRequest:
    """The request to commit or abort."""
    return EndTxnRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        committed=commit,
    )


def add_partitions(who: Identity, partitions: Iterable[tuple[str, int]]) -> AddPartitionsToTxnRequest:
    """The request of a client to add partitions."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=who.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def add_partitions_errors(response: AddPartitionsToTxnResponse) -> list[KafkaError]:
    """The errors of the partitions that were not added."""
    return [
        broker_error(
            result.partition_error_code, "AddPartitionsToTxn", TopicPartition(topic.name, result.partition_index)
        )
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
        if result.partition_error_code
    ]


def add_offsets(who: Identity, group_id: str) -> AddOffsetsToTxnRequest:
    """The request to add a group's offsets."""
    return AddOffsetsToTxnRequest(
        transactional_id=who.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        group_id=group_id,
    )


def commit_offsets(who: Identity, offsets: OffsetsToCommit) -> TxnOffsetCommitRequest:
    """The request with the offsets that are left."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.left.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    member = offsets.member
    return TxnOffsetCommitRequest(
        transactional_id=who.transactional_id,
        group_id=member.group_id,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        generation_id=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def committed_offsets(response: TxnOffsetCommitResponse) -> tuple[list[TopicPartition], list[KafkaError]]:
    """The partitions whose offsets were accepted, and the errors of the others."""
    committed: list[TopicPartition] = []
    failures: list[KafkaError] = []
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            if result.error_code:
                failures.append(broker_error(result.error_code, "TxnOffsetCommit", partition))
            else:
                committed.append(partition)
    return committed, failures


def coordinator_in(response: Any) -> Any:
    """The answer for the only key of a FindCoordinator request, in any version."""
    return response.coordinators[0] if response.coordinators else response


def broker_error(code: int, request: str, partition: TopicPartition | None = None) -> KafkaError:
    """The error of a code in the response to `request`."""
    where = request if partition is None else f"{request} of {partition}"
    return make_error(code, f"{where}: {make_error(code)}")


def decisive(failures: Iterable[KafkaError]) -> KafkaError:
    """The error to react to among those of one response: one that ends the transaction before one that is retried."""

    def weight(error: KafkaError) -> tuple[int, bool]:
        # OPERATION_NOT_ATTEMPTED has its reason in another partition
        return _BY_WEIGHT.index(reaction_to(error)), isinstance(error, OperationNotAttemptedError)

    return min(failures, key=weight)
