"""The broker's sockets: network threads that decode requests and send responses."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import socket
import threading
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..network.protocol.api import ApiKey, requests
from ..network.protocol.codec import decode
from ..network.protocol.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MalformedMessageError,
    TooManyElementsError,
    UnsupportedVersionError,
)
from ..network.protocol.frames import MAX_REQUEST_ELEMENTS, RequestHeader, decode_request_header
from ..network.repeats import Repeats
from ..network.sections import section_thread
from ..network.sockets.selector_cy import Selector, describe_address
from .api import registry
from .api.api_versions import unsupported_version
from .api.registry import Api
from .config.broker_config import BrokerConfig
from .config.listeners import Listener
from .config.sasl_keys import sasl_listeners
from .replica.connection import without_broker_token
from .requests.control import RequestSeen
from .requests.request import FEW_ELEMENTS, Connection, RequestContext
from .security.listener_tls import ListenerTls, tls_of_listener
from .security.server_authenticator import SaslServerAuthenticator
from .services.services import BrokerServices

_log = logging.getLogger(__name__)

_POLL_MS = 300_000.0
_DROP_TIMEOUT_S = 10.0
#: Errors of `bind` for an address that no interface of this machine has, or of a family that it lacks.
_FOREIGN_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
#: Sends that may be pending on a connection before the broker stops reading from it.
_MAX_UNSENT = 64


class BrokerServer:
    """The listeners and their network threads. `start` and `close` are for the owner's thread, `close_connections` is
    for any thread."""

    def __init__(self, broker: BrokerServices, listeners: Sequence[Listener]) -> None:
        """Raises KafkaConnectionError, KafkaConfigurationError."""
        self._broker = broker
        self._sockets: dict[str, socket.socket] = {}
        try:
            self._tls = {each.name: tls_of_listener(broker.config, each.name) for each in listeners}
            for each in listeners:
                self._sockets[each.name] = _listen(each, broker.config)
        except BaseException:
            self._close_sockets()
            raise
        #: The listeners, with the ports that the system assigned.
        self.listeners = tuple(each._replace(port=_port_of(self._sockets[each.name])) for each in listeners)
        self.connection_count = 0
        #: The settings of the listeners with SASL, by name.
        self.sasl = sasl_listeners(broker.config, listeners)
        self._counts_per_ip: Counter[str] = Counter()
        self._counts_lock = threading.Lock()
        self._next_loop = itertools.cycle(range(broker.config.num_network_threads))
        self._connection_ids = itertools.count()
        self._loops = [_NetworkThread(broker, self, number) for number in range(broker.config.num_network_threads)]

    def start(self) -> None:
        """Begin to accept connections."""
        for name, sock in self._sockets.items():
            self._loops[0].selector.listen(sock, partial(self._accept, name))
        for loop in self._loops:
            loop.thread.start()

    @property
    def ports(self) -> dict[str, int]:
        """The port of each listener."""
        return {each.name: each.port for each in self.listeners}

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.listeners[0].port

    def _accept(self, listener: str, sock: socket.socket, address: Any) -> None:
        peer = str(address[0])
        too_many = self._too_many(peer)
        if too_many is not None:
            _log.warning("closing a connection from %s: there are %s", address, too_many)
            sock.close()
            return
        config = self._broker.config
        _set_buffer(sock, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
        with self._counts_lock:
            self.connection_count += 1
            self._counts_per_ip[peer] += 1
        loop = self._loops[next(self._next_loop)]
        loop.take_over(
            f"{describe_address(address)}-{next(self._connection_ids)}", sock, peer, listener, self._tls[listener]
        )

    def _too_many(self, peer: str) -> str | None:
        """The connection limit that is reached, in words; None if there is room for another connection."""
        config = self._broker.config
        if self.connection_count >= config.max_connections:
            return f"{self.connection_count} (max.connections)"
        if self._counts_per_ip[peer] >= config.max_connections_of(peer):
            return f"{self._counts_per_ip[peer]} from its address (max.connections.per.ip)"
        return None

    def connection_ended(self, peer: str) -> None:
        """Called by network threads."""
        with self._counts_lock:
            self.connection_count -= 1
            self._counts_per_ip[peer] -= 1
            if not self._counts_per_ip[peer]:
                del self._counts_per_ip[peer]

    def close_connections(self) -> None:
        """Close all connections, as a failing network does; new ones are accepted.

        Returns when they are closed and no network thread still handles an earlier request. On a network thread (in a
        test's handler) it returns immediately.
        """
        dropped = [loop.drop_all() for loop in self._loops]
        if threading.get_ident() not in {loop.thread.ident for loop in self._loops}:
            for each in dropped:
                each.wait(_DROP_TIMEOUT_S)

    def close(self) -> None:
        """Close all connections and sockets. Blocks until the network threads have ended."""
        for loop in self._loops:
            loop.stop()
        for loop in self._loops:
            if loop.thread.ident is not None:
                loop.thread.join()
            loop.selector.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for sock in self._sockets.values():
            sock.close()


def _listen(listener: Listener, config: BrokerConfig) -> socket.socket:
    host, port = listener.host, listener.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Before `listen`: the window scale of a connection is fixed when it is established.
        _set_buffer(sock, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        sock.bind((host, port))
        sock.listen(config.socket_listen_backlog_size)
    except OSError as failed:
        sock.close()
        raise KafkaConnectionError(
            f"can't listen on {describe_address((host, port))}: {_reason_and_advice(failed)}"
        ) from failed
    return sock


def _reason_and_advice(failed: OSError) -> str:
    """Why the broker can't listen on an address, and whether to change the host or the port."""
    if isinstance(failed, socket.gaierror):
        return f"{failed.strerror}; choose a host name or an address of this machine, such as 127.0.0.1"
    if failed.errno in _FOREIGN_ADDRESS:
        return f"{failed.strerror}; choose an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all it has"
    if failed.errno == errno.EACCES:
        return f"{failed.strerror}; choose a port that this user may listen on, 1024 or above, or 0 for any"
    return f"{failed.strerror or failed}; choose another port, or 0 for any"


def _set_buffer(sock: socket.socket, option: int, size_bytes: int) -> None:
    if size_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)


