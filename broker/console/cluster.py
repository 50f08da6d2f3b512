"""The part of a cluster that the console uses. `EmbeddedCluster` and `ProcessCluster` have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...network.protocol.api import ApiKey
from ..controller.controller import Controller
from ..requests.control import RequestSeen
from ..requests.faults import Fault
from ..services.observation import BrokerSeen, NewRecord, RecordQuery, RecordsRead


class InjectedFault(Protocol):
    """A fault, or a function that decides per request (`fault` is None then)."""

    number: int
    api_key: ApiKey | None
    remaining: int | None
    hits: int
    node_id: int | None

    @property
    def fault(self) -> Fault | None: ...

    def remove(self) -> None: ...


class ConsoleCluster(Protocol):
    """See `ClusterBase` for the methods. All of them may be called from any thread."""

    node_ids: tuple[int, ...]
    profile: str

    @property
    def controller(self) -> Controller: ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def running(self) -> list[int]: ...

    @property
    def faults(self) -> Sequence[InjectedFault]: ...

    def overview(self, node_id: int, after: RequestSeen | None) -> BrokerSeen: ...

    def read_records(self, query: RecordQuery) -> RecordsRead: ...

    def append_record(self, record: NewRecord) -> int: ...

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None: ...

    def inject(
        self, api_key: ApiKey | None, fault: Fault, *, times: int | None = 1, node_id: int | None = None
    ) -> Any: ...

    def kill_broker(self, node_id: int) -> None: ...

    def stop_broker(self, node_id: int) -> None: ...

    def start_broker(self, node_id: int) -> None: ...
