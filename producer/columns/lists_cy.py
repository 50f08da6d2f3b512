# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
# pyright: reportIndexIssue=false
"""The loops over the lists of `KafkaProducer.send_many`: their checks."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython
from ...network.protocol.errors import EncodeError, IllegalArgumentError
from ...network.records.headers_cy import encode_headers
from ..record_errors import invalid_headers, not_bytes, row_error

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not cython.compiled:
    from ...network.records.headers_cy import pack_headers
elif not TYPE_CHECKING:
    from cython.cimports.headrace.network.records.headers_cy import pack_headers

# A partition is a 32-bit number, so no larger one exists either.
LARGEST = 2**63 - 1


def checked_bytes(items: tuple[Any, ...], part: str, topic: str) -> tuple[tuple[bytes | None, ...], int]:
    """The items as bytes or None, and the size of the largest. `part` is "key" or "value".

    Raises RowDeliveryError for the first item of another type.
    """
    item: object
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    largest: cython.Py_ssize_t = 0
    for row in range(len(items)):
        item = items[row]
        if type(item) is bytes:
            size = len(cython.cast(bytes, item))
            largest = max(largest, size)
        elif item is not None:
            return checked_bytes(
                tuple([_bytes_of(each, part, topic, at) for at, each in enumerate(items)]), part, topic
            )
    return items, largest


def _bytes_of(item: Any, part: str, topic: str, row: int) -> bytes | None:
    if item is None or type(item) is bytes:
        return item
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    cause = not_bytes(part, item, topic)
    raise row_error(row, topic, -1, cause) from cause


def packed_headers(items: tuple[Any, ...], topic: str) -> tuple[tuple[bytes | None, ...], int]:
    """The encoded header list of each record, None for no headers, and the size of the largest.

    Raises RowDeliveryError for the first item that is not headers.
    """
    packed: list[bytes | None] = []
    headers: object
    encoded: bytes | None
    row: cython.Py_ssize_t
    largest: cython.Py_ssize_t = 0
    for row in range(len(items)):
        headers = items[row]
        encoded = None if headers is None else pack_headers(headers)
        if encoded is None and headers:
            try:
                encoded = encode_headers(headers)  # pyright: ignore[reportArgumentType]
            except (EncodeError, UnicodeEncodeError) as wrong:
                cause = invalid_headers(headers, topic, wrong)
                raise row_error(row, topic, -1, cause) from cause
        if encoded is None or len(encoded) == 0:
            packed.append(None)
        else:
            largest = max(largest, len(encoded))
            packed.append(encoded)
    return tuple(packed), largest


def checked_numbers(items: tuple[Any, ...], check: Callable[[Any], int], topic: str) -> array[int]:
    """The items as 64-bit integers, -1 for None. Raises RowDeliveryError for the first that `check` rejects."""
    numbers_array = array("q", bytes(8 * len(items)))
    numbers: cython.longlong[::1] = numbers_array  # pyright: ignore
    item: object
    row: cython.Py_ssize_t
    for row in range(len(items)):
        item = items[row]
        if item is None:
            numbers[row] = -1
            continue
        try:
            numbers[row] = min(check(item), LARGEST)
        except IllegalArgumentError as cause:
            raise row_error(row, topic, -1, cause) from cause
    return numbers_array
