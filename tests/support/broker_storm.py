"""Storms: clusters whose machines lose power at moments drawn from a seed, and the guarantees that must hold.

python tests/support/broker_storm.py 0:100                        # every kind of storm
python tests/support/broker_storm.py 17 --kind overlapping --losses   # one of them, with what each power cut lost

A seed fixes what is drawn, but not how the threads interleave: a failing storm may take several runs to fail again.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol import errors
from headrace.producer import KafkaProducer
from support.power_cut import PowerCuts
from support.producer_storm import parse_seeds

TOPIC = "storm"
PARTITIONS = 2
PATIENCE_S = 60.0
#: one by one: a broker loses power only when all replicas are in sync, so no acknowledged record is lost.
#: overlapping: brokers lose power at any time. Acknowledged records may be lost, since two of three replicas may be.
#: one machine: brokers and controller lose power together, and each log keeps a prefix of what it was.
KINDS = ("one by one", "overlapping", "one machine")

Record = tuple[int, bytes]


@dataclass
class StormResult:
    """`findings` is empty if every guarantee held; `losses` is what the power cuts destroyed."""

    findings: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)


class Load:
    """A producer on its own thread that numbers the records of each partition."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.futures: list[list[Any]] = [[] for _ in range(PARTITIONS)]
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap_servers,
            linger_ms=1,
            batch_size=500,
            request_timeout_ms=2_000,
            retry_backoff_ms=5,
            retry_backoff_max_ms=50,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=50,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.0005):
            for partition, futures in enumerate(self.futures):
                futures.append(self._producer.send(TOPIC, value_of(number), partition=partition))
            number += 1

    def end(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(PATIENCE_S)
        self._producer.close(0)


def value_of(number: int) -> bytes:
    return b"%d" % number + b"." * (number % 50)


def run_storm(seed: int, kind: str) -> StormResult:
    """Run a storm over a cluster, and check what is left."""
    dice = random.Random(f"{seed}/{kind}")
    settings = {
        "num_partitions": PARTITIONS,
        "replica_lag_time_max_ms": 300,
        "log_segment_bytes": dice.choice([2_000, 10_000, 2**20]),
        "log_flush_interval_messages": dice.choice([2**62, 50, 1]),
    }
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "data")
        directory.mkdir()
        storm = _one_machine if kind == "one machine" else _three_machines
        return storm(dice, directory, settings, patient=kind == "one by one")


# --- Three brokers on separate machines ---


def _three_machines(dice: random.Random, directory: Path, settings: dict[str, Any], *, patient: bool) -> StormResult:
    result = StormResult()
    machines = {node_id: directory / f"broker-{node_id}" for node_id in (1, 2, 3)}
    settings = {**settings, "default_replication_factor": 3, "min_insync_replicas": 2}
    with PowerCuts(*machines.values()) as power, EmbeddedCluster(3, data_dir=directory, **settings) as cluster:
        cluster.create_topic(TOPIC)
        load = Load(cluster.bootstrap_servers)
        try:
            for _ in range(14):
                _wait(dice.uniform(0.02, 0.2))
                if patient:
                    _until(lambda: _are_in_sync(cluster), "all replicas are in sync")
                _happen(dice, cluster, power, machines, result, patient=patient)
        finally:
            cluster.heal_links()
            load.end()
        _until(lambda: _are_in_sync(cluster) and _have_one_end(cluster), "the replicas have the same end")
        for partition in range(PARTITIONS):
            copies = [_records(cluster, TOPIC, partition, node_id) for node_id in machines]
            findings = [*_judge_copies(copies), *_judge_records(copies[0], load.futures[partition], patient=patient)]
            result.findings += [f"partition {partition}: {finding}" for finding in findings]
    return result


