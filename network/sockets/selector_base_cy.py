# cython: language_level=3
# cython: freethreading_compatible=True
"""The base of selectors: what a client uses of one, and what one counts for metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..protocol.errors import KafkaError

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.final
@cython.cclass
class SelectorCounters:
    """Counters of a selector since its creation, written on its thread and readable from any.

    A connection counts once it is ready. `operations` are reads and writes; `waited_ms` is the time that polls waited
    for I/O.
    """

    def __init__(self) -> None:
        self.connections_created = 0
        self.connections_closed = 0
        self.operations = 0
        self.waited_ms = 0.0

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self.connections_created - self.connections_closed


@cython.cclass
class ClientSelector:
    """The part of `Selector` that a client uses: a base class, so that a compiled client need not look methods up.

    Tests subclass it. The lists are the results of the last `poll`.
    """

    if not cython.compiled:
        # for type checkers; selector_base_cy.pxd has the C types
        connected: list[str]
        completed_sends: list[Any]
        completed_receives: list[Any]
        disconnected: dict[str, KafkaError]

    def connect(
        self,
        channel_id: str,
        family: int,
        address: Any,
        *,
        host: str = "",
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        """Open a connection to a resolved address. A later poll reports it as connected or disconnected."""
        raise NotImplementedError

    @cython.ccall
    def is_channel_ready(self, channel_id: str) -> cython.bint:
        """Whether the connection is open and its handshake is complete."""
        raise NotImplementedError

    def is_in_handshake(self, channel_id: str) -> bool:
        """Whether the connection is open, but its transport's handshake is not complete."""
        raise NotImplementedError

    @cython.ccall
    def send(self, channel_id: str, buffers: Iterable[Any]) -> Any:
        """Send a gather list after those already queued. Returns an object with its `remaining_bytes`."""
        raise NotImplementedError

    @cython.ccall
    def take_completed_sends(self) -> list:
        """The sends completed since the last poll, which the next one then doesn't list."""
        raise NotImplementedError

    @cython.ccall
    def poll(self, timeout_ms: cython.double) -> object:
        """Wait at most `timeout_ms` until I/O is possible, do it, and replace the lists."""
        raise NotImplementedError

    def wakeup(self) -> None:
        """Make the running poll, or else the next one, return without waiting. Any thread."""
        raise NotImplementedError

    def close_channel(self, channel_id: str) -> None:
        """Close a connection, about which nothing more is reported."""
        raise NotImplementedError

    def close(self) -> None:
        """Close every connection, without reports."""
        raise NotImplementedError
