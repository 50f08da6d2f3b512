"""The base class of clusters, whichever processes their brokers run in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ...network.protocol.api import ApiKey
from ...network.protocol.errors import BrokerResponseError, IllegalArgumentError, IllegalStateError
from ...network.sockets.selector_cy import describe_address
from ..config.broker_config import BrokerConfig
from ..config.listeners import Listener
from ..config.principal import ANONYMOUS
from ..config.sasl_keys import user_problem
from ..controller.controller import Controller
from ..metadata import advertised_host
from ..requests.faults import Fault
from ..security.acls import AclBinding, AclOperation, PatternType, PermissionType
from ..telemetry.push import TelemetryPush
from .acl_arguments import acl_of, filter_of
from .arguments import (
    check_address,
    check_console,
    check_directories,
    check_fault,
    check_features,
    check_hook,
    check_racks,
    check_schema_registry,
    resolve_node_ids,
    topic_keys,
)
from .data_dirs import ClusterDirectories, make_controller
from .secured import ClusterSecurity, check_security
from .telemetry import ClusterTelemetry

if TYPE_CHECKING:
    from ..console import Console
    from ..console.cluster import ConsoleCluster
    from ..services.services import BrokerServices

_Outcome = TypeVar("_Outcome")


class ClusterBase(ABC):
    """The settings of a cluster, and the methods that its controller answers. Any thread."""

    def __init__(
        self,
        brokers: int | None,
        default_count: int,
        *,
        node_ids: Any,
        data_dir: Any,
        host: Any,
        port: Any,
        racks: Any,
        security: Any,
        features: Any,
        console: Any,
        schema_registry: Any,
        profile: str,
        config: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
    ) -> None:
        """Raises KafkaConfigurationError."""
        self._console_port = check_console(console)
        self._schema_registry = check_schema_registry(schema_registry, self._console_port)
        self._console: Console | None = None
        self._controller: Controller | None = None
        self.profile = profile
        self.config = BrokerConfig.of_profile(profile, config, keywords)
        protocol = check_security(security)
        self._security = ClusterSecurity(protocol, host if isinstance(host, str) else None, self.config)
        if self._security.keys:
            self.config = BrokerConfig.of_profile(profile, {**self._security.keys, **(config or {})}, keywords)
        self.node_ids = resolve_node_ids(brokers, node_ids, self.config.node_id, default_count)
        self._racks = check_racks(racks, self.node_ids)
        self._features = check_features(features)
        self._listeners = check_address(host, port, self.config, len(self.node_ids), protocol)
        self._security.protocol = self.config.protocol_of(self._listeners[0].name)
        self._given_directories = check_directories(data_dir, self.config)
        self._directories: ClusterDirectories | None = None
        #: The ports that each broker got at its first start and keeps, by listener.
        self._ports: dict[int, dict[str, int]] = {}

    @property
    def controller(self) -> Controller:
        """The cluster's controller. Raises IllegalStateError before `start` and after `close`."""
        if self._controller is None:
            raise IllegalStateError("the cluster is not started; use it in a with statement, or call start()")
        return self._controller

    @abstractmethod
    def _await_brokers(self) -> None:
        """Block until all running brokers have the controller's current image."""

    # --- The console ---

    @property
    def console_url(self) -> str:
        """The address of the console's page, with its token: open it in a browser on this machine. Raises
        IllegalStateError unless the cluster was made with `console=True` and runs."""
        if self._console is None:
            raise IllegalStateError(
                "the cluster is not started, so it has no console"
                if self._console_port is not None
                else "the cluster has no console; make it with console=True"
            )
        return self._console.url

    def _open_console(self, cluster: ConsoleCluster) -> None:
        """Start the console of this cluster if it is to have one. Raises KafkaConnectionError."""
        if self._console_port is None:
            return
        from ..console import Console  # noqa: PLC0415 - an HTTP server, which few clusters need

        console = Console(cluster, port=self._console_port, schema_registry=self._schema_registry)
        console.start()
        self._console = console

    def _close_console(self) -> None:
        console, self._console = self._console, None
        if console is not None:
            console.close()

    # --- Its start ---

    def _make_controller(self, directories: ClusterDirectories) -> Controller:
        """The controller, with the given features. Raises KafkaStorageError."""
        controller = make_controller(directories, self.config)
        if self._features:
            controller.update_features(self._features)
        return controller

    def _repr_html_(self) -> str:
        """The cluster as Jupyter shows it: brokers and topics."""
        from .notebook import cluster_html  # noqa: PLC0415 - for notebooks

        return cluster_html(type(self).__name__, self)

    def brokers_here(self) -> Mapping[int, BrokerServices]:
        """The running brokers that are objects of this process, by id."""
        return {}

    # --- Where it is ---

    def _is_temporary(self) -> bool:
        return not self._given_directories

    def _make_directories(self) -> ClusterDirectories:
        """Raises KafkaStorageError."""
        self._directories = ClusterDirectories.make(
            self._given_directories, self.node_ids, metadata_directory=self.config.metadata_log_dir
        )
        return self._directories

    def _listeners_of(self, node_id: int) -> tuple[Listener, ...]:
        """The listeners of a broker: on the ports it had before, or offset from the given ones by its position."""
        at = self.node_ids.index(node_id)
        had = self._ports.get(node_id, {})
        return tuple(
            each._replace(port=had.get(each.name) or (each.port + at if each.port else 0)) for each in self._listeners
        )

    def _advertised_of(self, node_id: int) -> dict[str, tuple[str, int]]:
        """The advertised address of each listener whose clients use another address than the one it listens on."""
        at = self.node_ids.index(node_id)
        return {each.name: (each.host, each.port + at) for each in self.config.advertised_listeners or ()}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, stopped ones included: HOST:PORT, separated by commas. Raises
        IllegalStateError before `start` and after `close`."""
        self.controller  # noqa: B018  (raises)
        first = self._listeners[0]
        addresses = []
        for node_id in self.node_ids:
            told = self._advertised_of(node_id).get(first.name)
            addresses.append(told or (advertised_host(first.host), self._ports[node_id][first.name]))
        return ",".join(map(describe_address, addresses))

    def client_config(
        self, client: str = "headrace", *, user: str | None = None, certificate: str | None = None
    ) -> dict[str, Any]:
        """The configuration with which a client connects to this cluster, certificates and passwords included.

        client: whose keys they are: "headrace", "confluent-kafka", "kafka-python", "aiokafka" or "java". user: one of
        the cluster's users, by default the first. certificate: the common name of a client certificate to issue.

        Raises IllegalArgumentError for a client, user or certificate that there is not, and IllegalStateError before
        `start`, after `close`, and if the cluster was given certificates of its own.
        """
        users = self.controller.image.users.passwords
        return self._security.client_config(client, self.bootstrap_servers, users, user, certificate)

    # --- Arguments of tests ---

    def _check_injection(self, api_key: ApiKey | None, fault: Fault, times: int | None, node_id: int | None) -> None:
        """Raises IllegalArgumentError."""
        check_hook(api_key, times, node_id, self.node_ids)
        check_fault(api_key, fault)

    def _check_node(self, node_id: int) -> None:
        """Raises IllegalStateError unless the cluster has such a broker."""
        if node_id not in self.node_ids:
            raise IllegalStateError(f"there is no broker {node_id!r}; the cluster has {sorted(self.node_ids)}")

    # --- Answered by the controller ---

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | int | bool] | None = None,
    ) -> None:
        """Create a topic. `configs`: its keys, in either spelling. Raises the errors of `Controller.create_topic`."""
        self.controller.create_topic(
            name, num_partitions=num_partitions, replication_factor=replication_factor, configs=topic_keys(configs)
        )

    # --- ACLs ---

    @property
    def acls(self) -> list[AclBinding]:
        """The access control entries, sorted."""
        return sorted(self.controller.image.acls)

    def add_acl(
        self,
        *,
        principal: str = ANONYMOUS,
        operation: str | AclOperation,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        pattern: str | PatternType = PatternType.LITERAL,
        permission: str | PermissionType = PermissionType.ALLOW,
        host: str = "*",
    ) -> AclBinding:
        """Add an access control entry: `add_acl(principal="User:alice", operation="WRITE", topic="orders")`.

        principal: `User:NAME`, or `User:*` for everyone; by default clients that have not authenticated. operation:
        Kafka's name, such as READ, WRITE or ALL. The resource is one of topic, group, transactional_id (`*` is every
        one) and cluster=True. pattern: LITERAL, or PREFIXED if the name is a prefix. permission: ALLOW or DENY. host:
        the address of the client, or `*`.

        It is in effect on all running brokers when this returns. Raises IllegalArgumentError, and IllegalStateError if
        the cluster has no authorizer.
        """
        self._check_authorizer()
        acl = acl_of(
            principal,
            operation,
            topic=topic,
            group=group,
            transactional_id=transactional_id,
            cluster=cluster,
            pattern=pattern,
            permission=permission,
            host=host,
        )
        return self._changed(self.controller.create_acls([acl]))

    def remove_acls(
        self,
        *,
        principal: str | None = None,
        operation: str | AclOperation | None = None,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        pattern: str | PatternType | None = None,
        permission: str | PermissionType | None = None,
        host: str | None = None,
    ) -> list[AclBinding]:
        """Remove the entries that match all given arguments, which are those of `add_acl`; without any, all entries.
        Returns what was removed. Raises IllegalArgumentError, and IllegalStateError if the cluster has no
        authorizer."""
        self._check_authorizer()
        acl_filter = filter_of(
            principal,
            operation,
            topic=topic,
            group=group,
            transactional_id=transactional_id,
            cluster=cluster,
            pattern=pattern,
            permission=permission,
            host=host,
        )
        return self._changed(self.controller.delete_acls([acl_filter]))

    def _changed(self, outcomes: list[_Outcome | BrokerResponseError]) -> _Outcome:
        """The only outcome of a change, once the brokers know it. Raises its error."""
        (outcome,) = outcomes
        if isinstance(outcome, BrokerResponseError):
            raise outcome
        self._await_brokers()
        return outcome

    def _check_authorizer(self) -> None:
        if not self.config.authorizer_class_name:
            raise IllegalStateError(
                "the cluster has no authorizer, so an ACL would do nothing; make it with "
                "authorizer_class_name='StandardAuthorizer'"
            )

    # --- Users ---

    def set_password(self, name: str, password: str | None) -> None:
        """Add a user of PLAIN and SCRAM, change the password, or remove the user (None).

        It is in effect on all running brokers when this returns. Sessions that have begun go on. Raises
        IllegalArgumentError for a password that cannot be sent.
        """
        problem = None if password is None else user_problem(name, password)
        if problem is not None:
            raise IllegalArgumentError(f"the user cannot authenticate: {problem}")
        self.controller.set_passwords({name: password})
        self._await_brokers()

    # --- Client telemetry ---

    @property
    def telemetry(self) -> ClusterTelemetry:
        """The telemetry subscriptions, and what clients pushed (KIP-714)."""
        return ClusterTelemetry(lambda: self.controller, self._await_brokers, self._telemetry_pushes)

    @abstractmethod
    def _telemetry_pushes(self) -> list[TelemetryPush]:
        """What clients pushed to the running brokers."""

    # --- Leaders ---

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads a partition, -1 for none. Raises IllegalStateError if there is no such partition."""
        state = self.controller.image.partition(topic, partition)
        if state is None:
            raise IllegalStateError(f"there is no partition {topic}-{partition}")
        return state.leader

    def _leading(self, topic: str, partition: int) -> int:
        """The broker that leads a partition. Raises IllegalStateError if there is none."""
        leader = self.leader_of(topic, partition)
        if leader < 0:
            raise IllegalStateError(f"the partition {topic}-{partition} has no leader: its replicas are not running")
        return leader

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make an in-sync replica the leader."""
        self.controller.move_leader(topic, partition, node_id)

    @property
    def features(self) -> dict[str, int]:
        """The finalized level of each feature."""
        return dict(self.controller.image.features)

    def update_features(self, features: Mapping[str, int]) -> None:
        """Finalize the levels of features while the cluster runs, such as `{"transaction.version": 1}`, which makes
        clients use the classic protocol of transactions. Clients see it in their next ApiVersions response, from any
        running broker. Raises KafkaConfigurationError."""
        self.controller.update_features(check_features(features))
        self._await_brokers()
