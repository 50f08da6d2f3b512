"""What a producer is doing now, for a person who debugs it: `KafkaProducer.describe`.

Everything is read without the locks of the sender and of the queues, so it costs the producer nothing but the GIL. The
numbers of a running producer may therefore be a moment apart from each other.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..network._build import VERSION
from ..network.text import counted, duration_text, size_text, table

if TYPE_CHECKING:
    from .engine import Engine

_WIDTH = 100


@dataclass(frozen=True)
class BrokerDescription:
    """A broker, or a bootstrap server, which has a negative `id`.

    `state`: of the connection, in words. `requests_in_flight`: requests of any kind that await a response, the oldest
    for `oldest_request_ms`. `failed_attempts`: connection attempts that failed in a row; the next is made after
    `retry_in_ms`. `throttled_ms`: how much longer the broker throttles this client. `error`: the last one since the
    connection was last ready.
    """

    id: int
    address: str
    rack: str | None
    state: str
    requests_in_flight: int
    oldest_request_ms: float | None
    failed_attempts: int
    retry_in_ms: float
    throttled_ms: float
    error: str | None


@dataclass(frozen=True)
class Pending:
    """Records that are not acknowledged yet: their batches, number and encoded bytes."""

    batches: int = 0
    records: int = 0
    bytes: int = 0

    def _with(self, records: int, size_bytes: int) -> Pending:
        return Pending(self.batches + 1, self.records + records, self.bytes + size_bytes)

    def __str__(self) -> str:
        if not self.batches:
            return "none"
        batches = counted(self.batches, "batch", "batches")
        return f"{counted(self.records, 'record')} in {batches}, {size_text(self.bytes)}"


@dataclass(frozen=True)
class TopicDescription:
    """A topic that this producer sends to.

    `partitions`: their number; 0 while it isn't known. `leaderless`: the partitions without a leader. `waiting` and
    `in_flight`: records in the queues, and in requests. `oldest_ms`: the age of the oldest of them. `retrying`: the
    batches of which an attempt failed. `error`: the error of the last attempt of such a batch, or of the metadata.
    """

    name: str
    partitions: int
    leaderless: tuple[int, ...]
    waiting: Pending
    in_flight: Pending
    oldest_ms: float | None
    retrying: int
    error: str | None


@dataclass(frozen=True)
class ErrorDescription:
    """An error of records of one topic: how many failed with it, how many were sent again, and how long ago it came
    last."""

    topic: str
    error: str
    failed: int
    retried: int
    age_ms: float


@dataclass(frozen=True)
class TransactionDescription:
    """The state of a producer's transactions. `number`: how many it has begun."""

    transactional_id: str
    state: str
    number: int
    error: str | None


