"""Storms: a producer against an embedded cluster with faults drawn from a seed, and the guarantees that must hold.

python tests/support/producer_storm.py 0:500                                  # this producer, every kind of storm
python tests/support/producer_storm.py 0:500 --client confluent               # librdkafka under the same storms
python tests/support/producer_storm.py 17 --kind idempotent --trace           # one of them, with what the brokers saw

A seed fixes what is drawn, but not how the threads of brokers and client interleave: a failing storm may take several
runs to fail again.

librdkafka 2.16 itself breaks guarantees here. If a partition's first batch is rejected while the second is in flight,
it never resends the first but reports it as delivered ("idempotent"). If a record is rejected as too large, it begins a
new epoch for all partitions, in which it resends a record that the log already has ("splitting").
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol import errors
from headrace.network.protocol.api import ApiKey
from headrace.network.records.batch import RecordBatch
from headrace.producer import KafkaProducer
from headrace.producer.sender import compressors
from headrace.producer.sender.delivery import InLog, Verdict, action_for

TOPIC = "storm"
PATIENCE_S = 120.0
#: The number of trace lines of the brokers to keep.
TRACE_KEPT = 20_000
#: A storm that takes longer is reported.
SLOW_S = 20.0
#: Size of a record for a topic that accepts at most `SMALL_MESSAGES` bytes per batch.
OVERSIZE_BYTES = 1_500
SMALL_MESSAGES = 1_000

RETRIABLE = sorted(
    {
        kind
        for kind in (errors.error_for(code) for code in range(1, 200))
        if kind is not None
        and issubclass(kind, errors.RetriableError)
        and action_for(kind).verdict is Verdict.RETRY
        # brokers report these two only about what really happened, so faults don't inject them
        and not issubclass(kind, (errors.OutOfOrderSequenceNumberError, errors.UnknownProducerIdError))
        and kind is not errors.UnrecognizedBrokerError
    },
    key=lambda kind: kind.code,
)

#: The ones that librdkafka retries, too; with any other it gives up the record.
RETRIED_BY_ALL = [
    errors.UnknownTopicOrPartitionError,
    errors.LeaderNotAvailableError,
    errors.NotLeaderOrFollowerError,
    errors.RequestTimedOutError,
    errors.NotEnoughReplicasError,
    errors.NotEnoughReplicasAfterAppendError,
]

#: the kinds of storm; each implies different guarantees
KINDS = ("idempotent", "expiring", "splitting", "restarting", "one in flight", "acks 1", "acks 0")


class Outcome(NamedTuple):
    """The outcome that a client reported for a record: its offset (-1: delivered at an unknown offset), or an error."""

    offset: int
    error: Any = None
    #: Whether a record with this error may be in the log nevertheless.
    may_be_in_log: bool = False


@dataclass
class Storm:
    """The settings and faults that a seed stands for."""

    seed: int
    kind: str
    brokers: int
    partitions: int
    records: int
    rate: float
    max_in_flight: int
    batch_size: int
    batch_max_size: int
    linger_ms: int
    memory: int
    compression: str
    acks: str
    idempotent: bool
    request_timeout_ms: int
    delivery_timeout_ms: int
    max_message_bytes: int | None
    moves: bool
    restarts: str | None
    aborts: bool
    retriable: Sequence[type[errors.BrokerResponseError]] = field(repr=False)
    dice: random.Random = field(repr=False)

    @classmethod
    def of(cls, seed: int, kind: str | None = None, client: str = "headrace") -> Storm:
        """The storm of a seed, of the given kind or any, that `client` has to survive."""
        dice = random.Random(seed)
        drawn = dice.choice(KINDS)
        kind = kind or drawn
        exactly_once = kind in ("idempotent", "expiring", "splitting", "restarting")
        expiring = kind == "expiring" or (kind in ("splitting", "restarting") and dice.random() < 0.3)
        brokers = 1 if kind in ("acks 1", "acks 0") else dice.choice([1, 3])
        return cls(
            seed=seed,
            kind=kind,
            brokers=brokers,
            partitions=dice.choice([1, 2, 5]),
            records=dice.choice([200, 600]),
            rate=dice.choice([0.02, 0.1, 0.3, 0.5]),
            max_in_flight=dice.randint(1, 5) if exactly_once else 1,
            batch_size=dice.choice([200, 500, 2_000, 10_000]),
            batch_max_size=dice.choice([0, 5_000, 524_288]),
            linger_ms=dice.choice([0, 1, 5]),
            memory=dice.choice([30_000, 1_000_000]),
            compression=dice.choice(["none", "lz4", "gzip"]),
            acks={"acks 1": "1", "acks 0": "0"}.get(kind, "all"),
            idempotent=exactly_once,
            request_timeout_ms=dice.choice([100, 300]) if expiring else dice.choice([200, 600]),
            delivery_timeout_ms=dice.choice([400, 1_000]) if expiring else 120_000,
            max_message_bytes=SMALL_MESSAGES if kind == "splitting" else None,
            moves=brokers > 1 and dice.random() < 0.7,
            restarts=dice.choice(["kill", "stop"]) if kind == "restarting" else None,
            aborts=kind == "expiring" and dice.random() < 0.3,
            retriable=RETRIABLE if client == "headrace" else RETRIED_BY_ALL,
            dice=dice,
        )

    def fault(self) -> Fault | None:
        """The fault for the next produce request, if any."""
        dice = self.dice
        if dice.random() >= self.rate:
            return None
        if self.kind == "acks 0":
            return Fault(throttle_ms=1 + dice.randrange(20))
        lossless = [
            lambda: Fault(delay_ms=1 + dice.randrange(60)),
            lambda: Fault(throttle_ms=1 + dice.randrange(20)),
            lambda: Fault(error=dice.choice(self.retriable), topic=TOPIC, partition=dice.randrange(self.partitions)),
            lambda: Fault(error=dice.choice(self.retriable)),
            lambda: Fault(error=errors.NotLeaderOrFollowerError),
        ]
        lossy = [
            lambda: Fault(lose_answer=True),
            lambda: Fault(cut_after_bytes=dice.randrange(120)),
            lambda: Fault(close=True),
            lambda: Fault(half_close=True),
            lambda: Fault(silent=True),
            lambda: Fault(error=errors.RequestTimedOutError, lose_answer=True),
        ]
        return dice.choice([*lossless, *lossy])()

    def late_ms(self) -> float:
        """How long a broker leaves a request unread, so that the client may have given it up."""
        dice = self.dice
        return dice.choice([1.0, 1.5]) * self.request_timeout_ms if dice.random() < self.rate * 0.02 else 0.0

    def value(self, dice: random.Random, number: int) -> bytes:
        """The value of a record: its number, and padding."""
        if self.max_message_bytes is not None and dice.random() < 0.01:
            return b"%06d" % number + dice.randbytes(OVERSIZE_BYTES)
        return b"%06d" % number + b"." * dice.choice([0, 10, 100])


class StormClient(Protocol):
    """A producer, as used by a storm."""

    def send(self, partition: int, value: bytes) -> None: ...

    def abort(self) -> None: ...

    def end(self) -> list[list[Outcome]]:
        """Wait for every outcome, and close. Returns the outcomes per partition, in the order of the sends."""
        ...


class HeadraceClient:
    """This project's producer."""

    def __init__(self, bootstrap_servers: str, storm: Storm) -> None:
        self._futures: list[list[Any]] = [[] for _ in range(storm.partitions)]
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            acks=storm.acks,
            enable_idempotence=storm.idempotent,
            max_in_flight_requests_per_connection=storm.max_in_flight,
            batch_size=storm.batch_size,
            batch_max_size=storm.batch_max_size,
            linger_ms=storm.linger_ms,
            buffer_memory=storm.memory,
            compression_type=storm.compression,
            request_timeout_ms=storm.request_timeout_ms,
            delivery_timeout_ms=storm.delivery_timeout_ms,
            retry_backoff_ms=5,
            retry_backoff_max_ms=20,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=20,
            max_block_ms=20_000,
        )

    def send(self, partition: int, value: bytes) -> None:
        self._futures[partition].append(self._producer.send(TOPIC, value, partition=partition))

    def abort(self) -> None:
        self._producer.abort()

    def end(self) -> list[list[Outcome]]:
        try:
            self._producer.flush(PATIENCE_S)
        finally:
            self._producer.close(0)
        return [[self._outcome(future) for future in futures] for futures in self._futures]

    @staticmethod
    def _outcome(future: Any) -> Outcome:
        error = future.exception(0)
        if error is None:
            return Outcome(future.get(0).offset)
        # as in docs/errors.md: `__cause__` is an earlier attempt's error, if that one matters
        may_be_in_log = any(
            isinstance(each, errors.KafkaError) and action_for(each).in_log is not InLog.NO
            for each in (error, error.__cause__)
        )
        return Outcome(-1, error, may_be_in_log)


