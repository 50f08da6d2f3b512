"""The broker's keys for transactions, with Kafka's names."""

from __future__ import annotations

from ...network.config import INT32_MAX, key
from .broker_tls_config import BrokerTlsConfig


class TransactionConfig(BrokerTlsConfig):
    """The keys of the coordinators of transactions and of their log."""

    transaction_max_timeout_ms: int = key(
        default=900_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="Maximum `transaction.timeout.ms` that a producer may request.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        default=10_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="A transaction is aborted when its timeout expires. If that fails, it is tried again after this time.",
    )
    transactional_id_expiration_ms: int = key(
        default=604_800_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="How long a transactional id without a transaction is remembered.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        default=3_600_000, at_least=1, at_most=INT32_MAX, doc="How often the broker forgets expired transactional ids."
    )
    transaction_partition_verification_enable: bool = key(
        default=True,
        doc="Whether a leader checks with the coordinator that a partition is in a producer's transaction before it "
        "appends the first batch (KIP-890).",
    )
    add_partitions_to_txn_retry_backoff_ms: int = key(
        default=20,
        at_least=1,
        at_most=INT32_MAX,
        doc="How long a leader waits before it asks again to add a partition to a transaction whose predecessor's "
        "markers are still being written.",
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = key(
        default=100,
        at_least=0,
        at_most=INT32_MAX,
        doc="How long it goes on asking before it reports that to the client.",
    )
    transaction_state_log_num_partitions: int = key(
        default=50, at_least=1, at_most=INT32_MAX, doc="Partitions of the transaction log."
    )
    transaction_state_log_replication_factor: int = key(
        default=3, at_least=1, at_most=32767, doc="Replicas of the transaction log; fewer if there are fewer brokers."
    )
    transaction_state_log_min_isr: int = key(
        default=2,
        at_least=1,
        at_most=INT32_MAX,
        doc="`min.insync.replicas` of the transaction log, at most the number of its replicas.",
    )
    transaction_state_log_segment_bytes: int = key(
        default=100 * 2**20, at_least=1, at_most=INT32_MAX, doc="Segment size of the transaction log."
    )
