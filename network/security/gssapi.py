"""SASL GSSAPI with Kerberos (RFC 4752), without a security layer, as in Kafka: both halves, and the credentials.

The exchange: GSS-API tokens until both security contexts are established; then the server offers security layers in a
wrapped message, and the client chooses none. Kafka encrypts with TLS instead.

The first step of a context asks the KDC for a ticket, which blocks. `GssapiCredentials` therefore begins contexts on a
thread of its own. The steps after the first need no network.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from ..clock import LONG_AGO_MS, NEVER_MS, SYSTEM_CLOCK, Clock
from ..extras import optional_module
from ..protocol.errors import IllegalStateError, SaslAuthenticationFailedError
from ..sections import here
from .login_thread import LoginThread, start_thread
from .mechanism import ClientMechanism
from .mechanism_names import GSSAPI
from .token import scrubbed

#: A context that was begun earlier is not used: its authenticator has a time stamp that the server compares.
MAX_AGE_MS = 30_000.0
#: A failure to begin a context is raised for this long; then the KDC is asked again.
FAILURE_AGE_MS = 1_000.0
#: Hosts with a begun context or a failure; beyond it the oldest are dropped.
MAX_HOSTS = 1_000

_NO_LAYER = 1
_LAYER_MESSAGE_BYTES = 4

_log = logging.getLogger(__name__)


def _import_gssapi() -> Any:
    return optional_module("gssapi", "gssapi", f"sasl.mechanism={GSSAPI}")


# --- The client ---


class GssapiClient:
    """The client's half. Implements ClientMechanism. `context` is a gssapi.SecurityContext that was begun."""

    def __init__(self, context: Any, first_token: bytes, gss_error: type[BaseException]) -> None:
        """Store a context, what its first step returned, and the class of the errors of its other steps."""
        self._context = context
        self._first_token = first_token
        self._gss_error = gss_error
        self._has_chosen_layer = False
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def initial_message(self) -> bytes:
        return self._first_token

    def respond(self, challenge: bytes) -> bytes | None:
        if self._has_chosen_layer:
            if challenge or self._is_complete:
                raise SaslAuthenticationFailedError("the broker sent a message after the end of the GSSAPI exchange")
            self._is_complete = True
            return None
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            return self._choose_layer(self._context.unwrap(challenge).message)
        except self._gss_error as error:
            raise SaslAuthenticationFailedError(
                f"the broker's Kerberos message is not valid: {_text(error)}"
            ) from error

    def _choose_layer(self, offer: bytes) -> bytes:
        if len(offer) != _LAYER_MESSAGE_BYTES:
            raise SaslAuthenticationFailedError(
                f"the broker's offer of security layers has {len(offer)} bytes; expected {_LAYER_MESSAGE_BYTES}"
            )
        if not offer[0] & _NO_LAYER:
            raise SaslAuthenticationFailedError(
                f"the broker requires a GSSAPI security layer (it offers {offer[0]:#04x}); Kafka's protocol has none"
            )
        self._has_chosen_layer = True
        # no buffer size without a layer, and no authorization id: the broker takes the principal's
        return self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), False).message


# --- The server ---


class GssapiServer:
    """The server's half, with the keys of its keytab. Implements ServerMechanism.

    `principal_name` is the first component of the client's principal (Kafka's default `sasl.kerberos.principal.to.
    local.rules`). The credentials have no expiry: Kafka uses none of the ticket's.
    """

    def __init__(self, keytab: str | None = None) -> None:
        """Accept clients with the keys in `keytab`, or in the default keytab of the system.

        Raises KafkaConfigurationError if `gssapi` is not installed, and SaslAuthenticationFailedError if the keytab
        can't be used.
        """
        self._gssapi = gssapi = _import_gssapi()
        store = None if keytab is None else {"keytab": keytab}
        try:
            credentials = gssapi.Credentials(usage="accept", store=store)
            self._context = _raising(gssapi.SecurityContext(creds=credentials, usage="accept"))
        except gssapi.exceptions.GSSError as error:
            raise SaslAuthenticationFailedError(f"the keytab can't be used: {_text(error)}") from error
        self._has_offered = False
        self._name: str | None = None

    @property
    def is_complete(self) -> bool:
        return self._name is not None

    @property
    def principal_name(self) -> str:
        if self._name is None:
            raise IllegalStateError("the GSSAPI exchange is not complete")
        return self._name

    @property
    def expires_ms(self) -> float | None:
        return None

    def respond(self, message: bytes) -> bytes:
        if self._name is not None:
            raise SaslAuthenticationFailedError("the GSSAPI exchange is over")
        try:
            if self._has_offered:
                return self._take_choice(self._context.unwrap(message).message)
            if not self._context.complete:
                answer = self._context.step(message)
                if answer:
                    return answer
            self._has_offered = True
            return self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), False).message
        except self._gssapi.exceptions.GSSError as error:
            raise SaslAuthenticationFailedError(f"the Kerberos message is not valid: {_text(error)}") from error

    def _take_choice(self, choice: bytes) -> bytes:
        if len(choice) < _LAYER_MESSAGE_BYTES or choice[0] != _NO_LAYER:
            raise SaslAuthenticationFailedError("the client chose a security layer that was not offered")
        principal = str(self._context.initiator_name)
        name = principal.partition("@")[0].partition("/")[0]
        authorization_id = choice[_LAYER_MESSAGE_BYTES:].decode("utf-8", "replace")
        if authorization_id not in ("", principal, name):
            raise SaslAuthenticationFailedError("the client requested the authorization id of another principal")
        self._name = name
        return b""


