"""Many connections on one thread: poll, then lists of what happened.

The model is Kafka's `org.apache.kafka.common.network.Selector`, for clients and brokers alike. Where it differs:

- `send` writes at once, and only what the kernel does not take waits for `poll`. Almost every request fits into the
  socket's buffer, so that it leaves one poll earlier and needs no epoll_ctl to watch for room and to stop watching.
- All frames that one read brings are delivered, not one a channel and poll. A broker has to keep the order itself.
- A network error never comes out of a call: whatever happens to a connection is in `disconnected` after a poll.
- All connections that idled for too long are closed in one poll, the least recently used first.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from ..clock import NEVER_MS, Clock
from ..protocol.errors import DisconnectedError, IllegalStateError, KafkaConnectionError, KafkaError
from ..repeats import Repeats
from ..sections import here
from .channel import SCRATCH_BYTES, ChannelState, InvalidLength, KafkaChannel, NetworkReceive, NetworkSend
from .transport import PlaintextTransport, Transport

_log = logging.getLogger(__name__)

# What select takes as a timeout is bounded; longer waits end with nothing to report, as any poll may.
_MAX_TIMEOUT_MS = 3_600_000.0
_MAX_ACCEPTS_PER_POLL = 64
_ACCEPT_BACKOFF_MS = 100.0
_MAX_LAST_READS = 64
_MAX_WAKEUP_BYTES = 4096
# What accept(2) reports on behalf of the connection it would have returned: the listener itself is well.
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


class SelectorCounters:
    """What a selector has done since it was made, counted on its thread; anybody may look.

    Connections count from when they can be used. `operations` are reads and writes, `waited_ms` is the time in which
    polls waited for something to do.
    """

    __slots__ = ("connections_closed", "connections_created", "operations", "waited_ms")

    def __init__(self) -> None:
        self.connections_created = 0
        self.connections_closed = 0
        self.operations = 0
        self.waited_ms = 0.0

    @property
    def connections(self) -> int:
        """How many connections stand."""
        return self.connections_created - self.connections_closed


class _Listener:
    """A listening socket and, while it is paused, the time when accepting goes on."""

    __slots__ = ("on_accept", "resume_ms", "socket")

    def __init__(self, sock: socket.socket, on_accept: Callable[[socket.socket, Any], None]) -> None:
        self.socket = sock
        self.on_accept = on_accept
        self.resume_ms = 0.0


class Selector:
    """Connections by channel id, with what the last `poll` found out about them.

    Belongs to one thread; only `wakeup` may be called from others (and from signal handlers). After `poll`:

    - `connected`: ids of channels begun by `connect` that are ready to be used.
    - `completed_receives`: frames, in the order in which they arrived on their channel.
    - `completed_sends`: sends whose last byte the kernel has taken, in order for each channel.
    - `disconnected`: by channel id, why the connection is gone: KafkaConnectionError (it never stood),
      DisconnectedError, NotKafkaError or InvalidReceiveError. Handle the receives first, they came before.
    - `failed_sends`: what was not wholly sent on such channels, so that the peer cannot have acted on it.

    Each poll makes new lists. Nothing is reported about a channel after `close_channel`.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        max_receive_bytes: int,
        connections_max_idle_ms: float | None = None,
        max_unfinished_bytes: int | None = None,
        transport: Callable[[socket.socket], Transport] = PlaintextTransport,
    ) -> None:
        """`max_receive_bytes` bounds a frame. Connections without traffic for `connections_max_idle_ms` are closed
        (None: never). When the frames of which not all has arrived hold more than `max_unfinished_bytes` together, the
        connection that holds most is closed (None: no such bound)."""
        self.connected: list[str] = []
        self.completed_receives: list[NetworkReceive] = []
        self.completed_sends: list[NetworkSend] = []
        self.disconnected: dict[str, KafkaError] = {}
        self.failed_sends: list[NetworkSend] = []
        self.counters = SelectorCounters()
        self._clock = clock
        self._max_receive_bytes = max_receive_bytes
        self._max_idle_ms = connections_max_idle_ms
        self._max_unfinished_bytes = max_unfinished_bytes
        self._unfinished_bytes = 0  # kept only where there is a bound
        self._transport = transport
        self._channels: dict[str, KafkaChannel] = {}
        self._listeners: dict[socket.socket, _Listener] = {}
        self._paused_listeners: list[_Listener] = []
        self._repeats = Repeats()
        self._last_active_ms: OrderedDict[str, float] = OrderedDict()
        # what happened between two polls, for the next one to tell
        self._immediately_connected: list[KafkaChannel] = []
        self._early_sends: list[NetworkSend] = []
        self._late_sends: list[NetworkSend] = []
        self._early_failures: dict[str, KafkaError] = {}
        self._broken: list[tuple[KafkaChannel, OSError | KafkaError]] = []
        self._scratch = bytearray(SCRATCH_BYTES)
        self._selector = selectors.DefaultSelector()
        # Reentrant, because a signal handler or a finalizer may call wakeup while this thread is inside of it.
        self._wakeup_lock = threading.RLock()
        self._wakeup_requested = False
        self._wakeup_written = False
        self._selecting = False
        self._closed = False
        self._wakeup_reader, self._wakeup_writer = socket.socketpair()
        self._wakeup_reader.setblocking(False)
        self._wakeup_writer.setblocking(False)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ, None)

    # --- Connections ---

    def connect(
        self,
        channel_id: str,
        family: int,
        address: Any,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        """Begin a connection to a resolved address; a later poll reports it as connected or disconnected.

        Buffer sizes are SO_SNDBUF and SO_RCVBUF, -1 leaves them to the system. Raises IllegalStateError when the id is
        in use, and never a network error.
        """
        self._ensure_unused(channel_id)
        peer = describe_address(address)
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._early_failures[channel_id] = KafkaConnectionError(f"cannot connect to {peer}: {error.strerror}")
            return
        channel = self._add(channel_id, sock, peer, initiated=True)
        try:
            # the receive buffer decides on the window scale, which is announced when the connection begins
            if send_buffer_bytes != -1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes != -1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            _set_options(sock)
            code = sock.connect_ex(address)
            if code == 0:
                self._immediately_connected.append(channel)
            elif code in (errno.EINPROGRESS, errno.EINTR):
                self._watch(channel, selectors.EVENT_WRITE)
            else:
                raise OSError(code, os.strerror(code))
        except OSError as error:
            self._broken.append((channel, error))

    def register(self, channel_id: str, sock: socket.socket) -> None:
        """Take over a socket that is connected already, as one that was accepted; it is not listed in `connected`.

        Raises IllegalStateError when the id is in use (the socket is left alone then), and never a network error.
        """
        self._ensure_unused(channel_id)
        try:
            peer = describe_address(sock.getpeername())
        except OSError:
            peer = "a peer that was gone before its address was known"
        channel = self._add(channel_id, sock, peer, initiated=False)
        try:
            channel.state = ChannelState.PREPARING
            _set_options(sock)
            self._prepare(channel)
        except (OSError, KafkaError) as error:
            self._broken.append((channel, error))

    def listen(self, sock: socket.socket, on_accept: Callable[[socket.socket, Any], None]) -> None:
        """Accept connections on a socket that is bound and listening, which belongs to this selector from now on.

        `on_accept(socket, address)` runs inside of `poll` and decides: `register` the socket or close it. When no
        descriptors are left for another connection, accepting pauses for a moment and the backlog holds the clients.
        """
        sock.setblocking(False)
        self._listeners[sock] = _Listener(sock, on_accept)
        self._selector.register(sock, selectors.EVENT_READ, self._listeners[sock])

    def channel(self, channel_id: str) -> KafkaChannel | None:
        """The open channel of that id, for its state, its peer and its sends."""
        return self._channels.get(channel_id)

    def is_channel_ready(self, channel_id: str) -> bool:
        """Whether the connection stands and its handshake is over."""
        channel = self._channels.get(channel_id)
        return channel is not None and channel.ready

    def close_channel(self, channel_id: str) -> None:
        """Close a connection, without any more reports about it. An id that is not (or no longer) open is fine."""
        channel = self._channels.get(channel_id)
        if channel is not None:
            self._remove(channel)
            self._early_sends = [send for send in self._early_sends if send.channel_id != channel_id]

    def mute(self, channel_id: str) -> None:
        """Read no more from a channel, so that its peer's pressure stays with the peer. What one read has brought is
        delivered nevertheless. Nothing is noticed of a muted channel whose peer goes away until it is unmuted or
        written to. An id that is no longer open is fine: connections end at any time."""
        channel = self._channels.get(channel_id)
        if channel is not None and not channel.muted:
            channel.muted = True
            self._update_watch(channel)

    def unmute(self, channel_id: str) -> None:
        """Read from a muted channel again."""
        channel = self._channels.get(channel_id)
        if channel is not None and channel.muted:
            channel.muted = False
            self._update_watch(channel)

    # --- Sending ---

    def send(self, channel_id: str, buffers: Iterable[Any]) -> NetworkSend:
        """Send a gather list of bytes-like objects and `FileRegion`s, by reference, after those that wait already.

        Writes as much as the kernel takes now. The next poll (which will not wait) lists the send as completed when
        that was all; the caller bounds how many wait on a channel. Never raises a network error: on a connection that
        the last poll reported as disconnected, as an answer to one of its last frames would be, the next poll lists
        the send as failed. Raises IllegalStateError when there is no such connection.
        """
        send = NetworkSend(channel_id, buffers)
        channel = self._channels.get(channel_id)
        if channel is None:
            if channel_id not in self.disconnected:
                raise IllegalStateError(f"there is no open connection {channel_id!r} to send on; connect first")
            send.abandon()
            self._late_sends.append(send)
            return send
        channel.sends.append(send)
        if channel.state is ChannelState.READY and len(channel.sends) == 1:
            if self._max_idle_ms is not None:
                self._touch(channel_id, self._clock.now_ms())
            self.counters.operations += 1
            try:
                channel.write(self._early_sends)
            except (OSError, KafkaError) as error:
                self._broken.append((channel, error))
            else:
                self._update_watch(channel)
        return send

    # --- Polling ---

    def wakeup(self) -> None:
        """Make the poll that is under way, or else the next one, return without waiting. From any thread, and cheap:
        a system call is made only when the polling thread really waits and nobody has woken it yet."""
        if self._wakeup_requested:
            return  # the poll that will see the request has not returned, so its caller will look at the state again
        with here.section, self._wakeup_lock:
            if self._wakeup_requested or self._closed:
                return
            if self._selecting and not self._wakeup_written:
                # The byte before the marks: an exception of a signal handler in between costs a byte too many, and not
                # the wakeup. The buffer is never full, because bytes are read with each poll that finds the mark.
                with contextlib.suppress(BlockingIOError):
                    self._wakeup_writer.send(b"\0")
                self._wakeup_written = True
            self._wakeup_requested = True

    def poll(self, timeout_ms: float) -> None:
        """Wait for at most `timeout_ms` (0 or less: not at all; NEVER_MS: for ever) until something can be done, do it
        on all connections and refill the lists. May return early with nothing to report."""
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

        now_ms = self._clock.now_ms() if self._max_idle_ms is not None or self._paused_listeners else 0.0
        if self._immediately_connected:
            connected, self._immediately_connected = self._immediately_connected, []
            for channel in connected:
                self._handle(channel, selectors.EVENT_WRITE, now_ms)
        for key, events in ready:
            data = key.data
            if data.__class__ is KafkaChannel:
                self._handle(data, events, now_ms)
            elif data is not None:
                self._accept(data)
        if self._paused_listeners:
            self._resume_listeners(now_ms)
        if self._max_idle_ms is not None:
            self._close_idle(now_ms, self._max_idle_ms)

    def close(self) -> None:
        """Close every connection and every listening socket, without reports. Any number of times."""
        with here.section, self._wakeup_lock:
            if self._closed:
                return
            self._closed = True
            self._wakeup_reader.close()
            self._wakeup_writer.close()
        for channel in self._channels.values():
            self.counters.connections_closed += channel.ready
            channel.close()
            for send in channel.sends:
                send.abandon()
        for sock in self._listeners:
            sock.close()
        self._channels.clear()
        self._listeners.clear()
        self._selector.close()

    # --- Inside of a poll ---

    def _select(self, timeout_ms: float) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout_ms > 0.0:
            timeout_ms = min(timeout_ms, self._next_deadline_in_ms())
        # First say that this thread selects, then look for requests: a wakeup in between writes its byte, at worst for
        # nothing. The other way round it would be lost.
        with here.section, self._wakeup_lock:
            if self._closed:
                raise IllegalStateError("the selector is closed")
            self._selecting = timeout_ms > 0.0
            if self._wakeup_requested:
                timeout_ms = 0.0
        # the clock is asked only where asking costs nothing, because this thread is going to wait anyway
        started_ms = self._clock.now_ms() if timeout_ms > 0.0 else 0.0
        try:
            return self._selector.select(timeout_ms / 1000.0)
        finally:
            if timeout_ms > 0.0:
                self.counters.waited_ms += self._clock.now_ms() - started_ms
            with here.section, self._wakeup_lock:
                self._selecting = False
                self._wakeup_requested = False
                if self._wakeup_written:
                    self._wakeup_written = False
                    with contextlib.suppress(BlockingIOError):
                        self._wakeup_reader.recv(_MAX_WAKEUP_BYTES)

    def _next_deadline_in_ms(self) -> float:
        """How long a poll may wait before this selector itself has something to do."""
        end_ms = NEVER_MS
        if self._last_active_ms and self._max_idle_ms is not None:
            end_ms = next(iter(self._last_active_ms.values())) + self._max_idle_ms
        if self._paused_listeners:
            end_ms = min(end_ms, *(listener.resume_ms for listener in self._paused_listeners))
        if end_ms == NEVER_MS:
            return _MAX_TIMEOUT_MS
        return min(max(end_ms - self._clock.now_ms(), 0.0), _MAX_TIMEOUT_MS)

    def _handle(self, channel: KafkaChannel, events: int, now_ms: float) -> None:
        """Do what can be done on one connection."""
        if channel.state is ChannelState.CLOSED:
            return  # by what another event of this poll led to
        if self._max_idle_ms is not None:
            self._touch(channel.id, now_ms)
        try:
            if channel.state is not ChannelState.READY:
                if channel.state is ChannelState.CONNECTING:
                    channel.finish_connect()
                self._prepare(channel)
                if channel.state is not ChannelState.READY:
                    return
                if channel.initiated:
                    self.connected.append(channel.id)
                # what waits to be sent; and the handshake may have taken bytes off the socket that came after it
                events = selectors.EVENT_READ | selectors.EVENT_WRITE
            if events & selectors.EVENT_READ and not channel.muted:
                self.counters.operations += 1
                self._read(channel)
                if self._max_unfinished_bytes is not None and self._unfinished_bytes > self._max_unfinished_bytes:
                    self._close_greediest(self._max_unfinished_bytes)
                    if channel.state is ChannelState.CLOSED:
                        return
            if events & selectors.EVENT_WRITE and channel.sends:
                self.counters.operations += 1
                channel.write(self.completed_sends)
                self._update_watch(channel)
        except (OSError, InvalidLength, KafkaError) as error:
            self._disconnect(channel, error)

    def _read(self, channel: KafkaChannel) -> int:
        if self._max_unfinished_bytes is None:
            return channel.read(self.completed_receives)
        held_bytes = channel.held_bytes
        try:
            return channel.read(self.completed_receives)
        finally:
            self._unfinished_bytes += channel.held_bytes - held_bytes

    def _close_greediest(self, max_bytes: int) -> None:
        """Close the connections whose unfinished frames hold most, until the rest is within the bound."""
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
                self._selector.unregister(listener.socket)
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
            self._selector.register(listener.socket, selectors.EVENT_READ, listener)

    def _close_idle(self, now_ms: float, max_idle_ms: float) -> None:
        while self._last_active_ms:
            channel_id, last_active_ms = next(iter(self._last_active_ms.items()))
            idle_ms = now_ms - last_active_ms
            if idle_ms < max_idle_ms:
                return
            channel = self._channels[channel_id]
            self._disconnect(
                channel,
                DisconnectedError(
                    f"the connection to {channel.peer} was closed here after {idle_ms:.0f} ms without traffic "
                    f"(connections.max.idle.ms is {max_idle_ms:.0f})"
                ),
            )

    # --- Bookkeeping ---

    def _ensure_unused(self, channel_id: str) -> None:
        if self._closed:
            raise IllegalStateError("the selector is closed")
        if channel_id in self._channels:
            raise IllegalStateError(f"there is a connection {channel_id!r} already; close it first")

    def _add(self, channel_id: str, sock: socket.socket, peer: str, *, initiated: bool) -> KafkaChannel:
        channel = KafkaChannel(
            channel_id,
            sock,
            self._transport(sock),
            peer=peer,
            initiated=initiated,
            scratch=self._scratch,
            max_receive_bytes=self._max_receive_bytes,
        )
        self._channels[channel_id] = channel
        if self._max_idle_ms is not None:
            self._touch(channel_id, self._clock.now_ms())
        return channel

    def _touch(self, channel_id: str, now_ms: float) -> None:
        self._last_active_ms[channel_id] = now_ms
        self._last_active_ms.move_to_end(channel_id)

    def _update_watch(self, channel: KafkaChannel) -> None:
        if channel.ready:
            self._watch(channel, channel.wanted_events())

    def _watch(self, channel: KafkaChannel, events: int) -> None:
        watched = channel.watched_events
        if events == watched:
            return
        if not events:
            self._selector.unregister(channel.fd)
        elif watched:
            self._selector.modify(channel.fd, events, channel)
        else:
            self._selector.register(channel.fd, events, channel)
        channel.watched_events = events

    def _disconnect(self, channel: KafkaChannel, error: OSError | InvalidLength | KafkaError) -> None:
        """Close a connection that failed and report it; nothing to do for one that is closed already."""
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
        _log.debug("connection %s is gone: %s", channel.id, failure)

    def _read_last_words(self, channel: KafkaChannel, error: OSError) -> OSError | InvalidLength:
        """A write may fail before that is read which the peer said before it went: answers, or what tells that it is
        no Kafka broker."""
        try:
            for _ in range(_MAX_LAST_READS):
                if not self._read(channel):
                    break
        except InvalidLength as last:
            return last
        except (OSError, KafkaError):
            pass  # that the connection is at its end is known
        return error

    def _remove(self, channel: KafkaChannel) -> None:
        del self._channels[channel.id]
        self._last_active_ms.pop(channel.id, None)
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
    """A socket address as people write it: host:port, [host]:port, or a path."""
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(address) or "an unnamed socket"
