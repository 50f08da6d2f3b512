"""How a notebook shows a producer: its state, what it has sent, and the keys that were set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..network.config import DEFAULT
from ..network.notebook import table
from .metrics import PRODUCER

if TYPE_CHECKING:
    from .engine import Engine

#: Metric -> its label.
_SHOWN = {
    "record-send-total": "records sent",
    "record-send-rate": "records/s",
    "byte-total": "bytes sent",
    "batch-size-avg": "bytes per batch",
    "request-latency-avg": "request latency, ms",
    "record-retry-total": "records retried",
    "record-error-total": "records failed",
    "buffer-available-bytes": "buffer memory available",
    "buffer-total-bytes": "buffer memory",
}


def producer_html(kind: str, engine: Engine, is_closed: bool) -> str:
    """The tables of a producer. `kind`: the name of its class. Secrets are masked. Any thread; never waits."""
    cluster = engine.metadata.cluster
    brokers = "not known yet" if cluster.is_bootstrap else ", ".join(str(node) for node in cluster.nodes.values())
    values = engine.metrics.registry.by_group().get(PRODUCER, {})
    rows = [("state", "closed" if is_closed else "open"), ("brokers", brokers)]
    rows += [(label, values[name]) for name, label in _SHOWN.items() if name in values]
    config = engine.config
    given = [
        (entry.name, entry.text(getattr(config, entry.attribute)), config.origins[entry.name])
        for entry in config.entries
        if config.origins[entry.name] != DEFAULT
    ]
    return table(f"{kind} {engine.client_id}", rows) + table("Configuration", given, ("key", "value", "from"))
