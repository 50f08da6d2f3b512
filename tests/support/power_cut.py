"""Machines that can lose power: unflushed data is lost, wholly or in part, as drawn from a seed.

    with PowerCuts(folder / "broker-1", folder / "broker-2") as power:
        ...  # the program writes below these folders, and ends
        power.cut(folder / "broker-1", random.Random(seed))

A file's content is flushed as of the last `os.fsync` or `os.fdatasync` for it, and the names below a machine's folder
as of the last `os.fsync` for one of its directories. After a power cut the unflushed rest of a file is kept, reverted
to what was flushed, or torn: part of what was appended, zeros in its place, or half new and half old. Name changes are
lost from the last one backwards, as on every journaling file system; there is no order between contents and names. The
calls don't reach a disk, so they cost nothing.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

_Inode = tuple[int, int]
_SECTOR_BYTES = 512


class _NameChange(NamedTuple):
    """An unflushed change of a name, and how to undo it."""

    path: str
    what: str
    undo: Callable[[], None]


class PowerCuts:
    """Watches this process's changes below the machines' folders. Only one instance may be active. Call `cut` only
    while nothing writes there; everything else may happen on any thread."""

    _watching: ClassVar[PowerCuts | None] = None
    _is_hooked: ClassVar[bool] = False

    def __init__(self, *machines: Path) -> None:
        self._lock = threading.RLock()
        self._cutter: int | None = None
        self._flushed: dict[_Inode, bytes] = {}
        self._changes: dict[str, list[_NameChange]] = {f"{os.path.abspath(each)}/": [] for each in machines}
        self._system_calls = (os.fsync, os.fdatasync)

    def __enter__(self) -> PowerCuts:
        if not PowerCuts._is_hooked:
            # An audit hook can't be removed, so there is one; it does nothing while no instance watches.
            sys.addaudithook(_audit)
            PowerCuts._is_hooked = True
        PowerCuts._watching = self
        os.fsync = os.fdatasync = self._flush
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync, os.fdatasync = self._system_calls
        PowerCuts._watching = None

    # --- The program's side ---

    def _machine_of(self, path: str) -> str | None:
        return next((each for each in self._changes if f"{path}/".startswith(each)), None)

    def _flush(self, file: Any) -> None:
        descriptor = file if isinstance(file, int) else file.fileno()
        link = Path(f"/proc/self/fd/{descriptor}")
        path = os.readlink(link).removesuffix(" (deleted)")
        machine = self._machine_of(path)
        if machine is None:
            return
        with self._lock:
            if os.path.isdir(path):
                self._commit_names(machine, path)
            else:
                self._flushed[_inode(descriptor)] = link.read_bytes()

    def _commit_names(self, machine: str, path: str) -> None:
        """Record that the changes at `path`, and all earlier ones of that machine, are flushed."""
        changes = self._changes[machine]
        last = max((at for at, each in enumerate(changes) if f"{each.path}/".startswith(f"{path}/")), default=-1)
        del changes[: last + 1]

    def audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Record the change that is about to happen."""
        if not arguments or not isinstance(arguments[0], (str, os.PathLike)):
            return
        path = os.path.abspath(os.fspath(arguments[0]))
        machine = self._machine_of(path)
        if machine is None or self._cutter == threading.get_ident():
            return
        with self._lock:
            changes = self._changes[machine]
            if event == "open":
                if arguments[2] & os.O_CREAT and not os.path.exists(path):
                    changes.append(_NameChange(path, "made", lambda: self._forget(path)))
            elif event == "os.mkdir" and not os.path.exists(path):
                changes.append(_NameChange(path, "made", lambda: os.rmdir(path)))
            elif event == "os.link":
                other = os.path.abspath(os.fspath(arguments[1]))
                changes.append(_NameChange(other, "linked", lambda: os.unlink(other)))
            elif event == "os.remove" and os.path.exists(path):
                content = self._end(path)
                changes.append(_NameChange(path, "removed", lambda: self._bring_back(path, content)))
            elif event == "os.rename":
                changes.append(self._renaming(path, os.path.abspath(os.fspath(arguments[1]))))
            elif event == "shutil.rmtree":
                self._commit_names(machine, path)
                for each in Path(path).rglob("*"):
                    self._end(each)

    def _renaming(self, source: str, target: str) -> _NameChange:
        replaced = self._end(target) if os.path.isfile(target) else None

        def undo() -> None:
            os.rename(target, source)
            if replaced is not None:
                self._bring_back(target, replaced)

        return _NameChange(target, "renamed", undo)

    def _end(self, path: str | Path) -> bytes:
        """Forget a file that is being removed, whose inode may be reused. Returns its flushed content."""
        inode = _inode(path)
        return self._flushed.get(inode, b"") if os.stat(path).st_nlink > 1 else self._flushed.pop(inode, b"")

    def _forget(self, path: str) -> None:
        self._end(path)
        os.unlink(path)

    def _bring_back(self, path: str, content: bytes) -> None:
        _write(path, content)
        self._flushed[_inode(path)] = content

    # --- The power cut ---

    def cut(self, folder: Path, dice: random.Random) -> list[str]:
        """Cut a machine's power. Returns what was lost, one line each."""
        machine = f"{os.path.abspath(folder)}/"
        losses: list[str] = []
        with self._lock:
            self._cutter = threading.get_ident()
            try:
                self._lose_names(machine, dice, losses)
                self._lose_contents(machine, dice, losses)
            finally:
                self._cutter = None
        return losses

    def _lose_names(self, machine: str, dice: random.Random, losses: list[str]) -> None:
        changes = self._changes[machine]
        kept = dice.choice([0, len(changes), dice.randint(0, len(changes))])
        while len(changes) > kept:
            change = changes.pop()
            change.undo()
            losses.append(f"{change.path.removeprefix(machine)} is not {change.what}")
        changes.clear()

    def _lose_contents(self, machine: str, dice: random.Random, losses: list[str]) -> None:
        seen: set[_Inode] = set()
        for path in sorted(Path(machine).rglob("*")):
            inode = _inode(path)
            if not path.is_file() or inode in seen:
                continue
            seen.add(inode)
            now, flushed = path.read_bytes(), self._flushed.get(inode, b"")
            left = _what_is_left(now, flushed, dice)
            if left != now:
                _write(path, left)
                losses.append(f"{path}: {len(flushed)} of {len(now)} bytes were flushed, {len(left)} are left")
            self._flushed[inode] = left


def _what_is_left(now: bytes, flushed: bytes, dice: random.Random) -> bytes:
    """One of the contents that the file may have after the power cut."""
    fate = dice.choice(["lost", "lost", "kept", "torn", "zeros", "mixed"])
    if fate == "lost" or now == flushed:
        return flushed
    if fate == "kept":
        return now
    if now.startswith(flushed):
        at = dice.randint(len(flushed), len(now))
        return now[:at] + (bytes(len(now) - at) if fate == "zeros" else b"")
    # Not within a sector: the offset and the epoch of a batch come before its CRC, which doesn't cover them.
    at = dice.randint(0, min(len(now), len(flushed)) // _SECTOR_BYTES) * _SECTOR_BYTES
    return now[:at] + flushed[at:] if fate == "mixed" else flushed


def _inode(file: int | str | Path) -> _Inode:
    status = os.fstat(file) if isinstance(file, int) else os.stat(file)
    return status.st_dev, status.st_ino


def _write(path: str | Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    watching = PowerCuts._watching
    if watching is not None and (event == "open" or event.startswith(("os.", "shutil."))):
        watching.audited(event, arguments)
