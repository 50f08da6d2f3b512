from __future__ import annotations

import logging
import pickle
import selectors
import socket
import subprocess
import sys
import typing
from typing import Any

import pytest

from headrace.network.addresses import Address
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.config import DEFAULT_CONFIG, LEFT_OUT, WITHOUT_EFFECT, ProducerConfig

SERVERS = "localhost:9092"


def resolve(mapping: Any = None, /, **keywords: Any) -> ProducerConfig:
    return ProducerConfig.resolve_from({"bootstrap.servers": SERVERS} | (mapping or {}), keywords, {})


def refusal(mapping: Any = None, /, **keywords: Any) -> str:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve(mapping, **keywords)
    return str(caught.value)


# The defaults that Kafka 4 documents, to catch mistakes in the table.
KAFKA_4_DEFAULTS = {
    "acks": -1,
    "batch.size": 16384,
    "buffer.memory": 33554432,
    "client.dns.lookup": "use_all_dns_ips",
    "client.rack": "",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.type": "none",
    "compression.zstd.level": 3,
    "connections.max.idle.ms": 540000,
    "delivery.timeout.ms": 120000,
    "enable.idempotence": True,
    "interceptor.classes": (),
    "linger.ms": 5,
    "max.block.ms": 60000,
    "max.in.flight.requests.per.connection": 5,
    "max.request.size": 1048576,
    "metadata.max.age.ms": 300000,
    "metadata.max.idle.ms": 300000,
    "metadata.recovery.rebootstrap.trigger.ms": 300000,
    "metadata.recovery.strategy": "rebootstrap",
    "partitioner.adaptive.partitioning.enable": True,
    "partitioner.availability.timeout.ms": 0,
    "partitioner.class": None,
    "partitioner.ignore.keys": False,
    "partitioner.rack.aware": False,
    "receive.buffer.bytes": 32768,
    "reconnect.backoff.max.ms": 1000,
    "reconnect.backoff.ms": 50,
    "request.timeout.ms": 30000,
    "retries": 2147483647,
    "retry.backoff.max.ms": 1000,
    "retry.backoff.ms": 100,
    "security.protocol": "PLAINTEXT",
    "socket.connection.setup.timeout.max.ms": 30000,
    "socket.connection.setup.timeout.ms": 10000,
}


def test_defaults_are_kafkas() -> None:
    config = resolve()
    assert {name: config[name] for name in KAFKA_4_DEFAULTS} == KAFKA_4_DEFAULTS
    # the one exception, which is kafka-python's and librdkafka's default: DESIGN.md explains it
    assert config.send_buffer_bytes == -1


# Kafka 4.x's ProducerConfig: every key, with one example each for SslConfigs and SaslConfigs
KAFKA_4_KEYS = """
acks auto.include.jmx.reporter batch.size bootstrap.servers buffer.memory client.dns.lookup client.id client.rack
compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
connections.max.idle.ms delivery.timeout.ms enable.idempotence enable.metrics.push interceptor.classes key.serializer
linger.ms max.block.ms max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys partitioner.rack.aware
receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
sasl.jaas.config sasl.mechanism security.protocol security.providers send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.keystore.location ssl.truststore.password
transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
"""


@pytest.mark.parametrize("name", KAFKA_4_KEYS.split())
def test_each_of_kafkas_keys_is_there_or_left_out_with_a_reason(name: str) -> None:
    assert (name in ProducerConfig._names) != bool(ProducerConfig.why_left_out(name))


@pytest.mark.parametrize("name", ["sasl_plain_password", "ssl.key.password", "sasl.jaas.config"])
def test_a_secret_that_is_refused_is_not_repeated(name: str) -> None:
    assert "hush" not in refusal({"bootstrap.servers": SERVERS, name: "hush"})


def test_addresses_are_read_in_the_form_that_other_clients_take() -> None:
    config = resolve(bootstrap_servers="a:1,[::1]:2,b")
    assert config["bootstrap_servers"] == config["bootstrap.servers"] == ["a:1", "[::1]:2", "b:9092"]
    assert [address.port for address in config.bootstrap_servers] == [1, 2, 9092]


