"""The keys of OAUTHBEARER's tokens, of AWS_MSK_IAM and of GSSAPI: a part of the producer's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..config import INT32_MAX, Config, key
from ..config_values import parse_path, parse_str
from ..protocol.errors import KafkaConfigurationError, SaslAuthenticationFailedError
from .mechanism_names import CLIENT_CREDENTIALS, JWT_BEARER
from .token_rules import TOKEN_RULES

_JAVA_CLASS = (
    "it names a Java class, which needs the JVM; give a callable as sasl_oauth_token_provider for OAUTHBEARER, or as "
    "sasl.credentials for PLAIN and SCRAM"
)
_JVM_PROPERTY = (
    "it is a property of the JVM that restricts configurations which others submit to a Connect worker; this program's "
    "configuration is its own"
)
_FOR_BROKERS = "brokers validate tokens with it; a client does not"
_TICKETS = "with sasl.kerberos.keytab the Kerberos library renews tickets; otherwise another program has to"


# --- Parsers ---


def _number(least: float, most: float) -> Callable[[Any], float]:
    def parse(value: Any) -> float:
        try:
            number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None:
            raise ValueError("is not a number")
        if not least <= number <= most:
            raise ValueError("is out of range")
        return number

    return parse


def _parse_provider(value: Any) -> Any:
    from .token_callbacks import CallbackSource  # noqa: PLC0415 - few producers use tokens

    try:
        CallbackSource(value)
    except KafkaConfigurationError:
        raise ValueError("is neither a callable nor a token provider") from None
    return value


def _parse_url(value: Any) -> str:
    from .token_http import url_problem  # noqa: PLC0415 - few producers use tokens

    text = parse_str(value).strip()
    problem = url_problem(text, ("https", "http", "file"))
    if problem is not None:
        raise ValueError(problem)
    return text


#: Java's retriever classes select what `sasl.oauthbearer.grant.type` does.
_GRANTS = {
    CLIENT_CREDENTIALS: CLIENT_CREDENTIALS,
    JWT_BEARER: JWT_BEARER,
    "jwt-bearer": JWT_BEARER,
    "ClientCredentialsJwtRetriever": CLIENT_CREDENTIALS,
    "JwtBearerJwtRetriever": JWT_BEARER,
    "DefaultJwtRetriever": CLIENT_CREDENTIALS,
    "FileJwtRetriever": CLIENT_CREDENTIALS,
}
_JAVA_PACKAGE = "org.apache.kafka.common.security.oauthbearer."


def _parse_grant(value: Any) -> str:
    grant = _GRANTS.get(parse_str(value).strip().removeprefix(_JAVA_PACKAGE))
    if grant is None:
        raise ValueError("is not a valid value")
    return grant


def parse_extensions(value: Any) -> Mapping[str, str]:
    """SASL extensions: a dict, or librdkafka's text ``name=value,name=value``. Raises ValueError."""
    if isinstance(value, str):
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        value = {name.strip(): text.strip() for name, equals, text in pairs if equals}
        if len(value) != len(pairs):
            raise ValueError("is not a list of distinct name=value pairs")
    if not isinstance(value, Mapping):
        raise ValueError("is not a list of name=value pairs")
    if not value:
        return {}
    from .token import check_extensions  # noqa: PLC0415 - few producers use tokens

    try:
        check_extensions(value)
    except SaslAuthenticationFailedError as error:
        raise ValueError(f"is not valid: {error}") from None
    return dict(value)


