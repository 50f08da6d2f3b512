"""The Kafka broker embedded in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster"]


def __getattr__(name: str) -> Any:
    # At its first use: pytest imports `headrace.broker.pytest_plugin` in every run, and most runs need no broker.
    if name == "EmbeddedCluster":
        from .cluster import EmbeddedCluster  # noqa: PLC0415

        return EmbeddedCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
