"""OffsetFetch: fetches the offsets that consumer groups have committed."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import ZERO_UUID, Bool, Int16, Int32, Int64, String, Uuid


@struct
class OffsetFetchRequestTopic:
    """The partitions of one topic, up to version 7."""

    name: String
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestTopics:
    """The partitions of one topic, which has a name up to version 9 and an id since 10."""

    name: String = field(versions="8-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    """A group and its topics; None for all topics with committed offsets."""

    group_id: String
    member_id: String | None = field(versions="9+", nullable="9+", ignorable=True, default=None)
    member_epoch: Int32 = field(versions="9+", ignorable=True, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(nullable="8+", default=None)


@request(api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+")
class OffsetFetchRequest(Request):
    """Requests offsets: of one group up to version 7, of `groups` since 8 (KIP-709).

    `topics` None requests all offsets of the group. `require_stable` rejects offsets that an open transaction may
    change.
    """

    group_id: String = field(versions="0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(versions="0-7", nullable="2-7", default_factory=list)
    groups: list[OffsetFetchRequestGroup] = field(versions="8+", default_factory=list)
    require_stable: Bool = field(versions="7+", default=False)


@struct
class OffsetFetchResponsePartition:
    """The committed offset of a partition, -1 if there is none; up to version 7."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(versions="5-7", ignorable=True, default=-1)
    metadata: String | None = field(nullable="0-7")
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopic:
    """The partitions of one topic, up to version 7."""

    name: String
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    """The committed offset of a partition, -1 if there is none."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: String | None = field(nullable="8+")
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopics:
    """The partitions of one topic, which has a name up to version 9 and an id since 10."""

    name: String = field(versions="8-9", ignorable=True, default="")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    """The offsets of one group, or the error."""

    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


@response(of=OffsetFetchRequest, client_throttles="4+")
class OffsetFetchResponse(Response):
    """The committed offsets: in `topics` up to version 7, in `groups` since 8."""

    throttle_time_ms: Int32 = field(versions="3+", ignorable=True, default=0)
    topics: list[OffsetFetchResponseTopic] = field(versions="0-7", default_factory=list)
    error_code: Int16 = field(versions="2-7", ignorable=True, default=0)
    groups: list[OffsetFetchResponseGroup] = field(versions="8+", default_factory=list)
