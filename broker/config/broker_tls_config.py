"""The broker's keys of TLS, and their values for one listener (`listener.name.<name>.ssl.*`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...network.config import INT64_MAX, key
from ...network.security.tls_config import TlsConfig
from .principal_rules import PrincipalRule, parse_principal_rules, show_principal_rules

#: The keys that can be given per listener.
LISTENER_KEYS = TlsConfig.tls_names() | {"ssl.client.auth", "ssl.principal.mapping.rules"}


def overrides_of(listener: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of TLS that `listener.name.<listener>.*` gives for a listener, by the name they have without it."""
    prefix = f"listener.name.{listener.lower()}."
    found = ((name.removeprefix(prefix), value) for name, value in settings.items() if name.startswith(prefix))
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
    socket_connection_setup_timeout_ms: int = key(
        default=10_000,
        at_least=1,
        at_most=INT64_MAX,
        doc="The time that a client of an SSL listener has for the TLS handshake. Connecting to other brokers is "
        "limited by `replica.socket.timeout.ms`.",
    )

    def tls_with(self, overrides: Mapping[str, Any]) -> BrokerTlsConfig:
        """The keys of TLS in effect with those of a listener. Raises KafkaConfigurationError."""
        own = {
            entry.name: getattr(self, entry.attribute)
            for entry in BrokerTlsConfig.entries
            if entry.name in LISTENER_KEYS and not self.origins[entry.name].startswith("default")
        }
        return BrokerTlsConfig.resolve_from({**own, **overrides}, {}, {})
