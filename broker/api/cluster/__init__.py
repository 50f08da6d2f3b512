"""Handlers for the cluster itself: its brokers, their log directories, its controller."""

from . import alter_replica_log_dirs, describe_cluster, describe_log_dirs, describe_quorum

__all__ = ["alter_replica_log_dirs", "describe_cluster", "describe_log_dirs", "describe_quorum"]
