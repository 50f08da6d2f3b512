"""The table of APIs that the broker serves. ApiVersions advertises exactly these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...network.protocol.api import ApiKey
from ...network.protocol.message import Request, Response
from ...network.protocol.versions import Versions
from ..requests.control import Control
from ..requests.request import RequestContext
from ..services.services import BrokerServices

#: Answers at once, or returns None and answers later through the context.
Handle = Callable[[BrokerServices, RequestContext, Any], "Response | None"]


class Api(NamedTuple):
    """One API: its handler and its versions.

    A handler that `waits` runs on the request thread: it blocks for the controller or the disk, or its response grows
    with the cluster. All others run on the network thread.
    """

    key: ApiKey
    handle: Handle
    versions: Versions
    advertised_min: int
    waits: bool

    def versions_of(self, control: Control, *, for_broker: bool) -> Versions:
        """The versions that a client may use: fewer if a test makes the cluster act as an older release. Brokers use
        all of them among themselves."""
        if for_broker or control.max_versions is None:
            return self.versions
        return Versions(self.versions.min, min(self.versions.max, control.max_versions.get(self.key, -1)))


apis: dict[ApiKey, Api] = {}


def serves(
    request: type[Request],
    *,
    min_version: int | None = None,
    max_version: int | None = None,
    advertised_min: int | None = None,
    waits: bool = False,
) -> Callable[[Handle], Handle]:
    """Register a function as the handler of an API, for all versions of its messages or those within the bounds."""

    def declare(handle: Handle) -> Handle:
        oldest = request.versions.min if min_version is None else min_version
        newest = request.versions.max if max_version is None else max_version
        least = oldest if advertised_min is None else advertised_min
        if request.api_key in apis:
            raise TypeError(f"{request.api_key.name} has two handlers")
        apis[request.api_key] = Api(request.api_key, handle, Versions(oldest, newest), least, waits)
        return handle

    return declare
