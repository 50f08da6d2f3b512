"""A leader asks the coordinator about a partition: whether it is in a producer's transaction, or to add it (KIP-890,
Kafka's `AddPartitionsToTxnManager`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ...network.clock import Clock
from ...network.protocol.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    NetworkExceptionError,
    ProducerFencedError,
    TransactionAbortableError,
    make_error,
)
from ...network.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ..internal_topics import InternalTopic
from ..metadata import ClusterImage, PartitionKey
from ..replica.connection import InterBrokerConnection, InterBrokerConnector
from ..timer import SystemTimer, TimedCall
from .peers import PeerRequests

#: The errors by partition; those without one are in the transaction.
Enrolled = Callable[[Mapping[PartitionKey, BrokerResponseError]], None]


class Enrolment(NamedTuple):
    """Partitions to verify, or with `adds` to add to a transaction.

    knows_abortable: whether the client knows TRANSACTION_ABORTABLE. done: called once.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[PartitionKey]
    adds: bool
    knows_abortable: bool
    done: Enrolled

    def fail(self, error: BrokerResponseError) -> None:
        self.done(dict.fromkeys(self.partitions, error))


class EnrolmentClient(PeerRequests[Enrolment]):
    """Asks coordinators on behalf of the partitions that this broker leads. Any thread may call `enrol`.

    A producer begins its next transaction as soon as the outcome of the last one is decided, and the coordinator adds
    nothing to it until all markers are written. That takes milliseconds, and the client's backoff takes longer. So the
    broker itself asks again, as Kafka's does (KAFKA-18654).
    """

    def __init__(
        self,
        broker_id: int,
        *,
        backoff_ms: float,
        patience_ms: float,
        clock: Clock,
        timer: SystemTimer,
        connector: InterBrokerConnector,
        image: Callable[[], ClusterImage],
        transactions: InternalTopic,
    ) -> None:
        """`backoff_ms`, `patience_ms`: how long to wait before asking again, and how long to go on asking."""
        super().__init__("enrolment", broker_id, connector=connector, image=image)
        self._clock = clock
        self._timer = timer
        self._backoff_ms = backoff_ms
        self._patience_ms = patience_ms
        self._transactions = transactions

    def enrol(self, enrolment: Enrolment) -> None:
        """Ask the coordinator. `done` is called now, or on the thread for that broker or that of the timer."""
        if enrolment.adds:
            again_until_ms = self._clock.now_ms() + self._patience_ms
            enrolment = enrolment._replace(done=partial(self._added, enrolment, again_until_ms))
        self._ask(enrolment)

    def _added(
        self, enrolment: Enrolment, again_until_ms: float, errors: Mapping[PartitionKey, BrokerResponseError]
    ) -> None:
        is_early = any(isinstance(error, ConcurrentTransactionsError) for error in errors.values())
        if not is_early or self._clock.now_ms() >= again_until_ms:
            enrolment.done(errors)
            return
        again = enrolment._replace(done=partial(self._added, enrolment, again_until_ms))
        self._timer.add(TimedCall(self._backoff_ms, partial(self._ask, again)))

    def _ask(self, enrolment: Enrolment) -> None:
        try:
            coordinator = self._transactions.leader_of(enrolment.transactional_id, make=False)
        except BrokerResponseError as error:
            enrolment.fail(error)
        else:
            self.send(coordinator, enrolment)

    def exchange(self, connection: InterBrokerConnection, items: Sequence[Enrolment]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_transaction(each) for each in items])
        response = connection.request(request)
        if response.error_code:
            for each in items:
                each.fail(make_error(response.error_code))
            return
        for each, result in zip(items, response.results_by_transaction, strict=True):
            each.done(
                {
                    (topic.name, part.partition_index): _client_error(each, part.partition_error_code)
                    for topic in result.topic_results
                    for part in topic.results_by_partition
                    if part.partition_error_code
                }
            )

    def fail(self, items: Sequence[Enrolment], error: KafkaError) -> None:
        for each in items:
            each.fail(NetworkExceptionError(f"the coordinator of {each.transactional_id!r} can't be reached: {error}"))


def _client_error(enrolment: Enrolment, code: int) -> BrokerResponseError:
    """The error as producers expect it in the response to a produce request."""
    if code == ProducerFencedError.code:
        return InvalidProducerEpochError(f"the epoch {enrolment.producer_epoch} of the producer has ended")
    if code == TransactionAbortableError.code and not enrolment.knows_abortable:
        return InvalidTxnStateError("the partition was not added to the transaction")
    return make_error(code)


def _transaction(enrolment: Enrolment) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in enrolment.partitions:
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=enrolment.transactional_id,
        producer_id=enrolment.producer_id,
        producer_epoch=enrolment.producer_epoch,
        verify_only=not enrolment.adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
    )
