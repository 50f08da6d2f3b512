"""What the sink does once in a Python worker of Spark's, for the tasks after it."""

from __future__ import annotations

import gc
import itertools
import sys

_calls = itertools.count(1)


def spare_collections() -> None:
    """Have the garbage collector pass over what the first call's task loaded. Each task calls it; the second one acts.

    The workers that PySpark's daemon forks collect all garbage after each task, and so do those that plan and commit
    the writes of a data source. The modules alone are 60,000 to 90,000 objects, and walking them takes 15 to 40 ms,
    most of what a small task costs. Frozen objects are not walked. They are freed when nothing refers to them, as
    always; only circles among those that are there now, and are let go of later, stay until the worker ends.
    """
    if next(_calls) == 2:
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        if main is not None and main.name == "pyspark.daemon":
            # garbage was collected just before
            gc.freeze()
