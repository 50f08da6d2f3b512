"""Tokens for Amazon MSK with IAM: presigned URLs as bearer tokens, made by AWS's own signer package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..extras import optional_module
from ..protocol.errors import KafkaConfigurationError, SaslAuthenticationFailedError
from .mechanism_names import AWS_MSK_IAM
from .token import Token

#: The role session name. It is always the same: MSK compares principals when a client re-authenticates.
ROLE_SESSION_NAME = "headrace"


class MskIamSource:
    """Tokens from the signer, with AWS's default credentials, a profile or an assumed role. Implements TokenSource.

    Signing needs no request to AWS, but loading credentials may: `fetch` may block.
    """

    def __init__(
        self,
        region: str | None,
        profile: str | None = None,
        role_arn: str | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """Store the arguments. Without a region it is AWS_REGION's or AWS_DEFAULT_REGION's, or the profile's.

        Raises KafkaConfigurationError if there is no region or the signer is not installed.
        """
        self._signer = optional_module(
            "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "msk", f"sasl.mechanism={AWS_MSK_IAM}"
        )
        self._region = region or _default_region(profile)
        if not self._region:
            raise KafkaConfigurationError(
                f"sasl.mechanism={AWS_MSK_IAM} needs the AWS region of the cluster: give sasl.aws.msk.iam.region, "
                "or set the environment variable AWS_REGION"
            )
        self._profile = profile
        self._role_arn = role_arn
        self._extensions = extensions

    def __repr__(self) -> str:
        identity = self._role_arn or (f"profile {self._profile}" if self._profile else "the default credentials")
        return f"AWS MSK IAM ({self._region}, {identity})"

    def fetch(self) -> Token:
        signer = self._signer
        try:
            if self._role_arn is not None:
                result = signer.generate_auth_token_from_role_arn(self._region, self._role_arn, ROLE_SESSION_NAME)
            elif self._profile is not None:
                result = signer.generate_auth_token_from_profile(self._region, self._profile)
            else:
                result = signer.generate_auth_token(self._region)
        except AttributeError as error:
            # the signer uses the credentials without checking that botocore found any
            if "NoneType" not in str(error):
                raise
            raise SaslAuthenticationFailedError(
                "AWS credentials were not found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or an "
                "instance role"
            ) from error
        value, expires_ms = result
        return Token(value, expires_ms=expires_ms, extensions=self._extensions)

    def close(self) -> None:
        """The signer keeps nothing open."""


def _default_region(profile: str | None) -> Any:
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named:
        return named
    session = optional_module("botocore.session", "msk", f"sasl.mechanism={AWS_MSK_IAM}")
    return session.Session(profile=profile).get_config_variable("region")