def test_the_table_of_defaults_has_kafka_pythons_spellings() -> None:
    assert DEFAULT_CONFIG["linger_ms"] == 5
    assert DEFAULT_CONFIG["partitioner"] is None
    assert not [name for name in DEFAULT_CONFIG if "." in name]
    assert len(DEFAULT_CONFIG) == len(ProducerConfig.entries)


def test_a_program_may_start_from_a_copy_of_the_table_of_defaults(caplog: pytest.LogCaptureFixture) -> None:
    config = resolve(**{**DEFAULT_CONFIG, "bootstrap_servers": SERVERS, "client_id": "c", "partitioner": "round_robin"})
    assert config == resolve(client_id="c", partitioner="round_robin")
    assert not caplog.records


class KafkaClient:
    """Stands for kafka-python's class."""


KafkaClient.__module__ = "kafka.client_async"


@pytest.mark.parametrize(
    ("name", "default", "other"),
    [
        ("socket_options", [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)], []),
        ("selector", selectors.DefaultSelector, selectors.SelectSelector),
        ("kafka_client", KafkaClient, object),
        ("bootstrap_topics_filter", set(), {"t"}),
        ("sock_chunk_bytes", 4096, 4097),
        ("sock_chunk_buffer_count", 1000, 1001),
    ],
)
def test_kafka_pythons_default_asks_for_nothing_and_any_other_value_does(
    name: str, default: object, other: object
) -> None:
    assert resolve(**{name: default, "client_id": "c"}) == resolve(client_id="c")
    assert f"{name} is not supported: " in refusal(**{name: other})


@pytest.mark.parametrize(
    ("name", "default", "other"),
    [
        ("metrics_enabled", True, False),
        ("bootstrap_timeout_ms", 30_000, 1),
        ("api_version_auto_timeout_ms", 2000, 1),
        ("api_version", None, (2, 5)),
    ],
)
def test_only_another_value_of_a_key_without_effect_is_warned_of(
    name: str, default: object, other: object, caplog: pytest.LogCaptureFixture
) -> None:
    resolve(**{name: default})
    assert not caplog.records
    resolve(**{name: other})
    assert f"The configuration key {name} has no effect: " in caplog.text


def test_a_configuration_may_be_made_from_another_ones_values() -> None:
    config = resolve(linger_ms=9, compression_type="gzip")
    assert resolve(**config) == config
    assert resolve(**{**config, "linger_ms": 10}).linger_ms == 10


def test_every_key_is_documented_and_typed() -> None:
    hints = typing.get_type_hints(ProducerConfig)
    for entry in ProducerConfig.entries:
        assert entry.attribute in hints
        assert len(entry.doc) > 20
        assert entry.doc.endswith(".")
        assert entry.allowed_text


def test_refused_and_ignored_keys_are_no_keys() -> None:
    names = set(ProducerConfig._names)
    assert not names & set(LEFT_OUT)
    assert not names & set(WITHOUT_EFFECT)
    assert not any(ProducerConfig.why_left_out(name) for name in names)


