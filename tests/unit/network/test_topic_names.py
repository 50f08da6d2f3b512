from __future__ import annotations

import enum

import pytest

from headrace.network.protocol.errors import InvalidTopicError
from headrace.network.topic_names import validate_topic_name


class Topic(str, enum.Enum):
    ORDERS = "orders"
    EMPTY = ""


@pytest.mark.parametrize("name", ["t", "a.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_a_legal_name_passes(name: str) -> None:
    assert validate_topic_name(name) is name


def test_a_member_of_an_enum_is_its_text() -> None:
    name = validate_topic_name(Topic.ORDERS)
    assert (type(name), name) == (str, "orders")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("", "''"),
        (".", "'.'"),
        ("..", "'..'"),
        ("sp ace", "'sp ace'"),
        ("t\n", r"'t\\n'"),
        ("ä", "'ä'"),
        ("x" * 250, r"'x+ \(250 characters\)"),
        (None, "NoneType None"),
        (b"t", "bytes b't'"),
        (Topic.EMPTY, "''"),
        (enum.Enum("Plain", {"T": "t"}).T, "Plain <Plain.T: 't'>"),
    ],
)
def test_an_illegal_one_is_shown_with_the_rule(name: object, what: str) -> None:
    with pytest.raises(InvalidTopicError, match=f"^{what} can't be the name of a topic: .* 1 to 249 ASCII letters"):
        validate_topic_name(name)


def test_a_huge_name_is_not_repeated() -> None:
    with pytest.raises(InvalidTopicError) as refused:
        validate_topic_name("x" * 1_000_000)
    assert len(str(refused.value)) < 300
