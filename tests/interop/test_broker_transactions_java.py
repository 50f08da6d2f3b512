"""Apache Kafka's own clients and tools use the transactions of the embedded broker: Java's producer in both protocols,
its consumer of committed records, and kafka-transactions."""

from __future__ import annotations

import re

import confluent_kafka
import pytest
from support.confluent import PATIENCE_S

from headrace.broker import ApiKey, EmbeddedCluster
from headrace.broker.transaction.states import TransactionState

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=[2, 1], ids=["bumped", "classic"])
def cluster(request):
    with EmbeddedCluster(3, features={"transaction.version": request.param}) as cluster:
        cluster.create_topic("t", 3, 3)
        yield cluster


def perf(apache_kafka, cluster, name, count=20_000):
    return apache_kafka.run_class(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "t", "--num-records", str(count), "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", name, "--transaction-duration-ms", "20"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}"),
    ).decode()


def read_committed(apache_kafka, cluster, count):
    lines = apache_kafka.run_class(
        apache_kafka.console_consumer_class,
        *("--bootstrap-server", cluster.bootstrap_servers, "--topic", "t", "--from-beginning"),
        *("--isolation-level", "read_committed", "--max-messages", str(count), "--timeout-ms", "20000"),
    )
    return lines.split(b"\n")[:-1]


def test_javas_producer_and_consumer(apache_kafka, cluster):
    aborted = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "aborted", "log_level": 0}
    )
    aborted.init_transactions(PATIENCE_S)
    aborted.begin_transaction()
    for number in range(30):
        aborted.produce("t", b"aborted", partition=number % 3)
    assert aborted.flush(PATIENCE_S) == 0
    aborted.abort_transaction(PATIENCE_S)
    assert "20000 records sent" in perf(apache_kafka, cluster, "perf")
    assert cluster.transactions()["perf"].state is TransactionState.COMPLETE_COMMIT
    lines = read_committed(apache_kafka, cluster, 20_000)
    assert len(lines) == 20_000
    assert b"aborted" not in lines
    ends = {
        seen.api_version for seen in cluster.requests if seen.api_key is ApiKey.END_TXN and seen.client_id != "rdkafka"
    }
    is_bumped = cluster.features["transaction.version"] == 2
    assert ends == ({5} if is_bumped else {4})
    assert (cluster.transactions()["perf"].producer_epoch > 1) == is_bumped


def test_kafkas_tool_lists_and_describes_them(apache_kafka, cluster):
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "tx", "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("t", b"v", partition=1)
    assert producer.flush(PATIENCE_S) == 0

    def run(*arguments):
        tool = "org.apache.kafka.tools.TransactionsCommand"
        return apache_kafka.run_class(tool, "--bootstrap-server", cluster.bootstrap_servers, *arguments).decode()

    values = cluster.transactions()["tx"]
    assert re.search(rf"^tx\s+\d+\s+{values.producer_id}\s+Ongoing", run("list"), re.MULTILINE)
    described = run("describe", "--transactional-id", "tx")
    assert re.search(r"\sOngoing\s+60000\s", described)
    assert "t-1" in described
    producers = run("describe-producers", "--topic", "t", "--partition", "1")
    log = cluster.broker(cluster.leader_of("t", 1)).replicas.partition(("t", 1)).log
    assert re.search(
        rf"^{values.producer_id}\s+0\s+-1\s+0\s+\d+\s+{log.last_stable_offset}\s*$", producers, re.MULTILINE
    )
    run("abort", "--topic", "t", "--partition", "1", "--start-offset", str(log.last_stable_offset))
    assert log.last_stable_offset == log.end.offset
