"""DescribeUserScramCredentials: the SCRAM mechanisms of users, without their secrets (KIP-554)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Int8, Int16, Int32, String


@struct
class ScramUserName:
    """A user."""

    name: String


@request(api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request):
    """Requests the credentials of users; None or an empty list stands for all."""

    users: list[ScramUserName] | None = field(nullable="0+", default=None)


@struct
class ScramCredentialInfo:
    """One credential. `mechanism` is 1 for SCRAM-SHA-256 and 2 for SCRAM-SHA-512."""

    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: String
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    credential_infos: list[ScramCredentialInfo]


@response(of=DescribeUserScramCredentialsRequest, client_throttles="0+")
class DescribeUserScramCredentialsResponse(Response):
    """The credentials found."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult]
