# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""The encoded header list of a record.

`pack_headers` is what the per-record path calls: two passes over the pairs, one for the size and one to write, into one
bytes object of that size. `encode_headers` takes any iterable and raises an error that says what is wrong.

Source: Kafka's DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import _cython as cython
from ..protocol.errors import EncodeError

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython

if not TYPE_CHECKING and cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
    from cython.cimports.libc.string import memcpy

_DICT_ITEMS: object = type({}.items())
_NO_HEADERS = b"\0"


@cython.cfunc
def pack_headers(headers: object) -> bytes | None:
    """The encoded header list; ``b""`` if `headers` is empty; None if `encode_headers` has to look at it.

    `headers`: a list or tuple of pairs, or the items of a dict. Nothing else is packed, because an iterator could not
    be read a second time. Runs no user code.
    """
    pairs: tuple
    # a copy: another thread may change a list between the passes
    if type(headers) is tuple:
        pairs = headers
    elif type(headers) is list or type(headers) is _DICT_ITEMS:
        pairs = tuple(headers)  # pyright: ignore[reportArgumentType]
    else:
        return None
    if not pairs:
        return b""
    try:
        return _pack(pairs)
    except UnicodeEncodeError:
        return None


def encode_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """The encoded header list of a record.

    Raises EncodeError if a header is not a pair of a string and bytes or None, and UnicodeEncodeError for a name that
    is not valid text.
    """
    try:
        pairs = list(headers)
    except TypeError:
        raise EncodeError(f"headers must be a list of pairs, not {type(headers).__name__}") from None
    if not pairs:
        return _NO_HEADERS
    return _pack(tuple([_checked(pair) for pair in pairs]))  # pyright: ignore[reportReturnType]


def _checked(pair: Any) -> tuple[str, bytes | None]:
    try:
        name, value = pair
    except (TypeError, ValueError):
        raise EncodeError(f"a header must be a pair of a string and bytes, not {pair!r}") from None
    if not isinstance(name, str):
        raise EncodeError(f"the name of a header must be a string, not {type(name).__name__}")
    if value is None or type(value) is bytes:
        return name, value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return name, bytes(value)
    raise EncodeError(f"the value of header {name!r} must be bytes or None, not {type(value).__name__}")


@cython.cfunc
def _pack(pairs: tuple) -> bytes | None:
    """Encode the pairs; None if one is no tuple of a string and bytes or None, with its bytes in a bytes object."""
    item: object
    pair: tuple
    name: object
    value: object
    length: cython.Py_ssize_t = 0
    total: cython.Py_ssize_t = _size_of_varint(len(pairs))
    for item in pairs:
        if type(item) is not tuple:
            return None
        pair = item
        if len(pair) != 2:
            return None
        name = pair[0]
        value = pair[1]
        if not isinstance(name, str):
            return None
        if cython.compiled:
            # a name that isn't ASCII keeps its UTF-8
            PyUnicode_AsUTF8AndSize(name, cython.address(length))  # pyright: ignore
        else:
            length = len(name.encode())
        total += _size_of_varint(length) + length
        if value is None:
            total += 1
        elif type(value) is bytes:
            length = len(value)
            total += _size_of_varint(length) + length
        else:
            return None
    return _written(pairs, total)


@cython.cfunc
def _written(pairs: tuple, total: cython.Py_ssize_t) -> bytes:
    """Write pairs that `_pack` has checked, `total` bytes."""
    pair: tuple
    value: bytes | None
    if not cython.compiled:
        out = bytearray()
        _extend_varint(out, len(pairs))
        for name, value in pairs:
            text = name.encode()
            _extend_varint(out, len(text))
            out += text
            if value is None:
                out.append(1)
            else:
                _extend_varint(out, len(value))
                out += value
        return bytes(out)
    length: cython.Py_ssize_t = 0
    source: cython.p_const_char
    encoded: bytes = PyBytes_FromStringAndSize(cython.NULL, total)  # pyright: ignore
    target: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(encoded))  # pyright: ignore
    target = _put_varint(target, len(pairs))
    for pair in pairs:
        source = PyUnicode_AsUTF8AndSize(pair[0], cython.address(length))  # pyright: ignore
        target = _put_varint(target, length)
        memcpy(target, source, length)  # pyright: ignore
        target += length
        value = pair[1]
        if value is None:
            target[0] = 1  # the varint of -1
            target += 1
        else:
            source = value
            length = len(value)
            target = _put_varint(target, length)
            memcpy(target, source, length)  # pyright: ignore
            target += length
    return encoded


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_of_varint(value: cython.Py_ssize_t) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 1
    while value >= 0x40:
        value >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(target: cython.p_uchar, value: cython.Py_ssize_t) -> cython.p_uchar:
    """Write the varint of a size and return the address after it."""
    rest: cython.size_t = cython.cast(cython.size_t, value) << 1
    while rest >= 0x80:
        target[0] = (rest & 0x7F) | 0x80
        rest >>= 7
        target += 1  # pyright: ignore[reportOperatorIssue]
    target[0] = rest
    return target + 1  # pyright: ignore[reportOperatorIssue]


def _extend_varint(out: bytearray, value: int) -> None:
    rest = value << 1
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
