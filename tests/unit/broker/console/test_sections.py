"""What the page shows of a cluster, made of what the brokers said."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker import ApiKey, Fault
from headrace.broker.config.listeners import Listener
from headrace.broker.console import sections
from headrace.broker.console.sections import Rates, fault_text, request_row, sections_of
from headrace.broker.metadata import BrokerEndpoint, ClusterImage, PartitionState, TopicState
from headrace.broker.requests.control import RequestSeen
from headrace.broker.services.observation import BrokerSeen, GroupSeen, PartitionSeen, ProducerSeen
from headrace.broker.transaction.states import TransactionState
from headrace.broker.transaction.transaction import TransactionValues
from headrace.network.protocol.errors import NotLeaderForPartitionError

ORDERS = TopicState("orders", uuid.uuid4(), (PartitionState((1, 2), (1, 2), 1, 3), PartitionState((2, 1), (2,), -1)))


def image(*topics: TopicState) -> ClusterImage:
    brokers = {1: BrokerEndpoint(1, "127.0.0.1", 9092, "a", (Listener("PLAINTEXT", "127.0.0.1", 9092),))}
    return ClusterImage("id", controller_id=1, brokers=brokers, topics={each.name: each for each in topics})


def seen(node_id: int = 1, **fields: Any) -> BrokerSeen:
    values: dict[str, Any] = {"partitions": [], "groups": [], "producers": [], "transactions": {}, "left_off": ()}
    return BrokerSeen(node_id, 4, 0.0, [], 0, **{**values, **fields})


def all_sections(brokers: dict[int, BrokerSeen], running: list[int], faults=(), topics=(ORDERS,)) -> dict[str, Any]:
    cluster: Any = SimpleNamespace(
        node_ids=(1, 2, 3),
        controller=SimpleNamespace(image=image(*topics)),
        bootstrap_servers="127.0.0.1:9092",
        profile="test",
        faults=list(faults),
    )
    return sections_of(cluster, brokers, running)


LEADER = PartitionSeen("orders", 0, True, 5, 15, 12, 16, 800)


def test_brokers_that_stopped_and_that_do_not_answer_are_told_apart():
    rows = all_sections({1: seen(partitions=[LEADER])}, [1, 2])["brokers"]["rows"]
    assert [(each["id"], each["state"]) for each in rows] == [(1, "running"), (2, "not answering"), (3, "stopped")]
    assert (rows[0]["leads"], rows[0]["replicas"], rows[0]["size_bytes"], rows[0]["connections"]) == (1, 1, 800, 4)
    assert (rows[0]["address"], rows[0]["rack"], rows[0]["is_controller"]) == ("127.0.0.1:9092", "a", True)
    assert rows[2]["address"] is None


def test_a_topic_counts_what_its_leaders_have():
    follower = PartitionSeen("orders", 0, False, 0, 3, 3, 3, 100)
    (row,) = all_sections({1: seen(partitions=[LEADER]), 2: seen(2, partitions=[follower])}, [1, 2])["topics"]["rows"]
    assert (row["records"], row["size_bytes"], row["offline"], row["partition_count"]) == (10, 800, 1, 2)
    assert row["partitions"][0] == {
        "index": 0,
        "leader": 1,
        "epoch": 3,
        "replicas": [1, 2],
        "isr": [1, 2],
        "start": 5,
        "end": 15,
        "stable": 12,
        "size_bytes": 800,
    }
    assert row["partitions"][1]["leader"] is None
    assert row["partitions"][1]["end"] is None


def test_topics_and_partitions_beyond_the_limits_are_left_off(monkeypatch):
    monkeypatch.setattr(sections, "MAX_TOPICS", 2)
    monkeypatch.setattr(sections, "MAX_PARTITIONS", 3)
    topics = [ORDERS, *(TopicState(f"t{at}", uuid.uuid4(), ORDERS.partitions) for at in range(3))]
    found = all_sections({}, [], topics=topics)["topics"]
    assert found["left_off"] == 2
    assert [(each["name"], len(each["partitions"]), each["partition_count"]) for each in found["rows"]] == [
        ("orders", 2, 2),
        ("t0", 1, 2),
    ]


def test_lag_is_unknown_without_a_leader_and_never_negative():
    group = GroupSeen("g", "Stable", 2, "range", (("m-1", "app", "/127.0.0.1"),), (("orders", 1, 4), ("orders", 0, 11)))
    ahead = GroupSeen("ahead", "Empty", 1, "", (), (("orders", 0, 99),))
    rows = all_sections({1: seen(partitions=[LEADER], groups=[group, ahead])}, [1])["groups"]["rows"]
    assert [(each["id"], each["lag"]) for each in rows] == [("ahead", 0), ("g", 4)]
    assert rows[1]["offsets"] == [
        {"topic": "orders", "partition": 0, "offset": 11, "end": 15, "lag": 4},
        {"topic": "orders", "partition": 1, "offset": 4, "end": None, "lag": None},
    ]
    assert rows[1]["members"] == [{"id": "m-1", "client_id": "app", "host": "/127.0.0.1"}]


def test_a_producer_has_its_newest_epoch_and_its_transactional_id():
    of = TransactionValues(7, 3, 60_000, TransactionState.ONGOING, 2_000, frozenset({("orders", 0)}), 1_000)
    producers = [
        ProducerSeen(7, 2, "orders", 1, 8, 18, 900, -1),
        ProducerSeen(7, 3, "orders", 0, 0, 9, 1_000, 9),
        ProducerSeen(5, 0, "orders", 0, 1, 2, 3, -1),
    ]
    found = all_sections({1: seen(producers=producers, transactions={"billing": of}, left_off=("producers",))}, [1])
    first, second = found["producers"]["rows"]
    assert (first["id"], first["epoch"], first["transactional_id"], first["last_timestamp"]) == (7, 3, "billing", 1_000)
    assert [each["open_since"] for each in first["partitions"]] == [None, 9]
    assert (second["id"], second["transactional_id"]) == (5, None)
    assert found["producers"]["left_off"] == 1
    (transaction,) = found["transactions"]["rows"]
    assert (transaction["id"], transaction["state"], transaction["partitions"]) == ("billing", "Ongoing", ["orders-0"])


def injected(fault: Fault | None, **fields: Any) -> Any:
    values = {"number": 1, "api_key": ApiKey.PRODUCE, "remaining": 2, "hits": 3, "node_id": None}
    return SimpleNamespace(fault=fault, **{**values, **fields})


def test_a_fault_and_a_function_of_the_program():
    both = [injected(Fault(close=True, topic="orders", partition=1)), injected(None, api_key=None, number=2)]
    first, second = all_sections({}, [], faults=both)["faults"]["rows"]
    assert (first["api"], first["topic"], first["partition"], first["hits"], first["remaining"]) == (
        *("PRODUCE", "orders", 1),
        *(3, 2),
    )
    assert (second["api"], second["effect"]) == (None, None)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(error=NotLeaderForPartitionError), "NOT_LEADER_FOR_PARTITION"),
        (Fault(delay_ms=20, throttle_ms=5), "20 ms later; is throttled for 5 ms"),
        (Fault(close=True), "not handled, and the connection closes"),
        (Fault(lose_answer=True), "without a response"),
        (Fault(silent=True), "never answered"),
        (Fault(cut_after_bytes=0), "gets 0 bytes"),
        (Fault(half_close=True), "closes its half"),
    ],
)
def test_the_effect_of_a_fault_in_words(fault, words):
    assert words in fault_text(injected(fault))


def test_a_request_has_the_time_of_the_wall_clock():
    request = RequestSeen(1, ApiKey.FETCH, 17, None, 3, "127.0.0.1:1-0", 99, 500.4)
    row = request_row(12, request, 1_000_000.0)
    assert (row["number"], row["at_ms"], row["api"], row["client_id"]) == (12, 1_000_500, "FETCH", None)


def test_rates_count_from_one_look_to_the_next():
    rates = Rates()

    def look(now_ms: float, *partitions: PartitionSeen, requests: int = 0):
        return rates.add(now_ms, int(now_ms), {1: seen(partitions=list(partitions))}, requests)

    internal = PartitionSeen("__consumer_offsets", 0, True, 0, 0, 0, 50, 50)
    assert look(1_000, LEADER) is None
    found = look(3_000, LEADER._replace(log_end=26, size_bytes=1_000), internal, requests=8)
    assert found == {"at_ms": 3_000, "records": 5.0, "bytes": 100.0, "requests": 4.0, "topics": {"orders": 5.0}}
    # a log that was truncated, cleaned or has another leader doesn't count backwards
    assert look(4_000, LEADER._replace(log_end=2, size_bytes=1))["records"] == 0
    assert look(5_000)["records"] == 0
    assert look(6_000, LEADER)["records"] == 0
    # nobody watched for an hour
    assert look(3_606_000, LEADER._replace(log_end=10**6)) is None
    assert [each["at_ms"] for each in rates.samples] == [3_000, 4_000, 5_000, 6_000]
