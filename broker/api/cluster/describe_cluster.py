"""DescribeCluster: the brokers and the controller (KIP-700)."""

from __future__ import annotations

from ....network.protocol.messages.cluster.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ....network.protocol.other_errors import MismatchedEndpointTypeError, UnsupportedEndpointTypeError
from ...requests.request import RequestContext
from ...services.services import BrokerServices
from ..authorized_operations import cluster_operations
from ..registry import serves

_BROKERS = 1
_CONTROLLERS = 2


@serves(DescribeClusterRequest)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Returns the brokers that are alive. A broker's listener can't describe controllers (KIP-919)."""
    image = broker.image
    error = context.injected_error("")
    if error is None and request.endpoint_type == _CONTROLLERS:
        error = MismatchedEndpointTypeError("this is a broker's endpoint; ask it for brokers")
    elif error is None and request.endpoint_type != _BROKERS:
        error = UnsupportedEndpointTypeError(f"there are no endpoints of type {request.endpoint_type}")
    if error is not None:
        return DescribeClusterResponse(
            error_code=error.code, error_message=str(error), cluster_id=image.cluster_id, brokers=[]
        )
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in context.endpoints()
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response
