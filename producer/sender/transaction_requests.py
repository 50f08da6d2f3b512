"""The requests of a transactional producer, and which of its batches may be sent. Sender thread.

Theory of operation. The sender calls `step` once per turn. One request is in flight at a time, and which one comes next
follows from the state of the `Transaction`: find the coordinator, InitProducerId, partitions and offsets of the open
transaction, EndTxn once no batch is unanswered. A retry is the same decision again after a backoff. So a request that
the state no longer calls for is not repeated.

There are two protocols, and a transaction keeps the one it begins with. In the classic one, AddPartitionsToTxn and
AddOffsetsToTxn announce what a transaction will contain, and the client requests a new epoch (InitProducerId) after an
abort that leaves a gap in the sequence numbers. In the second (KIP-890, "TV2"), Produce and TxnOffsetCommit announce
their partitions themselves, and EndTxn returns the next epoch. TV2 is used if the cluster's finalized feature
``transaction.version`` is at least 2 and the APIs have the versions for it.

If the coordinator rejects EndTxn as fenced, either another producer has taken over the transactional id, or the
transaction expired: the coordinator then aborts it and increments the epoch by one (KIP-588). InitProducerId with the
incremented epoch distinguishes the two. It succeeds only if no other producer has initialized since.

Source: Kafka's TransactionManager and Sender.maybeSendAndPollTransactionalRequest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...network.client.api_versions import NodeApiVersions
from ...network.client.request import ClientResponse, KafkaClient
from ...network.clock import LONG_AGO_MS, NEVER_MS, Clock
from ...network.cluster import Node
from ...network.metadata import Metadata
from ...network.protocol.errors import (
    InvalidProducerIdMappingError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    TransactionAbortedError,
    UnsupportedVersionError,
)
from . import transaction_messages as messages
from .transaction import OffsetsToCommit, State, Transaction
from .transaction_errors import FATAL_FOR_BATCHES, Reaction, expired, reaction_to, taken_over, timeout_too_long
from .transaction_protocol import (
    LAST_CLASSIC_END_TXN,
    LAST_CLASSIC_OFFSET_COMMIT,
    LAST_CLASSIC_PRODUCE,
    Protocol,
    ProtocolChoice,
)

if TYPE_CHECKING:
    from ..accumulator.accumulator_cy import RecordAccumulator
    from ..accumulator.batch_cy import ProducerBatch
    from .transaction_manager_cy import TransactionManager

_log = logging.getLogger(__name__)

#: AddPartitionsToTxn 4 and later are for brokers.
LAST_ADD_PARTITIONS_OF_CLIENTS = 3
#: The first version of InitProducerId with the producer's epoch (KIP-360), and of TxnOffsetCommit with the member
#: (KIP-447).
FIRST_INIT_WITH_EPOCH = 3
FIRST_OFFSET_COMMIT_WITH_MEMBER = 3
MAX_EPOCH = 2**15 - 1
#: A coordinator has a connection of its own, under a node id that no broker has (like Java's consumer).
COORDINATOR_IDS_FROM = 2**31 - 1
#: Milliseconds before the first partitions of a transaction are added again while the previous one is being completed
#: (Kafka's ADD_PARTITIONS_RETRY_BACKOFF_MS).
CONCURRENT_BACKOFF_MS = 20.0


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to be sent. `make` creates the message, for the versions of its node; `answered` takes the response."""

    name: str
    make: Callable[[NodeApiVersions], Any]
    answered: Callable[[Any], None]
    #: Whether it goes to a coordinator: that of `group`, or of the transactional id without one.
    to_coordinator: bool = True
    group: str | None = None
    min_version: int | None = None
    max_version: int | None = None


