"""DescribeLogDirs: the size of each partition in the broker's directories."""

from __future__ import annotations

import shutil
from pathlib import Path

from ....network.protocol.errors import KafkaStorageError
from ....network.protocol.messages.cluster.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices
from ..registry import serves


@serves(DescribeLogDirsRequest, max_version=4, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Answers immediately. A replica that is being moved is in both directories, in the target as a future replica."""
    error = context.injected_error("") or context.refusal(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    if error is not None:
        return DescribeLogDirsResponse(error_code=error.code, results=[])
    asked = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    moves = dict(broker.logs.moves)
    results = []
    for directory in broker.logs.directories:
        topics: dict[str, DescribeLogDirsTopic] = {}
        for (name, index), partition in sorted(broker.replicas.partitions.items()):
            if asked is not None and index not in asked.get(name, ()):
                continue
            move = moves.get((name, index))
            log = partition.log
            if log.directory.parent == directory.path:
                told = DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes)
            elif move is not None and move.target is directory:
                told = DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=move.size_bytes,
                    offset_lag=move.offset_lag,
                    is_future_key=True,
                )
            else:
                continue
            topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[])).partitions.append(told)
        results.append(_result(directory.path, list(topics.values())))
    return DescribeLogDirsResponse(results=results)


def _result(path: Path, topics: list[DescribeLogDirsTopic]) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=str(path), topics=topics)
    try:
        usage = shutil.disk_usage(path)
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    except OSError:
        result.error_code = KafkaStorageError.code
    return result
