# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""Many connections on one thread: each poll does the I/O and lists what happened.

The model is Kafka's `org.apache.kafka.common.network.Selector`, for clients and brokers alike. Differences:

- `send` writes at once, and only the bytes the kernel does not take wait for `poll`. Almost every request fits into the
  socket's buffer. It is sent one poll earlier, and needs no epoll_ctl to watch for room and to stop watching.
- A poll delivers all frames of a read, and not just one per channel. A broker has to keep the order itself.
- No call raises a network error. A failed connection is in `disconnected` after the next poll.
- All connections that were idle for too long are closed in one poll, the least recently used first.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..clock import NEVER_MS
from ..latch_cy import LateWakes
from ..protocol.errors import (
    AuthenticationError,
    DisconnectedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
)
from ..repeats import Repeats
from .channel_cy import SCRATCH_BYTES, ChannelState, InvalidLength, NetworkReceive
from .plaintext_transport_cy import plaintext_transport
from .poller_cy import EVENT_READ, EVENT_WRITE
from .transport import Transport, TransportFactory

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ..clock import Clock
    from .channel_cy import KafkaChannel, NetworkSend
    from .poller_cy import Poller
    from .selector_base_cy import ClientSelector, SelectorCounters
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.sockets.channel_cy import KafkaChannel, NetworkSend
    from cython.cimports.headrace.network.sockets.poller_cy import Poller
    from cython.cimports.headrace.network.sockets.selector_base_cy import ClientSelector, SelectorCounters
    from cython.cimports.headrace.network.time_cy import Clock

_log = logging.getLogger(__name__)
_READY = ChannelState.READY
_CLOSED = ChannelState.CLOSED

# The timeout of select is bounded. A longer wait returns early with nothing to report, as any poll may.
_MAX_TIMEOUT_MS = 3_600_000.0
_MAX_ACCEPTS_PER_POLL = 64
_ACCEPT_BACKOFF_MS = 100.0
_MAX_LAST_READS = 64
# Errors that accept(2) reports for the connection it would have returned; the listener itself is not affected.
_LOST_BEFORE_ACCEPT = frozenset(
    getattr(errno, name)
    for name in (
        "ECONNABORTED",
        "ECONNRESET",
        "EPROTO",
        "EPERM",
        "ENETDOWN",
        "ENOPROTOOPT",
        "EHOSTDOWN",
        "ENONET",
        "EHOSTUNREACH",
        "EOPNOTSUPP",
        "ENETUNREACH",
    )
    if hasattr(errno, name)
)


class _Listener:
    """A listening socket and, while it is paused, the time when accepting resumes."""

    __slots__ = ("on_accept", "resume_ms", "socket")

    def __init__(self, sock: socket.socket, on_accept: Callable[[socket.socket, Any], None]) -> None:
        self.socket = sock
        self.on_accept = on_accept
        self.resume_ms = 0.0


