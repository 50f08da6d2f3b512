"""What the hot modules use of ``cython`` when they run interpreted: decorators that change nothing, types as names.

A hot module begins with::

    from ..network import _cython as cython

    if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
        import cython

The interpreter keeps this module, whose `compiled` is False, and never runs the second import: whether Cython is
installed makes no difference to it. Cython acts on ``import cython`` when it compiles, wherever that stands, and from
there on takes ``cython`` for its own, where ``cython.compiled`` is true. That is why the condition above stands alone:
what is compiled or interpreted otherwise belongs into an ``if cython.compiled`` of its own, below it.

``not TYPE_CHECKING`` keeps what is Cython's from type checkers, a user's too: a class that comes from either of two
imports, or stands below a decorator of an unknown module, would be of no known type in the user's program. To Cython
it is a condition like any other, and none that keeps it from an import.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

_T = TypeVar("_T")

compiled = False


def _unchanged(target: _T) -> _T:
    return target


def _decorator(*_arguments: object, **_options: object) -> Callable[[_T], _T]:
    return _unchanged


cclass = ccall = cfunc = inline = final = no_gc = _unchanged
exceptval = freelist = _decorator


def declare(_type: object = None, **_options: object) -> Any:
    """A class attribute's C type: means nothing to the interpreter, which finds the attribute set by ``__init__``."""


def cast(_type: type[_T], value: Any) -> _T:
    """The value itself: C types mean nothing to the interpreter."""
    return value


def address(_value: object) -> Any:
    """Raises TypeError: an address exists only in compiled code, behind ``if cython.compiled``."""
    raise TypeError("an address exists only in compiled code: ask cython.compiled first")


# The names of the C types that the hot modules annotate with. Cython has the sizes, the interpreter the kinds.
bint: TypeAlias = bool
int: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
Py_ssize_t: TypeAlias = builtins.int
double: TypeAlias = float
p_const_char: TypeAlias = bytes
p_const_uchar: TypeAlias = bytes
