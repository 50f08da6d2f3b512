"""The configurations of docs/managed-services.md run as they stand, against clusters made like each service.

A cluster has the service's mechanisms, limits and host names; a name service in this process leads the names and ports
of the page to it. Its certificate is of an authority that the system's store has, or the service's own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import random
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.pages import BLOCKS
from support.token_endpoint import IdentityProvider, TokenEndpoint, answering

from headrace.broker import ApiKey, EmbeddedCluster, Fault
from headrace.broker.security.certificates import ThrowAwayAuthority
from headrace.network.clock import SYSTEM_CLOCK
from headrace.network.protocol.errors import (
    DeliveryTimeoutError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SaslAuthenticationFailedError,
    SslAuthenticationError,
    UnsupportedCompressionTypeError,
)
from headrace.network.security.oauthbearer import InvalidTokenError
from headrace.producer import KafkaProducer

PAGE = "docs/managed-services.md"
PROGRAMS = [block for block in BLOCKS if block.page == PAGE and block.language == "python"]
SECRET = "pl4nted-s3cret"
EVENT_HUBS_LIMIT_BYTES = 1_046_528
GOOGLE_ACCOUNT = "orders@project.iam.gserviceaccount.com"


class NameService:
    """The system's, except for the names and ports in `known`, which have addresses on the loopback interface."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: dict[tuple[str, int], int] = {}
        self._system = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str | bytes, port: Any, *args: Any, **options: Any) -> Any:
        here = self.known.get((host.decode() if isinstance(host, bytes) else host, port))
        return self._system(*((host, port) if here is None else ("127.0.0.1", here)), *args, **options)


