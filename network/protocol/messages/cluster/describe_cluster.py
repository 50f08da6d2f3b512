"""DescribeCluster: the cluster's id, its brokers and its controller (KIP-700)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bool, Int8, Int16, Int32, String


@request(api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterRequest(Request):
    """Requests the cluster. `endpoint_type` is 1 for brokers and 2 for controllers (KIP-919)."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field(versions="1+", default=1)
    include_fenced_brokers: Bool = field(versions="2+", default=False)


@struct
class DescribeClusterBroker:
    """A broker and its address."""

    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(nullable="0+", default=None)
    is_fenced: Bool = field(versions="2+", default=False)


@response(of=DescribeClusterRequest)
class DescribeClusterResponse(Response):
    """The cluster as known to the broker."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    endpoint_type: Int8 = field(versions="1+", default=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648
