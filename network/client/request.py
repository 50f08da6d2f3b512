"""Requests and responses, and what a sender uses of a client, and a client of a selector."""

from __future__ import annotations

from ..sockets.selector_base_cy import ClientSelector
from .request_cy import ClientRequest, ClientResponse, KafkaClient

__all__ = ["ClientRequest", "ClientResponse", "ClientSelector", "KafkaClient"]
