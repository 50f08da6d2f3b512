"""A request for metadata, with the context for its response."""

from __future__ import annotations

from .protocol.messages.topics.metadata import MetadataRequest


class MetadataFetch:
    """What `Metadata.next_fetch` returns and `Metadata.update` takes back with the response.

    `request_version` and `fresh_requests` are the counters of requests for new topics and for fresh metadata when it
    was created. `is_partial` means that it covers only new topics and those to be requested again.
    """

    __slots__ = ("fresh_requests", "is_partial", "message", "request_version")

    def __init__(self, message: MetadataRequest, request_version: int, fresh_requests: int, is_partial: bool) -> None:
        self.message = message
        self.request_version = request_version
        self.fresh_requests = fresh_requests
        self.is_partial = is_partial