# Arguments -> the error's message. Each is raised when the producer is constructed, which resolves the configuration.
BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"bootstrap_servers": ""}, "bootstrap.servers is empty; name at least one broker, as in bootstrap_servers='local"),
    ({"bootstrap_servers": []}, "bootstrap.servers is empty"),
    ({"bootstrap_servers": " , ,"}, "bootstrap.servers is empty"),
    ({"bootstrap_servers": None}, "None is not a value"),
    ({"bootstrap_servers": "localhost:"}, "'localhost:' has no port; write localhost:9092"),
    ({"bootstrap_servers": "a:1,b:port"}, "'b:port' has the port 'port', which is not a number"),
    ({"bootstrap_servers": ["a:1", 5]}, "has 5 in it, which is not text"),
    ({"bootstrap_servers": 9092}, "9092 is not a list of addresses"),
    ({"bootstrap_servers": "https://a:443"}, "asks for https://"),
    ({"linger": 5}, "linger is not a configuration key; did you mean linger.ms?"),
    ({"bootstrap_server": SERVERS}, "did you mean bootstrap.servers?"),
    ({"compression": "gzip"}, "did you mean compression.type?"),
    ({"group_id": "g"}, "group_id is not a configuration key"),
    ({"stats_cb": print}, "stats_cb is not supported: metrics() has the current values at any time"),
    ({"statistics.interval.ms": 5}, "statistics.interval.ms is not supported: metrics() has the current values"),
    ({"error_cb": print}, "error_cb is not supported: futures and callbacks report errors"),
    ({"config": {"bootstrap.servers": SERVERS}}, "pass the dict of keys as the first argument, KafkaProducer({...})"),
    ({"bootstrap_servers": "a:9092 b:9092"}, "bootstrap_servers: 'a:9092 b:9092' has whitespace in it; separate"),
    ({"bootstrap_servers": ["a:1,b:2"]}, "['a:1,b:2'] can't be used: 'a:1,b:2' has a comma in it; make each"),
    ({"bootstrap_servers": "me:hush@h:1"}, "'******@h:1' can't be used: '***@h:1' has a user name or password in it"),
    ({"linger_ms": "soon"}, "'soon' is not a whole number; allowed is a whole number, at least 0 (default 5)"),
    ({"linger_ms": -1}, "-1 is too small"),
    ({"linger_ms": 0.5}, "0.5 is not a whole number"),
    ({"batch_size": 2**31}, "is too large"),
    ({"acks": 2}, "2 is not a valid number of acknowledgements; allowed is 0, 1, all or -1"),
    ({"acks": "some"}, "'some' is not a whole number"),
    ({"acks": True}, "True is not a whole number"),
    ({"acks": None}, "None is not a value"),
    ({"compression_type": "brotli"}, "allowed is one of none, gzip, snappy, lz4, zstd (default 'none')"),
    ({"compression_gzip_level": 0}, "0 is not a level of gzip; allowed is 1 to 9, or -1"),
    ({"compression_gzip_level": 10}, "10 is too large"),
    ({"compression_lz4_level": 0}, "0 is too small; allowed is a whole number, 1 to 17 (default 9)"),
    ({"compression_zstd_level": 23}, "23 is too large"),
    ({"enable_idempotence": "on"}, "'on' is neither true nor false"),
    ({"retries": -1}, "-1 is too small"),
    ({"retries": float("-inf")}, "-inf is not a whole number"),
    ({"max_in_flight_requests_per_connection": 0}, "0 is too small; allowed is a whole number, at least 1"),
    ({"metadata_max_idle_ms": 4999}, "4999 is too small; allowed is a whole number, at least 5000"),
    ({"metadata_recovery_strategy": "panic"}, "allowed is one of rebootstrap, none"),
    ({"client_dns_lookup": "default"}, "allowed is one of use_all_dns_ips, resolve_canonical_bootstrap_servers_only"),
    ({"security_protocol": "TLS"}, "'TLS' is not a valid value; allowed is one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
    (
        {"sasl_plain_password": "hush"},
        "sasl.password is set, but security.protocol=PLAINTEXT does not authenticate; set it to SASL_SSL or "
        "SASL_PLAINTEXT",
    ),
    ({"ssl_context": object()}, "is not an ssl.SSLContext: it has no wrap_bio"),
    ({"transactional_id": ""}, "is empty; leave it out for no transactions"),
    ({"transactional_id": "t" * 32768}, "longer than 32767 bytes of UTF-8"),
    ({"transactional_id": "t", "enable_idempotence": False}, "transactional.id contradicts enable.idempotence=false"),
    ({"transactional_id": "t", "acks": 1}, "transactional.id contradicts acks=1; it needs acks=all"),
    ({"transactional_id": "t", "retries": 0}, "transactional.id contradicts retries=0; it needs retries of at least 1"),
    (
        {"transactional_id": "t", "max_in_flight_requests_per_connection": 6},
        "transactional.id contradicts max.in.flight.requests.per.connection=6",
    ),
    ({"transaction_timeout_ms": 0}, "transaction_timeout_ms: 0 is too small"),
    ({"message.timeout.ms": 5}, "that is librdkafka's name; Kafka's is delivery.timeout.ms"),
    ({"key_serializer": 5}, "5 is neither a name nor a class, an instance or a callable"),
    ({"value_serializer": b"json"}, "b'json' is neither a name nor a class"),
    ({"partitioner_class": ""}, "'' is neither a name nor a class"),
    ({"value_serializer": " "}, "' ' is neither a name nor a class"),
    ({"partitioner": 5}, "partitioner: 5 is neither a name"),
    ({"client_id": 5}, "5 is not text"),
    ({"send_buffer_bytes": -2}, "-2 is too small"),
    ({"receive_message_max_bytes": 999}, "999 is too small"),
    ({"config_file": "/nowhere/producer.properties"}, "/nowhere/producer.properties can't be read"),
    # Rules across keys
    ({"enable_idempotence": True, "acks": 1}, "contradicts acks=1; it needs acks=all, or set enable.idempotence=false"),
    ({"enable_idempotence": "true", "retries": "0"}, "contradicts retries=0; it needs retries of at least 1"),
    (
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        "contradicts max.in.flight.requests.per.connection=6; it needs max.in.flight.requests.per.connection of at mo",
    ),
    ({"enable_idempotence": True, "acks": 0, "retries": 0}, "contradicts acks=0 and retries=0"),
    (
        {"delivery_timeout_ms": 30_004},
        "delivery.timeout.ms=30004 is shorter than linger.ms=5 + request.timeout.ms=30000; set it to at least 30005",
    ),
    ({"batch_size": 101, "buffer_memory": 100}, "batch.size=101 doesn't fit into buffer.memory=100"),
]


