"""Requests to the schema registry's REST API, over urllib3: several addresses, retries, bounded waits, typed errors."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping
from http.client import HTTPResponse
from typing import Any, NamedTuple, cast
from urllib.parse import unquote, urlencode, urlsplit

from ..network.clock import SYSTEM_CLOCK, Clock
from ..network.protocol.errors import KafkaConfigurationError
from ..network.security.token_http import DeadlineReader
from .config import ClientConfig
from .errors import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    NotASchemaRegistryError,
    SchemaNotFoundError,
    SchemaRegistryAuthenticationError,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
)
from .forks import renew_after_fork

#: The largest response that is read.
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_RETRIABLE = frozenset({408, 429, 500, 502, 503, 504})
_CHUNK_BYTES = 64 * 1024
_POOLED_CONNECTIONS = 4
#: The longest part of a response that a message quotes.
_QUOTED = 300
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_ERRORS: dict[int, type[SchemaRegistryError]] = {
    401: SchemaRegistryAuthenticationError,
    403: SchemaRegistryAuthenticationError,
    404: SchemaNotFoundError,
    409: IncompatibleSchemaError,
    422: InvalidSchemaError,
}


class Purpose(NamedTuple):
    """What a request is for, as its error describes it."""

    #: As in "register a schema".
    action: str
    subject: str | None = None
    schema: str | None = None

    def __str__(self) -> str:
        named = [f"{name} {value!r}" for name, value in (("subject", self.subject), ("schema", self.schema)) if value]
        return f"can't {self.action}" + (f" ({', '.join(named)})" if named else "")


class _FailedAttempt(Exception):
    """A failure that another address or a later attempt may not have. Holds the parts of the final error."""

    def __init__(self, text: str, status: int | None = None, code: int = -1, said: str = "") -> None:
        super().__init__(text)
        self.status, self.code, self.said = status, code, said


class RestClient:
    """Sends requests to the addresses of a configuration, the one that answered last first. Any thread.

    A round tries each address once. After a round without an answer it waits, with exponential backoff and full jitter,
    and begins the next one, `max.retries` times. Redirects are errors, because they would carry the credentials along.
    """

    def __init__(self, config: ClientConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        """Raises KafkaConfigurationError if urllib3 is not installed. Opens no connection."""
        try:
            import urllib3  # noqa: PLC0415  (optional)
        except ImportError as missing:
            raise KafkaConfigurationError(
                "the schema registry's client needs urllib3: pip install 'headrace[registry]'"
            ) from missing
        self._urllib3 = urllib3
        self._config = config
        self._clock = clock
        self._preferred = 0
        self._pool = self._new_pool()
        renew_after_fork(self)
        self._headers = {
            "Accept": f"{_CONTENT_TYPE}, application/vnd.schemaregistry+json, application/json",
            "Content-Type": _CONTENT_TYPE,
        }
        if config.basic_auth is not None:
            # RFC 7617: UTF-8, which urllib3's make_headers does not use
            self._headers["Authorization"] = f"Basic {base64.b64encode(config.basic_auth.encode()).decode()}"

    def _new_pool(self) -> Any:
        config, urllib3 = self._config, self._urllib3
        options: dict[str, Any] = {"maxsize": _POOLED_CONNECTIONS, "ssl_context": config.ssl_context}
        if config.proxy is None:
            return _with_deadlines(urllib3.PoolManager(**options), self._clock)
        parts = urlsplit(config.proxy)
        user = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=user) if user else None
        return _with_deadlines(urllib3.ProxyManager(config.proxy, proxy_headers=headers, **options), self._clock)

    def renew_in_child(self) -> None:
        """Open connections of the child's own."""
        self._pool = self._new_pool()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        purpose: Purpose,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send one request and return the decoded JSON. Raises the subclasses of SchemaRegistryError."""
        fields = [(name, _text(each)) for name, value in (query or {}).items() for each in _each(value)]
        encoded = None if body is None else json.dumps(body).encode()
        failures: dict[str, _FailedAttempt] = {}
        for attempt in range(self._config.max_retries + 1):
            if attempt:
                limit = min(self._config.retries_wait_ms * 2.0 ** (attempt - 1), self._config.retries_max_wait_ms)
                self._clock.sleep(random.random() * limit)
            first = self._preferred
            for offset in range(len(self._config.urls)):
                at = (first + offset) % len(self._config.urls)
                try:
                    answer = self._attempt(method, self._config.urls[at], path, purpose, fields, encoded)
                except _FailedAttempt as failed:
                    failures[self._config.urls[at]] = failed
                    continue
                self._preferred = at
                return answer
        last = list(failures.values())[-1]
        raise SchemaRegistryUnavailableError(
            f"{purpose}: no schema registry could serve the request in {self._config.max_retries + 1} attempts: "
            + "; ".join(f"{url}: {failed}" for url, failed in failures.items()),
            http_status_code=last.status,
            error_code=last.code,
            error_message=last.said,
            subject=purpose.subject,
            schema=purpose.schema,
        ) from last.__cause__

    def _attempt(
        self, method: str, url: str, path: str, purpose: Purpose, fields: list[tuple[str, str]], body: bytes | None
    ) -> Any:
        """Send the request to one address. Raises _FailedAttempt if another attempt may succeed."""
        headers = dict(self._headers)
        if self._config.bearer_headers is not None:
            headers.update(self._config.bearer_headers())
        query = "?" + urlencode(fields) if fields else ""
        try:
            response = self._pool.urlopen(
                method,
                f"{url}/{path}{query}",
                headers=headers,
                body=body,
                retries=False,
                redirect=False,
                preload_content=False,
                timeout=self._urllib3.Timeout(total=self._config.timeout_s),
            )
            try:
                content = self._read(response)
            except BaseException:
                response.close()
                raise
            response.release_conn()
        except self._urllib3.exceptions.HTTPError as failed:
            raise _FailedAttempt(_reason(failed)) from failed
        return self._answer(url, purpose, response, content)

    @staticmethod
    def _read(response: Any) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := response.read1(_CHUNK_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise _FailedAttempt(f"the response is larger than {MAX_RESPONSE_BYTES} bytes")
        return b"".join(chunks)

    def _answer(self, url: str, purpose: Purpose, response: Any, content: bytes) -> Any:
        status: int = response.status
        kind = response.headers.get("Content-Type", "")
        named = {"http_status_code": status, "subject": purpose.subject, "schema": purpose.schema}
        if 300 <= status < 400:
            target = response.headers.get("Location", "").partition("?")[0].rpartition("@")[2]
            raise NotASchemaRegistryError(
                f"{purpose}: {url} answered with a redirect ({status}) to {target or 'no address'}; redirects are not "
                "followed, so set url to the registry's own address",
                **named,
            )
        decoded: Any = None
        is_json = True
        try:
            decoded = json.loads(content) if content else None
        except ValueError:
            is_json = False
        if 200 <= status < 300:
            if is_json:
                return decoded
            raise NotASchemaRegistryError(
                f"{purpose}: {url} answered with {status} and {kind or 'no Content-Type'} instead of JSON; check that "
                "url is the address of a schema registry",
                **named,
            )
        code, said = -1, ""
        if isinstance(decoded, dict):
            code = decoded["error_code"] if isinstance(decoded.get("error_code"), int) else -1
            said = str(decoded.get("message", ""))
        shown = said[:_QUOTED] or f"{response.reason or 'no reason'}, {kind or 'no Content-Type'}"
        if status in _RETRIABLE:
            raise _FailedAttempt(f"status {status}: {shown}", status, code, said)
        if status == 404 and code == -1:
            raise NotASchemaRegistryError(
                f"{purpose}: {url} answered with 404 and {kind or 'no Content-Type'}; check that url is the address of "
                "a schema registry",
                **named,
            )
        raise _ERRORS.get(status, SchemaRegistryError)(
            f"{purpose}: {url} answered with status {status}, code {code}: {shown}",
            error_code=code,
            error_message=said,
            **named,
        )


def _with_deadlines(manager: Any, clock: Clock) -> Any:
    """Let the timeout of a request bound its whole response; urllib3 applies it to each read from the socket."""
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool  # noqa: PLC0415  (optional)

    def bounded(connection_class: Any) -> Any:
        class Bounded(connection_class):
            def getresponse(self) -> Any:
                # by now `timeout` is what connecting has left
                end_ms = clock.now_ms() + self.timeout * 1000.0
                self.response_class = lambda sock, **rest: HTTPResponse(
                    cast(Any, DeadlineReader(sock, end_ms, clock)), **rest
                )
                return super().getresponse()

        return Bounded

    manager.pool_classes_by_scheme = {
        scheme: type(pool.__name__, (pool,), {"ConnectionCls": bounded(pool.ConnectionCls)})
        for scheme, pool in (("http", HTTPConnectionPool), ("https", HTTPSConnectionPool))
    }
    return manager


def _reason(failed: Exception) -> str:
    """What failed, without the connection pool and the URL, which urllib3 puts into its messages."""
    cause = failed.__cause__ or failed.__context__
    detail = str(cause) if isinstance(cause, OSError) else str(failed).rpartition(": ")[2]
    return f"{type(failed).__name__}: {detail}"


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
