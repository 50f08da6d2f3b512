"""The producer with older releases of Apache Kafka: librdkafka and the release's own tools read what it sent.

Kafka 0.10 has no record batches, no idempotence and no headers; the others have everything.
"""

from __future__ import annotations

import random
import re
import socket

import confluent_kafka
import pytest
from support.apache_kafka import ApacheKafka
from support.apache_kafka.releases import ApacheKafka010, ApacheKafka21, ApacheKafka39
from support.confluent import PATIENCE_S, create_topic, read_topic

from headrace.network.protocol.errors import (
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from headrace.network.protocol.frames import decode_response, encode_request
from headrace.network.protocol.messages.records.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from headrace.network.records.compression import Compression
from headrace.network.records.legacy import build_message_set
from headrace.producer import KafkaProducer, ProducerRecord

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODECS_OF_0_10 = CODECS[:4]
#: Keeps the order over splits and retries without idempotence.
IN_ORDER = {"max_in_flight_requests_per_connection": 1}
# With this scope pytest runs all tests of a release together, so each broker starts once, one at a time.
with_batches = pytest.mark.parametrize(
    "old_apache_kafka", [ApacheKafka21, ApacheKafka39], indirect=True, scope="module"
)
with_messages = pytest.mark.parametrize("old_apache_kafka", [ApacheKafka010], indirect=True, scope="module")


def producer_for(kafka: ApacheKafka, **keywords: object) -> KafkaProducer:
    """A producer with its defaults, except for features that the broker lacks."""
    if isinstance(kafka, ApacheKafka010):
        keywords = {"enable_idempotence": False, **keywords}
    return KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, **keywords)


def of_every_kind(topic: str, *, headers: bool) -> list[ProducerRecord]:
    """Keys and values that are missing, empty, binary or long; old and new timestamps; many small records."""
    rng = random.Random(21)
    records = [
        ProducerRecord(topic, b"value"),
        ProducerRecord(topic, b"", b""),
        ProducerRecord(topic, None, b"tombstone"),
        ProducerRecord(topic, None),
        ProducerRecord(topic, bytes(range(256)), bytes(reversed(range(256)))),
        ProducerRecord(topic, b"oldest", timestamp_ms=0),
        ProducerRecord(topic, b"newer", timestamp_ms=1_700_000_000_123),
        ProducerRecord(topic, rng.randbytes(300_000), b"long"),
        ProducerRecord(topic, b"x" * 900_000, b"longer"),
    ]
    if headers:
        records.append(ProducerRecord(topic, b"many", b"k", headers=[("a", b"1"), ("", b""), ("ü€", None)]))
    for number in range(2_000):
        records.append(ProducerRecord(topic, b"value-%d" % number * (number % 7), b"key-%d" % (number % 50)))
    return records


def send_all(producer: KafkaProducer, records: list[ProducerRecord]) -> dict:
    """Send the records. Returns them with their timestamps, by the partition and offset that each future returns."""
    futures = [producer.send(record) for record in records]
    sent = {}
    for record, future in zip(records, futures, strict=True):
        metadata = future.get(PATIENCE_S)
        headers = list(record.headers) if record.headers else None
        sent[metadata.partition, metadata.offset] = (record.key, record.value, headers, metadata.timestamp)
    assert len(sent) == len(records)
    return sent


def read_all(kafka: ApacheKafka, topic: str) -> dict:
    """The same from librdkafka, with CRC checks on."""
    return {
        (message.partition(), message.offset()): (
            message.key(),
            message.value(),
            message.headers(),
            message.timestamp()[1],
        )
        for message in read_topic(kafka.bootstrap_servers, topic)
    }


def dumped(kafka: ApacheKafka, topic: str, partitions: int = 1) -> list[dict[str, str]]:
    """The batches, or messages and wrappers, that the release's dump-log tool finds in a topic's segments."""
    folders = [kafka.log_dir() / f"{topic}-{partition}" for partition in range(partitions)]
    dump = kafka.dump_log(*(folder / "00000000000000000000.log" for folder in folders), options=())
    entries = [dict(re.findall(r"(\w+): (\S+)", line.lower())) for line in dump.splitlines()]
    return [entry for entry in entries if "isvalid" in entry]


def codec_in(entry: dict[str, str]) -> str:
    """Kafka's old tools write GZIPCompressionCodec."""
    return entry["compresscodec"].removesuffix("compressioncodec")


