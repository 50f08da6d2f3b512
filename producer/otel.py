"""OpenTelemetry: ``from headrace.producer.otel import OpenTelemetryTracing``. The metrics' part is in `reporters`."""

from .plugins.tracing import OpenTelemetryTracing

__all__ = ["OpenTelemetryTracing"]
