"""OffsetFetch: the offsets at which a group resumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
from ....network.protocol.other_errors import UnstableOffsetCommitError
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


class _FoundOffset(NamedTuple):
    """The offset of one partition, or why there is none."""

    partition: int
    offset: CommittedOffset
    error_code: int


Found = dict[str, list[_FoundOffset]]


@serves(OffsetFetchRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answers immediately, with -1 for a partition without a committed offset."""
    if context.api_version >= _FIRST_VERSION_WITH_GROUPS:
        # Each group once: it may have many offsets.
        groups = {asked.group_id: asked for asked in request.groups}
        return OffsetFetchResponse(
            groups=[_group(broker, context, asked, request.require_stable) for asked in groups.values()]
        )
    asked = None
    if request.topics is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    asked, unauthorized = _split(context, asked)
    try:
        found = _find(broker, context, request.group_id, asked, require_stable=request.require_stable)
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
                        error_code=error_code,
                    )
                    for index, offset, error_code in partitions
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
    broker: BrokerServices,
    context: RequestContext,
    group_id: str,
    asked: Sequence[tuple[str, list[int]]] | None,
    *,
    require_stable: bool,
) -> Found:
    """The offsets by topic. With `require_stable` an offset that an open transaction commits is an error (KIP-447)."""
    error = context.injected_error("") or context.refusal(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
    if error is not None:
        raise error
    broker.offsets.check_coordinator(group_id)
    group = broker.offsets.group(group_id)
    offsets: dict[tuple[str, int], CommittedOffset] = {}
    unstable: set[tuple[str, int]] = set()
    if group is not None:
        with group.lock:
            offsets = dict(group.offsets)
            if require_stable:
                unstable = group.unstable()
    found: Found = {}
    if asked is None:
        asked_keys = [key for key in offsets if context.refusal_for_topic(AclOperation.DESCRIBE, key[0]) is None]
    else:
        for topic, _ in asked:
            found.setdefault(topic, [])
        asked_keys = [(topic, index) for topic, indexes in asked for index in indexes]
    for key in asked_keys:
        is_unstable = key in unstable
        offset = _NONE if is_unstable else offsets.get(key, _NONE)
        code = UnstableOffsetCommitError.code if is_unstable else 0
        found.setdefault(key[0], []).append(_FoundOffset(key[1], offset, code))
    return found


def _group(
    broker: BrokerServices, context: RequestContext, asked: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
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
        found = _find(broker, context, asked.group_id, names, require_stable=require_stable)
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
                        error_code=error_code,
                    )
                    for index, offset, error_code in partitions
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
