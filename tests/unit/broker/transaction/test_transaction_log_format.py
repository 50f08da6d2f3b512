"""Records of the transaction log: Kafka's bytes, and round trips."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.transaction.log_format import decode_key, decode_value, encode_key, encode_value
from headrace.broker.transaction.states import TransactionState
from headrace.broker.transaction.transaction import TransactionValues

ONGOING = TransactionValues(
    7, 3, 60_000, TransactionState.ONGOING, 2000, frozenset({("u", 0), ("t", 1), ("t", 0)}), 1000, client_level=2
)


def test_a_key():
    assert encode_key("tx") == b"\0\0\0\2tx"
    assert decode_key(b"\0\0\0\2tx") == "tx"
    assert decode_key(b"\0\7rest") is None
    with pytest.raises(ValueError, match="exceeds"):
        decode_key(b"\0\0\0\x09tx")


def test_version_0():
    expected = struct.pack(">hqhib", 0, 7, 3, 60_000, 1) + struct.pack(">i", 2)
    expected += b"\0\1t" + struct.pack(">iii", 2, 0, 1) + b"\0\1u" + struct.pack(">ii", 1, 0)
    expected += struct.pack(">qq", 2000, 1000)
    assert encode_value(ONGOING, 0) == expected
    assert decode_value(expected) == ONGOING._replace(client_level=0)


def test_version_1():
    expected = struct.pack(">hqhib", 1, 7, 3, 60_000, 1) + b"\3"
    expected += b"\2t\3" + struct.pack(">ii", 0, 1) + b"\0" + b"\2u\2" + struct.pack(">i", 0) + b"\0"
    expected += struct.pack(">qq", 2000, 1000) + b"\1" + b"\2\2" + struct.pack(">h", 2)
    assert encode_value(ONGOING, 1) == encode_value(ONGOING, 2) == expected
    assert decode_value(expected) == ONGOING


def test_an_empty_transaction_has_null_for_its_partitions():
    empty = TransactionValues(7, 0, 1000, TransactionState.EMPTY, 5)
    assert struct.pack(">i", -1) in encode_value(empty, 0)
    for level in (0, 2):
        assert decode_value(encode_value(empty, level)) == empty


@pytest.mark.parametrize("cut", [1, 10, 20, 30])
def test_a_cut_value_is_an_error(cut):
    for level in (0, 2):
        with pytest.raises((ValueError, struct.error)):
            decode_value(encode_value(ONGOING, level)[:-cut])
    with pytest.raises(ValueError, match="version 9"):
        decode_value(b"\0\x09" + encode_value(ONGOING, 0)[2:])


@given(
    st.builds(
        TransactionValues,
        st.integers(0, 2**63 - 1),
        st.integers(0, 32_767),
        st.integers(0, 2**31 - 1),
        st.sampled_from(list(TransactionState)),
        st.integers(0, 2**62),
        st.frozensets(st.tuples(st.text("abc.-_", min_size=1, max_size=200), st.integers(0, 1000)), max_size=20),
        st.integers(-1, 2**62),
        last_producer_epoch=st.just(-1),
        previous_producer_id=st.integers(-1, 2**63 - 1),
        next_producer_id=st.integers(-1, 2**63 - 1),
        client_level=st.integers(0, 2),
    ),
    st.integers(0, 2),
)
def test_what_is_written_is_read(values, level):
    if values.state is TransactionState.EMPTY:
        values = values._replace(partitions=frozenset())
    if not level:
        values = values._replace(previous_producer_id=-1, next_producer_id=-1, client_level=0)
    assert decode_value(encode_value(values, level)) == values
