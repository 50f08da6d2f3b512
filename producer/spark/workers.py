"""Setup that the sink performs once per Python worker, for the benefit of later tasks."""

from __future__ import annotations

import gc
import itertools
import sys

_calls = itertools.count(1)


def spare_collections() -> None:
    """Exclude what the first task loaded from garbage collection. Each task calls this; the second call acts.

    Workers forked by PySpark's daemon run a full collection after each task, and so do those that plan and commit the
    writes of a data source. The modules alone are 60,000 to 90,000 objects. Traversing them takes 15 to 40 ms, most of
    the time of a small task. Frozen objects are not traversed. They are still freed when their reference count reaches
    zero; only reference cycles among them are kept until the worker ends.
    """
    if next(_calls) == 2:
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        if main is not None and main.name == "pyspark.daemon":
            # the first task's garbage has just been collected
            gc.freeze()
