"""SASLprep (RFC 4013): the form in which names and passwords are compared."""

from __future__ import annotations

import stringprep
import unicodedata
from collections.abc import Callable

_PROHIBITED: tuple[Callable[[str], bool], ...] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str:
    """The prepared form of a name or a password, for a stored string.

    Raises ValueError for text that RFC 4013 prohibits. The message names the rule, never the text, which may be a
    secret, and continues a sentence that starts with the name of the value.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if any(is_prohibited(character) for character in prepared for is_prohibited in _PROHIBITED):
        raise ValueError("has a character that SASLprep (RFC 4013) prohibits, such as a control character")
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        raise ValueError("mixes characters written from right to left with others, which SASLprep (RFC 4013) prohibits")
    return prepared
