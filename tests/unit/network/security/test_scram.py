"""The two halves of SCRAM against the vectors of the RFCs, against each other, and against altered messages."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient as KafkaPythonScram

from headrace.network.protocol.errors import IllegalStateError, SaslAuthenticationFailedError
from headrace.network.security.scram import (
    MAX_ITERATIONS,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
)

SHA_256 = ScramMechanism.SHA_256
MECHANISMS = list(ScramMechanism)
PASSWORD = "pencil"
CREDENTIALS = {each: ScramCredential.from_password(each, PASSWORD) for each in MECHANISMS}


def client_of(mechanism=SHA_256, name="user", password=PASSWORD, nonce=None) -> ScramClient:
    return ScramClient(
        mechanism, name, lambda salt, count: mechanism.salted_password(password, salt, count), nonce=nonce
    )


def server_of(mechanism=SHA_256, nonce=None, credential=None) -> ScramServer:
    found = CREDENTIALS[mechanism] if credential is None else credential
    return ScramServer(mechanism, lambda name: found if name in ("user", "a,b=c") else None, nonce=nonce)


def exchange(client, server) -> list[bytes]:
    """The four messages."""
    first = client.initial_message()
    second = server.respond(first)
    third = client.respond(second)
    fourth = server.respond(third)
    assert client.respond(fourth) is None
    return [first, second, third, fourth]


def test_the_vector_of_rfc_7677():
    credential = ScramCredential.from_password(SHA_256, PASSWORD, salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    client = client_of(nonce="rOprNGfwEbeRWgbNEkqO")
    messages = exchange(client, server_of(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", credential=credential))
    assert messages == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]
    assert client.is_complete


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.label)
@pytest.mark.parametrize("name", ["user", "a,b=c"])
def test_the_right_password_completes_both_halves(mechanism, name):
    client, server = client_of(mechanism, name), server_of(mechanism)
    exchange(client, server)
    assert client.is_complete
    assert server.is_complete
    assert server.principal_name == name
    assert server.expires_ms is None


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.label)
def test_the_client_of_kafka_python_agrees(mechanism):
    other, server = KafkaPythonScram("user", PASSWORD, mechanism.label), server_of(mechanism)
    other.process_server_first_message(server.respond(other.first_message()))
    other.process_server_final_message(server.respond(other.final_message()))
    assert server.is_complete


def test_each_exchange_has_its_own_nonces():
    one, other = (exchange(client_of(), server_of()) for _ in range(2))
    assert all(a != b for a, b in zip(one, other, strict=True))


def test_a_wrong_password_and_an_unknown_user_have_the_same_error():
    server = server_of()
    client = client_of(password="pencils")
    proof = client.respond(server.respond(client.initial_message()))
    with pytest.raises(SaslAuthenticationFailedError, match="invalid credentials with SASL mechanism SCRAM") as wrong:
        server.respond(proof)
    with pytest.raises(SaslAuthenticationFailedError) as unknown:
        server_of().respond(client_of(name="nobody").initial_message())
    assert str(wrong.value) == str(unknown.value)
    assert not server.is_complete
    with pytest.raises(IllegalStateError):
        _ = server.principal_name


def test_a_server_without_the_credential_is_recognized():
    client = client_of()
    stranger = server_of(credential=ScramCredential.from_password(SHA_256, "guess"))
    client.respond(stranger.respond(client.initial_message()))
    with pytest.raises(SaslAuthenticationFailedError, match="signature is wrong"):
        client.respond(b"v=" + base64.b64encode(bytes(32)))
    assert not client.is_complete


@pytest.mark.parametrize("count", [0, 1, 4095, MAX_ITERATIONS + 1, 9_999_999_999])
def test_iteration_counts_out_of_range_are_refused_before_they_are_computed(count):
    def never(salt, iterations):
        raise AssertionError("computed")

    client = ScramClient(SHA_256, "user", never, nonce="abc")
    client.initial_message()
    with pytest.raises(SaslAuthenticationFailedError, match="iteration"):
        client.respond(f"r=abcdef,s=c2FsdA==,i={count}".encode())


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"r=abcdef,s=c2FsdA==", "ends before the attribute 'i'"),
        (b"s=c2FsdA==,r=abcdef,i=4096", "where 'r' was expected"),
        (b"r=abcdef,s=!!,i=4096", "not base64"),
        (b"r=abcdef,s=c2FsdA==,i=4e3", "iteration count"),
        (b"r=xyz,s=c2FsdA==,i=4096", "nonce"),
        (b"r=abc,s=c2FsdA==,i=4096", "nonce"),
        (b"m=x,r=abcdef,s=c2FsdA==,i=4096", "extension"),
        (b"r=abcdef,s=c2FsdA==,i=4096,i=4096", "twice"),
        (b"r=abc\x7fdef,s=c2FsdA==,i=4096", "nonce"),
        (b"\xff", "UTF-8"),
        (b"r=abc\0def,s=c2FsdA==,i=4096", "NUL"),
        (b"", "invalid attribute"),
        (b"x" * 70_000, "70000 bytes"),
    ],
)
def test_a_malformed_server_first_message_is_refused(message, problem):
    client = client_of(nonce="abc")
    client.initial_message()
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        client.respond(message)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n=user,r=abc", "does not begin"),
        (b"n,,n=user", "ends before"),
        (b"n,,n=us=2Der,r=abc", "escape"),
        (b"n,x,n=user,r=abc", "authorization id"),
        (b"n,a=root,n=user,r=abc", "different from username"),
        (b"n,,m=1,n=user,r=abc", "extension"),
    ],
)
def test_a_malformed_client_first_message_is_refused(message, problem):
    with pytest.raises(SaslAuthenticationFailedError, match=problem):
        server_of().respond(message)


@pytest.mark.parametrize("first", [b"n,,n=user,r=abc,tokenauth=true", b"n,a=user,n=user,r=abc", b"y,,n=user,r=abc"])
def test_optional_extensions_and_other_headers_are_accepted(first):
    server = server_of()
    answer = server.respond(first).decode()
    nonce, salt, count = (part[2:] for part in answer.split(","))
    salted = SHA_256.salted_password(PASSWORD, base64.b64decode(salt), int(count))
    key = SHA_256.hmac(salted, b"Client Key")
    header = first[: first.index(b"n=user")]
    bare = f"c={base64.b64encode(header).decode()},r={nonce}"
    signed = f"{first.removeprefix(header).decode()},{answer},{bare}".encode()
    proof = bytes(a ^ b for a, b in zip(key, SHA_256.hmac(SHA_256.hash(key), signed), strict=True))
    assert server.respond(f"{bare},p={base64.b64encode(proof).decode()}".encode()).startswith(b"v=")


def test_a_replayed_client_is_refused():
    messages = exchange(client_of(), server_of())
    server = server_of()
    server.respond(messages[0])
    with pytest.raises(SaslAuthenticationFailedError, match="nonce"):
        server.respond(messages[2])
    with pytest.raises(SaslAuthenticationFailedError, match="ended"):
        server.respond(messages[2])


def test_a_replayed_server_is_refused():
    messages = exchange(client_of(), server_of())
    client = client_of()
    client.initial_message()
    with pytest.raises(SaslAuthenticationFailedError, match="another exchange"):
        client.respond(messages[1])


def test_the_errors_of_the_server_are_reported():
    client, server = client_of(), server_of()
    client.respond(server.respond(client.initial_message()))
    with pytest.raises(SaslAuthenticationFailedError, match="rejected the SCRAM proof: invalid-proof"):
        client.respond(b"e=invalid-proof")


def test_nothing_follows_the_end():
    client, server = client_of(), server_of()
    messages = exchange(client, server)
    for half, message in ((client, messages[3]), (server, messages[2])):
        with pytest.raises(SaslAuthenticationFailedError, match="ended"):
            half.respond(message)
    with pytest.raises(IllegalStateError):
        client.initial_message()


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_no_altered_or_truncated_message_is_accepted(data):
    """Whatever bit is changed or cut off, at least one half fails, and no half raises anything else."""
    victim = data.draw(st.sampled_from([0, 1, 2, 3]))

    def on_the_way(step: int, message: bytes) -> bytes:
        if step != victim:
            return message
        if data.draw(st.booleans()):
            return message[: data.draw(st.integers(0, len(message) - 1))]
        at = data.draw(st.integers(0, len(message) - 1))
        return message[:at] + bytes([message[at] ^ (1 << data.draw(st.integers(0, 7)))]) + message[at + 1 :]

    def exchange_over_a_bad_way() -> None:
        client, server = client_of(), server_of()
        challenge = server.respond(on_the_way(0, client.initial_message()))
        answer = client.respond(on_the_way(1, challenge))
        client.respond(on_the_way(3, server.respond(on_the_way(2, answer))))

    with pytest.raises(SaslAuthenticationFailedError):
        exchange_over_a_bad_way()


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_have_a_typed_error(message, is_client):
    half = client_of() if is_client else server_of()
    if is_client:
        half.initial_message()
    with pytest.raises(SaslAuthenticationFailedError):
        half.respond(message)


def test_a_credential_shows_no_secret():
    credential = CREDENTIALS[SHA_256]
    shown = repr(credential)
    assert all(repr(secret) not in shown for secret in (credential.salt, credential.stored_key, credential.server_key))


def test_labels_and_numbers():
    assert [(each.label, each.type_id) for each in MECHANISMS] == [("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2)]
    assert all(ScramMechanism.labelled(each.label) is each for each in MECHANISMS)
    assert all(ScramMechanism.of_type(each.type_id) is each for each in MECHANISMS)
    assert ScramMechanism.labelled("SCRAM-SHA-1") is None
    assert all(a.type_id < b.type_id for a, b in pairwise(MECHANISMS))
