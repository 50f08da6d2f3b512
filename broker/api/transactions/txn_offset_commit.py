"""TxnOffsetCommit: stores offsets of a group that count once the transaction is committed."""

from __future__ import annotations

from collections.abc import Mapping

from ....network.protocol.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NetworkExceptionError,
    UnknownTopicOrPartitionError,
)
from ....network.protocol.messages.transactions.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...group.group import CommittedOffset
from ...log.producer_state import NOT_REQUIRED, Verification
from ...metadata import PartitionKey
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ...transaction.enrolment import Enrolment
from ..registry import serves

#: The first version that adds the group to the transaction (KIP-890).
_FIRST_VERSION_THAT_ADDS = 5
#: The first version whose clients know TRANSACTION_ABORTABLE.
_FIRST_VERSION_WITH_ABORTABLE = 4
#: The first version whose clients handle COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
_FIRST_VERSION_WITH_LOADING = 2


@serves(TxnOffsetCommitRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | None:
    """Answers when all in-sync replicas of the offsets topic have the offsets."""
    version = context.api_version
    adds = version >= _FIRST_VERSION_THAT_ADDS
    errors: dict[PartitionKey, int] = {}
    offsets: dict[PartitionKey, CommittedOffset] = {}

    def answer(error: BrokerResponseError | None) -> TxnOffsetCommitResponse:
        if isinstance(error, CoordinatorLoadInProgressError) and version < _FIRST_VERSION_WITH_LOADING:
            error = CoordinatorNotAvailableError(str(error))
        return _response(request, errors, 0 if error is None else error.code)

    refusal = context.refusal(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
    ) or context.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
    if refusal is not None:
        return answer(refusal)
    try:
        group = broker.offsets.check_transactional_commit(
            request.group_id, request.generation_id, request.member_id, request.group_instance_id
        )
        now_ms = broker.clock.wall_ms()
        for topic in request.topics:
            for part in topic.partitions:
                key = (topic.name, part.partition_index)
                try:
                    injected = context.injected_error(*key)
                    injected = injected or context.refusal_for_topic(AclOperation.READ, topic.name)
                    if injected is not None:
                        raise injected
                    if broker.image.partition(*key) is None:
                        raise UnknownTopicOrPartitionError(f"there is no partition {key[0]}-{key[1]}")
                    broker.offsets.check_metadata(part.committed_metadata)
                except BrokerResponseError as error:
                    errors[key] = error.code
                    continue
                offsets[key] = CommittedOffset(
                    part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "", now_ms
                )
        if not offsets:
            return answer(None)
        verification: Verification | None = NOT_REQUIRED
        key = None
        if broker.config.transaction_partition_verification_enable or adds:
            key, verification = broker.offsets.begin_verification(
                request.group_id, request.producer_id, request.producer_epoch, adds=adds
            )
    except BrokerResponseError as error:
        return answer(error)

    def commit(refused: Mapping[PartitionKey, BrokerResponseError]) -> None:
        for error in refused.values():
            context.respond(answer(_client_error(error, adds=adds)))
            return
        broker.offsets.commit_in_transaction(
            group,
            request.producer_id,
            request.producer_epoch,
            offsets,
            verification,
            lambda error: context.respond(answer(error)),
        )

    if key is None or verification is None:
        commit({})
        return None
    broker.enrolment.enrol(
        Enrolment(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [key],
            adds=adds,
            knows_abortable=version >= _FIRST_VERSION_WITH_ABORTABLE,
            done=commit,
        )
    )
    return None


def _client_error(error: BrokerResponseError, *, adds: bool) -> BrokerResponseError:
    """The error of offsets whose group could not be verified, such that older clients retry."""
    if isinstance(error, NetworkExceptionError) or (isinstance(error, ConcurrentTransactionsError) and not adds):
        return CoordinatorLoadInProgressError(f"the transaction's coordinator can't answer now: {error}")
    return error


def _response(
    request: TxnOffsetCommitRequest, errors: Mapping[PartitionKey, int], code: int
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=errors.get((topic.name, part.partition_index)) or code,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