def _happen(
    dice: random.Random,
    cluster: EmbeddedCluster,
    power: PowerCuts,
    machines: dict[int, Path],
    result: StormResult,
    *,
    patient: bool,
) -> None:
    """Apply one event."""
    node_id = dice.choice(list(machines))
    what = dice.choice(["power cut"] * 4 + ["stop", "move", "flush", "checkpoint", "split"])
    if what in ("power cut", "stop"):
        if what == "stop":
            cluster.stop_broker(node_id)
        else:
            cluster.kill_broker(node_id)
            result.losses += [f"broker {node_id}", *power.cut(machines[node_id], dice)]
        _wait(dice.choice([0, 0.02, 0.2]))
        cluster.start_broker(node_id)
    elif what == "move":
        # Only an in-sync replica can lead.
        with contextlib.suppress(errors.InvalidRequestError):
            cluster.move_leader(TOPIC, dice.randrange(PARTITIONS), node_id)
    elif what == "split" and not patient:
        cluster.cut_link(*dice.sample(list(machines), 2))
        _wait(dice.choice([0.1, 0.5]))
        cluster.heal_links()
    else:
        _flush_some(dice, cluster, node_id, checkpoints=what == "checkpoint")


def _flush_some(dice: random.Random, cluster: EmbeddedCluster, node_id: int, *, checkpoints: bool) -> None:
    logs = cluster.broker(node_id).logs
    for log in list(logs.logs.values()):
        if dice.random() < 0.7:
            log.flush()
    if checkpoints:
        logs.checkpoint()


def _judge_copies(copies: Sequence[Sequence[Record]]) -> Iterable[str]:
    for copy in copies:
        if [offset for offset, _ in copy] != list(range(len(copy))):
            yield f"offsets are missing or double among {len(copy)}"
    if any(copy != copies[0] for copy in copies):
        yield f"the replicas differ; they have {[len(copy) for copy in copies]} records"


def _judge_records(log: Sequence[Record], futures: Sequence[Any], *, patient: bool) -> Iterable[str]:
    numbers = [int(value.partition(b".")[0]) for _, value in log]
    if any(value != value_of(number) for (_, value), number in zip(log, numbers, strict=True)):
        yield "a record is not what was sent"
    if not patient:
        return
    if numbers != sorted(set(numbers)):
        yield "records are double or out of order"
    at = dict(zip(numbers, (offset for offset, _ in log), strict=True))
    for number, future in enumerate(futures):
        failed = future.exception(0)
        if failed is not None:
            yield f"record {number} failed: {failed!r}"
        elif at.get(number) != future.get(0).offset:
            yield f"the acknowledged record {number} is not at offset {future.get(0).offset}"


def _are_in_sync(cluster: EmbeddedCluster) -> bool:
    parts = [part for topic in cluster.controller.image.topics.values() for part in topic.partitions]
    return all(set(part.isr) == set(part.replicas) for part in parts) and not any(
        broker.replicas.replicas.offline for broker in cluster.brokers.values()
    )


def _have_one_end(cluster: EmbeddedCluster) -> bool:
    ends: dict[Any, set[int]] = {}
    for broker in cluster.brokers.values():
        for key, partition in broker.replicas.partitions.items():
            ends.setdefault(key, set()).add(partition.log.end.offset)
    return all(len(each) == 1 for each in ends.values())


def _records(cluster: EmbeddedCluster, topic: str, partition: int, node_id: int | None = None) -> list[Record]:
    return [(record.offset, bytes(record.value)) for record in cluster.records(topic, partition, node_id)]


# --- Brokers and controller on one machine ---


@dataclass
class _Known:
    """A partition before its machine lost power."""

    topic_id: uuid.UUID
    records: list[Record]
    #: Up to where a single replica is flushed; 0 with several, since a new leader may have flushed less.
    flushed: int


