"""Reporters of the producer's metrics: ``from headrace.producer.reporters import prometheus_text``."""

from .plugins.reporters import MetricsReporter, OpenTelemetryReporter, PrometheusReporter, prometheus_text

__all__ = ["MetricsReporter", "OpenTelemetryReporter", "PrometheusReporter", "prometheus_text"]
