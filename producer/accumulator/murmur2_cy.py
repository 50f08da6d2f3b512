# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: freethreading_compatible=True
"""The 32-bit murmur2 hash that chooses a keyed record's partition, bit for bit the same as Java's.

Source: Kafka's Utils.murmur2 and BuiltInPartitioner.partitionForKey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...network import _cython as cython

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.cfunc
@cython.exceptval(check=False)
def murmur2_of(data: bytes) -> cython.uint:
    if cython.compiled:
        source: cython.p_const_uchar = data
        return murmur2_at(source, len(data))
    return murmur2_at(data, len(data))


@cython.cfunc
@cython.exceptval(check=False)
def murmur2_at(source: cython.p_const_uchar, length: cython.Py_ssize_t) -> cython.uint:
    # The mask keeps interpreted integers to 32 bits; compiled, it costs nothing. The 32-bit constants have typed names,
    # because a literal of that size would be a Python object even in compiled code.
    mask: cython.uint = 0xFFFFFFFF
    multiplier: cython.uint = 0x5BD1E995
    seed: cython.uint = 0x9747B28C
    hashed: cython.uint = seed ^ (cython.cast(cython.uint, length) & mask)
    mixed: cython.uint
    place: cython.Py_ssize_t
    whole: cython.Py_ssize_t = length & ~3
    for place in range(0, whole, 4):
        mixed = (
            source[place]
            | (source[place + 1] << 8)
            | (source[place + 2] << 16)
            | (cython.cast(cython.uint, source[place + 3]) << 24)
        )
        mixed = (mixed * multiplier) & mask
        mixed ^= mixed >> 24
        mixed = (mixed * multiplier) & mask
        hashed = (hashed * multiplier) & mask
        hashed ^= mixed
    rest: cython.Py_ssize_t = length & 3
    if rest == 3:
        hashed ^= cython.cast(cython.uint, source[whole + 2]) << 16
    if rest >= 2:
        hashed ^= cython.cast(cython.uint, source[whole + 1]) << 8
    if rest >= 1:
        hashed ^= source[whole]
        hashed = (hashed * multiplier) & mask
    hashed ^= hashed >> 13
    hashed = (hashed * multiplier) & mask
    hashed ^= hashed >> 15
    return hashed


def murmur2(data: bytes) -> int:
    """Return the hash as an unsigned 32-bit integer (Java's is the same bits, signed). Any thread."""
    return murmur2_of(data)


def partition_for_key(serialized_key: bytes, partition_count: int) -> int:
    """Return the partition that Kafka's default partitioner chooses for a key."""
    return (murmur2_of(serialized_key) & 0x7FFFFFFF) % partition_count
