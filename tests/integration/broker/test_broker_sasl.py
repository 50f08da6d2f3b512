"""The broker's side of SASL: what it serves before authentication, users, and the end of sessions."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import pytest
from support.waiting import wait_until

from headrace.broker import ApiKey, EmbeddedCluster, ProcessCluster
from headrace.network.addresses import parse_address
from headrace.network.client.blocking_connection import BlockingConnection
from headrace.network.protocol.errors import (
    DisconnectedError,
    IllegalSaslStateError,
    KafkaConfigurationError,
    SaslAuthenticationFailedError,
)
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.message import Request
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from headrace.network.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.network.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.network.protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    ScramUserName,
)
from headrace.network.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from headrace.network.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from headrace.network.protocol.messages.topics.metadata import MetadataRequest
from headrace.network.security.passwords import PasswordCredentials
from headrace.network.security.scram import ScramMechanism
from headrace.producer import KafkaProducer

PATIENCE_S = 30.0
USERS = {"alice": "secret", "bob": "hush"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Raw:
    """A connection that sends the given requests, in the given order."""

    def __init__(self, cluster: Any) -> None:
        host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._file = self.socket.makefile("rb")
        self._number = 0

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, message: Request, version: int) -> None:
        self._number += 1
        frame = encode_request(message, version=version, correlation_id=self._number, client_id="raw")
        self.socket.sendall(b"".join(frame))

    def frame(self) -> bytes | None:
        """The next frame; None if the broker has closed the connection."""
        try:
            size = self._file.read(4)
            return self._file.read(struct.unpack(">i", size)[0]) if len(size) == 4 else None
        except ConnectionError:
            return None

    def ask(self, message: Request, version: int) -> Any:
        self.send(message, version)
        frame = self.frame()
        assert frame is not None, "the broker closed the connection"
        return decode_response(type(message), version, memoryview(frame))[1]

    def sign_in(self, name: str = "alice", password: str = "secret", version: int = 2) -> Any:
        assert self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        return self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{password}".encode()), version)


def metadata() -> MetadataRequest:
    return MetadataRequest(topics=[])


@pytest.fixture
def cluster():
    with EmbeddedCluster(users=USERS, connections_max_reauth_ms=3_000) as running:
        yield running


def connection(cluster: Any, user: str = "alice", password: str = "secret", mechanism: str = "PLAIN"):
    address = parse_address(cluster.bootstrap_servers.split(",")[0])
    return BlockingConnection(
        address,
        client_id="test",
        timeout_ms=20_000,
        max_response_bytes=2**20,
        credentials=PasswordCredentials(mechanism, user, password),
    )


@pytest.mark.parametrize(
    "request_",
    [
        metadata(),
        DescribeClusterRequest(include_cluster_authorized_operations=False),
        SaslAuthenticateRequest(auth_bytes=b"x"),
    ],
)
def test_nothing_else_is_served_before_authentication(cluster, request_):
    with Raw(cluster) as raw:
        raw.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
        raw.send(request_, request_.versions.max)
        assert raw.frame() is None
    with Raw(cluster) as raw:
        raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        if not isinstance(request_, SaslAuthenticateRequest):
            raw.send(request_, request_.versions.max)
            assert raw.frame() is None


def test_the_mechanisms_are_told_and_an_unknown_one_ends_the_connection(cluster):
    with Raw(cluster) as raw:
        answer = raw.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
        assert raw.frame() is None


@pytest.mark.parametrize("delay_ms", [0, 400])
def test_a_wrong_password_is_answered_after_a_delay_and_the_connection_closed(delay_ms):
    with (
        EmbeddedCluster(users=USERS, connection_failed_authentication_delay_ms=delay_ms) as cluster,
        Raw(cluster) as raw,
    ):
        began = time.monotonic()
        answer = raw.sign_in(password="guess")
        assert time.monotonic() - began >= delay_ms / 1000
        assert (answer.error_code, answer.error_message) == (
            58,
            "Authentication failed: Invalid username or password",
        )
        assert raw.frame() is None


def test_what_follows_a_failure_is_not_read(cluster):
    with Raw(cluster) as raw:
        raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        raw.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess"), 2)
        raw.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
        raw.send(metadata(), 9)
        first = raw.frame()
        assert first is not None
        assert raw.frame() is None


def test_an_oversized_frame_is_refused_before_authentication_only():
    with EmbeddedCluster(users=USERS, sasl_server_max_receive_size=1000) as cluster:
        with Raw(cluster) as raw:
            raw.socket.sendall(struct.pack(">i", 1001))
            assert raw.frame() is None
        with Raw(cluster) as raw:
            raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            raw.socket.sendall(struct.pack(">i", 1001))
            assert raw.frame() is None
        with KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="secret",
        ) as producer:
            producer.send("t", value=bytes(100_000)).get(30)


def test_the_form_before_kafka_1_is_served(cluster):
    with Raw(cluster) as raw:
        raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        raw.socket.sendall(struct.pack(">i", 13) + b"\0alice\0secret")
        assert raw.frame() == b""
        assert raw.ask(metadata(), 9).brokers
    with Raw(cluster) as raw:
        raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        raw.socket.sendall(struct.pack(">i", 12) + b"\0alice\0guess")
        assert raw.frame() is None


def test_a_session_ends_and_is_renewed_by_the_handshake():
    with EmbeddedCluster(users=USERS, connections_max_reauth_ms=1_200) as cluster, Raw(cluster) as raw:
        assert raw.sign_in().session_lifetime_ms == 1_200
        assert raw.ask(metadata(), 9).brokers
        time.sleep(1.3)
        # also after its end
        assert raw.sign_in().session_lifetime_ms == 1_200
        assert raw.ask(metadata(), 9).brokers
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == IllegalSaslStateError.code
        time.sleep(1.3)
        raw.send(metadata(), 9)
        assert raw.frame() is None


def test_a_client_without_lifetimes_loses_its_connection_in_the_end():
    with EmbeddedCluster(users=USERS, connections_max_reauth_ms=500) as cluster, Raw(cluster) as raw:
        raw.sign_in(version=0)
        assert raw.ask(metadata(), 9).brokers
        time.sleep(0.6)
        raw.send(metadata(), 9)
        assert raw.frame() is None


@pytest.mark.parametrize(
    ("mechanism", "message", "problem"),
    [
        ("PLAIN", b"\0bob\0hush", "Cannot change principals during re-authentication from User.alice: User.bob"),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc", "is not supported for re-authentication of mechanism 'PLAIN'"),
        ("PLAIN", b"\0alice\0guess", "Invalid username or password"),
    ],
)
def test_a_session_is_renewed_only_as_the_same_user(cluster, mechanism, message, problem):
    with Raw(cluster) as raw:
        raw.sign_in()
        assert raw.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
        answer = raw.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        assert answer.error_code == 58
        assert problem in answer.error_message
        assert raw.frame() is None


def test_other_requests_during_a_renewal_end_the_connection(cluster):
    with Raw(cluster) as raw:
        raw.sign_in()
        raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        raw.send(metadata(), 9)
        assert raw.frame() is None


def test_without_an_end_a_session_is_not_renewed():
    with EmbeddedCluster(users=USERS) as cluster, Raw(cluster) as raw:
        assert raw.sign_in().session_lifetime_ms == 0
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == IllegalSaslStateError.code
        answer = raw.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
        assert answer.error_code == IllegalSaslStateError.code
        assert raw.ask(metadata(), 9).brokers


def test_a_listener_without_sasl_says_so():
    with EmbeddedCluster() as cluster, Raw(cluster) as raw:
        assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == IllegalSaslStateError.code
        assert raw.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2).error_code == IllegalSaslStateError.code
        assert raw.ask(metadata(), 9).brokers


# --- Users ---


def upsertion(name: str, password: str, mechanism: ScramMechanism = ScramMechanism.SHA_256, iterations: int = 4096):
    salted = mechanism.salted_password(password, b"salt", iterations)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism.type_id, iterations=iterations, salt=b"salt", salted_password=salted
    )


def test_scram_users_are_altered_and_described_with_kafkas_errors(cluster):
    admin = connection(cluster)
    unknown = ScramCredentialUpsertion(name="x", mechanism=9, iterations=4096, salt=b"s", salted_password=b"p")
    results = admin.request(
        AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name="nobody", mechanism=1),
                ScramCredentialDeletion(name="bob", mechanism=2),
            ],
            upsertions=[
                upsertion("carol", "new"),
                upsertion("carla", "a"),
                upsertion("carla", "b"),
                upsertion("few", "x", iterations=4095),
                upsertion("many", "x", iterations=16_385),
                upsertion("", "x"),
                unknown,
            ],
        )
    ).results
    assert {each.user: each.error_code for each in results} == {
        "nobody": 91,
        "bob": 0,
        "carol": 0,
        "carla": 92,
        "few": 93,
        "many": 93,
        "": 93,
        "x": 33,
    }
    told = admin.request(DescribeUserScramCredentialsRequest(users=None)).results
    assert {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in told} == {
        "alice": [(1, 4096), (2, 4096)],
        "bob": [(1, 4096)],
        "carol": [(1, 4096)],
    }
    named = [ScramUserName(name=each) for each in ("carol", "nobody", "bob", "bob")]
    told = admin.request(DescribeUserScramCredentialsRequest(users=named)).results
    assert {each.user: each.error_code for each in told} == {"carol": 0, "nobody": 91, "bob": 92}
    admin.close()
    carol = connection(cluster, "carol", "new", "SCRAM-SHA-256")
    assert carol.request(metadata()).brokers
    carol.close()


@pytest.mark.parametrize("kind", [EmbeddedCluster, ProcessCluster])
def test_all_brokers_know_scram_users_and_they_survive_a_restart(kind, tmp_path):
    settings = {"users": USERS, "data_dir": tmp_path, "default_replication_factor": 2}
    with kind(2, **settings) as cluster:
        admin = connection(cluster)
        changed = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("carol", "new")])
        assert admin.request(changed).results[0].error_code == 0
        admin.close()
    with kind(2, **settings) as cluster:
        for at in cluster.bootstrap_servers.split(","):
            other = BlockingConnection(
                parse_address(at),
                client_id="test",
                timeout_ms=20_000,
                max_response_bytes=2**20,
                credentials=PasswordCredentials("SCRAM-SHA-256", "carol", "new"),
            )
            assert len(other.request(metadata()).brokers) == 2
            other.close()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"secret" not in stored


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_brokers_authenticate_with_each_other(mechanism):
    settings = {"users": USERS, "sasl.mechanism.inter.broker.protocol": mechanism, "connections.max.reauth.ms": 1100}
    with EmbeddedCluster(3, config=settings) as cluster:
        cluster.create_topic("t", replication_factor=3)
        with KafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="bob",
            sasl_password="hush",
        ) as producer:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                producer.send("t", value=b"v").get(30)
        counts = {len(cluster.records("t", 0, each)) for each in (1, 2, 3)}
        assert len(counts) == 1


def test_a_listener_for_brokers_with_a_login_module_of_its_own():
    module = f'{MODULE} username="broker" password="b" user_broker="b" user_carol="c";'
    config = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "listener.name.inside.plain.sasl.jaas.config": module,
        "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.inside.plain.connections.max.reauth.ms": "60000",
    }
    with EmbeddedCluster(2, config=config) as cluster:
        with Raw(cluster) as raw:
            assert raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).mechanisms == ["PLAIN"]
            answer = raw.ask(SaslAuthenticateRequest(auth_bytes=b"\0carol\0c"), 2)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
        cluster.create_topic("t", replication_factor=2)
        outside = cluster.controller.image.brokers[1].listeners[1]
        with KafkaProducer(bootstrap_servers=f"{outside.host}:{outside.port}") as producer:
            producer.send("t", value=b"v").get(30)
        wait_until(lambda: [len(cluster.records("t", 0, each)) for each in (1, 2)] == [1, 1])


def test_passwords_are_masked_in_the_configuration_that_clients_see(cluster):
    admin = connection(cluster)
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="1")])
    configs = {each.name: each for each in admin.request(asked).results[0].configs}
    admin.close()
    assert configs["users"].value is None
    assert configs["users"].is_sensitive
    assert all("secret" not in str(each.value) for each in configs.values())
    assert "secret" not in repr(cluster.config)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"users": {"alice": ""}}, "the password is empty"),
        ({"users": "alice"}, "without a colon"),
        ({"users": ["alice"]}, "not a dict"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI, which this broker does not offer"),
        ({"plain.sasl.jaas.config": "nonsense"}, "is not a login module"),
        ({"plain.sasl.jaas.config": MODULE.replace("Plain", "Scram") + ";"}, "which is for SCRAM-SHA-256"),
        ({"listener.name.x.plain.sasl.jaas.config": MODULE + ";"}, "listener X, which is not in listeners"),
        ({"listener.name.sasl_plaintext.color": "red"}, "not a setting of a listener"),
        ({"listener.name.sasl_plaintext.sasl.jaas.config": MODULE + ";"}, "needs the mechanism in front"),
        ({"security.inter.broker.protocol": "SASL_PLAINTEXT"}, "but no listener has that protocol"),
    ],
)
def test_bad_settings_are_refused(config, problem):
    with pytest.raises(KafkaConfigurationError, match=problem):
        EmbeddedCluster(config=config)


# --- Blocking connections ---


def test_a_blocking_connection_authenticates_and_renews_its_session():
    with EmbeddedCluster(users=USERS, connections_max_reauth_ms=1_100) as cluster:
        client = connection(cluster, mechanism="SCRAM-SHA-256")
        assert client.request(metadata()).brokers
        time.sleep(1.2)
        assert client.request(metadata()).brokers
        client.close()
        seen = [each for each in cluster.requests if each.client_id == "test"]
        assert len({each.connection_id for each in seen}) == 1
        assert sum(each.api_key is ApiKey.SASL_HANDSHAKE for each in seen) == 2


def test_a_blocking_connection_reports_a_rejection():
    with EmbeddedCluster(users=USERS) as cluster:
        client = connection(cluster, password="guess")
        for _ in range(2):
            with pytest.raises(SaslAuthenticationFailedError, match="Invalid username or password"):
                client.request(metadata())


def test_a_blocking_connection_does_not_wait_for_credentials_forever():
    class Pending(PasswordCredentials):
        def begin(self, host: str) -> Any:
            return None

    with EmbeddedCluster(users=USERS) as cluster:
        client = BlockingConnection(
            parse_address(cluster.bootstrap_servers),
            client_id="test",
            timeout_ms=200,
            max_response_bytes=2**20,
            credentials=Pending("PLAIN", "alice", "secret"),
        )
        with pytest.raises(DisconnectedError, match="still being fetched"):
            client.request(metadata())
