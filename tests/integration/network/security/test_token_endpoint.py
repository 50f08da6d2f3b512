"""Requests for tokens to a real HTTP server: its answers, its faults, TLS, proxies, and rotated secrets."""

from __future__ import annotations

import base64
import logging
import re
import ssl
import threading
import traceback
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from support.token_endpoint import TokenEndpoint, answering

from headrace.network.clock import MockClock
from headrace.network.protocol.errors import KafkaConfigurationError, RetriableError, SaslAuthenticationFailedError
from headrace.network.security.assertions import AssertionSettings, FileAssertion, SignedAssertion
from headrace.network.security.oidc import (
    FileSource,
    OidcSource,
    client_assertion_request,
    client_secret_request,
    jwt_bearer_request,
)
from headrace.network.security.token_http import MAX_RESPONSE_BYTES, Endpoint, ca_context

SECRET = "planted/s3cret&+"
GOOD = {"access_token": "abc.def", "token_type": "Bearer", "expires_in": 3600}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint(answering(GOOD)) as endpoint:
        yield endpoint


def source(url: str, **changes: Any) -> OidcSource:
    """A source with a client secret."""
    options: dict[str, Any] = {"connect_timeout_ms": 5_000, "read_timeout_ms": 5_000, **changes}
    request = client_secret_request("client-1", SECRET, "produce consume", url_encode=False)
    return OidcSource(Endpoint(url, **options), request, {"logicalCluster": "lkc-1"}, options.get("clock", MockClock()))


def failure(url: str, error_class: type[Exception] = SaslAuthenticationFailedError, **changes: Any) -> str:
    """The text of the error of a fetch, after a look for secrets at everything that would be printed of it."""
    with pytest.raises(error_class) as raised:
        source(url, **changes).fetch()
    printed = "".join(traceback.format_exception(raised.value))
    assert "s3cret" not in printed
    assert base64.b64encode(f"client-1:{SECRET}".encode()).decode() not in printed
    return str(raised.value)


# --- The grants ---


def test_client_credentials_with_a_secret(endpoint: TokenEndpoint):
    clock = MockClock()
    token = source(endpoint.url, clock=clock).fetch()
    assert token.value == "abc.def"
    assert token.expires_ms == clock.wall_ms() + 3_600_000
    assert token.extensions == {"logicalCluster": "lkc-1"}
    [request] = endpoint.requests
    assert (request.method, request.target) == ("POST", "/oauth2/token")
    assert request.form == {"grant_type": "client_credentials", "scope": "produce consume"}
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(f"client-1:{SECRET}".encode()).decode()
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert request.headers["Accept"] == "application/json"


def test_id_and_secret_are_encoded_as_the_rfc_says_if_configured(endpoint: TokenEndpoint):
    request = client_secret_request("a b", SECRET, None, url_encode=True)
    OidcSource(Endpoint(endpoint.url, connect_timeout_ms=5000, read_timeout_ms=5000), request, {}).fetch()
    given = base64.b64decode(endpoint.requests[0].headers["Authorization"].removeprefix("Basic "))
    assert given == b"a+b:planted%2Fs3cret%26%2B"
    assert "scope" not in endpoint.requests[0].form


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def pem_of(key: Any, passphrase: str | None = None) -> bytes:
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def test_a_client_assertion_is_signed_for_each_request(endpoint: TokenEndpoint, rsa_key: Any, tmp_path: Path):
    key_file, template = tmp_path / "key.pem", tmp_path / "template.json"
    key_file.write_bytes(pem_of(rsa_key, "passphrase"))
    template.write_text('{"header": {"kid": "k1", "alg": "none"}, "payload": {"tenant": "t", "sub": "other"}}')
    clock = MockClock()
    settings = AssertionSettings(
        private_key_file=str(key_file),
        private_key_passphrase="passphrase",
        audience="https://idp",
        issuer="client-1",
        subject="client-1",
        include_id=True,
        template_file=str(template),
    )
    signed = SignedAssertion(settings, clock)
    made = OidcSource(
        Endpoint(endpoint.url, connect_timeout_ms=5000, read_timeout_ms=5000),
        client_assertion_request(signed, "client-1", "produce"),
        {},
    )
    made.fetch()
    made.fetch()
    first, second = endpoint.requests
    assertion = first.form.pop("client_assertion")
    assert first.form == {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_id": "client-1",
        "scope": "produce",
    }
    assert "Authorization" not in first.headers
    assert jwt.get_unverified_header(assertion) == {"alg": "RS256", "kid": "k1", "typ": "JWT"}
    claims = jwt.decode(
        assertion,
        rsa_key.public_key(),
        ["RS256"],
        audience="https://idp",
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )
    now_s = clock.wall_ms() // 1000
    assert claims.pop("jti") != jwt.decode(second.form["client_assertion"], options={"verify_signature": False})["jti"]
    assert claims == {
        "aud": "https://idp",
        "iss": "client-1",
        "sub": "client-1",
        "tenant": "t",
        "iat": now_s,
        "nbf": now_s - 60,
        "exp": now_s + 300,
    }


