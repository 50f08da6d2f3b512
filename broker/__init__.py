"""The Kafka broker embedded in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..network.protocol.api import ApiKey
    from .cluster.embedded import EmbeddedCluster
    from .cluster.processes import ProcessCluster
    from .requests.faults import Fault

__all__ = ["ApiKey", "EmbeddedCluster", "Fault", "ProcessCluster"]

# Imported on first use: pytest imports `headrace.broker.pytest_plugin` in every run, and most runs need no broker.
_MODULES = {
    "ApiKey": "..network.protocol.api",
    "EmbeddedCluster": ".cluster.embedded",
    "Fault": ".requests.faults",
    "ProcessCluster": ".cluster.processes",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
