"""ApiVersions: the APIs and versions that this broker serves, and the features of the cluster (KIP-584)."""

from __future__ import annotations

import re

from ...network.protocol.api_keys import ApiKey
from ...network.protocol.errors import InvalidRequestError, UnsupportedVersionError
from ...network.protocol.message import first_version_with
from ...network.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ..metadata import FEATURES
from ..requests.request import RequestContext
from ..services.services import BrokerServices
from . import registry
from .registry import serves

_FIRST_VERSION_WITH_SOFTWARE = first_version_with(ApiVersionsRequest, "client_software_name")
#: Since this version the features may have the minimum 0. Java clients up to 3.8 fail on one (KAFKA-17011).
_FIRST_VERSION_WITH_LEVEL_0 = 4
_OF_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def _api_keys(broker: BrokerServices, *, for_broker: bool) -> list[ApiVersion]:
    keys = []
    for api in sorted(registry.apis.values()):
        if api.key in _OF_TELEMETRY and not broker.telemetry.is_enabled:
            continue
        versions = api.versions_of(broker.control, for_broker=for_broker)
        if versions.max >= versions.min:
            keys.append(ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=versions.max))
    return keys


def unsupported_version(broker: BrokerServices) -> ApiVersionsResponse:
    """The response, in version 0, to an unknown version of ApiVersions."""
    keys = _api_keys(broker, for_broker=False)  # brokers know the versions of ApiVersions
    return ApiVersionsResponse(error_code=UnsupportedVersionError.code, api_keys=keys)


@serves(ApiVersionsRequest)
def handle(broker: BrokerServices, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Returns INVALID_REQUEST if the client's software name or version is malformed (KIP-511)."""
    if context.api_version >= _FIRST_VERSION_WITH_SOFTWARE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=InvalidRequestError.code, api_keys=[])
    if request.client_software_name:
        context.connection.software = (request.client_software_name, request.client_software_version)
    error = context.injected_error("")
    if error is not None:
        return ApiVersionsResponse(error_code=error.code, api_keys=[])
    response = ApiVersionsResponse(api_keys=_api_keys(broker, for_broker=context.connection.is_broker))
    if broker.control.has_features:
        image = broker.image
        lowest = 0 if context.api_version >= _FIRST_VERSION_WITH_LEVEL_0 else 1
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, highest in FEATURES.items()
        ]
        response.finalized_features_epoch = image.version
        # A feature at level 0 counts as absent.
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
            if level
        ]
    return response
