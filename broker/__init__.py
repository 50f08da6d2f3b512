"""The Kafka broker embedded in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..network.protocol.api import ApiKey
    from ..network.records.record import Record
    from .cluster.embedded import EmbeddedCluster
    from .cluster.processes import ProcessCluster
    from .keywords import BrokerKeywords
    from .requests.faults import Fault

__all__ = ["ApiKey", "BrokerKeywords", "EmbeddedCluster", "Fault", "ProcessCluster", "Record"]

# Imported on first use: pytest imports `headrace.broker.pytest_plugin` in every run, and most runs need no broker.
_MODULES = {
    "ApiKey": "..network.protocol.api",
    "BrokerKeywords": ".keywords",
    "EmbeddedCluster": ".cluster.embedded",
    "Fault": ".requests.faults",
    "ProcessCluster": ".cluster.processes",
    "Record": "..network.records.record",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
