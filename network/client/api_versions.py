"""The API versions that a node supports (Kafka's NodeApiVersions)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._build import VERSION
from ..protocol.api_keys import ApiKey
from ..protocol.errors import UnsupportedVersionError
from ..protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

#: The software name that brokers log and count for this client (KIP-511).
CLIENT_SOFTWARE_NAME = "headrace"


def handshake_request() -> ApiVersionsRequest:
    """The first request of a connection."""
    return ApiVersionsRequest(client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=VERSION)


def handshake_fallback(response: ApiVersionsResponse, version: int) -> int | None:
    """The version for retrying ApiVersions after an error response to `version`; None if a retry is pointless.

    A broker that does not support the version lists those it does (KIP-511). Before Kafka 2.4 it listed none.
    """
    if response.error_code != UnsupportedVersionError.code or version <= 0:
        return None
    theirs = (entry.max_version for entry in response.api_keys if entry.api_key == ApiVersionsRequest.api_key)
    return min(next(theirs, 0), version - 1)


class NodeApiVersions:
    """One node's response to ApiVersions. Immutable.

    `finalized_features` are the cluster-wide feature levels (KIP-584), for instance `transaction.version`. They are
    known only if `finalized_features_epoch` is not negative.
    """

    __slots__ = ("_ranges", "finalized_features", "finalized_features_epoch", "name", "usable")

    def __init__(
        self,
        ranges: Mapping[int, tuple[int, int]],
        *,
        name: str = "the node",
        finalized_features: Mapping[str, int] | None = None,
        finalized_features_epoch: int = -1,
    ) -> None:
        """Store the versions of one node.

        `ranges` maps an API key to its lowest and highest version; `name` is how error messages name the node.
        """
        self.name = name
        self._ranges = dict(ranges)
        #: The results of `usable_version` so far, by its arguments. Looked up before each request.
        self.usable: dict[tuple[type[Any], int | None, int | None], int] = {}
        self.finalized_features: Mapping[str, int] = dict(finalized_features or {})
        self.finalized_features_epoch = finalized_features_epoch

    @classmethod
    def from_response(cls, response: ApiVersionsResponse, *, name: str) -> NodeApiVersions:
        """The versions and features listed in an ApiVersionsResponse."""
        return cls(
            {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys},
            name=name,
            finalized_features={entry.name: entry.max_version_level for entry in response.finalized_features},
            finalized_features_epoch=response.finalized_features_epoch,
        )

    def range_of(self, api_key: int) -> tuple[int, int] | None:
        """The lowest and highest version of that API; None if the node does not support it."""
        return self._ranges.get(api_key)

    def usable_version(
        self, request_class: type[Any], *, min_version: int | None = None, max_version: int | None = None
    ) -> int:
        """The highest version of `request_class` that both sides support, within the given bounds.

        Raises UnsupportedVersionError if there is none. The error names both ranges.
        """
        question = (request_class, min_version, max_version)
        known = self.usable.get(question)
        if known is not None:
            return known
        own = request_class.versions
        low = own.min if min_version is None else max(own.min, min_version)
        high = own.max if max_version is None else min(own.max, max_version)
        api = ApiKey(request_class.api_key).name
        theirs = self._ranges.get(request_class.api_key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"{self.name} does not support {api} at all, this client needs version {low} to {high} of it"
            )
        usable = min(high, theirs[1])
        if usable < max(low, theirs[0]):
            side = "broker is too old" if theirs[1] < low else "client is too old for this broker"
            raise UnsupportedVersionError(
                f"{self.name} supports {api} in versions {theirs[0]} to {theirs[1]}, this client in versions {low} to "
                f"{high}: the {side} (Headrace works with Kafka 0.10 and later)"
            )
        self.usable[question] = usable
        return usable

    def __repr__(self) -> str:
        def known(key: int) -> str:
            return ApiKey(key).name if key in ApiKey._value2member_map_ else str(key)

        return f"NodeApiVersions({', '.join(f'{known(key)}: {a}-{b}' for key, (a, b) in sorted(self._ranges.items()))})"
