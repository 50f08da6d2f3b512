"""Requests as a broker reads them, in one step."""

from __future__ import annotations

from typing import Any

from headrace.network.protocol.api import requests
from headrace.network.protocol.codec import decode
from headrace.network.protocol.frames import MAX_REQUEST_ELEMENTS, RequestHeader, decode_request_header
from headrace.network.protocol.message import Request


def decode_request(buffer: Any) -> tuple[RequestHeader, Request]:
    """Decode a request. Raises MalformedMessageError, or UnsupportedVersionError for an API or a version."""
    header, position = decode_request_header(buffer)
    body = memoryview(buffer)[position:]
    return header, decode(requests[header.api_key], header.api_version, body, max_elements=MAX_REQUEST_ELEMENTS)
