"""Apache Kafka's tools and franz-go over TLS and SASL against the embedded broker, with each mechanism.

librdkafka, kafka-python and aiokafka are in `test_broker_sasl_clients.py`, `test_tls_clients.py` and
`test_secured_clusters.py`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support import franz_go
from support.apache_kafka import ApacheKafka

from headrace.broker import ApiKey, EmbeddedCluster
from headrace.network.clock import SYSTEM_CLOCK

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
VALUES = [b"value-%d" % number for number in range(50)]
PASSWORD = "s3cret"
MODULE = "org.apache.kafka.common.security"
#: One batch of records larger than a TLS record.
LARGE = b"x" * 100_000


def secured(protocol: str, **keys: Any) -> EmbeddedCluster:
    if protocol.startswith("SASL"):
        keys = {"users": {"alice": PASSWORD}, "sasl_enabled_mechanisms": ",".join(MECHANISMS), **keys}
    return EmbeddedCluster(security=protocol, group_initial_rebalance_delay_ms=0, **keys)


def token(name: str) -> str:
    """An unsecured JSON Web Token, such as Kafka's brokers accept without further configuration."""
    claims = {"sub": name, "iat": SYSTEM_CLOCK.wall_ms() / 1000 - 1, "exp": SYSTEM_CLOCK.wall_ms() / 1000 + 3600}
    parts = ({"alg": "none"}, claims)
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts), ""])


def principals_of(cluster: EmbeddedCluster) -> set[str]:
    """The principals that write, as they come."""
    principals: set[str] = set()
    cluster.on_request(ApiKey.PRODUCE, lambda context, request: principals.add(context.connection.principal))
    return principals


def values(cluster: EmbeddedCluster) -> list[bytes]:
    return [each.value for each in cluster.records("t", 0)]


# --- Apache Kafka's tools ---


def java_config(cluster: EmbeddedCluster, mechanism: str | None, certificate: str | None = None) -> dict[str, str]:
    config = cluster.client_config("java", certificate=certificate)
    if mechanism is not None:
        login = f'username="alice" password="{PASSWORD}"'
        module = {
            "PLAIN": f"plain.PlainLoginModule required {login}",
            "OAUTHBEARER": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice"',
        }.get(mechanism, f"scram.ScramLoginModule required {login}")
        config |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{MODULE}.{module};"}
    return config


def write_with_java(kafka: ApacheKafka, config: Mapping[str, str], folder: Path) -> None:
    """Send VALUES and LARGE with the console producer."""
    address = address_of(config, folder)
    kafka.run_class("org.apache.kafka.tools.ConsoleProducer", *address, input=b"\n".join([*VALUES, LARGE]))


def read_with_java(kafka: ApacheKafka, config: Mapping[str, str], folder: Path) -> list[bytes]:
    """What the console consumer reads."""
    output = kafka.run_class(
        kafka.console_consumer_class,
        *(*address_of(config, folder), "--from-beginning"),
        *("--max-messages", str(len(VALUES) + 1), "--timeout-ms", "30000"),
    )
    return output.split(b"\n")[:-1]


def address_of(config: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items() if name != "bootstrap.servers"))
    return ("--bootstrap-server", config["bootstrap.servers"], "--topic", "t", "--command-config", str(path))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_javas_tools_over_sasl(apache_kafka: ApacheKafka, tmp_path: Path, protocol: str, mechanism: str) -> None:
    with secured(protocol) as cluster:
        principals = principals_of(cluster)
        config = java_config(cluster, mechanism)
        write_with_java(apache_kafka, config, tmp_path)
        assert read_with_java(apache_kafka, config, tmp_path) == [*VALUES, LARGE]
        assert values(cluster) == [*VALUES, LARGE]
    assert principals == {"User:alice"}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_javas_tools_over_tls(apache_kafka: ApacheKafka, tmp_path: Path, version: str, client_auth: str) -> None:
    with secured("SSL", ssl_client_auth=client_auth, ssl_enabled_protocols=version) as cluster:
        principals = principals_of(cluster)
        config = java_config(cluster, None, "app" if client_auth == "required" else None)
        write_with_java(apache_kafka, config, tmp_path)
        assert read_with_java(apache_kafka, config, tmp_path) == [*VALUES, LARGE]
    (principal,) = principals
    assert ("CN=app" in principal) == (client_auth == "required")


def test_javas_tools_see_a_wrong_password(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    with secured("SASL_SSL") as cluster:
        config = java_config(cluster, "SCRAM-SHA-256")
        config["sasl.jaas.config"] = config["sasl.jaas.config"].replace(PASSWORD, "guess")
        # the console consumer logs it and ends with exit code 0
        with pytest.raises(RuntimeError, match="SaslAuthenticationException: Authentication failed"):
            apache_kafka.run_class("org.apache.kafka.tools.TopicCommand", *address_of(config, tmp_path), "--describe")


# --- franz-go ---


@pytest.fixture(scope="module")
def franz() -> Iterator[Path]:
    return franz_go.program_or_skip()


def franz_config(cluster: EmbeddedCluster, **changes: Any) -> dict[str, Any]:
    return {
        "Servers": cluster.bootstrap_servers.split(","),
        "Topic": "t",
        "Values": [each.decode() for each in VALUES],
        "Delivery": 20,
        "User": "alice",
        "Password": PASSWORD,
        "CA": cluster.client_config().get("ssl.truststore.location", ""),
        **changes,
    }


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("franz_go")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_franz_go_over_sasl(franz: Path, protocol: str, mechanism: str) -> None:
    extensions = {"logicalCluster": "lkc-1"}
    with secured(protocol, connections_max_reauth_ms=1_500) as cluster:
        principals = principals_of(cluster)
        config = franz_config(cluster, Mechanism=mechanism, Token=token("alice"), Extensions=extensions, Seconds=4)
        read = franz_go.run(franz, config)
        assert read == values(cluster)
        assert read[: len(VALUES)] == VALUES
        # sessions were renewed
        assert cluster.control.counts[ApiKey.SASL_HANDSHAKE] >= 4
    assert principals == {"User:alice"}


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("franz_go")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_franz_go_over_tls(franz: Path, version: str, client_auth: str) -> None:
    with secured("SSL", ssl_client_auth=client_auth, ssl_enabled_protocols=version) as cluster:
        principals = principals_of(cluster)
        config = franz_config(cluster, Values=[*(each.decode() for each in VALUES), LARGE.decode()])
        if client_auth == "required":
            keys = cluster.client_config("confluent-kafka", certificate="app")
            config |= {"Certificate": keys["ssl.certificate.location"], "Key": keys["ssl.key.location"]}
        assert franz_go.run(franz, config) == [*VALUES, LARGE]
    (principal,) = principals
    assert ("CN=app" in principal) == (client_auth == "required")


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("franz_go")
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_franz_go_sees_a_rejection(franz: Path, mechanism: str) -> None:
    with secured("SASL_PLAINTEXT") as cluster:
        config = franz_config(cluster, Mechanism=mechanism, Password="guess", Token="guess", Delivery=2)
        with pytest.raises(RuntimeError, match=r"SASL_AUTHENTICATION_FAILED|unexpected data in oauth response"):
            franz_go.run(franz, config)
