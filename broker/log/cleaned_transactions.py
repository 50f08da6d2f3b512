"""The transactions that a compaction passes: which batches are aborted, and which markers are no longer needed (Kafka's
`CleanedTransactionMetadata`).

The records of an aborted transaction are removed, and never replace a record of their key. A marker stays while the log
has batches of its transaction. The pass that finds none gives the marker a delete horizon, like a tombstone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...network.records.batch import RecordBatch
from .markers import read_marker
from .transaction_index import AbortedTransaction


class CleanedTransactions:
    """Follows the transactions of a log, batch by batch in order.

    aborted: all aborted transactions of the log whose markers are at or after the first batch.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        self._committed: set[int] = set()
        #: The transactions whose markers stay, for the index of the segment that is written.
        self.retained: list[AbortedTransaction] = []

    def is_aborted(self, batch: RecordBatch) -> bool:
        """Whether a batch with data is of an aborted transaction."""
        self._advance(batch.last_offset)
        if not batch.is_transactional:
            return False
        producer_id = batch.producer_id
        if producer_id in self._aborted:
            self._seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def is_obsolete(self, batch: RecordBatch) -> bool:
        """Whether a control batch ends a transaction of which no batch is left. Raises CorruptRecordError."""
        self._advance(batch.last_offset)
        producer_id = batch.producer_id
        marker = read_marker(batch)
        if marker is None:
            return batch.count == 0
        if marker.is_commit:
            has_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not has_batches
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.retained.append(aborted)
        return False

    def _advance(self, offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            begun = self._ahead.popleft()
            if begun.last_offset >= offset:
                self._aborted[begun.producer_id] = begun
                self._seen.discard(begun.producer_id)