class ConfluentClient:
    """librdkafka: the control that distinguishes a broker's defect from a producer's."""

    def __init__(self, bootstrap_servers: str, storm: Storm) -> None:
        import confluent_kafka  # noqa: PLC0415  (only the control needs it)

        self._outcomes: list[list[Outcome | None]] = [[] for _ in range(storm.partitions)]
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": storm.acks,
                "enable.idempotence": storm.idempotent,
                "max.in.flight.requests.per.connection": storm.max_in_flight,
                "batch.size": storm.batch_size,
                "linger.ms": storm.linger_ms,
                "queue.buffering.max.messages": 10_000_000,
                "compression.type": storm.compression,
                "request.timeout.ms": storm.request_timeout_ms,
                "socket.timeout.ms": max(storm.request_timeout_ms, 10),
                "message.timeout.ms": storm.delivery_timeout_ms,
                "retry.backoff.ms": 5,
                "retry.backoff.max.ms": 20,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 20,
                "log_level": 0,
            }
        )

    def send(self, partition: int, value: bytes) -> None:
        outcomes = self._outcomes[partition]
        place = len(outcomes)
        outcomes.append(None)

        def told(error: Any, message: Any) -> None:
            # a failed record may be persisted: librdkafka knows, but its Python binding doesn't report it
            outcomes[place] = Outcome(-1, error, True) if error is not None else Outcome(_offset_of(message))

        try:
            self._producer.produce(TOPIC, value, partition=partition, on_delivery=told)
            self._producer.poll(0)
        except Exception as fatal:  # confluent_kafka.KafkaException: also raised by all later calls
            outcomes[place] = Outcome(-1, fatal)

    def abort(self) -> None:
        self._producer.purge()

    def end(self) -> list[list[Outcome]]:
        # raises SystemError after a fatal error
        with contextlib.suppress(SystemError):
            left = self._producer.flush(PATIENCE_S)
            if left:
                raise errors.KafkaTimeoutError(f"librdkafka did not deliver {left} records")
        return [[outcome or Outcome(-1, "not reported") for outcome in outcomes] for outcomes in self._outcomes]