def _port_of(sock: socket.socket) -> int:
    return sock.getsockname()[1]


class _NetworkThread:
    """A selector and its connections. `answer_ready`, `take_over`, `drop_all` and `stop` are for any thread,
    `_handle_aside` for the request thread; everything else runs on this thread."""

    def __init__(self, broker: BrokerServices, server: BrokerServer, number: int) -> None:
        self._broker = broker
        self._server = server
        self.selector = Selector(
            clock=broker.clock,
            max_receive_bytes=broker.config.socket_request_max_bytes,
            connections_max_idle_ms=broker.config.connections_max_idle_ms,
            max_unfinished_bytes=broker.config.request_memory_per_thread,
        )
        self.thread = section_thread(self._run, f"broker-{broker.node_id}-network-{number}")
        self._connections: dict[str, Connection] = {}
        self._arrivals: deque[tuple[str, socket.socket, str, str, ListenerTls | None]] = deque()
        #: The connections in their TLS handshake, and when each of them is given up.
        self._handshakes: deque[tuple[float, str]] = deque()
        self._repeats = Repeats()
        self._ready: deque[Connection] = deque()
        self._back: deque[tuple[Connection, int, bool]] = deque()
        self._bytes_aside = 0
        self._closing = False
        self._drops: deque[threading.Event] = deque()

    # --- Any thread ---

    def answer_ready(self, connection: Connection) -> None:
        self._ready.append(connection)
        if threading.get_ident() != self.thread.ident:
            self.selector.wakeup()

    def take_over(
        self, connection_id: str, sock: socket.socket, peer: str, listener: str, tls: ListenerTls | None
    ) -> None:
        """Serve an accepted socket."""
        self._arrivals.append((connection_id, sock, peer, listener, tls))
        if threading.get_ident() != self.thread.ident:
            self.selector.wakeup()
        else:
            self._register_arrivals()

    def drop_all(self) -> threading.Event:
        """Close all connections soon; the event is set when they are closed."""
        is_done = threading.Event()
        self._drops.append(is_done)
        self.selector.wakeup()
        return is_done

    def stop(self) -> None:
        self._closing = True
        self.selector.wakeup()

    # --- The network thread ---

    def _run(self) -> None:
        selector = self.selector
        while not self._closing:
            selector.poll(self._handshake_poll_ms() if self._handshakes else _POLL_MS)
            if self._arrivals:
                self._register_arrivals()
            for receive in selector.completed_receives:
                connection = self._connections.get(receive.channel_id)
                if connection is not None:
                    self._receive(connection, receive.payload)
            if selector.completed_sends:
                self._count_sent()
            if selector.disconnected:
                for channel_id, reason in selector.disconnected.items():
                    self._log_end(channel_id, reason)
                    self._forget(channel_id)
            if self._handshakes:
                self._end_stalled_handshakes()
            while self._drops:
                for connection in list(self._connections.values()):
                    self._drop(connection)
                self._drops.popleft().set()
            self._take_back()
            self._send_ready()
        for connection in list(self._connections.values()):
            self._drop(connection)
        while self._drops:
            self._drops.popleft().set()

    def _register_arrivals(self) -> None:
        while self._arrivals:
            connection_id, sock, peer, listener, tls = self._arrivals.popleft()
            connection = self._connections[connection_id] = Connection(connection_id, self, peer, listener)
            if tls is None:
                self.selector.register(connection_id, sock)
            else:
                transport = tls.transport(sock)
                connection.principal_of = partial(tls.principal, transport)
                self.selector.register(connection_id, sock, transport)
                deadline_ms = self._broker.clock.now_ms() + self._broker.config.socket_connection_setup_timeout_ms
                self._handshakes.append((deadline_ms, connection_id))
            settings = self._server.sasl.get(listener)
            if settings is not None:
                connection.principal_of = None
                connection.authenticator = SaslServerAuthenticator(
                    settings, lambda: self._broker.controller.image.users, self._broker.clock, connection.authenticated
                )
                self._limit_receives(connection)

    def _handshake_poll_ms(self) -> float:
        """How long a poll may wait before a handshake is to be given up."""
        return max(self._handshakes[0][0] - self._broker.clock.now_ms(), 0.0)

    def _end_stalled_handshakes(self) -> None:
        """Close connections whose TLS handshake takes longer than socket.connection.setup.timeout.ms."""
        now_ms = self._broker.clock.now_ms()
        while self._handshakes:
            deadline_ms, connection_id = self._handshakes[0]
            if self.selector.is_in_handshake(connection_id):
                if now_ms < deadline_ms:
                    return
                self._log_end(connection_id, KafkaTimeoutError("it did not complete the TLS handshake in time"))
                self._drop(self._connections[connection_id])
            self._handshakes.popleft()

    def _log_end(self, connection_id: str, reason: KafkaError) -> None:
        level = logging.DEBUG
        if isinstance(reason, (AuthenticationError, KafkaTimeoutError)):
            connection = self._connections.get(connection_id)
            key = (type(reason), connection.peer if connection is not None else None)
            level = self._repeats.level(key, logging.INFO, self._broker.clock.now_ms())
        _log.log(level, "broker %d: connection %s ended: %s", self._broker.node_id, connection_id, reason)

    def _read_or_not(self, connection: Connection) -> None:
        """Stop reading from a connection while it has too many unanswered requests or unsent responses."""
        if (
            connection.aside is None
            and connection.unsent < _MAX_UNSENT
            and len(connection.slots) < self._broker.config.queued_max_requests
        ):
            self.selector.unmute(connection.id)
        else:
            self.selector.mute(connection.id)

    def _count_sent(self) -> None:
        for send in self.selector.completed_sends:
            connection = self._connections.get(send.channel_id)
            if connection is not None:
                connection.unsent -= 1
                if connection.half_closes and not connection.unsent:
                    self._half_close(connection)
                self._read_or_not(connection)

    def _receive(self, connection: Connection, payload: memoryview) -> None:
        if connection.aside is not None:
            connection.backlog.append(payload)
            return
        broker = self._broker
        authenticator = connection.authenticator
        if authenticator is not None and (authenticator.has_failed or authenticator.takes_tokens):
            self._take_token(connection, authenticator, payload)
            return
        try:
            header, position = decode_request_header(payload)
            api = registry.apis.get(header.api_key)
            if api is None:
                raise UnsupportedVersionError(f"the API {header.api_key.name} is not supported")
            now_ms = broker.clock.now_ms()
            refusal = None if authenticator is None else authenticator.refusal(header.api_key, now_ms)
            if refusal is not None:
                raise IllegalSaslStateError(refusal)
            broker_id = without_broker_token(header.client_id, broker.image.broker_token)
            if broker_id is not None:
                connection.is_broker = True
                header = header._replace(client_id=broker_id)
            context = RequestContext(broker, connection, header, now_ms)
            connection.slots.append(context)
            broker.control.seen(_seen(broker, connection, header, payload.nbytes, context.received_ms))
            if header.api_version not in api.versions_of(broker.control, for_broker=connection.is_broker):
                if header.api_key is not ApiKey.API_VERSIONS:
                    raise UnsupportedVersionError(f"{header.api_key.name} v{header.api_version} is not supported")
                context.api_version = 0
                context.respond(unsupported_version(broker))
                self._send(connection)
                return
        except (IllegalSaslStateError, MalformedMessageError, UnsupportedVersionError) as wrong:
            _log.info("broker %d: closing %s: %s", broker.node_id, connection.id, wrong)
            self._drop(connection)
            return
        body = payload[position:]
        if api.waits:
            self._put_aside(connection, context, api, body)
            return
        try:
            goes_on = _handle(broker, api, context, body, max_elements=FEW_ELEMENTS)
        except TooManyElementsError:
            self._put_aside(connection, context, api, body)
            return
        if authenticator is not None and header.api_key is ApiKey.SASL_AUTHENTICATE:
            self._limit_receives(connection)
        if goes_on:
            self._send(connection)
        else:
            self._drop(connection)

    def _limit_receives(self, connection: Connection) -> None:
        """Accept only small requests of a client that has not authenticated."""
        authenticator = connection.authenticator
        assert authenticator is not None
        most = self._broker.config.socket_request_max_bytes
        if not authenticator.is_complete:
            most = min(most, authenticator.listener.max_receive_bytes)
        self.selector.limit_receives(connection.id, most)

    def _take_token(self, connection: Connection, authenticator: SaslServerAuthenticator, payload: memoryview) -> None:
        """Answer a frame without a header (SaslHandshake v0). What follows a failure is not read."""
        if authenticator.has_failed:
            return
        answer = authenticator.take_token(bytes(payload))
        if answer is None:
            _log.info("broker %d: %s failed to authenticate", self._broker.node_id, connection.id)
            self._broker.after(authenticator.listener.failure_delay_ms, partial(self._drop_later, connection))
            return
        self._limit_receives(connection)
        connection.unsent += 1
        self.selector.send(connection.id, [len(answer).to_bytes(4, "big") + answer])

    def _drop_later(self, connection: Connection) -> None:
        """Any thread."""
        self._back.append((connection, 0, False))
        self.selector.wakeup()

    def _put_aside(self, connection: Connection, context: RequestContext, api: Api, body: memoryview) -> None:
        """Hand a request over to the request thread. Until it is answered no other request of this connection is
        handled: requests keep their order, and a connection has only one such request in memory."""
        limit = self._broker.config.request_memory_per_thread
        if self._bytes_aside and self._bytes_aside + body.nbytes > limit:
            _log.info("closing %s: %d bytes of requests wait (queued.max.request.bytes)", connection.id, limit)
            self._drop(connection)
            return
        self._bytes_aside += body.nbytes
        connection.aside = context
        self._read_or_not(connection)
        self._broker.request_thread.submit(lambda: self._handle_aside(connection, context, api, body))

    def _handle_aside(self, connection: Connection, context: RequestContext, api: Api, body: memoryview) -> None:
        """On the request thread."""
        goes_on = connection.is_open and _handle(self._broker, api, context, body, max_elements=MAX_REQUEST_ELEMENTS)
        self._back.append((connection, body.nbytes, goes_on))
        self.selector.wakeup()

    def _take_back(self) -> None:
        while self._back:
            connection, size_bytes, goes_on = self._back.popleft()
            self._bytes_aside -= size_bytes
            if connection.is_open and not goes_on:
                self._drop(connection)

    def _send_ready(self) -> None:
        ready = self._ready
        while ready:
            connection = ready.popleft()
            if connection.is_open and connection.slots and connection.slots[0].is_done:
                self._send(connection)
                while connection.backlog and connection.aside is None and connection.is_open:
                    self._receive(connection, connection.backlog.popleft())

    def _send(self, connection: Connection) -> None:
        """Send the finished responses, up to the first unfinished one."""
        slots = connection.slots
        while slots and slots[0].is_done:
            context = slots.popleft()
            if context is connection.aside:
                connection.aside = None
            if context.buffers is None:
                self._drop(connection)
                return
            fault = context.fault
            if fault is not None:
                if fault.silent:
                    continue
                if fault.lose_answer:
                    self._drop(connection)
                    return
                connection.half_closes = connection.half_closes or fault.half_close
                if fault.cut_after_bytes is not None:
                    self._send_cut(connection, context.buffers, fault.cut_after_bytes)
                    return
            if context.buffers:
                connection.unsent += 1
                self.selector.send(connection.id, context.buffers)
            if context.closes_connection:
                self._drop(connection)
                return
        self._read_or_not(connection)

    def _send_cut(self, connection: Connection, buffers: list[Any], size_bytes: int) -> None:
        """Send the first bytes of a response, then close the connection."""
        whole = b"".join(bytes(buffer) for buffer in buffers if not hasattr(buffer, "file"))
        self.selector.send(connection.id, [whole[:size_bytes]])
        self._drop(connection)

    def _half_close(self, connection: Connection) -> None:
        """Close the broker's half of a connection: the client may still send, but gets no more responses."""
        channel = self.selector.channel(connection.id)
        if channel is not None:
            # the client may have reset the connection meanwhile
            with socket.socket(fileno=os.dup(channel.fd)) as sock, contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)

    def _drop(self, connection: Connection) -> None:
        self.selector.close_channel(connection.id)
        self._forget(connection.id)

    def _forget(self, connection_id: str) -> None:
        connection = self._connections.pop(connection_id, None)
        if connection is not None:
            connection.is_open = False
            connection.slots.clear()
            connection.backlog.clear()
            self._server.connection_ended(connection.peer)


