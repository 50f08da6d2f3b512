"""A request for topics that waits until each of their partitions has a leader (Kafka's `DelayedCreateTopics`)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from .metadata import ClusterImage
from .purgatory import DelayedOperation


class DelayedCreateTopics(DelayedOperation):
    """Completes when this broker's image has every topic with a leader that is alive for every partition.

    `respond` is called exactly once, with the topics that are not ready: none, unless the time was over before.
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

    def _not_ready(self) -> list[str]:
        image = self._image()
        return [
            name
            for name in self._topics
            if (state := image.topics.get(name)) is None
            or any(partition.leader not in image.brokers for partition in state.partitions)
        ]

    def try_complete(self) -> bool:
        return not self._not_ready() and self.force_complete()

    def on_complete(self) -> None:
        self._respond(self._not_ready())