def _offset_of(message: Any) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


CLIENTS: dict[str, Callable[[str, Storm], StormClient]] = {"headrace": HeadraceClient, "confluent": ConfluentClient}


class StormResult(NamedTuple):
    """`findings` is empty if every guarantee held."""

    findings: list[str]
    trace: list[str]
    told: Counter[str]


def run_storm(storm: Storm, client: str = "headrace") -> StormResult:
    """Run a storm over a producer, and check the log against the outcomes."""
    trace: deque[str] = deque(maxlen=TRACE_KEPT)
    lock = threading.Lock()
    calm = threading.Event()
    defects = _Defects()

    def produce(context: Any, message: Any) -> Fault | None:
        if calm.is_set():
            return None
        with lock:
            fault, late_ms = storm.fault(), storm.late_ms()
            trace.extend(_seen(context, message, fault, late_ms))
        if late_ms:
            calm.wait(late_ms / 1000.0)
        return fault

    def other(context: Any, message: Any) -> Fault | None:
        with lock:
            return Fault(close=True) if not calm.is_set() and storm.dice.random() < 0.1 else None

    with defects, EmbeddedCluster(brokers=storm.brokers, min_insync_replicas=1) as cluster:
        configs = None if storm.max_message_bytes is None else {"max.message.bytes": str(storm.max_message_bytes)}
        cluster.create_topic(TOPIC, storm.partitions, replication_factor=storm.brokers, configs=configs)
        cluster.on_request(ApiKey.PRODUCE, produce)
        cluster.on_request(ApiKey.METADATA, other)
        cluster.on_request(ApiKey.INIT_PRODUCER_ID, other)
        producer = CLIENTS[client](cluster.bootstrap_servers, storm)
        sent: list[list[bytes]] = [[] for _ in range(storm.partitions)]
        refused: list[str] = []

        def send(partition: int) -> None:
            dice = random.Random(f"{storm.seed}/{partition}")
            gate = threading.Event()
            for number in range(storm.records):
                sent[partition].append(storm.value(dice, number))
                try:
                    producer.send(partition, sent[partition][-1])
                except errors.KafkaError as error:
                    refused.append(f"partition {partition}, record {number}: {error!r}")
                    return
                if storm.delivery_timeout_ms < PATIENCE_S * 1000 and number % 20 == 0:
                    # an expiring record then has others behind it
                    gate.wait(dice.random() * 0.03)

        threads = [threading.Thread(target=send, args=(partition,)) for partition in range(storm.partitions)]
        for thread in threads:
            thread.start()
        _weather(storm, cluster, producer, threads)
        calm_timer = threading.Timer(PATIENCE_S / 4, calm.set)
        calm_timer.start()
        try:
            outcomes = producer.end()
        except errors.KafkaTimeoutError as hung:
            return StormResult([f"hangs: {hung}"], list(trace), Counter())
        finally:
            calm.set()
            calm_timer.cancel()
        findings = [*refused, *defects.found]
        for partition in range(storm.partitions):
            log = [(record.offset, record.value) for record in cluster.records(TOPIC, partition)]
            for finding in judge(storm, sent[partition], outcomes[partition], log):
                findings.append(f"partition {partition}: {finding}")
            trace.extend(_log_of(cluster, partition))
    told = Counter(
        "delivered" if outcome.error is None else type(outcome.error).__name__ for each in outcomes for outcome in each
    )
    return StormResult(findings, list(trace), told)


