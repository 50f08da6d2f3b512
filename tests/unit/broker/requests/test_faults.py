"""Faults without any effect are rejected at construction."""

from __future__ import annotations

import pytest

from headrace.broker.requests.faults import Fault
from headrace.network.protocol.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    KafkaError,
    NotLeaderForPartitionError,
    UnrecognizedBrokerError,
)
from headrace.network.protocol.messages.groups.heartbeat import HeartbeatResponse

ERROR = NotLeaderForPartitionError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the fault has nothing, so it does nothing; give it error, response"),
        ({"delay_ms": 0}, "does nothing"),
        ({"topic": "t"}, "the fault has only topic, so it does nothing"),
        ({"topic": "t", "partition": 3}, "only topic and partition"),
        ({"close": False, "silent": False}, "does nothing"),
        ({"delay_ms": "x"}, r"delay_ms is 'x' \(str\); give a number of milliseconds"),
        ({"delay_ms": "100"}, r"delay_ms is '100' \(str\)"),
        ({"delay_ms": -1}, "delay_ms is -1"),
        ({"delay_ms": True}, "delay_ms is True"),
        ({"delay_ms": float("nan")}, "delay_ms is nan"),
        ({"delay_ms": float("inf")}, "delay_ms is inf"),
        ({"throttle_ms": 1.5}, r"throttle_ms is 1.5 \(float\); give a whole number"),
        ({"throttle_ms": 2**31}, "throttle_ms is 2147483648"),
        ({"cut_after_bytes": -1}, "cut_after_bytes is -1"),
        ({"error": "NotLeaderForPartitionError"}, r"error is 'NotLeader.* \(str\); give the class of an error"),
        ({"error": ERROR("oh")}, "give the class of an error"),
        ({"error": KafkaError}, "give the class of an error"),
        ({"error": BrokerResponseError}, "give the class of an error"),
        ({"error": UnrecognizedBrokerError}, "give the class of an error"),
        ({"error": ERROR, "topic": 7}, r"topic is 7 \(int\)"),
        ({"error": ERROR, "topic": ""}, "topic is ''"),
        ({"error": ERROR, "topic": "t", "partition": "0"}, r"partition is '0' \(str\)"),
        ({"error": ERROR, "partition": 1}, "partition 1 has no topic"),
        ({"close": 1}, r"close is 1 \(int\); give True or False"),
        ({"response": b"abc"}, "response is b'abc'"),
        ({"response": HeartbeatResponse(), "error": ERROR}, "response is the whole answer"),
        ({"close": True, "silent": True}, "close and silent exclude each other"),
        ({"lose_answer": True, "cut_after_bytes": 0}, "lose_answer and cut_after_bytes exclude each other"),
        ({"close": True, "delay_ms": 5}, "close leaves the request unhandled, so delay_ms would do nothing"),
    ],
)
def test_a_fault_that_can_not_be_meant(fields, message):
    with pytest.raises(IllegalArgumentError, match=message):
        Fault(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"error": ERROR},
        {"error": ERROR, "topic": "t", "partition": 0},
        {"error": ERROR, "lose_answer": True, "delay_ms": 0.5},
        {"close": True, "topic": "t"},
        {"cut_after_bytes": 0},
        {"response": HeartbeatResponse(), "throttle_ms": 3},
    ],
)
def test_a_fault_that_can(fields):
    Fault(**fields)
