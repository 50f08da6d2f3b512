"""What a test can have done to a request."""

from __future__ import annotations

from dataclasses import dataclass

from ...network.protocol.errors import BrokerResponseError
from ...network.protocol.message import Response


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to one request. Without any field set it is handled as ever.

    error: for all of it, or, with `topic` (and `partition`), for that part only; nothing is appended or read there.
    response: sent instead of handling the request. delay_ms: the answer (and those behind it on the connection) waits.
    throttle_ms: told to the client as its throttle time. Of these at most one decides about the answer: close (the
    request isn't handled, the connection ends), lose_answer (handled, then the connection ends), silent (handled, no
    answer ever), cut_after_bytes (handled, the answer's first bytes, then the connection ends), half_close (handled and
    answered, then the broker's half of the connection ends).
    """

    error: type[BrokerResponseError] | None = None
    topic: str | None = None
    partition: int | None = None
    response: Response | None = None
    delay_ms: float = 0
    throttle_ms: int = 0
    close: bool = False
    lose_answer: bool = False
    silent: bool = False
    cut_after_bytes: int | None = None
    half_close: bool = False

    def error_for(self, topic: str, partition: int | None) -> type[BrokerResponseError] | None:
        """The error that this part of the request gets."""
        if self.error is None or (self.topic is not None and self.topic != topic):
            return None
        return self.error if self.partition in (None, partition) or partition is None else None
