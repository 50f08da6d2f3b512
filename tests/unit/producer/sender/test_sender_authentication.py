"""What the sender does when every broker rejects the credentials."""

from __future__ import annotations

import pytest
from support.sender_harness import SenderHarness

from headrace.network.protocol.errors import SaslAuthenticationFailedError
from headrace.network.protocol.messages.records.init_producer_id import InitProducerIdRequest

REFUSED = SaslAuthenticationFailedError("the broker rejected the credentials")


def test_batches_that_need_the_producer_id_fail_with_the_error():
    harness = SenderHarness(with_producer_id=False)
    future = harness.append(b"v")
    harness.client.refused = REFUSED
    harness.sender.run_once()
    with pytest.raises(SaslAuthenticationFailedError, match="rejected the credentials"):
        future.get(0)
    assert [type(each.message) for each in harness.client.sent] == [InitProducerIdRequest]


def test_batches_of_a_producer_with_an_id_wait():
    harness = SenderHarness()
    future = harness.append(b"v")
    harness.client.refused = REFUSED
    harness.clock.advance(1000)
    harness.sender.run_once()
    assert not future.done()
