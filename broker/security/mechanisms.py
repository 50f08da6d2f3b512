"""The one table of the mechanisms that a broker can offer, and what brokers authenticate with to each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...network.protocol.errors import SaslAuthenticationFailedError
from ...network.security.mechanism import ClientMechanism, ServerMechanism
from ...network.security.mechanism_names import OAUTHBEARER, PLAIN
from ...network.security.passwords import PasswordCredentials
from ...network.security.plain import PlainServer, same_secret
from ...network.security.scram import ScramMechanism, ScramServer
from ..config.sasl_keys import SaslListener
from .users import Users

#: Returns the users of the cluster now.
FindUsers = Callable[[], Users]


def _plain(listener: SaslListener, users: FindUsers) -> ServerMechanism:
    def verify(name: str, password: str) -> bool:
        known = (listener.plain_users.get(name), users().passwords.get(name))
        return any([each is not None and same_secret(each, password) for each in known])

    return PlainServer(verify)


def _scram(mechanism: ScramMechanism, _listener: SaslListener, users: FindUsers) -> ServerMechanism:
    return ScramServer(mechanism, lambda name: users().scram.get((name, mechanism)))


def _oauthbearer(listener: SaslListener, _users: FindUsers) -> ServerMechanism:
    from ...network.security.oauthbearer import OAuthBearerServer  # noqa: PLC0415 - few clusters offer it
    from ...network.security.token_validators import UnsecuredJwtValidator  # noqa: PLC0415

    return OAuthBearerServer(listener.token_validator or UnsecuredJwtValidator())


#: Makes the server's half of a mechanism for one authentication.
MECHANISMS: dict[str, Callable[[SaslListener, FindUsers], ServerMechanism]] = {
    PLAIN: _plain,
    **{each.label: partial(_scram, each) for each in ScramMechanism},
    OAUTHBEARER: _oauthbearer,
}


class BrokerCredentials:
    """What a broker authenticates with to others: the login module of its listener, or the first of the cluster's
    users. Any thread."""

    def __init__(self, mechanism: str, listener: SaslListener, users: FindUsers) -> None:
        """Store the arguments; the user is looked up for each authentication, because passwords change."""
        self._mechanism = mechanism
        self._listener = listener
        self._users = users

    @property
    def mechanism(self) -> str:
        """The name of the mechanism."""
        return self._mechanism

    def begin(self, host: str) -> ClientMechanism:
        """The client's half. Raises SaslAuthenticationFailedError if no user is configured."""
        login = self._listener.logins.get(self._mechanism) or next(iter(self._users().passwords.items()), None)
        if login is None:
            raise SaslAuthenticationFailedError(
                "brokers have no user to connect to each other as; give users, or username and password in "
                f"listener.name.<listener>.{self._mechanism.lower()}.sasl.jaas.config"
            )
        return PasswordCredentials(self._mechanism, *login).begin(host)

    def start(self, wakeup: Callable[[], object]) -> None:
        """Nothing has to be fetched."""

    def close(self) -> None:
        """Nothing has to be stopped."""