@cython.final
@cython.cclass
class Selector(ClientSelector):
    """Connections by channel id, with the results of the last `poll`.

    Belongs to one thread; only `wakeup` may be called from others and from signal handlers. After `poll`:

    - `connected`: ids of channels opened by `connect` that are now ready.
    - `completed_receives`: frames, in the order in which they arrived on their channel.
    - `completed_sends`: sends whose last byte the kernel has taken, in order per channel.
    - `disconnected`: the error by channel id of each lost connection: KafkaConnectionError if it was never established,
      else DisconnectedError, NotKafkaError or InvalidReceiveError. Handle the receives first: they came earlier.
    - `failed_sends`: incomplete sends of those channels. The peer cannot have processed them.

    Each poll creates new lists. Nothing is reported about a channel after `close_channel`.
    Invariant: no connection has been idle for too long before `_idle_look_ms`.
    """

    if not cython.compiled:
        # for type checkers; selector_cy.pxd has the C types
        connected: list[str]
        completed_receives: list[NetworkReceive]
        completed_sends: list[NetworkSend]
        disconnected: dict[str, KafkaError]
        failed_sends: list[NetworkSend]
        _channels: dict[str, KafkaChannel]
        _listeners: dict[socket.socket, _Listener]
        _paused_listeners: list[_Listener]
        _immediately_connected: list[KafkaChannel]
        _early_sends: list[NetworkSend]
        _early_failures: dict[str, KafkaError]
        _broken: list[tuple[KafkaChannel, OSError | KafkaError]]

    def __init__(
        self,
        *,
        clock: Clock,
        max_receive_bytes: int,
        connections_max_idle_ms: float | None = None,
        max_unfinished_bytes: int | None = None,
        transport: TransportFactory = plaintext_transport,
        late_wakes: LateWakes | None = None,
    ) -> None:
        """Open the selector, without connections.

        `clock` measures waits and idle times.
        `max_receive_bytes` bounds a frame.
        `connections_max_idle_ms` is the time without traffic after which a connection is closed; None for never.
        `max_unfinished_bytes` bounds the memory of all incomplete frames together; None for no bound. Above it, the
        connection with the largest one is closed.
        `transport` makes the transport of each socket, with the host name given to `connect`.
        `late_wakes`: threads that `poll` wakes as it begins to wait.
        """
        self.connected = []
        self.completed_receives = []
        self.completed_sends = []
        self.disconnected = {}
        self.failed_sends = []
        self.counters = SelectorCounters()
        self._clock = clock
        self._max_receive_bytes = max_receive_bytes
        self._max_idle_ms = connections_max_idle_ms
        self._max_unfinished_bytes = max_unfinished_bytes
        self._unfinished_bytes = 0  # kept only if there is a bound
        self._transport = transport
        self._channels = {}
        self._listeners = {}
        self._paused_listeners = []
        self._repeats = Repeats()
        self._idle_look_ms = NEVER_MS
        # events between two polls, for the next one to report
        self._immediately_connected = []
        self._early_sends = []
        self._late_sends = []
        self._early_failures = {}
        self._broken = []
        self._scratch = bytearray(SCRATCH_BYTES)
        self._poller = Poller(late_wakes)
        self._closed = False

    # --- Connections ---

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
        """Open a connection to a resolved address. A later poll reports it as connected or disconnected.

        `host` is the name that TLS expects in the peer's certificate. The buffer sizes are SO_SNDBUF and SO_RCVBUF; -1
        leaves them to the system. Raises IllegalStateError if the id is in use, and never a network error.
        """
        self._ensure_unused(channel_id)
        peer = describe_address(address)
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._early_failures[channel_id] = KafkaConnectionError(f"cannot connect to {peer}: {error.strerror}")
            return
        channel = self._add(channel_id, self._transport(sock, host), sock, peer, initiated=True)
        try:
            # the receive buffer determines the window scale, which is announced in the TCP handshake
            if send_buffer_bytes != -1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes != -1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            _set_options(sock)
            code = sock.connect_ex(address)
            if code == 0:
                self._immediately_connected.append(channel)
            elif code in (errno.EINPROGRESS, errno.EINTR):
                self._watch(channel, EVENT_WRITE)
            else:
                raise OSError(code, os.strerror(code))
        except OSError as error:
            self._broken.append((channel, error))

    def register(self, channel_id: str, sock: socket.socket, transport: Transport | None = None) -> None:
        """Take over a connected socket, for instance an accepted one. It is not listed in `connected`.

        `transport` is the socket's, if it has one already. Raises IllegalStateError if the id is in use, and leaves the
        socket alone then. Never raises a network error.
        """
        self._ensure_unused(channel_id)
        try:
            peer = describe_address(sock.getpeername())
        except OSError:
            peer = "a peer that disconnected before its address was known"
        transport = self._transport(sock, "") if transport is None else transport
        channel = self._add(channel_id, transport, sock, peer, initiated=False)
        try:
            channel.state = ChannelState.PREPARING
            _set_options(sock)
            self._prepare(channel)
            if channel.ready and transport.has_buffered_reads:
                # the peer's first frames came with the last bytes of its handshake: no event reports them
                self._immediately_connected.append(channel)
        except (OSError, KafkaError) as error:
            self._broken.append((channel, error))

    def listen(self, sock: socket.socket, on_accept: Callable[[socket.socket, Any], None]) -> None:
        """Accept connections on a bound and listening socket. The selector owns the socket from now on.

        `on_accept(socket, address)` runs inside `poll`. It must `register` the socket or close it. If no descriptor is
        left for another connection, accepting pauses briefly and the backlog holds the clients.
        """
        sock.setblocking(False)
        self._listeners[sock] = _Listener(sock, on_accept)
        self._poller.register(sock.fileno(), EVENT_READ, self._listeners[sock])

    def channel(self, channel_id: str) -> KafkaChannel | None:
        """The open channel with that id, for its state, its peer and its sends."""
        return self._channels.get(channel_id)

    def limit_receives(self, channel_id: str, max_bytes: int) -> None:
        """Bound the frames of one channel by another size from now on. Does nothing if it is closed."""
        channel = self.channel(channel_id)
        if channel is not None:
            channel.limit_receives(max_bytes)

    @cython.ccall
    def is_channel_ready(self, channel_id: str) -> cython.bint:
        """Whether the connection is open and its handshake is complete."""
        channel: KafkaChannel | None = self._channels.get(channel_id)
        return channel is not None and channel.state is _READY

    def is_in_handshake(self, channel_id: str) -> bool:
        """Whether the connection is open, but its transport's handshake is not complete."""
        channel = self._channels.get(channel_id)
        return channel is not None and channel.state is ChannelState.PREPARING

    def close_channel(self, channel_id: str) -> None:
        """Close a connection. Nothing more is reported about it. An id that is not open is ignored."""
        channel = self._channels.get(channel_id)
        if channel is not None:
            self._remove(channel)
            self._early_sends = [send for send in self._early_sends if send.channel_id != channel_id]

    def mute(self, channel_id: str) -> None:
        """Stop reading from a channel, which applies back pressure to the peer.

        Frames of a read already made are still delivered. The loss of a muted connection goes unnoticed until the
        channel is unmuted or written to. An id that is no longer open is ignored.
        """
        channel = self._channels.get(channel_id)
        if channel is not None and not channel.muted:
            channel.muted = True
            self._update_watch(channel)

    def unmute(self, channel_id: str) -> None:
        """Resume reading from a muted channel. An id that is no longer open is ignored."""
        channel = self._channels.get(channel_id)
        if channel is not None and channel.muted:
            channel.muted = False
            self._update_watch(channel)

    # --- Sending ---

    @cython.ccall
    def send(self, channel_id: str, buffers: Iterable[Any]) -> Any:
        """Send a gather list of bytes-like objects and `FileRegion`s, by reference, after those already queued.

        Writes as much as the kernel takes now. If that is all, the next poll does not wait and lists the send as
        completed. The caller bounds the number of queued sends per channel.

        Never raises a network error. A send on a connection that the last poll reported as disconnected, for instance
        a response to one of its last frames, is listed as failed by the next poll. Raises IllegalStateError if there
        is no such connection.
        """
        send: NetworkSend = NetworkSend(channel_id, buffers)
        channel: KafkaChannel | None = self._channels.get(channel_id)
        if channel is None:
            if channel_id not in self.disconnected:
                raise IllegalStateError(f"there is no open connection {channel_id!r} to send on; connect first")
            send.abandon()
            self._late_sends.append(send)
            return send
        channel.sends.append(send)
        if channel.state is _READY and len(channel.sends) == 1:
            if self._max_idle_ms is not None:
                channel.last_active_ms = self._clock.now_ms()
            self.counters.operations += 1
            try:
                channel.write(self._early_sends)
            except (OSError, KafkaError) as error:
                self._broken.append((channel, error))
            else:
                self._update_watch(channel)
        return send

    @cython.ccall
    def take_completed_sends(self) -> list:
        """The sends completed since the last poll. The next poll then neither lists them nor returns early for them."""
        sends, self._early_sends = self._early_sends, []
        return sends

    # --- Polling ---

    def wakeup(self) -> None:
        """Make the running poll, or else the next one, return without waiting. Any thread.

        It is cheap: only the first wakeup of a thread that really waits makes a system call.
        """
        self._poller.wakeup()

    @cython.ccall
    def poll(self, timeout_ms: cython.double) -> object:
        """Wait until I/O is possible, do it on all connections and replace the lists.

        Waits at most `timeout_ms`: 0 or less does not wait, NEVER_MS waits forever. May return early with nothing to
        report.
        """
        now_ms: cython.double = 0.0
        self.connected = []
        self.completed_receives = []
        self.disconnected, self._early_failures = self._early_failures, {}
        self.failed_sends, self._late_sends = self._late_sends, []
        if self._broken:
            broken, self._broken = self._broken, []
            for channel, error in broken:
                self._disconnect(channel, error)
        self.completed_sends, self._early_sends = self._early_sends, []
        if self.completed_sends or self.disconnected or self._immediately_connected:
            timeout_ms = 0.0

        ready = self._select(timeout_ms)

        if self._max_idle_ms is not None or self._paused_listeners:
            now_ms = self._clock.now_ms()
        if self._immediately_connected:
            connected, self._immediately_connected = self._immediately_connected, []
            for channel in connected:
                self._handle(channel, EVENT_READ | EVENT_WRITE, now_ms)
        for data, events in ready:
            if data.__class__ is KafkaChannel:
                self._handle(data, events, now_ms)
            else:
                self._accept(data)
        if self._paused_listeners:
            self._resume_listeners(now_ms)
        if self._max_idle_ms is not None and now_ms >= self._idle_look_ms:
            self._close_idle(now_ms, self._max_idle_ms)
        return None

    def close(self) -> None:
        """Close every connection and every listening socket, without reports. Idempotent."""
        self._closed = True
        if not self._poller.close():
            return
        for channel in self._channels.values():
            self.counters.connections_closed += channel.ready
            channel.close()
            for send in channel.sends:
                send.abandon()
        for sock in self._listeners:
            sock.close()
        self._channels.clear()
        self._listeners.clear()

    # --- Inside a poll ---

    @cython.cfunc
    def _select(self, timeout_ms: cython.double) -> list:
        if timeout_ms <= 0.0:
            return self._poller.wait(0.0)
        # the clock is read only if this thread is going to wait, when reading it costs nothing
        started_ms: cython.double = self._clock.now_ms()
        try:
            return self._poller.wait(min(timeout_ms, self._next_deadline_in_ms(started_ms)))
        finally:
            self.counters.waited_ms += self._clock.now_ms() - started_ms

    @cython.cfunc
    def _next_deadline_in_ms(self, now_ms: cython.double) -> cython.double:
        """How long a poll may wait before the selector has to close an idle connection or resume a listener."""
        end_ms: cython.double = self._idle_look_ms
        if self._paused_listeners:
            end_ms = min(end_ms, *(listener.resume_ms for listener in self._paused_listeners))
        if end_ms == NEVER_MS:
            return _MAX_TIMEOUT_MS
        return min(max(end_ms - now_ms, 0.0), _MAX_TIMEOUT_MS)

    @cython.cfunc
    def _handle(self, channel: KafkaChannel, events: cython.int, now_ms: cython.double) -> object:
        """Do the I/O of one connection."""
        if channel.state is _CLOSED:
            return None  # closed while another event of this poll was handled
        if self._max_idle_ms is not None:
            channel.last_active_ms = now_ms
        try:
            if channel.state is not _READY:
                if channel.state is ChannelState.CONNECTING:
                    channel.finish_connect()
                self._prepare(channel)
                if channel.state is not _READY:
                    return None
                if channel.initiated:
                    self.connected.append(channel.id)
                # Write the queued sends, and read: the handshake may have buffered bytes that followed it.
                events = EVENT_READ | EVENT_WRITE
            if events & EVENT_READ and not channel.muted:
                self.counters.operations += 1
                self._read(channel)
                if self._max_unfinished_bytes is not None and self._unfinished_bytes > self._max_unfinished_bytes:
                    self._close_greediest(self._max_unfinished_bytes)
                    if channel.state is _CLOSED:
                        return None
            if events & EVENT_WRITE and channel.sends:
                self.counters.operations += 1
                channel.write(self.completed_sends)
                self._update_watch(channel)
        except (OSError, InvalidLength, KafkaError) as error:
            self._disconnect(channel, error)
        return None

    @cython.cfunc
    def _read(self, channel: KafkaChannel) -> cython.Py_ssize_t:
        if self._max_unfinished_bytes is None:
            return channel.read(self.completed_receives)
        held_bytes = channel.held_bytes
        try:
            return channel.read(self.completed_receives)
        finally:
            self._unfinished_bytes += channel.held_bytes - held_bytes

    def _close_greediest(self, max_bytes: int) -> None:
        """Close the connections with the largest incomplete frames until the rest is within the bound."""
        while self._unfinished_bytes > max_bytes:
            greediest = max(self._channels.values(), key=lambda channel: channel.held_bytes)
            self._disconnect(
                greediest,
                DisconnectedError(
                    f"the connection to {greediest.peer} was closed here: unfinished requests take "
                    f"{self._unfinished_bytes} bytes, {greediest.held_bytes} of them this one, and the limit for all "
                    f"is {max_bytes}"
                ),
            )

    def _prepare(self, channel: KafkaChannel) -> None:
        events = channel.prepare()
        self.counters.connections_created += channel.ready
        self._watch(channel, channel.wanted_events() if channel.ready else events)

    def _accept(self, listener: _Listener) -> None:
        for _ in range(_MAX_ACCEPTS_PER_POLL):
            if listener.socket not in self._listeners:
                return  # on_accept has closed the selector
            try:
                sock, address = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _LOST_BEFORE_ACCEPT:
                    continue
                # Without a pause the poll would spin: the connection that cannot be accepted stays in the backlog.
                now_ms = self._clock.now_ms()
                _log.log(
                    self._repeats.level(listener, logging.WARNING, now_ms),
                    "cannot accept connections on %s for %.0f ms: %s (are there file descriptors left? see ulimit -n)",
                    describe_address(listener.socket.getsockname()),
                    _ACCEPT_BACKOFF_MS,
                    error,
                )
                self._poller.unregister(listener.socket.fileno())
                listener.resume_ms = now_ms + _ACCEPT_BACKOFF_MS
                self._paused_listeners.append(listener)
                return
            try:
                listener.on_accept(sock, address)
            except BaseException:
                sock.close()
                raise

    def _resume_listeners(self, now_ms: float) -> None:
        for listener in [each for each in self._paused_listeners if each.resume_ms <= now_ms]:
            self._paused_listeners.remove(listener)
            self._poller.register(listener.socket.fileno(), EVENT_READ, listener)

    def _close_idle(self, now_ms: float, max_idle_ms: float) -> None:
        idle = [channel for channel in self._channels.values() if now_ms - channel.last_active_ms >= max_idle_ms]
        idle.sort(key=lambda channel: channel.last_active_ms)
        for channel in idle:
            idle_ms = now_ms - channel.last_active_ms
            self._disconnect(
                channel,
                DisconnectedError(
                    f"the connection to {channel.peer} was closed here after {idle_ms:.0f} ms without traffic "
                    f"(connections.max.idle.ms is {max_idle_ms:.0f})"
                ),
            )
        last_active_ms = [channel.last_active_ms for channel in self._channels.values()]
        self._idle_look_ms = min(last_active_ms, default=NEVER_MS) + max_idle_ms

    # --- Bookkeeping ---

    def _ensure_unused(self, channel_id: str) -> None:
        if self._closed:
            raise IllegalStateError("the selector is closed")
        if channel_id in self._channels:
            raise IllegalStateError(f"there is a connection {channel_id!r} already; close it first")

    def _add(
        self, channel_id: str, transport: Transport, sock: socket.socket, peer: str, *, initiated: bool
    ) -> KafkaChannel:
        channel = KafkaChannel(
            channel_id,
            sock,
            transport,
            peer=peer,
            initiated=initiated,
            scratch=self._scratch,
            max_receive_bytes=self._max_receive_bytes,
        )
        self._channels[channel_id] = channel
        if self._max_idle_ms is not None:
            channel.last_active_ms = self._clock.now_ms()
            self._idle_look_ms = min(self._idle_look_ms, channel.last_active_ms + self._max_idle_ms)
        return channel

    @cython.cfunc
    def _update_watch(self, channel: KafkaChannel) -> object:
        if channel.state is _READY:
            self._watch(channel, channel.wanted_events())
        return None

    @cython.cfunc
    def _watch(self, channel: KafkaChannel, events: cython.int) -> object:
        watched: cython.int = channel.watched_events
        if events == watched:
            return None
        if not events:
            self._poller.unregister(channel.fd)
        elif watched:
            self._poller.modify(channel.fd, events)
        else:
            self._poller.register(channel.fd, events, channel)
        channel.watched_events = events
        return None

    def _disconnect(self, channel: KafkaChannel, error: OSError | InvalidLength | KafkaError) -> None:
        """Close a failed connection and report it. Does nothing if it is already closed."""
        if self._channels.get(channel.id) is not channel:
            return
        if isinstance(error, OSError) and channel.ready and not channel.muted:
            error = self._read_last_words(channel, error)
        failure = channel.failure(error)
        self.failed_sends.extend(channel.sends)
        self._remove(channel)
        self.disconnected[channel.id] = failure
        if channel.id in self.connected:
            self.connected.remove(channel.id)
        _log.debug("connection %s is lost: %s", channel.id, failure)

    def _read_last_words(self, channel: KafkaChannel, error: OSError) -> OSError | InvalidLength | AuthenticationError:
        """Read what the peer sent before a write failed: responses, or why it closed the connection (an alert of TLS,
        bytes of another protocol). Returns the error to report.
        """
        try:
            for _ in range(_MAX_LAST_READS):
                if not self._read(channel):
                    break
        except (InvalidLength, AuthenticationError) as last:
            return last
        except (OSError, KafkaError):
            pass  # the connection is already known to be lost
        return error

    def _remove(self, channel: KafkaChannel) -> None:
        del self._channels[channel.id]
        self._watch(channel, 0)
        if self._max_unfinished_bytes is not None:
            self._unfinished_bytes -= channel.held_bytes
        self.counters.connections_closed += channel.ready
        channel.close()
        for send in channel.sends:
            send.abandon()


def _set_options(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def describe_address(address: Any) -> str:
    """A socket address as text: host:port, [host]:port or a path."""
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address) or "an unnamed socket"
