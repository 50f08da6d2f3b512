"""One bounded HTTP request to an identity provider: no redirects, a deadline for the whole response, a size limit.

It stands on http.client: of what a larger HTTP library adds (redirects, cookies, retries, connection pools), a token
request must not have the first two, and the caller does the third. Proxies are those of the environment, as urllib
finds them (`https_proxy`, `no_proxy`).
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import socket
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from ..clock import SYSTEM_CLOCK, Clock
from ..protocol.errors import KafkaConfigurationError, RetriableError, SaslAuthenticationFailedError
from .token import scrubbed

#: The largest response that is read.
MAX_RESPONSE_BYTES = 1024 * 1024

#: Clocks that differ by more are mentioned in errors.
NOTABLE_SKEW_SECONDS = 30

#: The status codes for which another attempt is unlikely to help (Kafka's HttpJwtRetriever).
_PERMANENT = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})


class Response(NamedTuple):
    """A response that was read completely. Its repr does not show the body, which may hold a token."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes)"


class Endpoint:
    """An http or https URL and how to reach it. One thread at a time. The repr shows the URL without its query."""

    def __init__(
        self,
        url: str,
        *,
        connect_timeout_ms: float,
        read_timeout_ms: float,
        make_context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Store the arguments.

        `connect_timeout_ms` limits each connection attempt (one per address of the name) and the TLS handshake;
        resolving the name has no limit.
        `read_timeout_ms` limits sending the request and reading the whole response.
        `make_context` is called for each https request, so that changed files of certificates are used.

        Raises KafkaConfigurationError if the URL is not usable.
        """
        problem = url_problem(url)
        if problem is not None:
            raise KafkaConfigurationError(f"the URL {shown_url(url)} {problem}")
        self._url = urlsplit(url)
        self._connect_timeout_s = connect_timeout_ms / 1000.0
        self._read_timeout_s = read_timeout_ms / 1000.0
        self._make_context = make_context
        self._clock = clock

    def __repr__(self) -> str:
        return shown_url(self._url.geturl())

    def post_form(
        self, form: str, headers: Mapping[str, str] | None = None, secrets: tuple[str | None, ...] = ()
    ) -> dict[str, Any]:
        """Post an encoded form and return the JSON object of the response.

        `secrets` are masked wherever the endpoint's answer is quoted.

        Raises RetriableError if another attempt may succeed, otherwise SaslAuthenticationFailedError, with what the
        endpoint answered.
        """
        fixed = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return self._json_of(self._post(form.encode("ascii"), {**fixed, **(headers or {})}), secrets)

    # --- The request ---

    def _post(self, form: bytes, headers: Mapping[str, str]) -> Response:
        connection, target, extra = self._connection()
        stage = f"connecting to {connection.host}:{connection.port}"
        try:
            # a proxy answers while connecting
            self._read_until(connection, self._connect_timeout_s)
            connection.connect()
            stage = "waiting for the response"
            self._read_until(connection, self._read_timeout_s)
            assert connection.sock is not None
            connection.sock.settimeout(self._read_timeout_s)
            connection.request("POST", target, form, {**extra, **headers})
            answer = connection.getresponse()
            body = answer.read(MAX_RESPONSE_BYTES + 1)
            if answer.length and len(body) <= MAX_RESPONSE_BYTES:
                raise http.client.IncompleteRead(b"", answer.length)
            received = dict(answer.headers.items())
        except TimeoutError as error:
            timeout_s, key = (
                (self._read_timeout_s, "sasl.login.read.timeout.ms")
                if stage.startswith("waiting")
                else (self._connect_timeout_s, "sasl.login.connect.timeout.ms")
            )
            raise RetriableError(f"{self!r}: no answer within {timeout_s:g} s ({key}) while {stage}") from error
        except ssl.SSLCertVerificationError as error:
            raise SaslAuthenticationFailedError(
                f"{self!r}: the certificate is not trusted: {error.verify_message} (code {error.verify_code}). Give "
                "the certificate authority as https.ca.location or https.ca.pem"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            what = scrubbed(str(error)) or type(error).__name__
            raise RetriableError(f"{self!r}: failed while {stage}: {what}") from error
        finally:
            connection.close()
        if len(body) > MAX_RESPONSE_BYTES:
            raise SaslAuthenticationFailedError(f"{self!r}: the response has more than {MAX_RESPONSE_BYTES} bytes")
        return Response(answer.status, answer.reason, {name.lower(): value for name, value in received.items()}, body)

    def _read_until(self, connection: http.client.HTTPConnection, timeout_s: float) -> None:
        """Let the connection read its next response within a timeout. http.client only needs `makefile` of a socket."""
        end_ms = self._clock.now_ms() + timeout_s * 1000.0
        connection.response_class = lambda sock, **rest: http.client.HTTPResponse(  # type: ignore[assignment]
            DeadlineReader(sock, end_ms, self._clock),  # type: ignore[arg-type]
            **rest,
        )

    def _connection(self) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        """A connection, not open yet, the target of the request line, and the headers for a proxy."""
        url = self._url
        is_https = url.scheme == "https"
        host, port = url.hostname or "", url.port or (443 if is_https else 80)
        path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
        proxy = self._proxy(host, port)
        at_host, at_port = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        proxy_headers = {} if proxy is None else _proxy_authorization(proxy)
        if not is_https:
            connection = http.client.HTTPConnection(at_host, at_port, timeout=self._connect_timeout_s)
            return connection, path if proxy is None else f"http://{url.netloc}{path}", proxy_headers
        try:
            context = self._make_context()
        except (OSError, ValueError) as error:
            raise SaslAuthenticationFailedError(
                f"{self!r}: the certificate authorities can't be loaded (https.ca.location, https.ca.pem): {error}"
            ) from error
        connection = http.client.HTTPSConnection(at_host, at_port, timeout=self._connect_timeout_s, context=context)
        if proxy is not None:
            connection.set_tunnel(host, port, proxy_headers)
        return connection, path, {}

    def _proxy(self, host: str, port: int) -> SplitResult | None:
        given = urllib.request.getproxies().get(self._url.scheme)
        if not given or urllib.request.proxy_bypass(f"{host}:{port}"):
            return None
        proxy = urlsplit(given if "://" in given else f"http://{given}")
        if proxy.scheme != "http" or not proxy.hostname:
            raise SaslAuthenticationFailedError(
                f"{self!r}: the environment names the proxy {shown_url(proxy.geturl())}; only http:// proxies are "
                "supported. Set no_proxy to reach the endpoint directly"
            )
        return proxy

    # --- The response ---

    def _json_of(self, response: Response, secrets: tuple[str | None, ...]) -> dict[str, Any]:
        status = response.status
        if 300 <= status < 400:
            target = shown_url(response.headers.get("location", "")) or "an unknown place"
            raise SaslAuthenticationFailedError(
                f"{self!r}: answered {status}, a redirect to {target}, which is not followed because the request holds "
                "credentials; configure the final URL"
            )
        if not 200 <= status < 300:
            error_class = SaslAuthenticationFailedError if status in _PERMANENT else RetriableError
            said = scrubbed(_error_of(response), secrets)
            reason = scrubbed(response.reason, secrets)
            raise error_class(f"{self!r}: answered {status} {reason}: {said}{self._skew(response)}")
        if not response.body:
            # http.client takes a connection that is cut in the headers for a complete answer, too
            raise RetriableError(f"{self!r}: answered {status} without content; expected a JSON object")
        try:
            answer = json.loads(response.body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            kind = scrubbed(response.headers.get("content-type", "no content type"), secrets)
            raise SaslAuthenticationFailedError(
                f"{self!r}: answered {status} with {len(response.body)} bytes of {kind}; expected a JSON object. Is it "
                "the URL of a token endpoint?"
            )
        return answer

    def _skew(self, response: Response) -> str:
        """A hint if the endpoint's clock differs: assertions and tokens are then not valid yet, or no longer."""
        try:
            theirs_s = parsedate_to_datetime(response.headers.get("date", "")).timestamp()
        except (ValueError, TypeError, OverflowError):
            return ""
        ahead_s = theirs_s - self._clock.wall_ms() / 1000.0
        if abs(ahead_s) < NOTABLE_SKEW_SECONDS:
            return ""
        return f" (its clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's)"


def ca_context(location: str | None, pem: str | None) -> ssl.SSLContext:
    """A context that verifies by the given authorities, a path (file or directory) or PEM text; else by the system's.

    Raises OSError or ValueError if they can't be loaded.
    """
    if location is None and pem is None:
        return ssl.create_default_context()
    is_folder = location is not None and os.path.isdir(location)
    return ssl.create_default_context(
        cafile=None if is_folder else location, capath=location if is_folder else None, cadata=pem
    )


def url_problem(url: str, schemes: tuple[str, ...] = ("http", "https")) -> str | None:
    """Why a URL can't be used, or None. The text continues a sentence that begins with the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL ({error})"
    if parts.scheme not in schemes:
        return f"begins with {parts.scheme + ':' if parts.scheme else 'no scheme'}; expected {', '.join(schemes)}"
    if parts.scheme == "file":
        return None if parts.path and not parts.netloc else "names no local file; expected file:///PATH"
    if not parts.hostname or port == 0:
        return "names no host"
    if parts.username is not None or parts.password is not None:
        return "has a user name or password; give the credentials by their own keys"
    if any(not each.isascii() or each.isspace() or not each.isprintable() for each in url):
        return "has white space or characters outside of ASCII"
    return None


def shown_url(url: str) -> str:
    """A URL for messages: without user, query and fragment, which may hold secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    prefix = f"{parts.scheme}:" if parts.scheme else ""
    return scrubbed(f"{prefix}{'//' if host else ''}{host}{parts.path}")


def _error_of(response: Response) -> str:
    """The error of a token response (RFC 6749, section 5.2; Okta's names, too), or what came instead."""
    try:
        answer = json.loads(response.body)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        names = ("error", "error_description", "errorCode", "errorSummary")
        return " - ".join(str(answer[name]) for name in names if answer.get(name)) or "no error code"
    kind = response.headers.get("content-type", "no content type")
    return f"{len(response.body)} bytes of {kind}" if response.body else "no content"


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials).decode('ascii')}"}


class DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline, not with a timeout per read: a byte a minute is no answer."""

    def __init__(self, sock: socket.socket, end_ms: float, clock: Clock) -> None:
        super().__init__()
        self._sock = sock
        # as http.client does it: keeps the socket open when the connection is closed before the body is read
        self._file = sock.makefile("rb", buffering=0)
        self._end_ms = end_ms
        self._clock = clock

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining_s = (self._end_ms - self._clock.now_ms()) / 1000.0
        if remaining_s <= 0:
            raise TimeoutError("the deadline of the response has passed")
        self._sock.settimeout(remaining_s)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()