class Service:
    """What a service's cluster is put together from: authority, names, files in the working directory, environment."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.directory = directory
        self.authority = ThrowAwayAuthority(directory)
        self.names = NameService(monkeypatch)
        self.monkeypatch = monkeypatch
        self.stack = stack
        #: Short, so that a test sees renewals; the services' are of minutes or hours.
        self.session_ms = 1_100
        self.trust(self.authority)
        monkeypatch.chdir(directory)
        monkeypatch.setenv("no_proxy", "*")

    def trust(self, authority: ThrowAwayAuthority) -> None:
        """Make the system's store consist of this authority."""
        for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            self.monkeypatch.setenv(name, str(authority.ca_path))
        self.monkeypatch.delenv("SSL_CERT_DIR", raising=False)

    def has_own_authority(self) -> None:
        """The system's store lacks the authority, which is in the file that the page names."""
        other = self.directory / "system"
        other.mkdir()
        self.trust(ThrowAwayAuthority(other))

    def client_certificate(self, certificate: str, key: str) -> None:
        issued = self.authority.issue_client("orders")
        (self.directory / certificate).write_bytes(issued.read_bytes())
        (self.directory / key).write_bytes(self.authority.key_path(issued).read_bytes())

    def endpoint(self, host: str, port: int, answer: Callable[[Any], object]) -> TokenEndpoint:
        """A token endpoint with TLS at that address."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.authority.issue_server([host], name="idp"))
        endpoint = self.stack.enter_context(TokenEndpoint(answer, context))
        self.names.known[host, port] = endpoint.port
        return endpoint

    def start(self, bootstrap: str, port: int, broker: str, protocol: str, **keys: Any) -> EmbeddedCluster:
        """A cluster at `bootstrap`, whose only broker calls itself `broker`. It creates no topics on demand."""
        cluster = self.stack.enter_context(
            EmbeddedCluster(
                listeners=f"{protocol}://127.0.0.1:0",
                advertised_listeners=f"{protocol}://{broker}:{port}",
                # as the services, whose certificates are for all names of a cluster
                ssl_keystore_location=self.authority.issue_server([f"*.{broker.partition('.')[2]}", bootstrap]),
                auto_create_topics_enable=False,
                connections_max_reauth_ms=0 if protocol == "SSL" else self.session_ms,
                **keys,
            )
        )
        cluster.create_topic("orders", num_partitions=4)
        (node,) = cluster.brokers.values()
        (listening,) = node.server.ports.values()
        self.names.known.update({(bootstrap, port): listening, (broker, port): listening})
        return cluster


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with ExitStack() as stack:
        yield Service(tmp_path, monkeypatch, stack)


def from_environment(service: Service, **variables: str) -> None:
    for name, value in variables.items():
        service.monkeypatch.setenv(name, value)


# --- The services ---

CONFLUENT = ("pkc-12345.eu-west-1.aws.confluent.cloud", 9092, "b0-pkc-12345.eu-west-1.aws.confluent.cloud")
MSK = "b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com"
EVENT_HUBS = "orders.servicebus.windows.net"
GOOGLE = (
    "bootstrap.orders.europe-west1.managedkafka.project.cloud.goog",
    9092,
    "broker-0.orders.europe-west1.managedkafka.project.cloud.goog",
)
AIVEN = "orders-project.aivencloud.com"
REDPANDA = ("seed-abc123.orders.fmc.prd.cloud.redpanda.com", 9092, "0-abc123.orders.fmc.prd.cloud.redpanda.com")


def confluent_with_a_key(service: Service) -> EmbeddedCluster:
    from_environment(service, CONFLUENT_API_KEY="ABCDEFGHIJKLMNOP", CONFLUENT_API_SECRET=SECRET)
    return service.start(
        *CONFLUENT,
        "SASL_SSL",
        users={"ABCDEFGHIJKLMNOP": SECRET},
        sasl_enabled_mechanisms="PLAIN,OAUTHBEARER",
        sasl_mechanism_inter_broker_protocol="PLAIN",
    )


def confluent_with_oauth(service: Service) -> EmbeddedCluster:
    provider = IdentityProvider()
    service.endpoint("idp.example.com", 8443, provider.answer)
    from_environment(service, CLIENT_SECRET=SECRET)
    validator = provider.validator()

    def validate(token: str, extensions: Mapping[str, str]) -> Any:
        if extensions != {"logicalCluster": "lkc-12345", "identityPoolId": "pool-6789"}:
            raise InvalidTokenError("it is for another cluster or pool")
        return validator(token, extensions)

    return service.start(
        *CONFLUENT,
        "SASL_SSL",
        users={"internal": "x"},
        sasl_enabled_mechanisms="PLAIN,OAUTHBEARER",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        sasl_oauthbearer_token_validator=validate,
    )


def msk_signature(query: Mapping[str, str], host: str, secret: str) -> str:
    """The signature of a presigned URL (AWS's Signature Version 4)."""
    signed = {name: value for name, value in query.items() if name not in ("X-Amz-Signature", "User-Agent")}
    text = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(signed.items()))
    canonical = f"GET\n/\n{text}\nhost:{host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    scope = query["X-Amz-Credential"].partition("/")[2]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, to_sign.encode(), "sha256").hexdigest()


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="-_.~")


def msk_with_iam(service: Service) -> EmbeddedCluster:
    from_environment(service, AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY=SECRET)

    def validate(token: str, extensions: Mapping[str, str]) -> Any:
        url = urllib.parse.urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        key_id, _, scope = query["X-Amz-Credential"].partition("/")
        if (key_id, scope.split("/")[1:]) != ("AKIDEXAMPLE", ["eu-west-1", "kafka-cluster", "aws4_request"]):
            raise InvalidTokenError("it is of another key, region or service")
        if query["Action"] != "kafka-cluster:Connect":
            raise InvalidTokenError("it allows another action")
        if query["X-Amz-Signature"] != msk_signature(query, url.netloc, SECRET):
            raise InvalidTokenError("its signature is wrong")
        return "arn:aws:iam::123456789012:user/orders", SYSTEM_CLOCK.wall_ms() + 900_000

    return service.start(
        MSK,
        9098,
        MSK.replace("b-1", "b-2"),
        "SASL_SSL",
        users={"internal": "x"},
        sasl_enabled_mechanisms="SCRAM-SHA-512,OAUTHBEARER",
        sasl_mechanism_inter_broker_protocol="SCRAM-SHA-512",
        sasl_oauthbearer_token_validator=validate,
    )