class TransactionRequests:
    """Sends the requests of a `Transaction`. Sender thread only."""

    def __init__(
        self,
        transaction: Transaction,
        *,
        client: KafkaClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        manager: TransactionManager,
        clock: Clock,
        timeout_ms: int,
        max_block_ms: float,
        request_timeout_ms: float,
        retry_backoff: Callable[[int], float],
    ) -> None:
        """Send nothing before `Transaction.init`.

        `transaction`: the state.
        `client`: the connections to the brokers.
        `metadata`: the cluster's metadata.
        `accumulator`: the batches to send.
        `manager`: producer id and sequence numbers.
        `clock`: the time source.
        `max_block_ms`: milliseconds that a close waits for the end of a transaction.
        `timeout_ms`: milliseconds after which the coordinator aborts a transaction (``transaction.timeout.ms``).
        `request_timeout_ms`: milliseconds to wait for a response.
        `retry_backoff`: maps a number of attempts to the milliseconds before the next one.
        """
        self.transaction = transaction
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._manager = manager
        self._timeout_ms = timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff = retry_backoff
        #: The sender's function that fails a batch.
        self.fail_batch: Callable[..., None] = _fail_nothing
        self._clock = clock
        self._max_block_ms = max_block_ms
        self._close_by_ms = NEVER_MS
        self._is_waiting = False
        self._attempts = 0
        self._retry_at_ms = LONG_AGO_MS
        #: The coordinators by group; that of the transactional id under None.
        self._coordinators: dict[str | None, Node] = {}
        self._choice = ProtocolChoice()
        # the transaction that is open or was the last one
        self._number = 0
        self._protocol = Protocol.CLASSIC
        self._enrolled: set[tuple[str, int]] = set()
        self._new: dict[tuple[str, int], None] = {}
        #: Whether the coordinator may know of the transaction, and whether it certainly does.
        self._is_started = False
        self._is_confirmed = False
        self._is_end_sent = False
        self._is_end_in_doubt = False
        self._needs_epoch = False
        self._is_mapping_lost = False
        self._is_probing = False
        self._now_ms = LONG_AGO_MS
        # what the current step has found
        self._has_new = self._has_ended = False

    # --- Called by the sender ---

    def step(self, now_ms: float) -> float:
        """Do what the state calls for. Returns in how many milliseconds to call again, if nothing happens before."""
        self._now_ms = now_ms
        self._has_new = self._has_ended = False
        transaction = self.transaction
        if transaction.error is not None or transaction.is_doomed:
            self._drop_waiting()
        if transaction.state is State.IN_TRANSACTION or self._number != transaction.number:
            self._follow()
        if transaction.state is State.COMMITTING:
            # as `flush` does: send without lingering
            self._accumulator.flushes[self] = True
        else:
            self._accumulator.flushes.pop(self, None)
        if self._is_waiting:
            return NEVER_MS
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms - now_ms
        request = self._next()
        if request is not None:
            return self._send(request, now_ms)
        # a sender that closes checks again whether it is done
        return 0.0 if self._has_ended else NEVER_MS

    @property
    def is_started(self) -> bool:
        """Whether the coordinator may know of the transaction. Any thread, while nothing is in flight."""
        return self._is_started

    @property
    def looks_again(self) -> bool:
        """Whether `step` has to be called again at once, because a batch waits for its partition to be added."""
        return self._has_new

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the batch may be sent within the transaction now."""
        state = self.transaction.state
        if state is State.IN_TRANSACTION or state is State.COMMITTING:
            if self._is_end_sent and self._number == self.transaction.number:
                return False
        elif not self.transaction.is_doomed or batch.base_sequence < 0:
            # an aborted transaction retries what a broker may have, so that nothing of it arrives after the end
            return False
        self._follow()
        if self._protocol is Protocol.TV2:
            return True
        partition = (batch.topic, batch.partition)
        if partition in self._enrolled:
            return True
        if partition not in self._new:
            self._new[partition] = None
            self._has_new = True
        return False

    def produce_versions(self, max_version: int | None) -> tuple[int | None, int | None]:
        """The lowest and highest version of a produce request, whose highest is `max_version` for other reasons."""
        if self._protocol is Protocol.TV2:
            self._is_started = True
            return LAST_CLASSIC_PRODUCE + 1, max_version
        return None, LAST_CLASSIC_PRODUCE if max_version is None else min(max_version, LAST_CLASSIC_PRODUCE)

    def delivered(self, batch: ProducerBatch) -> bool:
        """A batch was acknowledged. Fails it and returns True if the transaction is doomed."""
        self._is_confirmed = True
        if batch.done or not self.transaction.is_doomed:
            return False
        self.fail_batch(batch, self.transaction.aborted_error(), adjust=False)
        return True

    def batch_failed(self, batch: ProducerBatch, error: KafkaError) -> None:
        """A batch has failed, so the transaction can't be committed."""
        if isinstance(error, TransactionAbortedError):
            return
        if batch.has_sequence:
            # its sequence numbers are a gap: the batches of the next transaction need a new epoch
            self._needs_epoch = True
        if isinstance(error, FATAL_FOR_BATCHES):
            self.transaction.fatal(error)
        else:
            self.transaction.abortable(error)

    def _drop_waiting(self) -> None:
        """Fail the waiting batches of a doomed transaction, except those that a broker may have: they are retried."""
        transaction, accumulator = self.transaction, self._accumulator
        if not accumulator.has_incomplete:
            return
        is_fatal = transaction.state is State.FATAL_ERROR
        error = transaction.error if is_fatal else transaction.aborted_error()
        assert error is not None
        for batch in accumulator.take_everything():
            if batch.has_sequence and not is_fatal:
                accumulator.drainer.note_deadline(batch)
                accumulator.queue_of(batch).put_in_sequence(batch)
            else:
                self.fail_batch(batch, error, adjust=True)

    def close(self) -> None:
        """Abort an open transaction while the producer closes; `is_ending` then limits the time for it."""
        self._close_by_ms = self._clock.now_ms() + self._max_block_ms
        self.transaction.close()

    def is_ending(self, now_ms: float) -> bool:
        """Whether a producer that closes has to wait for the end of a transaction, at most ``max.block.ms``."""
        return self.transaction.is_ending and now_ms < self._close_by_ms

    # --- What comes next ---

    def _follow(self) -> None:
        """Begin the transaction that the program has begun."""
        number = self.transaction.number
        if self._number == number:
            return
        self._number = number
        self._protocol = self._choose_protocol()
        self._enrolled.clear()
        self._new.clear()
        self._is_started = self._is_confirmed = False
        self._is_end_sent = self._is_end_in_doubt = False
        self._is_mapping_lost = self._is_probing = self._needs_epoch = False
        _log.debug("transaction %d of %r: %s", number, self.transaction.transactional_id, self._protocol.value)

    def _choose_protocol(self) -> Protocol:
        nodes = (*self._metadata.cluster.nodes, *(node.id for node in self._coordinators.values()))
        reported = map(self._client.api_versions, nodes)
        return self._choice.choose(versions for versions in reported if versions is not None)

    def _next(self) -> _Request | None:
        """The next request; None if there is nothing to request now."""
        transaction = self.transaction
        state = transaction.state
        if state is State.INITIALIZING:
            return self._init(-1, -1)
        if state is State.BUMPING:
            return self._init(self._manager.producer_id, self._manager.producer_epoch)
        if state is State.IN_TRANSACTION or state is State.COMMITTING:
            if self._is_probing:
                return self._probe()
            offsets = transaction.offsets()
            if offsets is not None:
                return self._commit_offsets(offsets)
            if self._protocol is Protocol.CLASSIC:
                self._find_new()
                if self._new:
                    return self._add_partitions()
        if state is State.COMMITTING or state is State.ABORTING:
            return self._end()
        return None

    def _find_new(self) -> None:
        """Find the partitions with waiting batches, so that they are added while the batches linger."""
        for queue in self._accumulator.waiting.all():
            partition = (queue.topic, queue.partition)
            if partition not in self._enrolled:
                self._new[partition] = None

    def _end(self) -> _Request | None:
        if any(not batch.done or batch.in_flight for batch in self._accumulator.incomplete_batches()):
            # an expired batch is in flight until its request ends: no batch may arrive after the end
            return None
        if self._is_probing:
            return self._probe()
        if not self._is_started or self._is_mapping_lost:
            self._ended()
            return self._next()
        return self._end_txn(commit=self.transaction.state is State.COMMITTING)

    def _ended(self) -> None:
        needs_epoch = self._needs_epoch and self.transaction.state is State.ABORTING
        self._is_started = False
        self._has_ended = True
        self.transaction.ended(needs_epoch=needs_epoch)

    # --- The requests ---

    def _identity(self) -> messages.Identity:
        manager = self._manager
        return messages.Identity(self.transaction.transactional_id, manager.producer_id, manager.producer_epoch)

    def _init(self, producer_id: int, epoch: int) -> _Request:
        def answered(response: Any) -> None:
            if response.error_code:
                self._on_error(messages.broker_error(response.error_code, "InitProducerId"), request)
                return
            self._needs_epoch = self._is_mapping_lost = False
            self._manager.reassign(response.producer_id, response.producer_epoch)
            self._attempts = 0
            self.transaction.assigned()

        request = _Request(
            "InitProducerId",
            lambda versions: self._init_message(producer_id, epoch),
            answered,
            min_version=FIRST_INIT_WITH_EPOCH if epoch >= 0 else None,
        )
        return request

    def _init_message(self, producer_id: int, epoch: int) -> Any:
        who = messages.Identity(self.transaction.transactional_id, producer_id, epoch)
        return messages.init_producer_id(who, self._timeout_ms)

    def _probe(self) -> _Request:
        """InitProducerId with the epoch that the coordinator has if the transaction expired."""

        def answered(response: Any) -> None:
            if response.error_code:
                self._on_error(messages.broker_error(response.error_code, "InitProducerId"), request)
                return
            _log.info("transaction of %r expired; the producer goes on", self.transaction.transactional_id)
            self._manager.reassign(response.producer_id, response.producer_epoch)
            self._is_probing = self._is_started = self._needs_epoch = False
            if self.transaction.state is State.ABORTING:
                self.transaction.ended()
                return
            self.transaction.abortable(expired(self._timeout_ms))

        epoch = self._manager.producer_epoch + 1
        request = _Request(
            "InitProducerId",
            lambda versions: self._init_message(self._manager.producer_id, epoch),
            answered,
            min_version=FIRST_INIT_WITH_EPOCH,
        )
        return request

    def _add_partitions(self) -> _Request:
        new = list(self._new)

        def make(versions: NodeApiVersions) -> Any:
            self._is_started = True
            return messages.add_partitions(self._identity(), new)

        def answered(response: Any) -> None:
            failures = messages.add_partitions_errors(response)
            if failures:
                self._on_error(messages.decisive(failures), request)
                return
            self._is_confirmed = True
            self._enrolled.update(new)
            for partition in new:
                self._new.pop(partition, None)
            self._attempts = 0

        request = _Request("AddPartitionsToTxn", make, answered, max_version=LAST_ADD_PARTITIONS_OF_CLIENTS)
        return request

    def _commit_offsets(self, offsets: OffsetsToCommit) -> _Request:
        is_tv2 = self._protocol is Protocol.TV2
        if not is_tv2 and not offsets.is_group_added:
            return self._add_group(offsets)

        def make(versions: NodeApiVersions) -> Any:
            self._is_started = True
            return messages.commit_offsets(self._identity(), offsets)

        def answered(response: Any) -> None:
            committed, failures = messages.committed_offsets(response)
            self._is_confirmed = self._is_confirmed or bool(committed)
            self.transaction.offsets_committed(offsets, committed)
            if failures:
                self._on_error(messages.decisive(failures), request)
            else:
                self._attempts = 0

        lowest = FIRST_OFFSET_COMMIT_WITH_MEMBER if offsets.member.is_named else None
        request = _Request(
            "TxnOffsetCommit",
            make,
            answered,
            group=offsets.member.group_id,
            min_version=LAST_CLASSIC_OFFSET_COMMIT + 1 if is_tv2 else lowest,
            max_version=None if is_tv2 else LAST_CLASSIC_OFFSET_COMMIT,
        )
        return request

    def _add_group(self, offsets: OffsetsToCommit) -> _Request:
        def make(versions: NodeApiVersions) -> Any:
            self._is_started = True
            return messages.add_offsets(self._identity(), offsets.member.group_id)

        def answered(response: Any) -> None:
            if response.error_code:
                self._on_error(messages.broker_error(response.error_code, "AddOffsetsToTxn"), request)
                return
            offsets.is_group_added = self._is_confirmed = True
            self._attempts = 0

        request = _Request("AddOffsetsToTxn", make, answered)
        return request

    def _end_txn(self, *, commit: bool) -> _Request:
        is_tv2 = self._protocol is Protocol.TV2

        def make(versions: NodeApiVersions) -> Any:
            self._is_end_sent = True
            return messages.end_txn(self._identity(), commit=commit)

        def answered(response: Any) -> None:
            if response.error_code:
                error = messages.broker_error(response.error_code, "EndTxn")
                if isinstance(error, InvalidTxnStateError) and commit:
                    self.transaction.abortable(expired(self._timeout_ms))
                elif isinstance(error, InvalidTxnStateError) and not self._is_confirmed:
                    # the coordinator never learned of the transaction
                    self._needs_epoch = True
                    self._ended()
                else:
                    self._on_error(error, request)
                return
            manager = self._manager
            following = (response.producer_id, response.producer_epoch)
            if min(following) >= 0 and following != (manager.producer_id, manager.producer_epoch):
                manager.reassign(*following)
                self._needs_epoch = False
            self._attempts = 0
            self._ended()

        request = _Request(
            "EndTxn",
            make,
            answered,
            min_version=LAST_CLASSIC_END_TXN + 1 if is_tv2 else None,
            max_version=None if is_tv2 else LAST_CLASSIC_END_TXN,
        )
        return request

    def _find_coordinator(self, group: str | None) -> _Request:
        key = self.transaction.transactional_id if group is None else group
        kind = messages.TRANSACTION_COORDINATOR if group is None else messages.GROUP_COORDINATOR

        def answered(response: Any) -> None:
            found = messages.coordinator_in(response)
            if found.error_code:
                self._on_error(messages.broker_error(found.error_code, "FindCoordinator"), request)
                return
            self._coordinators[group] = Node(COORDINATOR_IDS_FROM - found.node_id, found.host, found.port)
            _log.debug("the coordinator of %r is node %d (%s:%d)", key, found.node_id, found.host, found.port)
            self._attempts = 0

        request = _Request(
            "FindCoordinator",
            lambda versions: messages.find_coordinator(versions, key, kind),
            answered,
            to_coordinator=False,
            # version 0 finds the coordinators of groups only
            min_version=1 if kind == messages.TRANSACTION_COORDINATOR else None,
        )
        return request

    # --- Sending and responses ---

    def _send(self, request: _Request, now_ms: float) -> float:
        """Send the request, or find its coordinator first. Returns in how many milliseconds to call `step` again."""
        client = self._client
        if request.to_coordinator and request.group not in self._coordinators:
            request = self._find_coordinator(request.group)
        node = self._coordinators[request.group] if request.to_coordinator else client.least_loaded_node(now_ms)
        if node is None:
            self.transaction.obstacle = self._metadata.last_error
            return self._retry_backoff(0)
        if not client.ready(node, now_ms):
            failure = client.connection_errors.get(node.id)
            if failure is not None:
                self.transaction.obstacle = failure
                if request.to_coordinator:
                    # the coordinator may have moved from a broker that is gone
                    self._retry(request, find=True)
            elif not request.to_coordinator:
                self.transaction.obstacle = self._metadata.last_error
            return min(client.poll_delay_ms(node, now_ms), max(self._retry_at_ms - now_ms, self._retry_backoff(0)))
        versions = client.api_versions(node.id)
        assert versions is not None
        self._choice.note(versions)
        if request.to_coordinator and request.group is None:
            self._choice.note_coordinator(versions)
        try:
            message = request.make(versions)
        except UnsupportedVersionError as error:
            self._on_error(error, request)
            return 0.0
        self._is_waiting = True
        client.send(
            client.new_request(
                node.id,
                message,
                now_ms=now_ms,
                timeout_ms=self._request_timeout_ms,
                callback=lambda response: self._on_response(request, response),
                min_version=request.min_version,
                max_version=request.max_version,
            ),
            now_ms,
        )
        return NEVER_MS

    def _on_response(self, request: _Request, response: ClientResponse) -> None:
        self._is_waiting = False
        self._now_ms = response.received_ms
        if self.transaction.state is State.FATAL_ERROR:
            return
        if response.error is None:
            request.answered(response.message)
            return
        self._on_error(response.error, request)

    def _on_error(self, error: KafkaError, request: _Request) -> None:
        """React to an error by the table in `transaction_errors.py`."""
        transaction = self.transaction
        transaction.obstacle = error
        reaction = reaction_to(error)
        _log.debug("%s of %r: %s", request.name, transaction.transactional_id, error)
        if reaction is Reaction.RETRY or reaction is Reaction.FIND_COORDINATOR:
            # the coordinator may have ended the transaction nevertheless
            self._is_end_in_doubt = self._is_end_in_doubt or request.name == "EndTxn"
            self._retry(request, find=reaction is Reaction.FIND_COORDINATOR)
        elif reaction is Reaction.FENCED:
            self._on_fenced(error, request)
        elif reaction is Reaction.DENIED:
            transaction.denied(error)
        elif reaction is Reaction.FATAL:
            if isinstance(error, InvalidTransactionTimeoutError):
                error = timeout_too_long(self._timeout_ms)
            transaction.fatal(error)
        else:
            if reaction is Reaction.NEW_EPOCH:
                self._needs_epoch = True
                # the coordinator accepts no EndTxn from a producer id that it has forgotten
                self._is_mapping_lost = isinstance(error, InvalidProducerIdMappingError)
            elif transaction.state is State.ABORTING:
                self._retry(request, find=False)
            transaction.abortable(error)

    def _on_fenced(self, error: KafkaError, request: _Request) -> None:
        if self._is_confirmed and self._manager.producer_epoch < MAX_EPOCH and not self._is_probing:
            if request.name == "EndTxn" and not self._is_end_in_doubt:
                self._is_probing = True
                return
            if request.name != "EndTxn" and self.transaction.state in (State.IN_TRANSACTION, State.COMMITTING):
                # `abort` finds out whether the transaction has expired
                self.transaction.abortable(error)
                return
        self.transaction.fatal(taken_over(self.transaction.transactional_id))

    def _retry(self, request: _Request, *, find: bool) -> None:
        backoff_ms = self._retry_backoff(self._attempts)
        if request.name == "AddPartitionsToTxn" and not self._enrolled:
            backoff_ms = min(backoff_ms, CONCURRENT_BACKOFF_MS)
        self._retry_at_ms = self._now_ms + backoff_ms
        self._attempts += 1
        if find and request.to_coordinator:
            self._coordinators.pop(request.group, None)


def _fail_nothing(batch: ProducerBatch, error: KafkaError, *, adjust: bool) -> None:
    """The function that fails a batch until the sender sets its own."""
