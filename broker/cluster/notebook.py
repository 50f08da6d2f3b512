"""How a notebook shows a cluster: its brokers, and its topics with the records of their partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ...network.notebook import Bars, table
from ...network.protocol.errors import IllegalStateError, KafkaError
from ..services import inspection

if TYPE_CHECKING:
    from ..controller.controller import Controller
    from ..metadata import ClusterImage, TopicState
    from ..services.services import BrokerServices


class ShownCluster(Protocol):
    """What is shown of a cluster."""

    profile: str

    @property
    def controller(self) -> Controller: ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def node_ids(self) -> Sequence[int]: ...

    def brokers_here(self) -> Mapping[int, BrokerServices]: ...


def cluster_html(kind: str, cluster: ShownCluster) -> str:
    """The tables of a cluster. `kind`: the name of its class. Any thread; asks no other process."""
    try:
        image = cluster.controller.image
        title = f"{kind} at {cluster.bootstrap_servers}"
    except IllegalStateError:
        return table(f"{kind}, not started", [("brokers", len(cluster.node_ids)), ("profile", cluster.profile)])
    brokers = [_broker(image, node_id) for node_id in cluster.node_ids]
    topics = [_topic(cluster, state) for _, state in sorted(image.topics.items()) if not state.is_internal]
    return table(title, brokers, ("broker", "address", "rack", "leads")) + table(
        "Topics", topics, ("topic", "partitions", "replicas", "under-replicated", "records", "per partition")
    )


def _broker(image: ClusterImage, node_id: int) -> tuple[object, ...]:
    endpoint = image.brokers.get(node_id)
    if endpoint is None:
        return (str(node_id), "not running", "", "")
    leads = sum(each.leader == node_id for topic in image.topics.values() for each in topic.partitions)
    return (str(node_id), f"{endpoint.host}:{endpoint.port}", endpoint.rack or "", leads)


def _topic(cluster: ShownCluster, state: TopicState) -> tuple[object, ...]:
    replicas = max((len(each.replicas) for each in state.partitions), default=0)
    behind = sum(len(each.isr) < len(each.replicas) for each in state.partitions)
    counts = _counts(cluster, state)
    shown = ("", "") if counts is None else (sum(counts), Bars(counts))
    return (state.name, len(state.partitions), replicas, behind, *shown)


def _counts(cluster: ShownCluster, state: TopicState) -> list[int] | None:
    """The records of each partition; None if a leader's log is not in this process, or gone."""
    here = cluster.brokers_here()
    try:
        return [inspection.count_records(here[each.leader], state.name, at) for at, each in enumerate(state.partitions)]
    except (KeyError, KafkaError):
        return None
