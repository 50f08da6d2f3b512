"""A client of the console's API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TIMEOUT_S = 60


class ConsoleClient:
    """Asks a console by its URL. Each request has its own connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        assert parts.port is not None
        self.port = parts.port
        self.token = parse_qs(parts.query)["token"][0]

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str | None] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request with the token; `headers` replace or (None) remove what the page would send."""
        sent: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", "X-Headrace-Token": self.token}
        if body is not None:
            sent.update({"Content-Type": "application/json", "Content-Length": str(len(body))})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {**sent, **(headers or {})}.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request that succeeds."""
        status, _, content = self.raw(method, path, None if body is None else json.dumps(body).encode())
        assert status == 200, content
        return json.loads(content)

    def error(self, method: str, path: str, body: Any = None) -> tuple[int, str, str]:
        """The status, the type and the message of a request that fails."""
        status, _, content = self.raw(method, path, None if body is None else json.dumps(body).encode())
        found = json.loads(content)["error"]
        return status, found["type"], found["message"]

    def records(self, topic: str, **query: Any) -> dict[str, Any]:
        return self.ask("GET", "/api/records?" + urlencode({"topic": topic, **query}))

    def events(self) -> EventStream:
        return EventStream(self)


class EventStream:
    """An open page's events. A context manager."""

    def __init__(self, client: ConsoleClient) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=TIMEOUT_S)
        self._connection.request("GET", "/api/events", headers={"X-Headrace-Token": client.token})
        self.answer = self._connection.getresponse()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self._connection.close()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """The names and data; ends when the console closes the stream."""
        name = ""
        while line := self.answer.readline():
            field, _, text = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = text
            elif field == "data":
                yield name, json.loads(text)

    def until(self, name: str, fits: Any) -> Any:
        """The first data of an event that fit."""
        return next(data for found, data in self if found == name and fits(data))