def _one_machine(dice: random.Random, directory: Path, settings: dict[str, Any], *, patient: bool) -> StormResult:
    del patient
    result = StormResult()
    brokers = dice.choice([1, 3])
    settings = {**settings, "default_replication_factor": brokers}
    with PowerCuts(directory) as power:
        for turn in range(5):
            loses_power = dice.random() < 0.8
            with EmbeddedCluster(brokers, data_dir=directory, **settings) as cluster:
                known = _use(dice, cluster, turn)
                if loses_power:
                    for node_id in cluster.brokers:
                        cluster.kill_broker(node_id)
            if loses_power:
                result.losses += [f"turn {turn}", *power.cut(directory, dice)]
            with EmbeddedCluster(brokers, data_dir=directory, **settings) as cluster:
                _until(lambda of=cluster: _are_in_sync(of) and _have_one_end(of), "the replicas have the same end")
                for finding in _judge_machine(cluster, known, loses_power=loses_power):
                    result.findings.append(f"turn {turn}: {finding}")
            if result.findings:
                break
    return result


def _use(dice: random.Random, cluster: EmbeddedCluster, turn: int) -> dict[tuple[str, int], _Known]:
    """Create and delete topics, write records, flush some."""
    for name in ("a", "b", "c"):
        with contextlib.suppress(errors.TopicAlreadyExistsError, errors.UnknownTopicOrPartitionError):
            if dice.random() < 0.6:
                cluster.create_topic(name)
            elif dice.random() < 0.4:
                cluster.controller.delete_topic(name)
    topics = cluster.controller.image.topics
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1, batch_size=500) as producer:
        for number in range(dice.choice([30, 300])):
            for name in topics:
                for partition in range(PARTITIONS):
                    producer.send(name, b"%d/%d" % (turn, number), partition=partition)
    for node_id in cluster.brokers:
        _flush_some(dice, cluster, node_id, checkpoints=dice.random() < 0.3)
    known = {}
    for name, topic in topics.items():
        for partition in range(PARTITIONS):
            log = cluster.broker(cluster.leader_of(name, partition)).replicas.partition((name, partition)).log
            flushed = log.recovery_point if len(cluster.brokers) == 1 else 0
            known[name, partition] = _Known(topic.topic_id, _records(cluster, name, partition), flushed)
    return known


def _judge_machine(
    cluster: EmbeddedCluster, known: dict[tuple[str, int], _Known], *, loses_power: bool
) -> Iterable[str]:
    topics = cluster.controller.image.topics
    if {name for name, _ in known} != set(topics):
        yield f"the topics are {sorted(topics)}"
        return
    for (name, partition), before in known.items():
        if topics[name].topic_id != before.topic_id:
            yield f"{name} is another topic"
        copies = [_records(cluster, name, partition, node_id) for node_id in cluster.brokers]
        for finding in _judge_copies(copies):
            yield f"{name}-{partition}: {finding}"
        left = copies[0]
        if left != before.records[: len(left)]:
            yield f"{name}-{partition} has records that it did not have before"
        if len(left) < (before.flushed if loses_power else len(before.records)):
            yield f"{name}-{partition} lost what was flushed: {len(left)} of {before.flushed} records are left"


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _until(happened: Callable[[], bool], what: str) -> None:
    deadline_ms = SYSTEM_CLOCK.now_ms() + PATIENCE_S * 1000
    while not happened():
        if SYSTEM_CLOCK.now_ms() > deadline_ms:
            raise errors.KafkaTimeoutError(f"not within {PATIENCE_S:.0f} s: {what}")
        _wait(0.01)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="power cuts over a cluster")
    parser.add_argument("seeds", type=parse_seeds, help="17, or 0:100")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--losses", action="store_true", help="report what each power cut destroyed")
    options = parser.parse_args(arguments)
    logging.getLogger("headrace").addHandler(logging.NullHandler())
    logging.getLogger("headrace").propagate = False
    bad = 0
    for seed in options.seeds:
        for kind in [options.kind] if options.kind else KINDS:
            try:
                result = run_storm(seed, kind)
            except errors.KafkaTimeoutError as stuck:
                result = StormResult([str(stuck)])
            if options.losses:
                print(*result.losses, sep="\n    ", flush=True)
            if result.findings:
                bad += 1
                print(f"{seed}, {kind}", *result.findings[:20], sep="\n    ", flush=True)
    print(f"{len(options.seeds)} seeds, {bad} storms broke a promise")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
