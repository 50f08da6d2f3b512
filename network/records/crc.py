"""The two checksums of Kafka's record formats. The only module that imports the CRC libraries.

CRC-32C (Castagnoli) protects record batches of format v2, and plain CRC-32 messages of formats v0 and v1. Any thread
may call either function. Both release the GIL for large input.
"""

from __future__ import annotations

from zlib import crc32

from crc32c import crc32c

__all__ = ["crc32", "crc32c"]
