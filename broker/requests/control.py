"""Fault injection: handlers that see the requests of a cluster's brokers and make them go wrong.

A handler is called before a request is handled, on the thread that handles it, and may return a `Fault`. The hook is
modeled on franz-go's kfake; the ready-made faults are those that a producer has to survive.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ...network.protocol.api import ApiKey
from ...network.protocol.message import Request
from .faults import Fault
from .request import RequestContext

#: The number of recent requests that a cluster remembers.
REQUESTS_KEPT = 10_000


class RequestSeen(NamedTuple):
    """A request that reached a broker."""

    node_id: int
    api_key: ApiKey
    api_version: int
    client_id: str | None
    correlation_id: int
    connection_id: str
    size_bytes: int
    received_ms: float


#: Called with a request before it is handled, on the thread that handles it; returns the fault to apply, if any.
Handler = Callable[[RequestContext, Request], "Fault | None"]


class Registration:
    """A registered handler. `remove()` removes it; a `with` statement does so at its end.

    fault: the fault that it applies; None for a function that decides per request. number: identifies it in its
    cluster.
    """

    def __init__(
        self,
        control: Control,
        number: int,
        api_key: ApiKey | None,
        handler: Handler,
        times: int | None,
        node_id: int | None,
        fault: Fault | None,
    ) -> None:
        self._control = control
        self.number = number
        self.fault = fault
        self.api_key = api_key
        self.handler = handler
        self.remaining = times
        self.node_id = node_id
        self.hits = 0

    def remove(self) -> None:
        self._control.remove(self)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Control:
    """The handlers of a cluster and the requests it has seen. Any thread; one lock, not held while a handler runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registrations: tuple[Registration, ...] = ()
        self._numbers = itertools.count()
        self.requests: deque[RequestSeen] = deque(maxlen=REQUESTS_KEPT)
        self.counts: Counter[ApiKey] = Counter()
        # The highest version advertised and accepted, by API, to act as an older broker; None: as built.
        self.max_versions: dict[ApiKey, int] | None = None

    @property
    def has_features(self) -> bool:
        """Whether clients are shown the cluster's features: the older releases have none that clients know."""
        return self.max_versions is None

    def add(
        self,
        api_key: ApiKey | None,
        handler: Handler,
        *,
        times: int | None = None,
        node_id: int | None = None,
        fault: Fault | None = None,
    ) -> Registration:
        """Register `handler` for the requests of an API (None: all), on one broker or all; at most `times` faults.
        `fault` is the only one that it returns, if that is known."""
        registration = Registration(self, next(self._numbers), api_key, handler, times, node_id, fault)
        with self._lock:
            self._registrations = (*self._registrations, registration)
        return registration

    def fault(
        self,
        api_key: ApiKey | None,
        fault: Fault,
        *,
        times: int | None = 1,
        node_id: int | None = None,
        claim: Callable[[], bool] | None = None,
    ) -> Registration:
        """Apply a fault to the next `times` requests (None: until removed). If the fault has a topic, only requests
        that name it match. `claim`, if given, is called for each match and decides whether the fault applies."""

        def decide(context: RequestContext, message: Request) -> Fault | None:
            if fault.topic is not None and not _names(message, context, fault.topic, fault.partition):
                return None
            return fault if claim is None or claim() else None

        return self.add(api_key, decide, times=times, node_id=node_id, fault=fault)

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """The registered handlers, in the order in which they are asked."""
        return self._registrations

    def remove(self, registration: Registration) -> None:
        with self._lock:
            self._registrations = tuple(each for each in self._registrations if each is not registration)

    def clear(self) -> None:
        """Remove all handlers."""
        with self._lock:
            self._registrations = ()

    def seen(self, request: RequestSeen) -> None:
        with self._lock:
            self.requests.append(request)
            self.counts[request.api_key] += 1

    def recent(self) -> list[RequestSeen]:
        """The last requests, oldest first."""
        with self._lock:
            return list(self.requests)

    def intercept(self, context: RequestContext, message: Request) -> Fault | None:
        """The fault for a request, from the first handler that returns one."""
        for registration in self._registrations:
            if registration.api_key not in (None, context.api_key) or registration.node_id not in (
                None,
                context.node_id,
            ):
                continue
            if registration.remaining == 0:
                continue
            fault = registration.handler(context, message)
            if fault is None:
                continue
            with self._lock:
                if registration.remaining == 0:
                    continue
                registration.hits += 1
                if registration.remaining is not None:
                    registration.remaining -= 1
            return fault
        return None


#: The names of the fields in which requests have topics, at the top level or within groups.
_TOPIC_FIELDS = ("topic_data", "topics", "topic_names", "topic_partitions", "resources", "v3_and_below_topics")
#: The names of the fields with parts that have topics.
_NESTING_FIELDS = ("transactions", "markers")
#: The names of the fields in which a topic has its partitions.
_PARTITION_FIELDS = ("partition_data", "partitions", "partition_indexes")


def names_topics(request: type[Request]) -> bool:
    """Whether requests of this class name topics, so that a fault can be for one topic."""
    return any(hasattr(request, name) for name in (*_TOPIC_FIELDS, *_NESTING_FIELDS))


def _names(message: Any, context: RequestContext, topic: str, partition: int | None) -> bool:
    """Whether a request (or a part of it) names a topic (and partition), in any of its fields."""
    for name in ("groups", *_NESTING_FIELDS):
        if any(_names(part, context, topic, partition) for part in getattr(message, name, ())):
            return True
    for part in itertools.chain.from_iterable(getattr(message, name, None) or () for name in _TOPIC_FIELDS):
        if _topic_of(part, context) != topic:
            continue
        within = next((found for name in _PARTITION_FIELDS if (found := getattr(part, name, None))), None)
        if partition is None or within is None or partition in map(_number_of, within):
            return True
    return False


def _topic_of(part: Any, context: RequestContext) -> str | None:
    if isinstance(part, str):
        return part
    for name in ("name", "topic", "resource_name"):
        topic = getattr(part, name, None)
        if topic:
            return topic
    return context.topic_name(getattr(part, "topic_id", None))


def _number_of(part: Any) -> int:
    for name in ("index", "partition", "partition_index"):
        if hasattr(part, name):
            return getattr(part, name)
    return part