# --- The credentials ---


class GssapiSettings(NamedTuple):
    """The keys `sasl.kerberos.*`. `target` is kafka-python's `sasl_kerberos_name`: a name in place of service@host."""

    service_name: str = "kafka"
    domain_name: str | None = None
    target: Any = None
    keytab: str | None = None
    principal: str | None = None


class _Begun(NamedTuple):
    """A context that was begun for a host, or why that failed."""

    at_ms: float
    client: GssapiClient | None
    error: SaslAuthenticationFailedError | None


class GssapiCredentials:
    """Kerberos tickets from the credential cache, or from a keytab. Implements Credentials.

    With a keytab, the library gets tickets and renews them by itself, into a cache in memory. Without one, the tickets
    of the system's cache are used; another program (kinit, k5start, sssd) has to renew them.
    """

    def __init__(
        self,
        settings: GssapiSettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        start: Callable[[Callable[[], object], str], object] = start_thread,
    ) -> None:
        """Store the settings. `start` starts the thread; tests start none.

        Raises KafkaConfigurationError if `gssapi` is not installed.
        """
        self._gssapi = _import_gssapi()
        self._settings = settings
        self._clock = clock
        self._wakeup: Callable[[], object] = lambda: None
        self._thread = LoginThread("headrace-kerberos", self.due_ms, self.begin_context, lambda: None, clock, start)
        self._wanted: dict[str, None] = {}
        self._begun: dict[str, _Begun] = {}
        # an own cache, so that the principal of the keytab is used whatever the system's cache holds
        self._cache = f"MEMORY:headrace-{os.getpid()}-{id(self)}"

    def __repr__(self) -> str:
        return f"GssapiCredentials({self._settings.target or self._settings.service_name})"

    @property
    def mechanism(self) -> str:
        return GSSAPI

    def start(self, wakeup: Callable[[], object]) -> None:
        self._wakeup = wakeup

    def begin(self, host: str) -> ClientMechanism | None:
        now_ms = self._clock.now_ms()
        with here.section, self._thread.condition:
            if self._thread.is_closed:
                raise IllegalStateError("the Kerberos credentials are closed")
            begun = self._begun.get(host)
            if begun is not None and begun.error is not None and now_ms < begun.at_ms + FAILURE_AGE_MS:
                raise SaslAuthenticationFailedError(str(begun.error)) from begun.error
            self._begun.pop(host, None)
            if begun is not None and begun.client is not None and now_ms < begun.at_ms + MAX_AGE_MS:
                return begun.client
            self._wanted[host] = None
        self._thread.wake()
        return None

    def close(self) -> None:
        self._thread.close()

    # --- The thread ---

    def due_ms(self) -> float:
        """When there is something to do, on the monotonic clock: at once or never."""
        return LONG_AGO_MS if self._wanted else NEVER_MS

    def begin_context(self) -> None:
        """Begin a context for a host that `begin` asked for. Blocks on the KDC."""
        with here.section, self._thread.condition:
            host = next(iter(self._wanted))
        error = client = None
        try:
            client = self._begin_context(host)
        except BaseException as cause:
            # not the library's errors alone: the host must not stay without a result
            error = SaslAuthenticationFailedError(f"no Kerberos ticket for {self._target(host)}: {_text(cause)}")
            error.__cause__ = cause
            _log.debug("%s", error)
        with here.section, self._thread.condition:
            self._wanted.pop(host, None)
            while len(self._begun) >= MAX_HOSTS:
                del self._begun[next(iter(self._begun))]
            self._begun[host] = _Begun(self._clock.now_ms(), client, error)
        self._wakeup()

    def _target(self, host: str) -> str:
        settings = self._settings
        return str(settings.target) if settings.target else f"{settings.service_name}@{settings.domain_name or host}"

    def _begin_context(self, host: str) -> GssapiClient:
        gssapi, settings = self._gssapi, self._settings
        target = settings.target
        if target is None or isinstance(target, str):
            target = gssapi.Name(self._target(host.rstrip(".")), gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity
        context = gssapi.SecurityContext(
            name=target.canonicalize(gssapi.MechType.kerberos),
            creds=self._credentials(),
            flags=flags,
            mech=gssapi.MechType.kerberos,
            usage="initiate",
        )
        return GssapiClient(_raising(context), context.step() or b"", gssapi.exceptions.GSSError)

    def _credentials(self) -> Any:
        """The client's Kerberos credentials; None: those of the system's default cache."""
        gssapi, settings = self._gssapi, self._settings
        if settings.keytab is None and settings.principal is None:
            return None
        name = None if settings.principal is None else gssapi.Name(settings.principal, gssapi.NameType.user)
        store = None if settings.keytab is None else {"client_keytab": settings.keytab, "ccache": self._cache}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


def _raising(context: Any) -> Any:
    """A context whose `step` raises each error, instead of returning the library's token for the other side first."""
    context.__DEFER_STEP_ERRORS__ = False
    return context


def _text(error: BaseException) -> str:
    """The text of GSS-API errors names principals and files, and no keys."""
    return scrubbed(str(error)) or type(error).__name__
