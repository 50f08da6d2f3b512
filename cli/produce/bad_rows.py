"""The handling of rows that can't be sent: stop, leave them out, or write them aside."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, TextIO

from ...network.protocol.errors import KafkaConfigurationError, SerializationError

FAIL = "fail"
SKIP = "skip"


class BadRow(Exception):
    """A row that can't become a record. The message is the reason."""


class BadRows:
    """Counts the bad rows; stops at the first, leaves them out, or writes them to a file. A context manager."""

    def __init__(self, action: str) -> None:
        """`action` is "fail", "skip" or a file's path. Raises KafkaConfigurationError if it can't be written."""
        self.count = 0
        self.first = ""
        self._fails = action == FAIL
        self._file: TextIO | None = None
        if action not in (FAIL, SKIP):
            try:
                self._file = open(action, "a", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
            except OSError as failed:
                raise KafkaConfigurationError(f"--on-error {action}: {failed.strerror}") from failed

    def __enter__(self) -> BadRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, name: str, row: int, reason: str, content: Any) -> None:
        """Note a bad row: the file's name, the row's number counted from 1, why, and what it contains.

        Raises SerializationError if bad rows end the command.
        """
        self.count += 1
        self.first = self.first or f"{name}:{row}: {reason}"
        if self._fails:
            raise SerializationError(f"{name}:{row}: {reason} (--on-error skip leaves such rows out)")
        if self._file is not None:
            line = {"file": name, "row": row, "reason": reason, "content": content}
            print(json.dumps(line, ensure_ascii=False, default=_text), file=self._file)


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
