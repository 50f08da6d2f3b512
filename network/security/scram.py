"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677). Both halves.

    client-first   n,,n=alice,r=<client nonce>
    server-first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<proof>
    server-final   v=<server signature>, or e=<error>

The client proves that it knows the password without sending it, and the server's signature proves that the server
knows the user's credential. Channel binding is not used: Kafka's brokers do not offer it. Optional extensions of
messages, such as Kafka's `tokenauth`, are ignored; the mandatory extension `m` is rejected, as the RFC demands.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..protocol.errors import IllegalStateError, SaslAuthenticationFailedError
from .saslprep import saslprep

#: The least iterations that either half accepts (RFC 7677; Kafka's minimum).
MIN_ITERATIONS = 4096
#: The most iterations that a client computes: they take about half a second, on the sender thread.
MAX_ITERATIONS = 1_000_000
#: The most iterations that Kafka's brokers store for a user.
MAX_STORED_ITERATIONS = 16_384

_MAX_MESSAGE_BYTES = 65_536
_GS2_HEADER = "n,,"
_CHANNEL_BINDING = base64.b64encode(_GS2_HEADER.encode()).decode()
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ITERATIONS = re.compile(r"[1-9][0-9]{0,9}")


class ScramMechanism(enum.Enum):
    """The mechanisms. The values are their hash functions."""

    SHA_256 = "sha256"
    SHA_512 = "sha512"

    @property
    def label(self) -> str:
        """The name in `sasl.mechanism`."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def type_id(self) -> int:
        """The number in AlterUserScramCredentials (KIP-554)."""
        return 1 if self is ScramMechanism.SHA_256 else 2

    @classmethod
    def labelled(cls, label: str) -> ScramMechanism | None:
        """The mechanism of this name; None if there is none."""
        return next((each for each in cls if each.label == label), None)

    @classmethod
    def of_type(cls, type_id: int) -> ScramMechanism | None:
        """The mechanism of this number; None if there is none."""
        return next((each for each in cls if each.type_id == type_id), None)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """`Hi(Normalize(password), salt, i)`. Takes a millisecond per few thousand iterations, without the GIL.

        Raises ValueError for a password that SASLprep prohibits.
        """
        return hashlib.pbkdf2_hmac(self.value, saslprep(password).encode(), salt, iterations)

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.value)

    def hash(self, text: bytes) -> bytes:
        return hashlib.new(self.value, text).digest()


@dataclass(frozen=True)
class ScramCredential:
    """What a server stores for a user: enough to check a proof, not enough to make one."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def from_password(
        cls, mechanism: ScramMechanism, password: str, *, salt: bytes | None = None, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """The credential of a password. `salt` is random by default. Raises ValueError for a prohibited password."""
        salt = secrets.token_bytes(16) if salt is None else salt
        return cls.from_salted(mechanism, mechanism.salted_password(password, salt, iterations), salt, iterations)

    @classmethod
    def from_salted(cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """The credential of a salted password."""
        client_key = mechanism.hmac(salted, b"Client Key")
        return cls(salt, iterations, mechanism.hash(client_key), mechanism.hmac(salted, b"Server Key"))


def new_nonce() -> str:
    """A nonce with 192 random bits."""
    return secrets.token_urlsafe(24)


# --- Messages ---


class _ClientFirst(NamedTuple):
    authorization_id: str
    name: str
    nonce: str
    bare: str


class _ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise _malformed("client-first", "has a name with an invalid escape")
    return name.replace("=2C", ",").replace("=3D", "=")


def _malformed(message: str, problem: str) -> SaslAuthenticationFailedError:
    return SaslAuthenticationFailedError(f"the SCRAM {message} message {problem}")


def _text(message: bytes, name: str) -> str:
    if len(message) > _MAX_MESSAGE_BYTES:
        raise _malformed(name, f"has {len(message)} bytes; at most {_MAX_MESSAGE_BYTES} are accepted")
    try:
        text = bytes(message).decode()
    except UnicodeDecodeError:
        raise _malformed(name, "is not UTF-8") from None
    if "\0" in text:
        raise _malformed(name, "has a NUL in it")
    return text


def _attributes(text: str, name: str, wanted: str) -> dict[str, str]:
    """The attributes of a message, which starts with those of `wanted` in that order; extensions follow."""
    found: dict[str, str] = {}
    parts = text.split(",")
    for position, part in enumerate(parts):
        letter, equals, value = part.partition("=")
        if letter == "m":
            raise _malformed(name, "demands an extension that is not supported")
        if not equals or not letter.isalpha() or not letter.isascii() or not value:
            raise _malformed(name, f"has an invalid attribute at position {position + 1}")
        if position < len(wanted) and letter != wanted[position]:
            raise _malformed(name, f"has the attribute {letter!r} where {wanted[position]!r} was expected")
        if letter in found:
            raise _malformed(name, f"has the attribute {letter!r} twice")
        found[letter] = value
    if len(found) < len(wanted):
        raise _malformed(name, f"ends before the attribute {wanted[len(found)]!r}")
    return found


def _decoded(value: str, name: str, what: str) -> bytes:
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    # a decoder ignores bits beyond the last whole byte, but an altered message is not accepted
    if not decoded or base64.b64encode(decoded) != value.encode():
        raise _malformed(name, f"has {what} that is not base64")
    return decoded


def _nonce(value: str, name: str) -> str:
    if _NONCE.fullmatch(value) is None:
        raise _malformed(name, "has an invalid nonce")
    return value


def _parse_client_first(message: bytes) -> _ClientFirst:
    name = "client-first"
    text = _text(message, name)
    binding, first, rest = text.partition(",")
    if binding.startswith("p="):
        raise _malformed(name, "demands channel binding, which is not supported")
    authorization, second, bare = rest.partition(",")
    if binding not in ("n", "y") or not first or not second:
        raise _malformed(name, "does not begin with 'n,,'")
    if authorization and not authorization.startswith("a="):
        raise _malformed(name, "has an invalid authorization id")
    values = _attributes(bare, name, "nr")
    return _ClientFirst(_unescaped(authorization[2:]), _unescaped(values["n"]), _nonce(values["r"], name), bare)


def _parse_server_first(message: bytes) -> _ServerFirst:
    name = "server-first"
    values = _attributes(_text(message, name), name, "rsi")
    if _ITERATIONS.fullmatch(values["i"]) is None:
        raise _malformed(name, "has an invalid iteration count")
    return _ServerFirst(_nonce(values["r"], name), _decoded(values["s"], name, "a salt"), int(values["i"]))


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# --- The halves ---


class _Step(enum.Enum):
    BEGIN = "begin"
    FIRST_SENT = "first message sent"
    FINAL_SENT = "final message sent"
    COMPLETE = "complete"
    FAILED = "failed"


#: Computes a salted password from a salt and an iteration count.
SaltPassword = Callable[[bytes, int], bytes]


class ScramClient:
    """The client's half: BEGIN -> FIRST_SENT -> FINAL_SENT -> COMPLETE, or FAILED after an error, for good."""

    def __init__(
        self, mechanism: ScramMechanism, username: str, salt_password: SaltPassword, *, nonce: str | None = None
    ) -> None:
        """Begin an exchange.

        `username` is prepared already (`saslprep`). `salt_password` computes the salted password, or remembers it.
        `nonce` is random by default; tests give that of a vector.
        """
        self._mechanism = mechanism
        self._salt_password = salt_password
        self._nonce = new_nonce() if nonce is None else nonce
        self._first_bare = f"n={_escaped(username)},r={self._nonce}"
        self._server_signature = b""
        self._step = _Step.BEGIN

    @property
    def is_complete(self) -> bool:
        """Whether the server has proved that it knows the credential."""
        return self._step is _Step.COMPLETE

    def initial_message(self) -> bytes:
        """The client-first message. Raises IllegalStateError when called twice."""
        if self._step is not _Step.BEGIN:
            raise IllegalStateError("the SCRAM exchange has begun already")
        self._step = _Step.FIRST_SENT
        return f"{_GS2_HEADER}{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """The client-final message, then None. Raises SaslAuthenticationFailedError."""
        step, self._step = self._step, _Step.FAILED
        if step is _Step.FIRST_SENT:
            answer = self._final_message(challenge)
            self._step = _Step.FINAL_SENT
            return answer
        if step is not _Step.FINAL_SENT:
            raise SaslAuthenticationFailedError(
                f"the broker sent a SCRAM message after the exchange had ended ({step.value})"
            )
        self._check_server_final(challenge)
        self._step = _Step.COMPLETE
        return None

    def _final_message(self, challenge: bytes) -> bytes:
        server = _parse_server_first(challenge)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise _malformed("server-first", "does not extend this client's nonce: it belongs to another exchange")
        if not MIN_ITERATIONS <= server.iterations <= MAX_ITERATIONS:
            raise _malformed(
                "server-first",
                f"requests {server.iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted. Store "
                "the user's credential again with a count in this range",
            )
        salted = self._salt_password(server.salt, server.iterations)
        mechanism = self._mechanism
        client_key = mechanism.hmac(salted, b"Client Key")
        without_proof = f"c={_CHANNEL_BINDING},r={server.nonce}"
        signed = b",".join((self._first_bare.encode(), bytes(challenge), without_proof.encode()))
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_server_final(self, challenge: bytes) -> None:
        name = "server-final"
        text = _text(challenge, name)
        if text.startswith("e="):
            raise SaslAuthenticationFailedError(f"the broker rejected the SCRAM proof: {text[2:].partition(',')[0]}")
        signature = _decoded(_attributes(text, name, "v")["v"], name, "a signature")
        if not hmac.compare_digest(signature, self._server_signature):
            raise SaslAuthenticationFailedError(
                "the broker's SCRAM signature is wrong: it does not know this user's credential, so it is not the "
                "broker that it claims to be, or the exchange was altered in flight"
            )


#: Finds the credential of a user; None if there is none.
FindCredential = Callable[[str], "ScramCredential | None"]

_INVALID = "Authentication failed due to invalid credentials with SASL mechanism {}"


class ScramServer:
    """The server's half: BEGIN -> FIRST_SENT -> COMPLETE, or FAILED after an error, for good.

    An unknown user and a wrong password have the same error, as with Kafka.
    """

    def __init__(self, mechanism: ScramMechanism, find: FindCredential, *, nonce: str | None = None) -> None:
        """Begin an exchange. `find` looks up a user by name. `nonce` is the server's part, random by default."""
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = new_nonce() if nonce is None else nonce
        self._step = _Step.BEGIN
        self._name = ""
        self._header = ""
        self._nonce = ""
        self._first_messages = b""
        self._credential: ScramCredential | None = None
        #: Passwords do not expire.
        self.expires_ms: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the client has proved that it knows the password."""
        return self._step is _Step.COMPLETE

    @property
    def principal_name(self) -> str:
        """The authenticated name. Raises IllegalStateError before completion."""
        if not self.is_complete:
            raise IllegalStateError("the SCRAM exchange is not complete")
        return self._name

    def respond(self, message: bytes) -> bytes:
        """The server-first message, then server-final. Raises SaslAuthenticationFailedError."""
        step, self._step = self._step, _Step.FAILED
        if step is _Step.BEGIN:
            answer = self._first_message(message)
            self._step = _Step.FIRST_SENT
        elif step is _Step.FIRST_SENT:
            answer = self._final_message(message)
            self._step = _Step.COMPLETE
        else:
            raise SaslAuthenticationFailedError(f"a SCRAM message arrived after the exchange had ended ({step.value})")
        return answer

    def _invalid(self) -> SaslAuthenticationFailedError:
        return SaslAuthenticationFailedError(_INVALID.format(self._mechanism.label))

    def _first_message(self, message: bytes) -> bytes:
        client = _parse_client_first(message)
        credential = self._find(client.name)
        if credential is None:
            raise self._invalid()
        if client.authorization_id not in ("", client.name):
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._name = client.name
        self._header = bytes(message).decode().removesuffix(client.bare)
        self._nonce = client.nonce + self._own_nonce
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first_messages = f"{client.bare},{answer}".encode()
        return answer.encode()

    def _final_message(self, message: bytes) -> bytes:
        name = "client-final"
        text = _text(message, name)
        values = _attributes(text, name, "cr")
        if "p" not in values or not text.rpartition(",")[2].startswith("p="):
            raise _malformed(name, "does not end with a proof")
        if _decoded(values["c"], name, "a channel binding") != self._header.encode():
            raise _malformed(name, "has another channel binding than the client-first message")
        if not hmac.compare_digest(values["r"].encode(), self._nonce.encode()):
            raise _malformed(name, "has another nonce than the server-first message")
        credential, mechanism = self._credential, self._mechanism
        assert credential is not None
        signed = b",".join((self._first_messages, text.rpartition(",")[0].encode()))
        proof = _decoded(values["p"], name, "a proof")
        signature = mechanism.hmac(credential.stored_key, signed)
        if len(proof) != len(signature) or not hmac.compare_digest(
            mechanism.hash(_xor(proof, signature)), credential.stored_key
        ):
            raise self._invalid()
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))
