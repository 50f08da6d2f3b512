"""The values, keys and headers of a run: the same for every client, and made before the time is taken."""

from __future__ import annotations

import json
import random
from typing import Any

from .shapes import BLOCK, Mode, Shape, ValueKind

SEED = 12
KEYS = 10_000
KEY_BLOCKS = 100


class Workload:
    """What a client sends for a shape.

    `values` has BLOCK distinct values, which every pass sends again. `key_blocks` are lists of BLOCK keys; pass `n`
    takes number `n % len(key_blocks)`. `table` is an Arrow table of the values, for the mode ARROW only.
    """

    def __init__(self, shape: Shape, records: int) -> None:
        chance = random.Random(SEED)
        self.shape = shape
        self.records = records
        if shape.value_kind is ValueKind.JSON:
            self.values = [json_value(number, shape.value_bytes, chance) for number in range(BLOCK)]
        else:
            self.values = [chance.randbytes(shape.value_bytes) for _ in range(BLOCK)]
        keys = [b"user-%d" % number for number in range(KEYS)]
        # at random: keys in turn would fill all partitions evenly, and all batches at once
        self.key_blocks = [chance.choices(keys, k=BLOCK) for _ in range(KEY_BLOCKS)]
        self.traces = [b"%032x" % chance.getrandbits(128) for _ in range(BLOCK)]
        self.table: Any = None
        if shape.mode is Mode.ARROW:
            import pyarrow

            self.table = pyarrow.table({"value": pyarrow.array(self.values, pyarrow.binary())})

    @property
    def passes(self) -> int:
        """The passes over `values` of each thread."""
        return self.records // BLOCK // self.shape.threads


def json_value(number: int, size_bytes: int, chance: random.Random) -> bytes:
    """An event as JSON, filled up with words to exactly `size_bytes`. Raises ValueError if the event is larger."""
    event = {
        "id": number,
        "user": f"user-{chance.randrange(100_000)}",
        "action": chance.choice(("view", "click", "buy", "search")),
        "at": f"2026-01-{chance.randrange(1, 29):02}T10:{chance.randrange(60):02}:00Z",
        "price": round(chance.uniform(1, 500), 2),
        "text": "",
    }
    room = size_bytes - len(json.dumps(event))
    if room < 0:
        raise ValueError(f"a JSON value of {size_bytes} bytes is too small; an event needs {size_bytes - room}")
    words = ("order", "basket", "red", "large", "coat", "street", "north", "mobile", "again", "first")
    text = ""
    while len(text) < room:
        text += chance.choice(words) + " "
    event["text"] = text[:room]
    return json.dumps(event).encode()
