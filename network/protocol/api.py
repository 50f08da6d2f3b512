"""The APIs of the wire protocol: their keys, and the request class of each supported one."""

from __future__ import annotations

from . import messages  # declares every request, which fills the registry
from .api_keys import ApiKey
from .message import requests

__all__ = ["ApiKey", "messages", "requests"]
