"""Fetch sessions: a client names its partitions once, then only the changes (KIP-227)."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...network.clock import Clock
from ...network.protocol.messages.records.fetch import FetchRequest
from ...network.protocol.other_errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError
from ..replica.fetch import FetchEntry, FetchResult

_EVICTION_MS = 120_000.0
#: The limit for the partitions of all sessions together. A client without a session names its partitions each time.
MAX_SESSION_PARTITIONS = 200_000

EntryKey = tuple[object, int]


def entry_key(entry: FetchEntry) -> EntryKey:
    """The key of a partition in its session: its topic's name, or id if the name is unknown, and its number."""
    return entry.key[0] or entry.topic_id, entry.key[1]


class _Told(NamedTuple):
    """The values last sent to a client for a partition."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FetchSession:
    """A client's partitions, in the order in which they are fetched. A partition that returned records moves to the
    end, so that none starves. Used by one request at a time, because its client waits for each response."""

    def __init__(self, session_id: int, epoch: int, now_ms: float) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.last_used_ms = now_ms
        self.entries: OrderedDict[EntryKey, FetchEntry] = OrderedDict()
        self._told: dict[EntryKey, _Told] = {}

    def update(self, entries: Iterable[FetchEntry], forgotten: Iterable[EntryKey]) -> None:
        for entry in entries:
            self.entries[entry_key(entry)] = entry
        for key in forgotten:
            self.entries.pop(key, None)
            self._told.pop(key, None)

    def changed(self, results: list[FetchResult]) -> list[FetchResult]:
        """The results that are new to the client; records that they have been sent."""
        news = []
        for result in results:
            key = entry_key(result.entry)
            now = _Told(result.high_watermark, result.last_stable_offset, result.log_start_offset)
            has_more = result.region is not None or result.error is not None or result.diverging_epoch is not None
            if not has_more and self._told.get(key) == now:
                continue
            self._told[key] = now
            if result.error is not None:
                # An error that persists is sent again next time.
                self._told.pop(key, None)
            if result.region is not None and key in self.entries:
                self.entries.move_to_end(key)
            news.append(result)
        return news


class FetchSessions:
    """The sessions of a broker, at most `slots`, with `max_partitions` partitions at most. Any thread."""

    def __init__(self, slots: int, clock: Clock, max_partitions: int = MAX_SESSION_PARTITIONS) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._partition_count = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, entries: Collection[FetchEntry]) -> FetchSession | None:
        """A new session. None if the sessions in use leave no room; the client then works without one."""
        now_ms = self._clock.now_ms()
        if len(entries) > self._max_partitions:
            return None
        with self._lock:
            while len(self._sessions) >= self._slots or self._partition_count + len(entries) > self._max_partitions:
                oldest = next(iter(self._sessions.values()), None)
                if oldest is None or now_ms - oldest.last_used_ms < _EVICTION_MS:
                    return None
                self._end(oldest.session_id)
            session_id = FetchRequest.NO_SESSION
            while session_id == FetchRequest.NO_SESSION or session_id in self._sessions:
                session_id = int.from_bytes(os.urandom(4), "big") & 0x7FFFFFFF
            first_epoch = FetchRequest.next_epoch(FetchRequest.INITIAL_EPOCH)
            session = self._sessions[session_id] = FetchSession(session_id, first_epoch, now_ms)
            self._update(session, entries, ())
        return session

    def _update(self, session: FetchSession, entries: Iterable[FetchEntry], forgotten: Iterable[EntryKey]) -> None:
        before = len(session.entries)
        session.update(entries, forgotten)
        self._partition_count += len(session.entries) - before

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.entries)

    def resume(
        self, session_id: int, epoch: int, entries: Iterable[FetchEntry], forgotten: Iterable[EntryKey]
    ) -> FetchSession:
        """The session that a request continues, updated with the request's changes. Raises
        FetchSessionIdNotFoundError, InvalidFetchSessionEpochError."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                raise FetchSessionIdNotFoundError(f"there is no fetch session {session_id}; begin another")
            if session.epoch != epoch:
                raise InvalidFetchSessionEpochError(
                    f"the fetch session {session_id} is at epoch {session.epoch}, not {epoch}; begin another"
                )
            session.epoch = FetchRequest.next_epoch(epoch)
            session.last_used_ms = self._clock.now_ms()
            self._sessions.move_to_end(session_id)
            self._update(session, entries, forgotten)
            if self._partition_count > self._max_partitions:
                self._end(session_id)
                raise FetchSessionIdNotFoundError(f"the fetch session {session_id} has grown too large; begin another")
            return session

    def close(self, session_id: int) -> None:
        """End a session; ignored if there is none with this id."""
        with self._lock:
            self._end(session_id)