@pytest.mark.parametrize(("given", "says"), BAD_INPUT, ids=["-".join(given) for given, _ in BAD_INPUT])
def test_bad_input_is_refused_with_what_to_do(given: dict[str, Any], says: str) -> None:
    message = refusal(**given)
    assert says in message
    assert "hush" not in message
    assert "problems in" not in message


@pytest.mark.parametrize("servers", ["localhost:9092", ["localhost:9092"]])
def test_addresses_in_the_place_of_the_dict_are_told_where_they_belong(servers: Any) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        ProducerConfig.resolve(servers)
    assert f"addresses of brokers go into bootstrap_servers: KafkaProducer(bootstrap_servers={servers!r})" in str(
        caught.value
    )
    with pytest.raises(KafkaConfigurationError, match=r"^(?!.*hush).*bootstrap_servers='localhost:9092'"):
        ProducerConfig.resolve("me:hush@h:1")  # type: ignore[arg-type]


def test_nothing_given_says_where_to_start() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"^bootstrap\.servers is empty; name at least one broker"):
        ProducerConfig.resolve_from(None, {}, {})


# --- Values of special form ---


@pytest.mark.parametrize(
    "given",
    [
        "a:1,[::1]:2",
        " a:1 , [::1]:2 ,",
        "PLAINTEXT://a:1,[::1]:2",
        ["a:1", "[::1]:2"],
        ("a:1", "[::1]:2"),
        [("a", 1), ("::1", 2)],
        ["a:1", "[::1]:2", "a:1"],
    ],
)
def test_bootstrap_servers(given: object) -> None:
    assert resolve(bootstrap_servers=given).bootstrap_servers == (Address("a", 1), Address("::1", 2))


def test_bootstrap_servers_are_shown_as_text() -> None:
    assert "bootstrap.servers = 'a:1,[::1]:2'  (dict)" in resolve({"bootstrap.servers": "a:1,[::1]:2"}).describe()


@pytest.mark.parametrize(
    ("given", "acks"), [("all", -1), ("ALL", -1), (-1, -1), ("-1", -1), (0, 0), ("0", 0), (1, 1), ("1", 1)]
)
def test_acks(given: object, acks: int) -> None:
    assert resolve(acks=given).acks == acks