def test_the_jwt_bearer_grant_with_es256(endpoint: TokenEndpoint):
    key = ec.generate_private_key(ec.SECP256R1())
    settings = AssertionSettings(algorithm="ES256", private_key_pem=pem_of(key).decode(), issuer="i")
    request = jwt_bearer_request(SignedAssertion(settings), "produce")
    OidcSource(Endpoint(endpoint.url, connect_timeout_ms=5000, read_timeout_ms=5000), request, {}).fetch()
    form = endpoint.requests[0].form
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form["scope"] == "produce"
    assert jwt.decode(form["assertion"], key.public_key(), ["ES256"])["iss"] == "i"


def test_a_rotated_assertion_file_and_key_are_used_without_a_restart(
    endpoint: TokenEndpoint, rsa_key: Any, tmp_path: Path
):
    file, key_file = tmp_path / "assertion", tmp_path / "key.pem"
    assertions = FileAssertion(str(file))
    file.write_text("e30.e30.eA\n")
    assert assertions.create() == "e30.e30.eA"
    file.write_text("e30.e30.eQ")
    assert assertions.create() == "e30.e30.eQ"
    new_key = rsa.generate_private_key(65537, 2048)
    signed = SignedAssertion(AssertionSettings(private_key_file=str(key_file)))
    for key in (rsa_key, new_key):
        key_file.write_bytes(pem_of(key))
        assert jwt.decode(signed.create(), key.public_key(), ["RS256"])["exp"]


@pytest.mark.parametrize(
    ("content", "passphrase", "problem"),
    [
        (b"planted-key", None, "is not a private key in PEM.*passphrase is missing"),
        (None, "wrong", "passphrase is wrong"),
        (None, None, "passphrase is missing"),
        (b"\xff\xfe", None, "not text"),
        (b"x" * 1_048_577, None, "more than 1048576 bytes"),
    ],
)
def test_a_bad_private_key_is_an_error_without_the_key(
    rsa_key: Any, tmp_path: Path, content: bytes | None, passphrase: str | None, problem: str
):
    key_file = tmp_path / "key.pem"
    key_file.write_bytes(pem_of(rsa_key, "right") if content is None else content)
    settings = AssertionSettings(private_key_file=str(key_file), private_key_passphrase=passphrase)
    with pytest.raises(SaslAuthenticationFailedError, match=problem) as raised:
        SignedAssertion(settings).create()
    assert "planted-key" not in "".join(traceback.format_exception(raised.value))


def test_a_key_of_the_wrong_kind_names_the_algorithm():
    pem = pem_of(ec.generate_private_key(ec.SECP256R1())).decode()
    with pytest.raises(SaslAuthenticationFailedError, match="is it a key for RS256"):
        SignedAssertion(AssertionSettings(private_key_pem=pem)).create()


def test_missing_and_malformed_files_name_the_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        FileAssertion(str(tmp_path / "none")).create()
    file = tmp_path / "assertion"
    file.write_text("not a token")
    with pytest.raises(SaslAuthenticationFailedError, match="holds no JSON Web Token: it has 1 segments"):
        FileAssertion(str(file)).create()
    template = tmp_path / "template"
    for text in ("[]", "{", '{"header": 1}', '{"payload": []}'):
        template.write_text(text)
        with pytest.raises(SaslAuthenticationFailedError, match="is not a JSON object"):
            SignedAssertion(AssertionSettings(private_key_pem="x", template_file=str(template))).create()


def test_a_token_file_is_read_for_each_token(tmp_path: Path):
    file = tmp_path / "the token"
    file.write_text("first\n")
    tokens = FileSource(f"file://{str(file).replace(' ', '%20')}", {"a": "b"})
    assert (tokens.fetch().value, tokens.fetch().extensions) == ("first", {"a": "b"})
    file.write_text("second")
    assert tokens.fetch().value == "second"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        tokens.fetch()


# --- Answers ---


