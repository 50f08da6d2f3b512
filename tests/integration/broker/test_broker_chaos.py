"""Three brokers that are killed, stopped, cut off and lose responses at random, under an idempotent producer's load.

Whatever happens, every acknowledged record is in the log once and in order, and all replicas are the same.
"""

from __future__ import annotations

import random
import threading
import time

import confluent_kafka
import pytest

from headrace.broker import EmbeddedCluster
from headrace.broker.requests.control import Fault
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import BrokerResponseError

STEPS = 12
PARTITIONS = 2


class Load:
    """A producer on its own thread that numbers its records and remembers which were acknowledged."""

    def __init__(self, bootstrap_servers):
        self.acknowledged = [[] for _ in range(PARTITIONS)]
        self.errors = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._stopping.wait(0.0005):
            self._producer.produce("t", b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def _delivered(self, error, message):
        if error is None:
            self.acknowledged[message.partition()].append(int(message.value()))
        else:
            self.errors.append(error)

    def stop(self):
        self._stopping.set()
        self._thread.join()

    def flush(self):
        assert self._producer.flush(60) == 0
        assert self.errors == []


class Chaos:
    """Applies events drawn from a seed to the cluster. At most one broker is down or one link cut at a time, so that
    two replicas always keep every acknowledged record."""

    def __init__(self, cluster, seed):
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.down = None
        self.is_cut = False

    def step(self):
        action = self.chance.choice([self.end, self.end, self.begin, self.move, self.cut, self.heal, self.fault])
        action()

    def end(self):
        if self.down is None and not self.is_cut:
            self.down = self.chance.choice([1, 2, 3])
            self.chance.choice([self.cluster.kill_broker, self.cluster.stop_broker])(self.down)

    def begin(self):
        if self.down is not None:
            self.cluster.start_broker(self.down)
            self.down = None

    def move(self):
        partition = self.chance.randrange(PARTITIONS)
        target = self.chance.choice(self.cluster.controller.image.partition("t", partition).isr)
        try:
            self.cluster.move_leader("t", partition, target)
        except BrokerResponseError:
            assert target not in self.cluster.controller.image.partition("t", partition).isr

    def cut(self):
        if self.down is None and not self.is_cut:
            self.is_cut = True
            self.cluster.cut_link(*self.chance.sample([1, 2, 3], 2))

    def heal(self):
        self.is_cut = False
        self.cluster.heal_links()

    def fault(self):
        fault = self.chance.choice([Fault(close=True), Fault(lose_answer=True), Fault(cut_after_bytes=9)])
        self.cluster.inject(ApiKey.PRODUCE, fault, times=2)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(seed):
    with EmbeddedCluster(
        brokers=3,
        default_replication_factor=3,
        num_partitions=PARTITIONS,
        min_insync_replicas=2,
        replica_lag_time_max_ms=300,
        log_segment_bytes=2 << 20,
    ) as cluster:
        cluster.create_topic("t")
        load = Load(cluster.bootstrap_servers)
        try:
            chaos = Chaos(cluster, seed)
            for _ in range(STEPS):
                time.sleep(chaos.chance.uniform(0.05, 0.3))
                chaos.step()
            chaos.heal()
            chaos.begin()
        finally:
            load.stop()
        load.flush()
        end = time.monotonic() + 20
        while (
            any(len(each.isr) < 3 for each in cluster.controller.image.topics["t"].partitions) or len(ends(cluster)) > 2
        ):
            assert time.monotonic() < end, "the replicas did not converge"
            time.sleep(0.02)
        for partition in range(PARTITIONS):
            logs = [cluster.records("t", partition, node_id) for node_id in (1, 2, 3)]
            assert logs[0] == logs[1] == logs[2]
            values = [int(record.value) for record in logs[0]]
            assert values == sorted(set(values))
            assert set(values) >= set(load.acknowledged[partition])


def ends(cluster):
    """The (partition, log end offset) pairs of all replicas: one pair per partition once all have caught up."""
    return {
        (partition, broker.replicas.partition(("t", partition)).log.end.offset)
        for partition in range(PARTITIONS)
        for broker in cluster.brokers.values()
    }
