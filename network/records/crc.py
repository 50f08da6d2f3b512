"""The two checksums of Kafka's record formats. The only module that imports the CRC libraries.

CRC-32C (Castagnoli) guards a record batch of format v2, plain CRC-32 the messages of formats v0 and v1. Both functions
may be called from any thread, and both let go of the GIL for large input.
"""

from __future__ import annotations

from zlib import crc32

from crc32c import crc32c

__all__ = ["crc32", "crc32c"]
