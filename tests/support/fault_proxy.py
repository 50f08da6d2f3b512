"""A TCP proxy between clients and one broker that injects network faults on a test's request.

    with FaultProxy(("127.0.0.1", broker_port)) as proxy:
        producer = KafkaProducer(bootstrap_servers=proxy.bootstrap_servers)
        fault = proxy.response(ApiKey.PRODUCE, nth=3).cut(at=10)  # 10 bytes of the third response pass
        ...
        fault.wait()

It knows frame boundaries and which response belongs to which request (by correlation id), and nothing else of Kafka; it
uses no code under test. A stream without frames passes unchanged. In responses that contain the broker's address, the
proxy replaces the port by its own, so that clients stay on the proxy whatever the broker advertises.

One thread moves all bytes and carries out all requests of the test; a call returns when its request is done, so nothing
here races with the test. Without faults the proxy is a wire.
"""

from __future__ import annotations

import contextlib
import enum
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, NamedTuple

from headrace.network.clock import SYSTEM_CLOCK

How = Literal["reset", "close"]

_CHUNK_BYTES = 256 * 1024
# buffered for a slow or stalled receiver before the sender is blocked
_MAX_WAITING_BYTES = 1024 * 1024
_MAX_FRAME_BYTES = 256 * 1024 * 1024
_LINGER_0 = struct.pack("ii", 1, 0)
# responses with brokers' addresses and without records: Produce, Metadata, FindCoordinator, DescribeCluster
_ANSWERS_WITH_ADDRESSES = frozenset({0, 3, 10, 60})
_PATIENCE_S = 60.0


class Direction(enum.Enum):
    TO_BROKER = "to broker"
    TO_CLIENT = "to client"


_BOTH = tuple(Direction)


class SeenRequest(NamedTuple):
    """A request from a client, whether or not the proxy passed it on."""

    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    size_bytes: int


class Fault:
    """A fault that a test has requested."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._happened = threading.Event()
        self.released = False
        self.count = 0

    @property
    def happened(self) -> bool:
        return self._happened.is_set()

    def wait(self) -> None:
        """Wait until it has happened at least once."""
        if not self._happened.wait(_PATIENCE_S):
            raise AssertionError(f"in {_PATIENCE_S:.0f} s there was no opportunity to {self._description}")

    def happens(self) -> None:
        """Called by the proxy."""
        self.count += 1
        self._happened.set()


class _Rule:
    """What to do with the nth matching frame and the `times - 1` after it."""

    def __init__(self, fault: Fault, api_key: int | None, nth: int, times: float) -> None:
        self.fault = fault
        self.drop = False
        self.cut_at: int | None = None
        self.how: How = "reset"
        self.delay_ms = 0.0
        self.trickle = False
        self.hold = False
        self._api_key = api_key
        self._before = nth - 1
        self._times = times

    def matches(self, request: SeenRequest) -> bool:
        if self._times <= 0 or (self._api_key is not None and request.api_key != self._api_key):
            return False
        if self._before > 0:
            self._before -= 1
            return False
        self._times -= 1
        return True


class Trigger:
    """A future request or response; its methods schedule faults. If several match a frame, the oldest applies."""

    def __init__(
        self, proxy: FaultProxy, direction: Direction, api_key: int | None, nth: int, times: float, description: str
    ) -> None:
        if nth < 1:
            raise ValueError("requests are counted from 1")
        self._proxy = proxy
        self._direction = direction
        self._what = (api_key, nth, times)
        self._description = description

    def drop(self) -> Fault:
        """Drop it; the connection stays open."""
        return self._install("lose", lambda rule: setattr(rule, "drop", True))

    def cut(self, *, at: int, how: How = "reset") -> Fault:
        """Pass on its first `at` bytes, including its length prefix, then end the connection on both sides. A reset may
        overtake bytes that the receiver's kernel has not taken yet; a close never does."""

        def change(rule: _Rule) -> None:
            rule.cut_at = at
            rule.how = how

        return self._install(f"cut at byte {at}", change)

    def delay(self, duration_ms: float) -> Fault:
        """Delay it, and everything after it on its connection, by `duration_ms`."""
        return self._install("delay", lambda rule: setattr(rule, "delay_ms", duration_ms))

    def trickle(self) -> Fault:
        """Pass it on one byte at a time."""
        return self._install("trickle", lambda rule: setattr(rule, "trickle", True))

    def hold(self) -> Fault:
        """Keep it, and everything after it on its connection, until `FaultProxy.release`."""
        return self._install("hold", lambda rule: setattr(rule, "hold", True))

    def _install(self, action: str, change: Callable[[_Rule], None]) -> Fault:
        rule = _Rule(Fault(f"{action} {self._description}"), *self._what)
        change(rule)
        self._proxy.install(self._direction, rule)
        return rule.fault


