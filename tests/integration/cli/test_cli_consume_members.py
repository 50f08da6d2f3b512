"""`headrace consume --group` as a member: partitions that move between commands and other clients' consumers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support import kafka_python_members
from support.processes import child
from support.waiting import JumpingClock, wait_until

from headrace.broker import EmbeddedCluster, Fault
from headrace.broker.group.group import GroupState
from headrace.cli import main
from headrace.cli.client import Client
from headrace.cli.consume.coordinator import Coordinator
from headrace.cli.consume.member import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import NotCoordinatorError, NotLeaderForPartitionError
from headrace.network.protocol.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.producer import KafkaProducer, ProducerRecord

HEADRACE = [sys.executable, "-m", "headrace.cli"]
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    cluster.create_topic(name, PARTITIONS)
    return name


class Command:
    """A running `headrace consume --follow --group g`. Threads collect what it prints."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, *arguments: str) -> None:
        command = [*HEADRACE, "consume", topic, "-b", cluster.bootstrap_servers, "--json", "-g", topic, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.records: list[tuple[int, int]] = []
        self.notes: list[str] = []
        self._threads = [
            threading.Thread(target=self._collect, args=[self.process.stdout, self._record]),
            threading.Thread(target=self._collect, args=[self.process.stderr, self.notes.append]),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _collect(lines: Iterable[str], take: Callable[[str], object]) -> None:
        for line in lines:
            take(line.rstrip("\n"))

    def _record(self, line: str) -> None:
        record = json.loads(line)
        self.records.append((record["partition"], record["offset"]))

    def partitions(self, since: int = 0) -> set[int]:
        return {partition for partition, _ in self.records[since:]}

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(60)
        for thread in self._threads:
            thread.join()
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture
def start(cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def run(*arguments: str, at: EmbeddedCluster = cluster) -> Command:
        started.append(Command(at, topic, *(arguments or ("--follow",))))
        return started[-1]

    yield run
    for command in started:
        command.end(signal.SIGKILL)


def send(cluster: EmbeddedCluster, topic: str, count: int = 1) -> None:
    """Send `count` records to each partition."""
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        sent = [
            producer.send(ProducerRecord(topic, b"%d" % number, partition=partition))
            for number in range(count)
            for partition in range(PARTITIONS)
        ]
        for future in sent:
            future.get(60)


def await_members(cluster: EmbeddedCluster, group_id: str, count: int) -> None:
    """Wait until the group is stable with `count` members."""

    def is_stable() -> bool:
        group = cluster.group(group_id)
        if group is None:
            return False
        with group.lock:
            return len(group.members) == count and (group.state is GroupState.STABLE or not count)

    wait_until(is_stable)


def committed(cluster: EmbeddedCluster, topic: str) -> dict[int, int]:
    group = cluster.group(topic)
    assert group is not None
    with group.lock:
        return {partition: offset.offset for (_, partition), offset in group.offsets.items()}


def everything(count: int) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(count)}


def is_all(commands: Iterable[Any], count: int) -> bool:
    return {record for each in commands for record in each.records} >= everything(count)


def test_two_members_share_and_one_takes_over(cluster, topic, start):
    first = start()
    await_members(cluster, topic, 1)
    send(cluster, topic)
    wait_until(lambda: is_all([first], 1))
    second = start()
    await_members(cluster, topic, 2)
    send(cluster, topic)
    wait_until(lambda: is_all([first, second], 2))
    assert len(second.partitions()) == PARTITIONS / 2
    assert first.partitions(since=PARTITIONS) == set(range(PARTITIONS)) - second.partitions()
    before = len(second.records)
    assert first.end() == 130
    await_members(cluster, topic, 1)
    send(cluster, topic)
    wait_until(lambda: is_all([first, second], 3))
    assert second.partitions(since=before) == set(range(PARTITIONS))
    assert second.end() == 130
    assert Counter(first.records + second.records) == Counter(everything(3))
    assert committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 3)
    await_members(cluster, topic, 0)
    share = f"headrace consume: group {topic} has other members, too; this one reads partitions "
    assert len(first.notes) == 1
    assert first.notes[0].startswith(share)
    assert [note for note in second.notes if not note.startswith(share)] == []


def test_a_killed_member_is_replaced_when_its_session_ends(topic, start):
    clock = JumpingClock()
    with EmbeddedCluster(clock=clock) as cluster:
        cluster.create_topic(topic, PARTITIONS)
        first, second = start(at=cluster), start(at=cluster)
        await_members(cluster, topic, 2)
        send(cluster, topic)
        wait_until(lambda: is_all([first, second], 1))
        wait_until(lambda: committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 1))
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        send(cluster, topic)
        for _ in range(2):
            clock.ahead_ms += SESSION_TIMEOUT_MS / 2 + HEARTBEAT_INTERVAL_MS
            # the session of the other one begins again
            beat = cluster.inject(ApiKey.HEARTBEAT, Fault(throttle_ms=1), times=1)
            wait_until(lambda: beat.hits)  # noqa: B023 - it is called here only
        wait_until(lambda: is_all([first, second], 2))
        assert second.end() == 130
        # everything was committed before the kill
        assert Counter(first.records + second.records) == Counter(everything(2))
        assert committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 2)


