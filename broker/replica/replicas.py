"""The replicas of one broker and reads from them. Appends and delayed requests build on this module."""

from __future__ import annotations

from ...network.protocol.errors import (
    BrokerResponseError,
    FencedLeaderEpochError,
    KafkaStorageError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
)
from ...network.protocol.other_errors import OffsetOutOfRangeError
from ..log.log import LogRead
from ..metadata import ClusterImage, PartitionKey
from .fetch import FetchEntry, FetchParams, FetchResult
from .partition import Partition


def without_frames(error: BrokerResponseError) -> BrokerResponseError:
    """Strip the tracebacks of an error that is kept in a result. Their frames reference the result and the log: a cycle
    that only the garbage collector would free, and until then a deleted log would keep its disk space."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


class Replicas:
    """The partitions with a replica on this broker, by (topic, index), and the image of the whole cluster.

    `offline` has the replicas that should be here but couldn't be created or loaded. Any thread may read. Only
    `ReplicaManager` changes `image`, `partitions` and `offline`, under its lock.
    """

    def __init__(self, broker_id: int, image: ClusterImage) -> None:
        self.broker_id = broker_id
        self.image = image
        self.partitions: dict[PartitionKey, Partition] = {}
        self.offline: set[PartitionKey] = set()

    def partition(self, key: PartitionKey) -> Partition:
        """A partition of this broker. Raises UnknownTopicOrPartitionError, NotLeaderForPartitionError if only other
        brokers have a replica, KafkaStorageError if this broker's replica is offline."""
        found = self.partitions.get(key)
        if found is None:
            if key in self.offline:
                raise KafkaStorageError(
                    f"{key[0]}-{key[1]} is offline on broker {self.broker_id}; see the broker's log for the cause"
                )
            if self.image.partition(*key) is not None:
                raise NotLeaderForPartitionError(f"broker {self.broker_id} has no replica of {key[0]}-{key[1]}")
            raise UnknownTopicOrPartitionError(f"there is no partition {key[0]}-{key[1]}")
        return found

    def read(self, params: FetchParams, entries: list[FetchEntry]) -> list[FetchResult]:
        """Read each partition, at most `max_bytes` in total (but at least one batch)."""
        left = params.max_bytes
        results = []
        for entry in entries:
            result = self._read_result(params, entry, left)
            left -= result.size_bytes
            results.append(result)
        return results

    def _read_result(self, params: FetchParams, entry: FetchEntry, left: int) -> FetchResult:
        partition = None
        try:
            partition = self.partition(entry.key)
            log = partition.log
            if params.is_follower and entry.last_fetched_epoch >= 0:
                diverging = self._divergence(partition, entry)
                if diverging is not None:
                    return FetchResult(
                        entry,
                        high_watermark=log.high_watermark,
                        last_stable_offset=log.high_watermark,
                        log_start_offset=log.log_start_offset,
                        diverging_epoch=diverging,
                    )
            # Only the first result with records may exceed the limits, so that a batch larger than them gets through.
            read = self.read_one(
                params, entry, partition, min(entry.max_bytes, max(left, 0)), min_one_batch=left == params.max_bytes
            )
            return FetchResult(
                entry,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                region=read.region,
                aborted=log.aborted_transactions(entry.offset, read) if params.committed_only else (),
            )
        except BrokerResponseError as error:
            leader = None
            if partition is not None and isinstance(error, (NotLeaderForPartitionError, FencedLeaderEpochError)):
                leader = (partition.leader_id, partition.leader_epoch)
            return FetchResult(entry, error=without_frames(error), leader=leader)

    def _divergence(self, partition: Partition, entry: FetchEntry) -> tuple[int, int] | None:
        """The epoch and its end here after which the follower's log diverges; None if it doesn't (KIP-595)."""
        partition.check_leader(entry.current_leader_epoch)
        epoch, end_offset = partition.log.leader_epochs.end_offset_for(
            entry.last_fetched_epoch, partition.log.end.offset
        )
        if epoch < 0:
            raise OffsetOutOfRangeError(
                f"{entry.key[0]}-{entry.key[1]} doesn't know the last fetched epoch {entry.last_fetched_epoch}"
            )
        if epoch < entry.last_fetched_epoch or end_offset < entry.offset:
            return epoch, end_offset
        return None

    def read_one(
        self,
        params: FetchParams,
        entry: FetchEntry,
        partition: Partition,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
    ) -> LogRead:
        """Read one partition. Raises the errors of `Partition.read`."""
        return partition.read(
            entry.offset,
            max_bytes,
            current_leader_epoch=entry.current_leader_epoch,
            is_follower=params.is_follower,
            committed_only=params.committed_only,
            min_one_batch=min_one_batch,
        )
