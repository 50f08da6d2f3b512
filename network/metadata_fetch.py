"""A request for metadata, with the context for its response."""

from __future__ import annotations

from typing import NamedTuple

from .protocol.messages.topics.metadata import MetadataRequest


class MetadataFetch(NamedTuple):
    """What `Metadata.next_fetch` returns and `Metadata.update` takes back with the response.

    `request_version` and `fresh_requests` are the counters of requests for new topics and for fresh metadata when it
    was created. `is_partial` means that it covers only new topics and those to be requested again.
    """

    message: MetadataRequest
    request_version: int
    fresh_requests: int
    is_partial: bool
