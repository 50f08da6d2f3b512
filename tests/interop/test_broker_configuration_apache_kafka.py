"""The configuration has every key of Apache Kafka's brokers and topics, with Kafka's defaults."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

import pytest

from headrace.broker import EmbeddedCluster
from headrace.broker.config.broker_config import OWN_DEFAULTS, BrokerConfig
from headrace.broker.config.topic_config import TopicConfig, config_text
from headrace.network.config import Config

#: Spelled differently here, or required in Kafka.
_NOT_COMPARED = {
    "listeners",  # the cluster's host and port, unless given
    "node.id",
    "listener.security.protocol.map",  # the same entries in another order
    "controller.listener.names",
}


def kafkas_keys(kafka, main_class: str) -> dict[str, str]:
    """Kafka's own documentation of its keys: name -> default."""
    page = kafka.run_class(main_class).decode()
    keys = {}
    for name, body in re.findall(r'<h4><a id="([^"]+)">.*?</h4>(.*?)(?=<li>\s*<h4>|\Z)', page, re.DOTALL):
        found = re.search(r"<tr><th>Default:</th><td>(.*?)</td></tr>", body, re.DOTALL)
        default = html.unescape(found.group(1)) if found else ""
        # "604800000 (7 days)"
        keys[re.sub("^(broker|topic)configs_", "", name)] = re.sub(r" \([^)]*\)$", "", default).strip()
    return keys


def judge(table: type[Config], keys: Mapping[str, str], own_defaults: Mapping[str, str]) -> list[str]:
    known = {name: entry for entry in table.entries for name in (entry.name, *entry.aliases)}
    findings = []
    for name, default in keys.items():
        entry = known.get(name)
        if entry is None:
            if name not in table.fixed and not table.why_without_effect(name) and not table.why_left_out(name):
                findings.append(f"{name} is not known (Kafka's default: {default})")
            continue
        ours = config_text(entry.default) if entry.default is not None else "null"
        expected = "" if default == '""' else default
        if entry.name in own_defaults:
            if ours == expected:
                findings.append(f"{name} has Kafka's default, {default}, after all")
        elif name == entry.name and name not in _NOT_COMPARED and ours != expected:
            findings.append(f"{name} is {ours} here, {default} there")
    return findings


def test_every_key_of_brokers(apache_kafka):
    keys = kafkas_keys(apache_kafka, "kafka.server.KafkaConfig")
    assert len(keys) > 300
    assert judge(BrokerConfig, keys, OWN_DEFAULTS) == []


def test_every_key_of_topics(apache_kafka):
    keys = kafkas_keys(apache_kafka, "org.apache.kafka.storage.internals.log.LogConfig")
    assert len(keys) > 30
    # gzip treats Kafka's default level -1 as 6, which is the default here.
    assert judge(TopicConfig, keys, {}) == []


def test_fixed_values_are_kafkas_defaults(apache_kafka):
    """A file with all of Kafka's defaults is accepted."""
    keys = kafkas_keys(apache_kafka, "kafka.server.KafkaConfig")
    for name, (value, _) in BrokerConfig.fixed.items():
        assert keys[name] in (value, "null", '""'), name


#: As shipped with Kafka 4.3, except for the ports and the directory.
SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={log_dir}
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


@pytest.mark.parametrize("profile", ["kafka", "test"])
def test_kafkas_server_properties_is_taken_as_it_is(tmp_path, caplog, profile):
    path = tmp_path / "server.properties"
    path.write_text(SERVER_PROPERTIES.format(log_dir=tmp_path / "logs"))
    with EmbeddedCluster(config={"config.file": str(path)}, profile=profile) as cluster:
        cluster.create_topic("t")
        assert (tmp_path / "logs" / "t-0").is_dir()
    assert {record.args[0].name for record in caplog.records if "has no effect" in record.message} == {
        *("process.roles", "controller.quorum.bootstrap.servers", "num.io.threads"),
        *("num.recovery.threads.per.data.dir", "share.coordinator.state.topic.replication.factor"),
        "share.coordinator.state.topic.min.isr",
    }
