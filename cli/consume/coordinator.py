"""Requests to the coordinator of a consumer group, which may be starting, moving or out of reach for a while."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ...network.acl_advice import missing_acl
from ...network.clock import SYSTEM_CLOCK, Clock
from ...network.protocol.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    NotCoordinatorError,
    make_error,
)
from ...network.protocol.message import Request
from ...network.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ..client import Client

Result = TypeVar("Result")

_PATIENCE_MS = 30_000.0
_PAUSE_MS = 100.0
_MOVED = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)
#: The errors after which a later request may find the coordinator.
COORDINATOR_LOST = (*_MOVED, KafkaConnectionError)


class Coordinator:
    """Finds the coordinator of one group, and asks it one request at a time.

    Any thread may call it. `lock` is held during a request; its owner may hold it across several. `client` is for
    nobody else.
    """

    def __init__(self, client: Client, group: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self.client = client
        self.group = group
        self.clock = clock
        self.lock = threading.RLock()
        self._node_id: int | None = None

    def request(self, request: Request, *, patience_ms: float = _PATIENCE_MS) -> Any:
        """The response to a request that has one error code, which may be any but those of `COORDINATOR_LOST`.

        Raises KafkaError.
        """

        def send(node_id: int) -> Any:
            answer = self.client.ask(request, node_id)
            error = make_error(answer.error_code) if answer.error_code else None
            if isinstance(error, _MOVED):
                raise self.error(answer.error_code)
            return answer

        return self.ask(send, patience_ms=patience_ms)

    def ask(self, send: Callable[[int], Result], *, patience_ms: float = _PATIENCE_MS) -> Result:
        """What `send` returns, which is called with the coordinator's id, again if that is lost. Raises KafkaError."""
        with self.lock:
            deadline_ms = self.clock.now_ms() + patience_ms
            while True:
                try:
                    if self._node_id is None:
                        self._node_id = self._find()
                    return send(self._node_id)
                except COORDINATOR_LOST:
                    self._node_id = None
                    if self.clock.now_ms() >= deadline_ms:
                        raise
                    self.clock.sleep(_PAUSE_MS)

    def error(self, code: int, advice: str | None = None) -> KafkaError:
        """The error of a code, with the group's name, and what to do about it."""
        error = make_error(code)
        if isinstance(error, GroupAuthorizationFailedError):
            advice = missing_acl("READ", "GROUP", self.group)
        return make_error(code, f"group {self.group}: {advice or error}")

    def _find(self) -> int:
        if self.client.version_of(FindCoordinatorRequest) >= FindCoordinatorRequest.FIRST_VERSION_WITH_KEYS:
            found = self.client.ask(FindCoordinatorRequest(coordinator_keys=[self.group])).coordinators[0]
        else:
            found = self.client.ask(FindCoordinatorRequest(key=self.group))
        if found.error_code:
            raise self.error(found.error_code)
        with contextlib.suppress(KafkaError):
            # it may have joined the cluster since
            self.client.metadata([])
        node_id: int = found.node_id
        return node_id
