"""Random numbers for jitter: a forked child draws other ones than its parent."""

from __future__ import annotations

import subprocess
import sys

from headrace.network.chance import random_unit

FORKS = """
import os
from headrace.network.chance import random_unit

reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, repr(random_unit()).encode())
    os._exit(0)
own = random_unit()
os.waitpid(child, 0)
print(own, os.read(reader, 100).decode())
"""


def test_numbers_are_in_the_unit_interval() -> None:
    drawn = {random_unit() for _ in range(1_000)}
    assert len(drawn) > 900
    assert all(0.0 <= each < 1.0 for each in drawn)


def test_a_forked_child_draws_other_numbers() -> None:
    run = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    own, other = run.stdout.split()
    assert own != other
