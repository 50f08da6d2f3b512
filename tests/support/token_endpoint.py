"""A real HTTP server that behaves like an identity provider's token endpoint, or as badly as a test wants."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.security.token_validators import SignedJwtValidator


class TokenRequest(NamedTuple):
    """A request that the endpoint received."""

    method: str
    target: str
    headers: dict[str, str]
    form: dict[str, str]


class TokenEndpoint:
    """Answers each request with `answer(handler)`; keeps what it received. A context manager.

    `port` is the server's; as a proxy it takes absolute targets, and CONNECT is answered with 403.
    """

    def __init__(
        self, answer: Callable[[BaseHTTPRequestHandler], object], context: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[TokenRequest] = []
        self.answer = answer
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _take(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                endpoint.requests.append(TokenRequest(self.command, self.path, dict(self.headers.items()), form))
                self.close_connection = True
                endpoint.answer(self)

            do_POST = do_GET = do_CONNECT = _take

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients that give up are what some tests are about

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port: int = self._server.server_port
        self.url = f"{'http' if context is None else 'https'}://localhost:{self.port}/oauth2/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> TokenEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def answering(
    body: bytes | dict[str, Any],
    status: int = 200,
    content_type: str = "application/json",
    headers: dict[str, str] | None = None,
) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer with a body, JSON if it is a dict."""
    content = json.dumps(body).encode() if isinstance(body, dict) else body

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if content_type:
            handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


class IdentityProvider:
    """Issues tokens of RS256 for clients whose secret is the current one."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self.authorizations: set[str] = set()
        self.is_open = True
        self.lifetime_s = 3600

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if not self.is_open:
            return answering({"error": "invalid_client"}, 401)(handler)
        token = self.token()
        self.authorizations.add(token)
        return answering({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s})(handler)

    def token(self) -> str:
        """A signed token that expires in `lifetime_s`."""
        now_s = SYSTEM_CLOCK.wall_ms() // 1000
        claims = {"sub": "orders", "iss": "https://idp", "iat": now_s, "exp": now_s + self.lifetime_s}
        return jwt.encode(claims, self._key, "RS256", {"kid": "k"})

    def validator(self) -> SignedJwtValidator:
        public = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        return SignedJwtValidator({"keys": [{**public, "kid": "k"}]}, issuer="https://idp")

    def cluster(self) -> EmbeddedCluster:
        """A cluster whose clients authenticate with this provider's tokens, not started yet."""
        return EmbeddedCluster(
            users={"internal": "x"},
            sasl_enabled_mechanisms="PLAIN,OAUTHBEARER",
            sasl_mechanism_inter_broker_protocol="PLAIN",
            sasl_oauthbearer_token_validator=self.validator(),
            connection_failed_authentication_delay_ms=0,
        )
