"""The faults that a test can inject into a request."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ...network.config import INT32_MAX
from ...network.protocol.errors import BrokerResponseError, IllegalArgumentError
from ...network.protocol.message import Response

#: Each determines the fate of the response, so they exclude each other.
_ENDINGS = ("close", "lose_answer", "silent", "cut_after_bytes", "half_close")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault for one request; at least one field must be given.

    error: the error class to answer the whole request with; with `topic` (and `partition`) only that part of it.
    Nothing is appended or read there. topic, partition: the fault matches only requests that name them. response: sent
    instead of handling the request. delay_ms: the delay of the response in milliseconds, which also delays later
    responses on the connection. throttle_ms: the throttle time in the response.

    At most one of these may be given: close (the request isn't handled and the connection is closed), lose_answer
    (handled, but the connection is closed instead of responding), silent (handled, but no response is sent),
    cut_after_bytes (handled, and the connection is closed after that many bytes of the response), half_close (handled
    and answered, then the broker's half of the connection is closed).

    Raises IllegalArgumentError for a fault that does nothing, for fields that exclude each other, and for wrong values.
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

    def __post_init__(self) -> None:
        self._check_values()
        given = [each.name for each in fields(self) if getattr(self, each.name) not in (None, False, 0)]
        if self.cut_after_bytes == 0:
            given.append("cut_after_bytes")
        actions = [name for name in given if name not in ("topic", "partition")]
        if not actions:
            wanted = f"only {' and '.join(given)}" if given else "nothing"
            raise IllegalArgumentError(
                f"the fault has {wanted}, so it does nothing; give it error, response, delay_ms, throttle_ms or one of "
                f"{', '.join(_ENDINGS)}"
            )
        endings = [name for name in actions if name in _ENDINGS]
        if len(endings) > 1:
            raise IllegalArgumentError(f"{' and '.join(endings)} exclude each other; give one of them")
        if self.close and len(actions) > 1:
            others = " and ".join(name for name in actions if name != "close")
            raise IllegalArgumentError(f"close leaves the request unhandled, so {others} would do nothing; give one")
        if self.response is not None and self.error is not None:
            raise IllegalArgumentError(
                "response is the whole answer, so error would do nothing; put it in the response"
            )
        if self.partition is not None and self.topic is None:
            raise IllegalArgumentError(f"partition {self.partition} has no topic; give topic, too")

    def _check_values(self) -> None:
        error, response = self.error, self.response
        if error is not None and not (
            isinstance(error, type) and issubclass(error, BrokerResponseError) and error.errno is not None
        ):
            raise IllegalArgumentError(
                f"error is {_shown(error)}; give the class of an error that brokers return, such as "
                "headrace.producer.errors.NotLeaderForPartitionError"
            )
        if response is not None and not isinstance(response, Response):
            raise IllegalArgumentError(f"response is {_shown(response)}; give a Response")
        if self.topic is not None and (not isinstance(self.topic, str) or not self.topic):
            raise IllegalArgumentError(f"topic is {_shown(self.topic)}; give a topic's name")
        if not _is_number(self.delay_ms) or not 0 <= self.delay_ms < math.inf:
            raise IllegalArgumentError(f"delay_ms is {_shown(self.delay_ms)}; give a number of milliseconds, 0 or more")
        for name, value, most in (
            ("partition", self.partition, INT32_MAX),
            ("throttle_ms", self.throttle_ms, INT32_MAX),
            ("cut_after_bytes", self.cut_after_bytes, None),
        ):
            if value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= (most or value)
            ):
                raise IllegalArgumentError(f"{name} is {_shown(value)}; give a whole number, 0 or more")
        for name in ("close", "lose_answer", "silent", "half_close"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise IllegalArgumentError(f"{name} is {_shown(value)}; give True or False")

    def error_for(self, topic: str, partition: int | None) -> type[BrokerResponseError] | None:
        """The error for a part of the request, if this fault has one."""
        if self.error is None or (self.topic is not None and self.topic != topic):
            return None
        return self.error if self.partition in (None, partition) or partition is None else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    return f"{value!r} ({type(value).__name__})"
