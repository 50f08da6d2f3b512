"""SSL listeners: several at once, their own keys, principals, replication between brokers, the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # pyright: ignore
from support.tls import Credentials

from headrace.broker import EmbeddedCluster, ProcessCluster
from headrace.network.protocol.errors import KafkaConfigurationError, SslAuthenticationError
from headrace.producer import KafkaProducer


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    return Credentials(Path(tmp_path_factory.mktemp("tls")))


def send(cluster: EmbeddedCluster, listener: str, **keys: Any) -> None:
    port = cluster.broker(cluster.node_ids[0]).server.ports[listener]
    with KafkaProducer(bootstrap_servers=f"127.0.0.1:{port}", **keys) as producer:
        producer.send("t", b"v").get(20)


def test_listeners_of_both_protocols(credentials: Credentials) -> None:
    with EmbeddedCluster(
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", ssl_keystore_location=credentials.server
    ) as cluster:
        send(cluster, "PLAINTEXT")
        send(cluster, "SSL", security_protocol="SSL", ssl_cafile=credentials.ca)
        assert len(cluster.records("t", 0)) == 2


def test_keys_of_one_listener(credentials: Credentials, tmp_path: Path) -> None:
    """Inside and outside have certificates of two authorities; only outside demands one of the client."""
    outside = Credentials(tmp_path)
    config = {
        "listeners": "INSIDE://127.0.0.1:0,OUT_SIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:SSL,OUT_SIDE:SSL",
        "ssl.keystore.location": credentials.server,
        "listener.name.out_side.ssl.keystore.location": outside.server,
        "listener.name.out_side.ssl.truststore.location": outside.ca,
        "listener.name.out_side.ssl.client.auth": "required",
    }
    with EmbeddedCluster(config=config) as cluster:
        send(cluster, "INSIDE", security_protocol="SSL", ssl_cafile=credentials.ca)
        send(
            cluster,
            "OUT_SIDE",
            security_protocol="SSL",
            ssl_cafile=outside.ca,
            ssl_keystore_location=outside.client,
        )
        with pytest.raises(SslAuthenticationError):
            send(cluster, "OUT_SIDE", security_protocol="SSL", ssl_cafile=outside.ca)


@pytest.mark.parametrize(
    ("keys", "principals"),
    [
        ({"ssl_client_auth": "required"}, "User:CN=alice"),
        ({"ssl_client_auth": "requested"}, "User:CN=alice"),
        ({"ssl_client_auth": "none"}, "User:ANONYMOUS"),
        (
            {"ssl_client_auth": "required", "ssl_principal_mapping_rules": "RULE:^CN=(.*?),.*$/$1/U"},
            "User:ALICE",
        ),
    ],
)
def test_principals(credentials: Credentials, keys: dict[str, Any], principals: str) -> None:
    seen: list[str] = []
    with EmbeddedCluster(
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_location=credentials.server,
        ssl_truststore_location=credentials.ca,
        **keys,
    ) as cluster:
        cluster.on_request(None, lambda context, _: seen.append(context.connection.principal))
        send(
            cluster,
            "SSL",
            security_protocol="SSL",
            ssl_cafile=credentials.ca,
            ssl_keystore_location=credentials.client,
        )
    assert {each.partition(",")[0] for each in seen} == {principals}


def test_replication_over_tls(credentials: Credentials) -> None:
    """Brokers authenticate each other: the listener demands certificates."""
    principals: set[str] = set()
    with EmbeddedCluster(
        3,
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        security_inter_broker_protocol="SSL",
        ssl_keystore_location=credentials.server,
        ssl_truststore_location=credentials.ca,
        ssl_client_auth="required",
        default_replication_factor=3,
        min_insync_replicas=3,
    ) as cluster:
        cluster.on_request(
            None,
            lambda context, _: (
                principals.add(context.connection.principal)
                if (context.client_id or "").startswith("headrace-broker")
                else None
            ),
        )
        send(cluster, "PLAINTEXT")
    assert {each.partition(",")[0] for each in principals} == {"User:CN=localhost"}


def test_processes(credentials: Credentials) -> None:
    with (
        ProcessCluster(
            2,
            listeners="SSL://127.0.0.1:0",
            ssl_keystore_location=credentials.server,
            ssl_truststore_location=credentials.ca,
            default_replication_factor=2,
        ) as cluster,
        KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, security_protocol="SSL", ssl_cafile=credentials.ca
        ) as producer,
    ):
        producer.send("t", b"v").get(20)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, r"an SSL listener needs a certificate: give ssl\.keystore\.location"),
        ({"ssl.keystore.location": "/nowhere.pem"}, r"/nowhere\.pem can't be read"),
        ({"listener.name.ssl.ssl.keystor.location": "x"}, r"listener\.name\.ssl\.ssl\.keystor\.location is not"),
        ({"listener.name.other.ssl.keystore.location": "x"}, "for the listener OTHER, which is not in listeners"),
        ({"security.inter.broker.protocol": "PLAINTEXT"}, "no listener has that protocol"),
    ],
)
def test_what_cannot_be_served(keys: dict[str, str], text: str) -> None:
    with (
        pytest.raises(KafkaConfigurationError, match=text),
        EmbeddedCluster(config={"listeners": "SSL://127.0.0.1:0", **keys}),
    ):
        pass


def test_secrets_of_a_broker_are_not_described(credentials: Credentials) -> None:
    config = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.location": credentials.server,
        "ssl.key.password": "hush",
        "listener.name.ssl.ssl.keystore.password": "hush",
    }
    with EmbeddedCluster(config=config) as cluster:
        port = cluster.broker(1).server.ports["PLAINTEXT"]
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        resource = ConfigResource(ResourceType.BROKER, "1")
        described = admin.describe_configs([resource])[resource].result(20)
    assert described["ssl.key.password"].value is None
    assert described["ssl.key.password"].is_sensitive
    assert not any("hush" in str(entry) + str(vars(entry)) for entry in described.values())
    assert "hush" not in repr(cluster.config) + cluster.config.describe()


def test_the_commands(credentials: Credentials, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol=SSL\nssl.truststore.location={credentials.ca}\n")
    with EmbeddedCluster(listeners="SSL://127.0.0.1:0", ssl_keystore_location=credentials.server) as cluster:
        cluster.create_topic("planted", 2)
        command = [sys.executable, "-m", "headrace.cli", "topics", "list", "-b", cluster.bootstrap_servers]
        done = subprocess.run([*command, "--command-config", config], capture_output=True, text=True, check=True)
        assert "planted" in done.stdout
        config.write_text("security.protocol=SSL\n")
        failed = subprocess.run([*command, "--command-config", config], capture_output=True, text=True, check=False)
        assert failed.returncode == 1
        assert "set ssl.truststore.location" in failed.stderr
        assert "Traceback" not in failed.stderr
