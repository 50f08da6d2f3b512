"""The file descriptors that a test leaves open."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections import Counter
from collections.abc import Iterator

PATIENCE_S = 5.0


def open_descriptors() -> Counter[str]:
    """This process's sockets, selectors and files, by what they refer to, since descriptor numbers are reused.

    Pipes don't count: Headrace opens none, and librdkafka's threads, which outlive their tests, open new ones.
    """
    found: Counter[str] = Counter()
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor, and those that other threads close meanwhile
            name = os.readlink(f"/dev/fd/{number}")
            if not name.startswith("pipe:"):
                found[name] += 1
    return found


@contextlib.contextmanager
def none_is_left() -> Iterator[None]:
    """Check that nothing opened inside stays open. Descriptors of earlier tests' threads have time to close."""
    gc.collect()
    before = open_descriptors()
    yield
    gc.collect()
    end = time.monotonic() + PATIENCE_S
    while (left := open_descriptors() - before) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == Counter()
