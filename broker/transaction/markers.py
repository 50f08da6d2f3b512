"""The sending of markers: WriteTxnMarkers to the leaders of a decided transaction's partitions, until each has its own
(Kafka's `TransactionMarkerChannelManager`).

A marker whose leader is away, not ready or unknown is sent again after `RETRY_MS`, also while there is no leader. A
partition that no longer exists needs none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from ...network.protocol.errors import (
    InvalidProducerEpochError,
    KafkaError,
    TransactionCoordinatorFencedError,
    make_error,
)
from ...network.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ..metadata import ClusterImage, PartitionKey
from ..replica.connection import InterBrokerConnection, InterBrokerConnector
from ..timer import SystemTimer, TimedCall
from .peers import PeerRequests
from .states import TransactionState
from .store import TransactionStore
from .transaction import Transaction

_log = logging.getLogger(__name__)

RETRY_MS = 100.0


class _Job(NamedTuple):
    """Some of a transaction's partitions, with the same leader."""

    transaction: Transaction
    partitions: frozenset[PartitionKey]
    on_marked: Callable[[Transaction], None]


class MarkerSender(PeerRequests[_Job]):
    """Sends the markers of this coordinator's transactions. Any thread may call `mark`."""

    def __init__(
        self,
        broker_id: int,
        *,
        connector: InterBrokerConnector,
        image: Callable[[], ClusterImage],
        timer: SystemTimer,
        store: TransactionStore,
    ) -> None:
        super().__init__("markers", broker_id, connector=connector, image=image)
        self._timer = timer
        self._store = store

    def mark(self, transaction: Transaction, on_marked: Callable[[Transaction], None]) -> None:
        """Send the markers of a prepared transaction. `on_marked` is called once, when every partition has its own."""
        with transaction.lock:
            partitions = transaction.values.partitions
        if partitions:
            self._send_job(_Job(transaction, partitions, on_marked))
        else:
            on_marked(transaction)

    def _send_job(self, job: _Job) -> None:
        """Send markers to the present leaders, unless another broker coordinates the transaction by now."""
        if not self._store.is_current(job.transaction):
            return
        image = self._image()
        by_leader: dict[int, set[PartitionKey]] = {}
        waiting: set[PartitionKey] = set()
        gone: set[PartitionKey] = set()
        for key in job.partitions:
            state = image.partition(*key)
            if state is None:
                gone.add(key)
            elif state.leader in image.brokers:
                by_leader.setdefault(state.leader, set()).add(key)
            else:
                waiting.add(key)
        for leader, keys in by_leader.items():
            self.send(leader, job._replace(partitions=frozenset(keys)))
        self._retry(job, waiting)
        self._finish(job, gone)

    def _retry(self, job: _Job, keys: Iterable[PartitionKey]) -> None:
        partitions = frozenset(keys)
        if partitions:
            self._timer.add(TimedCall(RETRY_MS, partial(self._send_job, job._replace(partitions=partitions))))

    def _finish(self, job: _Job, keys: Iterable[PartitionKey]) -> None:
        """Record that partitions have their markers."""
        marked = frozenset(keys)
        if not marked:
            return
        transaction = job.transaction
        with transaction.lock:
            left = transaction.values.partitions - marked
            is_last = bool(transaction.values.partitions) and not left
            transaction.values = transaction.values._replace(partitions=left)
        if is_last:
            job.on_marked(transaction)

    # --- The thread of one broker ---

    def exchange(self, connection: InterBrokerConnection, items: Sequence[_Job]) -> None:
        response = connection.request(WriteTxnMarkersRequest(markers=[_marker(job) for job in items]))
        for job, result in zip(items, response.markers, strict=True):
            codes = {
                (topic.name, each.partition_index): each.error_code
                for topic in result.topics
                for each in topic.partitions
            }
            self._take(job, codes)

    def _take(self, job: _Job, codes: dict[PartitionKey, int]) -> None:
        marked: set[PartitionKey] = set()
        again: set[PartitionKey] = set()
        for key in job.partitions:
            code = codes.get(key, -1)
            if code == TransactionCoordinatorFencedError.code:
                _log.info("%r: another broker coordinates it by now", job.transaction)
                return
            if code in (0, InvalidProducerEpochError.code):
                # With a later epoch in its log, the partition is past this transaction.
                marked.add(key)
            else:
                _log.debug("%r: the marker for %s-%d failed: %s", job.transaction, *key, make_error(code))
                again.add(key)
        self._retry(job, again)
        self._finish(job, marked)

    def fail(self, items: Sequence[_Job], error: KafkaError) -> None:
        for job in items:
            self._retry(job, job.partitions)


def _marker(job: _Job) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(job.partitions):
        topics.setdefault(topic, []).append(index)
    values = job.transaction.values
    return WritableTxnMarker(
        producer_id=values.producer_id,
        producer_epoch=values.producer_epoch,
        transaction_result=values.state is TransactionState.PREPARE_COMMIT,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=job.transaction.coordinator_epoch,
        transaction_version=values.client_level,
    )
