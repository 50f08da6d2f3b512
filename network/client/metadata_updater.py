"""Decides when and from which node to fetch metadata, and handles failures (Kafka's DefaultMetadataUpdater)."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..clock import LONG_AGO_MS, NEVER_MS
from ..cluster import Node
from ..metadata import Metadata, MetadataFetch
from ..protocol.errors import (
    AuthenticationError,
    KafkaError,
    RebootstrapRequiredError,
    UnresolvableHostError,
    make_error,
)
from ..protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ..repeats import Repeats
from ..sockets.name_lookups import RESOLVE_PATIENCE_MS

_log = logging.getLogger(__name__)


class MetadataRecoveryStrategy(enum.Enum):
    """metadata.recovery.strategy (KIP-899): what to do if none of the known brokers can be reached."""

    NONE = "none"
    REBOOTSTRAP = "rebootstrap"


class Connections(Protocol):
    """The part of the client that the updater uses."""

    def least_loaded(self, now_ms: float) -> tuple[Node | None, bool]:
        """The node to send to, and whether any node is connected."""
        ...

    def can_send(self, node_id: int, now_ms: float) -> bool: ...

    def can_connect(self, node_id: int, now_ms: float) -> bool: ...

    def connect(self, node: Node, now_ms: float) -> KafkaError | None:
        """Start a connection. Returns the error if that fails at once."""
        ...

    def send_metadata_request(self, node_id: int, message: MetadataRequest, now_ms: float) -> KafkaError | None:
        """Send the request. Returns the error if no version of it suits the node."""
        ...

    def time_to_usable_node(self, now_ms: float) -> float: ...

    @property
    def connection_errors(self) -> Mapping[int, KafkaError]:
        """The last connection error of each node since it was last ready."""
        ...


class MetadataUpdater:
    """Keeps at most one metadata request in flight, sent to the least loaded node when an update is due.

    Belongs to the client's I/O thread.
    """

    def __init__(
        self,
        metadata: Metadata,
        connections: Connections,
        *,
        recovery_strategy: MetadataRecoveryStrategy,
        rebootstrap_trigger_ms: float,
        canonical_names: Callable[[str, int], Sequence[str] | None] | None,
    ) -> None:
        """Store the settings.

        `metadata` says when an update is due and takes the responses.
        `connections` is the client.
        `recovery_strategy` and `rebootstrap_trigger_ms` are metadata.recovery.strategy and
        metadata.recovery.rebootstrap.trigger.ms.
        `canonical_names`, if given, replaces each configured host by other names before use. It returns None while
        its lookup runs.
        """
        self._metadata = metadata
        self._connections = connections
        self._recovery_strategy = recovery_strategy
        self._rebootstrap_trigger_ms = rebootstrap_trigger_ms
        self._in_progress: MetadataFetch | None = None
        #: The time of the first metadata request since the last success; None if none has failed or is under way.
        self.attempts_since_ms: float | None = None
        #: Whether other requests go before the next one for metadata, see `goes_first`.
        self.others_are_next = False
        #: Whether a request other than for metadata was sent since the last `maybe_update`. The client sets it.
        self.others_were_sent = False
        #: Until then neither `goes_first` nor `maybe_update` has anything to do, unless an update is requested.
        self.quiet_until_ms = LONG_AGO_MS
        self._canonical_names = canonical_names
        self._configured_servers = metadata.bootstrap_servers
        self._names_looked_up = canonical_names is None
        self._names_wanted_since_ms: float | None = None
        self._canonical: dict[tuple[str, int], Sequence[str] | UnresolvableHostError] = {}  # the results so far
        self._repeats = Repeats()

    def is_update_due(self, now_ms: float) -> bool:
        """Whether a metadata request is due and none is in flight."""
        return self._in_progress is None and self._metadata.time_to_next_update(now_ms) <= 0

    def goes_first(self, now_ms: float) -> bool:
        """Whether a metadata request is to be sent before any other.

        Never twice in a row, however soon an update is due again. If a broker answers more slowly than metadata
        expires, or disconnects on each metadata request, nothing else would ever be sent. Java has no such limit.
        """
        return not self.others_are_next and self.is_update_due(now_ms)

    def maybe_update(self, now_ms: float) -> float:
        """Send a metadata request if one is due and a node can take it, else start a connection for it.

        Returns the longest wait before the next call; infinity if only I/O can change anything.
        """
        if self.others_were_sent:
            # The other requests of the whole previous turn have gone out, not only the first of them.
            self.others_are_next = self.others_were_sent = False
        if self._in_progress is not None:
            return NEVER_MS
        time_to_next_ms = self._metadata.time_to_next_update(now_ms)
        if time_to_next_ms > 0:
            self.quiet_until_ms = now_ms + time_to_next_ms
            return time_to_next_ms
        if self.attempts_since_ms is None:
            self.attempts_since_ms = now_ms

        failed: KafkaError | None = None
        tried: set[int] = set()
        while True:
            node, any_connected = self._connections.least_loaded(now_ms)
            if node is None and not any_connected and self._recovery_strategy is MetadataRecoveryStrategy.REBOOTSTRAP:
                self._start_over()
            if not self._names_looked_up and self._metadata.cluster.is_bootstrap:
                error = self._look_up_names(now_ms)
                if error is None and not self._names_looked_up:
                    return RESOLVE_PATIENCE_MS
                if error is not None:
                    self._metadata.failed_update(now_ms, error)
                    if self._metadata.version == 0:
                        self._metadata.fatal_error(error)
                    return self._metadata.time_to_next_update(now_ms)
            node, _ = self._connections.least_loaded(now_ms)
            if node is None or node.id in tried:
                break
            if self._connections.can_send(node.id, now_ms):
                fetch = self._metadata.next_fetch(now_ms)
                _log.debug("Sending metadata request %s to %s", fetch.message, node)
                error = self._connections.send_metadata_request(node.id, fetch.message, now_ms)
                if error is None:
                    self._in_progress = fetch
                    return NEVER_MS
                # No version of the request suits the node: waiting callers should see the error now.
                self._metadata.fatal_error(error)
                self._metadata.failed_update(now_ms)
                return self._metadata.time_to_next_update(now_ms)
            # The node is being connected, and one connection at a time is enough, or it has no room for a request.
            if not self._connections.can_connect(node.id, now_ms):
                return NEVER_MS
            failed = self._connections.connect(node, now_ms)
            if failed is None and self._connections.can_send(node.id, now_ms):
                continue  # a session that cannot be renewed yet is used to its end
            if failed is None:
                return NEVER_MS
            # The attempt failed without waiting, because the name cannot be resolved: try the next node.
            tried.add(node.id)
            self._tell_unresolvable(failed)

        if failed is not None:
            self._metadata.failed_update(now_ms, failed)
        _log.debug("No node is available for a metadata request")
        return max(self._metadata.time_to_next_update(now_ms), self._connections.time_to_usable_node(now_ms))

    def handle_response(self, response: MetadataResponse, version: int, now_ms: float) -> None:
        """Process the response to the request in flight."""
        fetch, self._in_progress = self._in_progress, None
        self.others_are_next = True
        if response.error_code != 0:
            error = make_error(response.error_code)
            _log.info("A broker answered a metadata request with %r", error)
            if isinstance(error, RebootstrapRequiredError):
                self.attempts_since_ms = LONG_AGO_MS  # exceeds any trigger (KIP-1102)
            self._metadata.failed_update(now_ms, error)
        elif not response.brokers:
            # A broker that is still starting may not know any brokers yet.
            self._metadata.failed_update(now_ms)
        else:
            self._metadata.update(response, now_ms, version=version, fetch=fetch)
            self.attempts_since_ms = None

    def handle_failure(self, now_ms: float, error: KafkaError) -> None:
        """Record that the request in flight failed."""
        self._in_progress = None
        self.others_are_next = True
        self._metadata.failed_update(now_ms, error)

    def handle_disconnection(self, now_ms: float, error: KafkaError) -> None:
        """Request an update after a connection was lost or failed: the metadata may be out of date."""
        if self.is_update_due(now_ms):
            # This backs off. Otherwise attempts would follow each other at once for as long as no broker answers.
            self._metadata.failed_update(now_ms, error)
        else:
            self._metadata.record_error(error)
        if isinstance(error, AuthenticationError):
            self._metadata.fatal_error(error)
        self._tell_unresolvable(error)
        self._metadata.request_update()

    def handle_unresolvable(self, now_ms: float, error: KafkaError) -> None:
        """Record that a node's name has no address.

        Another node may be tried at once. The attempt counts as failed only if no node is left to try.
        """
        node, _ = self._connections.least_loaded(now_ms)
        errors = self._connections.connection_errors
        none_left = node is None or isinstance(errors.get(node.id), UnresolvableHostError)
        if none_left and self.is_update_due(now_ms):
            self._metadata.failed_update(now_ms, error)
        else:
            self._metadata.record_error(error)
        self._tell_unresolvable(error)
        self._metadata.request_update()

    def needs_rebootstrap(self, now_ms: float) -> bool:
        """Whether metadata requests have failed for metadata.recovery.rebootstrap.trigger.ms (KIP-1102)."""
        return (
            self._recovery_strategy is MetadataRecoveryStrategy.REBOOTSTRAP
            and self.attempts_since_ms is not None
            and now_ms - self.attempts_since_ms > self._rebootstrap_trigger_ms
        )

    def rebootstrap(self, now_ms: float) -> None:
        """Go back to the configured addresses and restart the trigger time."""
        self._start_over()
        self.attempts_since_ms = now_ms

    def _start_over(self) -> None:
        if not self._metadata.cluster.is_bootstrap:
            self._names_looked_up = self._canonical_names is None
        self._metadata.rebootstrap()

    def _look_up_names(self, now_ms: float) -> KafkaError | None:
        """Bootstrap from the canonical names once all are known, or some after RESOLVE_PATIENCE_MS.

        Returns the error if no configured name has any.
        """
        assert self._canonical_names is not None
        for host, port in self._configured_servers:
            if (host, port) in self._canonical:
                continue
            try:
                names = self._canonical_names(host, port)
            except UnresolvableHostError as error:
                level = self._repeats.level((host, port), logging.WARNING, now_ms)
                _log.log(level, "Cannot bootstrap from %s:%d: %s", host, port, error)
                self._canonical[host, port] = error
            else:
                if names is not None:
                    self._canonical[host, port] = names
        if self._names_wanted_since_ms is None:
            self._names_wanted_since_ms = now_ms
        any_found = any(not isinstance(names, UnresolvableHostError) for names in self._canonical.values())
        is_late = now_ms - self._names_wanted_since_ms >= RESOLVE_PATIENCE_MS
        if len(self._canonical) < len(set(self._configured_servers)) and not (any_found and is_late):
            self._metadata.record_progress("the canonical names of bootstrap.servers are being looked up")
            return None
        self._names_wanted_since_ms = None
        answers, self._canonical = self._canonical, {}
        servers: list[tuple[str, int]] = []
        failed: KafkaError | None = None
        for host, port in self._configured_servers:
            names = answers.get((host, port), ())
            if isinstance(names, UnresolvableHostError):
                failed = names
            else:
                servers.extend((name, port) for name in names)
        if not servers:
            return failed
        self._metadata.use_bootstrap_servers(list(dict.fromkeys(servers)))
        self._names_looked_up = True
        return None

    def _tell_unresolvable(self, error: KafkaError) -> None:
        # Before the first update only the configured names exist. If none of them has an address, the configuration is
        # most likely wrong, and callers should see the error before max.block.ms.
        if not isinstance(error, UnresolvableHostError) or self._metadata.version > 0:
            return
        errors = self._connections.connection_errors
        nodes = self._metadata.cluster.nodes
        if all(isinstance(errors.get(node_id), UnresolvableHostError) for node_id in nodes):
            self._metadata.fatal_error(error)
