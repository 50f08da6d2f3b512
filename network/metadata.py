"""The metadata of a producer's cluster, shared between its callers and its sender thread.

Models: Kafka's Metadata and ProducerMetadata. Deliberate differences:

- An error reaches every waiting thread. Java clears it once the first thread has thrown it.
- Rebootstrapping keeps the known topics, without leaders, so that `send` continues to buffer while the brokers are
  unavailable, as in librdkafka. Java forgets the topics and blocks.
- The random backoff is drawn once per attempt, not per query.
- A topic that has no leader yet or does not exist yet is requested again without the other topics. Otherwise a program
  that creates ten thousand topics one after the other would request all of them each time.
"""

from __future__ import annotations

import copy
import logging
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from .acl_advice import no_acl_for_topic
from .backoff import ExponentialBackoff
from .chance import random_unit as any_unit
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
from .latch_cy import Latch
from .metadata_fetch import MetadataFetch
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


#: Called with a new snapshot and the topics whose partitions have changed since the previous call, including new and
#: removed topics.
Listener = Callable[[Cluster, Collection[str]], None]


class Metadata:
    """The current `Cluster` snapshot, and when to fetch the next one.

    Thread-safe. Callers add topics, request updates and await them. The sender thread fetches, updates and reports
    failures. `cluster` and `version` are read without the lock: the snapshot is immutable and replaced as a whole,
    always before `version` grows. Listeners run on the sender thread, without the lock.

    Bounded by use: a topic that was not added again for `max_idle_ms` is forgotten with the next update.

    A metadata update costs O(changed topics), plus one shallow copy of the snapshot's tables. An unchanged topic keeps
    its tuple of partitions, and listeners receive only the changed topics.
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
        random_unit: Callable[[], float] = any_unit,
    ) -> None:
        """Start with the bootstrap snapshot. Nothing here does I/O.

        `clock` measures timeouts and ages.
        `bootstrap_servers` are unresolved (host, port) pairs.
        `refresh_backoff_ms` and `refresh_backoff_max_ms` are retry.backoff.ms and retry.backoff.max.ms.
        `max_age_ms` is metadata.max.age.ms, and `max_idle_ms` is metadata.max.idle.ms.
        `allow_auto_topic_creation` is allow.auto.create.topics.
        `random_unit` returns numbers in [0, 1) for the jitter of the backoff.
        """
        self._clock = clock
        self._bootstrap_servers = tuple(bootstrap_servers)
        self._backoff = ExponentialBackoff(refresh_backoff_ms, refresh_backoff_max_ms, random_unit=random_unit)
        self._max_age_ms = max_age_ms
        self._max_idle_ms = max_idle_ms
        self._allow_auto_topic_creation = allow_auto_topic_creation

        self._lock = threading.RLock()
        self._change = Latch()  # set, and replaced by a new one, when a change may end a wait
        #: The current snapshot, replaced by each update. Any thread may read it.
        self.cluster = Cluster.bootstrap(self._bootstrap_servers)
        self._version = 0
        self._request_version = 0
        self._topics: dict[str, float] = {}  # the expiry time of each
        self._new_topics: set[str] = set()
        self._unsettled_topics: set[str] = set()  # their last response had a retriable error
        # a heap of (when to check for expiry, topic); a topic that is added again keeps its entry
        self._expiries: list[tuple[float, str]] = []
        self._epochs: dict[str, dict[int, int]] = {}  # highest leader epoch seen, by topic and partition
        self._topic_errors: dict[str, type[BrokerResponseError]] = {}
        self._listeners: list[Listener] = []
        self._told = self.cluster.partitions  # the last partitions reported to the listeners

        self._fresh_requests = 0
        self._answered_fresh = 0
        #: Whether an update of all topics was requested and has not arrived yet, and one of some topics. These are
        #: attributes, because the sender thread reads them several times per request.
        self.needs_full_update = True
        self.needs_partial_update = False
        self._last_refresh_ms = LONG_AGO_MS
        self._last_success_ms = LONG_AGO_MS
        self._failed_attempts = 0
        self._equivalent_responses = 0
        self._attempts_backoff_ms = self._backoff.backoff_ms(0)
        self._equivalent_backoff_ms = 0.0

        self._last_error: KafkaError | None = None
        self._progress = "no broker was asked yet"
        self._fatal_error: KafkaError | None = None
        self.fatal_count = 0  # of calls of `fatal_error`; the argument of `change_after`
        self._closed_by: KafkaError | None = None

    # --- For any thread ---

    @property
    def version(self) -> int:
        """The number of updates so far; the argument of `await_update`."""
        return self._version

    def age_ms(self, now_ms: float) -> float:
        """Milliseconds since the last successful update; infinite before the first. Any thread."""
        return now_ms - self._last_success_ms

    @property
    def max_age_ms(self) -> float:
        return self._max_age_ms

    @property
    def last_error(self) -> KafkaError | None:
        """The error of the last failed attempt to reach a broker; None since the last update."""
        return self._last_error

    @property
    def is_closed(self) -> bool:
        return self._closed_by is not None

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        """The (host, port) pairs to start from."""
        return self._bootstrap_servers

    def topic_error(self, topic: str) -> BrokerResponseError | None:
        """The topic's error in the last response that covered it; None without an error or a response.

        InvalidTopicError is permanent, and TopicAuthorizationFailedError lasts until an ACL is added. The retriable
        errors (unknown topic, no leader yet) may disappear with the next update.
        """
        error_class = self._topic_errors.get(topic)
        if error_class is None:
            return None
        if error_class is TopicAuthorizationFailedError:
            return error_class(f"topic {topic!r}: {no_acl_for_topic(topic)}")
        return error_class(f"topic {topic!r}: {error_class()}")

    # --- For callers ---

    def add_topic(self, topic: str, now_ms: float) -> None:
        """Keep the metadata of this topic for `max_idle_ms` from now. A new topic is requested at once.

        Raises InvalidTopicError for a name that no topic can have, without asking a broker.
        """
        if topic in self._topics:
            # No lock, because this runs for each record. If the sender expires the topic in between, this adds it back
            # without marking it new. A caller that does not find it in the cluster requests a full update.
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
        """Request a full update as soon as the backoff allows. Returns the version to pass to `await_update`.

        `reset_backoff` resets the backoff for responses without changes. It is for a caller with a new request, not
        for a retry.
        """
        with here.section, self._lock:
            self.needs_full_update = True
            if reset_backoff:
                self._equivalent_responses = 0
                self._equivalent_backoff_ms = 0.0
            return self._version

    def request_update_for_topic(self, topic: str, seen_version: int) -> None:
        """Request an update that covers the topic: at once if it is new, else like `request_update`.

        Does nothing if there has been an update since `seen_version`, the version that the caller has checked.
        """
        with here.section, self._lock:
            if topic in self._new_topics:
                self._request_update_for_new_topics()
            elif topic not in self._unsettled_topics and self._version == seen_version:
                self.request_update()

    def request_fresh(self) -> int:
        """Request a full update that is fetched after this call. Returns the number to pass to `is_answered`."""
        with here.section, self._lock:
            self.needs_full_update = True
            self._fresh_requests += 1
            return self._fresh_requests

    def is_answered(self, fresh_request: int) -> bool:
        """Whether the update of a `request_fresh` has arrived."""
        return self._answered_fresh >= fresh_request

    def request_update_for_waiting(self, topics: Iterable[str]) -> None:
        """Request an update that covers these topics, unless those already requested cover them."""
        with here.section, self._lock:
            if not all(topic in self._new_topics or topic in self._unsettled_topics for topic in topics):
                self.needs_full_update = True

    def await_update(self, last_version: int, timeout_ms: float) -> None:
        """Wait until `version` is above `last_version`.

        Runs on a caller's thread. Raises:

        - KafkaTimeoutError after `timeout_ms`, with the last connection error in its text and as its cause;
        - an error reported by `fatal_error` meanwhile: authentication, a broker that is too old, no resolvable
          bootstrap server;
        - ProducerClosedError, or the error given to `close`.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        fatal_count = self.fatal_count
        # in a section, so that a `send` from a finalizer or signal handler does not start a wait of its own
        with here.section:
            while (change := self.change_after(last_version, fatal_count)) is not None:
                if self._clock.now_ms() >= deadline_ms:
                    raise self.timeout_error(timeout_ms)
                self._clock.await_latch(change, deadline_ms)

    def change_after(self, last_version: int, fatal_count: int) -> Latch | None:
        """The latch that the next change sets; None if `version` is above `last_version`. Raises errors since then."""
        change = self._change  # read before checking the state: any later change sets this latch
        if self._version > last_version:
            return None
        if self._closed_by is not None:
            raise copy.copy(self._closed_by) from self._closed_by
        if self._fatal_error is not None and self.fatal_count > fatal_count:
            raise copy.copy(self._fatal_error) from self._fatal_error
        return change

    def timeout_error(self, timeout_ms: float) -> KafkaTimeoutError:
        """The error of a wait that has timed out, with the last connection error in its text and as its cause."""
        error = KafkaTimeoutError(f"no metadata within {timeout_ms:.0f} ms: {self._last_error or self._progress}")
        error.__cause__ = self._last_error
        return error

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` with each new snapshot, on the sender thread."""
        with here.section, self._lock:
            self._listeners.append(listener)

    # --- For the sender thread ---

    @property
    def update_requested(self) -> bool:
        """Whether an update was requested and has not arrived yet."""
        return self.needs_full_update or self.needs_partial_update

    def time_to_next_update(self, now_ms: float) -> float:
        """How long until metadata is to be fetched: when requested or too old, but not before the backoff ends.

        The backoff grows with failures, and with responses that change nothing (KIP-580).
        """
        # without the lock, several times per request: other threads only request an update, and then wake this one
        expires_ms = self._last_success_ms + self._max_age_ms
        if now_ms >= expires_ms:
            self._equivalent_responses = 0
            self._equivalent_backoff_ms = 0.0
        due_ms = now_ms if self.update_requested else expires_ms
        backoff_ms = max(self._attempts_backoff_ms, self._equivalent_backoff_ms)
        return max(due_ms - now_ms, self._last_refresh_ms + backoff_ms - now_ms, 0.0)

    def next_fetch(self, now_ms: float) -> MetadataFetch:
        """The request to send now.

        It covers all topics if a full update is due, else only new topics and those to be requested again.
        """
        with here.section, self._lock:
            is_partial = not self.needs_full_update and now_ms < self._last_success_ms + self._max_age_ms
            # dict and set may grow in add_topic's fast path, but only under their present keys
            names = sorted(self._new_topics | self._unsettled_topics if is_partial else self._topics)
            message = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=self._allow_auto_topic_creation,
            )
            return MetadataFetch(message, self._request_version, self._fresh_requests, is_partial)

    def update(
        self,
        response: MetadataResponse,
        now_ms: float,
        *,
        version: int = MetadataResponse.versions.max,
        fetch: MetadataFetch | None = None,
    ) -> None:
        """Apply a broker's response and wake waiting threads. `version` is its version of the Metadata API.

        Without `fetch` it counts as the response to a full request sent just now. Raises IllegalStateError after close.
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
                self._answered_fresh = self._fresh_requests if fetch is None else fetch.fresh_requests
                self.needs_full_update = self._answered_fresh < self._fresh_requests
                self._last_success_ms = now_ms
            self._equivalent_responses += 1
            expired = self._expire_topics(now_ms)
            before = self.cluster
            answered = [topic.name for topic in response.topics if topic.name is not None]
            touched = [*expired, *answered] if is_partial else None
            self._unsettled_topics.difference_update(self._topics if touched is None else touched)
            self.cluster = cluster = self._merge(response, version, touched)
            self._new_topics.difference_update(answered)
            # topics added since the request was created do not wait for a backoff
            are_new = request_version < self._request_version and bool(self._new_topics)
            self._last_refresh_ms = LONG_AGO_MS if are_new else now_ms
            self.needs_partial_update = are_new or bool(self._unsettled_topics)
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
        """Apply the (leader id, leader epoch) by partition from a produce response (KIP-951).

        Ignores incomplete entries, epochs that are not newer, leaders whose node is unknown and unknown partitions.
        Returns the partitions whose leader has changed.
        """
        with here.section, self._lock:
            cluster = self.cluster
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
                updated[topic_partition] = info._replace(
                    leader=by_id[leader_id], leader_id=leader_id, leader_epoch=epoch
                )
            if not updated:
                return set()
            before, cluster = cluster, cluster.with_nodes(by_id.values()).with_partitions(updated)
            self.cluster = cluster
            listeners, changed = self._listeners_and_changes(before, {topic for topic, _ in updated})
        for listener in listeners:
            listener(cluster, changed)
        return set(updated)

    def failed_update(self, now_ms: float, error: KafkaError | None = None) -> None:
        """Record that an attempt to fetch metadata failed, which extends the backoff."""
        with here.section, self._lock:
            self._last_refresh_ms = now_ms
            self._attempts_backoff_ms = self._backoff.backoff_ms(self._failed_attempts)
            self._failed_attempts += 1
            self._equivalent_responses = 0
            self._equivalent_backoff_ms = 0.0
            if error is not None:
                self._last_error = error

    def record_error(self, error: KafkaError) -> None:
        """Record why a broker could not be reached, for the errors of waits that time out."""
        self._last_error = error

    def record_progress(self, progress: str) -> None:
        """Record what the client waits for, such as a broker's answer, for the errors of waits that time out."""
        self._progress = progress

    def fatal_error(self, error: KafkaError) -> None:
        """Raise an error in all waiting threads. Later callers wait again, as the next attempt may succeed."""
        with here.section, self._lock:
            self._last_error = error
            self._fatal_error = error
            self.fatal_count += 1
            self._wake()

    def rebootstrap(self) -> None:
        """Go back to the configured addresses: no known broker answers (KIP-899) or one has asked for it (KIP-1102).

        Topics are kept without leaders, so that records can still be partitioned and buffered. Leader epochs are
        forgotten, because the brokers at those addresses may belong to another cluster.
        """
        with here.section, self._lock:
            self.needs_full_update = True
            if self.cluster.is_bootstrap:
                return
            bootstrap = Cluster.bootstrap(self._bootstrap_servers)
            _log.info("Rebootstrapping with %s", ", ".join(node.address for node in bootstrap.nodes.values()))
            self.cluster = self.cluster.with_nodes(bootstrap.nodes.values(), is_bootstrap=True)
            self._epochs.clear()

    def use_bootstrap_servers(self, servers: Sequence[tuple[str, int]]) -> None:
        """Bootstrap from these addresses from now on, instead of those given to the constructor."""
        with here.section, self._lock:
            self._bootstrap_servers = tuple(servers)
            if self.cluster.is_bootstrap:
                nodes = Cluster.bootstrap(self._bootstrap_servers).nodes
                self.cluster = self.cluster.with_nodes(nodes.values(), is_bootstrap=True)

    def close(self, error: KafkaError | None = None) -> None:
        """End updates. Waiting and later callers of `await_update` get `error`, by default ProducerClosedError."""
        with here.section, self._lock:
            if self._closed_by is None:
                self._closed_by = error or ProducerClosedError("metadata was awaited after the producer was closed")
            self._wake()

    def _wake(self) -> None:
        change, self._change = self._change, Latch()
        change.set()

    # --- Under the lock ---

    def _request_update_for_new_topics(self) -> None:
        # the backoff is for retries: a new topic does not wait
        self._last_refresh_ms = LONG_AGO_MS
        self.needs_partial_update = True
        self._equivalent_responses = 0
        self._equivalent_backoff_ms = 0.0
        self._request_version += 1

    def _expire_topics(self, now_ms: float) -> list[str]:
        heap = self._expiries
        if len(heap) < len(self._topics):
            # a topic expired while `add_topic` extended it without the lock
            heap[:] = [(expires_ms, topic) for topic, expires_ms in self._topics.copy().items()]
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
        # `touched`: the topics that may differ from `before`. If the nodes differ, all topics may. Listeners are not
        # called on a rebootstrap, but the next response is compared in full: its nodes are never the bootstrap nodes.
        cluster = self.cluster
        heard, self._told = self._told, cluster.partitions
        if touched is None or cluster.nodes != before.nodes:
            topics: Iterable[str] = heard.keys() | self._told.keys()
        else:
            topics = touched
        changed = {topic for topic in topics if heard.get(topic) is not self._told.get(topic)}
        return tuple(self._listeners), changed

    def _merge(self, response: MetadataResponse, version: int, touched: list[str] | None) -> Cluster:
        # `touched`: the topics that a partial response covers; None if the response covers all
        old = self.cluster
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
            # topics that the response does not cover are kept, on the nodes of the response
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
                # warn once, however often the topic is requested again until the error disappears
                level = logging.DEBUG if self._topic_errors.get(name) is type(error) else logging.WARNING
                _log.log(level, "Metadata of topic %r: %s: %s", name, type(error).__name__, error)
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
        old = self.cluster
        epochs = self._epochs.setdefault(name, {})
        if topic.topic_id not in (ZERO_UUID, old.topic_id(name)):
            # a new topic with the old name, or one whose id was unknown: its epochs start again
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
