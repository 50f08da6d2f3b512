"""A request for topics that waits until each of their partitions has a leader (Kafka's `DelayedCreateTopics`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from ...metadata import ClusterImage
from ...purgatory import DelayedOperation


class DelayedCreateTopics(DelayedOperation):
    """Completes when every partition of every topic has a live leader in this broker's image.

    `respond` is called exactly once, with the topics that are not ready: none, unless the operation expired.
    """

    __slots__ = ("_image", "_respond", "_topics")

    def __init__(
        self,
        timeout_ms: float,
        topics: Collection[str],
        image: Callable[[], ClusterImage],
        respond: Callable[[list[str]], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._topics = topics
        self._image = image
        self._respond = respond

    def _not_ready(self) -> Iterator[str]:
        image = self._image()
        for name in self._topics:
            state = image.topics.get(name)
            if state is None or any(partition.leader not in image.brokers for partition in state.partitions):
                yield name

    def try_complete(self) -> bool:
        return next(self._not_ready(), None) is None and self.force_complete()

    def on_complete(self) -> None:
        self._respond(list(self._not_ready()))
