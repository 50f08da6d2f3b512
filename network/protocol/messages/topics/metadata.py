"""Metadata: the brokers of the cluster, its topics, and the leaders of their partitions."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import ZERO_UUID, Bool, Int16, Int32, String, Uuid


@struct
class MetadataRequestTopic:
    """A requested topic, by name or, since version 12, by id."""

    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    name: String | None = field(nullable="10+")


@request(api_key=ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataRequest(Request):
    """Requests some `topics`, none (an empty list) or all (None; in version 0 an empty list).

    Versions without `allow_auto_topic_creation` always allow it.
    """

    #: The first version that allows a topic by id alone (KIP-516). Versions 10 and 11 only have the field.
    FIRST_VERSION_WITH_TOPIC_IDS: ClassVar[int] = 12

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field(versions="4+", default=True)
    include_cluster_authorized_operations: Bool = field(versions="8-10", default=False)
    include_topic_authorized_operations: Bool = field(versions="8+", default=False)


@struct
class MetadataResponseBroker:
    """A broker and its address on the listener that received the request."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(versions="1+", nullable="1+", ignorable=True, default=None)


@struct
class MetadataResponsePartition:
    """A partition and its replicas; `leader_id` is -1 while it has no leader."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(versions="7+", ignorable=True, default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(versions="5+", ignorable=True, default_factory=list)


@struct
class MetadataResponseTopic:
    """A topic, or its error."""

    error_code: Int16 = 0
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field(versions="10+", ignorable=True, default=ZERO_UUID)
    is_internal: Bool = field(versions="1+", ignorable=True, default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(versions="8+", default=-2147483648)


@response(of=MetadataRequest, client_throttles="6+")
class MetadataResponse(Response):
    """The broker's metadata of the cluster. Since version 13 it may have an error (KIP-1102: rebootstrap)."""

    #: Leader epochs in earlier versions may decrease when the controller changes (KAFKA-9212).
    FIRST_VERSION_WITH_RELIABLE_EPOCHS: ClassVar[int] = 9

    throttle_time_ms: Int32 = field(versions="3+", ignorable=True, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field(versions="2+", nullable="2+", ignorable=True, default=None)
    controller_id: Int32 = field(versions="1+", ignorable=True, default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(versions="8-10", default=-2147483648)
    error_code: Int16 = field(versions="13+", ignorable=True, default=0)
