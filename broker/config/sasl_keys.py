"""The broker's keys of SASL, the settings of single listeners, and SASL of a listener (Kafka's KIP-85, KIP-103)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...network.config import INT32_MAX, INT64_MAX, Config, Draft, Rule, key
from ...network.config_values import parse_int, parse_list, parse_str
from ...network.security.jaas import parse_jaas
from ...network.security.mechanism_names import OAUTHBEARER, PASSWORD_MECHANISMS
from ...network.security.passwords import password_problem
from .broker_tls_config import LISTENER_KEYS
from .listeners import Listener, has_sasl, protocols_of

#: The mechanisms that a broker can offer.
MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)

_USER = "user_"
_JAAS = "sasl.jaas.config"
_ENABLED = "sasl.enabled.mechanisms"
_MAX_REAUTH = "connections.max.reauth.ms"
_MAX_RECEIVE = "sasl.server.max.receive.size"
_NAME = re.compile(
    r"(?:listener\.name\.(?P<listener>[a-z0-9_-]+)\.)?"
    rf"(?:(?P<mechanism>{'|'.join(map(str.lower, MECHANISMS))})\.)?"
    rf"(?P<key>{'|'.join(map(re.escape, (_JAAS, _ENABLED, _MAX_REAUTH, _MAX_RECEIVE)))})"
)
_TLS_NAME = re.compile(rf"listener\.name\.(?P<listener>[a-z0-9_-]+)\.({'|'.join(map(re.escape, LISTENER_KEYS))})")


# --- Parsers ---


def parse_mechanisms(value: Any) -> tuple[str, ...]:
    """Names of mechanisms. Raises ValueError."""
    names = tuple(each.upper() for each in parse_list(value))
    unknown = [each for each in names if each not in MECHANISMS]
    if unknown:
        raise ValueError(f"has {', '.join(unknown)}, which this broker does not offer")
    return tuple(dict.fromkeys(names))


def _parse_jaas(value: Any) -> str:
    parse_jaas(parse_str(value))
    return value


def _parse_count(value: Any) -> int:
    count = parse_int(value)
    if count < 0:
        raise ValueError("is too small")
    return count


_PARSERS: Mapping[str, Callable[[Any], Any]] = {
    _JAAS: _parse_jaas,
    _ENABLED: parse_mechanisms,
    _MAX_REAUTH: _parse_count,
    _MAX_RECEIVE: _parse_count,
}


def _parse_settings(value: Any) -> dict[str, Any]:
    """Parse settings of listeners and mechanisms, by their names in lower case. Raises ValueError."""
    parsed: dict[str, Any] = {}
    for name, given in value.items():
        found = _NAME.fullmatch(name.lower())
        if _TLS_NAME.fullmatch(name.lower()) is not None:
            parsed[name.lower()] = given  # `BrokerTlsConfig` parses it
            continue
        if found is None:
            raise ValueError("is not a setting of a listener that this broker knows")
        if found["key"] == _JAAS and found["mechanism"] is None:
            raise ValueError(f"needs the mechanism in front: plain.{_JAAS}")
        if found["key"] == _ENABLED and found["mechanism"] is not None:
            raise ValueError("has no value per mechanism")
        parsed[name.lower()] = _PARSERS[found["key"]](given)
    return parsed


def _parse_validator(value: Any) -> Any:
    if not callable(value):
        raise ValueError("is not a callable")
    return value


def _parse_users(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        pairs = [each.partition(":") for each in parse_list(value)]
        if not all(colon for _, colon, _ in pairs):
            raise ValueError("has a user without a colon and a password")
        value = {name: password for name, _, password in pairs}
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ValueError("is not a dict of user names and passwords")
    for name, password in value.items():
        problem = user_problem(name, password)
        if problem is not None:
            raise ValueError(f"has a user who can't authenticate: {problem}")
    return dict(value)


def user_problem(name: str, password: str) -> str | None:
    """Why a user can't authenticate by every mechanism with a password, in the words of `password_problem`; None if it
    can."""
    problems = (password_problem(mechanism, name, password) for mechanism in PASSWORD_MECHANISMS)
    return next((each for each in problems if each is not None), None)


# --- The settings of a listener ---


@dataclass(frozen=True, slots=True)
class SaslListener:
    """SASL on one listener. `plain_users` are those of its login modules; `logins` are the names and passwords with
    which brokers connect to each other, by mechanism."""

    mechanisms: tuple[str, ...]
    max_receive_bytes: int
    failure_delay_ms: int
    plain_users: Mapping[str, str] = field(repr=False)
    max_reauth_ms: Mapping[str, int]
    logins: Mapping[str, tuple[str, str]] = field(repr=False)
    token_validator: Callable[[str, Mapping[str, str]], Any] | None = None


class BrokerListeners(Protocol):
    """The part of `BrokerConfig` that decides about SASL on a listener."""

    @property
    def listener_security_protocol_map(self) -> tuple[str, ...]: ...

    @property
    def listener_settings(self) -> Mapping[str, Any]: ...

    @property
    def sasl_enabled_mechanisms(self) -> tuple[str, ...]: ...

    @property
    def sasl_server_max_receive_size(self) -> int: ...

    @property
    def sasl_oauthbearer_token_validator(self) -> Callable[[str, Mapping[str, str]], Any] | None: ...

    @property
    def connections_max_reauth_ms(self) -> int: ...

    @property
    def connection_failed_authentication_delay_ms(self) -> int: ...


def sasl_of(config: BrokerListeners, listener: str) -> SaslListener:
    """The settings of a listener: its own, or those of all listeners."""
    settings, prefix = config.listener_settings, f"listener.name.{listener.lower()}."

    def find(name: str, mechanism: str, default: Any = None) -> Any:
        specific = f"{mechanism.lower()}.{name}"
        candidates = (prefix + specific, prefix + name, specific, name)
        return next((settings[each] for each in candidates if each in settings), default)

    mechanisms = settings.get(prefix + _ENABLED, config.sasl_enabled_mechanisms)
    users: dict[str, str] = {}
    logins: dict[str, tuple[str, str]] = {}
    for mechanism in MECHANISMS:
        text = find(_JAAS, mechanism)
        if text is None:
            continue
        options = parse_jaas(text).options
        if mechanism == "PLAIN":
            users = {each[len(_USER) :]: value for each, value in options.items() if each.startswith(_USER)}
        if options.get("username") and options.get("password"):
            logins[mechanism] = (options["username"], options["password"])
    return SaslListener(
        mechanisms,
        max((find(_MAX_RECEIVE, each, config.sasl_server_max_receive_size) for each in mechanisms), default=0),
        config.connection_failed_authentication_delay_ms,
        users,
        {each: find(_MAX_REAUTH, each, config.connections_max_reauth_ms) for each in mechanisms},
        logins,
        config.sasl_oauthbearer_token_validator,
    )


def sasl_listeners(config: BrokerListeners, listeners: Sequence[Listener]) -> dict[str, SaslListener]:
    """The settings of those listeners whose security protocol has SASL, by name."""
    protocols = protocols_of(config.listener_security_protocol_map)
    return {each.name: sasl_of(config, each.name) for each in listeners if has_sasl(protocols[each.name])}


def _check_settings(draft: Draft) -> None:
    """A login module fits its mechanism, and settings are those of a listener that exists."""
    names = {each.name.lower() for each in draft["listeners"]}
    names |= {entry.partition(":")[0].lower() for entry in draft["listener_security_protocol_map"]}
    for name, value in draft["listener_settings"].items():
        found = _TLS_NAME.fullmatch(name) or _NAME.fullmatch(name)
        assert found is not None
        if found["listener"] is not None and found["listener"] not in names:
            draft.problem(f"{name} is for the listener {found['listener'].upper()}, which is not in listeners")
        if name.endswith(_JAAS):
            entry = parse_jaas(value)
            if found["mechanism"].upper() not in entry.mechanisms:
                draft.problem(f"{name} has {entry.module}, which is for {' and '.join(entry.mechanisms)}")


class SaslBrokerConfig(
    Config, rules=(Rule(("listeners", "listener_security_protocol_map", "listener_settings"), _check_settings),)
):
    """The keys of SASL. `listeners` is declared by the class that includes this."""

    users: Mapping[str, str] = key(
        default={},
        parse=_parse_users,
        accepts="str | Mapping[str, str]",
        allowed="a dict of names and passwords, or name:password separated by commas",
        secret=True,
        doc="The users that authenticate with a password, by PLAIN or SCRAM. The first one is also the user as which "
        "brokers connect to each other, unless a login module names another. Not a key of Kafka's.",
        importance="high",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        default=PASSWORD_MECHANISMS,
        parse=parse_mechanisms,
        allowed=f"{', '.join(MECHANISMS)}, several separated by commas",
        show=",".join,
        doc="The mechanisms that SASL listeners offer. `listener.name.<listener>.sasl.enabled.mechanisms` is the same "
        "for one listener.",
    )
    sasl_mechanism_inter_broker_protocol: str = key(
        default="PLAIN",
        choices=PASSWORD_MECHANISMS,
        doc="The mechanism with which brokers connect to each other, if the listener between brokers has SASL.",
    )
    sasl_oauthbearer_token_validator: Callable[[str, Mapping[str, str]], tuple[str, float | None]] | None = key(
        default=None,
        parse=_parse_validator,
        allowed="a callable that takes a token and its extensions",
        default_text="unsecured JSON Web Tokens, as in Kafka",
        doc="Validates the tokens of OAUTHBEARER: called with the token and the SASL extensions, it returns the "
        "principal's name and the expiry in milliseconds since 1970, or raises `InvalidTokenError`. Not a key of "
        "Kafka's.",
    )
    sasl_server_max_receive_size: int = key(
        default=524_288,
        at_least=1,
        at_most=INT32_MAX,
        doc="Largest request before authentication; a larger one closes its connection.",
    )
    connections_max_reauth_ms: int = key(
        default=0,
        at_least=0,
        at_most=INT64_MAX,
        doc="How long a session lasts until the client must authenticate again (KIP-368). The connection is closed at "
        "the first request after that. 0: without an end.",
    )
    connection_failed_authentication_delay_ms: int = key(
        default=100,
        at_least=0,
        at_most=INT32_MAX,
        doc="How long the answer to a failed authentication, and the end of its connection, are delayed.",
    )
    listener_settings: Mapping[str, Any] = key(
        default={},
        parse=_parse_settings,
        prefixes=("listener.name.", *(f"{each.lower()}.{_JAAS}" for each in MECHANISMS)),
        allowed=f"keys of TLS, {_JAAS} (of a mechanism), {_ENABLED}, {_MAX_REAUTH} or {_MAX_RECEIVE}",
        secret=True,
        doc="Settings of one listener, `listener.name.<listener>.<key>`, for keys of TLS and of SASL; of one mechanism "
        "on it, `listener.name.<listener>.<mechanism>.<key>`; or of one mechanism, `<mechanism>.sasl.jaas.config`. In "
        f"`{_JAAS}` of PLAIN, `user_<name>` options are users, as in Kafka; `username` and `password` are those with "
        "which brokers connect to each other.",
    )
