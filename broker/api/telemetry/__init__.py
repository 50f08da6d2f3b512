"""Handlers of client telemetry (KIP-714)."""

from . import get_telemetry_subscriptions, push_telemetry

__all__ = ["get_telemetry_subscriptions", "push_telemetry"]
