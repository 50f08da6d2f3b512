"""Resolves a host name to the addresses to try (KIP-235, KIP-602)."""

import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..protocol.errors import UnresolvableHostError


class ResolvedAddress(NamedTuple):
    """One address of a host, as for `socket.socket(family).connect(sockaddr)`."""

    family: int
    sockaddr: Any


#: Called with a host and a port. Never blocks. Returns at least one address, or None while the name is being looked up.
#: Raises UnresolvableHostError.
Resolver = Callable[[str, int], Sequence[ResolvedAddress] | None]


def resolve_host(host: str, port: int) -> Sequence[ResolvedAddress]:
    """Every address of `host` from the system's resolver, in the system's order of preference.

    Blocks the calling thread for as long as the resolver takes (for a client, see `NameLookups`). Raises
    UnresolvableHostError if the name is unknown or is not a valid host name.
    """
    try:
        found = socket.getaddrinfo(_encoded(host), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # UnicodeError: from the idna codec
        raise UnresolvableHostError(
            f"cannot resolve host name {host!r} (port {port}): {error}. "
            "Check bootstrap.servers, the brokers' advertised.listeners and this machine's name service."
        ) from error
    addresses = _addresses(found)
    if not addresses:
        raise UnresolvableHostError(f"host name {host!r} has no addresses")
    return addresses


def numeric_addresses(host: str, port: int) -> Sequence[ResolvedAddress] | None:
    """The address if `host` is a numeric one; None for a name. Never blocks and asks no name service."""
    try:
        found = socket.getaddrinfo(_encoded(host), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return _addresses(found) or None


def _encoded(host: str) -> bytes:
    # `getaddrinfo` would encode any text with the idna codec: its import takes 1.3 ms, and fails in a forked child that
    # is exiting
    return host.encode("ascii" if host.isascii() else "idna")


def _addresses(found: Sequence[tuple[Any, ...]]) -> list[ResolvedAddress]:
    return list(dict.fromkeys(ResolvedAddress(int(family), sockaddr) for family, _, _, _, sockaddr in found))


def canonical_host_names(host: str, port: int) -> Sequence[str]:
    """The canonical names of the addresses of `host`. An address without a name is returned as it is.

    For `client.dns.lookup=resolve_canonical_bootstrap_servers_only` (KIP-235): one bootstrap name may stand for many
    brokers, and authentication needs the name of each. Blocks the calling thread. Raises UnresolvableHostError.
    """
    names = (socket.getnameinfo(sockaddr, socket.NI_NUMERICSERV)[0] for _, sockaddr in resolve_host(host, port))
    return list(dict.fromkeys(names))
