"""The terminal command ``headrace``: thin, and the only place that knows both the producer and the broker."""

from .main import main

__all__ = ["main"]
