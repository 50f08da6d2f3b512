"""The broker's request handlers, one file per API. Importing this package fills `registry.apis`."""

from . import api_versions, cluster, configs, groups, records, topics, transactions

__all__ = ["api_versions", "cluster", "configs", "groups", "records", "topics", "transactions"]
