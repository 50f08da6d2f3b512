"""Methods that return a coroutine without being an ``async def``."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def coroutine_function(function: _Function) -> _Function:
    """Let `inspect.iscoroutinefunction` and `asyncio.iscoroutinefunction` be true of a method.

    Frameworks that are given a function ask one of these whether to await what it returns.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    # the function itself is the type's `__call__`, because a method that passes its arguments on costs 0.3 µs
    kind: Any = type(function.__name__, (_CoroutineFunction,), {"__call__": staticmethod(function)})
    found: Any = functools.update_wrapper(kind(), function)
    # described by `inspect`, never run
    found.__code__ = function.__code__.replace(co_flags=function.__code__.co_flags | inspect.CO_COROUTINE)
    found.__defaults__ = function.__defaults__
    found.__kwdefaults__ = function.__kwdefaults__
    return found


class _CoroutineFunction:
    """A function whose flags are those of an ``async def``: before Python 3.12 `inspect` looks at nothing else."""

    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else types.MethodType(self, instance)  # pyright: ignore[reportArgumentType]