def msk_with_scram(service: Service) -> EmbeddedCluster:
    from_environment(service, MSK_USER="orders", MSK_PASSWORD=SECRET)
    return service.start(
        MSK,
        9096,
        MSK.replace("b-1", "b-2"),
        "SASL_SSL",
        users={"orders": SECRET},
        sasl_enabled_mechanisms="SCRAM-SHA-512",
        sasl_mechanism_inter_broker_protocol="SCRAM-SHA-512",
    )


def with_certificates(service: Service, *address: Any) -> EmbeddedCluster:
    return service.start(*address, "SSL", ssl_client_auth="required", ssl_truststore_location=service.authority.ca_path)


def msk_with_certificates(service: Service) -> EmbeddedCluster:
    service.client_certificate("client.crt", "client.key")
    return with_certificates(service, MSK, 9094, MSK.replace("b-1", "b-2"))


def event_hubs(service: Service) -> EmbeddedCluster:
    text = f"Endpoint=sb://{EVENT_HUBS}/;SharedAccessKeyName=send;SharedAccessKey={SECRET}="
    from_environment(service, EVENT_HUBS_CONNECTION_STRING=text)
    cluster = service.start(
        EVENT_HUBS,
        9093,
        EVENT_HUBS,
        "SASL_SSL",
        users={"$ConnectionString": text},
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        socket_request_max_bytes=EVENT_HUBS_LIMIT_BYTES - 1,
    )

    def only_gzip(context: Any, request: Any) -> Fault | None:
        codecs = {
            bytes(part.records)[22] & 7 for topic in request.topic_data for part in topic.partition_data if part.records
        }
        return None if codecs <= {0, 1} else Fault(error=UnsupportedCompressionTypeError)

    cluster.on_request(ApiKey.PRODUCE, only_gzip)
    return cluster


def google_with_a_token(service: Service) -> EmbeddedCluster:
    pytest.importorskip("google.auth.transport.requests", reason="google-auth and requests are not installed")
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key": key.decode(),
        "client_email": GOOGLE_ACCOUNT,
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    (service.directory / "credentials.json").write_text(json.dumps(account))
    from_environment(service, GOOGLE_APPLICATION_CREDENTIALS="credentials.json")
    service.endpoint("oauth2.googleapis.com", 443, answering({"access_token": f"ya29.{SECRET}", "expires_in": 3599}))

    def validate(token: str, extensions: Mapping[str, str]) -> Any:
        header, claims, access_token = (
            base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode() for part in token.split(".")
        )
        if json.loads(header)["alg"] != "GOOG_OAUTH2_TOKEN" or access_token != f"ya29.{SECRET}":
            raise InvalidTokenError("it is no access token of Google's")
        return json.loads(claims)["sub"], json.loads(claims)["exp"] * 1000

    return service.start(
        *GOOGLE,
        "SASL_SSL",
        users={"internal": "x"},
        sasl_enabled_mechanisms="OAUTHBEARER,PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        sasl_oauthbearer_token_validator=validate,
    )


def google_with_a_key(service: Service) -> EmbeddedCluster:
    content = json.dumps({"type": "service_account", "private_key": f"{SECRET}\n" * 50}).encode()
    (service.directory / "service-account.json").write_bytes(content)
    return service.start(
        *GOOGLE,
        "SASL_SSL",
        users={GOOGLE_ACCOUNT: base64.b64encode(content).decode()},
        sasl_enabled_mechanisms="OAUTHBEARER,PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
    )


def aiven_with_scram(service: Service) -> EmbeddedCluster:
    service.has_own_authority()
    from_environment(service, AIVEN_PASSWORD=SECRET)
    return service.start(
        AIVEN,
        12345,
        AIVEN,
        "SASL_SSL",
        users={"avnadmin": SECRET},
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    )


