"""DescribeLogDirs: the contents of a broker's log directories (KIP-113)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int16, Int32, Int64, String


@struct
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: String
    partitions: list[Int32]


@request(api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Request):
    """Requests some partitions, or all with None."""

    topics: list[DescribableLogDirTopic] | None = field(nullable="0+", default=None)


@struct
class DescribeLogDirsPartition:
    """A partition's size on disk in bytes, and the lag of a replica that is being moved here."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64 = 0
    is_future_key: Bool = False


@struct
class DescribeLogDirsTopic:
    """The partitions of one topic."""

    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    """A directory, with the total and usable bytes of its volume; -1 if unknown."""

    error_code: Int16 = 0
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field(versions="4+", ignorable=True, default=-1)
    usable_bytes: Int64 = field(versions="4+", ignorable=True, default=-1)
    is_cordoned: Bool = field(versions="5+", ignorable=True, default=False)


@response(of=DescribeLogDirsRequest)
class DescribeLogDirsResponse(Response):
    """The log directories of this broker."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(versions="3+", ignorable=True, default=0)
    results: list[DescribeLogDirsResult]