@with_batches
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_kind_arrive_in_batches(old_apache_kafka: ApacheKafka, codec: str):
    kafka = old_apache_kafka
    topic = create_topic(kafka.bootstrap_servers, partitions=3)
    with producer_for(kafka, compression_type=codec) as producer:
        assert producer.config.enable_idempotence
        sent = send_all(producer, of_every_kind(topic, headers=True))
    assert read_all(kafka, topic) == sent
    entries = dumped(kafka, topic, 3)
    assert {(entry["magic"], entry["isvalid"]) for entry in entries} == {("2", "true")}
    assert {codec} <= {codec_in(entry) for entry in entries} <= {codec, "none"}
    assert len({(entry["producerid"], entry["producerepoch"]) for entry in entries}) == 1
    assert entries[0]["producerid"] != "-1"


@with_messages
@pytest.mark.parametrize("codec", CODECS_OF_0_10)
def test_records_of_every_kind_arrive_in_messages(old_apache_kafka: ApacheKafka, codec: str):
    kafka = old_apache_kafka
    topic = create_topic(kafka.bootstrap_servers, partitions=3)
    with producer_for(kafka, compression_type=codec) as producer:
        sent = send_all(producer, of_every_kind(topic, headers=False))
    assert read_all(kafka, topic) == sent
    entries = dumped(kafka, topic, 3)
    assert {(entry["magic"], entry["isvalid"]) for entry in entries} == {("1", "true")}
    assert {codec} <= {codec_in(entry) for entry in entries} <= {codec, "none"}


@pytest.mark.parametrize(
    "old_apache_kafka", [ApacheKafka21, ApacheKafka39, ApacheKafka010], indirect=True, scope="module"
)
def test_its_own_console_consumer_prints_what_was_sent(old_apache_kafka: ApacheKafka):
    kafka = old_apache_kafka
    topic = create_topic(kafka.bootstrap_servers)
    with producer_for(kafka, compression_type="gzip") as producer:
        producer.send(topic, "grüße".encode(), b"key", timestamp_ms=1_234_567)
        producer.send(topic, b"no key", timestamp_ms=1_234_568)
        for number in range(100):
            producer.send(topic, b"value-%d" % number, b"k", timestamp_ms=1_234_569)
    formatter = {"print.key": "true", "print.timestamp": "true", "key.separator": "|"}
    lines = kafka.console_consumer(topic, max_messages=102, formatter=formatter)
    assert [line.decode() for line in lines[:3]] == [
        "CreateTime:1234567|key|grüße",
        "CreateTime:1234568|null|no key",
        "CreateTime:1234569|k|value-0",
    ]
    assert len(lines) == 102


@pytest.mark.parametrize(
    "old_apache_kafka", [ApacheKafka21, ApacheKafka39, ApacheKafka010], indirect=True, scope="module"
)
def test_order_and_acks_and_append_time(old_apache_kafka: ApacheKafka):
    kafka = old_apache_kafka
    topic = create_topic(kafka.bootstrap_servers, config={"message.timestamp.type": "LogAppendTime"})
    in_order = IN_ORDER if isinstance(kafka, ApacheKafka010) else {}
    with producer_for(kafka, batch_size=2_048, **in_order) as producer:
        futures = [producer.send(topic, b"%d" % number, timestamp_ms=1_000) for number in range(5_000)]
        told = [(future.get(PATIENCE_S).offset, future.get(PATIENCE_S).timestamp) for future in futures]
    with producer_for(kafka, enable_idempotence=False, acks=0) as producer:
        assert producer.send(topic, b"5000").get(PATIENCE_S).offset == -1
    messages = read_topic(kafka.bootstrap_servers, topic)
    assert [int(message.value()) for message in messages] == list(range(5_001))
    assert [(message.offset(), message.timestamp()[1]) for message in messages[:-1]] == told
    assert messages[0].timestamp()[0] == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert told[0][1] > 1_700_000_000_000


def produce_directly(kafka: ApacheKafka, version: int, topic: str, message_set: bytes) -> PartitionProduceResponse:
    """Send one Produce request in a version that the producer wouldn't use; returns the partition's response."""
    message = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=message_set)]),
        ],
    )
    host, port = kafka.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(b"".join(encode_request(message, version=version, correlation_id=1, client_id="test")))
        with connection.makefile("rb") as stream:
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
    _, response = decode_response(ProduceRequest, version, answer)
    return response.responses[0].partition_responses[0]


