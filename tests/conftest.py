"""Fixtures that every kind of test may use."""

from __future__ import annotations

from support.apache_kafka.fixtures import apache_kafka, apache_kafka_cluster, pytest_collection_modifyitems

__all__ = ["apache_kafka", "apache_kafka_cluster", "pytest_collection_modifyitems"]
