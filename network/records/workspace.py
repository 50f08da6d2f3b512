"""Memory that one thread compresses with, again and again.

New memory of a few hundred KiB costs a page fault for every 4 KiB: the allocator returns blocks of that size to the
operating system. Compressing 500 KB with lz4 took a sixth longer that way.
"""

from __future__ import annotations

#: Memory is kept up to this size; larger batches than this are rare.
MAX_KEPT_BYTES = 4 * 1024 * 1024
#: Sizes are multiples of this, so that a slightly larger batch needs no new memory.
_STEP_BYTES = 64 * 1024


class Workspace:
    """Two buffers, for what is compressed and for the result. Each is valid until it is requested again.

    Owned by one thread.
    """

    def __init__(self) -> None:
        self._plain = bytearray()
        self._packed = bytearray()

    def joined(self, parts: list[memoryview]) -> memoryview | bytes:
        """The bytes of all parts in one piece."""
        size = sum([len(part) for part in parts])
        if size > MAX_KEPT_BYTES:
            return b"".join(parts)
        if size > len(self._plain):
            self._plain = _new_buffer(size)
        joined = memoryview(self._plain)[:size]
        position = 0
        for part in parts:
            end = position + len(part)
            joined[position:end] = part
            position = end
        return joined

    def packed(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes for a result."""
        if size > MAX_KEPT_BYTES:
            return bytearray(size)
        if size > len(self._packed):
            self._packed = _new_buffer(size)
        return self._packed


def _new_buffer(size: int) -> bytearray:
    return bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
