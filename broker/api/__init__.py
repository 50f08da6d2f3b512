"""The broker's request handlers, one file per API. Importing this package fills `registry.apis`."""

from . import acls, api_versions, cluster, configs, groups, records, security, telemetry, topics, transactions

__all__ = [
    "acls",
    "api_versions",
    "cluster",
    "configs",
    "groups",
    "records",
    "security",
    "telemetry",
    "topics",
    "transactions",
]
