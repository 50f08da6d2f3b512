"""Memory that is there when a broker's log asks for it.

A virtual machine may get its memory from its host a page at a time, when it first touches it, and give back what lies
free for some seconds. A log that grows by a gigabyte can then cost its broker three seconds, more than all else that a
benchmark measures, or nothing; and which it is, chance decides. So each run is preceded by a touch, for every
contender alike. On a machine whose memory is its own this changes nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: The page cache takes pages that lie about in the kernel's lists, not just those that were freed last.
AMPLE = 4


def touch_memory(size_bytes: int) -> None:
    """Have memory for so much page cache touched and freed: in another process, which gives it back by its end."""
    wanted = min(AMPLE * size_bytes, _available_bytes() // 2)
    subprocess.run([sys.executable, "-c", f"bytearray({wanted})"], check=True)


def _available_bytes() -> int:
    """What processes could get, 0 where the system doesn't say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
