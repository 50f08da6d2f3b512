"""Tests a sink's options: which are the producer's, errors, pickling, and secrets."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys

import pytest

from headrace.network.protocol.errors import IllegalStateError, KafkaConfigurationError
from headrace.producer import ProducerConfig
from headrace.producer.spark import KafkaSink
from headrace.producer.spark.committer import Committer
from headrace.producer.spark.options import SinkOptions
from headrace.producer.spark.transactions import micro_batch, micro_batch_of_connect, new_job

SERVERS = {"bootstrap.servers": "h:1"}


def test_importing_the_sink_needs_neither_pyspark_nor_pyarrow() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = sys.modules['pandas'] = None\n"
        "from headrace.producer.spark import KafkaSink, register\n"
        "import headrace.network.protocol.errors as errors\n"
        "KafkaSink(bootstrap_servers='h:1', topic='t')\n"
        "try: register(None)\n"
        "except errors.KafkaConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'headrace[spark]'" in done.stdout


@pytest.mark.parametrize(
    "config",
    [
        {"kafka.bootstrap.servers": "h:1", "kafka.linger.ms": "7", "topic": "t", "value.format": "JSON"},
        {"bootstrap.servers": "h:1", "linger.ms": 7, "topic": "t", "value_format": "json"},
        {"bootstrap_servers": "h:1", "linger_ms": 7, "topic": "t", "valueformat": "json", "checkpointlocation": "x"},
    ],
    ids=["Spark's", "Kafka's", "lower case, as a data source gets them"],
)
def test_options_have_three_spellings(config: dict) -> None:
    options = SinkOptions.resolve(config, {})
    assert options.topic == "t"
    assert options.value_format == "json"
    assert options.key_format == "raw"
    assert options.include_headers
    assert options.config.linger_ms == 7


def test_keywords_win_over_the_mapping() -> None:
    options = SinkOptions.resolve({**SERVERS, "topic": "a"}, {"topic": "b", "include_headers": "false", "acks": "1"})
    assert options.topic == "b"
    assert not options.include_headers
    assert options.config.acks == 1


def test_a_job_is_one_client_unless_it_is_named() -> None:
    assert SinkOptions.resolve(SERVERS, {}).config.client_id == "headrace-spark"
    assert SinkOptions.resolve(SERVERS, {"client_id": "mine"}).config.client_id == "mine"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "bootstrap.servers is empty"),
        ({**SERVERS, "topik": "t"}, "did you mean topic?"),
        ({**SERVERS, "delivery.guaranty": "x"}, "did you mean delivery.guarantee?"),
        ({**SERVERS, "value_shema": "x"}, "did you mean value.schema?"),
        ({**SERVERS, "kafka.linger.mss": 1}, "did you mean linger.ms?"),
        ({**SERVERS, "xyzzy": 1}, "xyzzy is neither an option of the sink"),
        ({**SERVERS, "topic": "no spaces"}, "can't be the name of a topic"),
        ({**SERVERS, "topic": "a", "Topic": "b"}, "Topic is given twice, also as topic"),
        ({**SERVERS, "kafka.linger.ms": 1, "linger_ms": 2}, "linger_ms is given twice, also as kafka.linger.ms"),
        ({**SERVERS, "kafka.partitioner.class": "org.example.Mine"}, "can't be imported"),
        ({**SERVERS, "kafka.value.serializer": "org.example.Mine"}, "can't be imported"),
        ({**SERVERS, "value.format": "xml"}, "not one of raw, string, json, msgpack"),
        ({**SERVERS, "includeHeaders": "maybe"}, "include_headers='maybe'"),
        ({**SERVERS, "value.format": "json", "value.serializer": "json"}, "both say how a value becomes bytes"),
        ({**SERVERS, 3: 1}, "is not a string"),
        (["a"], "of type list"),
    ],
)
def test_wrong_options_are_told_on_the_driver(config: dict, message: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        KafkaSink(config)
    assert message in str(caught.value)


# --- Delivery ---

ONCE = {**SERVERS, "delivery.guarantee": "exactly_once"}


@pytest.mark.parametrize("name", ["delivery.guarantee", "delivery_guarantee", "deliveryGuarantee"])
def test_the_guarantee_has_the_spellings_of_all_options(name: str) -> None:
    options = KafkaSink({**SERVERS, name: " Exactly_Once "}).options
    assert options.is_exactly_once
    assert not KafkaSink(SERVERS).options.is_exactly_once
    assert KafkaSink(SERVERS, delivery_guarantee="exactly_once", delivery_id="x").options.delivery_id == "x"


def test_the_tasks_ids_begin_with_the_transactional_id() -> None:
    assert KafkaSink(ONCE).options.config.transactional_id == "headrace-spark"
    options = KafkaSink({**ONCE, "kafka.transactional.id": "billing"}).options
    assert options.config.transactional_id == "billing"
    job = new_job(options)
    assert job.key.startswith("billing-job-")
    assert not job.is_named
    named = new_job(KafkaSink(ONCE, delivery_id="nightly").options)
    assert (named.key, named.is_named) == ("headrace-spark-job-nightly", True)
    assert named.run != new_job(KafkaSink(ONCE, delivery_id="nightly").options).run


def test_the_error_of_an_unfinished_commit_names_the_delivery_id() -> None:
    options = KafkaSink({**ONCE, "kafka.transactional.id": "a-job-of-mine"}, delivery_id="the-job-9").options
    assert "with delivery.id=the-job-9 to finish it" in Committer(options)._how_to_finish(new_job(options))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**SERVERS, "delivery.guarantee": "exactly"}, "'exactly' is not one of at_least_once, exactly_once"),
        ({**SERVERS, "delivery.guarantee": 3}, "delivery.guarantee=3 is not one of"),
        ({**SERVERS, "delivery.id": "x"}, "delivery.id='x' has no effect at least once"),
        ({**ONCE, "delivery.id": ""}, "delivery.id='' is not a name"),
        ({**ONCE, "delivery.id": "a b"}, "delivery.id='a b' is not a name"),
        ({**ONCE, "delivery.id": "x" * 201}, "is not a name of 1 to 200"),
        ({**SERVERS, "transactional.id": "x"}, "transactional.id='x' needs delivery.guarantee=exactly_once"),
        ({**ONCE, "acks": "1"}, "transactional.id contradicts acks=1"),
        ({**ONCE, "enable.idempotence": "false"}, "transactional.id contradicts enable.idempotence=false"),
    ],
)
def test_wrong_options_of_the_delivery(config: dict, message: str) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        KafkaSink(config)
    assert message in str(caught.value)


def test_a_micro_batch_has_the_names_of_its_query_and_run() -> None:
    options = KafkaSink(ONCE).options
    properties = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "run 1"}
    first = micro_batch(options, 7, properties.get)
    assert (first.key, first.batch, first.is_job) == ("headrace-spark-query-q", 7, False)
    assert first == micro_batch(options, 7, properties.get)
    assert first.run != micro_batch(options, 7, {**properties, "spark.jobGroup.id": "run 2"}.get).run
    assert re.fullmatch(first.pattern, first.transactional_id(1))
    second = micro_batch(KafkaSink(ONCE, delivery_id="b").options, 7, properties.get)
    assert second.key == "headrace-spark-query-q-b"
    with pytest.raises(IllegalStateError, match="micro-batch 7 does not belong to a streaming query"):
        micro_batch(options, 7, {}.get)


def test_foreach_batch_in_spark_connect_needs_a_name() -> None:
    with pytest.raises(KafkaConfigurationError, match="to a name that only this query has"):
        micro_batch_of_connect(KafkaSink(ONCE).options, 7)
    named = micro_batch_of_connect(KafkaSink(ONCE, delivery_id="b").options, 7)
    assert (named.key, named.batch) == ("headrace-spark-query-b", 7)


@pytest.mark.parametrize(
    "servers",
    ["me:hunter2@h:1", "SASL_SSL://me:hunter2@h:1,i:1", "me:x,hunter2,y@h:1", "me:hunter2@", ["i:1", "me:hunter2@h:1"]],
)
def test_a_password_in_an_address_is_not_repeated(servers: object) -> None:
    with pytest.raises(KafkaConfigurationError, match="has a user name or password in it") as caught:
        KafkaSink({"kafka.bootstrap.servers": servers})
    assert "hunter2" not in str(caught.value)


def test_what_can_not_be_sent_to_workers_is_told_on_the_driver() -> None:
    class Unpicklable:
        def __call__(self, value: object) -> bytes:
            return b""

        def __reduce__(self) -> str:
            raise TypeError("holds a socket")

    with pytest.raises(KafkaConfigurationError, match="holds a socket"):
        KafkaSink(SERVERS, value_serializer=Unpicklable())


def test_a_sink_pickles_with_its_options_and_equal_options_share_a_producer() -> None:
    sink = KafkaSink(SERVERS, topic="t", linger_ms=3)
    copy = pickle.loads(pickle.dumps(sink))
    assert copy.options == sink.options
    again = KafkaSink({"kafka.bootstrap.servers": "h:1", "kafka.linger.ms": "3"}, topic="another")
    assert again.options.digest == sink.options.digest
    assert KafkaSink(SERVERS, linger_ms=4).options.digest != sink.options.digest


def test_a_resolved_configuration_is_taken_too() -> None:
    options = KafkaSink(ProducerConfig.resolve(bootstrap_servers="h:1", linger_ms=9), topic="t").options
    assert options.config.linger_ms == 9


def test_how_a_sink_shows_itself() -> None:
    assert repr(KafkaSink(SERVERS, topic="t")) == "KafkaSink(t at h:1)"
    assert repr(KafkaSink(SERVERS)) == "KafkaSink(the topics of column topic at h:1)"
    assert "digest" not in repr(KafkaSink(SERVERS).options)