@with_messages
@pytest.mark.parametrize("codec", CODECS_OF_0_10)
@pytest.mark.parametrize("version", [0, 1])
def test_message_sets_of_format_v0_are_kept_as_they_are(old_apache_kafka: ApacheKafka, version: int, codec: str):
    topic = create_topic(old_apache_kafka.bootstrap_servers, config={"message.format.version": "0.9.0"})
    values = [b"value-%d " % number * 20 for number in range(50)]
    message_set = build_message_set(
        [(-1, b"key", value) for value in values], magic=0, compression=Compression[codec.upper()]
    )
    answer = produce_directly(old_apache_kafka, version, topic, message_set)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    messages = read_topic(old_apache_kafka.bootstrap_servers, topic)
    assert [(message.offset(), message.value()) for message in messages] == list(enumerate(values))
    assert {message.timestamp()[0] for message in messages} == {confluent_kafka.TIMESTAMP_NOT_AVAILABLE}
    entries = dumped(old_apache_kafka, topic)
    assert {(entry["magic"], entry["isvalid"], codec_in(entry)) for entry in entries} == {("0", "true", codec)}


# --- Features that Kafka 0.10 lacks ---


@with_messages
def test_idempotence_fails_with_what_to_do(old_apache_kafka: ApacheKafka):
    topic = create_topic(old_apache_kafka.bootstrap_servers)
    with producer_for(old_apache_kafka, enable_idempotence=True) as producer:
        error = producer.send(topic, b"value").exception(PATIENCE_S)
    assert isinstance(error, UnsupportedVersionError)
    assert "set enable.idempotence=false for brokers older than 0.11" in str(error)


@with_messages
def test_only_records_with_headers_fail(old_apache_kafka: ApacheKafka):
    topic = create_topic(old_apache_kafka.bootstrap_servers)
    with producer_for(old_apache_kafka, linger_ms=200, **IN_ORDER) as producer:
        before = producer.send(topic, b"before")
        refused = producer.send(topic, b"refused", headers=[("h", b"v")])
        after = producer.send(topic, b"after")
        assert isinstance(refused.exception(PATIENCE_S), UnsupportedForMessageFormatError)
        assert (before.get(PATIENCE_S).offset, after.get(PATIENCE_S).offset) == (0, 1)


@with_messages
def test_zstd_fails_with_what_to_do(old_apache_kafka: ApacheKafka):
    topic = create_topic(old_apache_kafka.bootstrap_servers)
    with producer_for(old_apache_kafka, compression_type="zstd") as producer:
        error = producer.send(topic, b"value" * 100).exception(PATIENCE_S)
    assert isinstance(error, UnsupportedCompressionTypeError)
    assert "set compression.type to another codec" in str(error)


@with_messages
def test_topics_cannot_be_kept_from_being_made(old_apache_kafka: ApacheKafka):
    with (
        producer_for(old_apache_kafka, allow_auto_create_topics=False) as producer,
        pytest.raises(UnsupportedVersionError, match=r"allow\.auto\.create\.topics=false needs version 4"),
    ):
        producer.send("never-made", b"value")


@with_messages
def test_a_message_set_that_the_topic_takes_none_so_large_is_split(old_apache_kafka: ApacheKafka):
    topic = create_topic(old_apache_kafka.bootstrap_servers, config={"max.message.bytes": "2000"})
    rng = random.Random(10)
    # hardly compressible: the wrapper and its halves are too large for the topic, but the quarters are not
    values = [rng.randbytes(300) + bytes(60) for _ in range(20)]
    with producer_for(old_apache_kafka, linger_ms=1_000, compression_type="gzip", **IN_ORDER) as producer:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(PATIENCE_S)
        assert [future.get(PATIENCE_S).offset for future in futures] == list(range(20))
    assert [message.value() for message in read_topic(old_apache_kafka.bootstrap_servers, topic)] == values


# --- A broker that stops and restarts ---


@pytest.mark.parametrize("old_apache_kafka", [ApacheKafka21], indirect=True, scope="module")
def test_nothing_is_lost_or_doubled_when_the_broker_restarts(old_apache_kafka: ApacheKafka):
    kafka = old_apache_kafka
    topic = create_topic(kafka.bootstrap_servers, partitions=2)
    futures = []
    with producer_for(kafka, batch_size=2_048, buffer_memory=64_000_000) as producer:

        def send_some() -> None:
            for _ in range(5_000):
                futures.append(producer.send(topic, b"%d" % len(futures), partition=len(futures) % 2))

        send_some()
        kafka.stop(1)
        send_some()
        kafka.restart(1)
        send_some()
        for future in futures:
            future.get(PATIENCE_S)
    read: dict[int, list[int]] = {0: [], 1: []}
    for message in read_topic(kafka.bootstrap_servers, topic):
        read[message.partition()].append(int(message.value()))
    assert read == {partition: list(range(partition, len(futures), 2)) for partition in range(2)}
