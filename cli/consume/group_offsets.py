"""The place of `headrace consume --group` in a topic: offsets that a consumer group has committed.

A member of the group commits with its generation. With --partition the command is no member: it commits from outside
any generation, as Java's consumer does after `assign`. Brokers accept that while the group has no members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...network.protocol.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    make_error,
)
from ...network.protocol.message import first_version_with
from ...network.protocol.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ...network.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ..client import topic_error
from .coordinator import Coordinator

_INTERVAL_MS = 1000.0
_OF_THE_GROUP = (
    GroupAuthorizationFailedError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
#: The errors of a commit by a member that the group doesn't have in this generation, or by others while it has members.
REJECTED = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)


class Generation(NamedTuple):
    """Who commits: a member in a generation; by default a client outside any."""

    generation_id: int = -1
    member_id: str = ""


class GroupOffsets:
    """Reads and commits the offsets of one group in one topic. One thread. Every method raises KafkaError."""

    def __init__(self, coordinator: Coordinator, topic: str, topic_id: Any) -> None:
        self._coordinator = coordinator
        self._group = coordinator.group
        self._topic = topic
        self._topic_id = topic_id
        self._committed: dict[int, int] = {}
        self._next_commit_ms = 0.0

    def fetch(self, partitions: list[int]) -> dict[int, int]:
        """The committed offsets of the partitions that have one."""
        self._committed = self._coordinator.ask(lambda node_id: self._fetch(node_id, partitions)) if partitions else {}
        return dict(self._committed)

    def is_due(self) -> bool:
        """Whether the last commit was a second ago."""
        return self._coordinator.clock.now_ms() >= self._next_commit_ms

    def commit(self, offsets: Mapping[int, int], generation: Generation) -> None:
        """Commit the offsets that have changed. Raises one of `REJECTED` if the group doesn't take them from it."""
        changed = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        if changed:
            self._coordinator.ask(lambda node_id: self._commit(node_id, changed, generation))
            self._committed.update(changed)
        self._next_commit_ms = self._coordinator.clock.now_ms() + _INTERVAL_MS

    def _fetch(self, node_id: int, partitions: list[int]) -> dict[int, int]:
        client = self._coordinator.client
        if client.version_of(OffsetFetchRequest, node_id) >= first_version_with(OffsetFetchRequest, "groups"):
            topics = [OffsetFetchRequestTopics(name=self._topic, topic_id=self._topic_id, partition_indexes=partitions)]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group, topics=topics)])
            answer = client.ask(request, node_id).groups[0]
        else:
            asked = [OffsetFetchRequestTopic(name=self._topic, partition_indexes=partitions)]
            answer = client.ask(OffsetFetchRequest(group_id=self._group, topics=asked), node_id)
        if answer.error_code:
            raise self._coordinator.error(answer.error_code)
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code:
                    raise topic_error(self._topic, part.error_code, partition=part.partition_index)
                if part.committed_offset >= 0:
                    found[part.partition_index] = part.committed_offset
        return found

    def _commit(self, node_id: int, offsets: Mapping[int, int], generation: Generation) -> None:
        parts = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=at) for each, at in offsets.items()
        ]
        topics = [OffsetCommitRequestTopic(name=self._topic, topic_id=self._topic_id, partitions=parts)]
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            topics=topics,
        )
        for topic in self._coordinator.client.ask(request, node_id).topics:
            for part in topic.partitions:
                if part.error_code == 0:
                    continue
                error = make_error(part.error_code)
                if isinstance(error, REJECTED):
                    raise type(error)(f"group {self._group} {_why_rejected(generation)}")
                if isinstance(error, _OF_THE_GROUP):
                    raise self._coordinator.error(part.error_code)
                raise topic_error(self._topic, part.error_code, partition=part.partition_index, operation="READ")


def _why_rejected(generation: Generation) -> str:
    if generation.member_id:
        return "has gone on without this member; what it printed last will be read again"
    return (
        "has members, so its offsets are theirs to commit; stop them, give another --group, or become a member by "
        "leaving out --partition"
    )