def test_rebalances_while_reading_lose_and_double_nothing(cluster, topic, start):
    end = threading.Event()
    rounds = 0

    def send_on() -> None:
        nonlocal rounds
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            while not end.is_set():
                for future in [
                    producer.send(ProducerRecord(topic, b"v", partition=each)) for each in range(PARTITIONS)
                ]:
                    future.get(60)
                rounds += 1

    sender = threading.Thread(target=send_on)
    commands = [start()]
    await_members(cluster, topic, 1)
    sender.start()
    try:
        commands.append(start())
        await_members(cluster, topic, 2)
        # one that leaves in the middle
        commands.append(start("--follow", "--max", "100"))
        await_members(cluster, topic, 3)
        assert commands[2].wait() == 0
        await_members(cluster, topic, 2)
        before = [len(each.records) for each in commands[:2]]
        wait_until(lambda: all(len(each.records) > size for each, size in zip(commands, before, strict=False)))
    finally:
        end.set()
        sender.join()
    wait_until(lambda: is_all(commands, rounds))
    # they print nothing now, so that a record can't be between its printing and the note that it was printed
    wait_until(lambda: committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), rounds))
    for left, command in enumerate(commands[:2]):
        assert command.end() == 130
        await_members(cluster, topic, 1 - left)
    assert len(commands[2].records) == 100
    assert Counter(record for each in commands for record in each.records) == Counter(everything(rounds))
    for command in commands:
        for partition in range(PARTITIONS):
            offsets = [offset for each, offset in command.records if each == partition]
            assert offsets == sorted(offsets)


class KafkaPython:
    """A consumer of kafka-python in the group of the topic's name, whose member id sorts before those of others.

    Its polls are long: kafka-python 3.0.12 sends no heartbeats any more if a poll ends while it joins.
    """

    def __init__(self, cluster: EmbeddedCluster, topic: str) -> None:
        self.records: list[tuple[int, int]] = []
        self._cluster = cluster
        self._topic = topic
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            client_id="a",
            heartbeat_interval_ms=100,
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.is_set():
            for records in self._consumer.poll(60_000).values():
                self.records += [(each.partition, each.offset) for each in records]

    def __enter__(self) -> KafkaPython:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        while self._thread.is_alive():
            # its poll ends with a record
            with KafkaProducer(bootstrap_servers=self._cluster.bootstrap_servers) as producer:
                for partition in producer.partitions_for(self._topic):
                    producer.send(self._topic, b"", partition=partition)
            self._thread.join(1)
        self._consumer.close()


class Confluent:
    """A consumer of confluent-kafka in the group of the topic's name."""

    def __init__(self, cluster: EmbeddedCluster, topic: str) -> None:
        keys = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
        self.records: list[tuple[int, int]] = []
        self._consumer = confluent_kafka.Consumer({**keys, "heartbeat.interval.ms": 100})
        self._consumer.subscribe([topic])
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.records.append((message.partition(), message.offset()))

    def __enter__(self) -> Confluent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()


@pytest.mark.parametrize("is_first", [True, False], ids=["as the leader", "as a follower"])
def test_consumers_of_other_clients_in_the_same_group(cluster, topic, start, is_first):
    ours = [start()] if is_first else []
    if is_first:
        await_members(cluster, topic, 1)
    with Confluent(cluster, topic) as confluent, KafkaPython(cluster, topic) as python:
        if not is_first:
            await_members(cluster, topic, 2)
            ours = [start()]
        await_members(cluster, topic, 3)
        members = [*ours, confluent, python]
        group = cluster.group(topic)
        assert (group.members[group.leader_id].client_id == "headrace") is is_first
        send(cluster, topic, 5)
        wait_until(lambda: is_all(members, 5))
        assert [len(each.records) for each in members] == [10, 10, 10]
        assert ours[0].end() == 130
        await_members(cluster, topic, 2)
        assert {committed(cluster, topic)[each] for each in ours[0].partitions()} == {5}
        send(cluster, topic)
        wait_until(lambda: is_all(members, 6))
        assert Counter(record for each in members for record in each.records) == Counter(everything(6))


