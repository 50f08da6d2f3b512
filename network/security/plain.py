"""SASL PLAIN (RFC 4616): one message with the name and the password. Both halves."""

from __future__ import annotations

import hmac
from collections.abc import Callable

from ..protocol.errors import IllegalStateError, SaslAuthenticationFailedError

#: Whether a user with this name has this password.
VerifyPassword = Callable[[str, str], bool]


class PlainClient:
    """The client's half. Complete once the server has accepted the message."""

    def __init__(self, username: str, password: str) -> None:
        """Store the credentials. Neither may contain NUL, which separates them in the message."""
        self._message = b"\0".join((b"", username.encode(), password.encode()))
        self.is_complete = False

    def initial_message(self) -> bytes:
        """The only message."""
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        """Complete the exchange. Raises SaslAuthenticationFailedError for a challenge with content."""
        if challenge or self.is_complete:
            raise SaslAuthenticationFailedError(
                f"the broker answered PLAIN credentials with an unexpected challenge of {len(challenge)} bytes"
            )
        self.is_complete = True
        return None


class PlainServer:
    """The server's half. The messages of errors are those of Kafka's PlainSaslServer."""

    def __init__(self, verify: VerifyPassword) -> None:
        """Store `verify`, which decides about a name and a password."""
        self._verify = verify
        self._name: str | None = None
        #: Passwords do not expire.
        self.expires_ms: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated."""
        return self._name is not None

    @property
    def principal_name(self) -> str:
        """The authenticated name. Raises IllegalStateError before completion."""
        if self._name is None:
            raise IllegalStateError("the PLAIN exchange is not complete")
        return self._name

    def respond(self, message: bytes) -> bytes:
        """Check the client's message; the answer is empty. Raises SaslAuthenticationFailedError."""
        try:
            parts = bytes(message).decode().split("\0")
        except UnicodeDecodeError:
            raise SaslAuthenticationFailedError("Authentication failed: the PLAIN message is not UTF-8") from None
        if self._name is not None or len(parts) != 3:
            raise SaslAuthenticationFailedError(
                f"Authentication failed: the PLAIN message has {len(parts)} parts separated by NUL; 3 were expected"
            )
        authorization_id, name, password = parts
        if not name or not password:
            missing = "username" if not name else "password"
            raise SaslAuthenticationFailedError(f"Authentication failed: {missing} not specified")
        if not self._verify(name, password):
            raise SaslAuthenticationFailedError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise SaslAuthenticationFailedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._name = name
        return b""


def same_secret(one: str, other: str) -> bool:
    """Compare two secrets in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())
