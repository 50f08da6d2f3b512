"""The messages of the wire protocol, one file per API. Importing this package declares every request."""

from . import api_versions, cluster, configs, groups, records, topics

__all__ = ["api_versions", "cluster", "configs", "groups", "records", "topics"]
