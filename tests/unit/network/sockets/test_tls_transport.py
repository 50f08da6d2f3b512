"""The transport against itself: every way to write, what reaches the socket, and the ends of a stream."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tls import Credentials, TlsPair

from headrace.network.protocol.errors import DisconnectedError, IllegalStateError
from headrace.network.sockets.tls_transport_cy import PIECE_BYTES
from headrace.network.sockets.transport import FileRegion

#: Recognized on the wire wherever it is cut.
SECRET = b"plaintext-" * 10
#: The types of a record: change_cipher_spec, alert, handshake, application data.
RECORD_TYPES = range(20, 24)


@pytest.fixture(params=["TLSv1.2", "TLSv1.3"])
def pair(request: pytest.FixtureRequest, credentials: Credentials) -> Iterator[TlsPair]:
    pair = TlsPair(credentials.client_contexts(ssl_enabled_protocols=request.param), credentials.server_contexts())
    pair.shake_hands()
    yield pair
    pair.close()


def records(wire: bytes) -> list[tuple[int, bytes]]:
    """The records in a captured stream, which has nothing else."""
    found = []
    at = 0
    while at < len(wire):
        kind, version, size = wire[at], wire[at + 1], int.from_bytes(wire[at + 3 : at + 5], "big")
        assert kind in RECORD_TYPES
        assert version == 3
        assert at + 5 + size <= len(wire)
        found.append((kind, wire[at + 5 : at + 5 + size]))
        at += 5 + size
    return found


def check_wire(pair: TlsPair) -> None:
    """All that passed is records, and none has plaintext."""
    while pair.relay():
        pass
    for wire in pair.wire:
        records(bytes(wire))
        assert SECRET[:10] not in wire


@pytest.mark.parametrize(
    "buffers",
    [
        [SECRET],
        [SECRET[:3], SECRET[3:]],
        [b"h", SECRET * 1000, b"t"],
        [SECRET * 10_000],
        [SECRET[:5], SECRET * 10_000, SECRET[5:], SECRET * 500, SECRET * 3],
        [SECRET] * 5_000,
        [b"", SECRET, b""],
    ],
)
def test_gather_writes(pair: TlsPair, buffers: list[bytes]) -> None:
    for to_client in (False, True):
        assert pair.transfer([each for each in buffers if each], to_client=to_client) == b"".join(buffers)
    check_wire(pair)


def test_small_pieces_share_records(pair: TlsPair) -> None:
    """A header and the first bytes of a batch, for instance."""
    while pair.relay():
        pass
    before = len(records(bytes(pair.wire[0])))
    pair.transfer([b"header", SECRET, b"footer"])
    assert len(records(bytes(pair.wire[0]))) == before + 1


def test_a_full_socket_bounds_what_is_encrypted(pair: TlsPair) -> None:
    view = memoryview(SECRET * 100_000)
    taken = pair.client.write([view])
    assert pair.client.has_pending_writes
    assert 0 < taken < len(view)
    assert pair.client.write([view[taken:]]) == 0
    sent = 0
    while pair.client.has_pending_writes:
        sent += pair.relay()
        drain(pair)
        pair.client.write(())
    drain(pair)
    assert sent < taken + PIECE_BYTES
    check_wire(pair)


def drain(pair: TlsPair) -> int:
    scratch = memoryview(bytearray(1 << 20))
    total = 0
    while count := pair.server.read_into(scratch):
        total += count
    return total


def test_file_regions(pair: TlsPair, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" + SECRET * 10_000 + b"end")
    data = path.read_bytes()
    region_size = len(data) - 1
    with path.open("rb") as file:
        region = FileRegion(file, 1, region_size)
        done, received = 0, 0
        while done < region_size:
            done += pair.client.write_file(region, done) or 0
            pair.relay()
            received += drain(pair)
        while received < region_size:
            pair.client.write(())
            pair.relay()
            received += drain(pair)
        assert received == region_size
        assert pair.client.write_file(FileRegion(file, len(data), 10), 0) == 0
    check_wire(pair)


def test_nothing_is_written_before_the_handshake(credentials: Credentials) -> None:
    pair = TlsPair(credentials.client_contexts(), credentials.server_contexts())
    with pytest.raises(IllegalStateError):
        pair.client.write([memoryview(SECRET)])
    pair.client.handshake()
    with pytest.raises(IllegalStateError):
        pair.client.write([memoryview(SECRET)])
    with open(os.devnull, "rb") as nothing, pytest.raises(IllegalStateError):
        pair.client.write_file(FileRegion(nothing, 0, 1), 0) or pair.client.write([memoryview(SECRET)])
    check_wire(pair)
    pair.close()


def test_nothing_is_written_after_close(pair: TlsPair) -> None:
    pair.client.close()
    with pytest.raises(IllegalStateError):
        pair.client.write([memoryview(SECRET)])
    check_wire(pair)


def test_reads_into_a_small_buffer(pair: TlsPair) -> None:
    pair.client.write([memoryview(SECRET)])
    pair.relay()
    received = b""
    scratch = memoryview(bytearray(7))
    while len(received) < len(SECRET):
        count = pair.server.read_into(scratch)
        assert count
        received += scratch[:count]
        assert pair.server.has_buffered_reads == (len(received) < len(SECRET))
    assert received == SECRET
    assert pair.server.read_into(scratch) is None


def test_close_notify_ends_the_stream(pair: TlsPair) -> None:
    pair.client.write([memoryview(SECRET)])
    pair.client.close()
    pair.client.close()
    pair.relay()
    scratch = memoryview(bytearray(1000))
    assert pair.server.read_into(scratch) == len(SECRET)
    assert pair.server.has_buffered_reads
    assert pair.server.read_into(scratch) == 0
    assert pair.server.read_into(scratch) == 0
    assert pair.wire[0][-1:]  # the alert


def test_a_cut_inside_a_record_ends_the_stream(pair: TlsPair) -> None:
    pair.relay(iter([0, 0]))
    pair.client.write([memoryview(SECRET)])
    pair.relay(iter([20, 0]))
    pair._server_end.close()
    scratch = memoryview(bytearray(1000))
    assert pair.server.read_into(scratch) == 0
    pair._server_end = pair._client_end.dup()


def test_a_damaged_record_is_an_error_and_not_data(pair: TlsPair) -> None:
    pair.client.write([memoryview(SECRET)])
    pair.relay(iter([0, 0]))
    held = pair._held[0]
    held[-1] ^= 0xFF
    pair.relay()
    scratch = memoryview(bytearray(1000))
    for _ in range(2):
        with pytest.raises(DisconnectedError, match="TLS connection broke"):
            pair.server.read_into(scratch)
        assert pair.server.has_buffered_reads


def test_data_before_a_damaged_record_is_delivered_first(pair: TlsPair) -> None:
    pair.client.write([memoryview(SECRET)])
    pair.client.write([memoryview(SECRET)])
    pair.relay(iter([0, 0]))
    pair._held[0][-1] ^= 0xFF
    pair.relay()
    scratch = memoryview(bytearray(1000))
    assert pair.server.read_into(scratch) == len(SECRET)
    with pytest.raises(DisconnectedError, match="TLS connection broke"):
        pair.server.read_into(scratch)


def test_a_handshake_waits_for_room_in_the_socket(credentials: Credentials) -> None:
    """The relay carries one byte at a time, so every step of both handshakes is resumed many times."""
    pair = TlsPair(credentials.client_contexts(), credentials.server_contexts())
    pair.shake_hands(iter([1] * 100_000))
    assert pair.transfer([SECRET]) == SECRET
    pair.close()


def test_the_peers_certificate(pair: TlsPair) -> None:
    certificate = pair.client.ssl_object.getpeercert()
    assert ("DNS", "localhost") in certificate["subjectAltName"]
    assert isinstance(pair.client.ssl_object, ssl.SSLObject)
