"""OffsetCommit: stores the offsets at which a group resumes."""

from __future__ import annotations

from collections.abc import Callable

from ....network.protocol.errors import BrokerResponseError, UnknownTopicIdError, UnknownTopicOrPartitionError
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ...group.group import CommittedOffset
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_FIRST_VERSION_WITH_TOPIC_IDS = first_version_with(OffsetCommitRequestTopic, "topic_id")


@serves(OffsetCommitRequest)
def handle(
    broker: BrokerServices, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | None:
    """Answers when all in-sync replicas of the offsets topic have the offsets."""
    now_ms = broker.clock.wall_ms()
    errors: dict[tuple[int, int], int] = {}
    offsets: dict[tuple[str, int], CommittedOffset] = {}

    def answer(error: BrokerResponseError | None) -> OffsetCommitResponse:
        code = 0 if error is None else error.code
        return _response(request, lambda at, index: errors.get((at, index)) or code)

    refusal = context.refusal(AclOperation.READ, ResourceType.GROUP, request.group_id)
    if refusal is not None:
        return answer(refusal)
    try:
        group = broker.offsets.check_commit(
            request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        )
    except BrokerResponseError as error:
        return answer(error)
    for at, topic in enumerate(request.topics):
        for part in topic.partitions:
            try:
                name = _topic_name(broker, context, topic)
                refused = context.injected_error(name, part.partition_index)
                refused = refused or context.refusal_for_topic(AclOperation.READ, name)
                if refused is not None:
                    raise refused
                if broker.image.partition(name, part.partition_index) is None:
                    raise UnknownTopicOrPartitionError(f"there is no partition {name}-{part.partition_index}")
                broker.offsets.check_metadata(part.committed_metadata)
            except BrokerResponseError as error:
                errors[at, part.partition_index] = error.code
                continue
            offsets[name, part.partition_index] = CommittedOffset(
                part.committed_offset, part.committed_leader_epoch, part.committed_metadata or "", now_ms
            )
    broker.offsets.commit(group, offsets, lambda error: context.respond(answer(error)))
    return None


def _topic_name(broker: BrokerServices, context: RequestContext, topic: OffsetCommitRequestTopic) -> str:
    if context.api_version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return topic.name
    name = broker.image.topic_names.get(topic.topic_id)
    if name is None:
        raise UnknownTopicIdError(f"there is no topic with the id {topic.topic_id}")
    return name


def _response(request: OffsetCommitRequest, code_of: Callable[[int, int], int]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=code_of(at, part.partition_index)
                    )
                    for part in topic.partitions
                ],
            )
            for at, topic in enumerate(request.topics)
        ]
    )
