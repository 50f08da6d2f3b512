"""`Console`: the page and its API on an HTTP server of the standard library, on 127.0.0.1 only."""

from __future__ import annotations

import json
import logging
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...network.config import INT64_MAX
from ...network.protocol.errors import (
    BrokerResponseError,
    DisconnectedError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from .actions import Actions, choices
from .cluster import ConsoleCluster
from .feed import Feed, TooManyViewersError
from .guard import refusal
from .page import NO_TOKEN, page
from .schemas import Schemas
from .search import MAX_RECORDS, list_records, one_record

_log = logging.getLogger(__name__)

_HOST = "127.0.0.1"
MAX_BODY_BYTES = 2 * 2**20
#: Open connections, each with a thread; a browser opens up to six per page.
MAX_CONNECTIONS = 64
_IDLE_TIMEOUT_S = 20.0
_PING_S = 5.0
_POLL_S = 0.05
_CLOSE_TIMEOUT_S = 1.0
_MAX_DIGITS = 19

#: Error -> the status of the response; the first that fits.
_STATUSES: tuple[tuple[type[KafkaError], int], ...] = (
    (TooManyViewersError, 503),
    (IllegalArgumentError, 400),
    (UnknownTopicOrPartitionError, 404),
    (IllegalStateError, 409),
    (KafkaTimeoutError, 504),
    (DisconnectedError, 504),
    (BrokerResponseError, 409),
    (KafkaError, 500),
)


class Console:
    """The console of a running cluster. `start` and `close` are for the thread that owns the cluster.

    `close` leaves no thread behind, unless one waits for a broker that hangs; such a thread ends with its wait.
    """

    def __init__(self, cluster: ConsoleCluster, *, port: int = 0, schema_registry: str | None = None) -> None:
        """port: where to serve; 0 takes any free one. schema_registry: the address of the registry with whose schemas
        records are decoded."""
        self._cluster = cluster
        self._port = port
        self._schemas = None if schema_registry is None else Schemas(schema_registry)
        self._token = secrets.token_urlsafe(24)
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The page's address, with the token. Known after the start."""
        return f"http://{_HOST}:{self._port}/?token={self._token}"

    def start(self) -> None:
        """Begin to serve. Raises KafkaConnectionError if the port is in use."""
        feed = Feed(self._cluster)
        try:
            server = _Server(self._port, self._token, self._cluster, feed, self._schemas)
        except OSError as failed:
            raise KafkaConnectionError(
                f"the console can't listen on {_HOST}:{self._port}: {failed.strerror or failed}; choose another port, "
                "or console=True for any"
            ) from failed
        self._server = server
        self._port = server.server_address[1]
        feed.start()
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name=f"headrace-console-{self._port}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and end all threads. May be called again."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        server.is_closing = True
        server.shutdown()
        self._thread.join()
        server.server_close()
        server.feed.close()
        server.close_connections()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # handlers wait for the next request of their connection
    block_on_close = False

    def __init__(self, port: int, token: str, cluster: ConsoleCluster, feed: Feed, schemas: Schemas | None) -> None:
        """Raises OSError."""
        self.token = token
        self.cluster = cluster
        self.feed = feed
        self.schemas = schemas
        self.actions = Actions(cluster)
        self.is_closing = False
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__((_HOST, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name=f"headrace-console-{self.server_address[1]}-connection",
            daemon=True,
        )
        with self._lock:
            is_full = len(self._connections) >= MAX_CONNECTIONS
            if not is_full:
                self._connections[request] = thread
        if is_full:
            _log.info("closing a connection to the console: there are %d", MAX_CONNECTIONS)
            self.shutdown_request(request)
            return
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._connections.pop(request, None)

    def close_connections(self) -> None:
        """Close the connections and wait for their threads, a bounded time."""
        with self._lock:
            connections = dict(self._connections)
            for connection in connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the browser has closed it
        for thread in connections.values():
            thread.join(_CLOSE_TIMEOUT_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # the browser may close a connection at any time; anything else is a defect
        level = logging.DEBUG if isinstance(sys.exc_info()[1], OSError) else logging.ERROR
        _log.log(level, "the console's connection from %s failed", client_address, exc_info=True)


class _Rejected(Exception):
    """A request that isn't handled: the status and the message of its response."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    # the head and the body of a response are two writes
    disable_nagle_algorithm = True
    timeout = _IDLE_TIMEOUT_S

    def _serve(self) -> None:
        path = urlsplit(self.path).path
        try:
            content = self._checked_body(path)
            self._route(path, content)
        except _Rejected as rejected:
            if path == "/" and rejected.status == 403:
                self._send(403, NO_TOKEN, "text/html; charset=utf-8")
                return
            self._send_error(rejected.status, rejected.kind, str(rejected))
        except KafkaError as failed:
            status = next(status for kind, status in _STATUSES if isinstance(failed, kind))
            self._send_error(status, type(failed).__name__, str(failed))

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do_HEAD = do_OPTIONS = _serve

    # --- What comes in ---

    def _checked_body(self, path: str) -> bytes:
        """The body of a request that may come in."""
        reason = refusal(
            self.path,
            self.headers.get,
            port=self.server.server_address[1],
            token=self.server.token,
            is_page=path == "/",
        )
        length = self.headers.get("Content-Length", "0")
        if reason is not None:
            # its body, if any, is not read
            self.close_connection = True
            raise _Rejected(reason[0], "Rejected", reason[1])
        if not (length.isascii() and length.isdigit()) or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            raise _Rejected(411, "Rejected", "the request needs a Content-Length")
        if len(length) > _MAX_DIGITS or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            raise _Rejected(413, "Rejected", f"the body is larger than {MAX_BODY_BYTES} bytes")
        return self.rfile.read(int(length))

    def _json_body(self, content: bytes) -> Mapping[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise _Rejected(415, "Rejected", "the body's Content-Type is not application/json")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError) as wrong:
            raise IllegalArgumentError(f"the body is not JSON: {wrong}") from wrong
        if not isinstance(body, dict):
            raise IllegalArgumentError("the body is not a JSON object")
        return body

    # --- Routes ---

    def _route(self, path: str, content: bytes) -> None:
        actions = self.server.actions
        gets: dict[str, Callable[[], None]] = {
            "/": self._page,
            "/api/events": self._events,
            "/api/choices": lambda: self._send_json(200, choices()),
            "/api/records": self._records,
            "/api/record": self._record,
        }
        changes: dict[tuple[str, str], Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            ("POST", "/api/records"): actions.produce,
            ("POST", "/api/topics"): actions.create_topic,
            ("POST", "/api/brokers"): actions.change_broker,
            ("POST", "/api/faults"): actions.inject,
            ("DELETE", "/api/faults"): actions.remove_fault,
        }
        if self.command == "GET" and path in gets:
            gets[path]()
            return
        change = changes.get((self.command, path))
        if change is not None:
            if self.server.is_closing:
                raise IllegalStateError("the cluster is being closed")
            self._send_json(200, change(self._json_body(content)))
            return
        if path in gets or any(path == each for _, each in changes):
            raise _Rejected(405, "Rejected", f"{self.command} is not possible for {path}")
        raise _Rejected(404, "Rejected", f"there is no {path}")

    def _page(self) -> None:
        self._send(200, page().content, "text/html; charset=utf-8")

    def _records(self) -> None:
        query = self._query(("topic", "partition", "offset", "timestamp", "count", "key"))
        offset, timestamp = _whole(query, "offset"), _whole(query, "timestamp")
        if offset is not None and timestamp is not None:
            raise IllegalArgumentError("offset and timestamp exclude each other; give one of them")
        count = _whole(query, "count")
        if count is not None and not 1 <= count <= MAX_RECORDS:
            raise IllegalArgumentError(f"count is {count}; give a number from 1 to {MAX_RECORDS}")
        found = list_records(
            self.server.cluster,
            _topic(query),
            _whole(query, "partition"),
            offset=offset,
            timestamp=timestamp,
            count=50 if count is None else count,
            contains=query.get("key"),
            decode=self._decode,
        )
        self._send_json(200, found)

    def _record(self) -> None:
        query = self._query(("topic", "partition", "offset"))
        partition, offset = _whole(query, "partition"), _whole(query, "offset")
        if partition is None or offset is None:
            raise IllegalArgumentError("give topic, partition and offset")
        self._send_json(200, one_record(self.server.cluster, _topic(query), partition, offset, self._decode))

    @property
    def _decode(self) -> Any:
        schemas = self.server.schemas
        return None if schemas is None else schemas.decode

    def _query(self, known: tuple[str, ...]) -> dict[str, str]:
        try:
            given = parse_qs(urlsplit(self.path).query, keep_blank_values=False, max_num_fields=20)
        except ValueError as wrong:
            raise IllegalArgumentError(f"the address is not valid: {wrong}") from wrong
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise IllegalArgumentError(f"{', '.join(unknown)} would have no effect here; give {', '.join(known)}")
        return {name: values[-1] for name, values in given.items()}

    def _events(self) -> None:
        """Send events until the page or the console closes (server-sent events)."""
        viewer = self.server.feed.subscribe()
        self.close_connection = True
        try:
            self._send_head(200, "text/event-stream; charset=utf-8", None)
            while (events := viewer.next_events(_PING_S)) is not None:
                # a comment shows whether the page is still there
                text = "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events) or ": ping\n\n"
                self.wfile.write(text.encode())
        except OSError:
            _log.debug("a page of the console has closed")
        finally:
            self.server.feed.unsubscribe(viewer)

    # --- What goes out ---

    def _send_json(self, status: int, body: Any) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send_error(self, status: int, kind: str, message: str) -> None:
        self._send_json(status, {"error": {"type": kind, "message": message}})

    def _send(self, status: int, content: bytes, content_type: str) -> None:
        self._send_head(status, content_type, len(content))
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_head(self, status: int, content_type: str, size_bytes: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if size_bytes is not None:
            self.send_header("Content-Length", str(size_bytes))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", page().policy)
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()

    def version_string(self) -> str:
        return "headrace"

    def log_message(self, format: str, *args: Any) -> None:
        # without the address, which has the token
        _log.debug("%s %s", self.command, urlsplit(self.path).path)


def _topic(query: Mapping[str, str]) -> str:
    if "topic" not in query:
        raise IllegalArgumentError("give a topic")
    return query["topic"]


def _whole(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS or int(text) > INT64_MAX:
        raise IllegalArgumentError(f"{name} is {text!r}; give a whole number, 0 or more")
    return int(text)
