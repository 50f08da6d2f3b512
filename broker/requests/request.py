"""A request in the broker, and the order in which a connection's responses are sent."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ...network.protocol.api import ApiKey
from ...network.protocol.errors import (
    AuthorizationError,
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    EncodeError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from ...network.protocol.frames import RequestHeader, encode_response
from ...network.protocol.message import Response
from ...network.protocol.other_errors import DelegationTokenAuthorizationFailedError
from ..config.principal import ANONYMOUS
from ..metadata import BrokerEndpoint, ClusterImage
from ..security.acls import CLUSTER_NAME, OPERATIONS_OF, AclOperation, ResourceType
from ..security.authorizer import Authorizer
from ..security.server_authenticator import SaslServerAuthenticator
from .faults import Fault

_log = logging.getLogger(__name__)

#: The number of array elements in a request, or of partitions in a fetch, up to which the network thread handles it.
#: A larger one goes to the request thread, because it would block other clients for longer than the hand-over takes.
FEW_ELEMENTS = 1_000

_REFUSALS: dict[ResourceType, type[AuthorizationError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailedError,
    ResourceType.GROUP: GroupAuthorizationFailedError,
    ResourceType.CLUSTER: ClusterAuthorizationFailedError,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailedError,
    ResourceType.DELEGATION_TOKEN: DelegationTokenAuthorizationFailedError,
    ResourceType.USER: DelegationTokenAuthorizationFailedError,
}


class ReachedBroker(Protocol):
    """The part of a broker that a `RequestContext` needs."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> ClusterImage: ...

    @property
    def authorizer(self) -> Authorizer | None: ...

    def after(self, delay_ms: float, run: Callable[[], object]) -> None:
        """Run something after a delay."""
        ...


class NetworkLoop(Protocol):
    """The network thread that owns a connection."""

    def answer_ready(self, connection: Connection) -> None:
        """Send the connection's finished responses, up to the first unfinished one. Any thread."""
        ...


class Connection:
    """A client's connection, with its unanswered requests in order.

    The network thread owns it; other threads only complete a slot and then call `answer_ready`. `aside` is the request
    handed over to the request thread, or one that holds the connection; until its response is sent, later requests wait
    in `backlog`. `principal_of` returns the principal of the client's certificate, on an SSL listener; `authenticator`
    is None on a listener without SASL. `is_broker`: the client is a broker of the same cluster, which may do
    everything.
    """

    __slots__ = (
        *("_principal", "aside", "authenticator", "backlog", "half_closes", "id", "is_broker", "is_open", "listener"),
        *("loop", "peer", "principal_of", "slots", "software", "unsent"),
    )

    def __init__(self, connection_id: str, loop: NetworkLoop, peer: str, listener: str) -> None:
        self.listener = listener
        self.id = connection_id
        self.loop = loop
        self.peer = peer
        self.is_broker = False
        #: The name and version of the client's software, from ApiVersions (KIP-511); Kafka's words if it gave none.
        self.software: tuple[str, str] = ("unknown", "unknown")
        self.slots: deque[RequestContext] = deque()
        self.aside: RequestContext | None = None
        self.backlog: deque[memoryview] = deque()
        self.unsent = 0
        self.is_open = True
        self.half_closes = False
        self.principal_of: Callable[[], str] | None = None
        self.authenticator: SaslServerAuthenticator | None = None
        self._principal: str | None = None

    @property
    def principal(self) -> str:
        """The client's principal, such as `User:alice`. For requests: the TLS handshake is complete by then."""
        if self._principal is None:
            self._principal = ANONYMOUS if self.principal_of is None else self.principal_of()
        return self._principal

    def authenticated(self, name: str) -> None:
        """The client is the user with this name."""
        self._principal = f"User:{name}"


