from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network import _build
from headrace.network.protocol.errors import EncodeError
from headrace.network.records import headers_cy as installed
from headrace.network.records.batch import RecordBatch
from headrace.network.records.builder_cy import build_batch

interpreted = _build.interpreted("headrace.network.records.headers_cy")
both = pytest.mark.parametrize("module", [installed, interpreted], ids=["as installed", "interpreted"])

PAIRS = st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary()), max_size=80)


def decoded(headers: Any) -> tuple:
    record = next(iter(RecordBatch(build_batch([(1, None, b"v", headers)])).records()))
    return tuple(record.headers)


@both
def test_the_bytes(module: Any) -> None:
    assert module.encode_headers([]) == b"\0"
    assert module.encode_headers([("a", b"xy"), ("ü", None), ("", b"")]) == (
        b"\x06"  # three headers
        b"\x02a\x04xy"
        b"\x04\xc3\xbc\x01"
        b"\x00\x00"
    )


@both
@pytest.mark.parametrize("length", [0, 1, 63, 64, 8191, 8192, 1 << 20])
def test_lengths_at_the_bounds_of_varints(module: Any, length: int) -> None:
    headers = [("n" * length, b"v" * length), ("ü" * (length // 2), b"")]
    assert module.encode_headers(headers) == interpreted.encode_headers(headers)
    assert decoded(headers) == tuple(headers)


@given(pairs=PAIRS)
def test_what_was_encoded_is_what_a_reader_finds(pairs: list) -> None:
    assert installed.encode_headers(pairs) == interpreted.encode_headers(pairs)
    assert decoded(pairs) == tuple(pairs)


@both
@pytest.mark.parametrize(
    "headers",
    [
        (("a", b"1"), ("b", None)),
        [["a", b"1"], ["b", None]],
        {"a": b"1", "b": None}.items(),
        [("a", bytearray(b"1")), ("b", None)],
        [("a", memoryview(b"1")), ("b", None)],
        [("a", memoryview(b"1_2_")[:1]), ("b", None)],
    ],
)
def test_every_form_of_pairs(module: Any, headers: Any) -> None:
    assert module.encode_headers(headers) == b"\x04\x02a\x021\x02b\x01"
    assert module.encode_headers(iter(headers)) == b"\x04\x02a\x021\x02b\x01"


@both
def test_a_memoryview_of_wider_items_is_its_bytes(module: Any) -> None:
    value = array("i", [1, 2, 3])
    assert module.encode_headers([("a", memoryview(value))]) == module.encode_headers([("a", value.tobytes())])


@both
def test_a_name_that_is_not_text_is_an_error(module: Any) -> None:
    with pytest.raises(UnicodeEncodeError):
        module.encode_headers([("\ud800", b"")])
    with pytest.raises(EncodeError, match="pair of a string and bytes"):
        module.encode_headers({"ab c": b""})
