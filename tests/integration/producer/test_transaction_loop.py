"""The loop of docs/transactions.md: every error of a transaction, and workers that are killed."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest
from integration.producer.transaction_cases import transactional, unique
from support.bank_transfer import BROKER_CONFIG, Bank, loop_of_the_page, run
from support.confluent import check_committed, committed_values, create_topic

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.producer import KafkaProducer
from headrace.producer.errors import (
    ConcurrentTransactionsError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    MessageSizeTooLargeError,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionAbortableError,
)

#: Error class -> the request that gets it. The loop has to get over each, three times in a row.
FAULTS = [
    (ConcurrentTransactionsError, ApiKey.END_TXN),
    (NotCoordinatorError, ApiKey.END_TXN),
    (TransactionAbortableError, ApiKey.END_TXN),
    (InvalidProducerEpochError, ApiKey.PRODUCE),
    (MessageSizeTooLargeError, ApiKey.PRODUCE),
    (TransactionAbortableError, ApiKey.PRODUCE),
    (ProducerFencedError, ApiKey.PRODUCE),
    (IllegalGenerationError, ApiKey.TXN_OFFSET_COMMIT),
]


@pytest.mark.parametrize("level", [2, 1], ids=["tv2", "classic"])
def test_the_loop_gets_over_every_error(level: int) -> None:
    with EmbeddedCluster(features={"transaction.version": level}, config=BROKER_CONFIG) as cluster:
        servers = cluster.bootstrap_servers
        source, target, transactional_id = create_topic(servers), create_topic(servers), unique()
        faults = list(FAULTS)
        with KafkaProducer(bootstrap_servers=servers) as plain:
            for number in range(len(faults) + 2):
                plain.send(source, b"record-%d" % number)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": unique("group"),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
            }
        )
        consumer.subscribe([source])
        names = loop_of_the_page()
        whole = names["process"]

        class OneByOne:
            """The consumer, but with one record per transaction, so that there is one for each fault."""

            def consume(self, count: int, timeout: float) -> list[confluent_kafka.Message]:
                return consumer.consume(1, timeout=timeout)

            def __getattr__(self, name: str) -> Callable[..., object]:
                return getattr(consumer, name)

        def process(each: confluent_kafka.Consumer, producer: KafkaProducer, to: str) -> None:
            if faults and consumer.assignment():
                kind, api = faults.pop()
                cluster.inject(api, Fault(error=kind), times=1)
            elif not faults and not fenced:
                # another producer takes over in the middle of a transaction
                fenced.append(True)
                transactional(servers, transactional_id).close()
            whole(OneByOne(), producer, to)

        fenced: list[bool] = []
        turns = iter(range(1_000))

        def running() -> bool:
            next(turns)
            return bool(faults) or len(committed_values(servers, target)) < len(FAULTS) + 2

        names["process"] = process
        names["run"](servers, transactional_id, consumer, target, running)
        consumer.close()
        assert fenced
        check_committed(servers, target, sorted(b"RECORD-%d" % number for number in range(len(FAULTS) + 2)))


@pytest.mark.parametrize("level", [2, 1], ids=["tv2", "classic"])
@pytest.mark.timeout(300)
def test_killed_workers_neither_lose_nor_double_a_transfer(level: int) -> None:
    with (
        EmbeddedCluster(features={"transaction.version": level}, config=BROKER_CONFIG) as cluster,
        Bank(cluster.bootstrap_servers, workers=2, seed=level) as bank,
    ):
        run(bank, seconds=12)
        assert bank.kills >= 3
