"""The keys of token credentials: names of other clients, what belongs together, and what they make."""

from __future__ import annotations

import pickle
import ssl
from typing import Any

import pytest

from headrace.network import extras
from headrace.network.config import key
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.network.security import token
from headrace.network.security.aws_msk_iam import MskIamSource
from headrace.network.security.mechanism_names import TOKEN_MECHANISMS
from headrace.network.security.token_config import TokenConfig
from headrace.network.security.token_credentials import token_credentials

URL = "https://idp.example/token"


class Table(TokenConfig):
    """The keys with those of another table that the rules read."""

    sasl_mechanism: str = key(default="OAUTHBEARER", doc="")
    sasl_jaas_config: str | None = key(default=None, secret=True, doc="")
    security_protocol: str = key(default="SASL_SSL", doc="")


def resolve(given: dict[str, Any]) -> Table:
    return Table.resolve_from(given, {}, {})


def made(given: dict[str, Any], **options: Any) -> str:
    return repr(token_credentials(resolve(given), **options))


OIDC = {
    "sasl.oauthbearer.token.endpoint.url": URL + "?code=planted-secret",
    "sasl.oauthbearer.client.credentials.client.id": "client",
    "sasl.oauthbearer.client.credentials.client.secret": "planted-secret",
}
ASSERTION = {
    "sasl.oauthbearer.token.endpoint.url": URL,
    "sasl.oauthbearer.assertion.private.key.pem": "planted-secret",
}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"sasl_oauth_token_provider": print}, "TokenCredentials(sasl_oauth_token_provider print)"),
        ({"oauth_cb": print}, "TokenCredentials(sasl_oauth_token_provider print)"),
        (OIDC, f"TokenCredentials(the token endpoint {URL})"),
        (
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": URL,
                "sasl.oauthbearer.client.id": "client",
                "sasl.oauthbearer.client.secret": "planted-secret",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
            },
            f"TokenCredentials(the token endpoint {URL})",
        ),
        (
            {**OIDC, "sasl.login.callback.handler.class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler"},
            f"TokenCredentials(the token endpoint {URL})",
        ),
        ({**ASSERTION, "sasl.oauthbearer.grant.type": "jwt-bearer"}, f"TokenCredentials(the token endpoint {URL})"),
        (
            {
                **ASSERTION,
                "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer."
                "JwtBearerJwtRetriever",
            },
            f"TokenCredentials(the token endpoint {URL})",
        ),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///run/a%20b"}, "TokenCredentials(the token file /run/a b)"),
        (
            {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=alice"},
            "TokenCredentials(unsecured tokens for alice)",
        ),
        (
            {"sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.msk.iam.region": "eu-west-1"},
            "TokenCredentials(AWS MSK IAM (eu-west-1, the default credentials))",
        ),
        (
            {
                "sasl.oauthbearer.method": "aws_msk_iam",
                "sasl.aws.msk.iam.region": "eu-west-1",
                "sasl.aws.msk.iam.role.arn": "arn:aws:iam::1:role/r",
            },
            "TokenCredentials(AWS MSK IAM (eu-west-1, arn:aws:iam::1:role/r))",
        ),
    ],
)
def test_the_keys_of_every_source(given: dict[str, Any], shown: str):
    assert made(given) == shown
    config = resolve(given)
    assert "planted-secret" not in f"{config!r} {config.describe()}"
    if "oauth_cb" not in given and "sasl_oauth_token_provider" not in given:
        assert pickle.loads(pickle.dumps(config)) == config


