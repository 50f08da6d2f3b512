"""What a producer knows about its cluster, kept fresh: shared between its callers and its sender thread.

Models: Kafka's Metadata and ProducerMetadata. Differences, on purpose:

- an error reaches every thread that waits, not only the first one (Java clears it when the first has thrown it);
- re-bootstrapping keeps the known topics, without leaders, so that `send` goes on buffering while the brokers are away
  (as librdkafka does), where Java forgets them and blocks;
- the backoff is drawn once an attempt and not once a question;
- a topic that is to be asked for again, because it has no leader yet or isn't there yet, is asked for by itself and not
  along with all others: creating ten thousand topics one after the other would ask for all of them each time.
"""

from __future__ import annotations

import copy
import logging
import random
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from .backoff import ExponentialBackoff
from .clock import LONG_AGO_MS, Clock
from .cluster import (
    NO_LEADER_EPOCH,
    Cluster,
    Node,
    PartitionInfo,
    TopicPartition,
    relocate_leader,
    relocate_leaders,
    same_or,
)
from .latch import Latch
from .protocol.errors import (
    BrokerResponseError,
    IllegalStateError,
    InvalidMetadataError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    TopicAuthorizationFailedError,
    make_error,
)
from .protocol.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from .protocol.types import ZERO_UUID
from .sections import here
from .topic_names import validate_topic_name

_log = logging.getLogger(__name__)


#: Called with a new snapshot and the topics whose partitions are others now than at the call before: new ones and those
#: that are no more included, those where nothing changed left out.
Listener = Callable[[Cluster, Collection[str]], None]


@dataclass(frozen=True, slots=True)
class MetadataFetch:
    """A request for metadata, and what is needed to understand its answer: how many topics had been asked for when it
    was made, and whether it asks for the new topics only."""

    message: MetadataRequest
    request_version: int
    is_partial: bool


