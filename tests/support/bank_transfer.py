"""A bank: workers move money between accounts in transactions while they are killed, and no money appears or vanishes.

python tests/support/bank_transfer.py --seconds 60 --workers 4                       # on an embedded cluster
python tests/support/bank_transfer.py --seconds 60 --apache                          # on three brokers of Apache Kafka
python tests/support/bank_transfer.py --seconds 60 --bootstrap-servers HOST:PORT     # on any other

Each worker consumes transfers, and produces a debit and a credit for each, with the loop of `docs/transactions.md`. A
consumer with read_committed has to find both, once, for every transfer. `--kill-brokers` kills brokers, too, one at a
time.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import confluent_kafka

from headrace.broker import EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK
from headrace.producer import KafkaProducer
from support.apache_kafka.cluster import ApacheKafka
from support.confluent import create_topic, read_committed
from support.pages import ROOT, blocks_of

PARTITIONS = 6
#: Milliseconds after which the group replaces a killed worker. The brokers have to allow it.
SESSION_MS = 1_000
#: The settings of a cluster on which a test takes no longer than it has to.
BROKER_CONFIG = {
    "group.min.session.timeout.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
KILL_EVERY_S = (0.7, 3.0)
PATIENCE_S = 180.0


def loop_of_the_page() -> dict[str, Any]:
    """The names that the loop of docs/transactions.md defines."""
    (program,) = [block.text for block in blocks_of(ROOT / "docs" / "transactions.md") if "def run(" in block.text]
    names: dict[str, Any] = {}
    exec(compile(program, "docs/transactions.md", "exec"), names)
    return names


def work(servers: str, transactional_id: str, group: str, source: str, target: str) -> None:
    """A worker, until it is killed: the page's loop, with a `process` that makes two records of one."""
    names = loop_of_the_page()

    def process(consumer: confluent_kafka.Consumer, producer: KafkaProducer, target: str) -> None:
        for message in consumer.consume(50, timeout=0.2):
            if message.error() is None:
                transfer = json.loads(message.value())
                for account, amount in ((transfer["from"], -transfer["amount"]), (transfer["to"], transfer["amount"])):
                    entry = {"transfer": transfer["id"], "account": account, "amount": amount}
                    producer.send(target, json.dumps(entry).encode(), key=account.encode())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata()
        )

    names["process"] = process
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": SESSION_MS // 4,
        }
    )
    consumer.subscribe([source])
    names["run"](servers, transactional_id, consumer, target, lambda: True)


class Bank:
    """The workers, as processes, and the transfers that they have to make."""

    def __init__(self, servers: str, *, workers: int, seed: int) -> None:
        self.servers = servers
        self.random = random.Random(seed)
        name = uuid.uuid4().hex[:8]
        self.group = f"bank-{name}"
        # -1: as many replicas as the cluster's default
        self.source = create_topic(servers, partitions=PARTITIONS, replication_factor=-1, name=f"transfers-{name}")
        self.target = create_topic(servers, partitions=PARTITIONS, replication_factor=-1, name=f"ledger-{name}")
        self.workers: list[subprocess.Popen[bytes] | None] = [None] * workers
        self.sent = 0
        self.kills = 0

    def __enter__(self) -> Bank:
        for number in range(len(self.workers)):
            self._start(number)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for worker in self.workers:
            if worker is not None:
                worker.kill()
                worker.wait()

    def _start(self, number: int) -> None:
        arguments = (self.servers, f"{self.group}-{number}", self.group, self.source, self.target)
        self.workers[number] = subprocess.Popen(
            [sys.executable, __file__, "--work", *arguments], stderr=subprocess.DEVNULL
        )

    def send(self, producer: KafkaProducer, count: int) -> None:
        """Order more transfers."""
        for _ in range(count):
            payer, payee = self.random.sample(range(20), 2)
            transfer = {
                "id": self.sent,
                "from": f"account-{payer}",
                "to": f"account-{payee}",
                "amount": self.random.randint(1, 100),
            }
            producer.send(self.source, json.dumps(transfer).encode(), key=b"%d" % self.sent)
            self.sent += 1

    def kill_a_worker(self) -> None:
        """Kill one as by `kill -9`, and start it again under its transactional id."""
        number = self.random.randrange(len(self.workers))
        worker = self.workers[number]
        assert worker is not None
        worker.kill()
        worker.wait()
        self.kills += 1
        self._start(number)

    def check_workers(self) -> None:
        """Start again those that have ended by themselves, which an error outside the five classes does."""
        for number, worker in enumerate(self.workers):
            if worker is not None and worker.poll() is not None:
                raise AssertionError(f"worker {number} ended with {worker.returncode}")

    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(message.value()) for message in read_committed(self.servers, self.target)]

    def wait_until_done(self) -> list[dict[str, Any]]:
        """The ledger, once every transfer is in it. Raises AssertionError with those missing after PATIENCE_S."""
        deadline_ms = SYSTEM_CLOCK.now_ms() + PATIENCE_S * 1000
        while True:
            self.check_workers()
            ledger = self.ledger()
            missing = set(range(self.sent)) - {entry["transfer"] for entry in ledger}
            if not missing:
                return ledger
            assert SYSTEM_CLOCK.now_ms() < deadline_ms, f"{len(missing)} of {self.sent} transfers are missing"
            time.sleep(0.5)

    def check(self) -> None:
        """Every transfer has one debit and one credit, and the sums are equal."""
        ledger = self.wait_until_done()
        entries = Counter((entry["transfer"], entry["amount"] > 0) for entry in ledger)
        twice = {which: count for which, count in entries.items() if count != 1}
        assert not twice, f"made more than once: {sorted(twice)[:10]}"
        assert len(entries) == 2 * self.sent, "a transfer has a debit and no credit"
        assert sum(entry["amount"] for entry in ledger) == 0


