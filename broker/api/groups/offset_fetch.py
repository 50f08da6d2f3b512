"""OffsetFetch: the offsets at which a group resumes."""

from __future__ import annotations

from collections.abc import Iterable

from ....network.protocol.errors import BrokerResponseError, TopicAuthorizationFailedError, UnknownTopicIdError
from ....network.protocol.message import first_version_with
from ....network.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ....network.protocol.types import ZERO_UUID
from ...group.group import CommittedOffset
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves

_FIRST_VERSION_WITH_GROUPS = first_version_with(OffsetFetchRequest, "groups")
_FIRST_VERSION_WITH_TOPIC_IDS = first_version_with(OffsetFetchRequestTopics, "topic_id")
_FIRST_VERSION_WITH_ERROR = first_version_with(OffsetFetchResponse, "error_code")
_NONE = CommittedOffset(-1, -1, "", -1)


@serves(OffsetFetchRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answers immediately, with -1 for a partition without a committed offset."""
    if context.api_version >= _FIRST_VERSION_WITH_GROUPS:
        # Each group once: it may have many offsets.
        groups = {asked.group_id: asked for asked in request.groups}
        return OffsetFetchResponse(groups=[_group(broker, context, asked) for asked in groups.values()])
    asked = None
    if request.topics is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    asked, unauthorized = _split(context, asked)
    try:
        found = _find(broker, context, request.group_id, asked)
    except BrokerResponseError as error:
        if context.api_version >= _FIRST_VERSION_WITH_ERROR:
            return OffsetFetchResponse(error_code=error.code, topics=[])
        # Version 1 has no error field for the whole response, so each partition has the error.
        return OffsetFetchResponse(
            error_code=error.code,
            topics=[
                OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index, committed_offset=-1, metadata="", error_code=error.code
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in [*(asked or ()), *unauthorized]
            ],
        )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                    )
                    for index, offset in partitions
                ],
            )
            for name, partitions in found.items()
        ]
        + [
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=-1,
                        metadata="",
                        error_code=TopicAuthorizationFailedError.code,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in unauthorized
        ]
    )


def _split(
    context: RequestContext, asked: list[tuple[str, list[int]]] | None
) -> tuple[list[tuple[str, list[int]]] | None, list[tuple[str, list[int]]]]:
    """The topics that the client may describe, and the others; None stands for all topics."""
    if asked is None or not context.has_authorizer:
        return asked, []
    allowed: list[tuple[str, list[int]]] = []
    refused: list[tuple[str, list[int]]] = []
    for each in asked:
        may_describe = context.is_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, each[0])
        (allowed if may_describe else refused).append(each)
    return allowed, refused


def _find(
    broker: BrokerServices, context: RequestContext, group_id: str, asked: Iterable[tuple[str, list[int]]] | None
) -> dict[str, list[tuple[int, CommittedOffset]]]:
    error = context.injected_error("") or context.refusal(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    if error is not None:
        raise error
    broker.offsets.check_coordinator(group_id)
    group = broker.offsets.group(group_id)
    offsets: dict[tuple[str, int], CommittedOffset] = {}
    if group is not None:
        with group.lock:
            offsets = dict(group.offsets)
    found: dict[str, list[tuple[int, CommittedOffset]]] = {}
    if asked is None:
        for (topic, index), offset in offsets.items():
            if context.refusal_for_topic(AclOperation.DESCRIBE, topic) is not None:
                continue
            found.setdefault(topic, []).append((index, offset))
        return found
    for topic, indexes in asked:
        found.setdefault(topic, []).extend((index, offsets.get((topic, index), _NONE)) for index in indexes)
    return found


def _group(broker: BrokerServices, context: RequestContext, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    by_id = context.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    image = broker.image
    names = None
    refused: list[OffsetFetchResponseTopics] = []
    if asked.topics is not None:
        names = []
        for topic in asked.topics:
            name = image.topic_names.get(topic.topic_id) if by_id else topic.name
            if name is None:
                refused.append(_refused("", topic, UnknownTopicIdError.code))
            elif context.refusal_for_topic(AclOperation.DESCRIBE, name) is not None:
                refused.append(_refused(topic.name, topic, TopicAuthorizationFailedError.code))
            else:
                names.append((name, topic.partition_indexes))
    try:
        found = _find(broker, context, asked.group_id, names)
    except BrokerResponseError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=error.code)
    topics = []
    for name, partitions in found.items():
        state = image.topics.get(name)
        if by_id and state is None:
            continue
        topics.append(
            OffsetFetchResponseTopics(
                name=name,
                topic_id=ZERO_UUID if state is None else state.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                    )
                    for index, offset in partitions
                ],
            )
        )
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[*topics, *refused])


def _refused(name: str, topic: OffsetFetchRequestTopics, error_code: int) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=error_code
            )
            for index in topic.partition_indexes
        ],
    )
