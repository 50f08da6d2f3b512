"""Fetch: records for consumers and followers, sent from the log's files."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError, TopicAuthorizationFailedError, UnknownTopicIdError
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.records.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ...replica.fetch import FetchEntry, FetchParams, FetchResult
from ...requests.request import FEW_ELEMENTS, RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.fetch_sessions import EntryKey, FetchSession
from ...services.services import BrokerServices
from ..registry import serves

_FIRST_VERSION_WITH_LEADERS = first_version_with(PartitionData, "current_leader")
_FIRST_VERSION_WITH_REPLICA_STATE = first_version_with(FetchRequest, "replica_state")
_FIRST_VERSION_WITH_ENDPOINTS = first_version_with(FetchResponse, "node_endpoints")


@serves(FetchRequest, max_version=17)
def handle(broker: BrokerServices, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
    """Answers when `min_bytes` are available, or after `max_wait_ms`."""
    asked = _entries(broker, context, request)
    session: FetchSession | None = None
    try:
        if request.session_epoch > FetchRequest.INITIAL_EPOCH:
            forgotten = _forgotten(broker, context, request)
            session = broker.fetch_sessions.resume(request.session_id, request.session_epoch, asked, forgotten)
            asked = list(session.entries.values())
            if not asked:
                # The client has removed all partitions from its session.
                broker.fetch_sessions.close(request.session_id)
                session = None
        else:
            broker.fetch_sessions.close(request.session_id)
            if request.session_epoch == FetchRequest.INITIAL_EPOCH:
                session = broker.fetch_sessions.open(asked)
    except BrokerResponseError as error:
        return FetchResponse(error_code=error.code, responses=[])
    if len(asked) > FEW_ELEMENTS:
        # A short request may stand for a long session.
        broker.request_thread.submit(lambda: _read_aside(broker, context, request, asked, session))
    else:
        _read(broker, context, request, asked, session)
    return None


def _read_aside(
    broker: BrokerServices,
    context: RequestContext,
    request: FetchRequest,
    asked: list[FetchEntry],
    session: FetchSession | None,
) -> None:
    try:
        _read(broker, context, request, asked, session)
    except Exception:
        # a defect, which the request thread reports; the client gets no response, so it must not wait for one
        context.close_connection()
        raise


def _read(
    broker: BrokerServices,
    context: RequestContext,
    request: FetchRequest,
    asked: list[FetchEntry],
    session: FetchSession | None,
) -> None:
    refused: list[FetchResult] = []
    entries: list[FetchEntry] = []
    by_state = context.api_version >= _FIRST_VERSION_WITH_REPLICA_STATE
    replica_id = request.replica_state.replica_id if by_state else request.replica_id
    unauthorized = _unauthorized(context, replica_id, asked) if context.has_authorizer else {}
    for entry in asked:
        error = context.injected_error(*entry.key)
        if error is None and not entry.key[0]:
            error = UnknownTopicIdError(f"there is no topic with the id {entry.topic_id}")
        error = error or unauthorized.get(entry.key[0])
        if error is not None:
            refused.append(FetchResult(entry, error=error))
        else:
            entries.append(entry)
    params = FetchParams(
        replica_id=replica_id,
        max_wait_ms=0 if refused else request.max_wait_ms,
        min_bytes=min(request.min_bytes, broker.config.fetch_max_bytes),
        max_bytes=min(request.max_bytes, broker.config.fetch_max_bytes),
        committed_only=request.isolation_level == 1,
    )

    def respond(results: list[FetchResult]) -> None:
        results = [*refused, *results]
        if session is not None:
            changed = session.changed(results)
            results = changed if request.session_epoch > FetchRequest.INITIAL_EPOCH else results
        session_id = FetchRequest.NO_SESSION if session is None else session.session_id
        context.respond(build_response(context, results, session_id, committed_only=params.committed_only))

    broker.replicas.fetch_records(params, entries, respond)


def _unauthorized(
    context: RequestContext, replica_id: int, asked: list[FetchEntry]
) -> dict[str, TopicAuthorizationFailedError]:
    """The topics that the client may not read. A follower needs CLUSTER_ACTION instead of READ, and is denied with the
    error for topics."""
    topics = {entry.key[0] for entry in asked}
    if replica_id >= 0:
        refusal = context.refusal(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return {} if refusal is None else dict.fromkeys(topics, TopicAuthorizationFailedError(str(refusal)))
    refusals = {topic: context.refusal(AclOperation.READ, ResourceType.TOPIC, topic) for topic in topics}
    return {topic: TopicAuthorizationFailedError(str(error)) for topic, error in refusals.items() if error is not None}


def _entries(broker: BrokerServices, context: RequestContext, request: FetchRequest) -> list[FetchEntry]:
    by_id = context.api_version >= FetchRequest.FIRST_VERSION_WITH_TOPIC_IDS
    names = broker.image.topic_names
    return [
        FetchEntry(
            (names.get(topic.topic_id, "") if by_id else topic.topic, part.partition),
            topic.topic_id,
            part.fetch_offset,
            part.partition_max_bytes,
            part.log_start_offset,
            part.current_leader_epoch,
            part.last_fetched_epoch,
        )
        for topic in request.topics
        for part in topic.partitions
    ]


def _forgotten(broker: BrokerServices, context: RequestContext, request: FetchRequest) -> list[EntryKey]:
    by_id = context.api_version >= FetchRequest.FIRST_VERSION_WITH_TOPIC_IDS
    names = broker.image.topic_names
    keys: list[EntryKey] = []
    for topic in request.forgotten_topics_data:
        name = (names.get(topic.topic_id) or topic.topic_id) if by_id else topic.topic
        keys += [(name, index) for index in topic.partitions]
    return keys


def build_response(
    context: RequestContext, results: list[FetchResult], session_id: int, *, committed_only: bool
) -> FetchResponse:
    """The response with the results, topic by topic."""
    endpoints: dict[int, NodeEndpoint] = {}
    topics: dict[tuple[str, object], FetchableTopicResponse] = {}
    for result in results:
        entry = result.entry
        key = (entry.key[0], entry.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(topic=entry.key[0], topic_id=entry.topic_id, partitions=[])
        data = _partition_data(context, result, endpoints)
        if committed_only or result.error is not None:
            # Null would mean that the client reads uncommitted records.
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in result.aborted
            ]
        topic.partitions.append(data)
    return FetchResponse(
        session_id=session_id, responses=list(topics.values()), node_endpoints=list(endpoints.values())
    )


def _partition_data(context: RequestContext, result: FetchResult, endpoints: dict[int, NodeEndpoint]) -> PartitionData:
    data = PartitionData(
        partition_index=result.entry.key[1],
        error_code=0 if result.error is None else result.error.code,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=None,
        records=b"" if result.region is None else result.region,
    )
    if result.diverging_epoch is not None:
        epoch, end_offset = result.diverging_epoch
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if result.leader is not None and context.api_version >= _FIRST_VERSION_WITH_LEADERS:
        leader_id, leader_epoch = result.leader
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        endpoint = context.endpoint(leader_id)
        if endpoint is not None and context.api_version >= _FIRST_VERSION_WITH_ENDPOINTS:
            endpoints[leader_id] = NodeEndpoint(
                node_id=endpoint.node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack
            )
    return data
