"""AlterReplicaLogDirs: moves replicas to other directories of their broker (KIP-113)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, request, response, struct
from ...types import Int16, Int32, String


@struct
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[Int32]


@struct
class AlterReplicaLogDir:
    """A directory, by its absolute path, and the partitions to move to it."""

    path: String
    topics: list[AlterReplicaLogDirTopic]


@request(api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request):
    """Requests moves within this broker."""

    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    """Whether a move was started."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    """The partitions of one topic."""

    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


@response(of=AlterReplicaLogDirsRequest)
class AlterReplicaLogDirsResponse(Response):
    """The result for each partition."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult]
