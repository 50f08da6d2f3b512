"""OffsetDelete: deletes a group's offsets in topics that it no longer reads."""

from __future__ import annotations

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(OffsetDeleteRequest, waits=True)
def handle(
    broker: BrokerServices, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | None:
    """Answers when all in-sync replicas of the offsets topic have the deletion."""

    def respond(errors: dict[tuple[str, int], int], error_code: int) -> None:
        context.respond(
            OffsetDeleteResponse(
                error_code=error_code,
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetDeleteResponsePartition(
                                partition_index=part.partition_index,
                                error_code=errors.get((topic.name, part.partition_index), 0),
                            )
                            for part in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ],
            )
        )

    try:
        error = context.injected_error("") or context.refusal(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
        if error is not None:
            raise error
        keys = []
        unauthorized: dict[tuple[str, int], int] = {}
        for topic in request.topics:
            refusal = context.refusal_for_topic(AclOperation.READ, topic.name)
            for part in topic.partitions:
                if refusal is None:
                    keys.append((topic.name, part.partition_index))
                else:
                    unauthorized[topic.name, part.partition_index] = refusal.code
        broker.offsets.delete_offsets(
            request.group_id, keys, lambda errors, code: respond({**unauthorized, **errors}, code)
        )
    except BrokerResponseError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    return None
