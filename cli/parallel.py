"""Runs blocking functions on daemon threads, so that Ctrl-C ends a command without waiting for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")

_MAX_THREADS = 16
_INTERVAL_S = 0.2


def within(function: Callable[[], Result], timeout_s: float) -> Result:
    """The result of a blocking function. Raises TimeoutError after `timeout_s`, and what the function raises."""
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((function(), None))
        except BaseException as error:
            done.put((None, error))

    threading.Thread(target=run, daemon=True, name="headrace-command").start()
    try:
        result, error = done.get(timeout=timeout_s)
    except Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result


def run_all(functions: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of the functions in their order, which run on up to 16 threads. Raises what one of them raises."""
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    todo: SimpleQueue[int] = SimpleQueue()
    for index in range(len(functions)):
        todo.put(index)

    def run() -> None:
        while True:
            try:
                index = todo.get_nowait()
            except Empty:
                return
            try:
                results[index] = functions[index]()
            except BaseException as error:
                failures.append(error)
                return

    threads = [
        threading.Thread(target=run, daemon=True, name="headrace-command")
        for _ in range(min(len(functions), _MAX_THREADS))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_INTERVAL_S)
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(functions))]
