"""ApiVersions: the APIs and versions that a broker supports. The first request on a connection (KIP-511)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..message import Request, Response, field, request, response, struct
from ..types import Bool, Int16, Int32, Int64, String


@request(api_key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+")
class ApiVersionsRequest(Request):
    """Requests the APIs. Since version 3 it also identifies the client."""

    client_software_name: String = field(versions="3+", ignorable=True, default="")
    client_software_version: String = field(versions="3+", ignorable=True, default="")


@struct
class ApiVersion:
    """An API with the versions that the broker supports, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeatureKey:
    """A feature with the versions that the broker supports."""

    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeatureKey:
    """A feature with the versions that are finalized for the whole cluster."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


@response(of=ApiVersionsRequest, client_throttles="2+")
class ApiVersionsResponse(Response):
    """The APIs and features of the broker.

    If a broker does not know the version of the request, it responds in version 0 with UNSUPPORTED_VERSION and the
    versions of this API. The response header has the older form in every version.
    """

    error_code: Int16 = 0
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    supported_features: list[SupportedFeatureKey] = field(
        versions="3+", tag=0, tagged="3+", ignorable=True, default_factory=list
    )
    finalized_features_epoch: Int64 = field(versions="3+", tag=1, tagged="3+", ignorable=True, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(
        versions="3+", tag=2, tagged="3+", ignorable=True, default_factory=list
    )
    zk_migration_ready: Bool = field(versions="3+", tag=3, tagged="3+", ignorable=True, default=False)
