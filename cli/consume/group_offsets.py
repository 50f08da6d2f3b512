"""The place of `headrace consume --group` in a topic: offsets that a consumer group has committed.

The command is not a member of the group: it reads all chosen partitions, and commits its offsets from outside any
generation, as Java's consumer does after `assign`. Brokers accept that while the group has no members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...network.acl_advice import missing_acl
from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    make_error,
)
from ...network.protocol.message import first_version_with
from ...network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
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
from ..client import Client, topic_error

Result = TypeVar("Result")

_PATIENCE_MS = 30_000.0
_PAUSE_MS = 100.0
_INTERVAL_MS = 1000.0
_LATER = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)
_HAS_MEMBERS = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)


class GroupOffsets:
    """Reads and commits the offsets of one group in one topic. One thread. Every method raises KafkaError."""

    def __init__(self, client: Client, group: str, topic: str, topic_id: Any) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._topic_id = topic_id
        self._coordinator: int | None = None
        self._committed: dict[int, int] = {}
        self._next_commit_ms = 0.0

    def fetch(self, partitions: list[int]) -> dict[int, int]:
        """The committed offsets of the partitions that have one."""
        self._committed = self._asking(lambda node_id: self._fetch(node_id, partitions))
        return dict(self._committed)

    def commit_soon(self, offsets: Mapping[int, int]) -> None:
        """Commit the offsets that have changed, at most once per second."""
        if SYSTEM_CLOCK.now_ms() >= self._next_commit_ms:
            self.commit(offsets)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit the offsets that have changed."""
        changed = {each: offset for each, offset in offsets.items() if self._committed.get(each) != offset}
        if changed:
            self._asking(lambda node_id: self._commit(node_id, changed))
            self._committed.update(changed)
        self._next_commit_ms = SYSTEM_CLOCK.now_ms() + _INTERVAL_MS

    def _asking(self, ask: Callable[[int], Result]) -> Result:
        """The result of a request to the coordinator, which may be starting or moving."""
        deadline_ms = SYSTEM_CLOCK.now_ms() + _PATIENCE_MS
        while True:
            try:
                if self._coordinator is None:
                    self._coordinator = self._find()
                return ask(self._coordinator)
            except _LATER:
                self._coordinator = None
                if SYSTEM_CLOCK.now_ms() >= deadline_ms:
                    raise
                SYSTEM_CLOCK.sleep(_PAUSE_MS)

    def _error(self, code: int) -> KafkaError:
        error = make_error(code)
        if isinstance(error, GroupAuthorizationFailedError):
            return make_error(code, f"group {self._group}: {missing_acl('READ', 'GROUP', self._group)}")
        return make_error(code, f"group {self._group}: {error}")

    def _find(self) -> int:
        if self._client.version_of(FindCoordinatorRequest) >= FindCoordinatorRequest.FIRST_VERSION_WITH_KEYS:
            found = self._client.ask(FindCoordinatorRequest(coordinator_keys=[self._group])).coordinators[0]
        else:
            found = self._client.ask(FindCoordinatorRequest(key=self._group))
        if found.error_code:
            raise self._error(found.error_code)
        with contextlib.suppress(KafkaError):
            # it may have joined the cluster since
            self._client.metadata([])
        return found.node_id

    def _fetch(self, node_id: int, partitions: list[int]) -> dict[int, int]:
        if self._client.version_of(OffsetFetchRequest, node_id) >= first_version_with(OffsetFetchRequest, "groups"):
            topics = [OffsetFetchRequestTopics(name=self._topic, topic_id=self._topic_id, partition_indexes=partitions)]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group, topics=topics)])
            answer = self._client.ask(request, node_id).groups[0]
        else:
            asked = [OffsetFetchRequestTopic(name=self._topic, partition_indexes=partitions)]
            answer = self._client.ask(OffsetFetchRequest(group_id=self._group, topics=asked), node_id)
        if answer.error_code:
            raise self._error(answer.error_code)
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code:
                    raise topic_error(self._topic, part.error_code, partition=part.partition_index)
                if part.committed_offset >= 0:
                    found[part.partition_index] = part.committed_offset
        return found

    def _commit(self, node_id: int, offsets: Mapping[int, int]) -> None:
        parts = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=at) for each, at in offsets.items()
        ]
        topics = [OffsetCommitRequestTopic(name=self._topic, topic_id=self._topic_id, partitions=parts)]
        request = OffsetCommitRequest(group_id=self._group, member_id="", topics=topics)
        for topic in self._client.ask(request, node_id).topics:
            for part in topic.partitions:
                if part.error_code == 0:
                    continue
                error = make_error(part.error_code)
                if isinstance(error, _HAS_MEMBERS):
                    raise type(error)(
                        f"group {self._group} has members, so its offsets are theirs to commit; stop them, or give "
                        "another --group"
                    )
                if isinstance(error, (GroupAuthorizationFailedError, *_LATER)):
                    raise self._error(part.error_code)
                raise topic_error(self._topic, part.error_code, partition=part.partition_index, operation="READ")