@dataclass(frozen=True)
class ProducerDescription:
    """A snapshot of a producer. `str` makes a page of text of it, and `as_dict` what JSON can have.

    `state`: open, closing, closed, or why it can't send. `metadata_age_ms`: None until a broker has answered.
    `metadata_error`: of the last attempt to reach a broker, if it failed. `waiting` and `in_flight`: all records that
    are not acknowledged; the oldest of them waits for `oldest_ms`. `callbacks_pending`: batches whose callbacks have
    not returned. `memory_used_bytes` of `memory_total_bytes`: ``buffer.memory``, for which `waiting_threads` wait.
    `records_sent` includes the retries. `producer_id` and `producer_epoch`: -1 without idempotence, and until brokers
    have assigned them. `brokers`: none once the sender thread has ended. `errors`: the last ones, the latest first.
    """

    client_id: str
    state: str
    version: str
    bootstrap_servers: tuple[str, ...]
    cluster_id: str | None
    metadata_age_ms: float | None
    metadata_error: str | None
    brokers: tuple[BrokerDescription, ...]
    topics: tuple[TopicDescription, ...]
    waiting: Pending
    in_flight: Pending
    oldest_ms: float | None
    callbacks_pending: int
    memory_used_bytes: int
    memory_total_bytes: int
    waiting_threads: int
    records_sent: int
    records_retried: int
    records_failed: int
    producer_id: int
    producer_epoch: int
    transaction: TransactionDescription | None
    errors: tuple[ErrorDescription, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything as dicts, lists, numbers and text."""
        return asdict(self)

    def __str__(self) -> str:
        return _page(self)


def describe(engine: Engine, *, is_closed: bool) -> ProducerDescription:
    """Describe the producer that uses this engine. Any thread."""
    now_ms = engine.clock.now_ms()
    metadata, pool = engine.metadata, engine.pool
    topics, callbacks_pending = _topics(engine, now_ms)
    oldest = [each.oldest_ms for each in topics if each.oldest_ms is not None]
    counters = engine.metrics.counts()
    manager = engine.transactions
    transaction = engine.transaction
    return ProducerDescription(
        client_id=engine.client_id,
        state=_state(engine, is_closed),
        version=VERSION,
        bootstrap_servers=tuple(map(str, engine.config.bootstrap_servers)),
        cluster_id=metadata.cluster.cluster_id,
        metadata_age_ms=None if metadata.cluster.is_bootstrap else metadata.age_ms(now_ms),
        metadata_error=_text(metadata.last_error),
        brokers=_brokers(engine, now_ms),
        topics=topics,
        waiting=_sum([each.waiting for each in topics]),
        in_flight=_sum([each.in_flight for each in topics]),
        oldest_ms=max(oldest, default=None),
        callbacks_pending=callbacks_pending,
        memory_used_bytes=pool.total_bytes - pool.available_bytes,
        memory_total_bytes=pool.total_bytes,
        waiting_threads=pool.waiting,
        records_sent=counters["records"],
        records_retried=counters["retries"],
        records_failed=counters["errors"],
        producer_id=-1 if manager is None else manager.producer_id,
        producer_epoch=-1 if manager is None else manager.producer_epoch,
        transaction=(
            None
            if transaction is None
            else TransactionDescription(
                transaction.transactional_id,
                transaction.state.name.lower().replace("_", " "),
                transaction.number,
                _text(transaction.error),
            )
        ),
        errors=tuple(
            ErrorDescription(each.topic, each.error, each.failed, each.retried, max(now_ms - each.at_ms, 0.0))
            for each in engine.sender.recent_errors.latest_first()
        ),
    )


def _state(engine: Engine, is_closed: bool) -> str:
    if engine.sender.death is not None:
        return f"its sender thread died: {_text(engine.sender.death)}"
    if engine.process_id != os.getpid():
        return f"of process {engine.process_id}; the next send starts it again in this one, {os.getpid()}"
    if is_closed:
        return "closing" if engine.is_alive else "closed"
    if engine.transactions is not None and engine.transactions.fatal_error is not None:
        return f"can't send: {_text(engine.transactions.fatal_error)}"
    return "open"


def _text(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


def _brokers(engine: Engine, now_ms: float) -> tuple[BrokerDescription, ...]:
    """The brokers of the metadata, with their connections, and connections to bootstrap servers."""
    nodes = engine.metadata.cluster.nodes
    found: dict[int, BrokerDescription] = {}
    if not engine.is_alive:
        # the connections closed with the thread
        return ()
    for each in engine.client.connections(now_ms):
        node = nodes.get(each.node_id)
        found[each.node_id] = BrokerDescription(
            id=each.node_id,
            address=each.address,
            rack=None if node is None else node.rack,
            state=each.state,
            requests_in_flight=each.requests_in_flight,
            oldest_request_ms=each.oldest_request_ms,
            failed_attempts=each.failed_attempts,
            retry_in_ms=each.retry_in_ms,
            throttled_ms=each.throttled_ms,
            error=_text(each.error),
        )
    for node in nodes.values():
        if node.id not in found:
            state = "not connected yet"
            found[node.id] = BrokerDescription(node.id, node.address, node.rack, state, 0, None, 0, 0.0, 0.0, None)
    return tuple(found[node_id] for node_id in sorted(found))


def _topics(engine: Engine, now_ms: float) -> tuple[tuple[TopicDescription, ...], int]:
    """The topics, and the number of batches that only wait for their callbacks."""
    waiting: dict[str, Pending] = {}
    in_flight: dict[str, Pending] = {}
    oldest: dict[str, float] = {}
    retrying: dict[str, int] = {}
    errors: dict[str, str | None] = {}
    callbacks_pending = 0
    for batch in engine.accumulator.incomplete_batches():
        if batch.done:
            callbacks_pending += not batch.settled
            continue
        topic = batch.topic
        counts = in_flight if batch.in_flight else waiting
        counts[topic] = counts.get(topic, Pending())._with(batch.count, batch.size_bytes)
        oldest[topic] = min(oldest.get(topic, batch.created_ms), batch.created_ms)
        if batch.last_error is not None:
            retrying[topic] = retrying.get(topic, 0) + 1
            errors[topic] = _text(batch.last_error)
    cluster = engine.metadata.cluster
    names = {*list(engine.accumulator.topics), *waiting, *in_flight}
    found = []
    for name in sorted(names):
        partitions = cluster.partitions_for(name) or ()
        found.append(
            TopicDescription(
                name=name,
                partitions=len(partitions),
                leaderless=tuple(each.partition for each in partitions if each.leader is None),
                waiting=waiting.get(name, Pending()),
                in_flight=in_flight.get(name, Pending()),
                oldest_ms=max(now_ms - oldest[name], 0.0) if name in oldest else None,
                retrying=retrying.get(name, 0),
                error=errors.get(name) or _text(engine.metadata.topic_error(name)),
            )
        )
    return tuple(found), callbacks_pending


def _sum(parts: list[Pending]) -> Pending:
    return Pending(
        sum(each.batches for each in parts), sum(each.records for each in parts), sum(each.bytes for each in parts)
    )


# --- The page of text ---


def _page(described: ProducerDescription) -> str:
    age = described.metadata_age_ms
    facts = [
        (
            "cluster",
            f"{described.cluster_id or 'without an id'}, metadata of {duration_text(age)} ago"
            if age is not None
            else f"no broker of {', '.join(described.bootstrap_servers)} has answered yet",
        ),
        (
            "memory",
            f"{size_text(described.memory_used_bytes)} of {size_text(described.memory_total_bytes)} in use, "
            f"{counted(described.waiting_threads, 'thread')} waiting for some",
        ),
        (
            "records",
            f"{described.records_sent:,} sent, {described.records_retried:,} of them again, "
            f"{described.records_failed:,} failed",
        ),
        ("waiting", str(described.waiting)),
        ("in flight", str(described.in_flight)),
    ]
    if described.oldest_ms is not None:
        facts.append(("oldest", f"since {duration_text(described.oldest_ms)}"))
    if described.callbacks_pending:
        facts.append(("callbacks", f"of {counted(described.callbacks_pending, 'batch', 'batches')} have not returned"))
    if described.producer_id >= 0:
        facts.append(("producer id", f"{described.producer_id}, epoch {described.producer_epoch}"))
    if described.transaction is not None:
        of = described.transaction
        error = "" if of.error is None else f": {_cut(of.error)}"
        facts.append(("transaction", f"{of.transactional_id}, number {of.number}, {of.state}{error}"))
    if described.metadata_error is not None:
        facts.append(("metadata", _cut(described.metadata_error)))
    lines = [f"producer {described.client_id}: {described.state} (headrace {described.version})"]
    lines += [f"  {name:<12}{value}" for name, value in facts]
    for title, head, rows in _tables(described):
        if rows:
            lines += [title, *(f"  {line}" for line in table(head, rows).splitlines())]
    return "\n".join(lines)


def _tables(described: ProducerDescription) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    brokers: list[tuple[object, ...]] = [
        (each.id, each.address, _connection_text(each), each.requests_in_flight, _cut(each.error or ""))
        for each in described.brokers
    ]
    topics: list[tuple[object, ...]] = [
        (
            each.name,
            each.partitions,
            len(each.leaderless),
            each.waiting.records,
            each.in_flight.records,
            "" if each.oldest_ms is None else duration_text(each.oldest_ms),
            each.retrying,
            _cut(each.error or ""),
        )
        for each in described.topics
    ]
    errors: list[tuple[object, ...]] = [
        (f"{duration_text(each.age_ms)} ago", each.topic, each.failed, each.retried, _cut(each.error))
        for each in described.errors
    ]
    return [
        ("brokers", ("id", "address", "connection", "in flight", "error"), brokers),
        (
            "topics",
            ("topic", "partitions", "leaderless", "waiting", "in flight", "oldest", "retrying", "error"),
            topics,
        ),
        ("last errors", ("when", "topic", "failed", "sent again", "error"), errors),
    ]


def _connection_text(broker: BrokerDescription) -> str:
    text = broker.state
    if broker.retry_in_ms > 0:
        text += f", tries again in {duration_text(broker.retry_in_ms)}"
    if broker.throttled_ms > 0:
        text += f", throttled for {duration_text(broker.throttled_ms)}"
    if broker.oldest_request_ms is not None and broker.oldest_request_ms >= 1000:
        text += f", no answer for {duration_text(broker.oldest_request_ms)}"
    return text


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
