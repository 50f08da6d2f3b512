"""Text for people."""

from __future__ import annotations

import pytest

from headrace.network.text import counted, duration_text, size_text, table


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999.4, "999 ms"),
        (1000, "1 s"),
        (1540, "1.5 s"),
        (119_900, "119.9 s"),
        (180_000, "3 min"),
        (9_000_000, "2.5 h"),
        (12 * 86_400_000, "12 days"),
    ],
)
def test_durations(milliseconds, text):
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (20 * 2**20, "20.0 MiB"), (2**40, "1.0 TiB")],
)
def test_sizes(size_bytes, text):
    assert size_text(size_bytes) == text


def test_a_table_aligns_text_left_and_numbers_right():
    assert table(("name", "count"), [("a", 1), ("longer", 100)]).splitlines() == [
        "name    count",
        "a           1",
        "longer    100",
    ]
    assert table(("name", "count"), []) == "name  count"


def test_nouns_follow_their_number():
    assert (counted(1, "broker"), counted(0, "broker"), counted(2000, "batch", "batches")) == (
        "1 broker",
        "0 brokers",
        "2,000 batches",
    )
