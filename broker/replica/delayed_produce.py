"""A produce request with acks=all that waits for the in-sync replicas (Kafka's `DelayedProduce`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...network.protocol.errors import BrokerResponseError, RequestTimedOutError
from ..log.log import AppendInfo
from ..metadata import PartitionKey
from ..purgatory import DelayedOperation
from .replicas import Replicas, without_frames


@dataclass(slots=True)
class ProduceResult:
    """The outcome of one partition's batch: its offsets, or the error, with the log start offset if that matters."""

    info: AppendInfo | None
    error: BrokerResponseError | None = None
    log_start_offset: int = -1
    is_pending: bool = False

    @property
    def required_offset(self) -> int:
        """The offset that the high watermark must reach for the batch to be acknowledged."""
        return -1 if self.info is None else self.info.last_offset + 1


class DelayedProduce(DelayedOperation):
    """Completes when each partition's batch is on all in-sync replicas or has failed. On expiry the remaining ones get
    REQUEST_TIMED_OUT. `respond` is called exactly once, on the thread that completes the operation, or through `aside`
    if that is given."""

    def __init__(
        self,
        timeout_ms: float,
        results: dict[PartitionKey, ProduceResult],
        replicas: Replicas,
        respond: Callable[[dict[PartitionKey, ProduceResult]], None],
        *,
        aside: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        super().__init__(timeout_ms)
        self._results = results
        self._replicas = replicas
        self._respond = respond
        self._aside = aside
        for result in results.values():
            result.is_pending = result.error is None

    def try_complete(self) -> bool:
        waiting = False
        for key, result in self._results.items():
            if not result.is_pending:
                continue
            try:
                result.is_pending = not self._replicas.partition(key).is_replicated(result.required_offset)
            except BrokerResponseError as error:
                result.error = without_frames(error)
                result.is_pending = False
            waiting = waiting or result.is_pending
        return False if waiting else self.force_complete()

    def on_complete(self) -> None:
        for (topic, index), result in self._results.items():
            if result.is_pending:
                result.is_pending = False
                result.error = RequestTimedOutError(
                    f"{topic}-{index} appended the records, but not all in-sync replicas had them in time"
                )
        if self._aside is None:
            self._respond(self._results)
        else:
            self._aside(lambda: self._respond(self._results))

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` has answered."""
