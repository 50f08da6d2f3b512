# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""What the sender thread takes from the queues: which batches can be sent, which to send, and which have expired.

A turn of the sender costs one look at each queue that does not only linger (`ready`), and then only work for the
batches it sends.

Source: Kafka's RecordAccumulator.ready, drain and expiredBatches.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.clock import LONG_AGO_MS, NEVER_MS
from ...network.cluster import Node
from .given_up import GivenUp

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from .batch_cy import ProducerBatch
    from .buffer_pool_cy import BufferPool
    from .queues_cy import PartitionQueue, WaitingQueues
elif not TYPE_CHECKING:
    from cython.cimports.headrace.producer.accumulator.batch_cy import ProducerBatch
    from cython.cimports.headrace.producer.accumulator.buffer_pool_cy import BufferPool
    from cython.cimports.headrace.producer.accumulator.queues_cy import PartitionQueue, WaitingQueues

if TYPE_CHECKING:
    from .stash import Stash


@cython.final
@cython.cclass
class ReadyCheck:
    """The result of `RecordAccumulator.ready`."""

    if not cython.compiled:
        # for type checkers; drain_cy.pxd has the C types
        nodes: dict[int, Node]
        leaderless_topics: set[str]

    def __init__(self) -> None:
        """Nothing is ready, and nothing to wait for."""
        self.nodes = {}
        self.next_check_ms = NEVER_MS
        self.leaderless_topics = set()


