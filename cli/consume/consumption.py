"""One run of `headrace consume`: begins where it should, prints records, and keeps the group's offsets."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import sys
import threading
from typing import Any

from ...network.clock import SYSTEM_CLOCK
from ...network.protocol.errors import KafkaError
from ...network.records.record import Record
from ..client import Client
from ..parallel import within
from ..text import bytes_text, time_text
from .coordinator import Coordinator
from .filters import Filters
from .group_offsets import REJECTED, Generation, GroupOffsets
from .member import GroupMember, Heartbeats
from .reader import Reader

_BEGINNING = "beginning"
#: Seconds for leaving the group.
_LEAVE_TIMEOUT_S = 5.0
#: Seconds for the last commit after Ctrl-C, and then for leaving the group.
_LAST_COMMIT_TIMEOUT_S = 0.6
_LAST_LEAVE_TIMEOUT_S = 0.3
#: After how many seconds it says that it waits for others. A new group waits for three, with Apache Kafka's defaults.
_WAITING_S = 5.0
_PAUSE_MS = 100.0


class Consumption:
    """Prints the records, and commits the offsets of those printed or left out. One thread, and that of heartbeats.

    Before it asks the group for other partitions, it stops printing and commits, so the next owner of a partition
    goes on behind the last printed record. A record may be printed again if the commit failed.
    """

    def __init__(
        self, options: argparse.Namespace, client: Client, filters: Filters, coordinator: Coordinator | None
    ) -> None:
        """`coordinator`: that of --group, None without. It becomes a member unless --partition is given."""
        self._options = options
        self._client = client
        self._filters = filters
        self._topic: str = options.topic
        self._whole = Reader(client, self._topic, options.partition)
        self._offsets: GroupOffsets | None = None
        self._member: GroupMember | None = None
        if coordinator is not None:
            self._offsets = GroupOffsets(coordinator, self._topic, self._whole.topic_id)
            if options.partition is None:
                self._member = GroupMember(coordinator, self._topic)
        self._printed = 0
        self._has_offsets = False
        #: The partitions that it reads, once it has begun.
        self._partitions = sorted(self._whole.next_offsets)
        #: Where each of its partitions ended when it first read it.
        self._ends: dict[int, int] = {}
        #: The next offset of each of its partitions, behind the records that were printed or left out.
        self._positions: dict[int, int] = {}

    def run(self) -> None:
        """Read until the end, --max or Ctrl-C. Raises KafkaError."""
        try:
            if self._member is None:
                self._begin(self._whole)
                self._print(self._whole)
            else:
                with Heartbeats(self._member):
                    self._read_as_member(self._member)
            self._commit()
        except KeyboardInterrupt:
            self._stop_at_once()
            raise
        except BaseException:
            self._leave(_LEAVE_TIMEOUT_S)
            raise
        self._leave(_LEAVE_TIMEOUT_S)
        self._report_nothing()

    # --- As a member ---

    def _read_as_member(self, member: GroupMember) -> None:
        while True:
            partitions = self._join(member)
            self._announce(partitions)
            reader = Reader(self._client, self._topic, partitions)
            self._begin(reader)
            if self._print(reader):
                return
            self._give_up()

    def _join(self, member: GroupMember) -> list[int]:
        waiting = threading.Timer(
            _WAITING_S, self._note, [f"waiting for the other members of group {self._options.group} to join again"]
        )
        waiting.daemon = True
        waiting.start()
        try:
            return member.join()
        finally:
            waiting.cancel()

    def _announce(self, partitions: list[int]) -> None:
        if partitions != self._partitions:
            read = ", ".join(map(str, partitions))
            self._note(
                f"group {self._options.group} has other members, too; "
                + (f"this one reads partitions {read}" if partitions else "this one has no partitions")
            )
        self._partitions = partitions

    def _give_up(self) -> None:
        """Commit before others get the partitions."""
        try:
            self._commit()
        except REJECTED as lost:
            self._note(str(lost))
        self._positions = {}

    # --- Reading ---

    def _begin(self, reader: Reader) -> None:
        """Seek to where to begin.

        The next commit keeps that as the group's place, even if nothing was read: with `--from end` the next owner of a
        partition would otherwise begin at a later end.
        """
        options = self._options
        committed = None if self._offsets is None else self._offsets.fetch(list(reader.next_offsets))
        self._has_offsets = bool(committed)
        notes = reader.begin(options.start or _BEGINNING, since_ms=self._filters.since_ms, committed=committed)
        for note in notes:
            self._note(note)
        for partition, end in reader.ends.items():
            reader.ends[partition] = self._ends.setdefault(partition, end)
        self._positions = dict(reader.next_offsets)

    def _print(self, reader: Reader) -> bool:
        """Print the reader's records. Returns False if the group must be joined again before all are printed."""
        options = self._options
        member = self._member
        for partition, record in reader.records(follow=options.follow, go_on=self._go_on):
            if self._filters.pass_(record):
                line = _json(partition, record) if options.json else _line(partition, record, options.width)
                print(line, flush=options.follow)
                self._printed += 1
            self._positions[partition] = record.offset + 1
            if self._printed == options.max:
                return True
            if member is not None and not member.poll():
                return False
        if member is None:
            return True
        while options.follow and member.poll():
            # no partitions
            SYSTEM_CLOCK.sleep(_PAUSE_MS)
        return member.poll()

    def _go_on(self) -> bool:
        if self._offsets is not None and self._offsets.is_due() and not self._try_to_commit():
            return False
        return self._member is None or self._member.poll()

    # --- Offsets ---

    def _commit(self) -> None:
        if self._offsets is not None:
            # what the reader of the output has not got must not be committed
            sys.stdout.flush()
            generation = Generation() if self._member is None else self._member.generation
            self._offsets.commit(self._positions, generation)

    def _try_to_commit(self) -> bool:
        """Commit. Returns False if the group doesn't take it because it has gone on without this member."""
        try:
            self._commit()
        except REJECTED as lost:
            if self._member is None:
                raise
            self._member.rejected(lost)
            return False
        return True

    def _stop_at_once(self) -> None:
        """Commit and leave after Ctrl-C, which must not wait for a broker that does not answer."""
        try:
            within(self._commit, _LAST_COMMIT_TIMEOUT_S)
        except TimeoutError:
            self._note("the last offsets were not committed: the coordinator did not answer")
            return
        except KafkaError as failed:
            self._note(f"the last offsets were not committed: {failed}")
        self._leave(_LAST_LEAVE_TIMEOUT_S)

    def _leave(self, timeout_s: float) -> None:
        """Leave the group; if that fails, the group notices at the end of the session."""
        if self._member is not None:
            with contextlib.suppress(TimeoutError, KafkaError):
                within(self._member.leave, timeout_s)

    # --- Output ---

    def _report_nothing(self) -> None:
        options = self._options
        if self._printed or options.follow or options.start == "end" or not self._partitions:
            return
        where = ""
        if self._filters:
            where = " that pass the filters"
        elif self._has_offsets:
            where = f" after those that group {options.group} has read"
        elif options.start not in {None, _BEGINNING}:
            where = f" from {options.start} onward"
        self._note(f"{self._topic} has no records{where}")

    @staticmethod
    def _note(text: str) -> None:
        print(f"headrace consume: {text}", file=sys.stderr)


def _line(partition: int, record: Record, width: int | None) -> str:
    parts = [f"{partition}:{record.offset}", time_text(record.timestamp)]
    parts += [bytes_text(record.key, width), bytes_text(record.value, width)]
    if record.headers:
        parts.append("{" + ", ".join(f"{name}: {bytes_text(value, width)}" for name, value in record.headers) + "}")
    return "  ".join(parts)


def _json(partition: int, record: Record) -> str:
    return json.dumps(
        {
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _json_value(record.key),
            "value": _json_value(record.value),
            "headers": [[name, _json_value(value)] for name, value in record.headers],
        },
        ensure_ascii=False,
    )


def _json_value(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
