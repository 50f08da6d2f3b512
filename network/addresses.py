"""Parses and formats `host:port` addresses, with IPv6 addresses in brackets."""

import re
from typing import NamedTuple

# Sets rather than a regular expression, whose compilation would take longer than importing most modules.
_DIGITS_AND_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_IN_HOST = frozenset(_DIGITS_AND_LETTERS + "_.-")
_IN_IPV6 = frozenset("0123456789abcdefABCDEF:.")
_IN_ZONE = _IN_HOST | {"~"}

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
    # listeners have a scheme: PLAINTEXT://host:9092
    scheme, slashes, authority = text.partition("://") if "://" in text else ("", "", text)
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        _, colon, digits = rest.partition(":")
        is_sound = bool(bracket) and _is_ipv6(host) and rest == colon + digits
    else:
        host, colon, digits = authority.partition(":")
        is_sound = bool(host) and _IN_HOST.issuperset(host)
    if colon:
        is_sound = is_sound and digits.isascii() and digits.isdigit()
    if not is_sound or not _IN_HOST.issuperset(scheme) or (not colon and default_port is None):
        raise ValueError(_what_is_wrong(text))
    if slashes and scheme.upper() != "PLAINTEXT":
        raise ValueError(_what_is_wrong_with_scheme(text, scheme))
    port = int(digits) if colon else default_port
    if port is None or not 1 <= port <= 65535:
        raise ValueError(f"{text!r} has the port {digits}; ports go from 1 to 65535")
    return Address(host, port)


def _is_ipv6(host: str) -> bool:
    """Whether the text in brackets has the characters of an IPv6 address, perhaps with a zone."""
    address, percent, zone = host.partition("%")
    return bool(address) and _IN_IPV6.issuperset(address) and bool(zone) == bool(percent) and _IN_ZONE.issuperset(zone)


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
