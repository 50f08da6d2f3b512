"""The APIs of the wire protocol: their keys, and the request class of each supported one.

A message is declared when its module is first imported. `requests` knows every supported API and imports the module of
one when its request class is looked up, so a producer never pays for messages that only other clients send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from .api_keys import ApiKey
from .message import Request, declared_requests

__all__ = ["ApiKey", "requests"]

#: The module that declares each API's messages, within `messages`. A test compares the table with the files.
MODULES: Final = {
    ApiKey.PRODUCE: "records.produce",
    ApiKey.FETCH: "records.fetch",
    ApiKey.LIST_OFFSETS: "records.list_offsets",
    ApiKey.METADATA: "topics.metadata",
    ApiKey.OFFSET_COMMIT: "groups.offset_commit",
    ApiKey.OFFSET_FETCH: "groups.offset_fetch",
    ApiKey.FIND_COORDINATOR: "groups.find_coordinator",
    ApiKey.JOIN_GROUP: "groups.join_group",
    ApiKey.HEARTBEAT: "groups.heartbeat",
    ApiKey.LEAVE_GROUP: "groups.leave_group",
    ApiKey.SYNC_GROUP: "groups.sync_group",
    ApiKey.DESCRIBE_GROUPS: "groups.describe_groups",
    ApiKey.LIST_GROUPS: "groups.list_groups",
    ApiKey.SASL_HANDSHAKE: "security.sasl_handshake",
    ApiKey.API_VERSIONS: "api_versions",
    ApiKey.CREATE_TOPICS: "topics.create_topics",
    ApiKey.DELETE_TOPICS: "topics.delete_topics",
    ApiKey.DELETE_RECORDS: "records.delete_records",
    ApiKey.INIT_PRODUCER_ID: "records.init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "records.offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions.add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions.add_offsets_to_txn",
    ApiKey.END_TXN: "transactions.end_txn",
    ApiKey.WRITE_TXN_MARKERS: "transactions.write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "transactions.txn_offset_commit",
    ApiKey.DESCRIBE_ACLS: "security.describe_acls",
    ApiKey.CREATE_ACLS: "security.create_acls",
    ApiKey.DELETE_ACLS: "security.delete_acls",
    ApiKey.DESCRIBE_CONFIGS: "configs.describe_configs",
    ApiKey.ALTER_CONFIGS: "configs.alter_configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "cluster.alter_replica_log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "cluster.describe_log_dirs",
    ApiKey.SASL_AUTHENTICATE: "security.sasl_authenticate",
    ApiKey.CREATE_PARTITIONS: "topics.create_partitions",
    ApiKey.DELETE_GROUPS: "groups.delete_groups",
    ApiKey.ELECT_LEADERS: "topics.elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs.incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "topics.alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "topics.list_partition_reassignments",
    ApiKey.OFFSET_DELETE: "groups.offset_delete",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "security.describe_user_scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "security.alter_user_scram_credentials",
    ApiKey.DESCRIBE_QUORUM: "cluster.describe_quorum",
    ApiKey.DESCRIBE_CLUSTER: "cluster.describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "transactions.describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions.describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "transactions.list_transactions",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "telemetry.get_telemetry_subscriptions",
    ApiKey.PUSH_TELEMETRY: "telemetry.push_telemetry",
    ApiKey.LIST_CONFIG_RESOURCES: "configs.list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topics.describe_topic_partitions",
}


class _Requests(Mapping[ApiKey, type[Request]]):
    """The request class of each supported API. A lookup may import the module that declares it. Any thread."""

    def __getitem__(self, key: ApiKey) -> type[Request]:
        found = declared_requests.get(key)
        if found is None:
            import_module(f"{__package__}.messages.{MODULES[key]}")
            found = declared_requests[key]
        return found

    def __contains__(self, key: object) -> bool:
        return key in MODULES

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


requests: Final[Mapping[ApiKey, type[Request]]] = _Requests()
