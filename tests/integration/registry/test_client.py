"""The schema registry's client against a real HTTP server: answers of all kinds, several addresses, outages."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import trustme
from support.http_server import HttpServer, respond
from urllib3.exceptions import InsecureRequestWarning

from headrace.network.clock import SYSTEM_CLOCK, Clock, MockClock
from headrace.registry import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    NotASchemaRegistryError,
    Schema,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistryAuthenticationError,
    SchemaRegistryClient,
    SchemaRegistryError,
    SchemaRegistryUnavailableError,
    rest,
)
from headrace.registry.embedded import EmbeddedRegistry

JSON = "application/vnd.schemaregistry.v1+json"
ONE = Schema('{"type":"record","name":"One","fields":[{"name":"a","type":"int"}]}', name="One")
TWO = Schema(
    '{"type":"record","name":"One","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


CLIENTS: list[SchemaRegistryClient] = []


def client_of(url: str, clock: Clock = SYSTEM_CLOCK, **conf: Any) -> SchemaRegistryClient:
    CLIENTS.append(SchemaRegistryClient({"url": url, "max.retries": 0, "retries.wait.ms": 1, **conf}, clock=clock))
    return CLIENTS[-1]


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    while CLIENTS:
        CLIENTS.pop().close()


# --- A schema registry ---


def test_every_method_against_the_embedded_registry(schema_registry: EmbeddedRegistry):
    with client_of(schema_registry.url) as client:
        first = client.register_schema("s/1", ONE)
        full = client.register_schema_full_response("s/1", TWO)
        assert (first, full.schema_id, full.version, full.subject) == (1, 2, 2, "s/1")
        assert client.lookup_schema("s/1", ONE).version == 1
        assert client.get_schema(1) == ONE
        assert full.guid is not None
        assert client.get_schema_by_guid(full.guid) == TWO
        assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
        assert client.get_subjects() == client.get_subjects("s/") == client.get_subjects_by_schema_id(1) == ["s/1"]
        assert client.get_schema_versions(2) == [{"subject": "s/1", "version": 2}]
        assert client.get_latest_version("s/1").schema_id == client.get_version("s/1").schema_id == 2
        assert client.get_version("s/1", 1).schema == ONE
        assert client.get_versions("s/1") == [1, 2]
        assert client.get_compatibility() == "BACKWARD"
        assert client.set_compatibility("s/1", "full") == {"compatibility": "FULL"}
        assert client.get_compatibility("s/1") == client.delete_config("s/1")["compatibilityLevel"] == "FULL"
        assert client.test_compatibility("s/1", ONE)
        assert not client.test_compatibility_all_versions("s/1", Schema('"int"'))
        assert (client.get_mode("s/1"), client.get_global_mode()) == ("READWRITE", "READWRITE")
        assert client.update_mode("s/1", "READONLY") == client.delete_mode("s/1") == "READONLY"
        assert client.update_global_mode("IMPORT", force=True) == "IMPORT"
        assert client.update_global_mode("READWRITE") == "READWRITE"
        refers = Schema('{"type":"array","items":"One"}', references=[SchemaReference("One", "s/1", 2)])
        assert client.get_referenced_by("s/1", 2) == []
        assert client.get_schema(client.register_schema("list", refers)) == refers
        assert client.get_referenced_by("s/1", 2) == [3]
        assert client.delete_version("s/1", 1) == 1
        assert client.delete_version("s/1", 1, permanent=True) == 1
        assert client.delete_subject("list") == [1]
        assert client.delete_subject("s/1") == [2]
        assert client.get_subjects(deleted_only=True) == ["list", "s/1"]
        assert client.delete_subject("s/1", permanent=True) == [2]
        with_metadata = Schema('"int"', metadata={"properties": {"major": "1"}})
        assert client.register_schema("m", with_metadata) == 4
        assert client.get_latest_with_metadata("m", {"major": "1"}).schema == with_metadata


def test_errors_are_typed_and_name_subject_and_schema(schema_registry: EmbeddedRegistry):
    client = client_of(schema_registry.url)
    client.register_schema("s", ONE)
    with pytest.raises(SchemaNotFoundError, match="subject 'unknown'") as missing:
        client.get_latest_version("unknown")
    assert (missing.value.http_status_code, missing.value.error_code, missing.value.subject) == (404, 40401, "unknown")
    with pytest.raises(InvalidSchemaError, match=r"subject 's', schema 'AVRO \{'"):
        client.register_schema("s", Schema("{"))
    wrong = Schema('{"type":"record","name":"One","fields":[{"name":"z","type":"int"}]}', name="One")
    with pytest.raises(IncompatibleSchemaError, match=r"schema 'AVRO One'.*READER_FIELD_MISSING_DEFAULT_VALUE"):
        client.register_schema("s", wrong)


def test_what_can_not_change_is_requested_once(schema_registry: EmbeddedRegistry):
    client = client_of(schema_registry.url)
    for _ in range(3):
        client.register_schema("s", ONE)
        client.lookup_schema("s", ONE)
        client.get_schema(1)
        client.get_version("s", 1)
        client.get_latest_version("s")
    assert len(schema_registry.requests) == 5
    client.clear_caches()
    client.get_latest_version("s")
    assert len(schema_registry.requests) == 6


def test_the_cache_is_bounded(schema_registry: EmbeddedRegistry):
    client = client_of(schema_registry.url, **{"cache.capacity": 1})
    for _ in range(2):
        client.register_schema("a", ONE)
        client.register_schema("b", ONE)
    assert len(schema_registry.requests) == 4


def test_the_latest_version_is_read_again_after_its_time_and_survives_an_outage(
    schema_registry: EmbeddedRegistry, caplog: pytest.LogCaptureFixture
):
    clock = MockClock()
    client = client_of(schema_registry.url, clock, **{"cache.latest.ttl.sec": 10})
    client.register_schema("s", ONE)
    assert client.get_latest_version("s").version == 1
    client.register_schema("s", TWO)
    assert client.get_latest_version("s").version == 1
    clock.advance(10_001)
    assert client.get_latest_version("s").version == 2
    schema_registry.close()
    clock.advance(10_001)
    assert client.get_latest_version("s").version == 2
    assert "the version of subject 's' that was read last stays in use" in caplog.text
    with pytest.raises(SchemaRegistryUnavailableError):
        client.get_latest_version("other")


# --- Other servers ---


def failing(status: int, body: bytes, kind: str, **headers: str):
    return lambda handler: respond(handler, status, body, kind, **headers)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (failing(500, b'{"error_code":50001,"message":"store"}', JSON), SchemaRegistryUnavailableError, "500: store"),
        (failing(503, b"<html>", "text/html"), SchemaRegistryUnavailableError, "status 503"),
        (failing(429, b"", "text/plain"), SchemaRegistryUnavailableError, "429: Too Many Requests"),
        (failing(200, b"<html>hello</html>", "text/html"), NotASchemaRegistryError, "text/html instead of JSON"),
        (failing(404, b"<html>", "text/html"), NotASchemaRegistryError, "check that url is the address"),
        (failing(200, b'{"x":1}', JSON), NotASchemaRegistryError, "not of a schema registry (KeyError: 'id')"),
        (failing(200, b"[]", JSON), NotASchemaRegistryError, "not of a schema registry"),
        (
            failing(302, b"", "text/html", Location="http://me:hunter2@elsewhere/login?token=hunter2"),
            NotASchemaRegistryError,
            "redirect (302) to elsewhere/login; redirects are not followed",
        ),
        (failing(401, b"", ""), SchemaRegistryAuthenticationError, "status 401"),
        (failing(403, b'{"error_code":40301,"message":"no"}', JSON), SchemaRegistryAuthenticationError, "40301: no"),
        (failing(418, b"", ""), SchemaRegistryError, "status 418"),
    ],
)
def test_each_bad_answer_has_its_error(answer: Any, error: type[Exception], said: str):
    with HttpServer(answer) as server:
        conf = {"basic.auth.user.info": "me:hunter2"}
        with pytest.raises(error) as failed:
            client_of(server.url, **conf).register_schema("s", ONE)
    message = str(failed.value)
    assert said in message
    assert "hunter2" not in message
    assert "subject 's', schema 'AVRO One'" in message
    assert len(server.requests) == 1
    assert type(failed.value) is error


def test_a_slow_server_and_a_response_without_end_are_bounded():
    stop = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not stop.wait(0.02):
            handler.wfile.write(b" ")

    def drip_head(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not stop.wait(0.02):
            handler.wfile.write(b"x")

    for answer in (lambda _: stop.wait(30), drip, drip_head):
        stop.clear()
        with HttpServer(answer) as server:
            with pytest.raises(SchemaRegistryUnavailableError, match="ReadTimeoutError"):
                client_of(server.url, timeout=0.2).get_schema_types()
            stop.set()


def test_a_response_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rest, "MAX_RESPONSE_BYTES", 1000)
    with (
        HttpServer(failing(200, b"[" + b" " * 5000 + b"]", JSON)) as server,
        pytest.raises(SchemaRegistryUnavailableError, match="larger than 1000 bytes"),
    ):
        client_of(server.url).get_schema_types()


def test_retries_end_when_the_server_recovers():
    answers = iter((500, 503, 200))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        respond(handler, next(answers), b'["AVRO"]', JSON)

    with HttpServer(answer) as server:
        client = client_of(server.url, MockClock(), **{"max.retries": 2})
        assert client.get_schema_types() == ["AVRO"]
    assert len(server.requests) == 3


def test_unreachable_and_failing_addresses_are_passed_over(schema_registry: EmbeddedRegistry):
    with HttpServer(failing(503, b"", "")) as broken:
        client = client_of(f"http://127.0.0.1:{closed_port()},{broken.url},{schema_registry.url}")
        assert client.get_subjects() == []
        assert client.get_subjects() == []
        # the address that answered last comes first
        assert len(broken.requests) == 1


def test_all_addresses_are_named_if_none_answers():
    ports = closed_port(), closed_port()
    url = ",".join(f"http://me:hunter2@127.0.0.1:{port}" for port in ports)
    with pytest.raises(SchemaRegistryUnavailableError) as failed:
        client_of(url).register_schema("s", ONE)
    for port in ports:
        assert f"http://127.0.0.1:{port}: " in str(failed.value)
    assert "hunter2" not in str(failed.value)
    assert (failed.value.subject, failed.value.schema) == ("s", "AVRO One")


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"basic.auth.user.info": "me:pass:wörd"}, "Basic " + base64.b64encode("me:pass:wörd".encode()).decode()),
        ({"bearer.auth.token": "abc"}, "Bearer abc"),
    ],
)
def test_credentials_are_sent(conf: dict[str, str], expected: str):
    with HttpServer(failing(200, b"[]", JSON)) as server:
        client_of(server.url, **conf).get_subjects()
        ((_, headers),) = server.requests
    assert headers["Authorization"] == expected


def test_tls_with_a_client_certificate(tmp_path: Any):
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    mine = ca.issue_cert("me")
    mine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    with HttpServer(failing(200, b"[]", JSON)) as server:
        server.use_tls(context)
        url = server.url.replace("http://127.0.0.1", "https://localhost")
        trust = {"ssl.ca.location": str(tmp_path / "ca.pem")}
        identity = {
            "ssl.certificate.location": str(tmp_path / "cert.pem"),
            "ssl.key.location": str(tmp_path / "key.pem"),
        }
        assert client_of(url, **trust, **identity).get_subjects() == []
        with pytest.warns(InsecureRequestWarning):
            assert client_of(url, **{"ssl.ca.location": False}, **identity).get_subjects() == []
        for conf in ({}, trust):
            with pytest.raises(SchemaRegistryUnavailableError):
                client_of(url, **conf).get_subjects()


def test_threads_share_a_client(schema_registry: EmbeddedRegistry):
    client = client_of(schema_registry.url)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(client.register_schema(f"s{i}", ONE) for i in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 160
    assert client.get_subjects() == sorted(f"s{i}" for i in range(20))
