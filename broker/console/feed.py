"""Looks at the cluster while anyone watches, and gives each viewer what has changed.

One thread looks, twice per second, or less often if a look takes long. Viewers wait on threads of their own. A viewer
that is slow misses states but not the latest one: a newer section replaces the one not yet sent, and of the requests
the oldest are dropped.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Any

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import IllegalStateError, KafkaError
from ..requests.control import RequestSeen
from ..services.observation import BrokerSeen
from .cluster import ConsoleCluster
from .sections import Rates, request_row, sections_of

#: The open pages. Each has a thread.
MAX_VIEWERS = 8
#: The requests that wait for a viewer, and that a new one gets.
REQUESTS_KEPT = 300
_INTERVAL_S = 0.5
#: A look may take that part of the time.
_SHARE = 0.2
_JOIN_S = 3.0


class TooManyViewersError(IllegalStateError):
    """There are as many open pages as the console serves."""


class Viewer:
    """One open page. `next_events` is for the viewer's thread, the rest for the feed's."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: dict[str, str] = {}
        self._requests: deque[dict[str, Any]] = deque(maxlen=REQUESTS_KEPT)
        self._skipped = 0
        self._sent: dict[str, str] = {}
        self.is_closed = False

    def offer(self, sections: dict[str, str], requests: list[dict[str, Any]], skipped: int) -> None:
        """Queue what is new."""
        with self._changed:
            for name, section in sections.items():
                if self._sent.get(name) == section:
                    self._pending.pop(name, None)
                else:
                    self._pending[name] = section
            self._skipped += skipped + max(len(self._requests) + len(requests) - REQUESTS_KEPT, 0)
            self._requests.extend(requests)
            self._changed.notify()

    def close(self) -> None:
        """End `next_events` for good."""
        with self._changed:
            self.is_closed = True
            self._changed.notify()

    def next_events(self, timeout_s: float) -> list[tuple[str, str]] | None:
        """The names and data of new events, none after the timeout; None when the feed has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._requests or self.is_closed, timeout_s)
            if self.is_closed:
                return None
            events = list(self._pending.items())
            self._sent.update(self._pending)
            self._pending = {}
            if self._requests:
                rows = {"rows": list(self._requests), "skipped": self._skipped}
                events.append(("requests", json.dumps(rows)))
                self._requests.clear()
                self._skipped = 0
            return events


class Feed:
    """The thread that looks, and the viewers. Any thread."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Condition()
        self._viewers: list[Viewer] = []
        self._closing = threading.Event()
        self._latest: dict[str, str] = {}
        self._recent: deque[dict[str, Any]] = deque(maxlen=REQUESTS_KEPT)
        # the looking thread's
        self._rates = Rates()
        self._after: dict[int, RequestSeen] = {}
        self._request_number = 0
        self._thread = threading.Thread(target=self._run, name="headrace-console-feed", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End the viewers and the thread. Waits 3 s at most for a broker that doesn't answer."""
        with self._lock:
            self._closing.set()
            viewers = list(self._viewers)
            self._lock.notify()
        for viewer in viewers:
            viewer.close()
        self._thread.join(_JOIN_S)

    def subscribe(self) -> Viewer:
        """A new viewer, which gets the latest state first. Raises TooManyViewersError, IllegalStateError."""
        with self._lock:
            if self._closing.is_set():
                raise IllegalStateError("the console is closing")
            if len(self._viewers) >= MAX_VIEWERS:
                raise TooManyViewersError(f"{MAX_VIEWERS} pages of this console are open; close one of them")
            viewer = Viewer()
            viewer.offer(self._latest, list(self._recent), 0)
            self._viewers.append(viewer)
            self._lock.notify()
            return viewer

    def unsubscribe(self, viewer: Viewer) -> None:
        """Forget a viewer."""
        with self._lock:
            if viewer in self._viewers:
                self._viewers.remove(viewer)

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                with self._lock:
                    self._lock.wait_for(lambda: self._viewers or self._closing.is_set())
                if self._closing.is_set():
                    return
                started_ms = SYSTEM_CLOCK.now_ms()
                self._look(started_ms)
                took_s = (SYSTEM_CLOCK.now_ms() - started_ms) / 1_000.0
                self._closing.wait(max(_INTERVAL_S, took_s / _SHARE))
        finally:
            with self._lock:
                self._closing.set()
                viewers = list(self._viewers)
            for viewer in viewers:
                viewer.close()

    def _look(self, now_ms: float) -> None:
        seen: dict[int, BrokerSeen] = {}
        try:
            running = self._cluster.running
            for node_id in running:
                try:
                    seen[node_id] = self._cluster.overview(node_id, self._after.get(node_id))
                except KafkaError:
                    # it has ended meanwhile, or hangs; the page shows that it doesn't answer
                    continue
            sections: dict[str, Any] = dict(sections_of(self._cluster, seen, running))
        except IllegalStateError:
            return  # the cluster is being closed
        wall_ms = SYSTEM_CLOCK.wall_ms()
        requests = sorted((each for of in seen.values() for each in of.requests), key=lambda each: each.received_ms)
        skipped = sum(of.requests_left_off for of in seen.values())
        rate = self._rates.add(now_ms, wall_ms, seen, len(requests) + skipped)
        if rate is not None:
            sections["rates"] = {"now": rate, "samples": list(self._rates.samples)}
        rows = []
        for each in requests:
            self._after[each.node_id] = each
            self._request_number += 1
            rows.append(request_row(self._request_number, each, seen[each.node_id].clock_offset_ms))
        texts = {name: json.dumps(section) for name, section in sections.items()}
        with self._lock:
            self._latest = texts
            self._recent.extend(rows)
            viewers = list(self._viewers)
        for viewer in viewers:
            viewer.offer(texts, rows, skipped)