@pytest.mark.parametrize(
    ("status", "body", "kind", "error_class", "said"),
    [
        (500, b"boom", "text/plain", RetriableError, "answered 500 .*4 bytes of text/plain"),
        (503, b"", "", RetriableError, "answered 503 .*no content"),
        (429, {"error": "slow_down"}, "application/json", RetriableError, "slow_down"),
        (401, {"error": "invalid_client", "error_description": "no " + SECRET}, "application/json",
         SaslAuthenticationFailedError, r"answered 401 Unauthorized: invalid_client - no \*\*\*\*\*\*"),
        (400, {"errorCode": "E1", "errorSummary": "bad scope"}, "application/json", SaslAuthenticationFailedError,
         "E1 - bad scope"),
        (404, b"<html>", "text/html", SaslAuthenticationFailedError, "answered 404 .*6 bytes of text/html"),
        (200, b"<html>" + SECRET.encode(), "text/html; charset=utf-8", SaslAuthenticationFailedError,
         "bytes of text/html; charset=utf-8; expected a JSON object"),
        (200, b"[1]", "application/json", SaslAuthenticationFailedError, "expected a JSON object"),
        (200, b"", "application/json", RetriableError, "answered 200 without content"),
        (200, {"token": SECRET}, "application/json", SaslAuthenticationFailedError, "no access_token; it has token$"),
        (200, {"access_token": " "}, "application/json", SaslAuthenticationFailedError, "no access_token"),
        (200, {"access_token": 7}, "application/json", SaslAuthenticationFailedError, "no access_token"),
        (200, {"access_token": SECRET}, "application/json", SaslAuthenticationFailedError, "U\\+0026 at position"),
        (200, {**GOOD, "token_type": "mac"}, "application/json", SaslAuthenticationFailedError, "expected Bearer"),
        (200, b"[" * 100_000, "application/json", SaslAuthenticationFailedError, "expected a JSON object"),
    ],
)  # fmt: skip
def test_a_bad_answer_is_an_error_that_quotes_it(
    endpoint: TokenEndpoint, status: int, body: Any, kind: str, error_class: type[Exception], said: str
):
    endpoint.answer = answering(body, status, kind)
    text = failure(endpoint.url, error_class)
    assert re.search(said, text) is not None, text


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-unknown"])
def test_json_of_another_content_type_is_accepted(endpoint: TokenEndpoint, kind: str):
    endpoint.answer = answering(GOOD, content_type=kind)
    assert source(endpoint.url).fetch().value == "abc.def"


@pytest.mark.parametrize(
    ("given", "expected_s"),
    [("3599", 3599), (60.5, 60.5), (0, None), (-1, None), ("soon", None), (None, None), (True, None)],
)
def test_the_lifetime_may_be_text_or_absent(endpoint: TokenEndpoint, given: Any, expected_s: float | None):
    endpoint.answer = answering({**GOOD, "expires_in": given})
    clock = MockClock()
    expires_ms = source(endpoint.url, clock=clock).fetch().expires_ms
    assert expires_ms == (None if expected_s is None else clock.wall_ms() + expected_s * 1000.0)


def test_a_chunked_answer_is_read(endpoint: TokenEndpoint):
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in (b'{"access_token": ', b'"abc"', b"}"):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")

    endpoint.answer = answer
    assert source(endpoint.url).fetch().value == "abc"


def test_a_redirect_is_not_followed(endpoint: TokenEndpoint):
    with TokenEndpoint(answering(GOOD)) as other:
        for status in (301, 302, 307, 308):
            endpoint.answer = answering(b"", status, headers={"Location": f"{other.url}?code={SECRET}"})
            assert f"answered {status}, a redirect to {other.url}, which is not followed" in failure(endpoint.url)
        assert other.requests == []


