"""Random numbers for jitter and for choices among equals. Not for secrets."""

from __future__ import annotations

import os
from _random import Random
from collections.abc import Callable

# the generator of `random.random`, without the rest of that module, whose import takes 0.8 ms of a producer's start
_generator = Random()
# a child must not draw its parent's numbers: their retries would fall together
os.register_at_fork(after_in_child=_generator.seed)

random_unit: Callable[[], float] = _generator.random
"""Returns numbers in [0, 1). Any thread."""
