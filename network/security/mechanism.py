"""The two halves of a SASL mechanism (RFC 4422) and what a client needs to begin one.

A mechanism is a state machine without I/O: bytes in, bytes out. Both halves are in one module per mechanism, so that
they test each other. An authenticator carries their messages in SaslAuthenticate requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ClientMechanism(Protocol):
    """The client's half of one authentication. A re-authentication uses a new object. One thread at a time."""

    @property
    def is_complete(self) -> bool:
        """Whether the exchange has succeeded from the client's point of view."""
        ...

    def initial_message(self) -> bytes:
        """The first message to the server. To be called once, first."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to the server's challenge; None if the exchange is complete without one.

        Raises SaslAuthenticationFailedError if the challenge is malformed or does not prove the server's identity.
        """
        ...


class ServerMechanism(Protocol):
    """The server's half of one authentication. One thread at a time."""

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated."""
        ...

    @property
    def principal_name(self) -> str:
        """The authenticated name, as in `User:<name>`. Only valid once complete."""
        ...

    @property
    def expires_ms(self) -> float | None:
        """When the client's credentials expire, in wall-clock milliseconds; None if they do not."""
        ...

    def respond(self, message: bytes) -> bytes:
        """The answer to the client's message, possibly empty.

        Raises SaslAuthenticationFailedError; its message is sent to the client and must not contain a secret.
        """
        ...


class Credentials(Protocol):
    """What a client authenticates with: one object per producer, shared by its connections. Any thread.

    Credentials that must be fetched, such as tokens, are fetched ahead of time on a thread of their own.
    """

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, as in `sasl.mechanism`."""
        ...

    def begin(self, host: str) -> ClientMechanism | None:
        """The client's half of a new authentication with the broker at `host`. Never blocks.

        None while the credentials are being fetched; the `wakeup` given to `start` is called when that ends. Raises
        SaslAuthenticationFailedError if they could not be fetched.
        """
        ...

    def start(self, wakeup: Callable[[], object]) -> None:
        """Begin to fetch the credentials, if they must be fetched. `wakeup` is a callable without arguments."""
        ...

    def close(self) -> None:
        """Stop fetching. Idempotent."""
        ...
