"""The last errors of a producer's batches, for `KafkaProducer.describe`."""

from __future__ import annotations

#: The number of errors remembered.
MAX_REMEMBERED = 16


class RecentError:
    """The same error of batches of one topic. `at_ms`: when it came last, in milliseconds of the monotonic clock.

    `failed` and `retried` are the numbers of records that failed with it, and that were sent again because of it.
    """

    __slots__ = ("at_ms", "error", "failed", "retried", "topic")

    def __init__(self, topic: str, error: str, at_ms: float, failed: int, retried: int) -> None:
        self.topic = topic
        self.error = error
        self.at_ms = at_ms
        self.failed = failed
        self.retried = retried


class RecentErrors:
    """The last errors, one entry per topic and class of error. The sender thread notes them; any thread reads them."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, type[BaseException]], RecentError] = {}

    def note(self, topic: str, error: BaseException, records: int, now_ms: float, *, failed: bool) -> None:
        """Note that `records` of a topic failed with `error`, or are sent again because of it."""
        key = (topic, type(error))
        known = self._errors.pop(key, None)
        more = (records, 0) if failed else (0, records)
        if known is not None:
            more = (known.failed + more[0], known.retried + more[1])
        elif len(self._errors) >= MAX_REMEMBERED:
            del self._errors[next(iter(self._errors))]
        # the text only: an error keeps its traceback, and that the objects of its frames
        self._errors[key] = RecentError(topic, f"{type(error).__name__}: {error}", now_ms, *more)

    def latest_first(self) -> list[RecentError]:
        """The remembered errors, the latest first. Any thread."""
        return list(self._errors.values())[::-1]
