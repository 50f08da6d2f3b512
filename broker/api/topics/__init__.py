"""Answers about topics: metadata, creation, deletion, partitions."""

from . import create_partitions, create_topics, delete_topics, metadata

__all__ = ["create_partitions", "create_topics", "delete_topics", "metadata"]
