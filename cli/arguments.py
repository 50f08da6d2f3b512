"""What the commands' options take."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def whole_number(at_least: int, at_most: int | None = None) -> Callable[[str], int]:
    """For argparse: reads a number within bounds, both inclusive."""
    allowed = f"at least {at_least}" if at_most is None else f"{at_least} to {at_most}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < at_least or (at_most is not None and number > at_most):
            raise argparse.ArgumentTypeError(f"{number}, where {allowed} is allowed")
        return number

    return read
