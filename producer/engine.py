"""The engine of a `KafkaProducer`: metadata, accumulator and sender thread, assembled from a configuration.

An engine has no reference to the producer that uses it, so that a producer dropped without `close` can be collected
while its engine delivers the pending records.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from ..network.backoff import ExponentialBackoff
from ..network.chance import random_unit
from ..network.client.client_metrics_cy import ClientMetrics
from ..network.client.metadata_updater import MetadataRecoveryStrategy
from ..network.client.network_client_cy import NetworkClient
from ..network.clock import Clock
from ..network.cluster import Cluster
from ..network.config import DEFAULT
from ..network.latch_cy import LateWakes
from ..network.metadata import Metadata
from ..network.metrics import MetricsReporter
from ..network.protocol.errors import IllegalStateError, KafkaTimeoutError
from ..network.records.compression import Compression, prepare
from ..network.sections import section_thread
from ..network.security.sasl_config import credentials_of
from ..network.sockets.name_lookups import NameLookups
from ..network.sockets.plaintext_transport_cy import plaintext_transport
from ..network.sockets.resolver import canonical_host_names, numeric_addresses, resolve_host
from ..network.sockets.selector_cy import Selector
from ..network.sockets.transport import TransportFactory
from .accumulator.accumulator_cy import RecordAccumulator
from .accumulator.buffer_pool_cy import BufferPool
from .config import ProducerConfig
from .metrics import ProducerMetrics
from .sender import legacy_format
from .sender.callbacks import CallbackThread
from .sender.sender_cy import Sender
from .sender.telemetry import Telemetry
from .sender.transaction_manager_cy import TransactionManager
from .topics import Topics

if TYPE_CHECKING:
    from .sender.compressors import Compressors
    from .sender.telemetry_reporter import TelemetryReporter
    from .sender.transaction import Transaction
    from .sender.transaction_requests import TransactionRequests

_log = logging.getLogger(__name__)

#: Seconds the interpreter's exit waits for records of unclosed producers, for all of them together.
EXIT_FLUSH_SECONDS = 10.0

#: Seconds that a thread may take to end after a forced close: a callback that is running has to return first.
FORCED_CLOSE_SECONDS = 5.0

_running: set[Engine] = set()


class _Worker:
    """Whether this process is a worker, which exits differently."""

    is_forked = False
    #: The id of the process in which `_close_at_exit` is registered with multiprocessing.
    registered_in: int | None = None


class Engine:
    """A running sender thread and everything it needs.

    Created on the thread that creates the producer, without network I/O. `close` may be called from any thread.
    """

    def __init__(self, config: ProducerConfig, clock: Clock, reporters: Iterable[MetricsReporter] = ()) -> None:
        self.config = config
        self.clock = clock
        self.client_id = config.client_id
        self.metadata = Metadata(
            clock=clock,
            bootstrap_servers=config.bootstrap_servers,
            refresh_backoff_ms=config.retry_backoff_ms,
            refresh_backoff_max_ms=config.retry_backoff_max_ms,
            max_age_ms=config.metadata_max_age_ms,
            max_idle_ms=config.metadata_max_idle_ms,
            allow_auto_topic_creation=config.allow_auto_create_topics,
        )
        transport: TransportFactory = plaintext_transport
        look_up, at_once = resolve_host, numeric_addresses
        if config.uses_tls:
            from ..network.security.tls import TlsContexts, TlsSettings  # noqa: PLC0415 - it imports ssl

            tls = TlsContexts(TlsSettings.of_client(config))
            # no address is resolved at once: the lookup's thread checks whether the files of TLS have changed
            transport, look_up, at_once = tls.transport, tls.refreshing(resolve_host), lambda host, port: None
        prepare(config.compression)
        # brokers that take message sets only have no idempotence
        if not config.enable_idempotence:
            legacy_format.prepare()
        batch_bytes = max(config.batch_size, 1)
        self.pool = BufferPool(config.buffer_memory, min(batch_bytes, config.buffer_memory), clock)
        self.metrics = ProducerMetrics(
            clock,
            self.client_id,
            self.pool,
            window_ms=config.metrics_sample_window_ms,
            samples=config.metrics_num_samples,
            requests_in_flight=self._requests_in_flight,
            metadata_age_seconds=lambda: self.metadata.age_ms(clock.now_ms()) / 1000.0,
        )
        late_wakes = LateWakes()
        selector = Selector(
            late_wakes=late_wakes,
            clock=clock,
            max_receive_bytes=config.receive_message_max_bytes,
            connections_max_idle_ms=config.connections_max_idle_ms if config.connections_max_idle_ms >= 0 else None,
            transport=transport,
        )
        addresses = NameLookups(look_up, clock, on_answer=selector.wakeup, at_once=at_once)
        names = NameLookups(canonical_host_names, clock, on_answer=selector.wakeup)
        self.client = NetworkClient(
            selector=selector,
            metadata=self.metadata,
            clock=clock,
            client_id=self.client_id,
            max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
            reconnect_backoff_ms=config.reconnect_backoff_ms,
            reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
            request_timeout_ms=config.request_timeout_ms,
            connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
            connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            resolver=addresses.find,
            canonical_names=(
                names.find if config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only" else None
            ),
            metadata_recovery_strategy=MetadataRecoveryStrategy(config.metadata_recovery_strategy),
            metadata_recovery_rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
            credentials=credentials_of(config, clock),
            metrics=ClientMetrics(self.metrics.registry, selector.counters, prefix="producer", tags=self.metrics.tags),
        )
        self.transactions = TransactionManager() if config.enable_idempotence else None
        self.accumulator = RecordAccumulator(
            pool=self.pool,
            batch_size=min(batch_bytes, config.buffer_memory),
            max_batch_size=min(config.batch_max_size, config.max_request_size) if config.batch_size else 0,
            compression=config.compression,
            linger_ms=config.linger_ms,
            retry_backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms).backoff_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            clock=clock,
            transactions=self.transactions,
            adaptive_partitioning=config.partitioner_adaptive_partitioning_enable,
            availability_timeout_ms=config.partitioner_availability_timeout_ms,
            rack=config.client_rack if config.partitioner_rack_aware else None,
            keys_choose=not config.partitioner_ignore_keys,
        )
        self._callbacks = CallbackThread(f"headrace-callbacks-{self.client_id}")
        #: The state of transactions; None without ``transactional.id``.
        self.transaction: Transaction | None = None
        requests: TransactionRequests | None = None
        if self.transactions is not None and config.transactional_id is not None:
            from .sender.transaction import Transaction  # noqa: PLC0415 - most producers have no transactions
            from .sender.transaction_requests import TransactionRequests  # noqa: PLC0415

            self.transaction = Transaction(
                config.transactional_id,
                clock=clock,
                max_block_ms=config.max_block_ms,
                wakeup=lambda: self.sender.wakeup(),  # noqa: PLW0108 - the sender is created later
            )
            requests = self.transactions.gate = TransactionRequests(
                self.transaction,
                client=self.client,
                metadata=self.metadata,
                accumulator=self.accumulator,
                manager=self.transactions,
                clock=clock,
                timeout_ms=config.transaction_timeout_ms,
                max_block_ms=config.max_block_ms,
                request_timeout_ms=config.request_timeout_ms,
                retry_backoff=ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms).backoff_ms,
            )
        #: None without ``enable.metrics.push``.
        self.telemetry: Telemetry | None = None
        if config.enable_metrics_push:
            if not config.origins["enable.metrics.push"].startswith(DEFAULT):
                _check_for_telemetry()
            self.telemetry = Telemetry(
                client=self.client, metadata=self.metadata, clock=clock, start=self._telemetry_reporter
            )
        self.sender = Sender(
            client=self.client,
            metadata=self.metadata,
            accumulator=self.accumulator,
            transactions=self.transactions,
            transaction=requests,
            clock=clock,
            acks=config.acks,
            compressors=self._compressors(),
            max_request_bytes=config.max_request_size,
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            retries=config.retries,
            keep_order=config.max_in_flight_requests_per_connection == 1 and not config.enable_idempotence,
            retry_backoff_ms=config.retry_backoff_ms,
            metrics=self.metrics,
            callbacks=self._callbacks,
            telemetry=self.telemetry,
            late_wakes=late_wakes,
        )
        # without the sender and the client in between: each new batch may call it
        self.accumulator.wakeup = selector.wakeup
        self.topics = Topics(
            config,
            clock,
            self.metadata,
            self.accumulator,
            self.metrics,
            self.sender.wakeup,
            lambda: self.is_own_thread,
        )
        accumulator, metrics = self.accumulator, self.metrics

        def on_metadata(cluster: Cluster, changed: Collection[str]) -> None:
            accumulator.update_metadata(cluster, changed)
            metrics.keep_topics(cluster.partitions, changed)

        self.metadata.add_listener(on_metadata)
        try:
            for reporter in reporters:
                self.metrics.registry.add_reporter(reporter)
        except BaseException:
            # the reporters before it may have opened resources
            self.metrics.registry.close()
            self.client.close()
            raise
        self.process_id = os.getpid()
        _call_at_the_end_of_a_worker()
        # a section thread, because calls from a finalizer that runs on it must not wait for it
        self._thread = section_thread(self._run, f"headrace-sender-{self.client_id}")
        _running.add(self)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.sender.run()
        finally:
            _running.discard(self)

    def _requests_in_flight(self) -> int:
        return self.client.in_flight_request_count()

    def _compressors(self) -> Compressors | None:
        if self.config.compression is Compression.NONE:
            return None
        from .sender.compressors import Compressors, helpers_at_most  # noqa: PLC0415 - many producers compress nothing

        return Compressors(
            self.accumulator, self.config.compression, self.config.compression_level, self.client_id, helpers_at_most()
        )

    def _telemetry_reporter(self, telemetry: Telemetry) -> TelemetryReporter:
        """What pushes the metrics, for the first broker that takes them. Sender thread."""
        from .sender.telemetry_metrics import TelemetryMetrics  # noqa: PLC0415 - few brokers take metrics
        from .sender.telemetry_reporter import TelemetryReporter  # noqa: PLC0415

        config = self.config
        resource = {"client_rack": config.client_rack, "transactional_id": config.transactional_id}
        metrics = self.metrics.registry
        return TelemetryReporter(
            telemetry,
            client=self.client,
            metadata=self.metadata,
            metrics=TelemetryMetrics(metrics, self.clock, {key: text for key, text in resource.items() if text}),
            name=f"headrace-telemetry-{self.client_id}",
            random_unit=random_unit,
        )

    def run_callback(self, function: Callable[[], object]) -> None:
        """Call a function, which must not raise, on the callback thread. Sender thread."""
        self._callbacks.call(function)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs on the sender or callback thread, where waiting for either of them never ends.

        Another producer's callbacks may wait for this producer.
        """
        return self._thread.ident == threading.get_ident() or self._callbacks.is_current

    @property
    def is_alive(self) -> bool:
        """Whether the sender thread runs."""
        return self._thread.is_alive()

    def begin_close(self) -> None:
        """Start to close: the sender thread delivers pending records and ends. Returns immediately."""
        self.sender.close()

    def close(self, timeout_seconds: float | None) -> None:
        """Deliver pending records within `timeout_seconds` and end; None waits as long as ``delivery.timeout.ms``.

        Raises KafkaTimeoutError if records are left after the timeout; they have failed. With a timeout of 0 all
        pending records fail immediately, and nothing is raised.
        """
        at_once = timeout_seconds is not None and timeout_seconds <= 0
        self.sender.close(force=at_once)
        if self.is_own_thread:
            # within a callback: a thread can't wait for itself
            return
        bound = self.config.delivery_timeout_ms / 1000.0 if timeout_seconds is None else timeout_seconds
        deadline_ms = self.clock.now_ms() + max(bound, FORCED_CLOSE_SECONDS if at_once else 0.0) * 1000.0
        self._thread.join(timeout_seconds)
        left = 0
        is_open = False
        if self._thread.is_alive():
            is_open = self.transaction is not None and self.transaction.is_open
            left = sum(batch.count for batch in self.accumulator.incomplete_batches() if not batch.done)
            self.sender.close(force=True)
            self._thread.join(FORCED_CLOSE_SECONDS)
        if self._thread.is_alive():
            raise KafkaTimeoutError(
                f"the producer's sender thread has not ended, with {left} records not acknowledged; they fail when "
                f"it ends"
            )
        # callbacks of records that have just failed need time too: without a timeout these may be all the records of
        # a whole delivery timeout, if more were sent than the brokers take
        owed = FORCED_CLOSE_SECONDS if left or timeout_seconds is None else 0.0
        patience = max((deadline_ms - self.clock.now_ms()) / 1000.0, owed)
        callbacks_returned = self._callbacks.join(patience)
        if left and timeout_seconds:
            raise KafkaTimeoutError(
                f"the producer was closed with {left} records not acknowledged within {round(timeout_seconds, 3):g} s; "
                f"they have failed, and some of them may have reached the log"
            )
        if is_open and timeout_seconds:
            raise KafkaTimeoutError(
                f"the producer was closed, but its open transaction was not ended within {round(timeout_seconds, 3):g} "
                f"s; the coordinator aborts it after transaction.timeout.ms"
            )
        if not callbacks_returned:
            raise KafkaTimeoutError(
                f"the producer is closed and every record has completed, but a callback or an interceptor has not "
                f"returned within {patience:g} s; those behind it are called when it does"
            )


