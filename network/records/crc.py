"""The libraries of the two checksums of Kafka's record formats, which only this module imports.

CRC-32C (Castagnoli) protects record batches of format v2, and zlib's CRC-32 messages of formats v0 and v1. Any thread
may call either function. Both release the GIL for large input, `crc32c` unless its third argument is 0.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

__all__ = ["crc32c", "zlib"]

_EXTENSION = "crc32c._crc32c"


def _load() -> Callable[..., int]:
    """The function of the extension module of `crc32c`.

    The package around it imports argparse, importlib.metadata and, through that, the email package: half of what the
    import of a producer may take. Its extension module needs none of them, so it is imported alone where there is one.
    """
    package = None if "crc32c" in sys.modules else PathFinder.find_spec("crc32c")
    spec = package and PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        import crc32c as whole  # noqa: PLC0415 - it takes longer than everything else a producer imports

        return whole.crc32c
    extension: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    # a program that imports the package gets this copy of the extension
    return sys.modules.setdefault(_EXTENSION, extension).crc32c


crc32c = _load()


@cache
def zlib() -> Any:
    """The library of CRC-32 and of gzip. A producer that needs neither never imports it."""
    import zlib as library  # noqa: PLC0415

    return library
