"""The part of ``cython`` that interpreted hot modules use: decorators that change nothing, and names of types.

A hot module begins with::

    from ..network import _cython as cython

    if not TYPE_CHECKING and cython.compiled:  # read by Cython only: see network/_cython.py
        import cython

The interpreter keeps this module, whose `compiled` is False, and never runs the second import, whether or not Cython is
installed. Cython acts on ``import cython`` at compile time, wherever it is. From there on ``cython`` is its own module,
where ``cython.compiled`` is true. The condition above must therefore stand alone: other code for only one of the two
goes below it, into an ``if cython.compiled`` of its own.

``not TYPE_CHECKING`` hides Cython's module from type checkers, including a user's. A class from either of two imports,
or with a decorator of an unknown module, would have no known type in the user's program. Cython ignores the condition
for imports.
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


class _NoGil:
    """`cython.nogil` as a decorator and as a context: the interpreter keeps the lock."""

    def __call__(self, function: _T) -> _T:
        return function

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class _NoSection:
    """`cython.critical_section`: an interpreter without the GIL guards each attribute of a Python object itself."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


_no_section = _NoSection()


def critical_section(_object: object) -> _NoSection:
    """Nothing: with the GIL it is nothing in compiled code either."""
    return _no_section


nogil = _NoGil()
cclass = ccall = cfunc = inline = final = no_gc = _unchanged
exceptval = freelist = _decorator


def declare(_type: object = None, **_options: object) -> Any:
    """The C type of a class attribute. The interpreter ignores it, because ``__init__`` sets the attribute."""


def cast(_type: type[_T], value: Any) -> _T:
    """The value itself: the interpreter ignores C types."""
    return value


def address(_value: object) -> Any:
    """Raises TypeError: an address exists only in compiled code, behind ``if cython.compiled``."""
    raise TypeError("an address exists only in compiled code: check cython.compiled first")


# The C types in the annotations of the hot modules, as the Python types that the interpreter uses.
bint: TypeAlias = bool
int: TypeAlias = builtins.int
uint: TypeAlias = builtins.int
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = builtins.int
Py_ssize_t: TypeAlias = builtins.int
double: TypeAlias = float
p_const_char: TypeAlias = bytes
p_const_uchar: TypeAlias = bytes
p_uchar: TypeAlias = Any
p_void: TypeAlias = Any
size_t: TypeAlias = builtins.int
