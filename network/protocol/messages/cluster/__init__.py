"""Messages about the cluster itself."""

from . import describe_cluster, describe_log_dirs

__all__ = ["describe_cluster", "describe_log_dirs"]