def test_more_members_than_partitions(cluster, topic):
    small = f"{topic}-small"
    cluster.create_topic(small, 1)
    with KafkaPython(cluster, small):
        await_members(cluster, small, 1)
        command = Command(cluster, small)
        assert command.wait() == 0
    assert command.records == []
    assert command.notes == [f"headrace consume: group {small} has other members, too; this one has no partitions"]


def test_ctrl_c_while_it_waits_for_a_member_that_does_not_rejoin(cluster, topic, start):
    with kafka_python_members.member(cluster.bootstrap_servers, topic, topic):
        command = start()
        wait_until(lambda: command.notes)
        assert command.end() == 130
        assert command.notes == [f"headrace consume: waiting for the other members of group {topic} to join again"]
        group = cluster.group(topic)
        with group.lock:
            assert [each.client_id for each in group.members.values()] == ["kafka-python-" + kafka.__version__]


def test_a_member_that_the_group_has_removed_goes_on_where_the_group_is(cluster, topic, start):
    command = start()
    await_members(cluster, topic, 1)
    send(cluster, topic)
    wait_until(lambda: committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 1))
    # it learns of it by its next commit
    deaf = cluster.inject(ApiKey.HEARTBEAT, Fault(error=NotCoordinatorError), times=None)
    with Client(cluster.bootstrap_servers) as client:
        coordinator = Coordinator(client, topic)
        (member_id,) = cluster.group(topic).members
        leave = LeaveGroupRequest(group_id=topic, members=[MemberIdentity(member_id=member_id)])
        assert coordinator.request(leave).error_code == 0
    send(cluster, topic)
    wait_until(lambda: committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 2))
    deaf.remove()
    assert command.end() == 130
    assert command.notes == [
        f"headrace consume: group {topic} has gone on without this member; what it printed last will be read again"
    ]
    assert set(command.records) == everything(2)
    # what was printed before the commit failed
    assert PARTITIONS * 2 < len(command.records) <= PARTITIONS * 3


def test_the_place_of_a_member_that_read_nothing_is_kept(cluster, topic, start):
    send(cluster, topic)
    command = start("--follow", "--from", "end")
    wait_until(lambda: cluster.group(topic) and committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 1))
    command.end(signal.SIGKILL)
    assert command.records == []


def test_a_member_whose_output_nobody_reads_any_more_leaves(cluster, topic):
    send(cluster, topic)
    command = [*HEADRACE, "consume", topic, "-b", cluster.bootstrap_servers, "--follow", "-g", topic]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        await_members(cluster, topic, 1)
        process.stdout.close()
        send(cluster, topic)
        assert process.wait(60) == 0
        assert process.stderr.read() == b""
    await_members(cluster, topic, 0)


def test_a_coordinator_that_moves_while_members_join(cluster, topic, capsys):
    send(cluster, topic)
    for api in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP):
        cluster.inject(api, Fault(error=NotCoordinatorError), times=1)
    assert main(["consume", topic, "-b", cluster.bootstrap_servers, "-g", topic]) == 0
    captured = capsys.readouterr()
    assert (len(captured.out.splitlines()), captured.err) == (PARTITIONS, "")


def test_a_group_with_other_assignors(cluster, topic, capsys):
    assignors = [kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor]
    config = {"partition_assignment_strategy": assignors}
    with kafka_python_members.member(cluster.bootstrap_servers, topic, topic, **config):
        assert main(["consume", topic, "-b", cluster.bootstrap_servers, "-g", topic]) == 1
    assert capsys.readouterr().err == (
        f"headrace consume: group {topic}: its members don't support the assignor range, or are no consumers; stop "
        "them, or give another --group\n"
    )


def test_partitions_that_are_added_while_it_follows(cluster, topic, start):
    small = f"{topic}-grows"
    cluster.create_topic(small, 1)
    command = [*HEADRACE, "consume", small, "-b", cluster.bootstrap_servers, "--follow"]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=100) as producer:
            producer.send(small, b"a", partition=0).get(60)
            assert process.stdout.readline().endswith("a\n")
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_partitions([NewPartitions(small, 2)])[small].result(60)
            cluster.inject(ApiKey.FETCH, Fault(error=NotLeaderForPartitionError, topic=small), times=1)
            wait_until(lambda: producer.partitions_for(small) == {0, 1})
            producer.send(small, b"b", partition=1).get(60)
        assert process.stdout.readline().startswith("1:0 ")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
