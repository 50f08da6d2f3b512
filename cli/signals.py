"""How commands end by Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
import threading

#: The exit code after Ctrl-C, as shells number it: 128 and the number of SIGINT.
INTERRUPTED = 130


def stop_event() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set from now on, in place of ending the process. For the main thread."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
