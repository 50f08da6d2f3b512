"""The producers that can be compared, by the name that CLIENTS= selects."""

from __future__ import annotations

from collections.abc import Sequence

from .aiokafka import Aiokafka
from .client import Client, Unavailable
from .confluent import Confluent
from .confluent_async import ConfluentAsync
from .headrace import Headrace, HeadraceInterpreted
from .headrace_async import HeadraceAsync
from .java import Java
from .kafka_python import KafkaPython

__all__ = ["CLIENTS", "Client", "Unavailable", "UnknownClientError", "select_clients"]

CLIENTS: dict[str, type[Client]] = {
    "headrace": Headrace,
    "confluent-kafka": Confluent,
    "headrace-interpreted": HeadraceInterpreted,
    "headrace-async": HeadraceAsync,
    "aiokafka": Aiokafka,
    "confluent-async": ConfluentAsync,
    "kafka-python": KafkaPython,
    "java": Java,
}


class UnknownClientError(ValueError):
    """There is no adapter of this name; the message lists those that there are."""


def select_clients(names: Sequence[str]) -> dict[str, type[Client]]:
    """The named adapters in the given order. Raises UnknownClientError."""
    for name in names:
        if name not in CLIENTS:
            raise UnknownClientError(f"unknown client {name!r}; expected one of {', '.join(CLIENTS)}")
    return {name: CLIENTS[name] for name in names}
