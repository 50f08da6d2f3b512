"""Messages about the cluster itself."""

from . import alter_replica_log_dirs, describe_cluster, describe_log_dirs, describe_quorum

__all__ = ["alter_replica_log_dirs", "describe_cluster", "describe_log_dirs", "describe_quorum"]
