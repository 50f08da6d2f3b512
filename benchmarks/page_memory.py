"""Memory touched in advance, so that a broker's log doesn't wait for it.

A virtual machine may get memory from its host page by page on first access, and return pages that have been free for a
few seconds. Then a log that grows by a gigabyte may cost its broker three seconds, more than everything else in a
benchmark, or nothing, at random. So memory is touched before each run of every contender. On a physical machine this
makes no difference.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: The page cache takes any pages from the kernel's free lists, not just the most recently freed ones.
AMPLE = 4


def touch_memory(size_bytes: int) -> None:
    """Touch and free memory for `size_bytes` of page cache, in another process, which frees it when it ends."""
    wanted = min(AMPLE * size_bytes, _available_bytes() // 2)
    subprocess.run([sys.executable, "-c", f"bytearray({wanted})"], check=True)


def _available_bytes() -> int:
    """The memory available to processes, 0 if the system doesn't report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