@pytest.mark.parametrize(("given", "expected"), [(float("inf"), 2**31 - 1), ("3", 3), (0, 0)])
def test_retries(given: object, expected: int) -> None:
    assert resolve(retries=given).retries == expected


@pytest.mark.parametrize(
    ("given", "level"),
    [
        ({}, None),
        ({"compression_gzip_level": 5}, None),
        ({"compression_type": "snappy"}, None),
        ({"compression_type": "gzip"}, -1),
        ({"compression_type": "gzip", "compression_gzip_level": "5"}, 5),
        ({"compression_type": "lz4"}, 9),
        ({"compression_type": "zstd", "compression_zstd_level": -7}, -7),
    ],
)
def test_the_compression_level_is_that_of_the_type(given: dict[str, Any], level: int | None) -> None:
    assert resolve(**given).compression_level == level


def test_interceptors_may_be_one_or_many() -> None:
    class Interceptor:
        pass

    one = Interceptor()
    assert resolve(interceptor_classes=one).interceptor_classes == (one,)
    assert resolve(interceptor_classes=[one, Interceptor]).interceptor_classes == (one, Interceptor)
    assert resolve(interceptor_classes="a.b:C, d:E").interceptor_classes == ("a.b:C", "d:E")
    assert resolve(interceptor_classes=None).interceptor_classes == ()


@pytest.mark.parametrize("name", ["key_serializer", "value_serializer", "partitioner"])
def test_pluggable_parts_are_passed_on(name: str) -> None:
    for given in (len, str, "json"):
        assert resolve(**{name: given})[name] is given
    assert resolve(**{name: None})[name] is None


# --- kafka-python's spellings ---


def test_a_configuration_written_for_kafka_python_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    config = ProducerConfig.resolve_from(
        None,
        {
            "bootstrap_servers": ["localhost:9092"],
            "client_id": None,
            "key_serializer": None,
            "value_serializer": str.encode,
            "transactional_id": None,
            "acks": "all",
            "compression_type": None,
            "retries": float("inf"),
            "partitioner": None,
            "send_buffer_bytes": None,
            "receive_buffer_bytes": None,
            "allow_auto_create_topics": False,
            "ssl_context": None,
            "sasl_mechanism": None,
            "api_version": (2, 5),
            "bootstrap_timeout_ms": 2000,
        },
        {},
    )
    assert config.compression_type == "none"
    assert (config.send_buffer_bytes, config.receive_buffer_bytes) == (-1, -1)
    assert config.value_serializer == str.encode
    assert not config.allow_auto_create_topics
    assert [record.getMessage() for record in caplog.records] == [
        "The configuration key api_version has no effect: versions are negotiated on each connection",
        "The configuration key bootstrap_timeout_ms has no effect: the constructor doesn't wait for the "
        "network, and max.block.ms bounds the calls that do",
    ]