def _check_for_telemetry() -> None:
    """Warn if ``enable.metrics.push`` is set and can have no effect. By default, the first broker that asks for metrics
    leads to the same warning."""
    from importlib.util import find_spec  # noqa: PLC0415 - for few producers

    from .sender.telemetry_reporter import warn_of_missing_package  # noqa: PLC0415

    try:
        is_found = find_spec("opentelemetry.proto") is not None
    except ModuleNotFoundError:
        is_found = False
    if not is_found:
        warn_of_missing_package("enable.metrics.push=true lets brokers ask for this producer's metrics (KIP-714)")


def _close_at_exit() -> None:
    """Deliver the records of unclosed producers within EXIT_FLUSH_SECONDS, and log a warning."""
    engines = [engine for engine in list(_running) if engine.process_id == os.getpid()]
    deadline_ms = {engine: engine.clock.now_ms() + EXIT_FLUSH_SECONDS * 1000.0 for engine in engines}
    for engine in engines:
        if engine.accumulator.has_incomplete:
            _log.warning(
                "producer %s was not closed before the interpreter ended; its last records are being sent. "
                "Close it, or use it in a with statement.",
                engine.client_id,
            )
        engine.begin_close()
    for engine in engines:
        try:
            engine.close(max((deadline_ms[engine] - engine.clock.now_ms()) / 1000.0, 0.001))
        except KafkaTimeoutError as left:
            _log.error("producer %s: %s", engine.client_id, left)
        _running.discard(engine)


def _call_at_the_end_of_a_worker() -> None:
    """Register `_close_at_exit` with multiprocessing, whose processes skip the interpreter's exit functions."""
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is None or process is None or _Worker.registered_in == os.getpid():
        return
    if _Worker.is_forked or process.parent_process() is not None:
        _Worker.registered_in = os.getpid()
        util.Finalize(None, _close_at_exit, exitpriority=0)


def _forget_parents_engines() -> None:
    """In a forked child, abandon the parent's batches: without the parent's threads they would never complete."""
    for engine in list(_running):
        error = IllegalStateError(
            f"process {engine.process_id} sent this record before {os.getpid()} was forked from it: it is delivered "
            "there, and only the future there reports the outcome"
        )
        for batch in engine.accumulator.incomplete_batches():
            batch.abandon(error)
    _running.clear()
    _Worker.is_forked = True


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_forget_parents_engines)
