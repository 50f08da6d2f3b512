"""The parts of a broker below its request handlers: logs, replicas, groups, timers and jobs. No sockets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.errors import CoordinatorLoadInProgressError, KafkaError
from ...network.security.mechanism import Credentials
from ..config.broker_config import BrokerConfig
from ..config.listeners import PLAINTEXT
from ..config.topic_config import TopicConfig
from ..controller.controller_api import ControllerApi
from ..group.coordinator import GroupCoordinator
from ..group.offsets import OffsetStore
from ..log.log_move import LogMove
from ..log.manager import LogManager
from ..metadata import BROKER, ClusterImage, PartitionKey
from ..purgatory import DelayedOperationPurgatory, ExpiredOperationReaper
from ..replica.connection import InterBrokerConnector, Links
from ..replica.fetcher import FetcherManager
from ..replica.manager import ReplicaManager
from ..requests.control import Control
from ..scheduler import Scheduler
from ..security.authorizer import Authorizer
from ..telemetry.collector import Collector
from ..timer import SerialExecutor, SystemTimer
from ..transaction.coordinator import TransactionCoordinator
from ..transaction.enrolment import EnrolmentClient
from ..transaction.markers import MarkerSender
from ..transaction.store import TransactionStore
from .fetch_sessions import FetchSessions
from .producer_ids import ProducerIds

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_MS = 30_000.0
#: Bytes copied per step of moving a log.
_MOVE_STEP_BYTES = 4 * 2**20


class BrokerServices:
    """The parts of a broker that the request handlers (`broker.api`) use, and their background jobs.

    The constructor loads the logs. `start_jobs` and `stop_threads` are for the owner's thread; the rest may be used
    from any thread.
    """

    def __init__(
        self,
        node_id: int,
        directories: Sequence[Path],
        *,
        config: BrokerConfig,
        clock: Clock,
        controller: ControllerApi,
        control: Control,
        links: Links,
        rack: str | None = None,
        listener: str = PLAINTEXT,
        credentials: Credentials | None = None,
    ) -> None:
        """Load the logs. The parameters are those of `Broker`; `listener` is the name of the listener between
        brokers, and `credentials` are what it authenticates with to others.

        Raises KafkaStorageError."""
        self.node_id = node_id
        self.static_config = config
        #: With the dynamic configurations of the cluster and this broker.
        self.config = config
        #: None without `authorizer.class.name`: every client may do everything. Replaced when the ACLs change.
        self.authorizer = _make_authorizer(config, controller.image)
        self.clock = clock
        self.controller = controller
        self.control = control
        self.rack = rack if rack is not None else config.broker_rack
        self.producer_ids = ProducerIds(controller.allocate_producer_ids)
        self.logs = LogManager(
            directories,
            clock=clock,
            cluster_id=controller.image.cluster_id,
            node_id=node_id,
            config_of=self._config_of,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        self.logs.load()
        self.scheduler = Scheduler(f"broker-{node_id}-scheduler", clock)
        self.cleaner = Scheduler(f"broker-{node_id}-cleaner", clock)
        self.timer = SystemTimer(f"broker-{node_id}", clock=clock)
        self.reaper = ExpiredOperationReaper(f"broker-{node_id}-reaper", self.timer)
        self.request_thread = SerialExecutor(f"broker-{node_id}-requests")
        self.produce_purgatory: DelayedOperationPurgatory = DelayedOperationPurgatory(
            "Produce", self.timer, self.reaper, purge_interval=config.producer_purgatory_purge_interval_requests
        )
        self.fetch_purgatory: DelayedOperationPurgatory = DelayedOperationPurgatory(
            "Fetch", self.timer, self.reaper, purge_interval=config.fetch_purgatory_purge_interval_requests
        )
        self.replicas = ReplicaManager(
            node_id,
            config=config,
            clock=clock,
            logs=self.logs,
            scheduler=self.scheduler,
            controller=controller,
            produce_purgatory=self.produce_purgatory,
            fetch_purgatory=self.fetch_purgatory,
            run_aside=self.request_thread.submit,
        )
        connector = InterBrokerConnector(node_id, config, links, listener, credentials)
        self.fetchers = FetcherManager(node_id, config=config, clock=clock, connector=connector)
        self.replicas.fetchers = self.fetchers
        self.topic_purgatory: DelayedOperationPurgatory = DelayedOperationPurgatory("Topic", self.timer, self.reaper)
        self.offsets = OffsetStore(
            config=config, clock=clock, replicas=self.replicas, scheduler=self.scheduler, controller=controller
        )
        self.group_purgatory: DelayedOperationPurgatory = DelayedOperationPurgatory("Group", self.timer, self.reaper)
        self.groups = GroupCoordinator(
            config=config, clock=clock, timer=self.timer, purgatory=self.group_purgatory, store=self.offsets
        )
        self.offsets.on_adopted = self.groups.adopt
        self.replicas.leadership_listeners.append(self.offsets.leadership_changed)
        self.transaction_store = TransactionStore(
            config=config,
            clock=clock,
            replicas=self.replicas,
            scheduler=self.scheduler,
            controller=controller,
            level=lambda: self.image.transaction_version,
        )
        self.replicas.leadership_listeners.append(self.transaction_store.leadership_changed)
        self.marker_sender = MarkerSender(
            node_id,
            connector=connector,
            image=lambda: self.image,
            timer=self.timer,
            store=self.transaction_store,
        )
        self.transactions = TransactionCoordinator(
            config=config,
            clock=clock,
            timer=self.timer,
            store=self.transaction_store,
            markers=self.marker_sender,
            next_producer_id=self.next_producer_id,
        )
        self.enrolment = EnrolmentClient(
            node_id,
            backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
            # virtual time stands still while a client, which has real time, waits for the answer
            patience_ms=config.add_partitions_to_txn_retry_backoff_max_ms if clock is SYSTEM_CLOCK else 0,
            clock=clock,
            timer=self.timer,
            connector=connector,
            image=lambda: self.image,
            transactions=self.transaction_store.internal_topic,
        )
        self.telemetry = Collector(node_id, clock, config.telemetry_max_bytes, lambda: self.image)
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock)

    def _config_of(self, topic: str) -> TopicConfig:
        state = self.controller.image.topics.get(topic)
        return self.config.topic_config(dict(state.configs) if state is not None else {})

    @property
    def image(self) -> ClusterImage:
        """This broker's view of the cluster."""
        return self.replicas.image

    @property
    def purgatories(self) -> tuple[DelayedOperationPurgatory, ...]:
        """The purgatories in which requests wait."""
        return (self.produce_purgatory, self.fetch_purgatory, self.group_purgatory, self.topic_purgatory)

    def apply_image(self, image: ClusterImage) -> Callable[[], None]:
        """Apply a new image; see `ReplicaManager.apply_image`. Called by the controller, in order."""
        before = self.image
        if image.configs != before.configs:
            self._reconfigure(image)
        if self.authorizer is not None and image.acls is not self.authorizer.acls:
            self.authorizer = self.authorizer.with_acls(image.acls)
        follow = self.replicas.apply_image(image)
        for name in image.changed_since(before):
            self.topic_purgatory.check_and_complete(name)
        return follow

    def _reconfigure(self, image: ClusterImage) -> None:
        of_all, own = (image.configs.get((BROKER, name), {}) for name in ("", str(self.node_id)))
        self.config = self.static_config.with_dynamic(of_all, own)
        self.replicas.reconfigure(self.config)

    def next_producer_id(self) -> int:
        """A new producer id; blocks for the controller once per block. Raises CoordinatorLoadInProgressError, which is
        Kafka's error if its controller hands out no ids: clients retry."""
        try:
            return self.producer_ids.next_id()
        except KafkaError as failed:
            _log.warning("broker %d has no producer ids left: %s", self.node_id, failed)
            raise CoordinatorLoadInProgressError(f"the controller hands out no producer ids: {failed}") from failed

    def move_replica(self, key: PartitionKey, path: str) -> None:
        """Start to move a replica's log to another of this broker's directories. A replica that doesn't exist yet will
        be created there. Raises LogDirNotFoundError, and the errors of `ReplicaManager.partition`."""
        target = self.logs.find_directory(path)
        if self.image.partition(*key) is None:
            # The target is not remembered, because such a partition may never be created.
            self.replicas.partition(key)
        move = self.logs.move(key, target)
        if move is not None:
            self.cleaner.schedule("move-log", partial(self._continue_move, key, move), delay_ms=0)
        self.replicas.partition(key)

    def _continue_move(self, key: PartitionKey, move: LogMove) -> None:
        """Copy one step and schedule the next one as the rate limit allows."""
        rate = self.config.replica_alter_log_dirs_io_max_bytes_per_second
        copied = self.logs.continue_move(key, move, max(min(_MOVE_STEP_BYTES, rate), 1))
        if copied:
            delay_ms = 1_000.0 * copied / max(rate, 1)
            self.cleaner.schedule("move-log", partial(self._continue_move, key, move), delay_ms=delay_ms)
        elif move.left is not None:
            remove = partial(self.logs.remove_doomed, [move.left])
            self.scheduler.schedule("delete-logs", remove, delay_ms=move.log.config.file_delete_delay_ms)

    def _balance_leaders(self) -> None:
        """Elect preferred leaders. The broker that is reported as the controller does so for the whole cluster."""
        if self.image.controller_id == self.node_id:
            self.controller.elect_leaders(None)

    def after(self, delay_ms: float, run: Callable[[], object]) -> None:
        """Run something after a delay, on the scheduler's thread."""
        self.scheduler.schedule("later", run, delay_ms=delay_ms)

    def start_jobs(self) -> None:
        """Schedule the periodic jobs: retention, flush, checkpoints, expiry, compaction, in-sync replicas."""
        config = self.config
        self.logs.schedule(
            self.scheduler,
            retention_ms=config.log_retention_check_interval_ms,
            flush_ms=config.log_flush_scheduler_interval_ms,
            recovery_point_ms=config.log_flush_offset_checkpoint_interval_ms,
            log_start_ms=config.log_flush_start_offset_checkpoint_interval_ms,
            high_watermark_ms=config.replica_high_watermark_checkpoint_interval_ms,
        )
        self.scheduler.schedule(
            "producer-expiration",
            self.logs.expire_producers,
            delay_ms=config.producer_id_expiration_check_interval_ms,
            period_ms=config.producer_id_expiration_check_interval_ms,
        )
        self.scheduler.schedule(
            "offsets-expiration",
            self.offsets.expire,
            delay_ms=config.offsets_retention_check_interval_ms,
            period_ms=config.offsets_retention_check_interval_ms,
        )
        self.scheduler.schedule(
            "transactional-id-expiration",
            self.transactions.expire,
            delay_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
            period_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
        if config.auto_leader_rebalance_enable:
            period_ms = config.leader_imbalance_check_interval_seconds * 1_000
            self.scheduler.schedule("leader-balance", self._balance_leaders, delay_ms=period_ms, period_ms=period_ms)
        if config.log_cleaner_enable:
            # On a separate thread: a long compaction must not delay the checks of in-sync replicas.
            self.cleaner.schedule(
                "log-cleaner",
                self.logs.clean_logs,
                delay_ms=config.log_cleaner_backoff_ms,
                period_ms=config.log_cleaner_backoff_ms,
            )
        self.replicas.schedule()

    def stop_threads(self) -> None:
        """Stop replication, jobs and timers. Blocks until their threads have ended."""
        self.fetchers.close()
        self.enrolment.close()
        self.marker_sender.close()
        self.request_thread.close(_CLOSE_TIMEOUT_MS)
        self.scheduler.close()
        self.cleaner.close()
        self.reaper.shutdown()


def _make_authorizer(config: BrokerConfig, image: ClusterImage) -> Authorizer | None:
    if not config.authorizer_class_name:
        return None
    return Authorizer(config.super_users, allow_everyone=config.allow_everyone_if_no_acl_found, acls=image.acls)
