"""Asks before a command writes a lot to a cluster that other people may use."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ..network.addresses import Address
from ..network.protocol.errors import KafkaConfigurationError


def ask_before_writing(servers: Iterable[Address], what: str, *, agreed: bool) -> None:
    """Say what is about to be written, and ask unless every server is on this machine or the user `agreed` (--yes).

    Raises KafkaConfigurationError if the user declines, or can't be asked because standard input is no terminal.
    """
    addresses = list(servers)
    where = ", ".join(map(str, addresses))
    print(f"Writing {what}, at {where}", flush=True)
    if agreed or all(address.is_loopback for address in addresses):
        return
    if not sys.stdin.isatty():
        raise KafkaConfigurationError(f"{where} is not on this machine; add --yes to write there")
    if input("This cluster is not on this machine. Write to it? [y/N] ").strip().lower() not in {"y", "yes"}:
        raise KafkaConfigurationError("nothing was written")
