"""What every cluster of brokers has, whichever processes they run in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ...network.protocol.errors import IllegalStateError
from ..controller.controller import Controller


class ClusterBase(ABC):
    """The part that the controller answers. Any thread."""

    @property
    @abstractmethod
    def controller(self) -> Controller:
        """Raises IllegalStateError before `start` and after `close`."""

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic. Raises what `Controller.create_topic` raises."""
        self.controller.create_topic(
            name, num_partitions=num_partitions, replication_factor=replication_factor, configs=configs
        )

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads a partition; -1: none. Raises IllegalStateError where there is no such partition."""
        state = self.controller.image.partition(topic, partition)
        if state is None:
            raise IllegalStateError(f"there is no partition {topic}-{partition}")
        return state.leader

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make an in-sync replica the leader."""
        self.controller.move_leader(topic, partition, node_id)