class _Defects(logging.Handler):
    """Failures that brokers and producer log as their own defects, which no storm may cause."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(f"defect: {record.getMessage()}: {record.exc_info[1]!r}")

    def __enter__(self) -> _Defects:
        logging.getLogger("headrace").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("headrace").removeHandler(self)


def _weather(
    storm: Storm, cluster: EmbeddedCluster, producer: StormClient, threads: Sequence[threading.Thread]
) -> None:
    """Move leaders, restart brokers and abort while the records are sent."""
    dice = random.Random(f"{storm.seed}/weather")
    gate = threading.Event()
    turns = 0
    while any(thread.is_alive() for thread in threads) or (storm.restarts and turns < 6):
        turns += 1
        if storm.moves:
            # a replica that is behind can't lead
            with contextlib.suppress(errors.KafkaError):
                cluster.move_leader(TOPIC, dice.randrange(storm.partitions), 1 + dice.randrange(storm.brokers))
        if storm.restarts is not None and dice.random() < 0.3:
            node_id = 1 + dice.randrange(storm.brokers)
            (cluster.stop_broker if storm.restarts == "stop" else cluster.kill_broker)(node_id)
            gate.wait(dice.random() * 0.1)
            cluster.start_broker(node_id)
        if storm.aborts and dice.random() < 0.1:
            producer.abort()
        gate.wait(0.02)


def judge(
    storm: Storm, sent: Sequence[bytes], outcomes: Sequence[Outcome], log: Sequence[tuple[int, bytes]]
) -> Iterable[str]:
    """Report which guarantees of one partition were broken."""
    offsets: dict[int, list[int]] = {}
    numbers = []
    for offset, value in log:
        number = int(value[:6])
        if value != sent[number]:
            yield f"the record at offset {offset} is not what was sent"
        numbers.append(number)
        offsets.setdefault(number, []).append(offset)
    doubled = [number for number, found in offsets.items() if len(found) > 1]
    if storm.idempotent or storm.acks == "0":
        if doubled:
            yield f"{len(doubled)} records doubled: {_some(doubled)}"
        turns = [b for a, b in pairwise(numbers) if b < a]
        if turns and not doubled:
            yield f"out of order: {_some(turns)}"
    else:
        # retried records may come twice, but none may overtake another
        for which, order in (("first", dict.fromkeys(numbers)), ("last", dict.fromkeys(reversed(numbers)))):
            found = list(order)
            if found != sorted(found, reverse=which == "last"):
                yield f"out of order, by the {which} time each came"
    if storm.acks == "0":
        return
    lost = [n for n, outcome in enumerate(outcomes) if outcome.error is None and n not in offsets]
    if lost:
        yield f"{len(lost)} acknowledged records lost: {_some(lost)}"
    misplaced = [
        n for n, outcome in enumerate(outcomes) if outcome.offset >= 0 and outcome.offset not in offsets.get(n, ())
    ]
    if misplaced and not lost:
        yield f"{len(misplaced)} records are not where their metadata say: {_some(misplaced)}"
    disowned = [n for n, outcome in enumerate(outcomes) if outcome.error and not outcome.may_be_in_log and n in offsets]
    if disowned:
        yield f"{len(disowned)} records failed as if not in the log, but are: {_some(disowned)} {outcomes[disowned[0]]}"
    if storm.delivery_timeout_ms >= PATIENCE_S * 1000 and storm.max_message_bytes is None:
        failed = [n for n, outcome in enumerate(outcomes) if outcome.error]
        if failed:
            yield f"{len(failed)} records failed: {_some(failed)} {outcomes[failed[0]]}"


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")


def _seen(context: Any, message: Any, fault: Fault | None, late_ms: float) -> Iterable[str]:
    """One line per batch of a produce request."""
    for topic in message.topic_data:
        for data in topic.partition_data:
            batch = RecordBatch(data.records)
            yield (
                f"{SYSTEM_CLOCK.now_ms():.0f} node {context.node_id} {context.connection.id} #{context.correlation_id}"
                f": {data.index}, epoch {batch.producer_epoch}, sequence {batch.base_sequence}, {batch.count} records; "
                f"{fault or 'no fault'}{f', {late_ms:.0f} ms late' if late_ms else ''}"
            )


def _log_of(cluster: EmbeddedCluster, partition: int) -> Iterable[str]:
    log = cluster.broker(cluster.leader_of(TOPIC, partition)).replicas.partition((TOPIC, partition)).log
    for batch in log.batches(log.log_start_offset, log.end.offset):
        numbers = [int((record.value or b"-1")[:6]) for record in batch.records()]
        yield (
            f"log {partition}: offset {batch.base_offset}, leader epoch {batch.partition_leader_epoch}, epoch "
            f"{batch.producer_epoch}, sequence {batch.base_sequence}, records {numbers[0]} to {numbers[-1]}"
        )


def parse_seeds(text: str) -> range:
    """Parse ``"17"`` or ``"0:500"``."""
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="storms of faults over a producer")
    parser.add_argument("seeds", type=parse_seeds, help="17, or 0:500")
    parser.add_argument("--client", choices=sorted(CLIENTS), default="headrace")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--trace", type=Path, help="folder for the brokers' traces of failed storms")
    options = parser.parse_args(arguments)
    logging.getLogger("headrace").propagate = False
    told: Counter[str] = Counter()
    bad = 0
    for seed in options.seeds:
        started_ms = SYSTEM_CLOCK.now_ms()
        storm = Storm.of(seed, options.kind, options.client)
        result = run_storm(storm, options.client)
        told += result.told
        slow_s = (SYSTEM_CLOCK.now_ms() - started_ms) / 1000.0
        if slow_s > SLOW_S:
            print(f"{seed} took {slow_s:.0f} s: {storm}", flush=True)
        if result.findings:
            bad += 1
            print(seed, storm, *result.findings, sep="\n    ", flush=True)
            if options.trace is not None:
                options.trace.mkdir(parents=True, exist_ok=True)
                lines = [str(storm), *result.findings, *result.trace]
                (options.trace / f"{options.client}-{seed}.txt").write_text("\n".join(lines))
    print(f"{len(options.seeds)} storms over {options.client}, {bad} broke a promise; records: {dict(told)}")
    return 1 if bad else 0


if __name__ == "__main__":
    # the storm's batches are small: share them among the threads that compress all the same
    compressors.MIN_SHARED_BYTES = 0
    sys.exit(main())
