"""SASLprep, with the examples of RFC 4013."""

from __future__ import annotations

import pytest

from headrace.network.security.saslprep import saslprep


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("pa\u0308ss", "p\u00e4ss"),
        ("", ""),
        ("\u0627\u0628", "\u0627\u0628"),
    ],
)
def test_text_is_mapped_and_normalized(text, prepared):
    assert saslprep(text) == prepared


@pytest.mark.parametrize("text", ["\u0007", "a\x00b", "a\ue000", "\ud800", "\u0221"])
def test_prohibited_characters_are_refused_without_being_shown(text):
    with pytest.raises(ValueError, match="prohibits") as failed:
        saslprep(f"secret{text}")
    assert "secret" not in str(failed.value)


def test_mixed_directions_are_refused():
    with pytest.raises(ValueError, match="right to left"):
        saslprep("\u0627\u0031")
