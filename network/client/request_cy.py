# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The requests and responses of a client, and what a sender uses of one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..protocol.errors import KafkaError

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if TYPE_CHECKING:
    from ..cluster import Node
    from ..protocol.errors import AuthenticationError
    from .api_versions import NodeApiVersions

_log = logging.getLogger(__name__)


@cython.final
@cython.cclass
class ClientRequest:
    """One request to one node, not yet encoded: its version depends on what the node supports when it is sent.

    `min_version` and `max_version` narrow the versions that the message declares; None leaves them.
    """

    if not cython.compiled:
        # for type checkers; request_cy.pxd has the C types
        message: Any
        callback: Callable[[ClientResponse], None] | None

    def __init__(
        self,
        node_id: int,
        message: Any,
        correlation_id: int,
        created_ms: float,
        timeout_ms: float,
        expect_response: bool = True,
        callback: Callable[[ClientResponse], None] | None = None,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> None:
        self.node_id = node_id
        self.message = message
        self.correlation_id = correlation_id
        self.created_ms = created_ms
        self.timeout_ms = timeout_ms
        self.expect_response = expect_response
        self.callback = callback
        self.min_version = min_version
        self.max_version = max_version

    @cython.ccall
    def ended(
        self,
        now_ms: cython.double,
        message: Any = None,
        version: Any = None,
        error: Any = None,
        disconnected: cython.bint = False,
        timed_out: cython.bint = False,
    ) -> ClientResponse:
        """The ClientResponse for this request, completed at `now_ms`."""
        return ClientResponse(self, message, version, error, disconnected, timed_out, now_ms)

    def __str__(self) -> str:
        return f"{type(self.message).__name__} {self.correlation_id} to node {self.node_id}"


@cython.final
@cython.cclass
class ClientResponse:
    """The outcome of a request. Exactly one of these is true:

    - `message` is the decoded response, and `version` is its API version;
    - the request expected no response and was written to the socket: `message` and `error` are None;
    - `error` is the reason for the failure. With `disconnected` the node may have processed the request. With
      `timed_out`, which implies `disconnected`, this client stopped waiting.
    """

    if not cython.compiled:
        # for type checkers; request_cy.pxd has the C types
        request: ClientRequest
        message: Any | None
        error: KafkaError | None

    def __init__(
        self,
        request: ClientRequest,
        message: Any | None,
        version: int | None,
        error: KafkaError | None,
        disconnected: bool,
        timed_out: bool,
        received_ms: float,
    ) -> None:
        self.request = request
        self.message = message
        self.version = version
        self.error = error
        self.disconnected = disconnected
        self.timed_out = timed_out
        self.received_ms = received_ms

    @property
    def latency_ms(self) -> float:
        """Milliseconds from the creation of the request to its completion."""
        return self.received_ms - self.request.created_ms

    @property
    def node_id(self) -> int:
        return self.request.node_id


@cython.ccall
def call_back(responses: list) -> object:
    """Run the callback of each request. If callbacks raise, all run, and then the first exception is raised."""
    response: ClientResponse
    failure: BaseException | None = None
    for response in responses:
        callback = response.request.callback
        if callback is not None:
            try:
                callback(response)
            except Exception as error:
                _log.exception("The callback of %s raised", response.request)
                failure = failure or error
    if failure is not None:
        raise failure
    return None


@cython.cclass
class KafkaClient:
    """The part of `NetworkClient` that a sender uses: a base class, so that a compiled sender need not look methods up.

    Tests subclass it. Everything belongs to the sender thread, except `wakeup`, which any thread may call.
    """

    @cython.ccall
    def ready(self, node: Node, now_ms: cython.double) -> cython.bint:
        """Whether a request can be sent to the node now. If not, connects it once the backoff allows that."""
        raise NotImplementedError

    @cython.ccall
    def is_ready(self, node: Node, now_ms: cython.double) -> cython.bint:
        """Whether a request can be sent to the node now."""
        raise NotImplementedError

    def connection_delay_ms(self, node: Node, now_ms: float) -> float:
        """How long until the node is worth trying again; infinity if it is connected."""
        raise NotImplementedError

    def poll_delay_ms(self, node: Node, now_ms: float) -> float:
        """The rest of a connected node's throttle time, if it is throttled; else `connection_delay_ms`."""
        raise NotImplementedError

    def throttle_delay_ms(self, node: Node, now_ms: float) -> float:
        """How much longer the node throttles this client; 0 if it does not."""
        raise NotImplementedError

    def connection_error(self, node_id: int) -> KafkaError | None:
        """The last connection error of the node since it was last ready."""
        raise NotImplementedError

    def authentication_error(self) -> AuthenticationError | None:
        """The error of the nodes that reject the credentials; None if a node is ready or being connected."""
        raise NotImplementedError

    def least_loaded_node(self, now_ms: float) -> Node | None:
        """The node to use if any node will do; None if there is none."""
        raise NotImplementedError

    def new_request(
        self,
        node_id: int,
        message: Any,
        now_ms: float,
        timeout_ms: float | None = None,
        callback: Callable[[ClientResponse], None] | None = None,
        expect_response: bool = True,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> ClientRequest:
        """Create a request for `send`."""
        raise NotImplementedError

    @cython.ccall
    def send(self, request: ClientRequest, now_ms: cython.double) -> object:
        """Send a request to a ready node."""
        raise NotImplementedError

    @cython.ccall
    def poll(self, timeout_ms: cython.double, now_ms: cython.double) -> list:
        """Do I/O for at most `timeout_ms`, call the callbacks of the completed requests, and return the responses."""
        raise NotImplementedError

    @property
    def connection_errors(self) -> Mapping[int, KafkaError]:
        """The last connection error of each node since it was last ready."""
        raise NotImplementedError

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        """The number of requests in flight to one node or to all."""
        raise NotImplementedError

    @cython.ccall
    def api_versions(self, node_id: Any) -> NodeApiVersions | None:
        """The versions that the node supports; None while it is not ready."""
        raise NotImplementedError

    def disconnect(self, node_id: int, now_ms: float) -> None:
        """Close the connection to the node. The next poll completes its requests with DisconnectedError."""
        raise NotImplementedError

    def wakeup(self) -> None:
        """Make `poll` return early. Any thread."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections."""
        raise NotImplementedError
