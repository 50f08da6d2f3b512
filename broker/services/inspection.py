"""The state of a broker that tests can inspect."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ...network.protocol.errors import CoordinatorLoadInProgressError
from ...network.records.record import Record
from ..group.group import Group
from ..log.producer_state import ProducerStateEntry
from ..transaction.transaction import TransactionValues
from .services import BrokerServices

#: Fields of a group that only make sense in its broker: the lock, and the pending members with their timers.
_NOT_TOLD = ("lock", "pending_members")


def records(broker: BrokerServices, topic: str, partition: int) -> list[Record]:
    """All records of a partition in this broker's log, decoded."""
    log = broker.replicas.partition((topic, partition)).log
    found = []
    for batch in log.batches(log.log_start_offset, log.end.offset):
        if not batch.is_control:
            found.extend(record for record in batch.records() if record.offset >= log.log_start_offset)
    return found


def count_records(broker: BrokerServices, topic: str, partition: int) -> int:
    """The number of offsets in this broker's log of a partition, control records included."""
    log = broker.replicas.partition((topic, partition)).log
    return log.end.offset - log.log_start_offset


def producer_state(broker: BrokerServices, topic: str, partition: int) -> dict[int, ProducerStateEntry]:
    """The state of idempotent producers in this broker's log of a partition, by producer id."""
    log = broker.replicas.partition((topic, partition)).log
    with log.lock:
        return dict(log.producers.producers)


def group_fields(broker: BrokerServices, group_id: str) -> dict[str, Any] | None:
    """The current fields of a group, from which another process makes a `Group`; None if this broker has none."""
    group = broker.offsets.group(group_id)
    if group is None:
        return None
    with group.lock:
        told = {each.name: getattr(group, each.name) for each in fields(Group) if each.name not in _NOT_TOLD}
        told["members"] = {
            key: replace(member, join=None, sync=None, session=None) for key, member in group.members.items()
        }
        return {name: value.copy() if isinstance(value, (dict, set)) else value for name, value in told.items()}


def transactions(broker: BrokerServices) -> dict[str, TransactionValues]:
    """The values of the transactions that this broker coordinates, by transactional id; none while it loads them."""
    try:
        return broker.transactions.descriptions()
    except CoordinatorLoadInProgressError:
        return {}


def waiting(broker: BrokerServices) -> dict[str, int]:
    """The number of requests that wait in the broker's purgatories, by kind, and of timers (`Timer`)."""
    return {**{each.name: each.num_delayed for each in broker.purgatories}, "Timer": broker.timer.size}
