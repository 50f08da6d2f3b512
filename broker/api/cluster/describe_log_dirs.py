"""DescribeLogDirs: how much room each partition takes in the broker's directory."""

from __future__ import annotations

import shutil

from ....network.protocol.errors import KafkaStorageError
from ....network.protocol.messages.cluster.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...requests.request import RequestContext
from ...services.services import BrokerServices
from ..registry import serves


@serves(DescribeLogDirsRequest, max_version=4, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Answers at once. There is one directory."""
    error = context.injected_error("")
    if error is not None:
        return DescribeLogDirsResponse(error_code=error.code, results=[])
    asked = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, index), partition in sorted(broker.replicas.partitions.items()):
        if asked is not None and index not in asked.get(name, ()):
            continue
        topic = topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
        topic.partitions.append(
            DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size_bytes)
        )
    result = DescribeLogDirsResult(log_dir=str(broker.directory), topics=list(topics.values()))
    try:
        usage = shutil.disk_usage(broker.directory)
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    except OSError:
        result.error_code = KafkaStorageError.code
    return DescribeLogDirsResponse(results=[result])