def test_a_huge_answer_is_not_read_to_its_end(endpoint: TokenEndpoint):
    sent = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**12))
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b" " * 65536)
        except OSError:
            sent.set()

    endpoint.answer = answer
    assert f"more than {MAX_RESPONSE_BYTES} bytes" in failure(endpoint.url)
    assert sent.wait(10)


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n{"])
def test_a_slow_answer_ends_within_the_timeout(endpoint: TokenEndpoint, begins: bytes):
    over = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(begins)
        # each byte comes before a timeout per read would end
        while not over.wait(0.02):
            handler.wfile.write(b" " if begins.endswith(b"{") else b"X")

    endpoint.answer = answer
    try:
        text = failure(endpoint.url, RetriableError, read_timeout_ms=200)
    finally:
        over.set()
    assert "no answer within 0.2 s (sasl.login.read.timeout.ms) while waiting for the response" in text


@pytest.mark.parametrize("cut_at", [0, 5, 20, 60, 90])
def test_a_connection_cut_at_any_point_may_be_tried_again(endpoint: TokenEndpoint, cut_at: int):
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n" + b"{" * 40

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(whole[:cut_at])

    endpoint.answer = answer
    text = failure(endpoint.url, RetriableError)
    assert "failed while waiting for the response" in text or "answered 200 without content" in text


def test_an_answer_that_is_not_http_may_be_tried_again(endpoint: TokenEndpoint):
    endpoint.answer = lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")
    assert "failed while waiting for the response: SSH-2.0-OpenSSH" in failure(endpoint.url, RetriableError)


def test_a_clock_that_differs_is_mentioned(endpoint: TokenEndpoint):
    endpoint.answer = answering({"error": "invalid_client"}, 401)
    clock = MockClock(wall_ms=0)
    assert " ahead of this machine's)" in failure(endpoint.url, clock=clock)


def test_nobody_listens():
    with TokenEndpoint(answering(GOOD)) as gone:
        pass
    assert "failed while connecting to localhost" in failure(gone.url, RetriableError)
    assert "failed while connecting" in failure("http://no-such-host.invalid/", RetriableError)


# --- TLS ---


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def test_tls_with_the_configured_authority(authority: trustme.CA, tmp_path: Path):
    pem = authority.cert_pem.bytes().decode()
    path = tmp_path / "ca.pem"
    path.write_text(pem)
    with TokenEndpoint(answering(GOOD), server_context(authority)) as endpoint:
        for location, text in ((str(path), None), (None, pem)):
            context = partial(ca_context, location, text)
            assert source(endpoint.url, make_context=context).fetch().value == "abc.def"
        # a file that was replaced is used by the next request
        other = trustme.CA()
        path.write_bytes(other.cert_pem.bytes())
        assert "not trusted" in failure(endpoint.url, make_context=partial(ca_context, str(path), None))


def test_tls_with_another_authority_or_name_is_an_error(authority: trustme.CA):
    with TokenEndpoint(answering(GOOD), server_context(authority)) as endpoint:
        assert "not trusted" in failure(endpoint.url)
    pem = authority.cert_pem.bytes().decode()
    with TokenEndpoint(answering(GOOD), server_context(authority, "other.example")) as endpoint:
        text = failure(endpoint.url, make_context=partial(ca_context, None, pem))
        assert "Hostname mismatch" in text
        assert endpoint.requests == []


def test_authorities_that_cannot_be_loaded_name_the_keys(tmp_path: Path):
    for location, pem in ((str(tmp_path / "none"), None), (None, "planted-pem")):
        text = failure("https://localhost:1/", make_context=partial(ca_context, location, pem))
        assert "https.ca.location, https.ca.pem" in text
        assert "planted-pem" not in text


def test_https_to_a_plaintext_port(endpoint: TokenEndpoint):
    url = endpoint.url.replace("http:", "https:")
    assert "failed while connecting" in failure(url, RetriableError, connect_timeout_ms=2_000)
    assert endpoint.requests == []


# --- Proxies ---


def test_a_proxy_of_the_environment_is_used(endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", f"http://user:pa%24s@localhost:{endpoint.port}")
    assert source("http://idp.example:8080/token?a=b").fetch().value == "abc.def"
    [request] = endpoint.requests
    assert request.target == "http://idp.example:8080/token?a=b"
    assert request.headers["Proxy-Authorization"] == "Basic " + base64.b64encode(b"user:pa$s").decode()
    assert request.headers["Host"] == "idp.example:8080"
    monkeypatch.setenv("no_proxy", "localhost")
    assert source(endpoint.url).fetch().value == "abc.def"
    assert endpoint.requests[-1].target == "/oauth2/token"


def test_https_goes_through_a_tunnel(endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch):
    endpoint.answer = answering(b"", 403)
    monkeypatch.setenv("https_proxy", f"localhost:{endpoint.port}")
    text = failure("https://idp.example/token", RetriableError)
    assert "Tunnel connection failed: 403" in text
    [request] = endpoint.requests
    assert (request.method, request.target) == ("CONNECT", "idp.example:443")
    assert "Authorization" not in request.headers


def test_a_proxy_of_another_kind_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", f"socks5://u:{SECRET.replace('/', '')}@localhost:1")
    assert "names the proxy socks5://localhost:1; only http:// proxies" in failure("http://idp.example/")


# --- URLs and logs ---


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://host/", "begins with ftp:"),
        ("host/token", "begins with no scheme"),
        ("https:///token", "names no host"),
        ("https://u:s3cret@host/", "has a user name or password"),
        ("https://host:x/", "is not a URL"),
        ("https://host/a b", "white space"),
    ],
)
def test_a_bad_url_is_a_configuration_error(url: str, problem: str):
    with pytest.raises(KafkaConfigurationError, match=problem) as raised:
        Endpoint(url, connect_timeout_ms=1, read_timeout_ms=1)
    assert "s3cret" not in str(raised.value)


def test_nothing_secret_is_logged(endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        made = source(endpoint.url + "?code=s3cret")
        token = made.fetch()
    shown = f"{caplog.text} {made!r} {token!r}"
    assert "s3cret" not in shown
    assert "abc.def" not in shown
    assert "localhost" in shown
