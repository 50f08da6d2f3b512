"""What the hot modules use of ``cython`` when they run interpreted and Cython isn't installed.

Decorators leave their function or class as it is and types are only names, so that one source serves both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

compiled = False


def _unchanged(target: _T) -> _T:
    return target


def _decorator(*_arguments: object, **_options: object) -> Callable[[_T], _T]:
    return _unchanged


cclass = cfunc = inline = final = no_gc = _unchanged
exceptval = freelist = _decorator


def declare(_type: object = None, **_options: object) -> Any:
    """A class attribute's C type: means nothing to the interpreter, which finds the attribute set by ``__init__``."""


def cast(_type: object, value: Any) -> Any:
    """The value itself: C types mean nothing to the interpreter."""
    return value


def address(_value: object) -> Any:
    raise TypeError("an address exists only in compiled code: ask cython.compiled first")


# The names of the C types the hot modules annotate with.
bint = bool
int = longlong = uint = ulonglong = uchar = char = double = Py_ssize_t = p_char = p_const_char = p_const_uchar = Any