def aiven_with_certificates(service: Service) -> EmbeddedCluster:
    service.has_own_authority()
    service.client_certificate("service.cert", "service.key")
    return with_certificates(service, AIVEN, 12346, AIVEN)


def redpanda_cloud(service: Service) -> EmbeddedCluster:
    from_environment(service, REDPANDA_USER="orders", REDPANDA_PASSWORD=SECRET)
    return service.start(
        *REDPANDA,
        "SASL_SSL",
        users={"orders": SECRET},
        sasl_enabled_mechanisms="SCRAM-SHA-256,SCRAM-SHA-512",
    )


def redpanda_with_certificates(service: Service) -> EmbeddedCluster:
    service.has_own_authority()
    service.client_certificate("client.crt", "client.key")
    host = "redpanda-0.redpanda.example.com"
    return with_certificates(service, host, 9093, host)


class Recipe(NamedTuple):
    """What stands behind a program of the page, and whom the broker takes it for."""

    start: Callable[[Service], EmbeddedCluster]
    principal: str


#: In the order of the page.
RECIPES = [
    Recipe(confluent_with_a_key, "User:ABCDEFGHIJKLMNOP"),
    Recipe(confluent_with_oauth, "User:orders"),
    Recipe(msk_with_iam, "User:arn:aws:iam::123456789012:user/orders"),
    Recipe(msk_with_scram, "User:orders"),
    Recipe(msk_with_certificates, "CN=orders"),
    Recipe(event_hubs, "User:$ConnectionString"),
    Recipe(google_with_a_token, f"User:{GOOGLE_ACCOUNT}"),
    Recipe(google_with_a_key, f"User:{GOOGLE_ACCOUNT}"),
    Recipe(aiven_with_scram, "User:avnadmin"),
    Recipe(aiven_with_certificates, "CN=orders"),
    Recipe(redpanda_cloud, "User:orders"),
    Recipe(redpanda_with_certificates, "CN=orders"),
]


def program_of(start: Callable[[Service], EmbeddedCluster]) -> str:
    return PROGRAMS[[each.start for each in RECIPES].index(start)].text


def producer_of(program: str, stack: ExitStack) -> KafkaProducer:
    """The producer that a program of the page makes."""
    namespace: dict[str, Any] = {}
    exec(compile(program, PAGE, "exec"), namespace)
    producer = namespace["producer"]
    assert isinstance(producer, KafkaProducer)
    stack.callback(producer.close, 5)
    return producer


def messages_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What Headrace logged, except what is for debugging. Clients of earlier tests may still log."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("headrace") and record.levelno > logging.DEBUG
    ]


# --- Tests ---


def test_the_page_has_a_recipe_per_program() -> None:
    assert len(PROGRAMS) == len(RECIPES)


