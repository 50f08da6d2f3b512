"""All replicas of one broker: appends, reads, and the requests that wait for them (Kafka's `ReplicaManager`)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from pathlib import Path
from typing import Protocol

from ...network.clock import Clock
from ...network.protocol.errors import (
    BrokerResponseError,
    CorruptRecordError,
    InvalidRequiredAcksError,
    KafkaError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
)
from ..config.broker_config import BrokerConfig
from ..controller.controller_api import IsrChange
from ..log.log import AppendInfo
from ..log.manager import LogManager
from ..log.producer_state import NOT_REQUIRED, Verification
from ..metadata import ClusterImage, PartitionKey, PartitionState, TopicState
from ..purgatory import DelayedOperationPurgatory
from ..requests.request import FEW_ELEMENTS
from ..scheduler import Scheduler
from .delayed_fetch import DelayedFetch
from .delayed_produce import DelayedProduce, ProduceResult
from .fetch import FetchEntry, FetchParams, FetchResult
from .partition import IsrProposal, MarkerAppend, OwnBatch, Partition
from .replicas import Replicas, without_frames

_log = logging.getLogger(__name__)

_ERRORS_WITHOUT_LOG_START = (
    CorruptRecordError,
    KafkaStorageError,
    MessageSizeTooLargeError,
    NotLeaderForPartitionError,
)

_RETRY_OFFLINE_MS = 1_000.0

Respond = Callable[[dict[PartitionKey, ProduceResult]], None]
#: Appends to a partition. Returns the outcome and whether the high watermark advanced.
_Append = Callable[[Partition], tuple[AppendInfo, bool]]
Aside = Callable[[Callable[[], None]], object]


class IsrAuthority(Protocol):
    """The part of the controller that partition leaders call."""

    def alter_isrs(self, changes: Sequence[IsrChange]) -> Sequence[PartitionState | BrokerResponseError]: ...


class Fetchers(Protocol):
    """Copies the leaders' logs of the partitions that this broker follows."""

    def follow(self, partitions: Iterable[Partition], image: ClusterImage) -> None: ...

    def stop_following(self, keys: Iterable[PartitionKey]) -> None: ...


