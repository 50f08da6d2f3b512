"""What the page shows of the cluster, in sections of JSON. A section is sent again only if it has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ..metadata import NO_LEADER, ClusterImage
from ..requests.control import RequestSeen
from ..services.observation import BrokerSeen, PartitionSeen
from .cluster import ConsoleCluster, InjectedFault

#: The limits of a section's rows. `left_off` in a section is what is beyond.
MAX_TOPICS = 1_000
MAX_PARTITIONS = 5_000
MAX_GROUPS = 500
MAX_PRODUCERS = 500
MAX_FAULTS = 200
#: The samples of the rates that are kept: a minute, at two looks per second.
SAMPLES_KEPT = 120
#: An interval longer than this, while nobody watched, has no rate.
_LONGEST_INTERVAL_MS = 10_000.0

Section = dict[str, Any]


def sections_of(cluster: ConsoleCluster, seen: Mapping[int, BrokerSeen], running: Sequence[int]) -> dict[str, Section]:
    """All sections but the rates. `seen`: the running brokers that answered, by id. Raises IllegalStateError if the
    cluster is not running."""
    image = cluster.controller.image
    leaders = {
        (each.topic, each.partition): each for broker in seen.values() for each in broker.partitions if each.is_leader
    }
    return {
        "cluster": {"id": image.cluster_id, "bootstrap": cluster.bootstrap_servers, "profile": cluster.profile},
        "brokers": {"rows": [_broker(node_id, image, seen, running) for node_id in cluster.node_ids]},
        "topics": _topics(image, leaders),
        "groups": _groups(seen, leaders),
        "producers": _producers(seen),
        "transactions": _transactions(seen),
        "faults": _faults(cluster.faults),
    }


def _broker(node_id: int, image: ClusterImage, seen: Mapping[int, BrokerSeen], running: Sequence[int]) -> Section:
    endpoint = image.brokers.get(node_id)
    known = seen.get(node_id)
    alive = "not answering" if known is None else "running"
    return {
        "id": node_id,
        "state": alive if node_id in running else "stopped",
        "address": None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
        "listeners": [] if endpoint is None else [f"{name} {host}:{port}" for name, host, port in endpoint.listeners],
        "rack": None if endpoint is None else endpoint.rack,
        "is_controller": image.controller_id == node_id,
        "leads": None if known is None else sum(each.is_leader for each in known.partitions),
        "replicas": None if known is None else len(known.partitions),
        "size_bytes": None if known is None else sum(each.size_bytes for each in known.partitions),
        "connections": None if known is None else known.connections,
    }


def _topics(image: ClusterImage, leaders: Mapping[tuple[str, int], PartitionSeen]) -> Section:
    rows = []
    room = MAX_PARTITIONS
    for name in sorted(image.topics)[:MAX_TOPICS]:
        topic = image.topics[name]
        partitions = []
        for index, state in enumerate(topic.partitions[: max(room, 0)]):
            known = leaders.get((name, index))
            partitions.append(
                {
                    "index": index,
                    "leader": None if state.leader == NO_LEADER else state.leader,
                    "epoch": state.leader_epoch,
                    "replicas": list(state.replicas),
                    "isr": list(state.isr),
                    "start": None if known is None else known.log_start,
                    "end": None if known is None else known.high_watermark,
                    "stable": None if known is None else known.last_stable,
                    "size_bytes": None if known is None else known.size_bytes,
                }
            )
        room -= len(partitions)
        shown = [each for each in partitions if each["end"] is not None]
        rows.append(
            {
                "name": name,
                "is_internal": topic.is_internal,
                "partition_count": len(topic.partitions),
                "partitions": partitions,
                "records": sum(each["end"] - each["start"] for each in shown),
                "size_bytes": sum(each["size_bytes"] for each in shown),
                "offline": sum(each["leader"] is None for each in partitions),
                "configs": dict(topic.configs),
            }
        )
    return {"rows": rows, "left_off": max(len(image.topics) - MAX_TOPICS, 0)}


def _groups(seen: Mapping[int, BrokerSeen], leaders: Mapping[tuple[str, int], PartitionSeen]) -> Section:
    found = sorted((each for broker in seen.values() for each in broker.groups), key=lambda each: each.group_id)
    rows = []
    for group in found[:MAX_GROUPS]:
        offsets = []
        for topic, index, offset in sorted(group.offsets):
            known = leaders.get((topic, index))
            end = None if known is None else known.high_watermark
            lag = None if end is None else max(end - offset, 0)
            offsets.append({"topic": topic, "partition": index, "offset": offset, "end": end, "lag": lag})
        lags = [each["lag"] for each in offsets if each["lag"] is not None]
        rows.append(
            {
                "id": group.group_id,
                "state": group.state,
                "generation": group.generation,
                "protocol": group.protocol,
                "members": [
                    {"id": member, "client_id": client, "host": host} for member, client, host in group.members
                ],
                "offsets": offsets,
                "lag": sum(lags) if lags else None,
            }
        )
    return {"rows": rows, "left_off": max(len(found) - MAX_GROUPS, 0) + _cut(seen, "groups")}


def _producers(seen: Mapping[int, BrokerSeen]) -> Section:
    names = {of.producer_id: name for broker in seen.values() for name, of in broker.transactions.items()}
    rows: dict[int, Section] = {}
    for each in (each for broker in seen.values() for each in broker.producers):
        row = rows.setdefault(
            each.producer_id,
            {
                "id": each.producer_id,
                "epoch": each.epoch,
                "transactional_id": names.get(each.producer_id),
                "last_timestamp": each.last_timestamp,
                "partitions": [],
            },
        )
        row["epoch"] = max(row["epoch"], each.epoch)
        row["last_timestamp"] = max(row["last_timestamp"], each.last_timestamp)
        row["partitions"].append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "epoch": each.epoch,
                "sequence": each.last_sequence,
                "offset": each.last_offset,
                "open_since": None if each.open_since_offset < 0 else each.open_since_offset,
            }
        )
    found = sorted(rows.values(), key=lambda row: row["id"], reverse=True)
    return {"rows": found[:MAX_PRODUCERS], "left_off": _cut(seen, "producers") + max(len(found) - MAX_PRODUCERS, 0)}


def _transactions(seen: Mapping[int, BrokerSeen]) -> Section:
    found = sorted((name, of) for broker in seen.values() for name, of in broker.transactions.items())
    rows = [
        {
            "id": name,
            "producer_id": of.producer_id,
            "epoch": of.producer_epoch,
            "state": of.state.label,
            "partitions": [f"{topic}-{index}" for topic, index in sorted(of.partitions)[:20]],
            "partition_count": len(of.partitions),
            "start_ms": of.start_ms,
            "update_ms": of.update_ms,
            "timeout_ms": of.timeout_ms,
        }
        for name, of in found
    ]
    return {"rows": rows, "left_off": _cut(seen, "transactions")}


def _cut(seen: Mapping[int, BrokerSeen], name: str) -> int:
    """At least how many rows of a list the brokers left off."""
    return sum(name in broker.left_off for broker in seen.values())


def _faults(faults: Sequence[InjectedFault]) -> Section:
    rows = []
    for each in faults[-MAX_FAULTS:]:
        fault = each.fault
        rows.append(
            {
                "number": each.number,
                "api": None if each.api_key is None else each.api_key.name,
                "effect": None if fault is None else fault_text(each),
                "topic": None if fault is None else fault.topic,
                "partition": None if fault is None else fault.partition,
                "node_id": each.node_id,
                "remaining": each.remaining,
                "hits": each.hits,
            }
        )
    return {"rows": rows, "left_off": max(len(faults) - MAX_FAULTS, 0)}


def fault_text(injected: InjectedFault) -> str:
    """The effect of a fault in words."""
    fault = injected.fault
    if fault is None:
        return "a function of the program decides"
    parts = []
    if fault.error is not None:
        parts.append(f"fails with {fault.error.message}")
    if fault.response is not None:
        parts.append(f"gets a prepared {type(fault.response).__name__}")
    if fault.delay_ms:
        parts.append(f"is answered {fault.delay_ms:g} ms later")
    if fault.throttle_ms:
        parts.append(f"is throttled for {fault.throttle_ms} ms")
    if fault.close:
        parts.append("is not handled, and the connection closes")
    if fault.lose_answer:
        parts.append("is handled, but the connection closes without a response")
    if fault.silent:
        parts.append("is handled, but never answered")
    if fault.cut_after_bytes is not None:
        parts.append(f"gets {fault.cut_after_bytes} bytes of its response, and the connection closes")
    if fault.half_close:
        parts.append("is answered, then the broker closes its half of the connection")
    return "; ".join(parts)


def request_row(number: int, request: RequestSeen, clock_offset_ms: float) -> Section:
    """A request. clock_offset_ms: the wall clock minus the broker's monotonic clock."""
    return {
        "number": number,
        "at_ms": round(clock_offset_ms + request.received_ms),
        "node_id": request.node_id,
        "api": request.api_key.name,
        "version": request.api_version,
        "client_id": request.client_id,
        "connection": request.connection_id,
        "correlation_id": request.correlation_id,
        "size_bytes": request.size_bytes,
    }


