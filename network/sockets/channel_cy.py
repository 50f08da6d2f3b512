# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""One connection: splits incoming bytes into frames and writes outgoing gather lists.

A frame is a four-byte big-endian length followed by that many bytes. `FrameAssembler` does the receiving half without
any I/O, `NetworkSend` is the progress of one gather list, and `KafkaChannel` joins the two over a transport. The names
are Kafka's (`NetworkReceive`, `NetworkSend`, `KafkaChannel`). The receive path is not: one read takes whatever the
kernel has buffered, so that any number of small frames costs one system call.
"""

from __future__ import annotations

import enum
import errno
import os
import socket
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..protocol.errors import DisconnectedError, InvalidReceiveError, KafkaConnectionError, KafkaError, NotKafkaError
from .poller_cy import EVENT_READ, EVENT_WRITE
from .transport import IOV_MAX, FileRegion, Transport

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if cython.compiled and not TYPE_CHECKING:
    from cython.cimports.cpython.buffer import Py_buffer
    from cython.cimports.cpython.memoryview import PyMemoryView_GET_BUFFER

SCRATCH_BYTES = 128 * 1024
"""The size of the buffer that all channels of a selector read into, except for the rest of a large frame."""

DIRECT_READ_BYTES = 16 * 1024
"""A frame that lacks at least this many bytes is read straight into its own buffer."""

FIRST_ALLOCATION_BYTES = 1024 * 1024
"""The limit of an allocation that rests on a length prefix alone. Beyond it, buffers are twice what has arrived."""


@cython.final
@cython.cclass
class NetworkReceive:
    """A complete frame, without its length prefix. The payload is a writable view of memory that is not shared."""

    if not cython.compiled:
        # for type checkers; channel_cy.pxd has the C types
        channel_id: str
        payload: memoryview

    def __init__(self, channel_id: str, payload: memoryview) -> None:
        self.channel_id = channel_id
        self.payload = payload


@cython.final
@cython.cclass
class FrameAssembler:
    """Splits a byte stream into frames, however it was fragmented or coalesced. No I/O; one owner thread.

    Read into `target()`, then call `received(count)`. A target is valid until the next call of either. `scratch`
    belongs to the selector, and other channels use it between `received` and the next `target`. The only memory kept
    between reads is one incomplete frame, in a buffer of at most `FIRST_ALLOCATION_BYTES` or twice the bytes received.
    """

    if not cython.compiled:
        # for type checkers; channel_cy.pxd has the C types
        _frame: bytearray | None

    def __init__(self, channel_id: str, scratch: bytearray, max_receive_bytes: int) -> None:
        self._channel_id = channel_id
        self._scratch = scratch
        self._scratch_view = memoryview(scratch)
        self._max_receive_bytes = max_receive_bytes
        self._rest = b""  # the first 0 to 3 bytes of a length prefix
        # The incomplete frame: `_filled` of its `_length` bytes have arrived. Its buffer is shorter than `_length` only
        # if at least DIRECT_READ_BYTES are missing, so that a read through the scratch buffer always finds room.
        self._frame = None
        self._filled = 0
        self._length = 0
        self.frames_begun = 0

    @cython.ccall
    def target(self) -> Any:
        """The buffer for the next read. Never empty."""
        frame = self._frame
        if frame is None:
            rest = self._rest
            if not rest:
                return self._scratch_view
            self._scratch[: len(rest)] = rest
            return self._scratch_view[len(rest) :]
        if self._length - self._filled < DIRECT_READ_BYTES:
            return self._scratch_view
        return memoryview(frame)[self._filled :]

    @cython.ccall
    def received(self, count: cython.Py_ssize_t, receives: list) -> object:
        """Process `count` bytes read into the last `target()`, and append the frames they complete to `receives`.

        Raises InvalidLength after appending the valid frames before it.
        """
        frame = self._frame
        if frame is None:
            self._cut(0, len(self._rest) + count, receives)
            return None
        taken: cython.Py_ssize_t
        missing: cython.Py_ssize_t = self._length - self._filled
        if missing < DIRECT_READ_BYTES:
            taken = min(missing, count)
            frame[self._filled : self._filled + taken] = self._scratch_view[:taken]
        else:
            taken = count
        self._filled += taken
        if taken < missing:
            if self._filled == len(frame):
                self._frame = self._allocate(frame)
            return None
        self._frame = None
        receives.append(NetworkReceive(self._channel_id, memoryview(frame)))
        if taken < count:
            self._cut(taken, count, receives)
        return None

    def unfinished(self) -> str:
        """A clause for error messages that says how much of a frame has arrived; empty between frames."""
        if self._frame is not None:
            return f"it ended inside a frame, {self._filled} of its {self._length} bytes had arrived"
        if self._rest:
            return f"it ended inside a frame's length, {self._rest!r} had arrived"
        return ""

    def limit(self, max_receive_bytes: int) -> None:
        """Bound frames by another size. A frame that has begun to arrive is not checked again."""
        self._max_receive_bytes = max_receive_bytes

    @property
    def held_bytes(self) -> int:
        """Memory held by the incomplete frame."""
        return 0 if self._frame is None else len(self._frame)

    @cython.cfunc
    def _cut(self, position: cython.Py_ssize_t, end: cython.Py_ssize_t, receives: list) -> object:
        """Extract the frames from scratch[position:end] and keep the rest."""
        scratch: bytearray = self._scratch
        length: cython.longlong
        first: cython.longlong
        start: cython.Py_ssize_t
        while end - position >= 4:
            first = scratch[position]
            length = first << 24 | scratch[position + 1] << 16 | scratch[position + 2] << 8 | scratch[position + 3]
            if first >= 0x80:
                length -= 1 << 32
            if not 0 <= length <= self._max_receive_bytes:
                raise InvalidLength(length, bytes(scratch[position : min(end, position + 64)]))
            self.frames_begun += 1
            start = position + 4
            position = start + length
            if position > end:
                self._length = length
                self._filled = end - start
                self._frame = self._allocate(self._scratch_view[start:end])
                self._rest = b""
                return None
            receives.append(NetworkReceive(self._channel_id, memoryview(scratch[start:position])))
        self._rest = bytes(scratch[position:end])
        return None

    def _allocate(self, arrived: bytearray | memoryview) -> bytearray:
        size = min(self._length, max(FIRST_ALLOCATION_BYTES, 2 * self._filled))
        if self._length - size < DIRECT_READ_BYTES:
            size = self._length
        frame = bytearray(size)
        frame[: self._filled] = arrived
        return frame


class InvalidLength(Exception):
    """A length prefix that is negative or above the limit, with the first bytes of the supposed frame."""

    def __init__(self, length: int, first_bytes: bytes) -> None:
        super().__init__(length, first_bytes)
        self.length = length
        self.first_bytes = first_bytes


@cython.cfunc
def _is_plain(view: memoryview) -> cython.bint:
    """Whether it is one row of bytes without gaps."""
    if cython.compiled:
        info: cython.pointer(Py_buffer) = PyMemoryView_GET_BUFFER(view)  # type: ignore
        return info.ndim == 1 and info.itemsize == 1 and (info.strides is cython.NULL or info.strides[0] == 1)  # type: ignore
    return view.ndim == 1 and view.itemsize == 1 and view.c_contiguous


@cython.cfunc
def _bytes_of(view: memoryview) -> cython.Py_ssize_t:
    if cython.compiled:
        return PyMemoryView_GET_BUFFER(view).len  # type: ignore
    return view.nbytes


@cython.final
@cython.cclass
class NetworkSend:
    """A gather list being sent on one channel: bytes-like objects and file regions, in order and by reference.

    Nothing that it refers to may change before the send is listed as completed or failed, or its channel is closed.
    """

    def __init__(self, channel_id: str, buffers: Iterable[Any]) -> None:
        items: list = []
        size_bytes: cython.longlong = 0
        item_bytes: cython.longlong
        for buffer in buffers:
            if type(buffer) is not memoryview and isinstance(buffer, FileRegion):
                item_bytes = buffer.size_bytes
                item = buffer
            else:
                item = memoryview(buffer)
                if not _is_plain(item):
                    item = item.cast("B")
                item_bytes = _bytes_of(item)
            if item_bytes:
                items.append(item)
                size_bytes += item_bytes
        self.channel_id = channel_id
        self.size_bytes = size_bytes
        self.remaining_bytes = size_bytes
        self._items = items
        self._index = 0  # the first item that is not completely written
        self._start = 0  # bytes of it written, if it is a file region; a view is sliced instead

    @cython.ccall
    def write_to(self, transport: Transport) -> cython.bint:
        """Write what the transport takes now. Returns whether the send is complete.

        Raises OSError, or DisconnectedError if a file region is shorter than announced: the peer would wait for the
        missing bytes.
        """
        if transport.has_pending_writes:
            transport.write(())
            if transport.has_pending_writes:
                return False
        items: list = self._items
        asked: cython.longlong
        stop: cython.Py_ssize_t
        while self._index < len(items):
            item = items[self._index]
            if type(item) is not memoryview:
                asked = item.size_bytes - self._start
                written = transport.write_file(item, self._start)
                if written is None:
                    return False
                if written == 0:
                    raise DisconnectedError(f"{item} ends {asked} bytes early, so the frame cannot be completed")
                self._start += written
                if written == asked:
                    self._index += 1
                    self._start = 0
            else:
                stop = min(len(items), self._index + IOV_MAX)
                asked = 0
                views: list = []
                for item in items[self._index : stop]:
                    if type(item) is not memoryview:
                        break
                    views.append(item)
                    asked += _bytes_of(item)
                written = transport.write(views, more=asked < self.remaining_bytes)
                if written == asked:
                    self._index += len(views)
                else:
                    self._cut(written)
            self.remaining_bytes -= written
            if written < asked:
                return False
        if transport.has_pending_writes:
            return False
        self._items = []
        return True

    def abandon(self) -> None:
        """Release the buffers; `remaining_bytes` keeps its value."""
        self._items = []

    def _cut(self, written: int) -> None:
        """Drop the first `written` bytes, which are fewer than all, from the views at `_index`."""
        index = self._index
        items = self._items
        while True:
            view = items[index]
            assert isinstance(view, memoryview)
            if written < view.nbytes:
                break
            written -= view.nbytes
            index += 1
        items[index] = view[written:]
        self._index = index

    def __repr__(self) -> str:
        return f"NetworkSend({self.channel_id!r}, {self.size_bytes - self.remaining_bytes} of {self.size_bytes} bytes)"


class ChannelState(enum.Enum):
    """CONNECTING -> PREPARING (the transport's handshake) -> READY, and from each of them to CLOSED."""

    CONNECTING = "connecting"
    PREPARING = "preparing"
    READY = "ready"
    CLOSED = "closed"


@cython.final
@cython.cclass
class KafkaChannel:
    """A connection: its id, its transport, the incoming frame and the outgoing sends.

    Belongs to the selector that created it, and to its thread. Methods raise OSError, InvalidLength or a KafkaError if
    the connection is unusable. `failure` turns each of them into the error that the user sees.
    """

    def __init__(
        self,
        channel_id: str,
        sock: socket.socket,
        transport: Transport,
        *,
        peer: str,
        initiated: bool,
        scratch: bytearray,
        max_receive_bytes: int,
    ) -> None:
        """Wrap a socket that is connecting.

        `channel_id` identifies the channel in the selector.
        `sock` and `transport` are owned and closed by the channel.
        `peer` is how messages name the other side.
        `initiated` means that this side connects, so the peer should be a broker.
        `scratch` is the selector's read buffer.
        `max_receive_bytes` bounds a frame.
        """
        self.id = channel_id
        self.peer = peer
        self.state = ChannelState.CONNECTING
        self.muted = False
        self.sends = deque()
        self.fd = sock.fileno()
        self.watched_events = 0  # the events the selector watches this channel for
        self.last_active_ms = 0.0  # kept by the selector
        self.initiated = initiated
        self._socket = sock
        self._transport = transport
        self._max_receive_bytes = max_receive_bytes
        self._assembler = FrameAssembler(channel_id, scratch, max_receive_bytes)

    @property
    def ready(self) -> bool:
        return self.state is ChannelState.READY

    def finish_connect(self) -> None:
        """Check the result of connecting. Raises OSError with the reason if it failed."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        # If nothing listens on a local port in the ephemeral range, the kernel may choose that same port for this end.
        # The socket is then connected to itself and would receive its own requests as responses.
        if self._socket.family in _INTERNET and self._socket.getsockname() == self._socket.getpeername():
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self.state = ChannelState.PREPARING

    def prepare(self) -> int:
        """Continue the transport's handshake, after which the channel is READY. Returns the events it waits for."""
        events = 0 if self._transport.ready else self._transport.handshake()
        if self._transport.ready:
            self.state = ChannelState.READY
        return events

    def limit_receives(self, max_bytes: int) -> None:
        """Bound frames by another size from now on."""
        self._max_receive_bytes = max_bytes
        self._assembler.limit(max_bytes)

    @property
    def held_bytes(self) -> int:
        """Memory held by the incomplete frame."""
        return self._assembler.held_bytes

    @cython.ccall
    def wanted_events(self) -> cython.int:
        """The events to watch a ready channel for."""
        events: cython.int = 0 if self.muted else EVENT_READ
        if self.sends:
            events |= EVENT_WRITE
        return events

    @cython.ccall
    def read(self, receives: list) -> cython.Py_ssize_t:
        """Read once and append the complete frames. Returns the number of bytes read, 0 if none were available.

        A second read would mostly find nothing. The selector reports the rest in the next poll, so that no channel
        starves the others. Only bytes buffered by the transport are read to the end, muted or not, because the
        selector does not report those.
        """
        total: cython.Py_ssize_t = 0
        while True:
            count = self._transport.read_into(self._assembler.target())
            if count is None:
                return total
            if count == 0:
                raise self._broken(f"{self.peer} closed the connection")
            self._assembler.received(count, receives)
            total += count
            if not self._transport.has_buffered_reads:
                return total

    @cython.ccall
    def write(self, completed: list) -> object:
        """Write what the transport takes now and append the sends that are completed."""
        send: NetworkSend
        while self.sends:
            send = self.sends[0]
            if not send.write_to(self._transport):
                break
            completed.append(self.sends.popleft())
        return None

    def close(self) -> None:
        """Close the socket. Idempotent. The sends are left for the selector to report."""
        self.state = ChannelState.CLOSED
        self._transport.close()
        self._socket.close()

    def failure(self, error: OSError | InvalidLength | KafkaError) -> KafkaError:
        """The typed error for the failure of this connection, with what to check."""
        # the frames of a traceback would keep buffers alive for as long as the error is referenced
        error = error.with_traceback(None)
        if isinstance(error, KafkaError):
            return error
        if isinstance(error, InvalidLength):
            return invalid_frame_error(
                self.peer,
                error,
                is_first=not self._assembler.frames_begun,
                initiated=self.initiated,
                max_receive_bytes=self._max_receive_bytes,
            )
        if self.state is ChannelState.CONNECTING:
            result = connect_error(self.peer, error)
        else:
            result = self._broken(f"the connection to {self.peer} broke: {error.strerror or error}")
        result.__cause__ = error
        return result

    def _broken(self, what: str) -> DisconnectedError:
        """The error for the loss of an established connection: the event, and what was incomplete."""
        text = [what]
        unfinished = self._assembler.unfinished()
        if unfinished:
            text.append(unfinished)
        if self.sends:
            unsent_bytes = sum(send.remaining_bytes for send in self.sends)
            text.append(f"{unsent_bytes} of {sum(send.size_bytes for send in self.sends)} bytes were not sent")
        if self.initiated and not unfinished and not self._assembler.frames_begun:
            text.append(NEVER_ANSWERED)
        return DisconnectedError("; ".join(text))


NEVER_ANSWERED = (
    "it had not answered anything: check that a Kafka broker listens there, and that its listener has the same "
    "security.protocol (one that expects TLS or SASL ends connections like this)"
)
"""The hint if a peer closed the connection before its first frame."""


def connect_error(peer: str, error: OSError) -> KafkaConnectionError:
    """The error for a connection that could not be established, with what to check."""
    hint = _CONNECT_HINTS.get(error.errno or 0, "check the address and the network between")
    return KafkaConnectionError(f"cannot connect to {peer}: {error.strerror or error}; {hint}")


def invalid_frame_error(
    peer: str, error: InvalidLength, *, is_first: bool, initiated: bool, max_receive_bytes: int
) -> KafkaError:
    """The error for a frame with an impossible length. `is_first` means that it is the peer's first frame."""
    if is_first:
        guess = _foreign_protocol(error.first_bytes, initiated)
        if guess:
            begin = error.first_bytes[:40]
            return NotKafkaError(f"{peer} does not speak Kafka's protocol, {guess} (it sent {begin!r})")
    problem = "negative" if error.length < 0 else f"above the limit of {max_receive_bytes}"
    return InvalidReceiveError(
        f"{peer} sent a frame whose length, {error.length}, is {problem}: what arrives there is not Kafka's "
        f"protocol or the stream is damaged (the bytes are {error.first_bytes[:16].hex(' ')}); check the host and "
        f"the port, and that both ends have the same security.protocol"
    )


_INTERNET = (socket.AF_INET, socket.AF_INET6)

_CONNECT_HINTS = {
    errno.ECONNREFUSED: "nothing listens there; check the address and that the broker runs",
    errno.ETIMEDOUT: "nothing answers there; check the address, the network and its firewalls",
    errno.EHOSTUNREACH: "there is no route to that host; check the address and the network",
    errno.ENETUNREACH: "there is no route to that network; check the address and the network",
    errno.EMFILE: "this process has no file descriptors left; raise its limit (ulimit -n)",
    errno.ENFILE: "this machine has no file descriptors left",
    errno.EADDRNOTAVAIL: "there is no such local address, or no local port is left",
}

# without a status line if the server takes the request for HTTP/0.9
_HTTP_ANSWERS = (b"HTTP", b"<!DO", b"<!do", b"<htm", b"<HTM")
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN", b"PATC", b"TRAC", b"PRI ")


def _foreign_protocol(first_bytes: bytes, initiated: bool) -> str:
    """The protocol that the first bytes of a connection resemble, with what to do; empty if none."""
    if first_bytes.startswith(_HTTP_ANSWERS):
        return "it is an HTTP server: check the port"
    if first_bytes.startswith(_HTTP_METHODS):
        return "it is an HTTP client: check the port it was given"
    if first_bytes[0] in range(0x14, 0x18) and first_bytes[1] == 0x03:
        if initiated:
            return "it answers in TLS: set security.protocol to SSL or SASL_SSL, or use the broker's PLAINTEXT listener"
        return "it is a TLS client: set its security.protocol to PLAINTEXT, or send it to another listener"
    if first_bytes.startswith(b"SSH-"):
        return "it speaks SSH: check the port"
    if all(byte in b"\t\r\n" or 0x20 <= byte < 0x7F for byte in first_bytes):
        return "it sends plain text: check the host and the port"
    return ""