class ReplicaManager:
    """The partitions of a broker by (topic, index).

    Any thread may call it. `_lock` serialises the application of images and is never acquired while a log's lock is
    held. Reading the table of partitions needs no lock. Delayed operations are completed without any lock held.

    broker_id: the id of this broker.
    config: the broker's configuration. `reconfigure` replaces it.
    clock: the time of fetches and timeouts.
    logs: the logs of this broker.
    scheduler: runs the periodic jobs, and jobs that must not run on the calling thread.
    controller: decides about in-sync replicas.
    produce_purgatory, fetch_purgatory: the requests that wait, by partition.
    run_aside: runs a function on another thread, for the responses of large requests.
    """

    def __init__(
        self,
        broker_id: int,
        *,
        config: BrokerConfig,
        clock: Clock,
        logs: LogManager,
        scheduler: Scheduler,
        controller: IsrAuthority,
        produce_purgatory: DelayedOperationPurgatory,
        fetch_purgatory: DelayedOperationPurgatory,
        run_aside: Aside,
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.clock = clock
        self.logs = logs
        self.scheduler = scheduler
        self.controller = controller
        self.produce_purgatory = produce_purgatory
        self.fetch_purgatory = fetch_purgatory
        self._run_aside = run_aside
        self.fetchers: Fetchers | None = None
        self.leadership_listeners: list[Callable[[Partition], None]] = []
        self.replicas = Replicas(broker_id, ClusterImage(logs.cluster_id))
        self._lock = threading.RLock()
        self._retry_is_scheduled = False
        #: Directories of deleted logs whose removal is not scheduled yet, by delay in milliseconds.
        self._doomed: dict[int, list[Path]] = {}
        self._partitions = self.replicas.partitions

    @property
    def image(self) -> ClusterImage:
        """The cluster metadata as this broker has it."""
        return self.replicas.image

    @property
    def partitions(self) -> Mapping[PartitionKey, Partition]:
        """The partitions with a replica on this broker."""
        return self._partitions

    def partition(self, key: PartitionKey) -> Partition:
        """See `Replicas.partition`."""
        return self.replicas.partition(key)

    # --- Images ---

    def apply_image(self, image: ClusterImage) -> Callable[[], None]:
        """Apply a new image: create, delete and change the roles of partitions. Called by the controller, in order.

        Returns a function that starts fetching from leaders. It is to be called once the leaders have the image, too.
        """
        with self._lock:
            if image.version <= self.image.version:
                return lambda: None
            before, self.replicas.image = self.image, image
            doomed = self._leftovers(image) if before.version == 0 else []
            for key in doomed:
                self._delete_log(key)
            brokers_changed = before.brokers != image.brokers
            touched: list[Partition] = []
            restarted: list[Partition] = []
            gone: list[PartitionKey] = []
            for name in image.changed_since(before):
                topic, known = image.topics.get(name), before.topics.get(name)
                if topic is not None:
                    self._apply_topic(topic, known, touched, restarted)
                if known is not None:
                    keys = [(name, index) for index in range(len(known.partitions))]
                    gone += [key for key in keys if key in self._partitions and self._is_gone(key, image)]
            if self.fetchers is not None:
                self.fetchers.stop_following([*gone, *(partition.key for partition in restarted)])
            self.replicas.offline = {key for key in self.replicas.offline if image.partition(*key) is not None}
            for key in gone:
                touched.append(self._partitions.pop(key))
                self._delete_log(key)
            if self._doomed:
                self._remove_later()
            perhaps_followed = self._partitions.values() if brokers_changed else restarted
            followed = [each for each in perhaps_followed if not each.is_leader]
        self._announce(touched)
        return lambda: self._follow(followed, image)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply another broker configuration to all partitions. Called by the controller before `apply_image`."""
        with self._lock:
            self.config = config
            for partition in self._partitions.values():
                topic = self.image.topics.get(partition.topic)
                if topic is not None:
                    partition.log.config = config.topic_config(topic.configs)

    def _announce(self, touched: Iterable[Partition]) -> None:
        for partition in touched:
            for listener in self.leadership_listeners:
                listener(partition)
            self._wake(partition.key)

    def _retry_offline(self) -> None:
        """Create the replicas that couldn't be created: the disk may have space again."""
        touched: list[Partition] = []
        restarted: list[Partition] = []
        with self._lock:
            self._retry_is_scheduled = False
            for name in {name for name, _ in self.replicas.offline}:
                topic = self.image.topics.get(name)
                if topic is not None:
                    self._apply_topic(topic, topic, touched, restarted)
            if self.replicas.offline:
                self._retry_later()
        self._announce(touched)
        self._follow([each for each in restarted if not each.is_leader], self.image)

    def _retry_later(self) -> None:
        if self._retry_is_scheduled:
            return
        self._retry_is_scheduled = True
        self.scheduler.schedule("make-replicas", self._retry_offline, delay_ms=_RETRY_OFFLINE_MS)

    def _follow(self, followed: list[Partition], image: ClusterImage) -> None:
        with self._lock:
            if self.fetchers is not None:
                self.fetchers.follow(followed, image)

    def _leftovers(self, image: ClusterImage) -> list[PartitionKey]:
        """The logs of topics that were deleted while this broker was down (new topics may have their names), and of
        partitions that are now on other brokers."""
        leftovers = self.logs.of_topics(image.deleted)
        for key in self.logs.logs:
            partition = image.partition(*key)
            if partition is not None and self.broker_id not in partition.replicas and key not in leftovers:
                leftovers.append(key)
        return leftovers

    def _remove_later(self) -> None:
        """Flush the deletion of logs, and schedule the removal of files after each log's `file.delete.delay.ms`."""
        try:
            self.logs.flush_deletions()
        except KafkaStorageError:
            _log.exception("broker %d can't flush its data directory", self.broker_id)
        doomed, self._doomed = self._doomed, {}
        for delay_ms, directories in doomed.items():
            self.scheduler.schedule("delete-logs", partial(self.logs.remove_doomed, directories), delay_ms=delay_ms)

    def _delete_log(self, key: PartitionKey) -> None:
        log = self.logs.logs.get(key)
        try:
            directory = self.logs.delete(*key)
            if log is not None and directory is not None:
                self._doomed.setdefault(log.config.file_delete_delay_ms, []).append(directory)
        except KafkaStorageError:
            # The other brokers must receive the image regardless of the state of this broker's disk.
            _log.exception("broker %d can't delete %s-%d", self.broker_id, *key)

    def _is_gone(self, key: PartitionKey, image: ClusterImage) -> bool:
        partition = self._partitions[key]
        topic = image.topics.get(partition.topic)
        return (
            topic is None
            or topic.topic_id != partition.topic_id
            or self.broker_id not in topic.partitions[partition.index].replicas
        )

    def _apply_topic(
        self, topic: TopicState, before: TopicState | None, touched: list[Partition], restarted: list[Partition]
    ) -> None:
        """Append the partitions that have changed to `touched`, and those with a new leader or epoch to `restarted`."""
        config = None
        for index, state in enumerate(topic.partitions):
            if self.broker_id not in state.replicas:
                continue
            key = (topic.name, index)
            partition = self._partitions.get(key)
            if partition is not None and partition.topic_id != topic.topic_id:
                # Deleted and created again between two images.
                del self._partitions[key]
                self._delete_log(key)
                partition = None
            if config is None:
                config = self.config.topic_config(topic.configs)
            if partition is None:
                try:
                    log = self.logs.get_or_create(topic.name, index, topic.topic_id, config)
                except KafkaError as failed:
                    # The broker continues without this replica. Its clients get a storage error.
                    if key not in self.replicas.offline:
                        _log.error("broker %d can't open %s-%d yet: %s", self.broker_id, topic.name, index, failed)
                        self.replicas.offline.add(key)
                        self._retry_later()
                    continue
                self.replicas.offline.discard(key)
                partition = Partition(topic.name, index, topic.topic_id, self.broker_id, log, self.clock)
                partition.log.config = config
                partition.apply(state)
                self._partitions[key] = partition
                restarted.append(partition)
            elif before is None or before.partitions[index] is not state or before.configs != topic.configs:
                partition.log.config = config
                if partition.apply(state):
                    restarted.append(partition)
            else:
                continue
            touched.append(partition)

    def _wake(self, key: PartitionKey) -> None:
        self.produce_purgatory.check_and_complete(key)
        self.fetch_purgatory.check_and_complete(key)

    # --- Produce ---

    def append_records(
        self,
        timeout_ms: float,
        required_acks: int,
        batches: Iterable[tuple[PartitionKey, memoryview]],
        respond: Respond,
    ) -> None:
        """Append each partition's batch. `respond` is called once, now or when all in-sync replicas have them."""
        self.append_verified(timeout_ms, required_acks, [(key, batch, NOT_REQUIRED) for key, batch in batches], respond)

    def append_verified(
        self,
        timeout_ms: float,
        required_acks: int,
        batches: Iterable[tuple[PartitionKey, memoryview, Verification | None]],
        respond: Respond,
    ) -> None:
        """Append batches of a producer that has transactions, each with its verification."""
        if required_acks not in (-1, 0, 1):
            error = InvalidRequiredAcksError(f"acks is -1, 0 or 1, not {required_acks}")
            respond({key: ProduceResult(None, error) for key, _, _ in batches})
            return
        appends = [
            (key, partial(_append, batch=batch, required_acks=required_acks, verification=verification))
            for key, batch, verification in batches
        ]
        self._append_all(timeout_ms, required_acks, appends, respond)

    def append_own(
        self,
        timeout_ms: float,
        contents: Iterable[tuple[PartitionKey, OwnBatch | MarkerAppend]],
        respond: Respond,
        *,
        leader_epoch: int = -1,
    ) -> None:
        """Append a coordinator's batches or markers with acks=all (see `Partition.append_own`)."""
        appends = [(key, partial(_append_own, content=content, leader_epoch=leader_epoch)) for key, content in contents]
        self._append_all(timeout_ms, -1, appends, respond)

    def _append_all(
        self, timeout_ms: float, required_acks: int, appends: Sequence[tuple[PartitionKey, _Append]], respond: Respond
    ) -> None:
        results: dict[PartitionKey, ProduceResult] = {}
        appended: list[PartitionKey] = []
        moved_keys: list[PartitionKey] = []
        waits = False
        for key, append in appends:
            partition = None
            try:
                partition = self.partition(key)
                info, moved = append(partition)
            except BrokerResponseError as error:
                # From the log start offset a producer concludes whether its earlier records were deleted (KIP-360).
                results[key] = ProduceResult(None, without_frames(error))
                if partition is not None and not isinstance(error, _ERRORS_WITHOUT_LOG_START):
                    results[key].log_start_offset = partition.log.log_start_offset
                continue
            results[key] = ProduceResult(info)
            waits = waits or partition.log.high_watermark <= info.last_offset
            appended.append(key)
            if moved:
                moved_keys.append(key)
        # Only after all appends: otherwise a fetch of many partitions would be answered with the first of them.
        for key in moved_keys:
            self.produce_purgatory.check_and_complete(key)
        for key in appended:
            # The followers' fetches wait for the log's end, the clients' for the high watermark.
            self.fetch_purgatory.check_and_complete(key)
        if required_acks == -1 and waits:
            delayed = DelayedProduce(timeout_ms, results, self.replicas, respond, aside=self._aside_if_many(results))
            self.produce_purgatory.try_complete_else_watch(delayed, list(results))
            return
        respond(results)

    # --- Fetch ---

    def fetch_records(
        self, params: FetchParams, entries: list[FetchEntry], respond: Callable[[list[FetchResult]], None]
    ) -> None:
        """Read each partition. `respond` is called once, now or when `min_bytes` are available."""
        results = self.replicas.read(params, entries)
        if params.is_follower:
            self._note_fetches(params.replica_id, results)
        if (
            params.max_wait_ms <= 0
            or not entries
            or sum(result.size_bytes for result in results) >= params.min_bytes
            or any(result.error is not None or result.diverging_epoch is not None for result in results)
        ):
            respond(results)
            return
        delayed = DelayedFetch(params, results, self.replicas, respond, aside=self._aside_if_many(entries))
        self.fetch_purgatory.try_complete_else_watch(delayed, [result.entry.key for result in results])

    def _aside_if_many(self, parts: Sized) -> Aside | None:
        """The executor for the delayed response of a large request, so that it doesn't block the thread that completes
        it; None for a small one."""
        return self._run_aside if len(parts) > FEW_ELEMENTS else None

    def _note_fetches(self, node: int, results: list[FetchResult]) -> None:
        moved: list[PartitionKey] = []
        to_expand: list[Partition] = []
        for result in results:
            if result.error is not None or result.diverging_epoch is not None:
                continue
            entry = result.entry
            partition = self._partitions.get(entry.key)
            if partition is None:
                continue
            if partition.note_fetch(node, entry.offset, entry.log_start_offset):
                moved.append(entry.key)
                result.high_watermark = partition.log.high_watermark
            if partition.followers_to_add():
                partition.isr_change_pending = True
                to_expand.append(partition)
        if to_expand:
            self.scheduler.schedule("expand-isrs", lambda: self._expand_isrs(to_expand), delay_ms=0)
        # Only after all positions are recorded: a produce that waits for many partitions then completes at once.
        for key in moved:
            self._wake(key)

    # --- In-sync replicas: the periodic job that shrinks them, and the expansion that a fetch triggers ---

    def schedule(self) -> None:
        """Start the job that drops lagging followers (every half of `replica.lag.time.max.ms`)."""
        period_ms = max(self.config.replica_lag_time_max_ms / 2, 1)
        self.scheduler.schedule("isr-expiration", self.shrink_isrs, delay_ms=period_ms, period_ms=period_ms)

    def shrink_isrs(self) -> None:
        """Propose to remove lagging followers from the in-sync replicas."""
        proposals = []
        for partition in list(self._partitions.values()):
            proposal = partition.propose_shrinking(self.config.replica_lag_time_max_ms)
            if proposal is not None:
                _log.info("%r: shrinking the in-sync replicas to %s", partition, proposal.isr)
                proposals.append((partition, proposal))
        self._alter_isrs(proposals)

    def _expand_isrs(self, partitions: Sequence[Partition]) -> None:
        proposals = [(partition, partition.propose_expansion()) for partition in partitions]
        self._alter_isrs([(partition, proposal) for partition, proposal in proposals if proposal is not None])

    def _alter_isrs(self, proposals: Sequence[tuple[Partition, IsrProposal]]) -> None:
        """Propose new in-sync replicas. They take effect with the controller's image. Called without any lock held."""
        if not proposals:
            return
        changes = [
            IsrChange(each.topic, each.index, self.broker_id, leader_epoch, partition_epoch, isr)
            for each, (isr, leader_epoch, partition_epoch) in proposals
        ]
        refused: set[int] = set()
        try:
            for at, outcome in enumerate(self.controller.alter_isrs(changes)):
                if isinstance(outcome, BrokerResponseError):
                    refused.add(at)
                    _log.debug("the controller rejected %s: %s", changes[at], outcome)
        finally:
            for at, (partition, proposal) in enumerate(proposals):
                partition.end_proposal(proposal, is_refused=at in refused)

    # --- Stop ---

    def close(self) -> None:
        """Close the logs and leave the marker of a clean stop. Raises KafkaStorageError."""
        try:
            self.logs.close()
        except OSError as failed:
            raise KafkaStorageError(f"can't close the logs of broker {self.broker_id}: {failed}") from failed


def _append(
    partition: Partition, *, batch: memoryview, required_acks: int, verification: Verification | None
) -> tuple[AppendInfo, bool]:
    return partition.append(batch, required_acks=required_acks, verification=verification)


def _append_own(
    partition: Partition, *, content: OwnBatch | MarkerAppend, leader_epoch: int
) -> tuple[AppendInfo, bool]:
    return partition.append_own(content, leader_epoch)
