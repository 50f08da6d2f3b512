"""The broker's keys of TLS, and their values for one listener (`listener.name.<name>.ssl.*`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...network.config import INT64_MAX, Draft, key
from ...network.security.tls_config import TlsConfig
from .principal_rules import PrincipalRule, parse_principal_rules, show_principal_rules

#: The keys that can be given per listener.
LISTENER_KEYS = TlsConfig.tls_names() | {"ssl.client.auth", "ssl.principal.mapping.rules"}


def parse_listener_overrides(value: Any) -> tuple[tuple[str, Any], ...]:
    """Parse the keys after `listener.name.`, with their values. Raises ValueError."""
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    if isinstance(value, tuple):
        return value
    raise ValueError("is not a table of keys; write listener.name.<listener>.<key>")


def overrides_of(listener: str, overrides: Collection[tuple[str, Any]]) -> dict[str, Any]:
    """The keys that are given for a listener, by the name they have without it."""
    prefix = f"{listener.lower().replace('_', '.')}."
    found = ((name.lower().removeprefix(prefix), value) for name, value in overrides if name.lower().startswith(prefix))
    return {name: value for name, value in found if name in LISTENER_KEYS}


class BrokerTlsConfig(TlsConfig):
    """The keys of TLS on a broker. Its certificate also identifies it to other brokers."""

    ssl_client_auth: str = key(
        default="none",
        choices=("none", "requested", "required"),
        doc="Whether clients of SSL listeners show a certificate. `requested`: they may. `required`: without one, the "
        "handshake fails. The authorities are those of the truststore.",
    )
    ssl_principal_mapping_rules: tuple[PrincipalRule, ...] = key(
        default=(PrincipalRule(None),),
        parse=parse_principal_rules,
        allowed="`RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas",
        show=show_principal_rules,
        default_text="DEFAULT",
        doc="How the subject of a client's certificate becomes the name in its principal: the first rule whose pattern "
        "matches the whole subject, such as `RULE:^CN=(.*?),.*$/$1/L,DEFAULT`. `DEFAULT` is the subject itself.",
    )
    listener_name: tuple[tuple[str, Any], ...] = key(
        default=(),
        parse=parse_listener_overrides,
        allowed="keys of TLS behind the name of a listener",
        secret=True,
        is_prefix=True,
        default_text="none",
        doc="Keys of TLS for one listener only, which take precedence there: "
        "`listener.name.<listener>.ssl.keystore.location` and so on, with the listener's name in lower case.",
    )
    socket_connection_setup_timeout_ms: int = key(
        default=10_000,
        at_least=1,
        at_most=INT64_MAX,
        doc="The time that a client of an SSL listener has for the TLS handshake. Connecting to other brokers is "
        "limited by `replica.socket.timeout.ms`.",
    )

    def tls_of(self, listener: str) -> BrokerTlsConfig:
        """The keys of TLS in effect for a listener. Raises KafkaConfigurationError."""
        own = {
            entry.name: getattr(self, entry.attribute)
            for entry in BrokerTlsConfig.entries
            if entry.name in LISTENER_KEYS and not self.origins[entry.name].startswith("default")
        }
        own.update(overrides_of(listener, self.listener_name))
        return BrokerTlsConfig.resolve_from(own, {}, {})


def check_overrides(draft: Draft) -> None:
    """Keys that start with `listener.name.` go on with the name of a listener and one of the keys that can be given
    per listener."""
    names = {each.name for each in draft["listeners"]}
    names |= {entry.partition(":")[0] for entry in draft["listener_security_protocol_map"]}
    for name, value in draft["listener_name"]:
        if not any(overrides_of(each, [(name, value)]) for each in names):
            draft.problem(
                f"listener.name.{name} is not supported: it needs the name of a listener ({', '.join(sorted(names))}) "
                f"and a key of TLS, such as listener.name.{sorted(names)[0].lower()}.ssl.keystore.location"
            )
