"""Modules of other packages that the extras of this package install."""

from __future__ import annotations

import importlib
from typing import Any

from .protocol.errors import KafkaConfigurationError


def optional_module(name: str, extra: str, needed_for: str) -> Any:
    """A module that an extra of this package installs. Raises KafkaConfigurationError with the command to do so."""
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise KafkaConfigurationError(
            f"{needed_for} needs {name.partition('.')[0]}, which can't be imported ({missing}): "
            f"pip install 'headrace[{extra}]'"
        ) from missing
