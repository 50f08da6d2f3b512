"""The errors that a producer remembers for its description."""

from __future__ import annotations

from support.sender_harness import SenderHarness

from headrace.network.protocol.errors import InvalidRequestError, NotLeaderForPartitionError
from headrace.producer.sender.recent_errors import MAX_REMEMBERED, RecentErrors


def test_the_same_error_of_a_topic_is_counted_and_becomes_the_latest():
    errors = RecentErrors()
    errors.note("a", ValueError("first"), 3, 10.0, failed=False)
    errors.note("b", ValueError("other"), 1, 20.0, failed=True)
    errors.note("a", ValueError("second"), 4, 30.0, failed=True)
    errors.note("a", ValueError("third"), 5, 40.0, failed=False)
    assert [(each.topic, each.error, each.at_ms, each.failed, each.retried) for each in errors.latest_first()] == [
        ("a", "ValueError: third", 40.0, 4, 8),
        ("b", "ValueError: other", 20.0, 1, 0),
    ]


def test_only_the_last_errors_are_kept():
    errors = RecentErrors()
    for number in range(MAX_REMEMBERED + 5):
        errors.note(f"t{number}", ValueError(), 1, float(number), failed=True)
    assert [each.topic for each in errors.latest_first()] == [
        f"t{number}" for number in range(MAX_REMEMBERED + 4, 4, -1)
    ]


def test_the_sender_notes_what_it_retries_and_what_fails():
    harness = SenderHarness()
    _, request = harness.request(b"a", b"b")
    harness.answer(request, error_code=NotLeaderForPartitionError.code)
    (noted,) = harness.sender.recent_errors.latest_first()
    assert (noted.topic, noted.failed, noted.retried) == ("t", 0, 2)
    assert noted.error.startswith("NotLeaderForPartitionError: ")
    (again,) = harness.retry()
    harness.answer(again, error_code=InvalidRequestError.code)
    latest, before = harness.sender.recent_errors.latest_first()
    assert (latest.failed, latest.retried, latest.at_ms) == (2, 0, harness.clock.now_ms())
    assert latest.error.startswith("InvalidRequestError: ")
    assert before == noted
