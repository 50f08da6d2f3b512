"""Followers copy their leaders' logs (Kafka's `ReplicaFetcherThread` and `ReplicaFetcherManager`)."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ...network.clock import LONG_AGO_MS, Clock
from ...network.protocol.errors import BrokerResponseError, make_error
from ...network.protocol.messages.records.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ...network.protocol.messages.records.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ...network.protocol.other_errors import OffsetOutOfRangeError
from ...network.sections import section_thread
from ..config.broker_config import BrokerConfig
from ..metadata import NO_LEADER, BrokerEndpoint, ClusterImage, PartitionKey
from .connection import UNREACHABLE, InterBrokerConnection, InterBrokerConnector
from .partition import Partition

_log = logging.getLogger(__name__)

_FETCH_VERSION = 17
_LIST_OFFSETS_VERSION = 7


@dataclass(slots=True, eq=False)
class Followed:
    """A partition that is being copied, with the leader epoch it is copied in."""

    partition: Partition
    leader_epoch: int
    not_before_ms: float = LONG_AGO_MS


class _Position(NamedTuple):
    """The fetch position of a partition, as sent to its leader."""

    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int


_FetchKey = tuple[uuid.UUID, int]


class _Session:
    """A fetch session (KIP-227): the leader remembers the positions, so only changes are sent. A fetch of a thousand
    idle partitions is a request of a few bytes. Used only by the fetcher's thread."""

    def __init__(self) -> None:
        self.session_id = FetchRequest.NO_SESSION
        self.epoch = FetchRequest.INITIAL_EPOCH
        self.told: dict[_FetchKey, _Position] = {}

    def take_up(self, session_id: int, told: dict[_FetchKey, _Position]) -> None:
        """Record a successful response. The leader remembers these positions if it keeps a session."""
        has_session = session_id != FetchRequest.NO_SESSION
        self.epoch = FetchRequest.next_epoch(self.epoch) if has_session else FetchRequest.INITIAL_EPOCH
        self.session_id = session_id
        self.told = told if has_session else {}


