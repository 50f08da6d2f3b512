"""Ending a transaction from another process than the one that wrote it. Internal: the Spark sinks use it.

A task writes and flushes in a transaction, hands it over (`KafkaProducer._hand_over_transaction`), and closes its
producer. The driver ends the transaction with EndTxn, which needs the transactional id, the producer id and the epoch
only. It may do so repeatedly: the coordinator answers the same EndTxn of the same epoch in the same way.

KIP-939 (two-phase commit) would replace this: `prepareTransaction` and `completeTransaction`, without a timeout.

Source: Flink's FlinkKafkaInternalProducer.resumeTransaction, its TransactionAborter, and Kafka's Admin.fenceProducers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ..network.addresses import Address
from ..network.protocol.errors import KafkaError, TransactionalIdNotFoundError
from ..network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from ..network.protocol.messages.transactions.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from ..network.protocol.messages.transactions.end_txn import EndTxnRequest
from ..network.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from .blocking_cluster import BlockingCluster
from .sender import transaction_messages as messages
from .sender.transaction_errors import Reaction, reaction_to
from .sender.transaction_protocol import LAST_CLASSIC_END_TXN, Protocol, ProtocolChoice

#: The state of a transaction that is open, in the words of DescribeTransactions.
ONGOING = "Ongoing"
#: Milliseconds: the timeout of a transaction that is never begun, as in Java's Admin.fenceProducers.
_FENCING_TIMEOUT_MS = 1


class PreparedTransaction(NamedTuple):
    """What identifies a transaction whose records are all in the log."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class AbandonedTransactions:
    """The transactions of producers that are gone: ends, describes, lists and fences them. For one thread.

    Every method blocks, and raises KafkaTimeoutError if the brokers don't answer in the cluster's time. The outcome is
    unknown then; the call may be repeated. It raises the brokers' other errors that a retry does not help against.
    """

    def __init__(self, cluster: BlockingCluster) -> None:
        """`cluster`: the connections, which the caller closes."""
        self._cluster = cluster
        self._coordinators: dict[str, Address] = {}

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort a transaction that was handed over. Repeating it is harmless.

        Raises InvalidTxnStateError, ProducerFencedError or InvalidProducerIdMappingError if the coordinator has ended
        the transaction otherwise: because it expired, or because another producer took over the transactional id.
        """
        request = messages.end_txn(messages.Identity(*prepared), commit=commit)

        def attempt(coordinator: Address) -> None:
            versions = self._cluster.connection(coordinator).api_versions()
            choice = ProtocolChoice()
            choice.note_coordinator(versions)
            is_tv2 = choice.choose([versions]) is Protocol.TV2
            version = versions.usable_version(EndTxnRequest, max_version=None if is_tv2 else LAST_CLASSIC_END_TXN)
            response = self._cluster.connection(coordinator).request(request, version)
            _check(response.error_code, "EndTxn")

        self._at_coordinator(f"{'committing' if commit else 'aborting'} {prepared}", prepared.transactional_id, attempt)

    def fence(self, transactional_id: str, timeout_ms: int = _FENCING_TIMEOUT_MS) -> None:
        """Abort the open transaction of an id, if there is one, and fence its producer.

        Raises InvalidTransactionTimeoutError if the brokers' ``transaction.max.timeout.ms`` is below `timeout_ms`.
        """
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        def attempt(coordinator: Address) -> None:
            _check(self._cluster.ask(request, coordinator).error_code, "InitProducerId")

        self._at_coordinator(f"fencing {transactional_id!r}", transactional_id, attempt)

    def describe(self, transactional_ids: Iterable[str]) -> Mapping[str, DescribedTransaction | None]:
        """The transactions by id; None for an id that the coordinator doesn't know.

        Raises UnsupportedVersionError on Kafka before 3.0 (KIP-664).
        """
        found: dict[str, DescribedTransaction | None] = {}
        wanted = set(transactional_ids)

        def attempt() -> None:
            by_coordinator: dict[Address, list[str]] = {}
            for each in sorted(wanted - found.keys()):
                by_coordinator.setdefault(self._coordinator(each), []).append(each)
            for coordinator, ids in by_coordinator.items():
                response = self._cluster.ask(DescribeTransactionsRequest(transactional_ids=ids), coordinator)
                for described in response.transaction_states:
                    is_known = described.error_code != TransactionalIdNotFoundError.code
                    if is_known:
                        _check(described.error_code, "DescribeTransactions")
                    found[described.transactional_id] = described if is_known else None

        def once() -> None:
            try:
                attempt()
            except KafkaError:
                self._coordinators.clear()
                raise

        self._cluster.retrying("DescribeTransactions", once)
        return found

    def ongoing(self, pattern: str) -> list[str]:
        """The ids with an open transaction that match a regular expression, sorted.

        Raises UnsupportedVersionError on Kafka before 3.0 (KIP-664).
        """
        request = ListTransactionsRequest(state_filters=[ONGOING], producer_id_filters=[])
        matches = re.compile(pattern).fullmatch

        def attempt() -> list[str]:
            found = set()
            for broker in self._cluster.brokers().values():
                response = self._cluster.ask(request, broker)
                _check(response.error_code, "ListTransactions")
                found.update(each.transactional_id for each in response.transaction_states)
            return sorted(filter(matches, found))

        return self._cluster.retrying("ListTransactions", attempt)

    def _at_coordinator(self, what: str, transactional_id: str, attempt: Callable[[Address], None]) -> None:
        """Call `attempt` with the coordinator's address until it succeeds or fails for good."""

        def once() -> None:
            try:
                attempt(self._coordinator(transactional_id))
            except KafkaError as error:
                if reaction_to(error) is Reaction.FIND_COORDINATOR:
                    self._coordinators.pop(transactional_id, None)
                raise

        self._cluster.retrying(what, once)

    def _coordinator(self, transactional_id: str) -> Address:
        known = self._coordinators.get(transactional_id)
        if known is None:
            versions = self._cluster.connection().api_versions()
            request = messages.find_coordinator(versions, transactional_id, messages.TRANSACTION_COORDINATOR)
            response = messages.coordinator_in(self._cluster.ask(request))
            _check(response.error_code, "FindCoordinator")
            known = self._coordinators[transactional_id] = Address(response.host, response.port)
        return known


def _check(code: int, request: str) -> None:
    if code:
        raise messages.broker_error(code, request)
