"""From a host name to the addresses to try (KIP-235, KIP-602)."""

from __future__ import annotations

import codecs
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..protocol.errors import UnresolvableHostError

# `getaddrinfo` encodes names with it, and finds it by an import: too late for a forked child that is about to end.
codecs.lookup("idna")


class ResolvedAddress(NamedTuple):
    """One address of a host: what `socket.socket(family).connect(sockaddr)` takes."""

    family: int
    sockaddr: Any


#: Called with a host and a port, and never blocks: gives at least one address, None while the name is being looked up,
#: or raises UnresolvableHostError.
Resolver = Callable[[str, int], Sequence[ResolvedAddress] | None]


def resolve_host(host: str, port: int) -> Sequence[ResolvedAddress]:
    """Ask the system's resolver for every address of `host`, in the system's order of preference.

    Blocks for as long as the system's resolver takes, on the thread that calls it (for a client, see `NameLookups`).
    Raises UnresolvableHostError when the name is unknown or isn't a possible host name.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # UnicodeError: a label that is empty or too long for the idna codec never reaches the name server
        raise UnresolvableHostError(
            f"cannot resolve host name {host!r} (port {port}): {error}. "
            "Check bootstrap.servers, the brokers' advertised.listeners and this machine's name service."
        ) from error
    addresses = _addresses(found)
    if not addresses:
        raise UnresolvableHostError(f"host name {host!r} has no addresses")
    return addresses


def numeric_addresses(host: str, port: int) -> Sequence[ResolvedAddress] | None:
    """The address that `host` spells, without asking any name service; None for a name. Never blocks."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return _addresses(found) or None


def _addresses(found: Sequence[tuple[Any, ...]]) -> list[ResolvedAddress]:
    return list(dict.fromkeys(ResolvedAddress(int(family), sockaddr) for family, _, _, _, sockaddr in found))


def canonical_host_names(host: str, port: int) -> Sequence[str]:
    """The names that the addresses of `host` themselves have, an address where it has none.

    For `client.dns.lookup=resolve_canonical_bootstrap_servers_only` (KIP-235): behind one bootstrap name there may be
    many brokers, and authentication wants the name of each. Blocks, on the thread that calls it; raises
    UnresolvableHostError.
    """
    names = (socket.getnameinfo(sockaddr, socket.NI_NUMERICSERV)[0] for _, sockaddr in resolve_host(host, port))
    return list(dict.fromkeys(names))
