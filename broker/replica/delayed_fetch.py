"""A fetch that waits for enough bytes (Kafka's `DelayedFetch`)."""

from __future__ import annotations

from collections.abc import Callable

from ...network.protocol.errors import BrokerResponseError
from ..purgatory import DelayedOperation
from .fetch import FetchParams, FetchResult
from .replicas import Replicas


class DelayedFetch(DelayedOperation):
    """Completes when one of these conditions holds: this broker no longer leads one of the partitions; a partition is
    unknown; a fetch is below the active segment, so its data won't grow; `min_bytes` are available. On expiry it
    answers with the available records. `respond` is called exactly once, on the thread that completes the operation, or
    through `aside` if that is given."""

    def __init__(
        self,
        params: FetchParams,
        results: list[FetchResult],
        replicas: Replicas,
        respond: Callable[[list[FetchResult]], None],
        *,
        aside: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._params = params
        self._results = results
        self._replicas = replicas
        self._respond = respond
        self._aside = aside

    def try_complete(self) -> bool:
        available = 0
        for result in self._results:
            entry = result.entry
            try:
                partition = self._replicas.partition(entry.key)
                # Raises for the first two conditions, and if truncation has moved the end below the fetch offset.
                read = self._replicas.read_one(self._params, entry, partition, entry.max_bytes)
            except BrokerResponseError:
                return self.force_complete()
            if read.region is not None and read.start.segment_base_offset != partition.log.end.segment_base_offset:
                return self.force_complete()
            available += read.size_bytes
        if available >= self._params.min_bytes:
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        if self._aside is None:
            self._answer()
        else:
            self._aside(self._answer)

    def _answer(self) -> None:
        self._respond(self._replicas.read(self._params, [result.entry for result in self._results]))

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` has answered."""
