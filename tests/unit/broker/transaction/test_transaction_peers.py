"""Requests to other brokers: the thread of a broker survives what a request fails with."""

from __future__ import annotations

import queue
import uuid

import pytest

from headrace.broker.config.broker_config import BrokerConfig
from headrace.broker.metadata import BrokerEndpoint, ClusterImage
from headrace.broker.replica.connection import CutLinks, InterBrokerConnector
from headrace.broker.transaction.peers import PeerRequests
from headrace.network.protocol.errors import (
    DisconnectedError,
    MalformedMessageError,
    NotKafkaError,
    SaslAuthenticationFailedError,
    SslAuthenticationError,
)

IMAGE = ClusterImage(str(uuid.uuid4()), 1, 1, {2: BrokerEndpoint(2, "127.0.0.1", 9092, None, ())}, {}, {})
PATIENCE_S = 20.0


class Requests(PeerRequests[object]):
    """Raises the items that are exceptions."""

    def __init__(self):
        connector = InterBrokerConnector(1, BrokerConfig.resolve_from({}, {}, {}), CutLinks(), "PLAINTEXT", None)
        super().__init__("test", 1, connector=connector, image=lambda: IMAGE)
        self.outcomes = queue.SimpleQueue()

    def exchange(self, connection, items):
        for each in items:
            if isinstance(each, Exception):
                raise each
        self.outcomes.put(("sent", list(items)))

    def fail(self, items, error):
        self.outcomes.put(("failed", [error]))


@pytest.mark.parametrize(
    "error",
    [
        SaslAuthenticationFailedError("the password has changed"),
        SslAuthenticationError("the certificate has expired"),
        DisconnectedError("gone"),
        NotKafkaError("another server has the port"),
        MalformedMessageError("cut off"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_items_of_a_failed_request_fail_and_the_next_are_sent(error):
    requests = Requests()
    try:
        requests.send(2, error)
        assert requests.outcomes.get(timeout=PATIENCE_S) == ("failed", [error])
        requests.send(2, "marker")
        assert requests.outcomes.get(timeout=PATIENCE_S) == ("sent", ["marker"])
    finally:
        requests.close()
