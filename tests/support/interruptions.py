"""Code that runs anywhere: at a chosen bytecode instruction of the producer, in a finalizer, in a signal handler."""

from __future__ import annotations

import contextlib
import dis
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = tuple(f"{ROOT / part}/" for part in ("network", "producer"))

#: After instructions with these prefixes CPython may run a signal handler, which may raise. (After a call of a Python
#: function it doesn't since 3.11; such points count, too.) Anywhere else a finalizer may run, whose exceptions don't
#: propagate.
_CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
_NOT_CHECKED = ("CALL_INTRINSIC", "JUMP_BACKWARD_NO_INTERRUPT")


@functools.cache
def _handlers(code: CodeType) -> list[tuple[int, int, int]]:
    """The exception table of `code`: start and end of each range of instructions, and its handler. Empty in 3.10."""
    entries = getattr(dis.Bytecode(code), "exception_entries", ())
    return [(entry.start, entry.end, entry.target) for entry in entries]


def _handler(code: CodeType, offset: int) -> int | None:
    return next((target for start, end, target in _handlers(code) if start <= offset < end), None)


class Interruption:
    """Run `action` at instruction number `at` of the producer's Python code within the ``with`` block.

    Counts the instructions of this thread that belong to the producer. With `raises`, counts only those before which a
    signal handler may run; what `action` raises then propagates from the producer's code. `happened` is False if there
    were fewer instructions.

    CPython looks for the handler of such an exception at the instruction that checked for signals, and for that of a
    trace function's exception at the next one. Where the two differ, as at the end of ``with lock: return call()``,
    `raises` counts no instruction: an exception there would skip ``__exit__``, which no signal handler's does.
    """

    def __init__(self, at: int, action: Callable[[], object], *, raises: bool = False) -> None:
        self.happened = False
        self.where = ""
        self._at = at
        self._action = action
        self._raises = raises
        self._count = 0
        self._last: dict[FrameType, int | None] = {}

    def __enter__(self) -> Interruption:
        self._before = sys.gettrace()
        sys.settrace(self._enter_frame)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        self._last.clear()

    def _enter_frame(self, frame: FrameType, event: str, argument: object) -> Any:
        if self.happened or not frame.f_code.co_filename.startswith(_PACKAGES):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._in_frame

    def _in_frame(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "exception":
            self._last[frame] = None  # the instruction has not completed, so it doesn't check for signals
        elif event == "opcode" and not self.happened:
            may_raise = self._may_raise(frame)
            self._last[frame] = frame.f_lasti
            if may_raise or not self._raises:
                self._count += 1
                if self._count == self._at:
                    self.happened = True
                    self.where = f"{frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name}"
                    self._action()
        return self._in_frame

    def _may_raise(self, frame: FrameType) -> bool:
        """Whether a signal handler may raise between the last instruction of this frame and the next."""
        if frame not in self._last:
            return True  # RESUME, which isn't traced, has checked
        last = self._last[frame]
        code = frame.f_code
        if last is None:
            return False
        name = dis.opname[code.co_code[last]]
        if not name.startswith(_CHECKED) or name.startswith(_NOT_CHECKED):
            return False
        return _handler(code, last) == _handler(code, frame.f_lasti)


def every_point(step: int = 1, first: int = 1) -> Iterator[int]:
    """Numbers for `Interruption`, to be used until one doesn't happen."""
    number = first
    while True:
        yield number
        number += step


@contextlib.contextmanager
def signals(handler: Callable[[], object], every_s: float = 0.001) -> Iterator[None]:
    """Call `handler` in the main thread, as the handler of a signal that arrives again and again."""
    ended = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        while not ended.wait(every_s):
            signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # a handler that raises may do so here, too
        while not ended.is_set() or thread.is_alive():
            with contextlib.suppress(BaseException):
                ended.set()
                thread.join(10)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, before)


class Garbage:
    """A cycle whose finalizer calls `action`, wherever the garbage collector finds it."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        vars(self)["itself"] = self

    def __del__(self) -> None:
        self._action()
