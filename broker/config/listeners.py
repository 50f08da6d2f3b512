"""Listeners in the format of Kafka's `listeners` and `advertised.listeners`: NAME://host:port, comma-separated."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ...network.config import Draft
from ...network.config_values import parse_list
from ...network.security.tls_config import PLAINTEXT, SECURITY_PROTOCOLS

SASL_PLAINTEXT, SASL_SSL = "SASL_PLAINTEXT", "SASL_SSL"
SASL_PROTOCOLS = (SASL_PLAINTEXT, SASL_SSL)
DEFAULT_PROTOCOL_MAP = tuple(f"{each}:{each}" for each in SECURITY_PROTOCOLS)
_LISTENER = re.compile(r"([A-Za-z0-9_-]+)://(\[[0-9A-Fa-f:%.]+\]|[^:/\[\]]*):([0-9]{1,5})")
_MAX_PORT = 65_535
_EVERY_ADDRESS = ("", "0.0.0.0", "::")


class Listener(NamedTuple):
    """An address that a broker listens on or advertises to clients. Port 0 binds a free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(value: Any) -> tuple[Listener, ...]:
    """Parse text, or a list of texts. Raises ValueError."""
    if isinstance(value, (list, tuple)) and all(isinstance(each, Listener) for each in value):
        return tuple(value)
    return tuple(map(_parse, parse_list(value)))


def show_listeners(listeners: Sequence[Listener] | None) -> str:
    return ",".join(map(str, listeners or ()))


def _parse(text: str) -> Listener:
    found = _LISTENER.fullmatch(text)
    if found is None:
        raise ValueError(f"has {text!r}, which is not NAME://host:port")
    name, host, port = found.groups()
    if int(port) > _MAX_PORT:
        raise ValueError(f"has port {port} in {text!r}, but ports go up to {_MAX_PORT}")
    return Listener(name.upper(), host.strip("[]"), int(port))


def parse_protocol_map(value: Any) -> tuple[str, ...]:
    """Parse `NAME:PROTOCOL` entries, in upper case. Raises ValueError."""
    entries = tuple(each.upper() for each in parse_list(value))
    for entry in entries:
        name, colon, protocol = entry.partition(":")
        if not name or not colon or protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"has {entry!r}, which is not NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}")
    return entries


def of_clients(listeners: Sequence[Listener], controller_names: Collection[str]) -> tuple[Listener, ...]:
    """The listeners without those of Kafka's controllers, which don't exist here."""
    controllers = {each.upper() for each in controller_names}
    return tuple(each for each in listeners if each.name not in controllers)


def protocols_of(entries: Sequence[str]) -> dict[str, str]:
    """The security protocol by listener name, from `listener.security.protocol.map`."""
    return dict(entry.split(":") for entry in entries)


def has_sasl(protocol: str) -> bool:
    """Whether clients of a listener with this security protocol authenticate with SASL."""
    return protocol in SASL_PROTOCOLS


def inter_broker_name(listeners: Sequence[Listener], config: Mapping[str, Any]) -> str:
    """The name of the listener through which brokers connect to each other: `inter.broker.listener.name`, or the first
    one of `security.inter.broker.protocol`, or else the first."""
    name = config["inter_broker_listener_name"]
    if name is not None:
        return name.upper()
    protocols = protocols_of(config["listener_security_protocol_map"])
    wanted = config["security_inter_broker_protocol"]
    return next((each.name for each in listeners if protocols.get(each.name) == wanted), listeners[0].name)


def check_listeners(draft: Draft) -> None:
    """Each listener has its own name and port, and a security protocol. An advertised address belongs to a listener,
    and clients can connect to it."""
    controllers = draft["controller_listener_names"]
    listeners = of_clients(draft["listeners"], controllers)
    if not listeners:
        draft.problem("listeners has none for clients; give at least one, such as PLAINTEXT://localhost:9092")
        return
    protocols = protocols_of(draft["listener_security_protocol_map"])
    for key, named in (("listeners", listeners), ("advertised.listeners", draft["advertised_listeners"] or ())):
        _check_names(draft, key, named)
    for each in listeners:
        _check_protocol(draft, each, protocols)
    ports = [(each.host, each.port) for each in listeners if each.port]
    if len({port for _, port in ports}) < len(ports):
        draft.problem(f"listeners has a port twice ({show_listeners(listeners)}); give each one its own")
    names = [each.name for each in listeners]
    for each in of_clients(draft["advertised_listeners"] or (), controllers):
        if each.name not in names:
            draft.problem(f"advertised.listeners has {each.name}, which is not in listeners: {', '.join(names)}")
        if each.host in _EVERY_ADDRESS or not each.port:
            draft.problem(f"advertised.listeners has {each}, which no client can connect to; give a name and a port")
    _check_inter_broker(draft, names, protocols)


def _check_names(draft: Draft, key: str, listeners: Sequence[Listener]) -> None:
    names = [each.name for each in listeners]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        draft.problem(f"{key} has {', '.join(twice)} twice; give each listener a name of its own")


def _check_protocol(draft: Draft, listener: Listener, protocols: Mapping[str, str]) -> None:
    protocol = protocols.get(listener.name)
    if protocol is None:
        draft.problem(
            f"listeners has {listener.name}, for which listener.security.protocol.map has no protocol; add "
            f"{listener.name}:{PLAINTEXT} to it"
        )


def _check_inter_broker(draft: Draft, names: Collection[str], protocols: Mapping[str, str]) -> None:
    name = draft["inter_broker_listener_name"]
    if name is None:
        wanted = draft["security_inter_broker_protocol"]
        if draft.is_explicit("security_inter_broker_protocol") and wanted not in {
            protocols.get(each) for each in names
        }:
            draft.problem(f"security.inter.broker.protocol is {wanted}, but no listener has that protocol")
        return
    if name.upper() not in names:
        draft.problem(f"inter.broker.listener.name is {name}, which is not in listeners: {', '.join(sorted(names))}")
    if draft.is_explicit("security_inter_broker_protocol"):
        draft.problem("inter.broker.listener.name and security.inter.broker.protocol exclude each other; give one")
