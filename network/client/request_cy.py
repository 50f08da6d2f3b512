# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The requests and responses of a client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..protocol.errors import KafkaError

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

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

    def ended(
        self,
        now_ms: float,
        *,
        message: Any | None = None,
        version: int | None = None,
        error: KafkaError | None = None,
        disconnected: bool = False,
        timed_out: bool = False,
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