class Metadata:
    """The current `Cluster` and when it is to be fetched again.

    Thread-safe. Callers add topics, request updates and await them; the sender thread fetches, updates and reports
    failures. `cluster` and `version` are read without the lock: the snapshot is immutable and replaced as a whole,
    always before `version` grows. Listeners run on the sender thread, without the lock.

    Bounded by use: a topic that nobody has added again for `max_idle_ms` is forgotten with the next update.

    With very many topics an update costs what it changes, but for one copy of the snapshot's tables: a topic whose
    answer is as before keeps its very tuple of partitions, and listeners are told of the others only.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        bootstrap_servers: Sequence[tuple[str, int]],
        refresh_backoff_ms: float,
        refresh_backoff_max_ms: float,
        max_age_ms: float,
        max_idle_ms: float,
        allow_auto_topic_creation: bool = True,
        random_unit: Callable[[], float] = random.random,
    ) -> None:
        """`bootstrap_servers` are unresolved (host, port) pairs; nothing here touches the network.

        `max_age_ms` is metadata.max.age.ms, `max_idle_ms` metadata.max.idle.ms, the backoff retry.backoff.ms and
        retry.backoff.max.ms.
        """
        self._clock = clock
        self._bootstrap_servers = tuple(bootstrap_servers)
        self._backoff = ExponentialBackoff(refresh_backoff_ms, refresh_backoff_max_ms, random_unit=random_unit)
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._allow_auto_topic_creation = allow_auto_topic_creation

        self._lock = threading.RLock()
        self._change = Latch()  # set, and replaced by a new one, when something changed that is waited for
        self._cluster = Cluster.bootstrap(self._bootstrap_servers)
        self._version = 0
        self._request_version = 0
        self._topics: dict[str, float] = {}  # when each expires
        self._new_topics: set[str] = set()
        self._unsettled_topics: set[str] = set()  # what was told of them last is hoped to pass soon
        # a heap of (when to look whether it has expired, topic): a topic that is added again is left where it is
        self._expiries: list[tuple[float, str]] = []
        self._epochs: dict[str, dict[int, int]] = {}  # highest leader epoch seen, by topic and partition
        self._topic_errors: dict[str, type[BrokerResponseError]] = {}
        self._listeners: list[Listener] = []
        self._told = self._cluster.partitions  # what the listeners have heard of last

        self._needs_full_update = True
        self._needs_partial_update = False
        self._last_refresh_ms = LONG_AGO_MS
        self._last_success_ms = LONG_AGO_MS
        self._failed_attempts = 0
        self._equivalent_responses = 0
        self._attempts_backoff_ms = self._backoff.backoff_ms(0)
        self._equivalent_backoff_ms = 0.0

        self._last_error: KafkaError | None = None
        self._progress = "no broker was asked yet"
        self._fatal_error: KafkaError | None = None
        self._fatal_count = 0
        self._closed_by: KafkaError | None = None

    # --- For everybody ---

    @property
    def cluster(self) -> Cluster:
        """The current snapshot. Never blocks."""
        return self._cluster

    @property
    def version(self) -> int:
        """How many updates there have been; what `await_update` compares with."""
        return self._version

    def age_ms(self, now_ms: float) -> float:
        """Milliseconds since the last successful update; infinite before the first. Any thread."""
        return now_ms - self._last_success_ms

    @property
    def max_age_ms(self) -> float:
        return self._max_age_ms

    @property
    def last_error(self) -> KafkaError | None:
        """Why the last attempt to talk to a broker failed, None since the last update."""
        return self._last_error

    @property
    def is_closed(self) -> bool:
        return self._closed_by is not None

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The (host, port) pairs to start from."""
        return self._bootstrap_servers

    def topic_error(self, topic: str) -> BrokerResponseError | None:
        """What the brokers said about the topic instead of its partitions, in the last answer which covered it.

        InvalidTopicError and TopicAuthorizationFailedError will stay; the retriable ones (unknown topic, no leader
        yet) may be gone with the next update. None: no error, or no answer yet.
        """
        error_class = self._topic_errors.get(topic)
        if error_class is None:
            return None
        return error_class(f"topic {topic!r}: {error_class()}")

    # --- For callers ---

    def add_topic(self, topic: str, now_ms: float) -> None:
        """Keep the metadata of this topic for `max_idle_ms` from now; a topic not kept yet is asked for at once.

        Raises InvalidTopicError for a name that no topic can have: asking for it would make no broker answer better.
        """
        if topic in self._topics:
            # Without the lock, because this runs for each record. Should the sender expire the topic in between, it
            # comes back here without being new, and whoever misses it in the cluster requests a full update.
            self._topics[topic] = now_ms + self._max_idle_ms
            return
        validate_topic_name(topic)
        with here.section, self._lock:
            known = topic in self._topics
            expires_ms = now_ms + self._max_idle_ms
            self._topics[topic] = expires_ms
            if not known:
                heappush(self._expiries, (expires_ms, topic))
                self._new_topics.add(topic)
                self._request_update_for_new_topics()

    def contains_topic(self, topic: str) -> bool:
        """Whether the topic is kept."""
        return topic in self._topics

    def request_update(self, *, reset_backoff: bool = False) -> int:
        """Ask for a full update as soon as the backoff allows. Returns the version that `await_update` is to outgrow.

        `reset_backoff` forgets that earlier answers brought nothing new: for a caller who wants something else than
        before, not for one that tries the same again.
        """
        with here.section, self._lock:
            self._needs_full_update = True
            if reset_backoff:
                self._equivalent_responses = 0
                self._equivalent_backoff_ms = 0.0
            return self._version

    def request_update_for_topic(self, topic: str) -> int:
        """Ask for an update that covers the topic: at once when it's new, else like `request_update`."""
        with here.section, self._lock:
            if topic in self._new_topics:
                return self._request_update_for_new_topics()
            if topic in self._unsettled_topics:
                return self._version
            return self.request_update()

    def request_update_for_waiting(self, topics: Iterable[str]) -> None:
        """Ask for an update that covers these topics, none of which is to hurry: what is asked for already suffices."""
        with here.section, self._lock:
            if not all(topic in self._new_topics or topic in self._unsettled_topics for topic in topics):
                self._needs_full_update = True

    def await_update(self, last_version: int, timeout_ms: float) -> None:
        """Wait until `version` is above `last_version`.

        Runs on a caller's thread. Raises KafkaTimeoutError after `timeout_ms`, with the last connection error in its
        text and as its cause; what `fatal_error` reports meanwhile (authentication, a broker that is too old, no
        resolvable bootstrap server); ProducerClosedError or the cause given to `close`.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        fatal_count = self._fatal_count
        # in a section, so that a send from a finalizer or signal handler meanwhile doesn't begin to wait, too
        with here.section:
            while True:
                # before the look at what has changed: what changes after it sets this one
                change = self._change
                if self._version > last_version:
                    return
                if self._closed_by is not None:
                    raise copy.copy(self._closed_by) from self._closed_by
                if self._fatal_error is not None and self._fatal_count > fatal_count:
                    raise copy.copy(self._fatal_error) from self._fatal_error
                if self._clock.now_ms() >= deadline_ms:
                    cause = self._last_error
                    why = self._progress if cause is None else f"{cause}"
                    raise KafkaTimeoutError(f"no metadata within {timeout_ms:.0f} ms: {why}") from cause
                self._clock.await_latch(change, deadline_ms)

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called with each new snapshot, on the sender thread."""
        with here.section, self._lock:
            self._listeners.append(listener)

    # --- For the sender thread ---

    @property
    def update_requested(self) -> bool:
        """Whether somebody has asked for an update that hasn't come yet."""
        return self._needs_full_update or self._needs_partial_update

    def time_to_next_update(self, now_ms: float) -> float:
        """How long until metadata is to be fetched: when it is asked for or too old, but not before the backoff ends.

        The backoff grows with failures, and with answers that bring nothing new (KIP-580).
        """
        with here.section, self._lock:
            expires_ms = self._last_success_ms + self._max_age_ms
            if now_ms >= expires_ms:
                self._equivalent_responses = 0
                self._equivalent_backoff_ms = 0.0
            due_ms = now_ms if self.update_requested else expires_ms
            backoff_ms = max(self._attempts_backoff_ms, self._equivalent_backoff_ms)
            return max(due_ms - now_ms, self._last_refresh_ms + backoff_ms - now_ms, 0.0)

    def next_fetch(self, now_ms: float) -> MetadataFetch:
        """The request to send now: for the new topics, and those to be asked for again, when nothing else is due,
        else for all that are kept."""
        with here.section, self._lock:
            is_partial = not self._needs_full_update and now_ms < self._last_success_ms + self._max_age_ms
            # dict and set may grow in add_topic's fast path, but only under their present keys
            names = sorted(self._new_topics | self._unsettled_topics if is_partial else self._topics)
            message = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=self._allow_auto_topic_creation,
            )
            return MetadataFetch(message, self._request_version, is_partial)

    def update(
        self,
        response: MetadataResponse,
        now_ms: float,
        *,
        version: int = MetadataResponse.versions.max,
        fetch: MetadataFetch | None = None,
    ) -> None:
        """Take over what a broker answered, in that version of the Metadata API, and wake those who wait.

        Without `fetch` the answer counts as one to a full request made just now. Raises IllegalStateError after close.
        """
        with here.section, self._lock:
            if self._closed_by is not None:
                raise IllegalStateError("metadata arrived after its owner was closed")
            request_version = self._request_version if fetch is None else fetch.request_version
            is_partial = fetch is not None and fetch.is_partial
            self._failed_attempts = 0
            self._attempts_backoff_ms = self._backoff.backoff_ms(0)
            self._last_error = None
            if not is_partial:
                self._needs_full_update = False
                self._last_success_ms = now_ms
            self._equivalent_responses += 1
            expired = self._expire_topics(now_ms)
            before = self._cluster
            answered = [topic.name for topic in response.topics if topic.name is not None]
            touched = [*expired, *answered] if is_partial else None
            self._unsettled_topics.difference_update(self._topics if touched is None else touched)
            self._cluster = cluster = self._merge(response, version, touched)
            self._new_topics.difference_update(answered)
            # topics that were added since the request was made don't wait for a backoff
            are_new = request_version < self._request_version and bool(self._new_topics)
            self._last_refresh_ms = LONG_AGO_MS if are_new else now_ms
            self._needs_partial_update = are_new or bool(self._unsettled_topics)
            self._equivalent_backoff_ms = (
                self._backoff.backoff_ms(self._equivalent_responses - 1) if self._equivalent_responses else 0.0
            )
            self._version += 1
            listeners, changed = self._listeners_and_changes(before, touched)
            self._wake()
        if cluster.cluster_id != before.cluster_id:
            _log.info("Cluster ID: %s", cluster.cluster_id)
        _log.debug("Updated metadata to version %d: %s", self._version, cluster)
        for listener in listeners:
            listener(cluster, changed)

    def update_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], nodes: Iterable[Node]
    ) -> set[TopicPartition]:
        """Take over (leader id, leader epoch) by partition which a produce response told (KIP-951).

        Ignored: incomplete answers, epochs that aren't newer, leaders whose node is unknown, unknown partitions.
        Returns the partitions whose leader is another now.
        """
        with here.section, self._lock:
            cluster = self._cluster
            by_id = {**cluster.nodes, **{node.id: node for node in nodes}}
            updated: dict[TopicPartition, PartitionInfo] = {}
            for topic_partition, (leader_id, epoch) in leaders.items():
                info = cluster.partition(topic_partition)
                if info is None or leader_id < 0 or epoch < 0 or leader_id not in by_id:
                    continue
                epochs = self._epochs.setdefault(topic_partition.topic, {})
                if epoch <= epochs.get(topic_partition.partition, NO_LEADER_EPOCH):
                    continue
                epochs[topic_partition.partition] = epoch
                updated[topic_partition] = replace(
                    info, leader=by_id[leader_id], leader_id=leader_id, leader_epoch=epoch
                )
            if not updated:
                return set()
            before, cluster = cluster, cluster.with_nodes(by_id.values()).with_partitions(updated)
            self._cluster = cluster
            listeners, changed = self._listeners_and_changes(before, {topic for topic, _ in updated})
        for listener in listeners:
            listener(cluster, changed)
        return set(updated)

    def failed_update(self, now_ms: float, error: KafkaError | None = None) -> None:
        """An attempt to get metadata failed: wait longer before the next one."""
        with here.section, self._lock:
            self._last_refresh_ms = now_ms
            self._attempts_backoff_ms = self._backoff.backoff_ms(self._failed_attempts)
            self._failed_attempts += 1
            self._equivalent_responses = 0
            self._equivalent_backoff_ms = 0.0
            if error is not None:
                self._last_error = error

    def record_error(self, error: KafkaError) -> None:
        """Remember why a broker could not be asked, for those whose wait times out."""
        self._last_error = error

    def record_progress(self, progress: str) -> None:
        """Remember what the client waits for on its way to metadata, for those whose wait times out without an error:
        a broker that accepts connections and never answers."""
        self._progress = progress

    def fatal_error(self, error: KafkaError) -> None:
        """Report an error to everybody who waits now, because waiting longer won't help. The next attempt may succeed:
        those who come later wait again."""
        with here.section, self._lock:
            self._last_error = error
            self._fatal_error = error
            self._fatal_count += 1
            self._wake()

    def rebootstrap(self) -> None:
        """Go back to the configured addresses, because no known broker answers (KIP-899) or one told us so (KIP-1102).

        Topics stay, without leaders, so that records can still be given a partition and be buffered. Leader epochs are
        forgotten: the brokers behind those addresses may be another cluster now.
        """
        with here.section, self._lock:
            self._needs_full_update = True
            if self._cluster.is_bootstrap:
                return
            bootstrap = Cluster.bootstrap(self._bootstrap_servers)
            _log.info("Rebootstrapping with %s", ", ".join(node.address for node in bootstrap.nodes.values()))
            self._cluster = self._cluster.with_nodes(bootstrap.nodes.values(), is_bootstrap=True)
            self._epochs.clear()

    def use_bootstrap_servers(self, servers: Sequence[tuple[str, int]]) -> None:
        """Bootstrap from these addresses, now and later, in place of those given to the constructor."""
        with here.section, self._lock:
            self._bootstrap_servers = tuple(servers)
            if self._cluster.is_bootstrap:
                nodes = Cluster.bootstrap(self._bootstrap_servers).nodes
                self._cluster = self._cluster.with_nodes(nodes.values(), is_bootstrap=True)

    def close(self, error: KafkaError | None = None) -> None:
        """No more updates will come: those who wait, now or later, get `error` (None: ProducerClosedError)."""
        with here.section, self._lock:
            if self._closed_by is None:
                self._closed_by = error or ProducerClosedError("metadata was awaited after the producer was closed")
            self._wake()

    def _wake(self) -> None:
        change, self._change = self._change, Latch()
        change.set()

    # --- Under the lock ---

    def _request_update_for_new_topics(self) -> int:
        # the backoff is for retries, a new topic doesn't wait
        self._last_refresh_ms = LONG_AGO_MS
        self._needs_partial_update = True
        self._equivalent_responses = 0
        self._equivalent_backoff_ms = 0.0
        self._request_version += 1
        return self._version

    def _expire_topics(self, now_ms: float) -> list[str]:
        heap = self._expiries
        if len(heap) < len(self._topics):
            # one expired while `add_topic` prolonged it without the lock
            heap[:] = [(expires_ms, topic) for topic, expires_ms in list(self._topics.items())]
            heapify(heap)
        expired: list[str] = []
        unanswered: list[tuple[float, str]] = []
        while heap and heap[0][0] <= now_ms:
            expires_ms, topic = heappop(heap)
            expires_ms = self._topics.get(topic, expires_ms)
            if expires_ms > now_ms:
                heappush(heap, (expires_ms, topic))
            elif topic in self._new_topics:
                unanswered.append((expires_ms, topic))
            elif self._topics.pop(topic, None) is not None:
                expired.append(topic)
                self._epochs.pop(topic, None)
                self._unsettled_topics.discard(topic)
                _log.debug("Forgetting topic %s, which was not used for %g ms", topic, self._max_idle_ms)
        for entry in unanswered:
            heappush(heap, entry)
        return expired

    def _listeners_and_changes(
        self, before: Cluster, touched: Collection[str] | None
    ) -> tuple[tuple[Listener, ...], Collection[str]]:
        # `touched`: the topics that may be others than `before`; on other nodes all may be. That is so after a
        # rebootstrap, too, of which listeners aren't told: its addresses are never the nodes of an answer.
        cluster = self._cluster
        heard, self._told = self._told, cluster.partitions
        if touched is None or cluster.nodes != before.nodes:
            topics: Iterable[str] = heard.keys() | self._told.keys()
        else:
            topics = touched
        changed = {topic for topic in topics if heard.get(topic) is not self._told.get(topic)}
        return tuple(self._listeners), changed

    def _merge(self, response: MetadataResponse, version: int, touched: list[str] | None) -> Cluster:
        # `touched`: the topics that a partial answer is about, None where the answer is about all
        old = self._cluster
        nodes = {
            node.node_id: Node(node.node_id, node.host, node.port, node.rack)
            for node in response.brokers
            if node.node_id >= 0
        }
        partitions: dict[str, tuple[PartitionInfo, ...]] = {}
        topic_ids: dict[str, uuid.UUID] = {}
        errors: dict[str, type[BrokerResponseError]] = {}
        internal: set[str] = set()
        if touched is not None:
            # what the answer doesn't mention stays as it was, but on the nodes of the answer
            partitions = old.partitions.copy()
            topic_ids = old.topic_ids.copy()
            errors = dict(self._topic_errors)
            internal = set(old.internal_topics)
            for name in touched:
                partitions.pop(name, None)
                topic_ids.pop(name, None)
                errors.pop(name, None)
                internal.discard(name)
            if nodes != old.nodes:
                partitions = relocate_leaders(partitions, nodes)
        for topic in response.topics:
            name = topic.name
            if name is None or name not in self._topics:
                continue
            if topic.is_internal:
                internal.add(name)
            if topic.topic_id != ZERO_UUID:
                topic_ids[name] = topic.topic_id
            if topic.error_code == 0:
                infos = self._partitions_of(name, topic, nodes, version)
                if infos:
                    partitions[name] = infos
            else:
                error = make_error(topic.error_code)
                errors[name] = type(error)
                # said once, however often it is asked again until it passes
                level = logging.DEBUG if self._topic_errors.get(name) is type(error) else logging.WARNING
                _log.log(level, "Metadata of topic %s: %r", name, error)
                if isinstance(error, InvalidMetadataError):
                    self._unsettled_topics.add(name)
        self._topic_errors = errors
        return Cluster(
            nodes=nodes.values(),
            partitions=partitions,
            topic_ids=topic_ids,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            invalid_topics=(name for name, error in errors.items() if error is InvalidTopicError),
            unauthorized_topics=(name for name, error in errors.items() if error is TopicAuthorizationFailedError),
            internal_topics=internal,
        )

    def _partitions_of(
        self, name: str, topic: MetadataResponseTopic, nodes: Mapping[int, Node], version: int
    ) -> tuple[PartitionInfo, ...]:
        old = self._cluster
        epochs = self._epochs.setdefault(name, {})
        if topic.topic_id not in (ZERO_UUID, old.topic_id(name)):
            # another topic under the old name (or one whose id wasn't known): its epochs begin anew
            epochs.clear()
        infos: list[PartitionInfo] = []
        for partition in topic.partitions:
            number = partition.partition_index
            has_reliable_epochs = version >= MetadataResponse.FIRST_VERSION_WITH_RELIABLE_EPOCHS
            epoch = partition.leader_epoch if has_reliable_epochs else NO_LEADER_EPOCH
            seen = epochs.get(number)
            known = old.partition(TopicPartition(name, number))
            if epoch < 0:
                epochs.pop(number, None)
                self._equivalent_responses = 0
            elif seen is None or epoch > seen:
                epochs[number] = epoch
                self._equivalent_responses = 0
            elif epoch < seen:
                _log.debug("Ignoring epoch %d of %s-%d, epoch %d is known", epoch, name, number, seen)
                if known is not None:
                    infos.append(relocate_leader(known, nodes))
                continue
            info = PartitionInfo(
                topic=name,
                partition=number,
                leader=nodes.get(partition.leader_id),
                leader_id=partition.leader_id,
                leader_epoch=epoch,
                replicas=tuple(partition.replica_nodes),
                isr=tuple(partition.isr_nodes),
                offline=tuple(partition.offline_replicas),
            )
            infos.append(info if known is None or known != info else known)
            if partition.error_code != 0:
                error = make_error(partition.error_code)
                _log.debug("Metadata of %s-%d: %r", name, number, error)
                if isinstance(error, InvalidMetadataError):
                    self._unsettled_topics.add(name)
        infos.sort(key=lambda info: info.partition)
        return same_or(old.partitions_for(name), tuple(infos))
