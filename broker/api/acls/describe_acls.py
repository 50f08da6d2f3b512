"""DescribeAcls: finds access control entries."""

from __future__ import annotations

from itertools import groupby

from ....network.protocol.errors import BrokerResponseError
from ....network.protocol.messages.security.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ...requests.request import RequestContext
from ...security.acls import AclFilter, AclOperation, check_filter
from ...services.services import BrokerServices
from ..registry import serves
from .rights import refusal_for_acls


@serves(DescribeAclsRequest, waits=True)
def handle(broker: BrokerServices, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Answers from the broker's own image, sorted by resource."""
    try:
        refused = refusal_for_acls(broker, context, AclOperation.DESCRIBE)
        if refused is not None:
            raise refused
        wanted = check_filter(
            AclFilter(
                request.resource_type_filter,
                request.resource_name_filter,
                request.pattern_type_filter,
                request.principal_filter,
                request.host_filter,
                request.operation,
                request.permission_type,
            )
        )
    except BrokerResponseError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=str(error), resources=[])
    found = sorted(filter(wanted.matches, broker.image.acls))
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in acls
                ],
            )
            for (resource_type, name, pattern_type), acls in groupby(found, key=lambda acl: acl[:3])
        ]
    )
