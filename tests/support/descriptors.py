"""Which descriptors a test has left open."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections import Counter
from collections.abc import Iterator

PATIENCE_S = 5.0


def open_descriptors() -> Counter[str]:
    """This process's sockets, selectors and files, by what they are: numbers are used again.

    Not its pipes: nothing of ours has one, and librdkafka's threads, which outlive their tests, make new ones.
    """
    found: Counter[str] = Counter()
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the one that lists them, and what others close meanwhile
            name = os.readlink(f"/dev/fd/{number}")
            if not name.startswith("pipe:"):
                found[name] += 1
    return found


@contextlib.contextmanager
def none_is_left() -> Iterator[None]:
    """Nothing that was opened inside stays open. What threads of earlier tests open meanwhile has time to go."""
    gc.collect()
    before = open_descriptors()
    yield
    gc.collect()
    end = time.monotonic() + PATIENCE_S
    while (left := open_descriptors() - before) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == Counter()