def test_every_mechanism_is_named():
    assert TOKEN_MECHANISMS == ("OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
    assert token_credentials(resolve({"oauth_cb": print})).mechanism == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {},
            "needs a source of tokens: a callable as sasl_oauth_token_provider, or sasl.oauthbearer.token.endpoint.url",
        ),
        ({**OIDC, "oauth_cb": print}, "are different sources of tokens; keep one"),
        (
            {"oauth_cb": print, "sasl.oauthbearer.method": "oidc"},
            "method=oidc needs sasl.oauthbearer.token.endpoint.url",
        ),
        ({"oauth_cb": 3}, "is neither a callable nor a token provider"),
        ({"oauth_cb": print, "sasl.mechanism": "PLAIN"}, "no effect with sasl.mechanism=PLAIN; set OAUTHBEARER"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "begins with ftp:; expected https, http, file"),
        ({"sasl.oauthbearer.token.endpoint.url": "file://host/x"}, "names no local file"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://u:planted-secret@x/"},
            "has a user name or password",
        ),
        ({"sasl.oauthbearer.client.secret": "planted-secret", "oauth_cb": print}, "client.secret needs"),
        ({**OIDC, "sasl.oauthbearer.token.endpoint.url": None, "oauth_cb": print}, "client.id needs .*endpoint.url"),
        (
            {"sasl.oauthbearer.token.endpoint.url": URL, "sasl.oauthbearer.client.id": "c"},
            r"needs sasl.oauthbearer.client.credentials.client.secret, or an assertion",
        ),
        ({**OIDC, **ASSERTION}, "are different proofs of the client's identity"),
        ({**ASSERTION, "sasl.oauthbearer.assertion.file": "/x"}, "are different sources of assertions; keep one"),
        ({**OIDC, "sasl.oauthbearer.grant.type": "jwt-bearer"}, "the JWT bearer grant needs an assertion"),
        ({**OIDC, "sasl.oauthbearer.grant.type": "password"}, "is not a valid value"),
        ({**OIDC, "sasl.oauthbearer.assertion.claim.iss": "i"}, "claim.iss would have no effect without"),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": URL,
                "sasl.oauthbearer.assertion.file": "/x",
                "sasl.oauthbearer.assertion.private.key.passphrase": "planted-secret",
            },
            "passphrase would have no effect without",
        ),
        ({**OIDC, "https.ca.pem": "x", "https.ca.location": "y"}, "keep one"),
        ({**OIDC, "sasl.oauthbearer.extensions": "auth=x"}, "can't be the name of a SASL extension"),
        ({**OIDC, "sasl.oauthbearer.extensions": "a=1,a=2"}, "distinct name=value pairs"),
        ({**OIDC, "sasl.oauthbearer.extensions": 7}, "name=value"),
        ({**OIDC, "sasl.login.refresh.window.factor": "0.4"}, "out of range; allowed is 0.5 to 1.0"),
        ({**OIDC, "sasl.login.refresh.window.jitter": "x"}, "is not a number"),
        ({**OIDC, "sasl.login.refresh.min.period.seconds": 901}, "too large"),
        ({**OIDC, "sasl.oauthbearer.assertion.algorithm": "HS256"}, "RS256, ES256"),
        ({**OIDC, "sasl.login.callback.handler.class": "com.example.Mine"}, "names a Java class"),
        ({**OIDC, "sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, "azure-identity"),
        (
            {"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_PLAINTEXT"},
            "over TLS only; set security.protocol=SASL_SSL",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_keys(given: dict[str, Any], problem: str):
    with pytest.raises(KafkaConfigurationError, match=problem) as raised:
        resolve(given)
    assert "planted-secret" not in str(raised.value)


def test_defaults_need_nothing_where_sasl_is_not_used():
    assert resolve({"security.protocol": "PLAINTEXT"}).sasl_oauth_token_provider is None


def test_javas_text_forms_are_understood():
    config = resolve({**OIDC, "sasl.login.connect.timeout.ms": None, "sasl.login.refresh.window.factor": "0.9"})
    assert (config.sasl_login_connect_timeout_ms, config.sasl_login_refresh_window_factor) == (10_000, 0.9)
    config = resolve({**OIDC, "sasl.oauthbearer.extensions": {"a": "b=c"}})
    assert config.sasl_oauthbearer_extensions == {"a": "b=c"}


def test_brokers_keys_have_no_effect(caplog: pytest.LogCaptureFixture):
    resolve({**OIDC, "sasl.oauthbearer.expected.audience": "kafka", "sasl.oauthbearer.jwks.endpoint.url": "x"})
    assert caplog.text.count("brokers validate tokens with it") == 2


# --- JAAS options ---


def test_options_of_a_login_module_fill_in_what_keys_leave_open():
    jaas = {"clientId": "c", "clientSecret": "planted-secret", "scope": "s", "extension_logicalCluster": "lkc-1"}
    given = {"sasl.oauthbearer.token.endpoint.url": URL, "sasl.jaas.config": "..."}
    assert made(given, jaas_options=jaas) == f"TokenCredentials(the token endpoint {URL})"
    with pytest.raises(KafkaConfigurationError, match=r"client\.id and \.secret, or an assertion"):
        made(given)
    with pytest.raises(KafkaConfigurationError, match=r"sasl\.jaas\.config"):
        made(given, jaas_options={**jaas, "extension_1": "x"})


def test_unsecured_tokens_by_the_options_of_java():
    given = {"sasl.jaas.config": "..."}
    assert made(given, jaas_options={"unsecuredLoginStringClaim_sub": "alice"}).endswith("unsecured tokens for alice)")
    with pytest.raises(KafkaConfigurationError, match="needs a source of tokens"):
        made(given)


def test_the_context_for_the_endpoint_may_be_replaced():
    asked: list[bool] = []

    def make_context() -> ssl.SSLContext:
        asked.append(True)
        raise ValueError("no context")

    credentials = token_credentials(
        resolve({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://localhost:1/"}), make_context=make_context
    )
    credentials.close()
    assert asked == []


# --- Optional packages ---


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch):
    def import_module(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(extras.importlib, "import_module", import_module)
    for given, extra in (
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "msk"),
        ({"sasl.mechanism": "GSSAPI"}, "gssapi"),
        (ASSERTION, "jwt"),
    ):
        with pytest.raises(KafkaConfigurationError, match=rf"pip install 'headrace\[{extra}\]'"):
            made(given)


# --- Amazon MSK ---


@pytest.fixture
def _aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")


@pytest.mark.usefixtures("_aws")
def test_the_signer_makes_a_token(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    made = MskIamSource(None, extensions={"a": "b"}).fetch()
    url = token.decode_segment(made.value).decode()
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "AKIDEXAMPLE%2F" in url
    assert "planted-secret" not in url
    assert made.expires_ms is not None
    assert made.extensions == {"a": "b"}


@pytest.mark.usefixtures("_aws")
def test_a_missing_region_names_the_key():
    with pytest.raises(KafkaConfigurationError, match=r"sasl\.aws\.msk\.iam\.region, or set .*AWS_REGION"):
        made({"sasl.mechanism": "AWS_MSK_IAM"})


@pytest.mark.usefixtures("_aws")
def test_missing_credentials_name_what_to_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(Exception, match="AWS credentials were not found; set AWS_ACCESS_KEY_ID"):
        MskIamSource("eu-west-1").fetch()