class _Piece:
    """Bytes in flight, and what delays them."""

    __slots__ = ("data", "end", "fault", "hold", "not_before_ms", "trickle")

    def __init__(self, data: bytes, not_before_ms: float, *, trickle: bool, rule: _Rule | None = None) -> None:
        self.data = memoryview(data)
        self.not_before_ms = not_before_ms
        self.trickle = trickle
        self.hold: Fault | None = None
        self.fault: Fault | None = None  # happens when this has been sent
        self.end: How | None = None  # how to end the connection once this has been sent
        if rule is not None:
            self.not_before_ms += rule.delay_ms
            self.trickle |= rule.trickle
            self.hold = rule.fault if rule.hold else None
            self.fault = None if rule.hold else rule.fault
            if rule.cut_at is not None:
                self.data = self.data[: rule.cut_at]
                self.end = rule.how


class _Flow:
    """One direction of one connection."""

    def __init__(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        self.direction = direction
        self.source = source
        self.sink = sink
        self.incoming = bytearray()
        self.raw = False  # this stream has no frames
        self.waiting: deque[_Piece] = deque()
        self.at_end = False  # the source has shut down its side
        self.discards = False  # incoming bytes are dropped
        self.finish = False  # shut down the sink after sending what waits
        self.finished = False

    @property
    def reads(self) -> bool:
        return not self.at_end and (
            self.discards or sum(len(piece.data) for piece in self.waiting) < _MAX_WAITING_BYTES
        )

    def end(self) -> None:
        self.discards = True
        self.finish = True


class _Connection:
    def __init__(self, number: int, client: socket.socket, broker: socket.socket) -> None:
        self.number = number
        self.client = client
        self.broker = broker
        self.flows = {
            Direction.TO_BROKER: _Flow(Direction.TO_BROKER, client, broker),
            Direction.TO_CLIENT: _Flow(Direction.TO_CLIENT, broker, client),
        }
        self.unanswered: dict[int, tuple[SeenRequest, _Rule | None]] = {}
        self.closed = False

    def end(self, how: How) -> None:
        for flow in self.flows.values():
            flow.waiting.clear()
            flow.end()
        if how == "reset":
            self.close(reset=True)

    def close(self, *, reset: bool = False) -> None:
        self.closed = True
        for sock in (self.client, self.broker):
            if reset:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
            sock.close()


class _ByteLimit(NamedTuple):
    fault: Fault
    direction: Direction
    how: How
    left: dict[int, int]  # by connection


class FaultProxy:
    """Listens on its own loopback port while it is open. Its methods are for the test's thread."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        """Where new connections go; may be changed, for example when a broker restarts on another port."""
        self.requests: list[SeenRequest] = []
        """All requests from clients so far, in order."""
        self.connection_count = 0
        """The number of connections accepted so far."""
        # Bound but not listening, this socket reserves the port while the proxy rejects connections.
        self._holder = _bound_socket(("127.0.0.1", 0))
        self.host, self.port = self._holder.getsockname()
        self.ports = {upstream[1]: self.port}
        """Replacements for ports in brokers' responses. For a cluster with several proxies, give each all ports."""
        self._listener: socket.socket | None = None
        self._connections: list[_Connection] = []
        self._rules: dict[Direction, list[_Rule]] = {direction: [] for direction in Direction}
        self._byte_limits: list[tuple[_ByteLimit, int]] = []
        self._delay_ms = dict.fromkeys(Direction, 0.0)
        self._trickles = dict.fromkeys(Direction, False)
        self._stalled: set[Direction] = set()
        self._seen = threading.Condition()
        self._calls: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._open = True
        self._failure: BaseException | None = None
        self._listen()
        self._thread = threading.Thread(target=self._run, name=f"fault-proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    # --- Faults: requests and responses ---

    def request(self, api_key: int | None = None, *, nth: int = 1, times: float = 1) -> Trigger:
        """The nth request from now on with this API key (None: any key), on any connection, and the ones after it,
        `times` in total (math.inf: all)."""
        return Trigger(self, Direction.TO_BROKER, api_key, nth, times, f"request {nth} of API {api_key}")

    def response(self, api_key: int | None = None, *, nth: int = 1, times: float = 1) -> Trigger:
        """The response to the request that `request` would select."""
        return Trigger(self, Direction.TO_CLIENT, api_key, nth, times, f"the answer to request {nth} of API {api_key}")

    def release(self, fault: Fault) -> None:
        """Pass on what a `hold` keeps."""

        def run() -> None:
            fault.released = True

        self._call(run)

    def wait_for_requests(self, count: int, api_key: int | None = None) -> list[SeenRequest]:
        """Wait until `count` requests (of an API) have come since the start, and return them."""

        def found() -> list[SeenRequest]:
            return [each for each in self.requests if api_key is None or each.api_key == api_key]

        with self._seen:
            if not self._seen.wait_for(lambda: len(found()) >= count, _PATIENCE_S):
                raise AssertionError(f"after {_PATIENCE_S:.0f} s only these requests of API {api_key} came: {found()}")
            return found()

    # --- Faults: connections and bytes ---

    def refuse(self) -> None:
        """Reject new connections until `heal`. Established ones stay open."""
        self._call(self._stop_listening)

    def reset(self) -> None:
        """Reset all connections."""
        self._call(lambda: self._end_all("reset"))

    def close_connections(self) -> None:
        """Close all connections in an orderly way."""
        self._call(lambda: self._end_all("close"))

    def half_close(self, direction: Direction) -> None:
        """Pass nothing more on in one direction of all connections, and shut down the receiver's side."""

        def run() -> None:
            for connection in self._connections:
                connection.flows[direction].end()

        self._call(run)

    def cut_after(self, size_bytes: int, direction: Direction, *, how: How = "reset") -> Fault:
        """End the first connection that passes `size_bytes` more bytes in that direction, at exactly that byte."""
        fault = Fault(f"cut a connection after {size_bytes} bytes {direction.value}")
        limit = _ByteLimit(fault, direction, how, {})
        self._call(lambda: self._byte_limits.append((limit, size_bytes)))
        return fault

    def stall(self, *directions: Direction) -> None:
        """Pass nothing on in these directions (default: both) until `heal`. New connections are accepted, but stall."""
        self._call(lambda: self._stalled.update(directions or _BOTH))

    def delay(self, duration_ms: float, *directions: Direction) -> None:
        """Delay all bytes by `duration_ms` until `heal`."""
        self._call(lambda: self._delay_ms.update(dict.fromkeys(directions or _BOTH, duration_ms)))

    def trickle(self, *directions: Direction) -> None:
        """Pass on one byte at a time, until `heal`."""
        self._call(lambda: self._trickles.update(dict.fromkeys(directions or _BOTH, True)))

    def heal(self) -> None:
        """Be a wire again: clear all rules, pass on what was delayed or stalled, and accept new connections."""

        def run() -> None:
            for rules in self._rules.values():
                rules.clear()
            self._byte_limits.clear()
            self._stalled.clear()
            self._delay_ms = dict.fromkeys(Direction, 0.0)
            self._trickles = dict.fromkeys(Direction, False)
            for connection in self._connections:
                for flow in connection.flows.values():
                    for piece in flow.waiting:
                        piece.not_before_ms = 0.0
                        piece.trickle = False
                        piece.hold = None
            if self._listener is None:
                self._listen()

        self._call(run)

    def close(self) -> None:
        """End everything. Idempotent. Raises the error that ended the proxy's thread, if any."""
        if self._thread.is_alive():

            def run() -> None:
                self._open = False

            self._call(run)
            self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- Between the threads ---

    def install(self, direction: Direction, rule: _Rule) -> None:
        """Called by `Trigger`."""
        self._call(lambda: self._rules[direction].append(rule))

    def _call(self, run: Callable[[], None]) -> None:
        """Run on the proxy's thread and wait for the result."""
        done = threading.Event()
        self._calls.append((run, done))
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"\0")
        while not done.wait(0.1):
            if not self._thread.is_alive():
                raise AssertionError("the fault proxy is closed") from self._failure

    # --- The proxy's thread ---

    def _run(self) -> None:
        try:
            while self._open:
                self._turn()
        except BaseException as error:  # `close` raises it, on the test's thread
            self._failure = error
        finally:
            self._stop_listening()
            for connection in self._connections:
                connection.close()
            for sock in (self._holder, self._wake_reader, self._wake_writer):
                sock.close()

    def _turn(self) -> None:
        """Wait until bytes can be moved or a call is pending, and do that."""
        now_ms = SYSTEM_CLOCK.now_ms()
        poller = select.poll()
        interest: dict[int, int] = {}
        deadline_ms = now_ms + 60_000
        for connection in self._connections:
            for flow in connection.flows.values():
                stalled = flow.direction in self._stalled
                if flow.reads and not stalled:
                    fd = flow.source.fileno()
                    interest[fd] = interest.get(fd, 0) | select.POLLIN
                if flow.waiting and not stalled:
                    piece = flow.waiting[0]
                    if piece.not_before_ms > now_ms:
                        deadline_ms = min(deadline_ms, piece.not_before_ms)
                    elif piece.hold is None or piece.hold.released:
                        fd = flow.sink.fileno()
                        interest[fd] = interest.get(fd, 0) | select.POLLOUT
        for fd, events in interest.items():
            poller.register(fd, events)
        poller.register(self._wake_reader, select.POLLIN)
        if self._listener is not None:
            poller.register(self._listener, select.POLLIN)
        ready = dict(poller.poll(deadline_ms - now_ms))

        if ready.pop(self._wake_reader.fileno(), 0):
            self._wake_reader.recv(1000)
        while self._calls:
            run, done = self._calls.popleft()
            run()
            done.set()
        if self._listener is not None and ready.get(self._listener.fileno()):
            self._accept(self._listener)
        for connection in self._connections:
            self._move(connection, ready)
        self._connections = [connection for connection in self._connections if not connection.closed]

    def _move(self, connection: _Connection, ready: dict[int, int]) -> None:
        events = {sock: ready.get(sock.fileno(), 0) for sock in (connection.client, connection.broker)}
        try:
            for flow in connection.flows.values():
                if events[flow.source] & ~select.POLLOUT and flow.reads and flow.direction not in self._stalled:
                    self._read(connection, flow)
            for flow in connection.flows.values():
                if events[flow.sink] & ~select.POLLIN and flow.waiting and not connection.closed:
                    self._write(connection, flow)
            if not connection.closed:
                self._finish(connection)
        except OSError:
            connection.end("reset")  # one side has gone, so the other one must see it

    def _read(self, connection: _Connection, flow: _Flow) -> None:
        try:
            data = flow.source.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            flow.at_end = True
            flow.finish = True
            if flow.incoming and not flow.discards:
                self._pass_on(connection, flow, bytes(flow.incoming))
        elif not flow.discards:
            flow.incoming += data
            self._cut_frames(connection, flow)

    def _cut_frames(self, connection: _Connection, flow: _Flow) -> None:
        incoming = flow.incoming
        least = 8 if flow.direction is Direction.TO_BROKER else 4
        while len(incoming) >= 4 and not flow.raw and not flow.discards:
            size = 4 + int.from_bytes(incoming[:4], "big", signed=True)
            if not 4 + least <= size <= _MAX_FRAME_BYTES:
                flow.raw = True
            elif len(incoming) < size:
                return
            else:
                frame = bytes(incoming[:size])
                del incoming[:size]
                if flow.direction is Direction.TO_BROKER:
                    self._take_request(connection, flow, frame)
                else:
                    self._take_response(connection, flow, frame)
        if flow.raw:
            self._pass_on(connection, flow, bytes(incoming))
            incoming.clear()

    def _take_request(self, connection: _Connection, flow: _Flow, frame: bytes) -> None:
        request = SeenRequest(connection.number, *struct.unpack_from(">hhi", frame, 4), len(frame))
        # every rule counts every request
        matching = {side: [rule for rule in rules if rule.matches(request)] for side, rules in self._rules.items()}
        connection.unanswered[request.correlation_id] = request, next(iter(matching[Direction.TO_CLIENT]), None)
        self._pass_on(connection, flow, frame, next(iter(matching[Direction.TO_BROKER]), None))
        with self._seen:
            self.requests.append(request)
            self._seen.notify_all()

    def _take_response(self, connection: _Connection, flow: _Flow, frame: bytes) -> None:
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        request, rule = connection.unanswered.pop(correlation_id, (None, None))
        if request is not None and request.api_key in _ANSWERS_WITH_ADDRESSES:
            for port, replacement in self.ports.items():
                for host in {self.upstream[0], "127.0.0.1", "localhost"}:
                    # the port follows the host in every version of these responses
                    old, new = (host.encode() + each.to_bytes(4, "big") for each in (port, replacement))
                    frame = frame.replace(old, new)
        self._pass_on(connection, flow, frame, rule)

    def _pass_on(self, connection: _Connection, flow: _Flow, data: bytes, rule: _Rule | None = None) -> None:
        if rule is not None and rule.drop:
            rule.fault.happens()
            return
        not_before_ms = SYSTEM_CLOCK.now_ms() + self._delay_ms[flow.direction]
        piece = _Piece(data, not_before_ms, trickle=self._trickles[flow.direction], rule=rule)
        if piece.hold is not None:
            piece.hold.happens()
        for limit, size_bytes in self._byte_limits:
            if limit.direction is flow.direction and piece.end is None:
                left = limit.left.get(connection.number, size_bytes) - len(piece.data)
                limit.left[connection.number] = left
                if left <= 0:
                    piece.data = piece.data[: len(piece.data) + left]
                    piece.end = limit.how
                    piece.fault = limit.fault
                    self._byte_limits = [each for each in self._byte_limits if each[0] is not limit]
                    break
        flow.waiting.append(piece)
        if piece.end is not None:
            flow.discards = True

    def _write(self, connection: _Connection, flow: _Flow) -> None:
        now_ms = SYSTEM_CLOCK.now_ms()
        while flow.waiting:
            piece = flow.waiting[0]
            if piece.not_before_ms > now_ms or (piece.hold is not None and not piece.hold.released):
                return
            if piece.data:
                try:
                    sent = flow.sink.send(piece.data[:1] if piece.trickle else piece.data)
                except BlockingIOError:
                    return
                piece.data = piece.data[sent:]
                if piece.data:
                    return
            flow.waiting.popleft()
            if piece.end is not None:
                connection.end(piece.end)
            if piece.fault is not None:
                piece.fault.happens()
            if connection.closed:
                return

    def _finish(self, connection: _Connection) -> None:
        for flow in connection.flows.values():
            if flow.finish and not flow.finished and not flow.waiting and flow.direction not in self._stalled:
                flow.finished = True
                flow.sink.shutdown(socket.SHUT_WR)
        if all(flow.at_end and flow.finished for flow in connection.flows.values()):
            connection.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        self.connection_count += 1
        try:
            broker = socket.create_connection(self.upstream, timeout=_PATIENCE_S)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_0)
            client.close()
            return
        for sock in (client, broker):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connections.append(_Connection(self.connection_count, client, broker))

    def _end_all(self, how: How) -> None:
        for connection in self._connections:
            connection.end(how)

    def _listen(self) -> None:
        self._listener = _bound_socket((self.host, self.port))
        self._listener.listen(100)
        self._listener.setblocking(False)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def _bound_socket(address: tuple[str, int]) -> socket.socket:
    sock = socket.socket()
    # two sockets may share a port if both set SO_REUSEADDR before they bind and at most one of them listens
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address)
    return sock
