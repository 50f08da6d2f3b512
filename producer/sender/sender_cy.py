# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The sender: the thread that turns waiting batches into produce requests, and responses into completed futures.

`run_once` is one iteration of its loop. It reads the clock once and passes the time down, so that tests can step it.

Source: Kafka's Sender.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.client.api_versions import NodeApiVersions
from ...network.clock import LONG_AGO_MS, NEVER_MS
from ...network.cluster import Node, TopicPartition
from ...network.latch_cy import Latch, LateWakes
from ...network.metadata import Metadata
from ...network.protocol import errors
from ...network.protocol.errors import KafkaError
from ...network.protocol.messages.records.init_producer_id import InitProducerIdRequest
from ...network.protocol.messages.records.produce import ProduceRequest
from ...network.records.batch import TRANSACTIONAL_MASK
from ...network.records.compression import Compression
from ...network.repeats import Repeats
from ...network.sections import interrupted
from ..accumulator.batch_split import split_batch
from ..metrics import ProducerMetrics
from ..record_errors import rejection
from .callbacks import Callbacks
from .legacy_format import needs_conversion, records_for, starts_of_runs
from .responses import lost_response, producer_id_error
from .transaction_manager_cy import State
from .unstashing import unstash

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.client.request_cy import ClientResponse, KafkaClient
    from ...network.clock import Clock
    from ...network.protocol.produce_cy import partition_data, produce_request, topic_data
    from ..accumulator.accumulator_cy import RecordAccumulator
    from ..accumulator.batch_cy import ProducerBatch
    from ..accumulator.drain_cy import ReadyCheck
    from .answer_times_cy import AnswerTimes, TimesByNode
    from .outcomes_cy import Outcomes
    from .transaction_manager_cy import TransactionManager
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.client.request_cy import ClientResponse, KafkaClient
    from cython.cimports.headrace.network.latch_cy import LateWakes
    from cython.cimports.headrace.network.protocol.produce_cy import partition_data, produce_request, topic_data
    from cython.cimports.headrace.network.time_cy import Clock
    from cython.cimports.headrace.producer.accumulator.accumulator_cy import RecordAccumulator
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch
    from cython.cimports.headrace.producer.accumulator.drain_cy import ReadyCheck
    from cython.cimports.headrace.producer.sender.answer_times_cy import AnswerTimes, TimesByNode
    from cython.cimports.headrace.producer.sender.outcomes_cy import Outcomes
    from cython.cimports.headrace.producer.sender.transaction_manager_cy import TransactionManager

if TYPE_CHECKING:
    from .compressors import Compressors
    from .telemetry import Telemetry
    from .transaction_requests import TransactionRequests

_log = logging.getLogger(__name__)
_UNCOMPRESSED = Compression.NONE

#: The longest sleep of an iteration, so that one wrong reading of the clock can't stop the loop for long.
MAX_POLL_MS = 60_000.0
#: How often a topic's metadata is renewed while records are sent to it; others leave after ``metadata.max.idle.ms``.
TOUCH_MS = 1_000.0


@cython.final
@cython.cclass
class _Sent:
    """The batches of one produce request by topic and partition, its topics by id as int, and what gets the response.

    A class, because a `functools.partial` of a method costs ten times as much per call.
    """

    def __init__(self, sender: Sender, batches: dict, names: dict) -> None:
        self.sender = sender
        self.batches = batches
        self.names = names

    def __call__(self, response: ClientResponse) -> None:
        self.sender._on_produced(self.batches, self.names, response)


