"""AlterUserScramCredentials: creates, replaces and deletes SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from ...api_keys import ApiKey
from ...message import Request, Response, field, request, response, struct
from ...types import Bytes, Int8, Int16, Int32, String


@struct
class ScramCredentialDeletion:
    """The credential to delete. `mechanism` is 1 for SCRAM-SHA-256 and 2 for SCRAM-SHA-512."""

    name: String
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    """The credential to create or replace."""

    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes = field(repr=False)
    salted_password: Bytes = field(repr=False)


@request(api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request):
    """The changes."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult:
    """The result for one user."""

    user: String
    error_code: Int16 = 0
    error_message: String | None = field(nullable="0+", default=None)


@response(of=AlterUserScramCredentialsRequest, client_throttles="0+")
class AlterUserScramCredentialsResponse(Response):
    """The result for each user."""

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult]
