"""Planted secrets are in no repr, log line, exception, traceback, metric, thread name, description or result's pickle.

Those of Spark are in `tests/integration/spark/test_spark_secrets.py`, those of the commands in
`tests/integration/cli/test_cli_secrets.py`.
"""

from __future__ import annotations

import logging
import pickle
import threading
import traceback
from typing import Any

import pyarrow as pa
import pytest

from headrace.broker import EmbeddedCluster
from headrace.network.protocol.errors import KafkaError
from headrace.producer import KafkaProducer, ProducerConfig
from headrace.producer.spark import KafkaSink
from headrace.producer.spark.datasource import BatchDataSourceWriter
from headrace.producer.spark.options import SinkOptions
from headrace.producer.spark.producers import worker_producers

SECRET = "pl4nted-s3cret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def secured(cluster: EmbeddedCluster, **changes: Any) -> dict[str, Any]:
    return {**cluster.client_config(), "sasl.password": SECRET, "max.block.ms": 20_000, **changes}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(security="SASL_SSL", users={"alice": SECRET}) as started:
        yield started


def everything_of(producer: KafkaProducer) -> str:
    config = producer.config
    return "\n".join(
        [
            repr(producer),
            repr(config),
            config.describe(),
            str(dict(config.origins)),
            repr(producer.metrics()),
            repr(producer.metrics(raw=True)),
            *(thread.name for thread in threading.enumerate()),
        ]
    )


def test_a_producer_that_works(cluster, caplog):
    caplog.set_level(logging.DEBUG)
    with KafkaProducer(secured(cluster)) as producer:
        producer.send("t", b"x").get(30)
        assert SECRET not in everything_of(producer)
    assert SECRET not in caplog.text
    assert SECRET not in repr(cluster) + repr(cluster.config) + cluster.config.describe()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_rejected_password(cluster, caplog, mechanism):
    caplog.set_level(logging.DEBUG)
    wrong = f"{SECRET}-wrong"
    with KafkaProducer(secured(cluster, **{"sasl.password": wrong, "sasl.mechanism": mechanism})) as producer:
        with pytest.raises(KafkaError) as failed:
            producer.send("t", b"x").get(30)
        assert SECRET not in everything_of(producer)
    assert SECRET not in "".join(traceback.format_exception(failed.value))
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "keys",
    [
        {"sasl.password": SECRET},
        {"sasl.password": SECRET, "security.protocol": "SASL_SSL"},
        {"sasl.jaas.config": f'{MODULE} required username="a" password="{SECRET}";', "security.protocol": "PLAINTEXT"},
        {"sasl.jaas.config": f'nonsense password="{SECRET}"', "security.protocol": "SASL_SSL"},
        {"ssl.key.password": SECRET, "security.protocol": "SSL", "ssl.keystore.location": "/does/not/exist"},
        {"ssl.keystore.key": SECRET, "security.protocol": "SSL"},
        {"sasl.oauthbearer.client.credentials.client.secret": SECRET, "security.protocol": "SASL_SSL"},
    ],
    ids="+".join,
)
def test_a_configuration_that_is_refused(keys):
    with pytest.raises(KafkaError) as failed:
        KafkaProducer({"bootstrap.servers": "localhost:1", **keys}).close()
    assert SECRET not in "".join(traceback.format_exception(failed.value))


def test_a_file_and_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_SASL_PASSWORD", SECRET)
    file = tmp_path / "producer.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\n")
    config = ProducerConfig.resolve({"config.file": str(file), "bootstrap.servers": "a:1"})
    assert config.sasl_password == SECRET
    assert SECRET not in repr(config) + config.describe() + str(dict(config.origins))


def test_a_sink_of_spark(cluster):
    sink = KafkaSink(secured(cluster), topic="t")
    assert SECRET not in repr(sink)
    # the tasks need the password
    assert SECRET.encode() in pickle.dumps(sink)


def test_pickles_that_need_no_credentials(cluster):
    with KafkaProducer(secured(cluster)) as producer:
        results: list[Any] = [producer.send("t", b"x").get(30), producer.metrics()]
        with pytest.raises(TypeError, match="can't be pickled"):
            pickle.dumps(producer)
    rows = pa.RecordBatch.from_pydict({"value": [b"x"]})
    options = SinkOptions.resolve(secured(cluster), {"topic": "t"})
    results.append(BatchDataSourceWriter(options).write(iter([rows])))
    for keys in ({"sasl.password": f"{SECRET}-wrong"}, {"sasl.password": SECRET, "sasl.mechanism": "NOTHING"}):
        with pytest.raises(KafkaError) as failed, KafkaProducer(secured(cluster, **keys)) as producer:
            producer.send("t", b"x").get(30)
        results.append(failed.value)
    wrong = SinkOptions.resolve(secured(cluster, **{"sasl.password": f"{SECRET}-wrong"}), {"topic": "t"})
    with pytest.raises(KafkaError) as failed:
        BatchDataSourceWriter(wrong).write(iter([rows]))
    results.append(failed.value)
    worker_producers().close()
    assert [each for each in results if SECRET.encode() in pickle.dumps(each)] == []
