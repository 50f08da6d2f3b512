"""The console over HTTP: who may ask, what it shows, and that each action acts on real clients."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgpack
import pytest
from confluent_kafka import Consumer
from support.console import ConsoleClient
from support.processes import child
from support.waiting import wait_until

from headrace.broker import ApiKey, EmbeddedCluster, Fault, ProcessCluster
from headrace.broker.console.feed import MAX_VIEWERS
from headrace.broker.console.server import MAX_BODY_BYTES, MAX_CONNECTIONS
from headrace.broker.services import observation
from headrace.network.clock import MockClock
from headrace.network.protocol.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
    NotLeaderForPartitionError,
)
from headrace.producer import KafkaProducer
from headrace.registry.embedded import EmbeddedRegistry

PATIENCE_S = 60


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, console=True) as cluster:
        cluster.create_topic("t", num_partitions=2, replication_factor=2)
        yield cluster


@pytest.fixture
def console(cluster) -> ConsoleClient:
    return ConsoleClient(cluster.console_url)


@pytest.fixture
def producer(cluster) -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
        yield producer


def text(value: str) -> dict[str, str]:
    return {"as": "text", "text": value}


def produce(console: ConsoleClient, value: str, partition: int = 0, key: str | None = None) -> int:
    body = {"topic": "t", "partition": partition, "key": key if key is None else text(key), "value": text(value)}
    return console.ask("POST", "/api/records", body)["offset"]


def values(found: dict) -> list[str]:
    return [each["value"]["text"] for each in found["rows"]]


def console_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("headrace-console")]


# --- Who may ask ---


def test_the_page_comes_with_the_token_and_a_strict_policy(console):
    status, headers, content = console.raw("GET", f"/?token={console.token}", headers={"X-Headrace-Token": None})
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"<title>Headrace console</title>" in content
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert not [name for name in headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("target", ["/", "/?token=", "/?token=wrong", "/?token=wrong&token=wrong"])
def test_without_the_token_there_is_no_page(console, target):
    status, headers, content = console.raw("GET", target, headers={"X-Headrace-Token": None})
    assert (status, headers["Content-Type"]) == (403, "text/html; charset=utf-8")
    assert b"<script" not in content
    assert b"console_url" in content


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/events"),
        ("GET", "/api/choices"),
        ("GET", "/api/records?topic=t"),
        ("GET", "/api/record?topic=t&partition=0&offset=0"),
        ("POST", "/api/records"),
        ("POST", "/api/topics"),
        ("POST", "/api/brokers"),
        ("POST", "/api/faults"),
        ("DELETE", "/api/faults"),
        ("GET", "/elsewhere"),
    ],
)
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Headrace-Token": None},
        {"X-Headrace-Token": "wrong"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"Host": None},
    ],
    ids=str,
)
def test_nobody_else_may_look_or_act(console, cluster, method, path, headers):
    body = json.dumps({"node_id": 1, "action": "kill"}).encode() if method != "GET" else None
    status, sent, content = console.raw(method, path, body, headers)
    assert status == (421 if "Host" in headers else 403)
    assert json.loads(content)["error"]["type"] == "Rejected"
    assert sent["Connection"] == "close"
    assert cluster.running == [1, 2]


def test_a_preflight_of_another_origin_gets_no_permission(console):
    preflight = {
        "Origin": "http://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "x-headrace-token",
        "X-Headrace-Token": None,
    }
    status, headers, _ = console.raw("OPTIONS", "/api/brokers", headers=preflight)
    assert status == 403
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_it_listens_on_the_loopback_interface_only(cluster, console):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no other interface")
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("this machine has no other interface")
    with pytest.raises(OSError):
        socket.create_connection((address, console.port), timeout=5).close()


# --- What doesn't fit ---


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/api/topics", b"{}", {"Content-Type": "text/plain"}, 415),
        ("POST", "/api/topics", b"{", {}, 400),
        ("POST", "/api/topics", b"[" * 100_000, {}, 400),
        ("POST", "/api/topics", b"[]", {}, 400),
        ("POST", "/api/topics", b"{}", {"Content-Length": "x"}, 411),
        ("POST", "/api/topics", None, {"Transfer-Encoding": "chunked"}, 411),
        ("POST", "/api/topics", None, {"Content-Length": str(MAX_BODY_BYTES + 1)}, 413),
        ("POST", "/api/topics", None, {"Content-Length": "9" * 5_000}, 413),
        ("POST", "/api/choices", b"{}", {}, 405),
        ("PUT", "/api/topics", b"{}", {}, 405),
        ("HEAD", "/api/choices", None, {}, 405),
        ("GET", "/api/nothing", None, {}, 404),
        ("GET", "/api/records", None, {}, 400),
        ("GET", "/api/records?topic=t&count=0", None, {}, 400),
        ("GET", "/api/records?topic=t&count=201", None, {}, 400),
        ("GET", "/api/records?topic=t&offset=0&timestamp=0", None, {}, 400),
        ("GET", "/api/records?topic=t&offset=0", None, {}, 400),
        ("GET", "/api/records?topic=t&offset=-1&partition=0", None, {}, 400),
        ("GET", "/api/records?topic=t&timestamp=" + "9" * 5_000, None, {}, 400),
        ("GET", "/api/records?topic=t&colour=red", None, {}, 400),
        ("GET", "/api/records?" + "&".join(["topic=t"] * 30), None, {}, 400),
        ("GET", "/api/records?topic=none", None, {}, 404),
        ("GET", "/api/records?topic=t&partition=2", None, {}, 404),
        ("GET", "/api/record?topic=t&partition=0", None, {}, 400),
        ("GET", "/api/record?topic=t&partition=0&offset=7", None, {}, 400),
        ("POST", "/api/brokers", b'{"node_id": 9, "action": "kill"}', {}, 409),
        ("POST", "/api/brokers", b'{"node_id": 1, "action": "start"}', {}, 409),
        ("POST", "/api/topics", b'{"name": "t", "partitions": 1, "replication_factor": 1}', {}, 409),
        ("POST", "/api/topics", b'{"name": "a/b", "partitions": 1, "replication_factor": 1}', {}, 409),
        ("POST", "/api/records", b'{"topic": "none", "partition": 0, "value": null}', {}, 409),
    ],
)
def test_each_wrong_request_gets_a_typed_error(console, method, path, body, headers, status):
    found, _, content = console.raw(method, path, body, headers)
    assert found == status
    if method != "HEAD":
        error = json.loads(content)["error"]
        assert error["type"]
        assert error["message"]


def test_a_record_that_the_broker_rejects_is_an_error_with_its_reason(console, cluster):
    cluster.create_topic("small", configs={"max.message.bytes": "200"})
    body = {"topic": "small", "partition": 0, "value": text("x" * 300)}
    status, kind, message = console.error("POST", "/api/records", body)
    assert (status, kind) == (409, "MessageSizeTooLargeError")
    assert "max.message.bytes" in message


def test_the_number_of_open_pages_is_limited(console):
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_VIEWERS):
            stack.enter_context(console.events())
        status, kind, _ = console.error("GET", "/api/events")
        assert (status, kind) == (503, "TooManyViewersError")
    # the broken connections are noticed with the next event
    wait_until(lambda: [1 for stream in [console.events()] for _ in [stream.__exit__()] if stream.answer.status == 200])


def test_the_number_of_connections_is_limited(console):
    sockets = []
    try:
        for _ in range(MAX_CONNECTIONS):
            sockets.append(socket.create_connection(("127.0.0.1", console.port)))
        wait_until(lambda: sum(name.endswith("-connection") for name in console_threads()) == MAX_CONNECTIONS)
        with socket.create_connection(("127.0.0.1", console.port)) as one_more:
            one_more.settimeout(PATIENCE_S)
            assert one_more.recv(1) == b""
    finally:
        for each in sockets:
            each.close()
    wait_until(lambda: not [name for name in console_threads() if name.endswith("-connection")])
    assert console.ask("GET", "/api/choices")


# --- Records ---


def test_a_produced_record_reaches_consumers(console, cluster):
    body = {
        "topic": "t",
        "partition": 1,
        "key": text("k"),
        "value": {"as": "json", "text": '{"a": 1}'},
        "headers": [["trace", "ü"]],
        "timestamp": 1_234,
    }
    assert console.ask("POST", "/api/records", body) == {"topic": "t", "partition": 1, "offset": 0}
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["t"])
        message = None
        while message is None:
            message = consumer.poll(1.0)
        assert (message.key(), message.value(), message.headers()) == (b"k", b'{"a": 1}', [("trace", "ü".encode())])
        assert message.timestamp()[1] == 1_234
        consumer.commit(asynchronous=False)
        with console.events() as events:
            found = events.until("groups", lambda data: data["rows"] and data["rows"][0]["offsets"])
            (group,) = found["rows"]
            assert (group["id"], group["state"], group["lag"]) == ("g", "Stable", 0)
            produce(console, "more", partition=1)
            assert events.until("groups", lambda data: data["rows"][0]["lag"] == 1)
    finally:
        consumer.close()


def test_of_many_headers_the_first_are_shown_and_all_are_counted(console):
    body = {"topic": "t", "partition": 0, "key": None, "value": None, "headers": [[f"h{at}", ""] for at in range(60)]}
    console.ask("POST", "/api/records", body)
    (row,) = console.records("t", partition=0)["rows"]
    found = console.ask("GET", "/api/record?topic=t&partition=0&offset=0")
    assert [each["name"] for each in found["headers"]] == [f"h{at}" for at in range(50)]
    assert (row["header_count"], found["header_count"]) == (60, 60)


def test_the_newest_records_of_all_partitions_come_first(console, producer):
    for number in range(30):
        producer.send("t", value=b"%d" % number, partition=number % 2, timestamp_ms=1_000 + number)
    producer.flush()
    assert values(console.records("t", count=4)) == ["29", "28", "27", "26"]
    assert values(console.records("t", count=2, partition=0)) == ["28", "26"]
    found = console.records("t", count=200)
    assert values(found) == [str(number) for number in reversed(range(30))]
    assert found["is_end"]
    assert found["offsets"] == {"0": [0, 15], "1": [0, 15]}


def test_records_from_an_offset_and_from_a_time(console, producer):
    for number in range(10):
        producer.send("t", value=b"%d" % number, partition=0, timestamp_ms=1_000 + number)
    producer.flush()
    found = console.records("t", partition=0, offset=3, count=4)
    assert (values(found), found["next_offset"], found["is_end"]) == (["3", "4", "5", "6"], 7, False)
    found = console.records("t", partition=0, offset=7, count=4)
    assert (values(found), found["next_offset"], found["is_end"]) == (["7", "8", "9"], None, True)
    assert values(console.records("t", timestamp=1_008)) == ["8", "9"]
    assert values(console.records("t", timestamp=9_999)) == []
    assert values(console.records("t", partition=0, offset=10**15)) == []


def test_records_by_key_from_any_place(console, producer):
    for number in range(300):
        producer.send("t", key=b"customer-%d" % number, value=b"%d" % number, partition=0)
    producer.flush()
    assert values(console.records("t", key="customer-7", count=3, partition=0)) == ["79", "78", "77"]
    assert values(console.records("t", key="mer-7", count=2, partition=0, offset=8)) == ["70", "71"]
    assert values(console.records("t", key="nobody")) == []


def test_a_search_is_bounded_and_says_how_far_it_came(console, producer, monkeypatch):
    for number in range(60):
        producer.send("t", key=b"%d" % number, value=b"x" * 10_000, partition=0)
        if number % 4 == 3:
            producer.flush()
    monkeypatch.setattr(observation, "MAX_SCANNED_BYTES", 400_000)
    found = console.records("t", partition=0, count=50)
    offsets = [each["offset"] for each in found["rows"]]
    assert offsets == list(range(59, 59 - len(offsets), -1))
    assert 16 <= len(offsets) < 50
    assert found["problems"] == [f"partition 0: searched back to offset {offsets[-1]} only, not further"]
    found = console.records("t", partition=0, key="nobody", offset=0)
    assert (found["rows"], found["is_end"]) == ([], False)
    assert 16 <= found["next_offset"] < 60
    # even if only a few records fit
    monkeypatch.setattr(observation, "MAX_SCANNED_BYTES", 45_000)
    assert next(each["offset"] for each in console.records("t", partition=0)["rows"]) == 59


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_one_record_with_all_that_is_known_of_it(console, cluster, codec):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec) as producer:
        producer.send("t", key=b"k", value=msgpack.packb({"a": b"\x00"}), partition=0, headers=[("h", b"\xff")])
        producer.send("t", value=b"x" * 5_000, partition=0)
        producer.send("t", key=b"k", value=None, partition=0)
        producer.flush()
    found = console.ask("GET", "/api/record?topic=t&partition=0&offset=0")
    assert (found["key"]["format"], found["key"]["readable"]) == ("text", "k")
    assert (found["value"]["format"], json.loads(found["value"]["readable"])) == ("msgpack", {"a": {"base64": "AA=="}})
    assert found["value"]["hex"].startswith("000000  81 a1 61")
    (header,) = found["headers"]
    assert (header["name"], header["format"], header["readable"][:10]) == ("h", "hex", "000000  ff")
    assert (found["producer_id"] >= 0, found["sequence"], found["compression"]) == (True, 0, codec)
    row = console.records("t", partition=0, offset=1, count=1)["rows"][0]
    assert (len(row["value"]["text"]), row["value"]["size_bytes"]) == (401, 5_000)
    assert console.ask("GET", "/api/record?topic=t&partition=0&offset=1")["value"]["readable"] == "x" * 5_000
    row = console.records("t", partition=0, offset=2)["rows"][0]
    assert (row["value"]["format"], row["value"]["size_bytes"]) == ("null", -1)


def test_a_large_value_is_cut_with_a_note(console, producer):
    producer.send("t", value=b"y" * 900_000, partition=0).result(PATIENCE_S)
    found = console.ask("GET", "/api/record?topic=t&partition=0&offset=0")["value"]
    assert found["size_bytes"] == 900_000
    assert found["note"] == "the first 262,144 of 900,000 bytes"
    assert len(found["readable"]) == 262_144


def test_transactions_show_what_is_committed_aborted_and_open(console, cluster):
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "billing"}
    with KafkaProducer(**settings) as producer:
        producer.init_transactions()
        for value, end in ((b"one", producer.commit_transaction), (b"two", producer.abort_transaction)):
            producer.begin_transaction()
            producer.send("t", value=value, partition=0)
            producer.flush()
            end()
        producer.begin_transaction()
        producer.send("t", value=b"three", partition=0)
        producer.flush()
        rows = console.records("t", partition=0, offset=0)["rows"]
        assert [(each["kind"], each["status"]) for each in rows] == [
            ("record", "committed"),
            ("commit", ""),
            ("record", "aborted"),
            ("abort", ""),
            ("record", "open"),
        ]
        with console.events() as events:
            found = events.until("transactions", lambda data: data["rows"])
            (row,) = found["rows"]
            assert (row["id"], row["state"], row["partitions"]) == ("billing", "Ongoing", ["t-0"])
        with console.events() as events:
            (row,) = events.until("producers", lambda data: data["rows"])["rows"]
            assert row["transactional_id"] == "billing"
            assert row["partitions"][0]["open_since"] == 4
        producer.abort_transaction()


def test_deleted_records_and_a_batch_that_cannot_be_read(tmp_path):
    settings = {"data_dir": tmp_path, "console": True}
    with EmbeddedCluster(**settings) as cluster:
        cluster.create_topic("t")
        servers = cluster.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers, compression_type="gzip") as producer:
            for _ in range(2):
                producer.send("t", value=b"z" * 1_000).result(PATIENCE_S)
        (path,) = tmp_path.glob("t-0/*.log")
        content = bytearray(path.read_bytes())
        # in the compressed records of the first batch
        content[61:71] = bytes(10)
        with path.open("r+b") as file:
            file.write(content)
        console = ConsoleClient(cluster.console_url)
        first, second = console.records("t", offset=0)["rows"]
        assert (first["kind"], second["kind"]) == ("unreadable", "record")
        assert "the batch of 1 records at offset 0 can't be read" in first["problem"]
        assert values(console.records("t"))[0].startswith("zzz")
        cluster.broker(1).replicas.partition(("t", 0)).log.advance_log_start_offset(1)
        assert [each["offset"] for each in console.records("t", offset=0)["rows"]] == [1]
        assert console.error("GET", "/api/record?topic=t&partition=0&offset=0")[0] == 400


def test_records_of_a_schema_registry_are_decoded():
    from headrace.registry.avro import AvroSerializer  # noqa: PLC0415 - optional packages
    from headrace.registry.client import SchemaRegistryClient  # noqa: PLC0415
    from headrace.registry.context import MessageField, SerializationContext  # noqa: PLC0415

    schema = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
    with EmbeddedRegistry() as registry, EmbeddedCluster(console=True, schema_registry=registry.url) as cluster:
        cluster.create_topic("t")
        serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), json.dumps(schema))
        content = serialize({"item": "lamp"}, SerializationContext("t", MessageField.VALUE))
        assert content is not None
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", value=content)
            producer.send("t", value=b"\x00\x00\x00\x03\xe8data")
        rows = ConsoleClient(cluster.console_url).records("t", offset=0)["rows"]
        assert (rows[0]["value"]["format"], rows[0]["value"]["text"]) == ("avro", '{"item": "lamp"}')
        assert rows[1]["value"]["format"] == "hex"
        assert "no such schema (status 404)" in rows[1]["value"]["note"]


def test_protobuf_messages_with_references_and_nested_ones_are_decoded():
    from support.messages import make_classes  # noqa: PLC0415

    from headrace.registry import MessageField, SerializationContext  # noqa: PLC0415
    from headrace.registry.client import SchemaRegistryClient  # noqa: PLC0415
    from headrace.registry.protobuf import ProtobufSerializer  # noqa: PLC0415

    classes = make_classes()
    order = classes["shop.Order"](id=3)
    order.price.cents = 5
    line = classes["shop.Order.Line"](what="lamp")
    with EmbeddedRegistry() as registry, EmbeddedCluster(console=True, schema_registry=registry.url) as cluster:
        cluster.create_topic("t")
        client = SchemaRegistryClient({"url": registry.url})
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for message in (order, line):
                context = SerializationContext("t", MessageField.VALUE)
                producer.send("t", value=ProtobufSerializer(type(message), client)(message, context))
            # the message's indexes are cut off
            producer.send("t", value=b"\x00\x00\x00\x00\x02\x80")
        rows = ConsoleClient(cluster.console_url).records("t", offset=0)["rows"]
    assert [each["value"]["format"] for each in rows] == ["protobuf", "protobuf", "hex"]
    assert json.loads(rows[0]["value"]["text"])["price"] == {"cents": "5"}
    assert json.loads(rows[1]["value"]["text"]) == {"what": "lamp"}
    assert "cut off" in rows[2]["value"]["note"]


# --- Events ---


def test_events_begin_with_the_state_and_follow_its_changes(console, cluster, producer):
    with console.events() as events:
        assert events.answer.status == 200
        assert events.answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        found = events.until("cluster", lambda _: True)
        assert found["bootstrap"] == cluster.bootstrap_servers
        producer.send("t", value=b"x", partition=0).result(PATIENCE_S)
        found = events.until("topics", lambda data: data["rows"][0]["records"] == 1)
        assert (found["rows"][0]["name"], found["rows"][0]["partitions"][0]["end"]) == ("t", 1)


def test_requests_and_rates_arrive(console, producer):
    with console.events() as events:
        events.until("rates", lambda _: True)
        producer.send("t", value=b"x", partition=0).result(PATIENCE_S)
        found = events.until("requests", lambda data: any(each["api"] == "PRODUCE" for each in data["rows"]))
        (request,) = [each for each in found["rows"] if each["api"] == "PRODUCE"]
        assert (request["client_id"], request["node_id"]) == ("shop", 1)
        numbers = [each["number"] for each in found["rows"]]
        assert numbers == sorted(set(numbers))
        events.until("rates", lambda data: len(data["samples"]) > 1)


def test_a_page_that_opens_later_gets_the_recent_requests(console, producer):
    producer.send("t", value=b"x", partition=0).result(PATIENCE_S)
    for _ in range(2):
        with console.events() as events:
            found = events.until("requests", lambda data: any(each["api"] == "PRODUCE" for each in data["rows"]))
            assert sum(each["api"] == "PRODUCE" for each in found["rows"]) == 1


def test_times_are_those_of_a_virtual_clock():
    clock = MockClock()
    with EmbeddedCluster(console=True, clock=clock) as cluster:
        console = ConsoleClient(cluster.console_url)
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers), console.events() as events:
            found = events.until("requests", lambda data: data["rows"])
            assert found["rows"][0]["at_ms"] == clock.wall_ms()


# --- Actions ---


def test_a_fault_acts_on_a_real_producer_and_can_be_removed(console, cluster, producer):
    body = {"api": "PRODUCE", "kind": "error", "error": "NOT_LEADER_FOR_PARTITION", "times": 2, "topic": "t"}
    number = console.ask("POST", "/api/faults", body)["number"]
    assert producer.send("t", value=b"x", partition=0).result(PATIENCE_S).offset == 0
    (fault,) = cluster.faults
    assert (fault.number, fault.hits, fault.remaining) == (number, 2, 0)
    with console.events() as events:
        (row,) = events.until("faults", lambda data: data["rows"])["rows"]
        assert (row["hits"], row["remaining"], row["topic"]) == (2, 0, "t")
        console.ask("DELETE", "/api/faults", {"number": number})
        assert events.until("faults", lambda data: not data["rows"])
    assert console.error("DELETE", "/api/faults", {"number": number})[0] == 400


def test_faults_of_the_program_are_shown_and_can_be_removed(console, cluster):
    cluster.inject(ApiKey.FETCH, Fault(delay_ms=1), times=None)
    cluster.on_request(None, lambda context, request: None)
    with console.events() as events:
        first, second = events.until("faults", lambda data: data["rows"])["rows"]
    assert (first["api"], first["effect"]) == ("FETCH", "is answered 1 ms later")
    assert (second["api"], second["effect"]) == (None, None)
    for each in (first, second):
        console.ask("DELETE", "/api/faults", {"number": each["number"]})
    assert cluster.faults == []


def test_a_killed_broker_is_replaced_and_comes_back(console, cluster, producer):
    with console.events() as events:
        events.until("brokers", lambda data: [each["state"] for each in data["rows"]] == ["running", "running"])
        console.ask("POST", "/api/brokers", {"node_id": 1, "action": "kill"})
        events.until("brokers", lambda data: [each["state"] for each in data["rows"]] == ["stopped", "running"])
        assert cluster.running == [2]
        assert producer.send("t", value=b"x", partition=0).result(PATIENCE_S).offset == 0
        assert values(console.records("t", partition=0)) == ["x"]
        console.ask("POST", "/api/brokers", {"node_id": 2, "action": "stop"})
        assert console.error("POST", "/api/records", {"topic": "t", "partition": 0, "value": None})[0] == 409
        assert console.records("t", partition=0)["problems"] != []
        for node_id in (2, 1):
            console.ask("POST", "/api/brokers", {"node_id": node_id, "action": "start"})
        events.until("brokers", lambda data: [each["state"] for each in data["rows"]] == ["running", "running"])
    assert produce(console, "y") == 1


def test_a_topic_can_be_made_and_used(console, cluster):
    console.ask("POST", "/api/topics", {"name": "new", "partitions": 3, "replication_factor": 2})
    assert len(cluster.controller.image.topics["new"].partitions) == 3


# --- Brokers in processes ---


def test_the_console_of_brokers_in_processes():
    with ProcessCluster(2, console=True) as cluster:
        console = ConsoleClient(cluster.console_url)
        console.ask("POST", "/api/topics", {"name": "t", "partitions": 2, "replication_factor": 2})
        leader = cluster.leader_of("t", 0)
        with (
            console.events() as events,
            KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer,
        ):
            fault = {"api": "PRODUCE", "kind": "error", "error": "NOT_LEADER_FOR_PARTITION", "times": 1}
            console.ask("POST", "/api/faults", fault)
            producer.send("t", key=b"k", value=b"one", partition=0).result(PATIENCE_S)
            (row,) = events.until("faults", lambda data: data["rows"] and data["rows"][0]["hits"])["rows"]
            assert (row["hits"], row["remaining"]) == (1, 0)
            os.kill(cluster.pids[leader], signal.SIGKILL)
            events.until("brokers", lambda data: data["rows"][leader - 1]["state"] == "stopped")
            wait_until(lambda: cluster.leader_of("t", 0) not in (leader, -1))
            assert produce(console, "two") == 1
            assert values(console.records("t", partition=0)) == ["two", "one"]
            assert values(console.records("t", partition=0, key="k")) == ["one"]
            console.ask("POST", "/api/brokers", {"node_id": leader, "action": "start"})
            events.until("brokers", lambda data: data["rows"][leader - 1]["state"] == "running")
        with console.events() as events:
            (row,) = events.until("producers", lambda data: data["rows"])["rows"]
            assert row["partitions"][0]["topic"] == "t"
            found = events.until("requests", lambda data: data["rows"])
            assert {each["node_id"] for each in found["rows"]} <= {1, 2}
    assert console_threads() == []


def test_a_broker_that_hangs_is_shown_as_such():
    with ProcessCluster(2, console=True) as cluster:
        pid = cluster.pids[2]
        with ConsoleClient(cluster.console_url).events() as events:
            events.until("brokers", lambda data: data["rows"][1]["state"] == "running")
            os.kill(pid, signal.SIGSTOP)
            try:
                events.until("brokers", lambda data: data["rows"][1]["state"] == "not answering")
            finally:
                os.kill(pid, signal.SIGCONT)
            events.until("brokers", lambda data: data["rows"][1]["state"] == "running")


# --- Start and end ---


def test_no_thread_is_left_behind_with_open_pages():
    cluster = EmbeddedCluster(console=True)
    with pytest.raises(IllegalStateError):
        cluster.console_url  # noqa: B018
    cluster.start()
    console = ConsoleClient(cluster.console_url)
    with console.events() as events, console.events() as others:
        events.until("cluster", lambda _: True)
        assert len(console_threads()) == 4
        cluster.close()
        assert console_threads() == []
        # the streams end
        assert dict(others) is not None
    with pytest.raises(IllegalStateError):
        cluster.console_url  # noqa: B018
    cluster.close()


def test_a_cluster_without_a_console_has_no_url(cluster):
    with EmbeddedCluster() as other:
        assert len([name for name in console_threads() if not name.endswith("connection")]) == 2
        with pytest.raises(IllegalStateError, match="console=True"):
            other.console_url  # noqa: B018


@pytest.mark.parametrize("kind", [EmbeddedCluster, ProcessCluster])
def test_a_port_in_use_is_an_error_that_leaves_nothing_behind(kind):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = kind(1, console=taken.getsockname()[1])
        with pytest.raises(KafkaConnectionError, match="the console can't listen"):
            cluster.start()
    assert console_threads() == []


@pytest.mark.parametrize("console", ["yes", 0.5, -1, 65_536, None])
def test_a_console_that_is_neither_true_nor_a_port(console):
    with pytest.raises(KafkaConfigurationError, match="console is"):
        EmbeddedCluster(console=console)


@pytest.mark.parametrize(
    "settings", [{"schema_registry": "http://127.0.0.1:8081"}, {"schema_registry": "x", "console": True}]
)
def test_a_schema_registry_that_would_have_no_effect(settings):
    with pytest.raises(KafkaConfigurationError, match="schema_registry"):
        EmbeddedCluster(**settings)


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_the_command_serves_it_until_ctrl_c(brokers):
    command = [sys.executable, "-m", "headrace.cli", "broker", "--brokers", brokers, "--console"]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = next(line for line in process.stdout if line.startswith("console=")).strip().partition("=")[2]
        with ConsoleClient(url).events() as events:
            events.until("cluster", lambda _: True)
            process.send_signal(signal.SIGINT)
            # the stream ends with the process
            assert dict(events) is not None
            _, complaints = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, complaints) == (0, "")


def test_an_error_of_the_program_is_not_an_error_of_the_console(cluster, console):
    def fail(context, request):
        raise NotLeaderForPartitionError

    with cluster.on_request(ApiKey.PRODUCE, fail):
        # appended by the leader itself, not by a request
        assert produce(console, "x") == 0