@pytest.mark.parametrize(
    ("recipe", "block"), list(zip(RECIPES, PROGRAMS, strict=True)), ids=[recipe.start.__name__ for recipe in RECIPES]
)
def test_a_program_of_the_page(service: Service, recipe: Recipe, block: Any, caplog: pytest.LogCaptureFixture) -> None:
    cluster = recipe.start(service)
    principals: set[str] = set()
    cluster.on_request(ApiKey.PRODUCE, lambda context, request: principals.add(context.connection.principal))
    producer = producer_of(block.text, service.stack)
    futures = [producer.send("orders", b"%d" % number, partition=number % 4) for number in range(200)]
    for future in futures:
        future.get(30)
    (principal,) = principals
    assert recipe.principal in principal
    if "SASL" in producer.config.security_protocol:
        # sessions are renewed on the same connection
        while cluster.control.counts[ApiKey.SASL_HANDSHAKE] < 4:
            producer.send("orders", b"later", partition=0).get(30)
    assert sum(len(cluster.records("orders", each)) for each in range(4)) >= 200
    # nothing was rejected, and no connection was lost
    assert messages_of(caplog) == []


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (confluent_with_a_key, SaslAuthenticationFailedError),
        (confluent_with_oauth, SaslAuthenticationFailedError),
        (msk_with_iam, SaslAuthenticationFailedError),
        (msk_with_certificates, SslAuthenticationError),
        (event_hubs, SaslAuthenticationFailedError),
        (aiven_with_scram, SslAuthenticationError),
    ],
    ids=lambda value: value.__name__,
)
def test_what_a_service_refuses(service: Service, start: Any, error: type[Exception]) -> None:
    start(service)
    changed = {
        confluent_with_a_key: ('os.environ["CONFLUENT_API_SECRET"]', '"wrong"'),
        confluent_with_oauth: ("identityPoolId=pool-6789", "identityPoolId=pool-1"),
        msk_with_iam: ('region": "eu-west-1"', 'region": "us-east-1"'),
        msk_with_certificates: ('        "ssl.certificate.location": "client.crt",\n        "ssl.key.location"', "#"),
        event_hubs: ('"$ConnectionString"', '"ConnectionString"'),
        aiven_with_scram: ('        "ssl.truststore.location": "ca.pem",\n', ""),
    }[start]
    program = program_of(start)
    assert changed[0] in program
    producer = producer_of(program.replace(*changed), service.stack)
    with pytest.raises(error) as failed:
        producer.send("orders", b"v").get(30)
    assert SECRET not in str(failed.value)


def test_a_topic_that_does_not_exist(service: Service) -> None:
    confluent_with_a_key(service)
    program = program_of(confluent_with_a_key).replace("    }\n)", '        "max.block.ms": 500,\n    }\n)')
    producer = producer_of(program, service.stack)
    with pytest.raises(KafkaTimeoutError, match="other"):
        producer.send("other", b"v")


# --- Event Hubs' limits ---


def noise(size_bytes: int, seed: int = 0) -> bytes:
    """What gzip does not make smaller."""
    return random.Random(seed).randbytes(size_bytes)


def test_requests_stay_below_event_hubs_limit(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.session_ms = 60_000
    cluster = event_hubs(service)
    producer = producer_of(program_of(event_hubs), service.stack)
    cluster.inject(ApiKey.PRODUCE, Fault(delay_ms=300), times=5)
    futures = [producer.send("orders", noise(15_000, number), partition=number % 4) for number in range(800)]
    for future in futures:
        future.get(60)
    largest = max(each.size_bytes for each in cluster.requests if each.api_key is ApiKey.PRODUCE)
    assert 950_000 < largest < EVENT_HUBS_LIMIT_BYTES
    # no connection was closed
    assert messages_of(caplog) == []


def test_the_default_request_size_is_too_large_for_event_hubs(service: Service) -> None:
    event_hubs(service)
    program = program_of(event_hubs)
    with pytest.raises(RecordTooLargeError):
        producer_of(program, service.stack).send("orders", noise(1_047_000)).get(30)
    limits = '"delivery.timeout.ms": 4_000,'
    default = program.replace('"max.request.size": 1_000_000,', limits).replace("60_000", "2_000")
    with pytest.raises(DeliveryTimeoutError, match="closed before the response"):
        producer_of(default, service.stack).send("orders", noise(1_047_000)).get(30)


def test_event_hubs_takes_gzip_only(service: Service) -> None:
    event_hubs(service)
    program = program_of(event_hubs)
    producer = producer_of(program, service.stack)
    producer.send("orders", b"x" * 10_000).get(30)
    other = producer_of(program.replace('"gzip"', '"zstd"'), service.stack)
    with pytest.raises(UnsupportedCompressionTypeError):
        other.send("orders", b"x" * 10_000).get(30)


def test_connections_are_not_idle_longer_than_event_hubs_allows(service: Service) -> None:
    event_hubs(service)
    config = producer_of(program_of(event_hubs), service.stack).config
    assert max(config.connections_max_idle_ms, config.metadata_max_age_ms) < 240_000
    assert config.request_timeout_ms > 20_000
    assert config.max_request_size < EVENT_HUBS_LIMIT_BYTES
