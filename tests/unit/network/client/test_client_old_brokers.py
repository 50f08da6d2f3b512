"""The client with Kafka 0.10 (ApiVersions version 0 only, Metadata up to 2), and older brokers without ApiVersions."""

from __future__ import annotations

import pytest
from support.client_harness import REQUEST_TIMEOUT_MS, ClientHarness, Waiter, api_versions_response
from support.mock_client import metadata_response

from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import DisconnectedError, KafkaTimeoutError, UnsupportedVersionError
from headrace.network.protocol.messages.api_versions import ApiVersionsResponse

UNSUPPORTED_VERSION = 35
#: The versions that Apache Kafka 0.10.2 advertises for the producer's APIs.
KAFKA_0_10_2 = api_versions_response(
    {ApiKey.PRODUCE: (0, 2), ApiKey.METADATA: (0, 2), ApiKey.API_VERSIONS: (0, 0), ApiKey.INIT_PRODUCER_ID: None}
)


def shake_hands(harness: ClientHarness, channel_id: str) -> None:
    """Answer as 0.10 does: reject the newest ApiVersions without naming a version, then answer version 0."""
    harness.selector.complete_connect(channel_id)
    harness.step()
    refusal = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[])
    harness.selector.respond_in_version(channel_id, refusal, 0)
    harness.step()
    (again,) = harness.selector.unanswered(channel_id)
    assert (again.header.api_key, again.header.api_version) == (ApiKey.API_VERSIONS, 0)
    harness.selector.respond(channel_id, KAFKA_0_10_2)
    harness.step()


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_metadata_comes_in_the_versions_of_kafka_0_10(newest: int) -> None:
    harness = ClientHarness()
    harness.metadata.add_topic("t", harness.now_ms)
    harness.step()
    harness.handshake("-1", api_versions_response({ApiKey.METADATA: (0, newest)}))
    harness.step()
    (sent,) = harness.selector.unanswered("-1")
    assert (sent.header.api_key, sent.header.api_version) == (ApiKey.METADATA, newest)
    harness.answer_metadata("-1", metadata_response({"t": 3, "another": 1}))
    assert harness.metadata.cluster.partition_count("t") == 3
    assert harness.metadata.cluster.partition_count("another") in (None, 0)
    assert harness.metadata.cluster.cluster_id == ("mock-cluster" if newest >= 2 else None)


def test_a_handshake_with_kafka_0_10() -> None:
    harness = ClientHarness()
    harness.step()
    shake_hands(harness, "-1")
    harness.step()
    harness.answer_metadata("-1", metadata_response({}))
    assert harness.metadata.last_error is None
    versions = harness.client.api_versions(-1)
    assert versions is not None
    assert versions.range_of(ApiKey.PRODUCE) == (0, 2)


def test_a_broker_that_would_create_topics_unasked_is_too_old_where_that_is_forbidden() -> None:
    harness = ClientHarness(allow_auto_topic_creation=False)
    waiter = Waiter(harness.metadata, harness.clock)
    harness.step()
    shake_hands(harness, "-1")
    harness.step()
    with pytest.raises(
        UnsupportedVersionError, match=r"METADATA in versions 0 to 2.*allow\.auto\.create\.topics=false needs version 4"
    ):
        waiter.result()


def test_a_broker_without_api_versions_hangs_up_and_the_error_says_that_it_may_be_too_old() -> None:
    harness = ClientHarness()
    harness.step()
    harness.selector.complete_connect("-1")
    harness.step()
    harness.selector.fail("-1", DisconnectedError("10.0.0.1:9000 closed the connection"))
    harness.step()
    assert isinstance(harness.metadata.last_error, DisconnectedError)
    assert "closed the connection (brokers older than Kafka 0.10 do so too" in str(harness.metadata.last_error)


def test_a_broker_without_api_versions_that_stays_silent_is_told_to_those_who_wait() -> None:
    # as Kafka 0.9 does, which logs an ArrayIndexOutOfBoundsException
    harness = ClientHarness()
    harness.step()
    harness.selector.complete_connect("-1")
    harness.step()
    waiter = Waiter(harness.metadata, harness.clock, timeout_ms=1_000)
    harness.clock.advance(1_000)
    with pytest.raises(KafkaTimeoutError, match=r"not answered anything yet \(brokers older than Kafka 0\.10"):
        waiter.result()
    harness.clock.advance(REQUEST_TIMEOUT_MS)
    harness.step()
    assert "did not answer in time" in str(harness.metadata.last_error)
    assert "brokers older than Kafka 0.10 do so too" in str(harness.metadata.last_error)


def test_a_broker_that_has_answered_before_is_not_taken_for_an_old_one() -> None:
    harness = ClientHarness()
    harness.start()
    harness.selector.fail("-1", DisconnectedError("10.0.0.1:9000 closed the connection"))
    harness.step()
    assert "older than" not in str(harness.metadata.last_error)
