"""The terminal command ``headrace``. Thin, and the only package that imports both the producer and the broker."""

from .main import main

__all__ = ["main"]
