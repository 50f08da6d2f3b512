"""A Kafka cluster inside this Python process."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.api import ApiKey
from ...network.protocol.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError
from ..config.profiles import TEST
from ..config.releases import highest_versions
from ..controller.controller import Controller
from ..group.group import Group
from ..log.producer_state import ProducerStateEntry
from ..replica.connection import CutLinks
from ..requests.control import Control, Handler, Registration, RequestSeen
from ..requests.faults import Fault
from ..services import inspection
from .arguments import check_hook
from .cluster_base import ClusterBase
from .data_dirs import make_controller
from .node import Broker


class EmbeddedCluster(ClusterBase):
    """A Kafka cluster for tests and development: real sockets, real logs, no JVM.

        with EmbeddedCluster() as cluster:
            producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)

    brokers: how many (1). node_ids: their numbers instead, such as `[0, 1, 2]`; by default they count from 1. data_dir:
    where the logs are kept (each broker in `broker-<id>` below it, or right in it if there is one broker only), by
    default a temporary directory that goes with the cluster; `log.dirs` of the configuration names several. host
    (127.0.0.1) and port: where to listen; port 0 takes a free one, another number is the first broker's, the next
    brokers take the next; `listeners` of the configuration says more. racks: the rack of each broker by its number.
    profile: "test" has defaults that let tests end soon, "kafka" those of Apache Kafka. config and keywords: broker
    keys of Kafka by either spelling (`{"num.partitions": 3}` or `num_partitions=3`); docs/broker-configuration.md lists
    them. clock: for virtual time.

    Start and stop it on one thread; its other methods may be called from any.
    """

    def __init__(
        self,
        brokers: int | None = None,
        *,
        node_ids: Sequence[int] | None = None,
        data_dir: str | Path | None = None,
        host: str | None = None,
        port: int | None = None,
        racks: Mapping[int, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        profile: str = TEST,
        config: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        """Raises KafkaConfigurationError; nothing is started yet."""
        super().__init__(
            brokers,
            1,
            node_ids=node_ids,
            data_dir=data_dir,
            host=host,
            port=port,
            racks=racks,
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
        self._controller: Controller | None = None

    # --- Life ---

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start every broker; when this returns, clients are served. Raises KafkaConnectionError, KafkaStorageError."""
        with self._lock:
            if self._controller is not None:
                raise IllegalStateError("the cluster is started already")
            directories = self._make_directories()
            try:
                self._controller = make_controller(directories, self.config)
                opened = [self._open_broker(node_id) for node_id in self.node_ids]
                self._controller.skip_producer_ids(max(each.logs.last_producer_id for each in opened))
                self._controller.register_brokers([(each.endpoint, each.apply_image) for each in opened])
                for broker in opened:
                    broker.start()
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
        """Stop every broker cleanly and remove what is temporary. Any number of times. Raises KafkaStorageError, once
        all have ended, where one couldn't write what a clean stop leaves."""
        with self._lock:
            brokers, self._brokers = self._brokers, {}
            try:
                with contextlib.ExitStack() as stack:
                    for broker in brokers.values():
                        # Nobody will read what a clean stop would bring onto a temporary disk.
                        stack.callback(broker.kill if self._is_temporary() else broker.close)
                    # Nobody copies any more, so nobody misses those that end first.
                    for broker in brokers.values():
                        broker.fetchers.close()
            finally:
                self._controller = None
                if self._directories is not None:
                    self._directories.remove()
                self._directories = None

    # --- Brokers ---

    @property
    def controller(self) -> Controller:
        if self._controller is None:
            raise IllegalStateError("the cluster is not started; use it in a with statement, or call start()")
        return self._controller

    @property
    def brokers(self) -> dict[int, Broker]:
        """The running brokers by id."""
        return dict(self._brokers)

    def broker(self, node_id: int) -> Broker:
        """A running broker. Raises IllegalStateError."""
        self._check_node(node_id)
        broker = self._brokers.get(node_id)
        if broker is None:
            raise IllegalStateError(f"broker {node_id} is not running; {sorted(self._brokers)} are")
        return broker

    def stop_broker(self, node_id: int) -> None:
        """Stop a broker cleanly: its partitions get other leaders first."""
        with self._lock:
            broker = self.broker(node_id)
            self.controller.unregister_broker(node_id)
            del self._brokers[node_id]
            broker.close()

    def kill_broker(self, node_id: int) -> None:
        """End a broker as kill -9 would: connections break, nothing is written any more; then the others take over."""
        with self._lock:
            broker = self.broker(node_id)
            del self._brokers[node_id]
            broker.kill()
            self.controller.unregister_broker(node_id)

    def start_broker(self, node_id: int) -> None:
        """Start a stopped or killed broker again, on its old port and directory."""
        with self._lock:
            self._check_node(node_id)
            if node_id in self._brokers:
                raise IllegalStateError(f"broker {node_id} is running already")
            broker = self._open_broker(node_id)
            self.controller.register_brokers([(broker.endpoint, broker.apply_image)])
            broker.start()

    def cut_link(self, one: int, other: int) -> None:
        """Keep two brokers from fetching from each other, until `heal_links`. Clients and the controller reach both."""
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
        """End all connections of a broker, as a network that fails does; new ones are accepted."""
        self.broker(node_id).server.close_connections()

    # --- Faults and introspection ---

    def on_request(
        self, api_key: ApiKey | None, handler: Handler, *, times: int | None = None, node_id: int | None = None
    ) -> Registration:
        """Let `handler(context, request)` look at requests first and return a `Fault`, or None to let them pass.

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
        """Do `fault` to the next `times` requests of an API (None: until removed), at one broker or all. Raises
        IllegalArgumentError for what could never happen."""
        self._check_injection(api_key, fault, times, node_id)
        return self.control.fault(api_key, fault, times=times, node_id=node_id)

    def act_as(self, release: str | None) -> None:
        """Offer clients what a release of Apache Kafka ("2.8") offers, and no more; None: everything again.

        For connections made from then on. Raises KafkaConfigurationError for a release that isn't known.
        """
        self.control.max_versions = highest_versions(release)

    @property
    def requests(self) -> list[RequestSeen]:
        """The last requests that reached the cluster, oldest first."""
        return list(self.control.requests)

    def producer_state(self, topic: str, partition: int) -> dict[int, ProducerStateEntry]:
        """What the leader of a partition remembers of idempotent producers, by producer id."""
        return inspection.producer_state(self.broker(self.leader_of(topic, partition)), topic, partition)

    def group(self, group_id: str) -> Group | None:
        """A consumer group as its coordinator has it; None where there is none. Take its `lock` to look closer."""
        for broker in self.brokers.values():
            group = broker.offsets.group(group_id)
            if group is not None:
                return group
        return None

    def waiting(self) -> dict[str, int]:
        """How many requests wait in the purgatories of all brokers, by kind, and how many timers are set (`Timer`)."""
        counts: Counter[str] = Counter()
        for broker in self.brokers.values():
            counts.update(inspection.waiting(broker))
        return dict(counts)

    def records(self, topic: str, partition: int, node_id: int | None = None) -> list[Any]:
        """All records of a partition as its leader (or another broker) has them, decoded."""
        broker = self.broker(self.leader_of(topic, partition) if node_id is None else node_id)
        return inspection.records(broker, topic, partition)
