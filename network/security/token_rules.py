"""The rules across the keys of TokenConfig: what belongs together, and what excludes each other."""

from __future__ import annotations

from ..config import Draft, Rule, dotted
from .mechanism_names import AWS_MSK_IAM, JWT_BEARER, OAUTHBEARER

_ASSERTION = "sasl.oauthbearer.assertion"
_URL = "sasl.oauthbearer.token.endpoint.url"
_ASSERTIONS = tuple(f"sasl_oauthbearer_assertion_{name}" for name in ("file", "private_key_file", "private_key_pem"))


def _mechanism(draft: Draft) -> str | None:
    """`sasl.mechanism`, which another table declares; None if SASL is not used."""
    protocol = draft.values.get("security_protocol")
    if protocol is not None and not str(protocol).startswith("SASL"):
        return None
    return draft.values.get("sasl_mechanism")


def _one_token_source(draft: Draft) -> None:
    """OAUTHBEARER needs exactly one source of tokens: `sasl_oauth_token_provider`, the URL of a token endpoint or
    token file, MSK IAM, or unsecured tokens. Without SASL, a source is an error.
    """
    given = [
        name
        for name, is_given in (
            ("sasl_oauth_token_provider", draft["sasl_oauth_token_provider"] is not None),
            (_URL, draft["sasl_oauthbearer_token_endpoint_url"] is not None),
            ("sasl.oauthbearer.method=aws_msk_iam", draft["sasl_oauthbearer_method"] == "aws_msk_iam"),
            ("enable.sasl.oauthbearer.unsecure.jwt", draft["enable_sasl_oauthbearer_unsecure_jwt"]),
        )
        if is_given
    ]
    if len(given) > 1:
        draft.problem(f"{' and '.join(given)} are different sources of tokens; keep one")
    if draft["sasl_oauthbearer_method"] == "oidc" and draft["sasl_oauthbearer_token_endpoint_url"] is None:
        draft.problem(f"sasl.oauthbearer.method=oidc needs {_URL}")
    protocol = draft.values.get("security_protocol")
    if given and protocol is not None and not protocol.startswith("SASL"):
        draft.problem(f"{given[0]} is set, but security.protocol={protocol} does not authenticate; set it to SASL_SSL")
    mechanism = _mechanism(draft)
    if given and mechanism not in (None, OAUTHBEARER, AWS_MSK_IAM):
        draft.problem(f"{given[0]} would have no effect with sasl.mechanism={mechanism}; set OAUTHBEARER")
    # a JAAS configuration may name the source, too: `token_credentials` reads that
    if not given and mechanism == OAUTHBEARER and draft.values.get("sasl_jaas_config") is None:
        draft.problem(NO_SOURCE)


NO_SOURCE = (
    f"sasl.mechanism=OAUTHBEARER needs a source of tokens: a callable as sasl_oauth_token_provider, or {_URL} with "
    "sasl.oauthbearer.client.credentials.client.id and .secret"
)


def _complete_client(draft: Draft) -> None:
    """A client id needs either the secret or an assertion. All of them need the URL of a token endpoint."""
    client_id = draft["sasl_oauthbearer_client_credentials_client_id"]
    secret = draft["sasl_oauthbearer_client_credentials_client_secret"]
    names = "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"
    if secret is not None and client_id is None:
        draft.problem(f"{names[1]} needs {names[0]}")
    has_assertion = any(draft[name] is not None for name in _ASSERTIONS)
    if secret is not None and has_assertion:
        draft.problem(f"{names[1]} and {_ASSERTION}.* are different proofs of the client's identity; keep one")
    if client_id is not None and secret is None and not has_assertion:
        draft.problem(f"{names[0]} needs {names[1]}, or an assertion ({_ASSERTION}.*)")
    url = draft["sasl_oauthbearer_token_endpoint_url"]
    if (client_id is not None or secret is not None) and url is None:
        draft.problem(f"{names[0]} needs {_URL}")
    if has_assertion and url is None:
        draft.problem(f"{_ASSERTION}.* needs {_URL}")


def _one_assertion(draft: Draft) -> None:
    """An assertion comes from a file or is signed here, with one private key. The JWT bearer grant needs one."""
    sources = [name for name in _ASSERTIONS if draft[name] is not None]
    if len(sources) > 1:
        draft.problem(f"{' and '.join(map(dotted, sources))} are different sources of assertions; keep one")
    if not sources and draft["sasl_oauthbearer_grant_type"] == JWT_BEARER:
        draft.problem(
            f"the JWT bearer grant needs an assertion: {_ASSERTION}.private.key.file, with claims, or {_ASSERTION}.file"
        )
    is_signed_here = any(name != _ASSERTIONS[0] for name in sources)
    unused = [dotted(name) for name in _SIGNING_KEYS if draft.asks_for(name)]
    if unused and not is_signed_here:
        draft.problem(f"{', '.join(unused)} would have no effect without {_ASSERTION}.private.key.file")


_SIGNING_KEYS = tuple(
    f"sasl_oauthbearer_assertion_{name}"
    for name in (
        "algorithm",
        "claim_aud",
        "claim_exp_seconds",
        "claim_iss",
        "claim_jti_include",
        "claim_nbf_seconds",
        "claim_sub",
        "private_key_passphrase",
        "template_file",
    )
)


def _encrypted_tokens(draft: Draft) -> None:
    """Amazon MSK accepts IAM over TLS only: `sasl.mechanism=AWS_MSK_IAM` needs `security.protocol=SASL_SSL`."""
    is_msk = _mechanism(draft) == AWS_MSK_IAM or draft["sasl_oauthbearer_method"] == "aws_msk_iam"
    if is_msk and draft.values.get("security_protocol") == "SASL_PLAINTEXT":
        draft.problem("Amazon MSK accepts IAM over TLS only; set security.protocol=SASL_SSL")


def _one_https_ca(draft: Draft) -> None:
    """`https.ca.location` and `https.ca.pem` exclude each other."""
    if draft["https_ca_location"] is not None and draft["https_ca_pem"] is not None:
        draft.problem("https.ca.location and https.ca.pem are given; keep one")


TOKEN_RULES = (
    Rule(
        (
            "sasl_oauth_token_provider",
            "sasl_oauthbearer_token_endpoint_url",
            "sasl_oauthbearer_method",
            "enable_sasl_oauthbearer_unsecure_jwt",
            "sasl_mechanism",
        ),
        _one_token_source,
    ),
    Rule(
        (
            "sasl_oauthbearer_client_credentials_client_id",
            "sasl_oauthbearer_client_credentials_client_secret",
            "sasl_oauthbearer_token_endpoint_url",
            *_ASSERTIONS,
        ),
        _complete_client,
    ),
    Rule(("sasl_oauthbearer_grant_type", *_ASSERTIONS, *_SIGNING_KEYS), _one_assertion),
    Rule(("sasl_oauthbearer_method", "sasl_mechanism", "security_protocol"), _encrypted_tokens),
    Rule(("https_ca_location", "https_ca_pem"), _one_https_ca),
)
