"""The move of a partition's replicas to other brokers, step by step (KIP-455).

During a move the partition has both the replicas to add (`adding`) and those to remove (`removing`), the latter at the
end. When all added replicas are in sync, the removed ones are dropped. These functions compute states only; the
controller stores and publishes them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...network.protocol.other_errors import InvalidReplicationAssignmentError, NoReassignmentInProgressError
from ..metadata import NO_LEADER, PartitionState


def begin(partition: PartitionState, target: Sequence[int], alive: Collection[int]) -> PartitionState:
    """Begin the move to `target`. It is already complete if all of `target` are in sync."""
    settled = [node for node in partition.replicas if node not in partition.adding]
    removing = tuple(node for node in partition.replicas if node not in target)
    adding = tuple(node for node in target if node not in settled)
    moving = partition._replace(
        replicas=(*target, *removing),
        adding=adding,
        removing=removing,
        partition_epoch=partition.partition_epoch + 1,
    )
    return complete(moving, alive)


def complete(partition: PartitionState, alive: Collection[int]) -> PartitionState:
    """Drop the removed replicas if all added ones are in sync; otherwise return the partition unchanged."""
    if not partition.is_moving:
        return partition
    target = tuple(node for node in partition.replicas if node not in partition.removing)
    isr = tuple(node for node in target if node in partition.isr)
    if any(node not in isr for node in partition.adding) or not any(node in alive for node in isr):
        return partition
    return _settled(partition, target, isr, alive)


def cancel(partition: PartitionState, alive: Collection[int]) -> PartitionState:
    """Drop the added replicas. Raises NoReassignmentInProgressError, InvalidReplicationAssignmentError if only added
    replicas are in sync."""
    if not partition.is_moving:
        raise NoReassignmentInProgressError("the partition has no reassignment in progress")
    replicas = tuple(node for node in partition.replicas if node not in partition.adding)
    isr = tuple(node for node in partition.isr if node not in partition.adding)
    if not isr:
        raise InvalidReplicationAssignmentError(
            f"only added replicas are in sync ({list(partition.isr)}); without them acknowledged records would be lost"
        )
    return _settled(partition, replicas, isr, alive)._replace(partition_epoch=partition.partition_epoch + 1)


def _settled(
    partition: PartitionState, replicas: tuple[int, ...], isr: tuple[int, ...], alive: Collection[int]
) -> PartitionState:
    leader = partition.leader
    if leader not in isr or leader not in alive:
        leader = next((node for node in replicas if node in isr and node in alive), NO_LEADER)
    return partition._replace(
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        adding=(),
        removing=(),
    )