class Brokers(NamedTuple):
    """How to kill the brokers of a cluster, as by `kill -9`, and start them again."""

    ids: Sequence[int]
    kill: Callable[[int], object]
    start: Callable[[int], object]


def run(bank: Bank, *, seconds: float, brokers: Brokers | None = None) -> None:
    """Order transfers and kill workers for `seconds`, and `brokers`, one at a time; then check."""
    end_ms = SYSTEM_CLOCK.now_ms() + seconds * 1000
    down: int | None = None
    with KafkaProducer(bootstrap_servers=bank.servers) as producer:
        bank.send(producer, 200)
        while SYSTEM_CLOCK.now_ms() < end_ms:
            time.sleep(bank.random.uniform(*KILL_EVERY_S))
            bank.send(producer, 200)
            bank.check_workers()
            bank.kill_a_worker()
            if brokers is not None:
                if down is None:
                    down = bank.random.choice(brokers.ids)
                    brokers.kill(down)
                else:
                    brokers.start(down)
                    down = None
        if brokers is not None and down is not None:
            brokers.start(down)
        producer.flush(PATIENCE_S)
    bank.check()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bootstrap-servers", default="")
    parser.add_argument("--kill-brokers", action="store_true", help="of the cluster of three")
    parser.add_argument("--apache", action="store_true", help="on three brokers of Apache Kafka, from Maven Central")
    parser.add_argument("--level", type=int, default=2, help="of the embedded cluster's transaction.version")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    settings = {"workers": options.workers, "seed": options.seed}
    if options.bootstrap_servers:
        if options.kill_brokers:
            parser.error("--kill-brokers needs a cluster that this program starts: leave out --bootstrap-servers")
        with Bank(options.bootstrap_servers, **settings) as bank:
            run(bank, seconds=options.seconds)
    elif options.apache:
        apache = {name: str(value) for name, value in BROKER_CONFIG.items()}
        with (
            ApacheKafka(brokers=3, properties={**apache, "min.insync.replicas": "2"}) as kafka,
            Bank(kafka.bootstrap_servers, **settings) as bank,
        ):
            killable = Brokers(kafka.broker_ids, kafka.kill, kafka.restart)
            run(bank, seconds=options.seconds, brokers=killable if options.kill_brokers else None)
    else:
        config: dict[str, Any] = {**BROKER_CONFIG, "default.replication.factor": 3, "min.insync.replicas": 2}
        with (
            EmbeddedCluster(3, config=config, features={"transaction.version": options.level}) as cluster,
            Bank(cluster.bootstrap_servers, **settings) as bank,
        ):
            killable = Brokers(list(cluster.node_ids), cluster.kill_broker, cluster.start_broker)
            run(bank, seconds=options.seconds, brokers=killable if options.kill_brokers else None)
    print(f"{bank.sent} transfers, {bank.kills} kills: every transfer was made once")


if __name__ == "__main__":
    main()
