# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: freethreading_compatible=True
"""JSON values by orjson, where its output means the same as the json module's."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from ...network import _cython as cython

if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
    import cython


@cython.final
@cython.cclass
class FastJson:
    """A function data -> JSON in UTF-8 that calls orjson, and the json module where orjson can't do it or differs.

    orjson rejects integers of more than 64 bits and keys that aren't strings, among others. It writes NaN and
    infinities as null.
    """

    _dumps: Callable
    _options: object
    _encode: Callable

    def __init__(self, dumps: Callable[..., bytes], options: int, encode: Callable[[Any], bytes]) -> None:
        """Call `dumps`, which is ``orjson.dumps``, with its `options`; call `encode` for the rest."""
        self._dumps = dumps
        self._options = options
        self._encode = encode

    def __call__(self, data: Any) -> bytes:
        """Return the JSON of `data`. Raises what the json module raises."""
        output: bytes
        try:
            output = self._dumps(data, None, self._options)
        except TypeError:
            return self._encode(data)
        if b"null" in output and _holds_no_number(data):
            return self._encode(data)
        return output


@cython.cfunc
def _holds_no_number(data: Any) -> cython.bint:
    """Whether there is a NaN or an infinity in `data`, which orjson has encoded."""
    if type(data) is float:
        number: cython.double = data
        return number - number != 0.0
    if type(data) is dict:
        for item in cython.cast(dict, data).values():
            if _holds_no_number(item):
                return True
    elif type(data) is list or type(data) is tuple:
        for item in data:
            if _holds_no_number(item):
                return True
    elif isinstance(data, Enum):
        return _holds_no_number(data.value)
    return False
