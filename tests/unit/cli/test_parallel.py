"""Blocking functions on threads that a command can abandon."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from headrace.cli.parallel import run_all, within


def test_a_result_in_time():
    assert within(lambda: 7, 60) == 7
    with pytest.raises(ZeroDivisionError):
        within(lambda: 1 // 0, 60)


def test_a_function_that_blocks_is_abandoned():
    release = threading.Event()
    with pytest.raises(TimeoutError):
        within(release.wait, 0.001)
    release.set()


def test_results_are_in_the_order_of_the_functions():
    assert run_all([partial(pow, number, 2) for number in range(50)]) == [number**2 for number in range(50)]
    assert run_all([]) == []


def test_functions_run_at_the_same_time():
    both = threading.Barrier(2, timeout=60)
    assert sorted(run_all([both.wait, both.wait])) == [0, 1]


def test_what_a_function_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        run_all([lambda: 1, lambda: 1 // 0])
