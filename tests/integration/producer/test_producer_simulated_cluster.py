"""The producer's engine with many brokers and partitions in virtual time: 20 brokers and 400 partitions here, 1,000 and
200,000 in `benchmarks/scale.py`."""

from __future__ import annotations

from collections import Counter

import pytest
from support.scale_harness import ScaleHarness

BROKERS, TOPICS, PARTITIONS = 20, 4, 100


@pytest.fixture
def harness() -> ScaleHarness:
    harness = ScaleHarness(topics=TOPICS, partitions=PARTITIONS, brokers=BROKERS, keep_values=True)
    harness.learn(harness.topics)
    return harness


def test_every_partition_gets_its_records_in_order(harness: ScaleHarness) -> None:
    futures = [
        harness.append(topic, partition, b"%d" % number)
        for number in range(3)
        for topic, partition in harness.partitions()
    ]
    harness.deliver()
    assert all(future.succeeded() for future in futures)
    assert {place: log.values for place, log in harness.cluster.logs.items()} == {
        place: [b"0", b"1", b"2"] for place in harness.partitions()
    }


def test_one_request_per_broker_carries_what_has_lingered(harness: ScaleHarness) -> None:
    for topic, partition in harness.partitions():
        harness.append(topic, partition)
    harness.deliver()
    assert harness.cluster.requests["ProduceRequest"] == BROKERS


def test_one_metadata_request_learns_all_topics() -> None:
    harness = ScaleHarness(topics=TOPICS, partitions=PARTITIONS, brokers=BROKERS)
    harness.learn(harness.topics)
    assert len(harness.partitions()) == TOPICS * PARTITIONS
    assert harness.cluster.requests["MetadataRequest"] == 1


def test_idle_partitions_hold_no_memory_of_the_pool(harness: ScaleHarness) -> None:
    total = harness.pool.available_bytes
    assert total == harness.config.buffer_memory
    for topic, partition in harness.partitions():
        harness.append(topic, partition)
    assert harness.pool.available_bytes < total
    harness.deliver()
    assert harness.pool.available_bytes == total


def test_a_turn_looks_only_at_partitions_with_a_batch(harness: ScaleHarness) -> None:
    places = harness.partitions()[::40]
    for topic, partition in places:
        harness.append(topic, partition)
    assert {(queue.topic, queue.partition) for queue in harness.accumulator.waiting.all()} == set(places)
    harness.deliver()
    assert not harness.accumulator.waiting.any()


def test_brokers_that_restart_in_groups_lose_and_repeat_nothing(harness: ScaleHarness) -> None:
    cluster = harness.cluster
    sent: Counter[tuple[str, int]] = Counter()
    start_ms = harness.clock.now_ms()
    for number in range(4):
        group = range(number * 5, number * 5 + 5)
        cluster.at(start_ms + 100 + number * 1500, lambda group=group: cluster.stop(group))
        cluster.at(start_ms + 1100 + number * 1500, lambda group=group: cluster.start(group))
    while harness.clock.now_ms() < start_ms + 7000:
        for place in harness.partitions():
            harness.append(*place, value=b"%d" % sent[place])
            sent[place] += 1
        harness.run_for(250)
    harness.deliver()
    assert {place: log.values for place, log in cluster.logs.items()} == {
        place: [b"%d" % number for number in range(count)] for place, count in sent.items()
    }
    assert len({each.broker_id for each in cluster.attempts}) == BROKERS


def test_connections_come_back_spread_out_after_all_brokers_restart(harness: ScaleHarness) -> None:
    cluster = harness.cluster
    places = harness.one_per_broker()
    for topic, partition in places:
        harness.append(topic, partition)
    harness.deliver()
    before = len(cluster.attempts)
    stopped_ms = harness.clock.now_ms()
    cluster.stop(range(BROKERS))
    cluster.at(stopped_ms + 5000, lambda: cluster.start(range(BROKERS)))
    for topic, partition in places:
        harness.append(topic, partition)
    harness.deliver()
    attempts = cluster.attempts[before:]
    # the bootstrap connection is to broker 0, too
    nodes = {str(broker_id) for broker_id in range(BROKERS)}
    each = Counter(attempt.channel_id for attempt in attempts if attempt.channel_id in nodes)
    assert each.keys() == nodes
    # the backoff grows from 50 ms to a second: some nine attempts in five seconds, not a hundred
    assert max(each.values()) <= 14
    # brokers that failed at one time are not tried again at one time
    last = {attempt.channel_id: attempt.at_ms for attempt in attempts if attempt.channel_id in nodes}
    assert max(last.values()) - min(last.values()) > harness.config.reconnect_backoff_max_ms / 5
    assert max(Counter(at_ms // 50 for at_ms in last.values()).values()) <= BROKERS / 2
    assert sum(log.records for log in cluster.logs.values()) == 2 * len(places)
