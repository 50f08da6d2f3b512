"""Metadata requests precede other requests, but not always: a producer that sends nothing else delivers nothing."""

from __future__ import annotations

from support.client_harness import REFRESH_BACKOFF_MS, ClientHarness, api_versions_response
from support.mock_client import metadata_response

from headrace.network.client.request import ClientResponse
from headrace.network.cluster import Cluster
from headrace.network.protocol.errors import DisconnectedError
from headrace.network.protocol.messages.api_versions import ApiVersionsRequest
from headrace.network.protocol.messages.records.produce import ProduceRequest, ProduceResponse
from headrace.network.protocol.messages.topics.metadata import MetadataRequest

#: Metadata expire as soon as the client may request them again.
MAX_AGE_MS = REFRESH_BACKOFF_MS


def produce() -> ProduceRequest:
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[])


def connected(brokers: int = 1) -> ClientHarness:
    harness = ClientHarness(max_age_ms=MAX_AGE_MS)
    harness.start(metadata_response(brokers=brokers))
    for node_id in range(brokers):
        harness.connect(node_id)
    return harness


def test_metadata_first_then_the_others_then_metadata_again() -> None:
    harness = connected()
    harness.send(0, produce())
    harness.step()
    harness.clock.advance(MAX_AGE_MS)
    assert not harness.ready(0), "metadata have expired"
    harness.step()
    harness.selector.respond("0", ProduceResponse(responses=[]))
    harness.answer_metadata("0", metadata_response())
    harness.clock.advance(MAX_AGE_MS)
    assert harness.ready(0), "expired again, but other requests come first"
    harness.send(0, produce())
    harness.step()
    assert [type(send.message) for send in harness.selector.unanswered("0")] == [ProduceRequest, MetadataRequest]


def test_a_turn_is_for_all_nodes() -> None:
    harness = connected(brokers=2)
    harness.clock.advance(MAX_AGE_MS)
    assert [harness.ready(node_id) for node_id in (0, 1)] == [True, True]
    harness.send(0, produce())
    assert harness.ready(1)
    harness.send(1, produce())
    harness.step()
    assert {type(harness.selector.unanswered(channel)[-1].message) for channel in ("0", "1")} == {
        ProduceRequest,
        MetadataRequest,
    }


def test_an_attempt_that_failed_was_a_turn_too() -> None:
    harness = connected()
    harness.send(0, produce())
    harness.step()
    harness.clock.advance(MAX_AGE_MS)
    assert not harness.ready(0)
    harness.step()
    harness.selector.fail("0", DisconnectedError("closed"))
    harness.step()
    harness.clock.advance(1000)
    harness.connect(0)


def test_one_broker_that_hangs_up_on_metadata_and_that_takes_longer_than_they_last() -> None:
    """Every second metadata request ends its connection, while those to the bootstrap address succeed. Each time the
    client then connects to the only broker, metadata are due again."""
    harness = ClientHarness(max_age_ms=MAX_AGE_MS)
    selector = harness.selector
    delivered: list[ClientResponse] = []
    leader = None

    def learn(cluster: Cluster, changed: object) -> None:
        nonlocal leader
        leader = cluster.nodes[0]

    harness.metadata.add_listener(learn)
    asked = 0
    for _ in range(400):
        if leader is not None and harness.client.ready(leader, harness.now_ms):
            harness.send(0, produce(), callback=delivered.append)
        harness.step()
        for channel in sorted(selector._connecting):
            selector.complete_connect(channel)
        for channel in sorted(selector.open):
            while channel in selector.open and selector.unanswered(channel):
                message = selector.unanswered(channel)[0].message
                if isinstance(message, ApiVersionsRequest):
                    selector.respond(channel, api_versions_response())
                elif isinstance(message, ProduceRequest):
                    selector.respond(channel, ProduceResponse(responses=[]))
                else:
                    asked += 1
                    if asked % 2:
                        selector.respond(channel, metadata_response())
                    else:
                        selector.fail(channel, DisconnectedError("closed"))
        harness.step()
        harness.clock.advance(MAX_AGE_MS)
    assert asked > 50
    assert sum(response.error is None for response in delivered) > 50