# --- Rules across keys ---


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"acks": 1}, "acks=1"),
        ({"acks": "0"}, "acks=0"),
        ({"retries": 0}, "retries=0"),
        ({"max_in_flight_requests_per_connection": 6}, "max.in.flight.requests.per.connection=6"),
        ({"acks": 1, "retries": 0}, "acks=1 and retries=0"),
    ],
)
def test_idempotence_gives_way_where_it_is_only_the_default(
    given: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = resolve(**given)
    assert config.enable_idempotence is False
    assert config.origins["enable.idempotence"] == f"default, off because of {why}"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"Idempotence is off because of {why}" in caplog.text


def test_idempotence_stays_with_what_it_allows(caplog: pytest.LogCaptureFixture) -> None:
    config = resolve(acks=-1, retries=1, max_in_flight_requests_per_connection=5)
    assert config.enable_idempotence
    assert resolve(enable_idempotence=False, acks=1).origins["enable.idempotence"] == "keyword"
    assert not caplog.records


def test_the_default_delivery_timeout_grows_with_the_request_timeout() -> None:
    config = resolve(request_timeout_ms=200_000, linger_ms=100)
    assert config.delivery_timeout_ms == 200_100
    assert config.origins["delivery.timeout.ms"] == "default, raised to linger.ms + request.timeout.ms"
    assert resolve(request_timeout_ms=2**31 - 1).delivery_timeout_ms == 2**31 - 1
    assert resolve(delivery_timeout_ms=30_005).delivery_timeout_ms == 30_005


def test_the_default_batch_size_fits_into_a_small_buffer() -> None:
    config = resolve(buffer_memory=1000)
    assert config.batch_size == 1000
    assert config.origins["batch.size"] == "default, lowered to buffer.memory"
    assert resolve(buffer_memory=1000, batch_size=1000).batch_size == 1000


def test_a_reconnect_backoff_without_a_maximum_is_constant() -> None:
    config = resolve(reconnect_backoff_ms=5000)
    assert (config.reconnect_backoff_ms, config.reconnect_backoff_max_ms) == (5000, 5000)
    assert resolve(reconnect_backoff_ms=10).reconnect_backoff_max_ms == 10
    assert resolve(reconnect_backoff_ms=10, reconnect_backoff_max_ms=20).reconnect_backoff_max_ms == 20


@pytest.mark.parametrize(
    ("first", "most"),
    [
        ("retry_backoff_ms", "retry_backoff_max_ms"),
        ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    ],
)
def test_a_first_wait_above_its_maximum_is_lowered(first: str, most: str, caplog: pytest.LogCaptureFixture) -> None:
    config = resolve(**{first: 300, most: 200})
    assert (config[first], config[most]) == (200, 200)
    assert f"{first}=300 is above {most}=200" in caplog.text


def test_clients_without_a_name_are_numbered() -> None:
    first, second = resolve().client_id, resolve(client_id="").client_id
    number = int(first.removeprefix("producer-"))
    assert second == f"producer-{number + 1}"
    assert resolve(client_id="mine").client_id == "mine"


# --- Sources ---


def test_the_environment_is_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP_SERVERS", "a:1,b:2")
    monkeypatch.setenv("HEADRACE_LINGER_MS", "7")
    monkeypatch.setenv("HEADRACE_PURE", "1")
    config = ProducerConfig.resolve()
    assert (len(config.bootstrap_servers), config.linger_ms) == (2, 7)
    assert config.origins["linger.ms"] == "environment HEADRACE_LINGER_MS"
    monkeypatch.setenv("HEADRACE_LINGER_MS", "soon")
    with pytest.raises(KafkaConfigurationError, match=r"linger\.ms \(environment HEADRACE_LINGER_MS\): 'soon' is"):
        ProducerConfig.resolve()


def test_spark_gives_texts_only() -> None:
    given = {"bootstrap.servers": "a:1,b:2", "linger.ms": "20", "enable.idempotence": "false", "acks": "1"}
    config = ProducerConfig.resolve_from(given, {}, {})
    assert (config.linger_ms, config.enable_idempotence, config.acks) == (20, False, 1)


def test_a_configuration_pickles() -> None:
    config = resolve(value_serializer=str.encode, key_serializer="string")
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_pickle_is_read_by_a_process_that_never_resolved_one() -> None:
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).bootstrap_servers[0])"
    pickled = pickle.dumps(resolve())
    run = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True)
    assert run.stdout == b"localhost:9092\n"


def test_a_key_that_resembles_none_is_told_where_all_are() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"docs/configuration\.md lists the keys"):
        ProducerConfig.resolve(bootstrap_servers="h:1", qqqqq=1)


def test_the_asynchronous_producer_does_not_linger_unless_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = {"bootstrap.servers": "localhost:9092"}
    config = ProducerConfig.resolve_async(servers)
    assert (config.linger_ms, config.is_explicit("linger.ms")) == (0, False)
    assert "linger.ms = 0  (default)" in config.describe()
    assert ProducerConfig.resolve_async({**servers, "linger.ms": 7}).linger_ms == 7
    monkeypatch.setenv("HEADRACE_LINGER_MS", "8")
    assert ProducerConfig.resolve_async(**servers).linger_ms == 8
    with pytest.raises(KafkaConfigurationError, match=r"is a str, not a dict"):
        ProducerConfig.resolve_async("localhost:9092")  # type: ignore[arg-type]
