"""A retry doesn't back off if its partition has got a new leader meanwhile (KIP-951)."""

from __future__ import annotations

import pytest
from support.mock_client import metadata_response
from support.sender_harness import BACKOFF_MS, SenderHarness, values_of

from headrace.network.client.request import ClientRequest
from headrace.network.protocol import errors
from headrace.network.protocol.messages.records.produce import LeaderIdAndEpoch, NodeEndpoint
from headrace.network.protocol.messages.topics.metadata import MetadataResponse

NOT_LEADER = errors.NotLeaderOrFollowerError.code


def led_by(node_id: int, epoch: int) -> MetadataResponse:
    """Topic t with one partition, led by that one of three nodes."""
    response = metadata_response({"t": 1}, brokers=3, leader_epoch=epoch)
    response.topics[0].partitions[0].leader_id = node_id
    return response


@pytest.fixture
def h() -> SenderHarness:
    harness = SenderHarness(brokers=3)
    harness.client._last_metadata = None  # only the test updates the metadata
    return harness


def refuse(h: SenderHarness, request: ClientRequest, leader: int, epoch: int) -> None:
    """Answer that another node leads."""
    answer = h.response(request, NOT_LEADER, current_leader=LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch))
    answer.node_endpoints = [NodeEndpoint(node_id=leader, host="localhost", port=9092 + leader)]
    h.client.respond(answer, request=request)
    h.step()


def test_the_answer_names_another_leader(h: SenderHarness) -> None:
    (future,), request = h.request(b"a")
    refuse(h, request, leader=1, epoch=5)
    (again,) = h.send()
    assert (again.node_id, values_of(again)) == (1, [b"a"])
    h.answer(again)
    assert future.get(0).offset == 0


def test_metadata_name_another_leader_while_it_backs_off(h: SenderHarness) -> None:
    _, request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    assert h.send() == []
    h.client.update_metadata(led_by(2, 1))
    (again,) = h.send()
    assert again.node_id == 2


def test_the_leader_changed_before_the_answer_came(h: SenderHarness) -> None:
    _, request = h.request(b"a")
    h.client.update_metadata(led_by(2, 1))
    h.lose(request)
    (again,) = h.send()
    assert again.node_id == 2


def test_the_same_leader_is_waited_for(h: SenderHarness) -> None:
    _, request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    h.client.update_metadata(led_by(0, 0))
    assert h.send() == []
    assert len(h.retry()) == 1


def test_each_new_leader_is_tried_once_without_waiting(h: SenderHarness) -> None:
    _, request = h.request(b"a")
    refuse(h, request, leader=1, epoch=1)
    (second,) = h.send()
    h.answer(second, NOT_LEADER)
    assert h.send() == []
    h.client.update_metadata(led_by(2, 2))
    (third,) = h.send()
    assert third.node_id == 2
    h.answer(third, NOT_LEADER)
    assert h.send() == []
    assert [request.node_id for request in h.retry()] == [2]


def test_brokers_that_tell_no_epochs_are_waited_for(h: SenderHarness) -> None:
    h.client.update_metadata(led_by(0, -1))
    _, request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    h.client.update_metadata(led_by(1, -1))
    assert h.send() == []
    assert [request.node_id for request in h.retry()] == [1]


def test_the_poll_does_not_sleep_over_a_new_leader(h: SenderHarness) -> None:
    _, request = h.request(b"a")
    h.answer(request, NOT_LEADER)
    h.step()
    assert 0 < h.client.polls[-1] <= BACKOFF_MS
    h.client.update_metadata(led_by(1, 1))
    h.step()
    assert h.client.sent[-1].node_id == 1, "it was sent in this turn"