@cython.final
@cython.cclass
class Sender:
    """Drains the accumulator through a `KafkaClient`.

    Everything runs on the sender thread but `wakeup`, `close` and `request_abort`.

    Invariant: a sent batch is in `_in_flight` until its response arrives, or it expires. Its buffer returns to
    the pool only when the batch is complete *and* no request holds the buffer.
    """

    if not cython.compiled:
        # for type checkers; sender_cy.pxd has the C types
        _in_flight: dict[ProducerBatch, None]
        _touched: set[str]
        death: BaseException | None

    def __init__(
        self,
        *,
        client: KafkaClient,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        transactions: TransactionManager | None,
        transaction: TransactionRequests | None = None,
        clock: Clock,
        acks: int,
        compressors: Compressors | None = None,
        max_request_bytes: int,
        request_timeout_ms: float,
        delivery_timeout_ms: float,
        retries: int,
        keep_order: bool,
        retry_backoff_ms: float,
        metrics: ProducerMetrics,
        callbacks: Callbacks,
        telemetry: Telemetry | None = None,
        late_wakes: LateWakes | None = None,
    ) -> None:
        """Create a sender; `run` is to be called on its thread.

        `client`: the connections to the brokers.
        `metadata`: the cluster's metadata.
        `accumulator`: the batches to send.
        `transactions`: producer id and sequence numbers; None without idempotence.
        `transaction`: the requests of its transactions; None without ``transactional.id``.
        `clock`: the time source.
        `acks`: the acknowledgements that produce requests ask for (``acks``).
        `compressors`: compress the batches; None without compression.
        `max_request_bytes`: the most bytes of batches in one request.
        `request_timeout_ms`: milliseconds to wait for a response.
        `delivery_timeout_ms`: milliseconds from a batch's creation until it expires.
        `retries`: the most retries of a batch.
        `keep_order`: mute a partition while one of its batches is in flight, if nothing else preserves the order.
        `retry_backoff_ms`: milliseconds between requests for a producer id.
        `metrics`: the producer's metrics.
        `callbacks`: runs the callbacks of completed batches.
        `telemetry`: pushes the metrics to brokers that ask for them; None without ``enable.metrics.push``.
        `late_wakes`: the threads that wait for complete batches, which the client's poll wakes as it begins to wait:
        before that they would only wait for the GIL. None if its selector does not do so.
        """
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._transactions = transactions
        self._transaction = transaction
        self._attributes = 0 if transaction is None else TRANSACTIONAL_MASK
        self._clock = clock
        self._acks = acks
        self._compressors = compressors
        self._max_request_bytes = max_request_bytes
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._keep_order = keep_order
        self._retry_backoff_ms = retry_backoff_ms
        self._metrics = metrics
        self._callbacks = callbacks
        self._telemetry = telemetry
        self._telemetry_at_ms = LONG_AGO_MS if telemetry is not None else NEVER_MS
        self._repeats = Repeats()
        self._in_flight = {}
        self._late_wakes = LateWakes() if late_wakes is None else late_wakes
        self._polls_wake = late_wakes is not None
        self._outcomes = Outcomes(
            client=client,
            metadata=metadata,
            accumulator=accumulator,
            transactions=transactions,
            transaction=transaction,
            clock=clock,
            compressors=compressors,
            delivery_timeout_ms=delivery_timeout_ms,
            retries=retries,
            metrics=metrics,
            callbacks=callbacks,
            late_wakes=self._late_wakes,
        )
        if transaction is not None:
            transaction.fail_batch = self._outcomes.fail
        #: The versions that were checked last, which nobody changes, and whether such a node needs converted batches.
        self._checked_versions = None
        self._converts = False
        #: The topics whose metadata was renewed, and when that is due again.
        self._touched = set()
        self._next_touch_ms = LONG_AGO_MS
        self._next_in_flight_expiry_ms = NEVER_MS
        self._answer_times = TimesByNode(delivery_timeout_ms)
        self._producer_id_retry_at_ms = LONG_AGO_MS
        self._aborts = deque()
        self._closing = False
        self._force_close = False
        #: The last errors of batches. Any thread may read them.
        self.recent_errors = self._outcomes.recent_errors
        #: The error that the thread died of, None unless it died.
        self.death = None

    # --- The thread ---

    def run(self) -> None:
        """The thread's body: run until closed, deliver what is pending, and fail the rest if the close is forced."""
        try:
            while not self._closing:
                self.run_once()
            _log.debug("the sender is closing and sends the remaining batches")
            self._accumulator.close()
            if self._transaction is not None:
                self._transaction.close()
            while not self._force_close and (
                self._accumulator.has_unanswered
                or (self._transaction is not None and self._transaction.is_ending(self._clock.now_ms()))
            ):
                self.run_once()
            self._late_wakes.wake()
            if self._telemetry is not None:
                self._push_last_metrics(self._telemetry)
            self._fail_everything(
                errors.ProducerClosedError("the producer was closed before this record was acknowledged")
            )
        except BaseException as death:
            # No other thread completes these futures, so fail them with the cause.
            self._late_wakes.wake()
            with cython.critical_section(self):
                self.death = death
            _log.exception("the sender thread died; every record that was not acknowledged fails")
            error = errors.IllegalStateError(f"the producer's sender thread died: {death!r}")
            error.__cause__ = death
            if self._transaction is not None:
                self._transaction.transaction.fatal(error)
            self._accumulator.pool.close(error)
            self._accumulator.close()
            self._fail_everything(error)
            self._metadata.close(error)
            if not isinstance(death, Exception):
                raise
        finally:
            if self._telemetry is not None:
                self._telemetry.end()
            self._callbacks.finish()
            self._client.close()
            if self._compressors is not None:
                self._compressors.close()

    def run_once(self) -> None:
        """One iteration: prepare the producer id, send ready batches, poll the sockets and handle the responses."""
        now_ms: cython.double = self._clock.now_ms()
        if self._aborts:
            self._abort_where_asked()
        transaction_ms: cython.double = NEVER_MS
        if self._transaction is not None:
            transaction_ms = self._transaction.step(now_ms)
        elif self._transactions is not None and not self._prepare_producer_id(self._transactions, now_ms):
            self._return_memory()
            self._poll(self._retry_backoff_ms, now_ms)
            return
        poll_ms: cython.double = self._send_ready(now_ms)
        if self._transaction is not None:
            poll_ms = 0.0 if self._transaction.looks_again else min(poll_ms, transaction_ms)
        if self._telemetry is not None:
            if now_ms >= self._telemetry_at_ms:
                self._telemetry_at_ms = self._telemetry.step(now_ms)
            if self._telemetry_at_ms > now_ms:
                poll_ms = min(poll_ms, self._telemetry_at_ms - now_ms)
        if self._compressors is not None:
            # compressing may have taken long
            later_ms: cython.double = self._clock.now_ms()
            poll_ms = max(0.0, poll_ms - (later_ms - now_ms))
            now_ms = later_ms
        self._accumulator.next_look_ms = now_ms + poll_ms
        self._return_memory()
        self._poll(poll_ms, now_ms)

    @cython.cfunc
    def _poll(self, timeout_ms: cython.double, now_ms: cython.double) -> object:
        if not self._polls_wake:
            self._late_wakes.wake()
        self._client.poll(timeout_ms, now_ms)
        return None

    def _push_last_metrics(self, telemetry: Telemetry) -> None:
        """Push the metrics a last time, after the last record, if a broker asks for them."""
        now_ms: cython.double = self._clock.now_ms()
        telemetry.begin_close(now_ms)
        while not self._force_close:
            left_ms: cython.double = telemetry.ending_ms(now_ms)
            if left_ms <= 0.0:
                break
            telemetry.step(now_ms)
            self._client.poll(left_ms, now_ms)
            now_ms = self._clock.now_ms()

    def wakeup(self) -> None:
        """Wake the sender from its poll. Any thread."""
        self._client.wakeup()

    def close(self, *, force: bool = False) -> None:
        """End the thread once everything is delivered, or immediately with `force`. Does not wait. Any thread.

        In a finalizer that interrupted a section, the sender thread closes the accumulator instead.
        """
        if force:
            self._force_close = self._outcomes.retries_end = True
        self._closing = True
        if not interrupted():
            self._accumulator.close()
        self._client.wakeup()

    def request_abort(self) -> Latch:
        """Request that every batch not in flight fails; the latch is set when they have failed. Any thread."""
        done = Latch()
        self._aborts.append(done)
        self._client.wakeup()
        return done

    def _abort_where_asked(self) -> None:
        while self._aborts:
            done = self._aborts.popleft()
            self._fail_waiting(
                errors.RecordAbortedError("the record was dropped by abort() before it was acknowledged")
            )
            done.set()

    def _fail_waiting(self, error: KafkaError) -> None:
        """Fail the batches that wait, but not those in flight."""
        for batch in self._accumulator.take_everything():
            # A failed batch with a sequence number would leave a gap, so the batches behind it begin a new epoch.
            self._outcomes.fail(batch, error, adjust=True)

    # --- Producer id ---

    @cython.cfunc
    def _prepare_producer_id(self, transactions: TransactionManager, now_ms: cython.double) -> cython.bint:
        """Advance the idempotence state. False after a fatal error: nothing can be delivered any longer."""
        fatal_error = transactions.fatal_error
        if fatal_error is not None:
            self._fail_waiting(fatal_error)
            return False
        if transactions.has_unsettled():
            transactions.resolve()
            transactions.bump_epoch_if_due()
        if transactions.needs_producer_id() and self._accumulator.has_undrained:
            refused = self._client.authentication_error()
            if refused is not None:
                # No broker gives this client a producer id, and waiting does not help. The client goes on connecting.
                self._fail_waiting(refused)
            self._ask_producer_id(transactions, now_ms)
        return True

    def _ask_producer_id(self, transactions: TransactionManager, now_ms: float) -> None:
        if now_ms < self._producer_id_retry_at_ms:
            return
        node = self._client.least_loaded_node(now_ms)
        if node is None or not self._client.ready(node, now_ms):
            return
        message = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=InitProducerIdRequest.NO_TRANSACTION_TIMEOUT
        )
        request = self._client.new_request(node.id, message, now_ms, self._request_timeout_ms, self._on_producer_id)
        transactions.asking()
        self._client.send(request, now_ms)

    def _on_producer_id(self, response: ClientResponse) -> None:
        transactions = self._transactions
        assert transactions is not None
        if transactions.state is not State.INITIALIZING:
            # meanwhile a produce response had a fatal error
            return
        error = producer_id_error(response)
        if error is None:
            assert response.message is not None
            transactions.assign(response.message.producer_id, response.message.producer_epoch)
            return
        denied: cython.bint = isinstance(error, errors.AuthorizationError)
        if denied or isinstance(error, errors.RetriableError) or response.disconnected:
            level = self._repeats.level(type(error), logging.ERROR, response.received_ms) if denied else logging.DEBUG
            _log.log(level, "no producer id yet: %s", error)
            transactions.producer_id_request_failed()
            self._producer_id_retry_at_ms = response.received_ms + self._retry_backoff_ms
            if denied:
                # the records that follow ask again: an ACL may have been added (Java's shouldHandleAuthorizationError)
                self._fail_waiting(error)
            return
        transactions.fail(error)

    # --- Sending ---

    @cython.cfunc
    def _send_ready(self, now_ms: cython.double) -> cython.double:
        """Send ready batches to the brokers that are ready; return how many milliseconds the poll may sleep."""
        accumulator = self._accumulator
        client: KafkaClient = self._client
        poll_ms: cython.double = MAX_POLL_MS
        delay_ms: cython.double
        batches: list
        if accumulator.stash.waiting:
            for batch, error in unstash(accumulator, self._metadata, now_ms):
                self._outcomes.fail(batch, error, adjust=False)
        availability = accumulator.availability
        check: ReadyCheck
        times: AnswerTimes
        again: cython.bint = False
        while not self._force_close:
            check = accumulator.ready(now_ms, self._answer_times.busy, again)
            again = True
            delay_ms = check.next_check_ms
            poll_ms = min(delay_ms, MAX_POLL_MS)
            if check.leaderless_topics:
                for topic in check.leaderless_topics:
                    # the topic may have expired from the metadata while its records waited
                    self._metadata.add_topic(topic, now_ms)
                self._metadata.request_update_for_waiting(check.leaderless_topics)
            for node in check.nodes.values():
                if not client.ready(node, now_ms):
                    if availability is not None:
                        availability.note(node.id, now_ms, False)
                    delay_ms = client.poll_delay_ms(node, now_ms)
                    poll_ms = min(poll_ms, delay_ms)
                    continue
                times = self._answer_times.of(node.id)
                batches = accumulator.drain(node.id, self._max_request_bytes, now_ms, times.expected_ms, times.is_idle)
                if availability is not None:
                    availability.note(node.id, now_ms, True)
                if batches:
                    # sending, and compressing all the more, takes longer than they should wait
                    self._late_wakes.wake()
                    if self._compressors is None:
                        self._send_batches(node, batches, now_ms)
                    else:
                        batches = self._compressors.fitting(batches, self._max_request_bytes)
                        if self._force_close:
                            # what was drained is incomplete, and fails with everything else
                            return 0.0
                        # compressing may have taken long, and the request's timeout begins now
                        self._send_batches(node, batches, self._clock.now_ms())
            if not accumulator.drainer.more:
                break

        if self._expire(now_ms):
            # the batches behind it may be sendable
            return 0.0
        if self._transactions is not None and accumulator.has_undrained and not self._transactions.has_producer_id:
            # nothing is sent before there is a producer id, and the request for it may have to be retried
            poll_ms = min(poll_ms, self._retry_backoff_ms)
        delay_ms = accumulator.next_expiry_ms(now_ms)
        return max(0.0, min(poll_ms, delay_ms, self._next_in_flight_expiry_ms - now_ms))

    @cython.cfunc
    def _send_batches(self, node: Node, batches: list, now_ms: cython.double) -> object:
        batch: ProducerBatch
        expiry_ms: cython.double
        by_topic: dict = {}
        sent: dict = {}  # the batches by topic and partition
        versions: NodeApiVersions | None = self._client.api_versions(node.id)
        if versions is not self._checked_versions:
            self._checked_versions = versions
            self._converts = needs_conversion(versions)
        for batch in batches:
            if self._transactions is not None:
                # not earlier: a number means that a broker may have the batch
                self._transactions.take_sequence(batch)
            self._seal(batch)
            records = batch.records
            if self._converts:
                records = self._records_for(batch, versions, now_ms)
                if records is None:
                    continue
            sent[batch.topic, batch.partition] = batch
            batch.in_flight = True
            self._in_flight[batch] = None
            expiry_ms = batch.created_ms + self._delivery_timeout_ms
            self._next_in_flight_expiry_ms = min(self._next_in_flight_expiry_ms, expiry_ms)
            if self._keep_order:
                self._accumulator.set_muted(batch, True)
            partitions = by_topic.get(batch.topic)
            if partitions is None:
                partitions = by_topic[batch.topic] = []
            partitions.append(partition_data(batch.partition, records))
        if not sent:
            return None
        cluster = self._metadata.cluster
        topics: list = []
        # by the ids at the time of the request: by its response, a topic may have been recreated with another id;
        # as numbers, because the hash of a UUID is computed in Python
        names: dict = {}
        all_ids_known: cython.bint = True
        if now_ms >= self._next_touch_ms:
            self._touched.clear()
            self._next_touch_ms = now_ms + TOUCH_MS
        for topic, partitions in by_topic.items():
            if topic not in self._touched:
                self._metadata.add_topic(topic, now_ms)
                self._touched.add(topic)
            topic_id = cluster.topic_ids.get(topic)
            topics.append(topic_data(topic, topic_id, partitions))
            if topic_id is None:
                all_ids_known = False
            else:
                names[topic_id.int] = topic
        transactional_id: str | None = None
        min_version: int | None = None
        max_version: int | None = None if all_ids_known else ProduceRequest.LAST_VERSION_WITH_NAMES
        if self._transaction is not None:
            transactional_id = self._transaction.transaction.transactional_id
            min_version, max_version = self._transaction.produce_versions(max_version)
        request = self._client.new_request(
            node.id,
            produce_request(transactional_id, self._acks, int(self._request_timeout_ms), topics),
            now_ms,
            self._request_timeout_ms,
            _Sent(self, sent, names),
            self._acks != 0,
            min_version,
            max_version,
        )
        self._answer_times.sent(node.id, cluster.nodes)
        self._client.send(request, now_ms)
        # while the broker works on it
        self._metrics.sent(list(sent.values()), now_ms)
        return None

    @cython.cfunc
    def _seal(self, batch: ProducerBatch) -> object:
        """Write the batch's header. Again for each attempt, as sequence numbers may change."""
        builder = batch.builder
        if batch.compression is None:
            batch.raw_bytes = builder.size_bytes
            batch.compression = _UNCOMPRESSED
        batch.records = builder.finish(
            batch.compression, 0, batch.producer_id, batch.producer_epoch, batch.base_sequence, self._attributes
        )
        return None

    def _records_for(self, batch: ProducerBatch, versions: Any, now_ms: float) -> Any:
        """The bytes to send for a sealed batch in the old format of a broker; None if that can't represent them.

        In that case the batch has failed, or has been split and its parts enqueued.
        """
        try:
            return records_for(batch, versions, None if self._compressors is None else self._compressors.level)
        except KafkaError as error:
            starts = starts_of_runs(batch) if isinstance(error, errors.UnsupportedForMessageFormatError) else []
            if starts:
                # fail only the records that can't be sent, not their neighbours
                self._outcomes.replace(batch, split_batch(batch, starts))
            else:
                self._outcomes.attempt_failed(batch, error, None, now_ms)
            return None

    # --- Expiry ---

    @cython.cfunc
    def _expire(self, now_ms: cython.double) -> cython.bint:
        """Fail what has expired. Whether batches left the queues."""
        expired: list = self._accumulator.expired(now_ms)
        batch: ProducerBatch
        soonest_ms: cython.double
        expiry_ms: cython.double
        for batch in expired:
            self._outcomes.fail_expired(batch, now_ms)
        if now_ms < self._next_in_flight_expiry_ms:
            return len(expired) > 0
        soonest_ms = NEVER_MS
        for batch in list(self._in_flight):
            expiry_ms = batch.created_ms + self._delivery_timeout_ms
            if expiry_ms <= now_ms:
                # its buffer stays leased until the request that holds it ends
                del self._in_flight[batch]
                self._outcomes.fail_expired(batch, now_ms)
            else:
                soonest_ms = min(soonest_ms, expiry_ms)
        self._next_in_flight_expiry_ms = soonest_ms
        return len(expired) > 0

    # --- Responses ---

    @cython.cfunc
    def _on_produced(self, batches: dict, names: dict, response: ClientResponse) -> object:
        """The response to a produce request of `batches`, by topic and partition. `names`: its topics by id, as int."""
        batch: ProducerBatch
        now_ms: cython.double = response.received_ms
        latency_ms: cython.double = now_ms - response.request.created_ms
        self._answer_times.ended(response.request.node_id, now_ms, None if response.message is None else latency_ms)
        for batch in batches.values():
            batch.in_flight = False
            self._in_flight.pop(batch, None)
            if self._keep_order:
                self._accumulator.set_muted(batch, False)
        if response.error is not None:
            error = lost_response(response)
            for batch in batches.values():
                self._outcomes.attempt_failed(batch, error, None, now_ms)
            return None
        if response.message is None:
            for batch in batches.values():
                self._outcomes.complete(batch, -1, -1)
            return None
        self._metrics.answered(latency_ms, response.message.throttle_time_ms, now_ms)
        unanswered: dict = dict(batches)
        new_leaders: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.message.responses:
            name = topic.name or names.get(topic.topic_id.int)
            for answer in topic.partition_responses:
                answered = unanswered.pop((name, answer.index), None)
                if answered is not None and answer.error_code == 0:
                    self._outcomes.complete(answered, answer.base_offset, answer.log_append_time_ms)
                    continue
                partition = TopicPartition(name or "", answer.index)
                if answered is None:
                    _log.warning("node %d sent a response for %s, which was not requested", response.node_id, partition)
                    continue
                if answer.current_leader.leader_id >= 0:
                    new_leaders[partition] = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
                self._outcomes.attempt_failed(answered, rejection(answer, partition), answer, now_ms)
        if new_leaders:
            nodes = [Node(node.node_id, node.host, node.port, node.rack) for node in response.message.node_endpoints]
            self._metadata.update_leaders(new_leaders, nodes)
        for batch in unanswered.values():
            # equivalent to a lost response
            error = errors.NetworkExceptionError(f"node {response.node_id} did not answer for {batch.topic_partition}")
            self._outcomes.attempt_failed(batch, error, None, now_ms)
        return None

    @cython.cfunc
    def _return_memory(self) -> object:
        if self._compressors is not None:
            self._compressors.return_memory()
        return None

    def _fail_everything(self, error: KafkaError) -> None:
        """Fail every incomplete batch. Nothing runs on this thread afterwards."""
        self._late_wakes.wake()
        self._abort_where_asked()
        self._return_memory()
        if self._transaction is not None:
            self._transaction.transaction.fail_pending(error)
        self._accumulator.take_everything()
        self._in_flight.clear()
        self._outcomes.fail_incomplete(error)