class FetcherThread:
    """Copies all partitions that this broker follows from one leader, on its own thread.

    `_condition` guards `_followed`. A change wakes the thread, even from a fetch that waits at the leader: the
    connection is interrupted, because a new partition should not wait until others have new records.
    """

    def __init__(
        self,
        broker_id: int,
        leader: BrokerEndpoint,
        *,
        config: BrokerConfig,
        clock: Clock,
        connection: InterBrokerConnection,
    ) -> None:
        """`connection`: to the leader; this thread closes it."""
        self.leader = leader
        self._broker_id = broker_id
        self._config = config
        self._clock = clock
        self._condition = threading.Condition()
        self._followed: dict[PartitionKey, Followed] = {}
        self._stopping = False
        self._changed = False
        self._fetching = False
        self._failing = False
        self._session = _Session()
        self._connection = connection
        self.thread = section_thread(self._run, f"broker-{broker_id}-fetcher-{leader.node_id}")
        self.thread.start()

    def follow(self, followed: Iterable[Followed]) -> None:
        with self._condition:
            for each in followed:
                self._followed[each.partition.key] = each
            self._wake()

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        with self._condition:
            # No need to wake the thread: fetched records of a partition in another epoch are dropped.
            for key in keys:
                self._followed.pop(key, None)

    def _wake(self) -> None:
        self._changed = True
        self._condition.notify()
        if self._fetching:
            self._connection.interrupt()

    def disconnect(self) -> None:
        """Interrupt the connection. A fetch in flight fails and is retried."""
        self._connection.interrupt()

    def stop(self) -> None:
        """Stop the thread and wait until it has ended."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
            self._connection.interrupt()
        self.thread.join()

    # --- The fetcher's thread ---

    def _run(self) -> None:
        while True:
            due = self._wait_for_work()
            if due is None:
                break
            try:
                self._fetch(due)
            except UNREACHABLE as failed:
                # It is unknown whether the leader has applied the changes.
                self._session = _Session()
                with self._condition:
                    if self._changed or self._stopping:
                        continue
                # Logged once at INFO, not for each retry.
                level = logging.DEBUG if self._failing else logging.INFO
                _log.log(
                    level, "broker %d can't fetch from broker %d: %s", self._broker_id, self.leader.node_id, failed
                )
                self._failing = True
                self._back_off(due)
            else:
                self._failing = False
        self._connection.close()

    def _wait_for_work(self) -> list[Followed] | None:
        """Wait for partitions to fetch and return them; None to stop."""
        with self._condition:
            self._fetching = False
            while not self._stopping:
                self._changed = False
                now_ms = self._clock.now_ms()
                due = [each for each in self._followed.values() if each.not_before_ms <= now_ms]
                if due:
                    self._fetching = True
                    self._connection.rearm()
                    return due
                next_ms = min((each.not_before_ms for each in self._followed.values()), default=None)
                self._clock.wait(self._condition, None if next_ms is None else next_ms - now_ms)
            return None

    def _back_off(self, followed: Iterable[Followed]) -> None:
        until_ms = self._clock.now_ms() + self._config.replica_fetch_backoff_ms
        for each in followed:
            each.not_before_ms = until_ms

    def _fetch(self, due: list[Followed]) -> None:
        asked: dict[_FetchKey, Followed] = {}
        positions: dict[_FetchKey, _Position] = {}
        for each in due:
            partition = each.partition
            log = partition.log
            key = (partition.topic_id, partition.index)
            asked[key] = each
            positions[key] = _Position(
                each.leader_epoch, log.end.offset, log.leader_epochs.latest_epoch, log.log_start_offset
            )
        session = self._session
        response = self._connection.request(self._request(session, positions), _FETCH_VERSION)
        if response.error_code:
            _log.debug("broker %d starts a new fetch session: %s", self._broker_id, make_error(response.error_code))
            self._session = _Session()
            if session.session_id == FetchRequest.NO_SESSION:
                self._back_off(due)
            return
        session.take_up(response.session_id, positions)
        for topic in response.responses:
            for data in topic.partitions:
                followed = asked.get((topic.topic_id, data.partition_index))
                if followed is not None:
                    self._take(followed, data)
                else:
                    # From a deleted topic, which can't be forgotten by an id that the leader no longer knows.
                    self._session = _Session()

    def _request(self, session: _Session, positions: dict[_FetchKey, _Position]) -> FetchRequest:
        by_topic: dict[uuid.UUID, list[FetchPartition]] = {}
        for key, position in positions.items():
            if session.told.get(key) != position:
                asked = FetchPartition(
                    partition=key[1],
                    current_leader_epoch=position.current_leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._config.replica_fetch_max_bytes,
                )
                by_topic.setdefault(key[0], []).append(asked)
        forgotten: dict[uuid.UUID, list[int]] = {}
        for topic_id, index in session.told.keys() - positions.keys():
            forgotten.setdefault(topic_id, []).append(index)
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id),
            max_wait_ms=self._max_wait_ms(),
            min_bytes=self._config.replica_fetch_min_bytes,
            max_bytes=self._config.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=[FetchTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic.items()],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in forgotten.items()
            ],
        )

    def _max_wait_ms(self) -> int:
        """How long the leader may delay the response: at most until a partition in backoff is due."""
        now_ms = self._clock.now_ms()
        with self._condition:
            pauses_ms = [each.not_before_ms - now_ms for each in self._followed.values() if each.not_before_ms > now_ms]
        return int(min([self._config.replica_fetch_wait_max_ms, *pauses_ms]))

    def _take(self, followed: Followed, data: PartitionData) -> None:
        """Handle one partition's part of a fetch response."""
        partition, epoch = followed.partition, followed.leader_epoch
        try:
            if data.error_code == OffsetOutOfRangeError.code:
                start, end = (
                    self._list_offset(partition, epoch, ListOffsetsRequest.EARLIEST_TIMESTAMP),
                    self._list_offset(partition, epoch, ListOffsetsRequest.LATEST_TIMESTAMP),
                )
                _log.warning("%r: its leader has offsets %d to %d", partition, start, end)
                partition.start_anew(epoch, start, end)
            elif data.error_code:
                _log.debug("%r: the leader answered %s", partition, make_error(data.error_code))
                self._back_off([followed])
            elif data.diverging_epoch.end_offset >= 0:
                diverging = data.diverging_epoch
                _log.info("%r diverges from its leader after epoch %d", partition, diverging.epoch)
                partition.truncate_to_divergence(epoch, diverging.epoch, diverging.end_offset)
            else:
                records = memoryview(b"") if data.records is None else memoryview(data.records)
                partition.append_as_follower(records, epoch, data.high_watermark, data.log_start_offset)
        except (BrokerResponseError, OSError) as failed:
            # Retried after a backoff: by then there may be a new leader, or space on the disk.
            _log.warning("%r can't apply the leader's response: %s", partition, failed)
            self._back_off([followed])

    def _list_offset(self, partition: Partition, leader_epoch: int, timestamp: int) -> int:
        asked = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._broker_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])]
        )
        answer = self._connection.request(request, _LIST_OFFSETS_VERSION).topics[0].partitions[0]
        if answer.error_code:
            raise make_error(
                answer.error_code, f"the leader of {partition.topic}-{partition.index} can't return its bounds"
            )
        return answer.offset


class FetcherManager:
    """The fetchers, one per leader. Called by the replica manager, under its lock, in the order of images."""

    def __init__(self, broker_id: int, *, config: BrokerConfig, clock: Clock, connector: InterBrokerConnector) -> None:
        self._broker_id = broker_id
        self._config = config
        self._clock = clock
        self._connector = connector
        self._threads: dict[int, FetcherThread] = {}
        self._closed = False

    def follow(self, partitions: Iterable[Partition], image: ClusterImage) -> None:
        """Copy these partitions from leaders that are alive, and stop the fetchers of leaders that aren't."""
        if self._closed:
            return
        for node_id in [node for node, thread in self._threads.items() if image.brokers.get(node) != thread.leader]:
            self._threads.pop(node_id).stop()
        by_leader: dict[int, list[Followed]] = {}
        for partition in partitions:
            if partition.leader_id not in (NO_LEADER, self._broker_id) and partition.leader_id in image.brokers:
                by_leader.setdefault(partition.leader_id, []).append(Followed(partition, partition.leader_epoch))
        for node_id, followed in by_leader.items():
            thread = self._threads.get(node_id)
            if thread is None:
                leader = image.brokers[node_id]
                thread = self._threads[node_id] = FetcherThread(
                    self._broker_id,
                    leader,
                    config=self._config,
                    clock=self._clock,
                    connection=self._connector.connection_to(leader, image.broker_token),
                )
            thread.follow(followed)

    def stop_following(self, keys: Iterable[PartitionKey]) -> None:
        """Stop copying these partitions."""
        doomed = list(keys)
        if doomed:
            for thread in self._threads.values():
                thread.forget(doomed)

    def disconnect(self) -> None:
        """Interrupt all connections to leaders. The fetchers reconnect."""
        for thread in list(self._threads.values()):
            thread.disconnect()

    def close(self) -> None:
        """Stop all fetchers and wait until their threads have ended."""
        self._closed = True
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            thread.stop()
