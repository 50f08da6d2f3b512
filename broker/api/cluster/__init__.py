"""Answers about the cluster itself: its brokers and their log directories."""

from . import describe_cluster, describe_log_dirs

__all__ = ["describe_cluster", "describe_log_dirs"]
