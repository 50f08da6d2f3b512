"""The APIs of the wire protocol: their keys, and the request class of each that has messages here."""

from __future__ import annotations

from . import messages  # declares every request there is, which fills the registry
from .api_keys import ApiKey
from .message import requests

__all__ = ["ApiKey", "messages", "requests"]
