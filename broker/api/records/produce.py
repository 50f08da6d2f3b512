"""Produce: appends batches to the logs of partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Mapping

from ....network.protocol.errors import (
    AuthorizationError,
    BrokerResponseError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptRecordError,
    FencedLeaderEpochError,
    InvalidProducerIdMappingError,
    InvalidRecordError,
    NetworkExceptionError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.records.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ....network.records.batch import TRANSACTIONAL_MASK
from ....network.records.compression import CODECS, COMPRESSION_MASK
from ...log.batch_header import HEADER_BYTES, read_header
from ...log.producer_state import NOT_REQUIRED, Verification
from ...log.validation import RejectedRecords
from ...metadata import PartitionKey
from ...replica.delayed_produce import ProduceResult
from ...replica.manager import Respond
from ...replica.replicas import without_frames
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ...transaction.enrolment import Enrolment
from ..registry import serves

#: The first version in which a batch adds its partition to the transaction (KIP-890).
FIRST_PRODUCE_VERSION_THAT_ADDS = 12
#: The first version whose clients know TRANSACTION_ABORTABLE.
FIRST_PRODUCE_VERSION_WITH_ABORTABLE = 11
_UNVERIFIED = (
    ConcurrentTransactionsError,
    NetworkExceptionError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
_FIRST_VERSION_WITH_LEADERS = first_version_with(PartitionProduceResponse, "current_leader")
_ATTRIBUTES_LOW_BYTE_AT = 22


# Kafka 4 serves version 3 and above but advertises 0, because librdkafka only compresses if the lower versions are
# advertised (KAFKA-18659).
@serves(ProduceRequest, min_version=3, advertised_min=0)
def handle(broker: BrokerServices, context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Answers when the batches are as durable as `acks` requires; never for acks=0."""
    by_id = context.api_version >= ProduceRequest.FIRST_VERSION_WITH_TOPIC_IDS
    refused: dict[PartitionKey, ProduceResult] = {}
    batches: list[tuple[PartitionKey, memoryview]] = []
    topics: list[tuple[str, TopicProduceData]] = []
    refusal: AuthorizationError | None = None
    transactional_id = request.transactional_id
    if transactional_id is not None:
        refusal = context.refusal(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    for topic in request.topic_data:
        name = broker.image.topic_names.get(topic.topic_id, "") if by_id else topic.name
        # A topic with an unknown id has no name, so the id stands in for it in the keys.
        key_name = name or str(topic.topic_id)
        topics.append((key_name, topic))
        unauthorized = refusal
        if unauthorized is None and name:
            unauthorized = context.refusal_for_topic(AclOperation.WRITE, name)
        for data in topic.partition_data:
            key = (key_name, data.index)
            error = context.injected_error(name, data.index)
            if error is None and by_id and not name:
                error = UnknownTopicIdError(f"there is no topic with the id {topic.topic_id}")
            elif error is None and unauthorized is not None:
                error = unauthorized
            elif error is None:
                error = _unusable(data.records, context.api_version)
            if error is not None:
                refused[key] = ProduceResult(None, error)
            else:
                batches.append((key, memoryview(data.records)))  # pyright: ignore[reportArgumentType]  (usable: there)

    def respond(results: dict[PartitionKey, ProduceResult]) -> None:
        if request.acks == 0:
            if any(result.error is not None for result in results.values()) or refused:
                # With acks=0 the only way to report an error is to close the connection, as Kafka does.
                context.close_connection()
            else:
                context.no_response()
            return
        context.respond(_response(context, topics, {**refused, **results}))

    if context.fault is not None and request.acks == 0 and refused:
        context.close_connection()
        return None
    if not any(map(_is_transactional, batches)):
        broker.replicas.append_records(request.timeout_ms, request.acks, batches, respond)
    elif request.transactional_id is None:
        error = TransactionalIdAuthorizationFailedError("the batch is in a transaction, but the request names none")
        respond({key: ProduceResult(None, error) for key, _ in batches})
    else:
        _append_transactional(broker, context, request, request.transactional_id, batches, respond)
    return None


def _is_transactional(batch: tuple[PartitionKey, memoryview]) -> bool:
    records = batch[1]
    return len(records) > _ATTRIBUTES_LOW_BYTE_AT and bool(records[_ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_MASK)


def _append_transactional(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    transactional_id: str,
    batches: list[tuple[PartitionKey, memoryview]],
    respond: Respond,
) -> None:
    """Append batches of which some are in a transaction. A partition in which the producer has no open transaction is
    first verified with the coordinator, or added to the transaction (KIP-890). Later requests on the connection wait,
    so that they don't overtake this one."""
    adds = context.api_version >= FIRST_PRODUCE_VERSION_THAT_ADDS
    is_verified = broker.config.transaction_partition_verification_enable or adds
    verifications: dict[PartitionKey, Verification | None] = {}
    unready: dict[PartitionKey, ProduceResult] = {}
    asked: list[PartitionKey] = []
    producers: set[tuple[int, int]] = set()
    for batch in batches:
        key, records = batch
        verifications[key] = NOT_REQUIRED
        if not is_verified or not _is_transactional(batch) or len(records) < HEADER_BYTES:
            continue
        verifications[key] = None
        try:
            header = read_header(records)
        except (CorruptRecordError, UnsupportedForMessageFormatError):
            continue  # the append finds the same, for this batch alone
        producers.add((header.producer_id, header.producer_epoch))
        try:
            partition = broker.replicas.partition(key)
            partition.check_leader()
        except BrokerResponseError as error:
            # Rejected now: a broker that became the leader in between would find the batch unverified.
            unready[key] = ProduceResult(None, without_frames(error))
            continue
        verifications[key] = partition.log.begin_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, starts_at_zero=adds
        )
        if verifications[key] is not None:
            asked.append(key)

    def append(errors: Mapping[PartitionKey, BrokerResponseError]) -> None:
        refused = {key: ProduceResult(None, _append_error(error, adds=adds)) for key, error in errors.items()}
        refused.update(unready)
        rest = [(key, records, verifications[key]) for key, records in batches if key not in refused]
        broker.replicas.append_verified(
            request.timeout_ms, request.acks, rest, lambda results: respond({**refused, **results})
        )

    if len(producers) > 1:
        error = InvalidProducerIdMappingError(f"the batches are of several producers: {sorted(producers)}")
        respond({key: ProduceResult(None, error) for key, _ in batches})
    elif not asked:
        append({})
    else:
        ((producer_id, producer_epoch),) = producers
        context.hold_connection()
        broker.enrolment.enrol(
            Enrolment(
                transactional_id,
                producer_id,
                producer_epoch,
                asked,
                adds=adds,
                knows_abortable=context.api_version >= FIRST_PRODUCE_VERSION_WITH_ABORTABLE,
                done=append,
            )
        )


def _append_error(error: BrokerResponseError, *, adds: bool) -> BrokerResponseError:
    """The error of a batch whose partition could not be verified. Older clients don't retry all of the coordinator's
    errors correctly; they do retry NOT_ENOUGH_REPLICAS, without a metadata request."""
    if isinstance(error, ConcurrentTransactionsError) and adds:
        return error
    if isinstance(error, _UNVERIFIED):
        return NotEnoughReplicasError(f"the partition can't be verified to be in the transaction yet: {error}")
    return error


def _unusable(records: memoryview | None, version: int) -> InvalidRecordError | UnsupportedCompressionTypeError | None:
    if records is None or not len(records):
        return InvalidRecordError("a produce request must have a batch for each partition that it names; there is none")
    if len(records) > _ATTRIBUTES_LOW_BYTE_AT:
        codec = CODECS.get(records[_ATTRIBUTES_LOW_BYTE_AT] & COMPRESSION_MASK)
        if codec is not None and version < codec.first_produce_version:
            return UnsupportedCompressionTypeError(
                f"{codec.label} needs Produce v{codec.first_produce_version} at least, not v{version}"
            )
    return None


def _response(
    context: RequestContext, topics: list[tuple[str, TopicProduceData]], results: dict[PartitionKey, ProduceResult]
) -> ProduceResponse:
    endpoints: dict[int, NodeEndpoint] = {}
    responses = []
    for name, topic in topics:
        partitions = [
            _partition_response(context, (name, each.index), results, endpoints) for each in topic.partition_data
        ]
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    return ProduceResponse(responses=responses, node_endpoints=list(endpoints.values()))


def _partition_response(
    context: RequestContext,
    key: PartitionKey,
    results: dict[PartitionKey, ProduceResult],
    endpoints: dict[int, NodeEndpoint],
) -> PartitionProduceResponse:
    result = results[key]
    error = result.error
    if error is None and result.info is not None:
        info = result.info
        return PartitionProduceResponse(
            index=key[1],
            base_offset=info.first_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
        )
    assert error is not None
    response = PartitionProduceResponse(
        index=key[1],
        error_code=error.code,
        base_offset=-1,
        log_start_offset=result.log_start_offset,
        error_message=str(error) or None,
    )
    if isinstance(error, RejectedRecords):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=str(error)) for at in error.indexes
        ]
    tells_leader = context.api_version >= _FIRST_VERSION_WITH_LEADERS
    if tells_leader and isinstance(error, (NotLeaderForPartitionError, FencedLeaderEpochError)):
        # Names the new leader, so that the producer can retry without a metadata request (KIP-951).
        image = context.broker.image
        state = image.partition(*key)
        endpoint = context.endpoint(state.leader) if state is not None else None
        if state is not None and endpoint is not None:
            response.current_leader = LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
            endpoints[state.leader] = NodeEndpoint(
                node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
    return response
