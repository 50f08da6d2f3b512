"""The broker's configuration: profiles, listeners, and Kafka's alternative spellings of one setting."""

from __future__ import annotations

import logging

import pytest

from headrace.broker.config.broker_config import BrokerConfig
from headrace.broker.config.listeners import Listener
from headrace.broker.config.topic_config import TopicConfig
from headrace.network.protocol.errors import KafkaConfigurationError


def resolve(profile="kafka", **config):
    return BrokerConfig.of_profile(profile, {name.replace("_", "."): value for name, value in config.items()}, {})


def test_profiles_differ_in_what_a_test_would_wait_for():
    kafka, test = resolve(), resolve("test")
    assert (kafka.group_min_session_timeout_ms, kafka.group_initial_rebalance_delay_ms) == (6000, 3000)
    assert (test.group_min_session_timeout_ms, test.group_initial_rebalance_delay_ms) == (1, 0)
    assert test.origins["group.min.session.timeout.ms"] == "profile test"


def test_what_is_given_comes_before_the_profile():
    config = resolve("test", group_min_session_timeout_ms=77)
    assert config.group_min_session_timeout_ms == 77
    assert config.given == {"group.min.session.timeout.ms"}


@pytest.mark.parametrize("profile", ["fast", "", None, 1])
def test_a_profile_that_there_is_not(profile):
    with pytest.raises(KafkaConfigurationError, match="choose kafka or test"):
        BrokerConfig.of_profile(profile, None, {})


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3, "log.retention.ms": 5}, 5),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.hours": 2, "log.retention.ms": -1}, -1),
    ],
)
def test_the_finest_unit_decides(given, retention_ms):
    config = BrokerConfig.of_profile("kafka", given, {})
    assert config.topic_config({}).retention_ms == retention_ms
    assert config.topic_config({"retention.ms": "9"}).retention_ms == 9


def test_other_units():
    config = resolve(log_roll_hours=1, log_roll_jitter_hours=2, log_flush_scheduler_interval_ms=7)
    topic = config.topic_config({})
    assert (topic.segment_ms, topic.segment_jitter_ms, topic.flush_ms) == (3_600_000, 7_200_000, 7)


def test_levels_of_codecs_are_the_brokers():
    config = resolve(compression_zstd_level=9)
    assert config.topic_config({"compression.type": "zstd"}).codec_level == 9


@pytest.mark.parametrize(
    ("text", "listeners"),
    [
        ("PLAINTEXT://:9092", [Listener("PLAINTEXT", "", 9092)]),
        ("plaintext://localhost:0", [Listener("PLAINTEXT", "localhost", 0)]),
        ("PLAINTEXT://[::1]:9092", [Listener("PLAINTEXT", "::1", 9092)]),
    ],
)
def test_a_listener(text, listeners):
    config = resolve(listeners=text)
    assert list(config.listeners) == listeners


def test_several_listeners_with_names_of_their_own():
    config = BrokerConfig.of_profile(
        "kafka",
        {
            "listeners": "INSIDE://:9092, OUTSIDE://0.0.0.0:9094,CTRL://:9093",
            "advertised.listeners": ["INSIDE://broker:9092", "OUTSIDE://example.org:19094"],
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CTRL:SSL",
            "inter.broker.listener.name": "INSIDE",
            "controller.listener.names": "CTRL",
        },
        {},
    )
    assert [each.name for each in config.listeners] == ["INSIDE", "OUTSIDE", "CTRL"]
    assert config.advertised_listeners == (
        Listener("INSIDE", "broker", 9092),
        Listener("OUTSIDE", "example.org", 19094),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"listeners": "9092"}, r"'9092', which is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://localhost"}, "is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://localhost:70000"}, "port 70000 .* ports go up to 65535"),
        ({"listeners": ""}, "listeners has none for clients"),
        ({"listeners": "INSIDE://:9092"}, "INSIDE, for which listener.security.protocol.map has no protocol"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "PLAINTEXT twice"),
        ({"listener.security.protocol.map": "INSIDE:PLAIN"}, "'INSIDE:PLAIN', which is not NAME:PROTOCOL"),
        ({"advertised.listeners": "OUTSIDE://a:1"}, "OUTSIDE, which is not in listeners: PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "no client can connect to"),
        ({"advertised.listeners": "PLAINTEXT://:9092"}, "no client can connect to"),
        ({"inter.broker.listener.name": "OUTSIDE"}, "is OUTSIDE, which is not in listeners: PLAINTEXT"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "exclude each other",
        ),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "is SASL_SSL, but no listener has that protocol"),
        ({"log.dirs": "a,b,a"}, "log.dirs has a directory twice"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "is not an address and a number"),
        ({"queued.max.request.bytes": 0}, "is not a size; give -1 for unlimited"),
    ],
)
def test_what_is_wrong_is_told(given, message):
    with pytest.raises(KafkaConfigurationError, match=message):
        BrokerConfig.of_profile("kafka", given, {})


def test_two_listeners_on_one_port_are_refused():
    given = {"listeners": "A://:9092,B://:9092", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    with pytest.raises(KafkaConfigurationError, match="has a port twice"):
        BrokerConfig.of_profile("kafka", given, {})


def test_keys_that_need_not_act_are_accepted_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        resolve(num_io_threads=8, ssl_allow_dn_changes="true", share_coordinator_threads=1)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "num.io.threads has no effect: the network threads" in caplog.text


@pytest.mark.parametrize("value", ["", None])
def test_keys_with_one_value_are_accepted_with_that(value):
    BrokerConfig.of_profile("kafka", {"create.topic.policy.class.name": value}, {})


def test_keys_with_one_value_are_refused_with_another():
    with pytest.raises(KafkaConfigurationError, match=r"'x\.Policy' is not supported: Java classes"):
        resolve(create_topic_policy_class_name="x.Policy")


def test_keys_that_there_are_not_are_refused():
    with pytest.raises(KafkaConfigurationError, match="there is no ZooKeeper"):
        resolve(zookeeper_connect="localhost:2181")
    with pytest.raises(KafkaConfigurationError, match=r"did you mean log\.retention\.hours\?"):
        resolve(log_retention_hour=3)


def test_remote_storage_is_refused_where_it_is_asked_for():
    TopicConfig.resolve_from({"remote.storage.enable": "false"}, {}, {})
    with pytest.raises(KafkaConfigurationError, match="there is no remote storage"):
        TopicConfig.resolve_from({"remote.storage.enable": "true"}, {}, {})