def _handle(broker: BrokerServices, api: Api, context: RequestContext, body: memoryview, *, max_elements: int) -> bool:
    """Decode a request and pass it to its handler, which answers now or later. Any thread.

    Returns False if the connection is to be closed. Raises TooManyElementsError for more than `max_elements` elements,
    unless that is the limit for every thread.
    """
    try:
        # Not exact: librdkafka 2.16 appends bytes of another version to its request for all topics, and Kafka ignores
        # trailing bytes, too.
        message = decode(requests[api.key], context.api_version, body, max_elements=max_elements, exact=False)
        fault = context.fault = broker.control.intercept(context, message)
        if fault is not None:
            if fault.close:
                return False
            if fault.response is not None:
                context.respond(fault.response)
                return True
        response = api.handle(broker, context, message)
        if response is not None:
            context.respond(response)
    except MalformedMessageError as wrong:
        if isinstance(wrong, TooManyElementsError) and max_elements < MAX_REQUEST_ELEMENTS:
            raise
        _log.info("broker %d: closing %s: %s", broker.node_id, context.connection.id, wrong)
        return False
    except Exception:
        # A defect in a handler closes only the connection that hit it, and the traceback is logged.
        _log.exception("broker %d: a request on %s failed", broker.node_id, context.connection.id)
        return False
    return True


def _seen(
    broker: BrokerServices, connection: Connection, header: RequestHeader, size_bytes: int, now_ms: float
) -> RequestSeen:
    return RequestSeen(
        broker.node_id,
        header.api_key,
        header.api_version,
        header.client_id,
        header.correlation_id,
        connection.id,
        size_bytes,
        now_ms,
    )
