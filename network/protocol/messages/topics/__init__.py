"""Messages about topics."""

from . import create_partitions, create_topics, delete_topics, metadata

__all__ = ["create_partitions", "create_topics", "delete_topics", "metadata"]