def _parse_target(value: Any) -> Any:
    """A Kerberos name as text, or a gssapi.Name as in kafka-python."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty")
    return value


def _show_url(value: str | None) -> str:
    if value is None:
        return "None"
    from .token_http import shown_url  # noqa: PLC0415 - few producers use tokens

    return repr(shown_url(value))


# --- The table ---


class TokenConfig(
    Config,
    rules=TOKEN_RULES,
    left_out={
        "sasl.oauthbearer.metadata.authentication.type": "librdkafka's requests to the metadata service of Azure or "
        "AWS are not supported; give a callable that uses azure-identity or boto3 as sasl_oauth_token_provider",
        "sasl.login.callback.handler.class": _JAVA_CLASS,
        "sasl.client.callback.handler.class": _JAVA_CLASS,
        "sasl.login.class": _JAVA_CLASS,
        "sasl.oauthbearer.jwt.validator.class": _FOR_BROKERS,
    },
    without_effect={
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": _JVM_PROPERTY,
        "org.apache.kafka.sasl.oauthbearer.allowed.files": _JVM_PROPERTY,
        "sasl.oauthbearer.clock.skew.seconds": _FOR_BROKERS,
        "sasl.oauthbearer.expected.audience": _FOR_BROKERS,
        "sasl.oauthbearer.expected.issuer": _FOR_BROKERS,
        "sasl.oauthbearer.jwks.*": _FOR_BROKERS,
        "sasl.oauthbearer.scope.claim.name": _FOR_BROKERS,
        "sasl.oauthbearer.sub.claim.name": _FOR_BROKERS,
        "sasl.kerberos.kinit.cmd": _TICKETS,
        "sasl.kerberos.min.time.before.relogin": _TICKETS,
        "sasl.kerberos.ticket.renew.*": _TICKETS,
    },
    carried_along={
        # Java's class for what the token endpoint's keys do here by themselves
        "sasl.login.callback.handler.class": lambda given: str(given).endswith(".OAuthBearerLoginCallbackHandler"),
        "sasl.oauthbearer.jwt.validator.class": lambda given: str(given).endswith("JwtValidator"),
    },
):
    """The keys of the mechanisms whose credentials are fetched: OAUTHBEARER, AWS_MSK_IAM and GSSAPI."""

    sasl_oauth_token_provider: Any = key(
        default=None,
        none_means=None,
        parse=_parse_provider,
        accepts="Callable[..., Any] | HasToken",
        allowed="a callable, or an object with a method token()",
        aliases=("oauth.cb",),
        show=lambda value: "None" if value is None else f"<{type(value).__name__}>",
        doc="The source of the tokens of OAUTHBEARER: a callable, plain or `async`, that returns a token; a tuple of a "
        "token and its expiry, perhaps with SASL extensions; or an object with `token()` and `extensions()`, as in "
        "kafka-python. A callable with one argument is called with `sasl.oauthbearer.config`, as confluent-kafka's "
        "`oauth_cb`. It is called on a thread of its own, before the previous token expires.",
    )
    sasl_oauthbearer_config: str | None = key(
        default=None,
        importance="low",
        secret=True,
        doc="The argument of a `sasl_oauth_token_provider` with one argument. With "
        "`enable.sasl.oauthbearer.unsecure.jwt`, the content of the tokens: `principal=NAME lifeSeconds=3600`.",
    )
    sasl_oauthbearer_method: str = key(
        default="default",
        choices=("default", "oidc", "aws_msk_iam"),
        importance="low",
        doc="The source of the tokens of OAUTHBEARER. `default` is the one whose keys are given; `oidc` requires "
        "`sasl.oauthbearer.token.endpoint.url`; `aws_msk_iam` is Amazon MSK's IAM, as `sasl.mechanism=AWS_MSK_IAM`.",
    )
    sasl_oauthbearer_extensions: Mapping[str, str] = key(
        default={},
        parse=parse_extensions,
        accepts="str | Mapping[str, str]",
        allowed="a dict, or text: name=value,name=value",
        doc="The SASL extensions (KIP-342) that go with a token from an endpoint, a file or MSK IAM. Confluent Cloud "
        "needs `logicalCluster=lkc-...,identityPoolId=pool-...`.",
    )
    sasl_oauthbearer_token_endpoint_url: str | None = key(
        default=None,
        parse=_parse_url,
        allowed="an https, http or file URL",
        show=_show_url,
        doc="The token endpoint of the identity provider. Or the URL of a file with a token (`file:///run/token`), "
        "which another program renews. Redirects are not followed; proxies are those of the environment "
        "(`https_proxy`).",
    )
    sasl_oauthbearer_grant_type: str = key(
        default=CLIENT_CREDENTIALS,
        parse=_parse_grant,
        allowed=f"{CLIENT_CREDENTIALS} or {JWT_BEARER}",
        aliases=("sasl.oauthbearer.jwt.retriever.class",),
        doc="The OAuth grant: client credentials, with a secret or with an assertion (KIP-768, KIP-1258), or the JWT "
        "bearer grant (KIP-1139). Kafka's retriever classes are accepted as values.",
    )
    sasl_oauthbearer_client_credentials_client_id: str | None = key(
        default=None,
        aliases=("sasl.oauthbearer.client.id",),
        doc="The client's id at the identity provider.",
    )
    sasl_oauthbearer_client_credentials_client_secret: str | None = key(
        default=None,
        secret=True,
        aliases=("sasl.oauthbearer.client.secret",),
        doc="The client's secret at the identity provider.",
    )
    sasl_oauthbearer_scope: str | None = key(
        default=None,
        doc="The scopes to request, separated by spaces.",
    )
    sasl_oauthbearer_header_urlencode: bool = key(
        default=False,
        importance="low",
        doc="Whether the client's id and secret are URL-encoded in the Authorization header, as RFC 6749 says.",
    )
    sasl_oauthbearer_assertion_algorithm: str = key(
        default="RS256",
        choices=("RS256", "ES256"),
        doc="The signature of the assertion.",
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = key(default=None, doc="The assertion's audience.")
    sasl_oauthbearer_assertion_claim_iss: str | None = key(default=None, doc="The assertion's issuer.")
    sasl_oauthbearer_assertion_claim_sub: str | None = key(default=None, doc="The assertion's subject.")
    sasl_oauthbearer_assertion_claim_exp_seconds: int = key(
        default=300, at_least=0, at_most=86_400, importance="low", doc="How long an assertion is valid, in seconds."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = key(
        default=60,
        at_least=0,
        at_most=3_600,
        importance="low",
        doc="How far in the past an assertion begins to be valid, in seconds.",
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = key(
        default=False, doc="Whether an assertion has a unique id (the claim `jti`)."
    )
    sasl_oauthbearer_assertion_file: str | None = key(
        default=None,
        parse=parse_path,
        allowed="the path of a file",
        doc="A file with an assertion that another program renews. It is read for each request.",
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = key(
        default=None,
        parse=parse_path,
        allowed="the path of a file",
        doc="The private key in PEM that signs assertions (`pip install 'headrace[jwt]'`). It is read for each "
        "request.",
    )
    sasl_oauthbearer_assertion_private_key_pem: str | None = key(
        default=None, secret=True, doc="The private key itself, as PEM text."
    )
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = key(
        default=None, secret=True, doc="The passphrase of the private key."
    )
    sasl_oauthbearer_assertion_template_file: str | None = key(
        default=None,
        parse=parse_path,
        allowed="the path of a file",
        aliases=("sasl.oauthbearer.assertion.jwt.template.file",),
        doc='A JSON file `{"header": {...}, "payload": {...}}` with further headers and claims of the assertion.',
    )
    enable_sasl_oauthbearer_unsecure_jwt: bool = key(
        default=False,
        importance="low",
        doc="Whether tokens are unsecured JSON Web Tokens, made here from `sasl.oauthbearer.config`: for "
        "development only.",
    )
    sasl_aws_msk_iam_region: str | None = key(
        default=None,
        doc="The AWS region of an MSK cluster with IAM; by default that of the environment (`AWS_REGION`) or profile. "
        "Needs `pip install 'headrace[msk]'`.",
    )
    sasl_aws_msk_iam_profile: str | None = key(
        default=None, doc="The AWS profile whose credentials sign; by default AWS's chain of credential providers."
    )
    sasl_aws_msk_iam_role_arn: str | None = key(default=None, doc="The AWS role to assume.")
    sasl_login_connect_timeout_ms: int = key(
        default=10_000,
        at_least=1,
        at_most=INT32_MAX,
        importance="low",
        none_means=10_000,
        doc="How long to wait for a connection to the identity provider. Java's default is no limit.",
    )
    sasl_login_read_timeout_ms: int = key(
        default=10_000,
        at_least=1,
        at_most=INT32_MAX,
        importance="low",
        none_means=10_000,
        doc="How long to wait for the identity provider's whole response. Java's default is no limit.",
    )
    sasl_login_retry_backoff_ms: int = key(
        default=100, at_least=0, importance="low", doc="The first wait after a failed attempt to get a token."
    )
    sasl_login_retry_backoff_max_ms: int = key(
        default=10_000,
        at_least=0,
        importance="low",
        doc="The longest wait between attempts to get a token, and the time after which failures that may pass (no "
        "answer, HTTP 503) fail authentications.",
    )
    sasl_login_refresh_window_factor: float = key(
        default=0.8,
        parse=_number(0.5, 1.0),
        allowed="0.5 to 1.0",
        importance="low",
        doc="The part of a token's lifetime after which it is replaced.",
    )
    sasl_login_refresh_window_jitter: float = key(
        default=0.05,
        parse=_number(0.0, 0.25),
        allowed="0.0 to 0.25",
        importance="low",
        doc="The largest random part of a token's lifetime that is added to it.",
    )
    sasl_login_refresh_min_period_seconds: int = key(
        default=60,
        at_least=0,
        at_most=900,
        importance="low",
        doc="The shortest time between two tokens, unless a token's lifetime is shorter than this and "
        "`sasl.login.refresh.buffer.seconds`. Also how long a token of unknown lifetime is used.",
    )
    sasl_login_refresh_buffer_seconds: int = key(
        default=300,
        at_least=0,
        at_most=3_600,
        importance="low",
        doc="How long before its expiry a token is replaced at the latest.",
    )
    https_ca_location: str | None = key(
        default=None,
        parse=parse_path,
        allowed="the path of a file or directory",
        importance="low",
        doc="The certificate authorities, in PEM, of the identity provider's server; by default the system's.",
    )
    https_ca_pem: str | None = key(
        default=None, importance="low", doc="The certificate authorities themselves, as PEM text."
    )
    sasl_kerberos_service_name: str = key(
        default="kafka", doc="The Kerberos service of the brokers, the first part of their principals."
    )
    sasl_kerberos_domain_name: str | None = key(
        default=None,
        importance="low",
        doc="The host in the brokers' principals; by default each broker's host name.",
    )
    sasl_kerberos_name: Any = key(
        default=None,
        none_means=None,
        parse=_parse_target,
        allowed="text (service@host), or a gssapi.Name",
        importance="low",
        show=lambda value: "None" if value is None else repr(str(value)),
        doc="One Kerberos name for all brokers, in place of service and domain.",
    )
    sasl_kerberos_principal: str | None = key(
        default=None, doc="The client's Kerberos principal; by default the one of the credential cache or keytab."
    )
    sasl_kerberos_keytab: str | None = key(
        default=None,
        parse=parse_path,
        allowed="the path of a file",
        doc="The client's keytab, from which tickets are fetched; by default the system's credential cache is used. "
        "Needs `pip install 'headrace[gssapi]'`.",
    )