class Rates:
    """Records, bytes and requests per second, from one look to the next. For the feed's thread."""

    def __init__(self) -> None:
        self.samples: deque[Section] = deque(maxlen=SAMPLES_KEPT)
        self._before: tuple[float, dict[tuple[str, int], tuple[int, int]]] | None = None

    def add(self, now_ms: float, wall_ms: int, seen: Mapping[int, BrokerSeen], requests: int) -> Section | None:
        """The rates since the previous look; None for the first one. Topics that begin with `__` do not count."""
        ends = {
            (each.topic, each.partition): (each.log_end, each.size_bytes)
            for broker in seen.values()
            for each in broker.partitions
            if each.is_leader and not each.topic.startswith("__")
        }
        before, self._before = self._before, (now_ms, ends)
        if before is None or not 0 < now_ms - before[0] <= _LONGEST_INTERVAL_MS:
            return None
        seconds = (now_ms - before[0]) / 1_000.0
        records = size_bytes = 0
        topics: dict[str, int] = {}
        for key, (end, size) in ends.items():
            known = before[1].get(key)
            # a partition whose leader was stopped or that is new has nothing to compare with
            grown, bytes_grown = (0, 0) if known is None else (max(end - known[0], 0), max(size - known[1], 0))
            records += grown
            size_bytes += bytes_grown
            if grown:
                topics[key[0]] = topics.get(key[0], 0) + grown
        sample = {
            "at_ms": wall_ms,
            "records": records / seconds,
            "bytes": size_bytes / seconds,
            "requests": requests / seconds,
        }
        self.samples.append(sample)
        return {**sample, "topics": {name: count / seconds for name, count in topics.items()}}
