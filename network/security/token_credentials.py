"""From a TokenConfig to the credentials that it describes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from ..clock import SYSTEM_CLOCK, Clock
from ..protocol.errors import KafkaConfigurationError, SaslAuthenticationFailedError
from .assertions import AssertionSettings, AssertionSource, FileAssertion, SignedAssertion
from .aws_msk_iam import MskIamSource
from .gssapi import GssapiCredentials, GssapiSettings
from .mechanism import Credentials
from .mechanism_names import AWS_MSK_IAM, GSSAPI, JWT_BEARER
from .oidc import (
    FileSource,
    MakeRequest,
    OidcSource,
    client_assertion_request,
    client_secret_request,
    jwt_bearer_request,
)
from .refresh import RefreshPolicy
from .token import TokenSource, check_extensions
from .token_callbacks import CallbackSource
from .token_http import Endpoint, ca_context
from .token_rules import NO_SOURCE
from .tokens import TokenCredentials
from .unsecured import UnsecuredSource, parse_unsecured

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def token_credentials(
    config: Any,
    jaas_options: Mapping[str, str] = _NO_OPTIONS,
    *,
    make_context: Callable[[], ssl.SSLContext] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Credentials:
    """The credentials for `config.sasl_mechanism`, one of `TOKEN_MECHANISMS`. Fetches nothing and starts no thread.

    `config` is a TokenConfig with the attribute `sasl_mechanism`.
    `jaas_options` are the options of the login module in `sasl.jaas.config`; the keys win over them.
    `make_context` replaces the TLS context for the identity provider that `https.ca.*` describes.

    Raises KafkaConfigurationError if a key or an optional package is missing.
    """
    if config.sasl_mechanism == GSSAPI:
        return GssapiCredentials(_gssapi_settings(config, jaas_options), clock=clock)
    policy = RefreshPolicy(
        window_factor=config.sasl_login_refresh_window_factor,
        window_jitter=config.sasl_login_refresh_window_jitter,
        min_period_seconds=config.sasl_login_refresh_min_period_seconds,
        buffer_seconds=config.sasl_login_refresh_buffer_seconds,
        retry_backoff_ms=config.sasl_login_retry_backoff_ms,
        retry_backoff_max_ms=config.sasl_login_retry_backoff_max_ms,
    )
    return TokenCredentials(_token_source(config, jaas_options, make_context, clock), policy, clock=clock)


def _token_source(
    config: Any, jaas: Mapping[str, str], make_context: Callable[[], ssl.SSLContext] | None, clock: Clock
) -> TokenSource:
    if config.sasl_mechanism == AWS_MSK_IAM or config.sasl_oauthbearer_method == "aws_msk_iam":
        return MskIamSource(
            config.sasl_aws_msk_iam_region,
            config.sasl_aws_msk_iam_profile,
            config.sasl_aws_msk_iam_role_arn,
            _extensions(config, jaas),
        )
    if config.sasl_oauth_token_provider is not None:
        extensions = _extensions(config, jaas)
        return CallbackSource(config.sasl_oauth_token_provider, config.sasl_oauthbearer_config or "", extensions)
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is not None and url.startswith("file:"):
        return FileSource(url, _extensions(config, jaas))
    if url is not None:
        endpoint = Endpoint(
            url,
            connect_timeout_ms=config.sasl_login_connect_timeout_ms,
            read_timeout_ms=config.sasl_login_read_timeout_ms,
            make_context=make_context or partial(ca_context, config.https_ca_location, config.https_ca_pem),
            clock=clock,
        )
        return OidcSource(endpoint, _request(config, jaas, clock), _extensions(config, jaas), clock)
    if config.enable_sasl_oauthbearer_unsecure_jwt:
        return UnsecuredSource(parse_unsecured(config.sasl_oauthbearer_config or ""), _extensions(config, jaas), clock)
    subject = jaas.get("unsecuredLoginStringClaim_sub")
    if subject:
        seconds = jaas.get("unsecuredLoginLifetimeSeconds", "3600")
        return UnsecuredSource(
            parse_unsecured(f"principal={subject} lifeSeconds={seconds}"), _extensions(config, jaas), clock
        )
    raise KafkaConfigurationError(NO_SOURCE)


def _request(config: Any, jaas: Mapping[str, str], clock: Clock) -> MakeRequest:
    client_id = config.sasl_oauthbearer_client_credentials_client_id or jaas.get("clientId")
    secret = config.sasl_oauthbearer_client_credentials_client_secret or jaas.get("clientSecret")
    scope = config.sasl_oauthbearer_scope or jaas.get("scope")
    assertions = _assertions(config, clock)
    if config.sasl_oauthbearer_grant_type == JWT_BEARER:
        assert assertions is not None  # a rule
        return jwt_bearer_request(assertions, scope)
    if assertions is not None:
        return client_assertion_request(assertions, client_id, scope)
    if not client_id or not secret:
        raise KafkaConfigurationError(
            "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.client.id and .secret, or "
            "an assertion (sasl.oauthbearer.assertion.*)"
        )
    return client_secret_request(client_id, secret, scope, url_encode=config.sasl_oauthbearer_header_urlencode)


def _assertions(config: Any, clock: Clock) -> AssertionSource | None:
    if config.sasl_oauthbearer_assertion_file is not None:
        return FileAssertion(config.sasl_oauthbearer_assertion_file)
    if config.sasl_oauthbearer_assertion_private_key_file is config.sasl_oauthbearer_assertion_private_key_pem is None:
        return None
    settings = AssertionSettings(
        algorithm=config.sasl_oauthbearer_assertion_algorithm,
        private_key_file=config.sasl_oauthbearer_assertion_private_key_file,
        private_key_pem=config.sasl_oauthbearer_assertion_private_key_pem,
        private_key_passphrase=config.sasl_oauthbearer_assertion_private_key_passphrase,
        audience=config.sasl_oauthbearer_assertion_claim_aud,
        issuer=config.sasl_oauthbearer_assertion_claim_iss,
        subject=config.sasl_oauthbearer_assertion_claim_sub,
        expires_seconds=config.sasl_oauthbearer_assertion_claim_exp_seconds,
        not_before_seconds=config.sasl_oauthbearer_assertion_claim_nbf_seconds,
        include_id=config.sasl_oauthbearer_assertion_claim_jti_include,
        template_file=config.sasl_oauthbearer_assertion_template_file,
    )
    return SignedAssertion(settings, clock)


def _extensions(config: Any, jaas: Mapping[str, str]) -> Mapping[str, str]:
    prefix = "extension_"
    given = {name.removeprefix(prefix): value for name, value in jaas.items() if name.startswith(prefix)}
    try:
        check_extensions(given)
    except SaslAuthenticationFailedError as error:
        raise KafkaConfigurationError(f"sasl.jaas.config: {error}") from None
    return {**given, **config.sasl_oauthbearer_extensions}


def _gssapi_settings(config: Any, jaas: Mapping[str, str]) -> GssapiSettings:
    is_default = not config.is_explicit("sasl.kerberos.service.name")
    return GssapiSettings(
        service_name=(is_default and jaas.get("serviceName")) or config.sasl_kerberos_service_name,
        domain_name=config.sasl_kerberos_domain_name,
        target=config.sasl_kerberos_name,
        keytab=config.sasl_kerberos_keytab or jaas.get("keyTab"),
        principal=config.sasl_kerberos_principal or jaas.get("principal"),
    )
