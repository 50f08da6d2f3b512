"""A Kafka cluster inside this Python process."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.api import ApiKey
from ...network.protocol.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError
from ..config.profiles import TEST
from ..config.releases import highest_versions
from ..group.group import Group
from ..log.producer_state import ProducerStateEntry
from ..replica.connection import CutLinks
from ..requests.control import Control, Handler, Registration, RequestSeen
from ..requests.faults import Fault
from ..services import inspection
from ..telemetry.push import TelemetryPush
from ..transaction.transaction import TransactionValues
from .arguments import check_hook
from .cluster_base import ClusterBase
from .node import Broker

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ...network.records.record import Record
    from ..keywords import BrokerKeywords, UnpackedMapping
    from ..services.observation import BrokerSeen, NewRecord, RecordQuery, RecordsRead


class EmbeddedCluster(ClusterBase):
    """A Kafka cluster for tests and development: real sockets, real logs, no JVM.

        with EmbeddedCluster() as cluster:
            producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

    brokers: how many (default 1).
    node_ids: the brokers' ids, such as `[0, 1, 2]`, instead of `brokers`; by default they count from 1.
    data_dir: where the logs are kept, by default a temporary directory that is removed with the cluster. Each broker
    uses `broker-<id>` below it, a single broker the directory itself. The key `log.dirs` takes several directories.
    host (default 127.0.0.1) and port: where to listen. Port 0, the default, takes a free port per broker; any other
    number is the first broker's port, and the others take the next ones. The key `listeners` takes several listeners.
    racks: the rack of each broker by its id.
    security: the listener's security protocol, such as "SASL_SSL", with throw-away certificates and a user;
    `client_config` returns what clients need. With the key `users` (`{"alice": "secret"}`) the listener has SASL.
    features: the finalized level of features, such as `{"transaction.version": 1}`; by default the newest.
    console: True, or a port, serves a page at `console_url` that shows the cluster, to this machine only.
    schema_registry: the address of the registry with whose schemas the page decodes records.
    clock: the source of time, for virtual time.
    profile: "test" has defaults that keep tests short, "kafka" has those of Apache Kafka.
    config and keywords: Kafka's broker keys in either spelling (`{"num.partitions": 3}` or `num_partitions=3`);
    docs/broker-configuration.md lists them.

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
        clock: Clock = ...,
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
        clock: Any = ...,
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
        clock: Clock = SYSTEM_CLOCK,
        profile: str = TEST,
        config: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        """Check the arguments without starting anything. Raises KafkaConfigurationError."""
        super().__init__(
            brokers,
            1,
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
        if not hasattr(clock, "now_ms"):
            raise KafkaConfigurationError(f"clock is {clock!r} ({type(clock).__name__}); give a headrace Clock")
        self.control = Control()
        self._clock = clock
        self._lock = threading.RLock()
        self._brokers: dict[int, Broker] = {}
        self._links = CutLinks()

    # --- Life ---

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start every broker and serve clients. Raises KafkaConnectionError, KafkaStorageError."""
        with self._lock:
            if self._controller is not None:
                raise IllegalStateError("the cluster is started already")
            directories = self._make_directories()
            try:
                self._controller = self._make_controller(directories)
                opened = [self._open_broker(node_id) for node_id in self.node_ids]
                self._controller.skip_producer_ids(max(each.logs.last_producer_id for each in opened))
                self._controller.register_brokers([(each.endpoint, each.apply_image) for each in opened])
                for broker in opened:
                    broker.start()
                self._open_console(self)
            except BaseException:
                self.close()
                raise

    def _open_broker(self, node_id: int) -> Broker:
        assert self._directories is not None
        broker = Broker(
            node_id,
            self._directories.of_brokers[node_id],
            config=self.config,
            clock=self._clock,
            controller=self.controller,
            control=self.control,
            links=self._links,
            listeners=self._listeners_of(node_id),
            advertised=self._advertised_of(node_id),
            rack=self._racks.get(node_id),
        )
        self._brokers[node_id] = broker
        self._ports[node_id] = broker.server.ports
        return broker

    def close(self) -> None:
        """Stop every broker cleanly and remove the temporary directory. May be called again.

        Raises KafkaStorageError, after all brokers have stopped, if one couldn't write its files of a clean stop.
        """
        # first, and without the lock: its threads look at brokers under it
        self._close_console()
        with self._lock:
            brokers, self._brokers = self._brokers, {}
            try:
                with contextlib.ExitStack() as stack:
                    for broker in brokers.values():
                        # A clean stop would flush logs into a directory that is about to be removed.
                        stack.callback(broker.kill if self._is_temporary() else broker.close)
                    # Without replication the remaining brokers don't notice those that stop first.
                    for broker in brokers.values():
                        broker.fetchers.close()
            finally:
                self._controller = None
                if self._directories is not None:
                    self._directories.remove()
                self._directories = None
                self._security.remove()

    # --- Brokers ---

    def _await_brokers(self) -> None:
        # The controller returns when all brokers of this process have the image.
        pass

    @property
    def brokers(self) -> dict[int, Broker]:
        """The running brokers by id."""
        return dict(self._brokers)

    @property
    def running(self) -> list[int]:
        """The ids of the running brokers, sorted."""
        return sorted(self._brokers)

    def brokers_here(self) -> Mapping[int, Broker]:
        return self.brokers

    def broker(self, node_id: int) -> Broker:
        """A running broker. Raises IllegalStateError."""
        self._check_node(node_id)
        broker = self._brokers.get(node_id)
        if broker is None:
            raise IllegalStateError(f"broker {node_id} is not running; {sorted(self._brokers)} are")
        return broker

    def stop_broker(self, node_id: int) -> None:
        """Stop a broker cleanly, after its partitions have other leaders."""
        with self._lock:
            broker = self.broker(node_id)
            self.controller.unregister_broker(node_id)
            del self._brokers[node_id]
            broker.close()

    def kill_broker(self, node_id: int) -> None:
        """End a broker as kill -9 would: connections break and writes stop; then other brokers take over."""
        with self._lock:
            broker = self.broker(node_id)
            del self._brokers[node_id]
            broker.kill()
            self.controller.unregister_broker(node_id)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped or killed broker again, on its previous ports and directories."""
        with self._lock:
            self._check_node(node_id)
            if node_id in self._brokers:
                raise IllegalStateError(f"broker {node_id} is running already")
            broker = self._open_broker(node_id)
            self.controller.register_brokers([(broker.endpoint, broker.apply_image)])
            broker.start()

    def cut_link(self, one: int, other: int) -> None:
        """Stop two brokers from fetching from each other until `heal_links`. Clients and the controller reach both."""
        self._check_node(one)
        self._check_node(other)
        with self._lock:
            self._links.cut |= {frozenset((one, other))}
            for node_id in (one, other):
                broker = self._brokers.get(node_id)
                if broker is not None:
                    broker.fetchers.disconnect()

    def heal_links(self) -> None:
        """Let all brokers reach each other again."""
        self._links.cut = frozenset()

    def close_connections(self, node_id: int) -> None:
        """Close all connections of a broker, as a failing network does; new ones are accepted."""
        self.broker(node_id).server.close_connections()

    # --- Faults and introspection ---

    def on_request(
        self, api_key: ApiKey | None, handler: Handler, *, times: int | None = None, node_id: int | None = None
    ) -> Registration:
        """Call `handler(context, request)` before requests are handled; it returns a `Fault`, or None for no fault.

        api_key: the API, or None for all. times: how many faults it may return (None: any number). node_id: the broker
        (None: all). Raises IllegalArgumentError.
        """
        check_hook(api_key, times, node_id, self.node_ids)
        if not callable(handler):
            raise IllegalArgumentError(f"the handler is {handler!r}; give a function of a context and a request")
        return self.control.add(api_key, handler, times=times, node_id=node_id)

    def inject(
        self, api_key: ApiKey | None, fault: Fault, *, times: int | None = 1, node_id: int | None = None
    ) -> Registration:
        """Apply `fault` to the next `times` requests of an API (None: until removed), on one broker or all. Raises
        IllegalArgumentError for a fault that could never happen."""
        self._check_injection(api_key, fault, times, node_id)
        return self.control.fault(api_key, fault, times=times, node_id=node_id)

    @property
    def faults(self) -> list[Registration]:
        """The injected faults and handlers of requests that have not been removed, oldest first."""
        return list(self.control.registrations)

    def act_as(self, release: str | None) -> None:
        """Offer clients only the APIs and versions of a release of Apache Kafka ("2.8"); None offers everything again.

        Applies to new connections. Raises KafkaConfigurationError for an unknown release.
        """
        self.control.max_versions = highest_versions(release)

    @property
    def requests(self) -> list[RequestSeen]:
        """The last requests that reached the cluster, oldest first."""
        return self.control.recent()

    def producer_state(self, topic: str, partition: int) -> dict[int, ProducerStateEntry]:
        """The state of idempotent producers in a partition's log on its leader, by producer id."""
        return inspection.producer_state(self.broker(self._leading(topic, partition)), topic, partition)

    def group(self, group_id: str) -> Group | None:
        """A consumer group in its coordinator's state, None if there is none. Hold its `lock` to read its fields."""
        for broker in self.brokers.values():
            group = broker.offsets.group(group_id)
            if group is not None:
                return group
        return None

    def transactions(self) -> dict[str, TransactionValues]:
        """The state of all transactions, by transactional id, as their coordinators have it."""
        return {key: of for each in self.brokers.values() for key, of in inspection.transactions(each).items()}

    def _telemetry_pushes(self) -> list[TelemetryPush]:
        return [push for broker in self.brokers.values() for push in broker.telemetry.pushes()]

    def waiting(self) -> dict[str, int]:
        """The number of requests that wait in the purgatories of all brokers, by kind, and of timers (`Timer`)."""
        counts: Counter[str] = Counter()
        for broker in self.brokers.values():
            counts.update(inspection.waiting(broker))
        return dict(counts)

    def records(self, topic: str, partition: int, node_id: int | None = None) -> list[Record]:
        """All records of a partition from its leader's log (or another broker's), decoded."""
        broker = self.broker(self._leading(topic, partition) if node_id is None else node_id)
        return inspection.records(broker, topic, partition)

    # --- For the console: see `ConsoleCluster` ---

    def overview(self, node_id: int, after: RequestSeen | None) -> BrokerSeen:
        from ..services import observation  # noqa: PLC0415 - for clusters with a console

        # Under the lock no broker ends, so its files stay open.
        with self._lock:
            broker = self.broker(node_id)
            return observation.overview(broker, broker.server.connection_count, after)

    def read_records(self, query: RecordQuery) -> RecordsRead:
        from ..services import observation  # noqa: PLC0415 - for clusters with a console

        with self._lock:
            return observation.read_records(self.broker(self._leading(query.topic, query.partition)), query)

    def append_record(self, record: NewRecord) -> int:
        from ..services import observation  # noqa: PLC0415 - for clusters with a console

        return observation.append_record(self.broker(self._leading(record.topic, record.partition)), record)
