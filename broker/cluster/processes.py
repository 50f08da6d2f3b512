"""A cluster with one process per broker, so that each can be killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from ...network.protocol.api import ApiKey
from ...network.protocol.errors import (
    DisconnectedError,
    IllegalStateError,
    KafkaConnectionError,
)
from ..config.profiles import TEST
from ..config.releases import highest_versions
from ..controller.controller import Controller
from ..group.group import Group
from ..log.producer_state import ProducerStateEntry
from ..requests.control import RequestSeen
from ..requests.faults import Fault
from ..telemetry.push import TelemetryPush
from ..transaction.transaction import TransactionValues
from .cluster_base import ClusterBase
from .remote import BrokerLink, to_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ...network.records.record import Record
    from ..keywords import BrokerKeywords, UnpackedMapping
    from ..services.observation import BrokerSeen, NewRecord, RecordQuery, RecordsRead

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0
_LOOK_S = 0.01
#: A broker that hangs must not keep the console from showing the others.
_OVERVIEW_TIMEOUT_S = 2.0


class InjectedFault:
    """An injected fault, on one broker or all. `remove()` removes it; a `with` statement does so at its end. Any
    thread."""

    def __init__(
        self, cluster: ProcessCluster, number: int, api_key: ApiKey | None, fault: Fault, times: int | None
    ) -> None:
        self.api_key = api_key
        self.fault = fault
        self.remaining = times
        self.hits = 0
        self.number = number
        self.node_id: int | None = None
        self._cluster = cluster
        self._lock = threading.Lock()

    def claim(self) -> bool:
        """Count one request that matches the fault; False if the fault has been used up."""
        with self._lock:
            if self.remaining == 0:
                return False
            if self.remaining is not None:
                self.remaining -= 1
            self.hits += 1
            return True

    def remove(self) -> None:
        self._cluster.remove_fault(self)

    def __enter__(self) -> InjectedFault:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class ProcessCluster(ClusterBase):
    """A Kafka cluster with the controller in this process and each broker in its own.

    A broker that ends for any reason is removed from the cluster immediately; `start_broker` brings it back.

    It has the methods of `EmbeddedCluster` that can work across processes. Missing are `on_request` (a test's function
    can't run in a broker), `broker`, `brokers` and `control` (objects inside a broker's process), and a clock.

    Start and stop it on one thread; its other methods may be called from any thread.
    """

    @overload
    def __init__(
        self,
        brokers: int | None = ...,
        *,
        node_ids: Sequence[int] | None = ...,
        data_dir: str | Path | None = ...,
        host: str | None = ...,
        port: int | None = ...,
        racks: Mapping[int, str] | None = ...,
        security: str | None = ...,
        features: Mapping[str, int] | None = ...,
        console: bool | int = ...,
        schema_registry: str | None = ...,
        profile: Literal["test", "kafka"] | str = ...,
        config: Mapping[str, Any] | None = ...,
        **keywords: Unpack[BrokerKeywords],
    ) -> None: ...
    @overload
    def __init__(
        self,
        brokers: Any = ...,
        *,
        node_ids: Any = ...,
        data_dir: Any = ...,
        host: Any = ...,
        port: Any = ...,
        racks: Any = ...,
        security: Any = ...,
        features: Any = ...,
        console: Any = ...,
        schema_registry: Any = ...,
        profile: Any = ...,
        config: Any = ...,
        **keywords: Unpack[UnpackedMapping],
    ) -> None: ...
    def __init__(
        self,
        brokers: int | None = None,
        *,
        node_ids: Sequence[int] | None = None,
        data_dir: str | Path | None = None,
        host: str | None = None,
        port: int | None = None,
        racks: Mapping[int, str] | None = None,
        security: str | None = None,
        features: Mapping[str, int] | None = None,
        console: bool | int = False,
        schema_registry: str | None = None,
        profile: str = TEST,
        config: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        """Check the arguments, which are those of `EmbeddedCluster`, without starting anything; three brokers by
        default. Raises KafkaConfigurationError."""
        super().__init__(
            brokers,
            3,
            node_ids=node_ids,
            data_dir=data_dir,
            host=host,
            port=port,
            racks=racks,
            security=security,
            features=features,
            console=console,
            schema_registry=schema_registry,
            profile=profile,
            config=config,
            keywords=keywords,
        )
        self._launchers: list[subprocess.Popen[bytes]] = []
        self._links: dict[int, BrokerLink] = {}
        self._lock = threading.Lock()
        #: Held while a broker starts or ends: the console does that, too, on threads of its own.
        self._life = threading.Lock()
        self._fault_numbers = itertools.count()
        self._faults: dict[int, InjectedFault] = {}
        self._cut: frozenset[frozenset[int]] = frozenset()
        self._release: str | None = None

    # --- Life ---

    def __enter__(self) -> ProcessCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start every broker and serve clients. Raises KafkaConnectionError, KafkaStorageError."""
        if self._controller is not None:
            raise IllegalStateError("the cluster is started already")
        directories = self._make_directories()
        try:
            self._controller = self._make_controller(directories)
            self._start_brokers(list(self.node_ids))
            self._open_console(self)
        except BaseException:
            self.close()
            raise

    def _start_brokers(self, node_ids: list[int]) -> None:
        controller = self.controller
        links = self._launch(node_ids, controller)
        for link in links:
            # wait for all before raising for one: `close` needs every broker's process id to end it
            link.is_registered.wait(_START_TIMEOUT_S)
        for link in links:
            if link.start_failure is not None:
                reason = link.start_failure
                raise type(reason)(f"broker {link.node_id} didn't start: {reason}") from reason
            if link.endpoint is None:
                raise KafkaConnectionError(f"broker {link.node_id} didn't start; what it wrote to stderr says why")
            self._ports[link.node_id] = link.ports
            self._bring_up_to_date(link)
        controller.skip_producer_ids(max(link.last_producer_id for link in links))
        controller.register_brokers([(link.endpoint, link.push) for link in links if link.endpoint is not None])
        for link in links:
            link.on_gone = self._broker_gone
            if link.is_gone.is_set():
                self._broker_gone(link)

    def _launch(self, node_ids: list[int], controller: Controller) -> list[BrokerLink]:
        """Start one process that imports the broker's modules and forks the brokers."""
        assert self._directories is not None
        directories = self._directories.of_brokers
        config = to_text(self.config)
        pairs = {node_id: socket.socketpair() for node_id in node_ids}
        settings = [
            {
                "node_id": node_id,
                "directories": list(map(str, directories[node_id])),
                "config": config,
                "listeners": self._listeners_of(node_id),
                "advertised": self._advertised_of(node_id),
                "rack": self._racks.get(node_id),
                "descriptor": theirs.fileno(),
            }
            for node_id, (_, theirs) in pairs.items()
        ]
        self._launchers.append(
            subprocess.Popen(
                [sys.executable, "-m", "headrace.broker.cluster.process"],
                pass_fds=[theirs.fileno() for _, theirs in pairs.values()],
                stdin=subprocess.PIPE,
            )
        )
        # not as an argument, which every user of the machine can read: the configuration may have passwords
        with self._launchers[-1].stdin as stdin:  # type: ignore[union-attr]
            stdin.write(json.dumps(settings).encode())
        links = []
        for node_id, (ours, theirs) in pairs.items():
            theirs.close()
            links.append(BrokerLink(node_id, ours, controller, self._claim_fault))
        with self._lock:
            self._links.update({link.node_id: link for link in links})
        return links

    def _bring_up_to_date(self, link: BrokerLink) -> None:
        """Apply the cluster's faults, cut links and release to a broker that starts."""
        if self._cut:
            link.ask("cut_links", self._cut)
        if self._release is not None:
            link.ask("act_as", self._release)
        for fault in list(self._faults.values()):
            if fault.node_id in (None, link.node_id):
                link.ask("inject", fault.number, fault.api_key, fault.fault)

    def _broker_gone(self, link: BrokerLink) -> None:
        with self._lock:
            is_current = self._links.get(link.node_id) is link
        if is_current and self._controller is not None:
            self._controller.unregister_broker(link.node_id)

    def close(self) -> None:
        """Stop every broker cleanly and remove the temporary directory. May be called again."""
        self._close_console()
        # All brokers stop together, so no leaders are elected.
        with self._lock:
            links, self._links = self._links, {}
        launchers, self._launchers = self._launchers, []
        for link in links.values():
            _signal(link, signal.SIGTERM)
        for launcher in launchers:
            try:
                launcher.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                for link in links.values():
                    _signal(link, signal.SIGKILL)
                launcher.wait()
        self._controller = None
        if self._directories is not None:
            self._directories.remove()
        self._directories = None
        self._security.remove()

    # --- Brokers ---

    @property
    def pids(self) -> dict[int, int]:
        """The process id of each running broker, by the broker's id."""
        return {node_id: link.pid for node_id, link in self._running().items()}

    def _running(self) -> dict[int, BrokerLink]:
        with self._lock:
            return {node_id: link for node_id, link in self._links.items() if not link.is_gone.is_set()}

    @property
    def running(self) -> list[int]:
        """The ids of the running brokers, sorted."""
        return sorted(self._running())

    def _link(self, node_id: int) -> BrokerLink:
        self._check_node(node_id)
        running = self._running()
        if node_id not in running:
            raise IllegalStateError(f"broker {node_id} is not running; {sorted(running)} are")
        return running[node_id]

    def stop_broker(self, node_id: int) -> None:
        """Stop a broker cleanly. Returns when its process has ended and others lead its partitions."""
        self._end_broker(node_id, signal.SIGTERM)

    def kill_broker(self, node_id: int) -> None:
        """Kill a broker with kill -9. Returns when its process has ended and others lead its partitions."""
        self._end_broker(node_id, signal.SIGKILL)

    def _end_broker(self, node_id: int, number: signal.Signals) -> None:
        with self._life:
            link = self._link(node_id)
            _signal(link, number)
            link.wait_until_gone(_STOP_TIMEOUT_S)
            # The process is a zombie until its launcher reaps it, which happens promptly.
            looks = threading.Event()
            for _ in range(int(_STOP_TIMEOUT_S / _LOOK_S)):
                if not _exists(link.pid):
                    return
                looks.wait(_LOOK_S)
            raise KafkaConnectionError(f"the process {link.pid} of broker {node_id} doesn't end")

    def start_broker(self, node_id: int) -> None:
        """Start a stopped or killed broker again, on its previous ports and directories."""
        self._check_node(node_id)
        with self._life:
            if node_id in self._running():
                raise IllegalStateError(f"broker {node_id} is running already")
            self._start_brokers([node_id])

    def cut_link(self, one: int, other: int) -> None:
        """Stop two brokers from fetching from each other until `heal_links`. Clients and the controller reach both."""
        self._check_node(one)
        self._check_node(other)
        self._cut |= {frozenset((one, other))}
        self._ask_all("cut_links", self._cut)

    def heal_links(self) -> None:
        """Let all brokers reach each other again."""
        self._cut = frozenset()
        self._ask_all("cut_links", self._cut)

    def close_connections(self, node_id: int) -> None:
        """Close all connections of a broker, as a failing network does; new ones are accepted."""
        self._link(node_id).ask("close_connections")

    def _await_brokers(self) -> None:
        # A broker answers after it has applied the images that were sent before.
        self._ask_all("waiting")

    def _ask_all(self, what: str, *arguments: Any, node_id: int | None = None) -> list[Any]:
        """Ask all running brokers, or one; a broker that has just ended is skipped."""
        answers = []
        for link in self._running().values():
            if node_id in (None, link.node_id):
                with contextlib.suppress(DisconnectedError):
                    answers.append(link.ask(what, *arguments))
        return answers

    # --- Faults and introspection ---

    def inject(
        self, api_key: ApiKey | None, fault: Fault, *, times: int | None = 1, node_id: int | None = None
    ) -> InjectedFault:
        """Apply `fault` to the next `times` requests of an API (None: until removed), on one broker or all. Raises
        IllegalArgumentError for a fault that could never happen."""
        self._check_injection(api_key, fault, times, node_id)
        injected = InjectedFault(self, next(self._fault_numbers), api_key, fault, times)
        injected.node_id = node_id
        self._faults[injected.number] = injected
        self._ask_all("inject", injected.number, api_key, fault, node_id=node_id)
        return injected

    def remove_fault(self, injected: InjectedFault) -> None:
        """Remove a fault. May be called again."""
        if self._faults.pop(injected.number, None) is not None:
            self._ask_all("remove_fault", injected.number)

    def _claim_fault(self, number: int) -> bool:
        injected = self._faults.get(number)
        return injected is not None and injected.claim()

    @property
    def faults(self) -> list[InjectedFault]:
        """The injected faults that have not been removed, oldest first."""
        return list(self._faults.values())

    def act_as(self, release: str | None) -> None:
        """Offer clients only the APIs and versions of a release of Apache Kafka ("2.8"); None offers everything again.

        Applies to new connections. Raises KafkaConfigurationError for an unknown release.
        """
        highest_versions(release)
        self._release = release
        self._ask_all("act_as", release)

    @property
    def requests(self) -> list[RequestSeen]:
        """The last requests that reached the running brokers, oldest first."""
        seen: list[RequestSeen] = [each for answer in self._ask_all("requests") for each in answer]
        return sorted(seen, key=lambda each: each.received_ms)

    def producer_state(self, topic: str, partition: int) -> dict[int, ProducerStateEntry]:
        """The state of idempotent producers in a partition's log on its leader, by producer id."""
        return self._link(self._leading(topic, partition)).ask("producer_state", topic, partition)

    def group(self, group_id: str) -> Group | None:
        """A copy of a consumer group's current state on its coordinator, None if there is no such group."""
        for answer in self._ask_all("group_fields", group_id):
            if answer is not None:
                return Group(**answer)
        return None

    def transactions(self) -> dict[str, TransactionValues]:
        """The state of all transactions, by transactional id, as their coordinators have it."""
        return {key: of for answer in self._ask_all("transactions") for key, of in answer.items()}

    def _telemetry_pushes(self) -> list[TelemetryPush]:
        return [push for answer in self._ask_all("telemetry_pushes") for push in answer]

    def waiting(self) -> dict[str, int]:
        """The number of requests that wait in the purgatories of all brokers, by kind, and of timers (`Timer`)."""
        counts: Counter[str] = Counter()
        for answer in self._ask_all("waiting"):
            counts.update(answer)
        return dict(counts)

    def records(self, topic: str, partition: int, node_id: int | None = None) -> list[Record]:
        """All records of a partition from its leader's log (or another broker's), decoded."""
        return self._link(self._leading(topic, partition) if node_id is None else node_id).ask(
            "records", topic, partition
        )

    # --- For the console: see `ConsoleCluster` ---

    def overview(self, node_id: int, after: RequestSeen | None) -> BrokerSeen:
        return self._link(node_id).ask("overview", after, timeout_s=_OVERVIEW_TIMEOUT_S)

    def read_records(self, query: RecordQuery) -> RecordsRead:
        return self._link(self._leading(query.topic, query.partition)).ask("read_records", query)

    def append_record(self, record: NewRecord) -> int:
        return self._link(self._leading(record.topic, record.partition)).ask("append_record", record)

    # --- Not possible with brokers in other processes ---

    def on_request(self, *_: object, **__: object) -> NoReturn:
        """Raises IllegalStateError: the function would have to run in the brokers' processes."""
        raise IllegalStateError(
            "a function can't look at requests in another process; use inject with a Fault, or EmbeddedCluster"
        )

    def broker(self, node_id: int) -> NoReturn:
        """Raises IllegalStateError: the broker is in another process."""
        raise IllegalStateError(
            f"broker {node_id} is in another process; ask the cluster (records, group, waiting, ...), "
            "or use EmbeddedCluster"
        )


def _signal(link: BrokerLink, number: signal.Signals) -> None:
    # The process id of a broker that is gone may belong to another process by now.
    if link.pid > 0 and not link.is_gone.is_set():
        with contextlib.suppress(ProcessLookupError):
            os.kill(link.pid, number)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