class RequestContext:
    """A request and the slot for its response. `respond`, `no_response` or `close_connection` is called once, from any
    thread."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "buffers",
        "client_id",
        "closes_connection",
        "connection",
        "correlation_id",
        "fault",
        "is_done",
        "received_ms",
    )

    def __init__(
        self, broker: ReachedBroker, connection: Connection, header: RequestHeader, received_ms: float
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.api_key: ApiKey = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.received_ms = received_ms
        self.fault: Fault | None = None
        self.buffers: list[Any] | None = None
        self.is_done = False
        #: Whether the connection is closed once the response is sent.
        self.closes_connection = False

    @property
    def node_id(self) -> int:
        return self.broker.node_id

    def endpoint(self, node_id: int) -> BrokerEndpoint | None:
        """The address of a broker on the listener that this client connected to; None if the broker isn't alive."""
        found = self.broker.image.brokers.get(node_id)
        return None if found is None else found.at(self.connection.listener)

    def endpoints(self) -> list[BrokerEndpoint]:
        """The address of each live broker on the listener that this client connected to."""
        listener = self.connection.listener
        return [each.at(listener) for each in self.broker.image.brokers.values()]

    @property
    def client_host(self) -> str:
        return self.connection.peer

    def topic_name(self, topic_id: uuid.UUID | None) -> str | None:
        """The name of the topic with this id, None if there is none."""
        return None if topic_id is None else self.broker.image.topic_names.get(topic_id)

    def injected_error(self, topic: str, partition: int | None = None) -> BrokerResponseError | None:
        """The error that a test injects for this part of the request, if any."""
        if self.fault is None:
            return None
        error = self.fault.error_for(topic, partition)
        return None if error is None else error("injected by the cluster's control")

    # --- Authorization ---

    @property
    def has_authorizer(self) -> bool:
        """Whether requests of this client are authorized at all."""
        return self.broker.authorizer is not None and not self.connection.is_broker

    def is_allowed(self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        connection = self.connection
        return connection.is_broker or authorizer.allows(
            connection.principal, connection.peer, operation, resource_type, name
        )

    def refusal(
        self, operation: AclOperation, resource_type: ResourceType, name: str = CLUSTER_NAME
    ) -> AuthorizationError | None:
        """The error if the client may not do this. Its message names the missing ACL."""
        if self.is_allowed(operation, resource_type, name):
            return None
        what = "the cluster" if resource_type is ResourceType.CLUSTER else f"{resource_type.name} {name!r}"
        client = f"{self.connection.principal}, from {self.connection.peer},"
        return _REFUSALS[resource_type](f"{client} has no ACL that allows {operation.name} on {what}")

    def refusal_for_topic(self, operation: AclOperation, topic: str) -> AuthorizationError | None:
        """The error if the client may not do this with a topic."""
        return None if self.broker.authorizer is None else self.refusal(operation, ResourceType.TOPIC, topic)

    def may_on_any(self, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is any resource of this type with which the client may do this."""
        authorizer = self.broker.authorizer
        connection = self.connection
        return (
            authorizer is None
            or connection.is_broker
            or authorizer.allows_any(connection.principal, connection.peer, operation, resource_type)
        )

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may do on a resource, as a bit per operation's code (KIP-430)."""
        authorizer = self.broker.authorizer
        connection = self.connection
        if authorizer is None or connection.is_broker:
            allowed = OPERATIONS_OF[resource_type]
        else:
            allowed = authorizer.operations(connection.principal, connection.peer, resource_type, name)
        return sum(1 << operation for operation in allowed)

    # --- The response ---

    def hold_connection(self) -> None:
        """Handle no later request of this connection until this one is answered. Called while it is handled."""
        self.connection.aside = self

    def respond(self, response: Response) -> None:
        """Send the response after all earlier ones on the connection."""
        fault = self.fault
        if fault is not None and fault.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = fault.throttle_ms  # type: ignore[attr-defined]
        try:
            buffers = encode_response(response, version=self.api_version, correlation_id=self.correlation_id)
        except EncodeError:
            _log.exception("the answer to %s v%d can't be encoded", self.api_key.name, self.api_version)
            buffers = None
        if fault is not None and fault.delay_ms:
            self.broker.after(fault.delay_ms, lambda: self._finish(buffers))
            return
        self._finish(buffers)

    def no_response(self) -> None:
        """Complete the request without a response (produce with acks=0)."""
        self._finish([])

    def close_connection(self) -> None:
        """Close the connection instead of responding; later requests on it get no response either."""
        self._finish(None)

    def _finish(self, buffers: list[Any] | None) -> None:
        self.buffers = buffers
        self.is_done = True
        self.connection.loop.answer_ready(self.connection)
