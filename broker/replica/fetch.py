"""The parameters and results of a fetch."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...network.protocol.errors import BrokerResponseError
from ...network.sockets.transport import FileRegion
from ..log.transaction_index import AbortedTransaction
from ..metadata import PartitionKey


class FetchParams(NamedTuple):
    """The parameters of a fetch that apply to all its partitions."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed_only: bool

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0


class FetchEntry(NamedTuple):
    """One partition of a fetch."""

    key: PartitionKey
    topic_id: uuid.UUID
    offset: int
    max_bytes: int
    log_start_offset: int = -1
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(slots=True)
class FetchResult:
    """The result of a fetch for one partition."""

    entry: FetchEntry
    error: BrokerResponseError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    region: FileRegion | None = None
    diverging_epoch: tuple[int, int] | None = None
    leader: tuple[int, int] | None = None
    aborted: Sequence[AbortedTransaction] = ()

    @property
    def size_bytes(self) -> int:
        return 0 if self.region is None else self.region.size_bytes
