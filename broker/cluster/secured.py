"""`security=` of a cluster: its throw-away certificates and users, and what clients need to connect."""

from __future__ import annotations

import secrets
import shutil
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...network.protocol.errors import IllegalArgumentError, IllegalStateError, KafkaConfigurationError
from ...network.security.tls_config import PLAINTEXT, SECURITY_PROTOCOLS, TLS_PROTOCOLS
from ..config.broker_config import BrokerConfig
from ..config.listeners import SASL_PROTOCOLS
from ..security.certificates import ThrowAwayAuthority

#: The user of a cluster with SASL that names none, with a random password.
DEFAULT_USER = "headrace"
_MECHANISM = "SCRAM-SHA-256"


def check_security(security: object) -> str | None:
    """The security protocol in upper case; None unchanged. Raises KafkaConfigurationError for anything else."""
    if security is None:
        return None
    if not isinstance(security, str) or security.upper() not in SECURITY_PROTOCOLS:
        raise KafkaConfigurationError(f"security is {security!r}; give one of {', '.join(SECURITY_PROTOCOLS)}")
    return security.upper()


class ClusterSecurity:
    """The certificates and users that a cluster makes for itself. Any thread."""

    def __init__(self, protocol: str | None, host: str | None, given: BrokerConfig) -> None:
        """Make what `protocol` needs and `given` lacks; None makes nothing.

        Raises KafkaConfigurationError without the trustme package, if certificates are needed.
        """
        self.protocol = protocol or PLAINTEXT
        #: The broker's keys that were made.
        self.keys: dict[str, Any] = {}
        self._directory: Path | None = None
        self._authority: ThrowAwayAuthority | None = None
        if protocol in SASL_PROTOCOLS and not given.users:
            self.keys["users"] = {DEFAULT_USER: secrets.token_urlsafe(16)}
        if protocol in TLS_PROTOCOLS and "ssl.keystore.location" not in given.given:
            self._make_certificates(host)

    def _make_certificates(self, host: str | None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="headrace-certificates-"))
        try:
            self._authority = ThrowAwayAuthority(self._directory)
            hosts = ("localhost", "127.0.0.1", "::1", *((host,) if host else ()))
            self.keys["ssl.keystore.location"] = str(self._authority.issue_server(hosts))
            self.keys["ssl.truststore.location"] = str(self._authority.ca_path)
        except BaseException:
            self.remove()
            raise
        self.keys["ssl.keystore.type"] = self.keys["ssl.truststore.type"] = "PEM"

    def remove(self) -> None:
        """Remove the certificates' files. Idempotent."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def client_config(
        self, client: str, servers: str, users: Mapping[str, str], user: str | None, certificate: str | None
    ) -> dict[str, Any]:
        """See `ClusterBase.client_config`."""
        if client not in _CLIENTS:
            raise IllegalArgumentError(f"client is {client!r}; give one of {', '.join(_CLIENTS)}")
        ca = key = None
        if self.protocol in TLS_PROTOCOLS:
            if self._directory is None or self._authority is None:
                raise IllegalStateError("the cluster's certificates are not its own, or it is closed")
            ca = str(self._authority.ca_path)
            key = None if certificate is None else self._authority.issue_client(certificate)
        elif certificate is not None:
            raise IllegalArgumentError(f"certificate is {certificate!r}, but {self.protocol} has no certificates")
        login = None
        if self.protocol in SASL_PROTOCOLS:
            if not users:
                raise IllegalArgumentError("the cluster has no user any more; add one with set_password")
            name = next(iter(users)) if user is None else user
            if name not in users:
                raise IllegalArgumentError(f"there is no user {name!r}; the cluster has {', '.join(users)}")
            login = name, users[name]
        elif user is not None:
            raise IllegalArgumentError(f"user is {user!r}, but {self.protocol} has no users")
        return _CLIENTS[client](servers, self.protocol, ca, key, login)


_Login = tuple[str, str] | None


def _headrace(servers: str, protocol: str, ca: str | None, key: Path | None, login: _Login) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": servers, "security.protocol": protocol}
    if ca is not None:
        config.update({"ssl.truststore.location": ca, "ssl.truststore.type": "PEM"})
    if key is not None:
        config.update({"ssl.keystore.location": str(key), "ssl.keystore.type": "PEM"})
    if login is not None:
        config.update({"sasl.mechanism": _MECHANISM, "sasl.username": login[0], "sasl.password": login[1]})
    return config


def _java(servers: str, protocol: str, ca: str | None, key: Path | None, login: _Login) -> dict[str, Any]:
    config = _headrace(servers, protocol, ca, key, None)
    if login is not None:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        config["sasl.mechanism"] = _MECHANISM
        config["sasl.jaas.config"] = f'{module} required username="{login[0]}" password="{login[1]}";'
    return config


def _confluent_kafka(servers: str, protocol: str, ca: str | None, key: Path | None, login: _Login) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": servers, "security.protocol": protocol}
    if ca is not None:
        config["ssl.ca.location"] = ca
    if key is not None:
        config["ssl.certificate.location"] = str(key)
        config["ssl.key.location"] = str(ThrowAwayAuthority.key_path(key))
    if login is not None:
        config.update({"sasl.mechanism": _MECHANISM, "sasl.username": login[0], "sasl.password": login[1]})
    return config


def _kafka_python(servers: str, protocol: str, ca: str | None, key: Path | None, login: _Login) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": protocol}
    if ca is not None:
        config["ssl_cafile"] = ca
    if key is not None:
        config.update({"ssl_certfile": str(key), "ssl_keyfile": str(ThrowAwayAuthority.key_path(key))})
    return {**config, **_kafka_python_login(login)}


def _aiokafka(servers: str, protocol: str, ca: str | None, key: Path | None, login: _Login) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": protocol}
    if ca is not None:
        config["ssl_context"] = context = ssl.create_default_context(cafile=ca)
        if key is not None:
            context.load_cert_chain(key)
    return {**config, **_kafka_python_login(login)}


def _kafka_python_login(login: _Login) -> dict[str, Any]:
    if login is None:
        return {}
    return {"sasl_mechanism": _MECHANISM, "sasl_plain_username": login[0], "sasl_plain_password": login[1]}


_CLIENTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "headrace": _headrace,
    "confluent-kafka": _confluent_kafka,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "java": _java,
}
