"""Parses and formats `host:port` addresses, with IPv6 addresses in brackets."""

from __future__ import annotations

import re
from typing import NamedTuple

# Listeners have a scheme (PLAINTEXT://host:9092). A host in brackets is an IPv6 address, perhaps with a zone.
_ADDRESS = re.compile(
    r"(?:(?P<scheme>[0-9A-Za-z_.-]*)://)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[0-9A-Za-z_.~-]+)?)\]|(?P<host>[0-9A-Za-z_.-]+))"
    r"(?::(?P<port>[0-9]+))?"
)


#: The default port of a bootstrap address in librdkafka, kafka-python and aiokafka. Java rejects one without a port.
DEFAULT_PORT = 9092


class Address(NamedTuple):
    """An unresolved host name or IP address, and a port from 1 to 65535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine's own: `localhost` or a loopback address. Other names are not looked up."""
        from ipaddress import ip_address  # noqa: PLC0415 - few programs ask

        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(text: str, default_port: int | None = None) -> Address:
    """Parse `host:port`, `[ipv6]:port` or `PLAINTEXT://host:port`. With `default_port` the port is optional.

    Raises ValueError with the problem of `text`. Any thread. Resolves nothing.
    """
    text = text.strip()
    match = _ADDRESS.fullmatch(text)
    if match is None or (match["port"] is None and default_port is None):
        raise ValueError(_what_is_wrong(text))
    scheme = match["scheme"]
    if scheme is not None and scheme.upper() != "PLAINTEXT":
        raise ValueError(_what_is_wrong_with_scheme(text, scheme))
    port = default_port if match["port"] is None else int(match["port"])
    if port is None or not 1 <= port <= 65535:
        raise ValueError(f"{text!r} has the port {match['port']}; ports go from 1 to 65535")
    return Address(match["ipv6"] or match["host"], port)


def _what_is_wrong(text: str) -> str:
    if "@" in text:
        return f"'***@{text.rpartition('@')[2]}' has a user name or password in it; write host:port only"
    separator = re.search(r"[\s;,]", text)
    if separator is not None:
        if separator[0] == ",":
            return f"{text!r} has a comma in it; make each address an item of its own"
        found = "whitespace" if separator[0].isspace() else "a semicolon"
        return f"{text!r} has {found} in it; separate addresses with commas"
    scheme, slashes, authority = text.rpartition("://")
    if slashes and scheme.upper() != "PLAINTEXT":
        return _what_is_wrong_with_scheme(text, scheme)
    if "/" in authority:
        return f"{text!r} has a path; write host:port only"
    if authority.startswith("["):
        if "]" not in authority:
            return f"{text!r} has no closing bracket; write an IPv6 address as [::1]:9092"
        if authority.endswith("]"):
            return f"{text!r} has no port; write {authority}:9092"
        return f"{text!r} is not [IPv6 address]:port"
    if authority.count(":") > 1:
        return f"{text!r} has several colons; put an IPv6 address in brackets, as in [::1]:9092"
    host, colon, port = authority.partition(":")
    if not colon or not port:
        return f"{text!r} has no port; write {host or 'localhost'}:9092"
    if not host:
        return f"{text!r} has no host; write localhost{authority}"
    if not port.isascii() or not port.isdigit():
        return f"{text!r} has the port {port!r}, which is not a number"
    return f"{text!r} has characters that no host name has"


def _what_is_wrong_with_scheme(text: str, scheme: str) -> str:
    return f"{text!r} asks for {scheme or 'an empty scheme'}://, but only plain host:port is supported"