@cython.final
@cython.cclass
class Drain:
    """Takes batches off the `waiting` queues. Sender thread only."""

    def __init__(
        self,
        waiting: WaitingQueues,
        *,
        pool: BufferPool,
        stash: Stash,
        transactions: Any,
        linger_ms: float,
        delivery_timeout_ms: float,
        max_open_ms: float,
    ) -> None:
        """`waiting`: the queues with batches. `max_open_ms`: how long a batch takes records.

        The others are those of the accumulator.
        """
        self.waiting = waiting
        self.pool = pool
        self.stash = stash
        self.transactions = transactions
        self.linger_ms = linger_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.max_open_ms = max_open_ms
        #: Batches passed over because no response could arrive before they expire: a heap by age.
        self.given_up = GivenUp()
        #: The queues whose first batch `ready` found sendable, by node.
        self.sendable = {}
        #: All of these, and the result for the others.
        self.found = []
        #: Whether `drain` has left batches in queues that it took one from.
        self.more = False
        self.later_ms = NEVER_MS
        #: When `expired` may have something to do.
        self.expiry_look_ms = LONG_AGO_MS
        #: The share of their size that batches are expected to have once they are compressed.
        self.packed_share = 1.0

    @cython.ccall
    def ready(self, now_ms: cython.double, busy: Collection[int], hurry: cython.bint, again: cython.bint) -> ReadyCheck:
        """Return the brokers with sendable batches, when to check again, and the topics without a known leader.

        A batch is sendable if it is closed or has lingered, or in a `hurry`; unless it backs off after a failed
        attempt. The backoff ends early when the partition gets a new leader (KIP-951). A full batch is sendable as
        well, unless its broker is one of the `busy` ones: then it may grow. A batch that has lingered for half of the
        time goes along with others for its broker, which saves a request.

        While threads wait for memory, a broker that isn't busy and has no sendable batch gets all its batches, those
        with the most memory first. Then a batch doesn't count that may not be sent before the outcome of earlier ones.

        `again`: look only at the queues found sendable last time, some of which have been drained since.
        """
        queue: PartitionQueue
        batch: ProducerBatch | None
        check: ReadyCheck = ReadyCheck()
        nodes: dict = check.nodes
        ready: dict = {}
        soon: dict = {}
        others: dict = {}
        next_check_ms: cython.double = self.later_ms if again else NEVER_MS
        pressure: cython.bint = self.pool.is_awaited()
        wait_ms: cython.double
        half_ms: cython.double = self.linger_ms / 2
        looks: cython.bint = hurry or pressure
        queues: list
        self.more = False
        if again:
            queues = self.found
        elif looks:
            queues = self.waiting.all()
        else:
            next_check_ms = self.waiting.take_lingered(now_ms, []) - now_ms
            queues = list(self.waiting.active)
        for queue in queues:
            batch = queue.first()
            if batch is None:
                continue
            if queue.leader_id < 0:
                check.leaderless_topics.add(queue.topic)
                continue
            if queue.muted:
                continue
            if batch.attempts > 0:
                wait_ms = queue.backoff_left_ms(batch, now_ms)
            elif hurry or batch.closed:
                wait_ms = 0.0
            else:
                wait_ms = batch.created_ms + self.linger_ms - now_ms
                if wait_ms > 0.0:
                    if batch.full and queue.leader_id not in busy:
                        wait_ms = 0.0
                    elif wait_ms <= half_ms:
                        soon.setdefault(queue.leader_id, []).append(queue)
                    elif pressure:
                        others.setdefault(queue.leader_id, []).append(queue)
            if wait_ms <= 0.0:
                node = queue.leading_node()
                if node is None:
                    # without the GIL: a caller's thread has just applied metadata
                    check.leaderless_topics.add(queue.topic)
                    continue
                nodes[node.id] = node
                if pressure and self.transactions is not None and not self.transactions.may_drain(batch):
                    continue
                ready.setdefault(queue.leader_id, []).append(queue)
            elif wait_ms < next_check_ms:
                next_check_ms = wait_ms
        if ready and not looks and not again:
            next_check_ms = min(next_check_ms, self._take_soon(now_ms, ready))
        for node_id, queues in soon.items():
            if node_id in ready:
                cython.cast(list, ready[node_id]).extend(queues)
            elif pressure:
                others.setdefault(node_id, []).extend(queues)
        for node_id, queues in others.items():
            if node_id not in ready and node_id not in busy:
                queues.sort(key=PartitionQueue.first_bytes, reverse=True)
                node = cython.cast(PartitionQueue, queues[0]).leading_node()
                if node is not None:
                    nodes[node.id] = node
                    ready[node_id] = queues
        self.sendable = ready
        self.later_ms = next_check_ms
        self.found = [queue for queues in ready.values() for queue in queues]
        check.next_check_ms = next_check_ms
        return check

    @cython.cfunc
    def _take_soon(self, now_ms: cython.double, ready: dict) -> cython.double:
        """Let the queues that have lingered for half of the time go along with others for the same brokers.

        `ready`: the sendable queues by node. Those for other brokers are looked at each turn from now on.
        Returns in how many milliseconds the first queue has lingered, which may be one that is not drained after all.
        """
        queue: PartitionQueue
        batch: ProducerBatch | None
        taken: list = []
        next_ms: cython.double = self.waiting.take_lingered(now_ms + self.linger_ms / 2, taken)
        for queue in taken:
            if queue.leader_id in ready:
                cython.cast(list, ready[queue.leader_id]).append(queue)
            batch = queue.first()
            if batch is not None:
                next_ms = min(next_ms, batch.created_ms + self.linger_ms)
        return next_ms - now_ms

    @cython.ccall
    def drain(
        self,
        node_id: Any,
        max_bytes: cython.longlong,
        now_ms: cython.double,
        answer_ms: cython.double,
        probe: cython.bint,
    ) -> list:
        """Take the batches of a broker that `ready` found sendable: one per partition, at least one, and no more than
        `max_bytes` in total, as far as `packed_share` is right for those that have yet to be compressed.

        A drained partition goes to the end of the line, so that none starves if not all fit into a request.

        The broker is expected to respond within `answer_ms`. A batch that expires sooner is given up as soon as a
        younger batch of its partition is taken. Without a younger one it waits, unless it is to `probe` the broker.
        """
        queue: PartitionQueue
        batch: ProducerBatch | None
        created_from_ms: cython.double = now_ms + answer_ms - self.delivery_timeout_ms
        drained: list = []
        size: cython.double = 0.0
        batch_size: cython.double
        for queue in self.sendable.pop(node_id, ()):
            if queue.muted or queue.leader_id != node_id:
                continue
            batch = queue.first_in_time(created_from_ms)
            if batch is None and probe:
                batch = queue.first()
            if batch is None:
                continue
            if batch.attempts > 0 and queue.backoff_left_ms(batch, now_ms) > 0.0:
                continue
            if self.transactions is not None and not self.transactions.may_drain(batch):
                continue
            queue.close(batch)
            batch_size = self._packed_bytes(batch)
            if drained and size + batch_size > max_bytes:
                self.more = True
                break
            batch = self._take(queue, batch)
            if len(queue.batches) > 0:
                self.more = True
            size += batch_size
            batch.drained_ms = now_ms
            batch.leader_epoch = queue.leader_epoch
            drained.append(batch)
        return drained

    @cython.cfunc
    def _packed_bytes(self, batch: ProducerBatch) -> cython.double:
        size: cython.double = cython.cast(cython.double, batch.builder.earlier_bytes + batch.builder.position)
        return size * self.packed_share if batch.compression is None else size

    @cython.cfunc
    def _take(self, queue: PartitionQueue, wanted: ProducerBatch) -> ProducerBatch:
        """Take a batch off a queue and give up those before it."""
        while True:
            batch: ProducerBatch = cython.cast(ProducerBatch, queue.take_first())
            if batch is wanted:
                return batch
            self.given_up.add(batch)

    @cython.ccall
    def expired(self, now_ms: cython.double) -> list:
        """Take off and return every batch older than ``delivery.timeout.ms``.

        Closes open batches older than MAX_OPEN_SHARE of it. Looks at the queues only when there may be such a
        batch: a new one is none before MAX_OPEN_SHARE has passed.
        """
        queue: PartitionQueue
        batch: ProducerBatch | None
        gone: list = []
        created_by_ms: cython.double = now_ms - self.delivery_timeout_ms
        oldest_ms: cython.double = NEVER_MS
        open_ms: cython.double = now_ms
        if now_ms < self.expiry_look_ms:
            return gone
        for queue in self.waiting.all():
            batch = queue.oldest(now_ms - self.max_open_ms)
            while batch is not None and batch.created_ms <= created_by_ms:
                gone.append(queue.take_first())
                batch = queue.first()
            if batch is not None:
                oldest_ms = min(oldest_ms, batch.created_ms)
            open_ms = min(open_ms, queue.open_since_ms())
        gone.extend(self.given_up.take_older(created_by_ms))
        gone.extend(self.stash.take_back_older(created_by_ms))
        oldest_ms = min(oldest_ms, self.given_up.oldest_ms(), self.stash.oldest_ms())
        self.expiry_look_ms = min(oldest_ms + self.delivery_timeout_ms, open_ms + self.max_open_ms)
        return gone

    @cython.ccall
    def note_deadline(self, batch: ProducerBatch) -> object:
        """A batch is back in a queue: look again when it expires."""
        self.expiry_look_ms = min(self.expiry_look_ms, batch.created_ms + self.delivery_timeout_ms)
        return None
