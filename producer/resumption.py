"""Ending a transaction from another process than the one that wrote it. Internal: the Spark sink uses it.

A task writes and flushes in a transaction, hands it over (`KafkaProducer._hand_over_transaction`), and closes its
producer. The driver ends the transaction with EndTxn, which needs the transactional id, the producer id and the epoch
only. It may do so repeatedly: the coordinator answers the same EndTxn of the same epoch in the same way.

KIP-939 (two-phase commit) would replace this: `prepareTransaction` and `completeTransaction`, without a timeout.

Source: Flink's FlinkKafkaInternalProducer.resumeTransaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..network.addresses import Address
from ..network.backoff import ExponentialBackoff
from ..network.client.blocking_connection import BlockingConnection
from ..network.clock import SYSTEM_CLOCK, Clock
from ..network.protocol.errors import KafkaError, KafkaTimeoutError
from ..network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ..network.protocol.messages.transactions.end_txn import EndTxnRequest
from .sender import transaction_messages as messages
from .sender.transaction_errors import Reaction, reaction_to
from .sender.transaction_protocol import LAST_CLASSIC_END_TXN, Protocol, ProtocolChoice

_log = logging.getLogger(__name__)

#: Bytes of a response above which it is not one to these requests.
MAX_RESPONSE_BYTES = 1_048_576
BACKOFF_MS = 100.0
MAX_BACKOFF_MS = 1000.0

#: Opens no connection yet: `BlockingConnection` does so with the first request.
Connect = Callable[[Address], BlockingConnection]


class PreparedTransaction(NamedTuple):
    """What identifies a transaction whose records are all in the log."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def plaintext_connections(client_id: str, request_timeout_ms: float, clock: Clock = SYSTEM_CLOCK) -> Connect:
    """Connections without TLS and SASL."""

    def connect(address: Address) -> BlockingConnection:
        return BlockingConnection(
            address,
            client_id=client_id,
            timeout_ms=request_timeout_ms,
            max_response_bytes=MAX_RESPONSE_BYTES,
            clock=clock,
        )

    return connect


def end_transaction(
    prepared: PreparedTransaction,
    *,
    commit: bool,
    bootstrap_servers: Sequence[Address],
    connect: Connect,
    timeout_ms: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Commit or abort a transaction that was handed over. Repeating it is harmless. Any thread; blocks.

    `bootstrap_servers`: the addresses to start from.
    `connect`: creates connections, as `plaintext_connections` does.
    `timeout_ms`: milliseconds to retry while no coordinator is available.

    Raises KafkaTimeoutError after the timeout: the outcome is unknown, and it may be called again. Raises
    InvalidTxnStateError, ProducerFencedError or InvalidProducerIdMappingError if the coordinator has ended the
    transaction otherwise: because it expired, or because another producer took over the transactional id. Raises the
    coordinator's other errors that a retry does not help against.
    """
    backoff = ExponentialBackoff(BACKOFF_MS, MAX_BACKOFF_MS)
    deadline_ms = clock.now_ms() + timeout_ms
    attempts = 0
    while True:
        address = bootstrap_servers[attempts % len(bootstrap_servers)]
        try:
            _end_once(prepared, commit, address, connect)
        except KafkaError as error:
            if reaction_to(error) not in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
                raise
            delay_ms = backoff.backoff_ms(attempts)
            if clock.now_ms() + delay_ms >= deadline_ms:
                raise KafkaTimeoutError(
                    f"transaction {prepared} was not {'committed' if commit else 'aborted'} within {timeout_ms:.0f} "
                    f"ms: {error}"
                ) from error
            _log.debug("ending %s: %s", prepared, error)
            clock.sleep(delay_ms)
            attempts += 1
        else:
            return


def _end_once(prepared: PreparedTransaction, commit: bool, address: Address, connect: Connect) -> None:
    bootstrap = connect(address)
    try:
        request = messages.find_coordinator(
            bootstrap.api_versions(), prepared.transactional_id, messages.TRANSACTION_COORDINATOR
        )
        found = messages.coordinator_in(bootstrap.request(request))
    finally:
        bootstrap.close()
    _check(found, FindCoordinatorRequest.__name__)
    coordinator = connect(Address(found.host, found.port))
    try:
        versions = coordinator.api_versions()
        choice = ProtocolChoice()
        choice.note_coordinator(versions)
        is_tv2 = choice.choose([versions]) is Protocol.TV2
        version = versions.usable_version(EndTxnRequest, max_version=None if is_tv2 else LAST_CLASSIC_END_TXN)
        end_txn = messages.end_txn(messages.Identity(*prepared), commit=commit)
        _check(coordinator.request(end_txn, version), EndTxnRequest.__name__)
    finally:
        coordinator.close()


def _check(response: Any, request: str) -> None:
    if response.error_code:
        raise messages.broker_error(response.error_code, request.removesuffix("Request"))
