"""The keys of SASL, with the names of Kafka, librdkafka and kafka-python, and what they authenticate with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..clock import Clock
from ..config import Config, Draft, Rule, dotted, key
from .mechanism_names import PASSWORD_MECHANISMS, TOKEN_MECHANISMS

if TYPE_CHECKING:
    from .jaas import JaasEntry
    from .mechanism import Credentials

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class SaslSettings(Protocol):
    """A configuration with the keys of SASL."""

    @property
    def security_protocol(self) -> str: ...

    @property
    def sasl_mechanism(self) -> str | None: ...

    @property
    def sasl_jaas_config(self) -> str | None: ...

    @property
    def sasl_username(self) -> str | None: ...

    @property
    def sasl_password(self) -> str | None: ...

    @property
    def sasl_credentials(self) -> Callable[[], Any] | None: ...


def _jaas_of(text: str) -> JaasEntry:
    from .jaas import parse_jaas  # noqa: PLC0415 - it imports dataclasses, and few Python programs have JAAS

    return parse_jaas(text)


def _password_credentials(config: SaslSettings, clock: Clock) -> Credentials:
    from .passwords import PasswordCallback, PasswordCredentials  # noqa: PLC0415 - it imports hashlib

    mechanism = config.sasl_mechanism
    assert mechanism is not None
    if config.sasl_credentials is not None:
        return PasswordCallback(mechanism, config.sasl_credentials, clock)
    username, password = config.sasl_username, config.sasl_password
    if config.sasl_jaas_config is not None:
        options = _jaas_of(config.sasl_jaas_config).options
        username, password = options["username"], options["password"]
    assert username is not None
    assert password is not None
    return PasswordCredentials(mechanism, username, password)


def _fetched_credentials(config: SaslSettings, clock: Clock) -> Credentials:
    from .token_credentials import token_credentials  # noqa: PLC0415 - it imports http.client and ssl

    options = {} if config.sasl_jaas_config is None else _jaas_of(config.sasl_jaas_config).options
    return token_credentials(config, options, clock=clock)


#: The one table of a client's mechanisms: makes the credentials of each from a configuration.
CREDENTIALS: dict[str, Callable[[SaslSettings, Clock], Credentials]] = {
    **dict.fromkeys(PASSWORD_MECHANISMS, _password_credentials),
    **dict.fromkeys(TOKEN_MECHANISMS, _fetched_credentials),
}


def credentials_of(config: SaslSettings, clock: Clock) -> Credentials | None:
    """The credentials that a configuration describes; None if `security.protocol` has no SASL."""
    if config.security_protocol not in SASL_PROTOCOLS:
        return None
    assert config.sasl_mechanism is not None
    return CREDENTIALS[config.sasl_mechanism](config, clock)


# --- Parsers and rules ---


def _parse_callable(value: Any) -> Any:
    if not callable(value) or isinstance(value, type):
        raise ValueError("is not a callable")
    return value


def _check_jaas(text: str) -> str | None:
    try:
        _jaas_of(text)
    except ValueError as error:
        return str(error)
    return None


_SOURCES = ("sasl_jaas_config", "sasl_username", "sasl_password", "sasl_credentials")


def _check_sasl(draft: Draft) -> None:
    """With `SASL_PLAINTEXT` and `SASL_SSL`, `sasl.mechanism` and its credentials are required. With other protocols,
    credentials are an error. `sasl.jaas.config`, `sasl.credentials`, and the pair `sasl.username` and `sasl.password`
    exclude each other; the last two are for PLAIN and SCRAM only."""
    given = [dotted(name) for name in _SOURCES if draft[name] is not None]
    protocol = draft["security_protocol"]
    if protocol not in SASL_PROTOCOLS:
        if given:
            secure = "SASL_SSL" if protocol == "SSL" else "SASL_SSL or SASL_PLAINTEXT"
            draft.problem(
                f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} set, but security.protocol={protocol} "
                f"does not authenticate; set it to {secure}"
            )
        return
    jaas = None if draft["sasl_jaas_config"] is None else _jaas_of(draft["sasl_jaas_config"])
    mechanism = draft["sasl_mechanism"]
    if mechanism is None and jaas is not None and len(jaas.mechanisms) == 1 and jaas.mechanisms[0] in CREDENTIALS:
        mechanism = jaas.mechanisms[0]
        draft.adjust("sasl_mechanism", mechanism, "from sasl.jaas.config")
    if mechanism is None:
        draft.problem(
            f"security.protocol={protocol} needs sasl.mechanism; set it to one that the brokers offer: "
            f"{', '.join(CREDENTIALS)}"
        )
        return
    if jaas is not None and mechanism not in jaas.mechanisms:
        draft.problem(
            f"sasl.jaas.config has {jaas.module}, which is for {' and '.join(jaas.mechanisms)}, but sasl.mechanism is "
            f"{mechanism}; change one of them"
        )
    elif mechanism in PASSWORD_MECHANISMS:
        _check_password(draft, mechanism, jaas, given)
    elif unused := [name for name in given if name != "sasl.jaas.config"]:
        draft.problem(
            f"{' and '.join(unused)} would have no effect with sasl.mechanism={mechanism}; remove "
            f"{'it' if len(unused) == 1 else 'them'}, or set sasl.mechanism to {' or '.join(PASSWORD_MECHANISMS)}"
        )


def _check_password(draft: Draft, mechanism: str, jaas: JaasEntry | None, given: list[str]) -> None:
    pair = ("sasl.username", "sasl.password")
    groups = [name for name in given if name not in pair]
    if any(name in given for name in pair):
        groups.append("sasl.username")
    if len(groups) > 1:
        draft.problem(f"{' and '.join(groups)} exclude each other; keep one")
    elif draft["sasl_credentials"] is not None:
        return
    elif jaas is not None:
        if jaas.options.get("tokenauth", "").lower() == "true":
            draft.problem("sasl.jaas.config has tokenauth, but delegation tokens are not supported")
        missing = [name for name in ("username", "password") if not jaas.options.get(name)]
        if missing:
            draft.problem(
                f'sasl.jaas.config has no {" and no ".join(missing)}; add {missing[0]}="..." to {jaas.module}'
            )
        else:
            _check_values(draft, mechanism, "sasl.jaas.config", jaas.options["username"], jaas.options["password"])
    else:
        missing = [name for name in pair if not draft[name.replace(".", "_")]]
        if missing:
            draft.problem(f"sasl.mechanism={mechanism} needs {' and '.join(missing)}")
        else:
            _check_values(draft, mechanism, " and ".join(pair), draft["sasl_username"], draft["sasl_password"])


def _check_values(draft: Draft, mechanism: str, keys: str, username: str, password: str) -> None:
    from .passwords import password_problem  # noqa: PLC0415 - it imports hashlib

    problem = password_problem(mechanism, username, password)
    if problem is not None:
        draft.problem(f"{keys}: {problem}")


class SaslConfig(Config, rules=(Rule(("security_protocol", "sasl_mechanism", *_SOURCES), _check_sasl),)):
    """The keys of a client's SASL authentication. `security_protocol` is declared by the class that includes this."""

    sasl_mechanism: str | None = key(
        default=None,
        importance="medium",
        choices=tuple(CREDENTIALS),
        default_text="none; required by SASL_PLAINTEXT and SASL_SSL",
        aliases=("sasl.mechanisms",),
        doc="The SASL mechanism. The brokers name those that they offer if they do not offer this one.",
    )
    sasl_jaas_config: str | None = key(
        default=None,
        importance="medium",
        secret=True,
        check=_check_jaas,
        doc="The credentials as Java programs give them: `PlainLoginModule` or `ScramLoginModule` with `username` and "
        "`password`, `OAuthBearerLoginModule`, or `Krb5LoginModule`. The package of the class does not matter.",
    )
    sasl_username: str | None = key(
        default=None,
        importance="medium",
        aliases=("sasl.plain.username",),
        doc="The user name for PLAIN and SCRAM. The name is librdkafka's; kafka-python's is an alias.",
    )
    sasl_password: str | None = key(
        default=None,
        importance="medium",
        secret=True,
        aliases=("sasl.plain.password",),
        doc="The password for PLAIN and SCRAM.",
    )
    sasl_credentials: Callable[[], Any] | None = key(
        default=None,
        importance="low",
        secret=True,
        parse=_parse_callable,
        allowed="a callable without arguments that returns a user name and a password",
        doc="A callable in place of `sasl.username` and `sasl.password`, for passwords that change. It is called for "
        "each new authentication, on a thread of its own, and may block: only connections wait for it, at most "
        "`socket.connection.setup.timeout.ms`. Its result is used for one second.",
    )
