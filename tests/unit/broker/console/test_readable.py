"""Bytes as text that a person can read, whatever they are."""

from __future__ import annotations

import struct
import uuid

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.console.readable import LINE_CHARACTERS, Undecodable, line_of, raw_views, readable


def shown(content: bytes | None, **options) -> tuple[str, str]:
    found = readable(content, -1 if content is None else len(content), **options)
    return found.format, found.text


def test_null_and_empty_are_named():
    assert shown(None) == ("null", "null")
    assert shown(b"") == ("empty", "")


def test_json_is_laid_out_and_its_numbers_stay_as_written():
    assert shown(b'{"a": 1.0, "b": [1e400, -0.10]}', pretty=False) == ("json", '{"a": 1.0, "b": [1e400, -0.10]}')
    assert shown(b'{"a":[1,{}]}') == ("json", '{\n  "a": [\n    1,\n    {}\n  ]\n}')


def test_half_of_a_surrogate_pair_in_json_becomes_an_escape():
    kind, text = shown(b'["\\ud800"]', pretty=False)
    assert (kind, text) == ("json", '["\\ud800"]')
    text.encode()


def test_a_number_alone_is_text():
    assert shown(b"12") == ("text", "12")


def test_json_that_is_nested_too_deeply_is_shown_as_text():
    content = b"[" * 5_000 + b"]" * 5_000
    found = readable(content, len(content))
    assert (found.format, found.text) == ("text", content.decode())
    deep = b"[" * 150 + b"]" * 150
    assert "nested too deeply" in readable(deep, len(deep)).note


def test_messagepack_with_bytes_and_other_keys():
    packed = msgpack.packb({1: b"\xff", "at": [None, True, 2.5]})
    assert shown(packed, pretty=False) == ("msgpack", '{"1": {"base64": "/w=="}, "at": [null, true, 2.5]}')


def test_what_only_begins_like_messagepack_is_hexadecimal():
    assert shown(b"\x82\xff\x00", pretty=False) == ("hex", "82 ff 00")


def test_text_with_characters_that_reorder_or_hide_has_escapes():
    assert shown("a\u202eb\u200b".encode()) == ("text", "a\\u202eb\\u200b")
    assert shown(b"<script>alert(1)</script>") == ("text", "<script>alert(1)</script>")


def test_bytes_are_a_dump():
    kind, text = shown(b"\x01A" * 10)
    assert kind == "hex"
    assert text.splitlines()[0] == "000000  01 41 01 41 01 41 01 41 01 41 01 41 01 41 01 41  .A.A.A.A.A.A.A.A"
    assert len(text.splitlines()) == 2


def test_what_is_cut_says_so_and_may_end_within_a_character():
    found = readable("Zoë".encode()[:3], 9_000)
    assert (found.format, found.text, found.note) == ("text", "Zo", "the first 3 of 9,000 bytes")
    # half of a JSON text is text
    assert readable(b'{"a": 1', 100).format == "text"


def test_a_row_has_the_start_of_the_text():
    found = readable(b"x" * 1_000, 1_000, pretty=False)
    assert line_of(found) == "x" * LINE_CHARACTERS + "…"
    assert line_of(readable(b"x", 1)) == "x"


FRAMED = struct.pack(">BI", 0, 7) + b"data"


def test_data_of_a_schema_is_decoded_with_it():
    asked = []

    def decode(schema, data):
        asked.append((schema, data))
        return "avro", {"name": "lamp"}

    found = readable(FRAMED, len(FRAMED), decode=decode, pretty=False)
    assert (found.format, found.text, found.note) == ("avro", '{"name": "lamp"}', "schema 7")
    guid = uuid.uuid4()
    readable(b"data", 4, b"\x01" + guid.bytes + b"\x00", decode)
    assert asked == [(7, b"data"), (str(guid), b"\x00data")]


def test_data_that_cannot_be_decoded_is_shown_with_the_reason():
    def decode(schema, data):
        raise Undecodable("the schema registry has no such schema (status 404)")

    found = readable(FRAMED, len(FRAMED), decode=decode, pretty=False)
    assert (found.format, found.text) == ("hex", FRAMED.hex(" "))
    assert found.note == "schema 7: the schema registry has no such schema (status 404)"
    assert "no schema registry" in readable(FRAMED, len(FRAMED)).note


def test_json_with_a_schema_is_readable_without_a_registry():
    content = struct.pack(">BI", 0, 7) + b'{"a": 1}'
    found = readable(content, len(content), pretty=False)
    assert (found.format, found.text, found.note) == ("json", '{"a": 1}', "schema 7")


def test_the_raw_views_have_every_byte():
    assert raw_views(b"a\xff\n") == {
        "text": "a\\xff\n",
        "hex": "000000  61 ff 0a                                         a..",
    }
    assert raw_views(None) == {"text": "null", "hex": ""}


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_become_printable_text(content, is_cut, pretty):
    found = readable(content, len(content) + 1_000 * is_cut, pretty=pretty)
    found.text.encode()
    assert all(each.isprintable() or each in "\n\t" for each in found.text)
    if not pretty:
        assert "\n" not in found.text


@pytest.mark.parametrize("content", [b"\xc1", b"\x80", b"\x90", b"{", b"[1", b"\x00" * 5, b"\xff" * 5])
def test_bytes_at_the_edge_of_a_format(content):
    assert shown(content)[0] in ("text", "hex", "msgpack")
