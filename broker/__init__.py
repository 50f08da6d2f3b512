"""The Kafka broker embedded in Python."""

from .cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster"]
