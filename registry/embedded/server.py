"""`EmbeddedRegistry`: the REST API on an HTTP server of the standard library."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ...network.protocol.errors import IllegalStateError
from .api import Api
from .store import SchemaStore

_log = logging.getLogger(__name__)
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
#: The largest body of a request.
MAX_BODY_BYTES = 16 * 1024 * 1024
#: The requests that are remembered.
_REMEMBERED = 10_000
_IDLE_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0


class EmbeddedRegistry:
    """A schema registry for tests, with Confluent's REST API. Keeps everything in memory.

    A context manager. `url` is the address; `requests` has the methods and targets of the last requests, as in
    "POST /subjects/orders-value/versions?normalize=false". After `close`, `start` serves the same schemas at the same
    port again. Any thread may call the methods.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """`port`: 0 takes any free one."""
        self.requests: deque[str] = deque(maxlen=_REMEMBERED)
        self._host = host
        self._port = port
        self._api = Api(SchemaStore())
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address, as in "http://127.0.0.1:8081". Raises IllegalStateError before the start without a port."""
        if self._port == 0:
            raise IllegalStateError("the registry has no port yet; use it in a with statement, or call start first")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def start(self) -> None:
        """Begin to serve. Raises OSError if the port can't be used. Has no effect on a registry that runs."""
        if self._server is not None:
            return
        server = self._server = _Server((self._host, self._port), self._api, self.requests)
        self._port = server.server_address[1]
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name=f"headrace-registry-{self._port}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and close the connections. May be called again."""
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()
            server.close_connections()

    def __enter__(self) -> EmbeddedRegistry:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # handlers wait for the next request of their connection
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: Api, requests: deque[str]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.api = api
        self.requests = requests
        self._connections: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._connections.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._connections.discard(request)
                self._changed.notify_all()

    def close_connections(self) -> None:
        """Close the connections and wait a bounded time until their threads have."""
        with self._changed:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # the client has closed it
                    continue
            self._changed.wait_for(lambda: not self._connections, _CLOSE_TIMEOUT_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("the connection of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    # the head and the body of a response are two writes
    disable_nagle_algorithm = True
    timeout = _IDLE_TIMEOUT_S

    def _serve(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            self._answer(413, {"error_code": 413, "message": f"The body has to have at most {MAX_BODY_BYTES} bytes"})
            return
        content = self.rfile.read(int(length))
        try:
            status, body = self.server.api.serve(self.command, self.path, content)
        except Exception as failed:
            _log.exception("%s %s failed", self.command, self.path)
            status, body = 500, {"error_code": 50001, "message": f"{type(failed).__name__}: {failed}"}
        self._answer(status, body)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def _answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)
