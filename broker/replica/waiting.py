"""Stands in for `broker.purgatory` until that has landed."""

from __future__ import annotations

import threading


class DelayedOperation:
    def __init__(self, delay_ms: float) -> None:
        self.delay_ms = delay_ms
        self._lock = threading.RLock()
        self._done = False
        self._timer: threading.Timer | None = None

    def try_complete(self) -> bool:
        raise TypeError

    def on_complete(self) -> None:
        raise TypeError

    def on_expiration(self) -> None:
        raise TypeError

    def force_complete(self) -> bool:
        with self._lock:
            if self._done:
                return False
            self._done = True
        if self._timer is not None:
            self._timer.cancel()
        self.on_complete()
        return True

    def run(self) -> None:
        if self.force_complete():
            self.on_expiration()


class DelayedOperationPurgatory:
    def __init__(self, name: str, timer: object) -> None:
        self._watched: dict[object, list[DelayedOperation]] = {}

    def try_complete_else_watch(self, operation: DelayedOperation, keys: list) -> bool:
        if operation.try_complete():
            return True
        for key in keys:
            self._watched.setdefault(key, []).append(operation)
        if operation.try_complete():
            return True
        operation._timer = threading.Timer(operation.delay_ms / 1000.0, operation.run)
        operation._timer.daemon = True
        operation._timer.start()
        return False

    def check_and_complete(self, key: object) -> None:
        watched = self._watched.pop(key, None)
        if not watched:
            return
        left = [each for each in watched if not each._done and not each.try_complete()]
        if left:
            self._watched.setdefault(key, []).extend(left)

    def close(self) -> None:
        pass
