"""FindCoordinator: finds the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from typing import ClassVar

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, String


@request(api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+")
class FindCoordinatorRequest(Request):
    """Requests coordinators by key: one in `key` up to version 3, several in `coordinator_keys` since 4 (KIP-699).

    `key_type` is 0 for groups, 1 for transactional ids, 2 for share groups.
    """

    #: The first version with several keys.
    FIRST_VERSION_WITH_KEYS: ClassVar[int] = 4

    key: String = field(versions="0-3", default="")
    key_type: Int8 = field(versions="1+", default=0)
    coordinator_keys: list[String] = field(versions="4+", default_factory=list)


@struct
class Coordinator:
    """The coordinator of one key."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16 = 0
    error_message: String | None = field(nullable="4+", default=None)


@response(of=FindCoordinatorRequest, client_throttles="2+")
class FindCoordinatorResponse(Response):
    """The coordinators: one in the fields of the response up to version 3, several in `coordinators` since 4."""

    throttle_time_ms: Int32 = field(versions="1+", ignorable=True, default=0)
    error_code: Int16 = field(versions="0-3", default=0)
    error_message: String | None = field(versions="1-3", nullable="1-3", ignorable=True, default=None)
    node_id: Int32 = field(versions="0-3", default=0)
    host: String = field(versions="0-3", default="")
    port: Int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+", default_factory=list)
