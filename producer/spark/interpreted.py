"""Warns on an executor that runs interpreted modules, for example from a zip."""

from __future__ import annotations

import functools
import logging
import os
import sys
from pathlib import Path

from ...network import _build

_log = logging.getLogger(__name__)

_MARKER = ".headrace-interpreted"


@functools.cache
def warn_if_interpreted() -> None:
    """Log a warning, once per executor, if hot modules run interpreted without HEADRACE_PURE. Called in a task."""
    if _build.PURE:
        return
    interpreted = [name for name, is_compiled in _build.compiled_modules().items() if not is_compiled]
    if interpreted and _is_first_of_executor():
        _log.warning(
            "Headrace runs interpreted on this executor, at several times the CPU per record: %s. Install it in the "
            "executors' image, or ship a packed environment with --archives (docs/spark-cluster.md)",
            _reason(sys.modules[interpreted[0]].__file__ or ""),
        )


def _reason(file: str) -> str:
    if not os.path.exists(file):
        archive = next((str(path) for path in Path(file).parents if path.is_file()), file)
        return f"it is imported from {archive}, and compiled modules can't be loaded from an archive"
    return f"no compiled modules are installed at {Path(file).parents[2]}; it may have been built without a C compiler"


def _is_first_of_executor() -> bool:
    """Whether this is the first Python worker of its executor to call this, as far as it can determine.

    The workers share no memory, only a directory that Spark removes with the executor.
    """
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or pyspark.TaskContext.get() is None:
        return True
    try:
        os.close(os.open(os.path.join(pyspark.SparkFiles.getRootDirectory(), _MARKER), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    except OSError:
        # the directory is not writable: log twice rather than never
        return True
    return True
