"""Validators of tokens: unsecured ones as Kafka's default, and signed ones."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.network.security.oauthbearer import InvalidTokenError, OAuthBearerClient, OAuthBearerServer
from headrace.network.security.token import Token, encode_segment
from headrace.network.security.token_validators import SignedJwtValidator, UnsecuredJwtValidator
from headrace.network.security.unsecured import UnsecuredSource, parse_unsecured

NOW_S = 1_600_000_000


def unsecured(claims: dict[str, Any], header: dict[str, Any] | None = None, signature: str = "") -> str:
    parts = ({"alg": "none"} if header is None else header, claims)
    return ".".join(encode_segment(json.dumps(part).encode()) for part in parts) + f".{signature}"


def test_an_unsecured_token_made_here_is_accepted_there():
    clock = MockClock()
    content = parse_unsecured("principal=alice lifeSeconds=60 scope=a,b extension_traceId=7")
    token = UnsecuredSource(content, {"other": "x"}, clock).fetch()
    assert token.expires_ms == clock.wall_ms() + 60_000
    client = OAuthBearerClient(token.value, token.extensions)
    server = OAuthBearerServer(UnsecuredJwtValidator(required_scope=("b",), clock=clock))
    client.respond(server.respond(client.initial_message()))
    assert (server.principal_name, server.expires_ms) == ("alice", token.expires_ms)
    assert token.extensions == {"other": "x", "traceId": "7"}


@pytest.mark.parametrize(
    "text",
    ["", "principal=", "lifeSeconds=5", "principal=a lifeSeconds=0", "principal=a x=y", "principal=a extension_1=b"],
)
def test_a_bad_description_of_unsecured_tokens_is_an_error(text: str):
    with pytest.raises(KafkaConfigurationError, match=r"sasl\.oauthbearer\.config"):
        parse_unsecured(text)


GOOD = {"sub": "alice", "exp": NOW_S + 60}


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("abc", "1 segments"),
        (unsecured(GOOD, {"alg": "RS256"}), "algorithm"),
        (unsecured(GOOD, {}), "algorithm"),
        (unsecured(GOOD, signature="c2ln"), "signature"),
        (unsecured({"sub": "alice"}), "no expiry"),
        (unsecured({**GOOD, "exp": "60"}), "no expiry"),
        (unsecured({**GOOD, "exp": NOW_S}), "expired 0 s ago"),
        (unsecured({**GOOD, "iat": NOW_S + 1}), "only later"),
        (unsecured({**GOOD, "nbf": NOW_S + 61}), "only later"),
        (unsecured({"exp": NOW_S + 60}), "claim sub"),
        (unsecured({**GOOD, "sub": " "}), "claim sub"),
        (unsecured({**GOOD, "scope": "read"}), "scope"),
        (unsecured({**GOOD, "scope": 3}), "scope"),
    ],
)
def test_unsecured_tokens_that_kafka_rejects(token: str, problem: str):
    needs = ("produce",) if problem == "scope" else ()
    with pytest.raises(InvalidTokenError, match=problem) as raised:
        UnsecuredJwtValidator(required_scope=needs, clock=MockClock())(token, {})
    assert raised.value.status == ("insufficient_scope" if needs else "invalid_token")


def test_a_tolerated_difference_of_clocks():
    validator = UnsecuredJwtValidator(clock_skew_ms=1000, clock=MockClock())
    assert validator(unsecured({"sub": "a", "exp": NOW_S - 0.5}), {}).expires_ms == (NOW_S - 0.5) * 1000
    assert validator(unsecured({"sub": "a", "exp": NOW_S + 9, "iat": NOW_S + 1}), {}).principal_name == "a"


# --- Signed tokens ---


@pytest.fixture(scope="module")
def keys() -> dict[str, Any]:
    return {"r": rsa.generate_private_key(65537, 2048), "e": ec.generate_private_key(ec.SECP256R1())}


@pytest.fixture(scope="module")
def jwks(keys: dict[str, Any]) -> dict[str, Any]:
    r = json.loads(RSAAlgorithm.to_jwk(keys["r"].public_key()))
    e = json.loads(ECAlgorithm.to_jwk(keys["e"].public_key()))
    return {"keys": [{**r, "kid": "r", "alg": "RS256"}, {**e, "kid": "e", "alg": "ES256"}]}


CLAIMS = {"sub": "alice", "exp": NOW_S + 60, "iss": "https://idp", "aud": ["kafka", "other"]}


def validator_of(jwks: dict[str, Any], **options: Any) -> SignedJwtValidator:
    return SignedJwtValidator(jwks, clock=MockClock(), **options)


@pytest.mark.parametrize(("kid", "algorithm"), [("r", "RS256"), ("e", "ES256")])
def test_a_signed_token_is_accepted(keys: dict[str, Any], jwks: dict[str, Any], kid: str, algorithm: str):
    token = jwt.encode(CLAIMS, keys[kid], algorithm, {"kid": kid})
    assert validator_of(jwks)(token, {}) == ("alice", (NOW_S + 60) * 1000.0)
    strict = validator_of(jwks, issuer="https://idp", audience="kafka", sub_claim_name="iss")
    assert strict(token, {}).principal_name == "https://idp"
    assert Token(token).expires_ms == (NOW_S + 60) * 1000.0


@pytest.mark.parametrize(
    ("claims", "options", "problem"),
    [
        ({}, {"issuer": "https://other"}, "InvalidIssuer"),
        ({}, {"audience": "else"}, "InvalidAudience"),
        ({"exp": NOW_S - 31}, {}, "expired"),
        ({"exp": None}, {}, "exp"),
        ({"nbf": NOW_S + 31}, {}, "only later"),
        ({"iat": NOW_S + 31}, {}, "only later"),
        ({"sub": 7}, {"sub_claim_name": "name"}, "claim name"),
    ],
)
def test_claims_that_do_not_fit_are_rejected(
    keys: dict[str, Any], jwks: dict[str, Any], claims: dict[str, Any], options: dict[str, Any], problem: str
):
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    given["sub"] = str(given["sub"])
    with pytest.raises(InvalidTokenError, match=problem):
        validator_of(jwks, **options)(jwt.encode(given, keys["r"], "RS256", {"kid": "r"}), {})


def test_forged_tokens_are_rejected(keys: dict[str, Any], jwks: dict[str, Any]):
    validate = validator_of(jwks)
    good = jwt.encode(CLAIMS, keys["r"], "RS256", {"kid": "r"})
    header, payload, signature = good.split(".")
    other = rsa.generate_private_key(65537, 2048)
    forged = [
        unsecured(CLAIMS),
        unsecured(CLAIMS, {"alg": "none", "kid": "r"}),
        unsecured(CLAIMS, {"alg": "NONE", "kid": "r"}),
        jwt.encode(CLAIMS, "x" * 32, "HS256", {"kid": "r"}),
        jwt.encode(CLAIMS, other, "RS256", {"kid": "r"}),
        jwt.encode(CLAIMS, keys["r"], "RS256", {"kid": "unknown"}),
        jwt.encode(CLAIMS, keys["r"], "RS256", {"kid": "e"}),
        jwt.encode(CLAIMS, keys["r"], "RS256"),
        f"{header}.{payload}.",
        f"{header}.{payload}",
        f"{header}.{encode_segment(json.dumps({**CLAIMS, 'sub': 'root'}).encode())}.{signature}",
        good[:-10],
        "",
        "..",
    ]
    for token in forged:
        with pytest.raises(InvalidTokenError):
            validate(token, {})
    assert validate(good, {}).principal_name == "alice"


@pytest.mark.parametrize("jwks", [{}, {"keys": []}, {"keys": [{"kty": "RSA"}]}, {"keys": "x"}])
def test_a_bad_key_set_is_a_configuration_error(jwks: dict[str, Any]):
    with pytest.raises(KafkaConfigurationError, match="JSON Web Key Set"):
        SignedJwtValidator(jwks)
