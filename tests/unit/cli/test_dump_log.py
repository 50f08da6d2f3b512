"""`headrace dump-log`: its output for each kind of file, and the problems it reports in damaged ones."""

from __future__ import annotations

import struct

import pytest

from headrace.broker.log.producer_state import BatchMetadata, ProducerStateEntry, encode_snapshot
from headrace.cli import main
from headrace.network.records.batch import RecordBatch
from headrace.network.records.builder_cy import build_batch
from headrace.network.records.compression import Compression
from headrace.network.records.legacy import build_message_set

SEGMENT = "00000000000000000010"
T = 1_600_000_000_000


def batch(base_offset, count=2, *, time=T, **keywords):
    records = [(time + number, b"k%d" % number, b"v%d" % number * 40) for number in range(count)]
    built = build_batch(records, base_offset=base_offset, **keywords)
    RecordBatch(built).set_partition_leader_epoch(3)
    return bytes(built)


@pytest.fixture
def dump(tmp_path, capsys):
    """A function that writes a file and dumps it: exit code and output."""

    def dump(name, content, *options):
        path = tmp_path / name
        path.write_bytes(content)
        code = main(["dump-log", *options, str(path)])
        return code, capsys.readouterr().out.replace(f"{tmp_path}/", "")

    return dump


BATCHES = [
    batch(10, 2, compression=Compression.GZIP),
    batch(12, 1, time=T + 100, producer_id=7, producer_epoch=1, base_sequence=5),
    batch(13, 3, time=T + 50, producer_id=7, producer_epoch=1, base_sequence=6),
]
LOG = b"".join(BATCHES)
AT = [0, len(BATCHES[0]), len(BATCHES[0]) + len(BATCHES[1])]


def test_a_segment(dump):
    code, out = dump(f"{SEGMENT}.log", LOG)
    assert code == 0
    assert out.splitlines() == [
        f"{SEGMENT}.log ({len(LOG)} B)",
        f"  byte 0: offsets 10 to 11, 2 records, {len(BATCHES[0])} bytes, v2 gzip, 2020-09-13 12:26:40.001, "
        "leader epoch 3",
        f"  byte {AT[1]}: offset 12, 1 record, {len(BATCHES[1])} bytes, v2 none, 2020-09-13 12:26:40.100, "
        "leader epoch 3, producer 7 epoch 1 sequence 5",
        f"  byte {AT[2]}: offsets 13 to 15, 3 records, {len(BATCHES[2])} bytes, v2 none, 2020-09-13 12:26:40.052, "
        "leader epoch 3, producer 7 epoch 1 sequence 6 to 8",
        "  3 batches, 6 records, offsets 10 to 15",
    ]


def test_records_of_a_segment(dump):
    content = bytes(
        build_batch(
            [(T, None, b"text"), (T, b"\xff", None, [("h", b"1"), ("n", None)]), (-1, b"", b"a longer one")],
            base_offset=10,
        )
    )
    code, out = dump(f"{SEGMENT}.log", content, "--records", "--width", "8")
    assert code == 0
    assert out.splitlines()[2:5] == [
        "    10  2020-09-13 12:26:40.000  null  text",
        '    11  2020-09-13 12:26:40.000  "\\xff"  null  {h: 1, n: null}',
        '    12  -  ""  a longer… (12 bytes)',
    ]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_formats(dump, magic, codec):
    content = bytes(build_message_set([(T, b"k", b"v"), (T + 5, None, None)], magic=magic, compression=codec))
    code, out = dump(f"{0:020d}.log", content, "--records")
    assert code == 0
    assert f"v{magic} {codec.name.lower()}" in out
    time = "-" if magic == 0 else "2020-09-13 12:26:40.000"
    assert f"    0  {time}  k  v" in out
    assert out.endswith(" 2 records, offsets 0 to 1\n")


def test_control_batches(dump):
    content = bytearray(build_batch([(T, struct.pack(">hh", 0, 1), b"\0\0\0\0\0\0")], base_offset=10, producer_id=4))
    struct.pack_into(">h", content, 21, 0x30)
    RecordBatch(content).set_max_timestamp(RecordBatch(content).timestamp_type, T + 1)
    code, out = dump(f"{SEGMENT}.log", bytes(content), "-r")
    assert code == 0
    assert ", transactional, control" in out
    assert "    10  2020-09-13 12:26:40.000  commit\n" in out


def with_byte(content, at, value):
    return content[:at] + bytes([value]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (with_byte(LOG, AT[1] + 65, 0xEE), f"byte {AT[1]}: the batch at offset 12 is damaged: its CRC is "),
        (LOG[:-1], f"byte {AT[2]}: the file ends within a batch of {len(BATCHES[2])} bytes: only "),
        (LOG[: AT[2] + 9], f"byte {AT[2]}: the file ends within the header of a batch: only 9 bytes are present"),
        (LOG + bytes(4096), f"byte {len(LOG)}: zeros up to the end, 4096 bytes"),
        (LOG[: AT[1]] + bytes(50) + LOG, f"byte {AT[1]}: no batch begins here, 57 zeros do; {50 + len(LOG)} bytes"),
        (with_byte(LOG, AT[1] + 16, 9), f"byte {AT[1]}: no batch begins here: its format would be v9; "),
        (LOG[: AT[1]] + b"\xff" * 40, f"byte {AT[1]}: no batch begins here: its format would be v255; 40 bytes"),
        (with_byte(LOG, AT[1] + 8, 0x80), f"byte {AT[1]}: no batch begins here: its length would be -"),
        (BATCHES[1] + BATCHES[0], f"byte {len(BATCHES[1])}: offset 10 after 12: offsets have to ascend"),
        (BATCHES[0] * 2, f"byte {AT[1]}: offset 10 after 11: offsets have to ascend"),
        (batch(3, 1), "byte 0: offset 3 after 9: offsets have to ascend"),
    ],
)
def test_a_damaged_segment(dump, content, problem):
    code, out = dump(f"{SEGMENT}.log", content)
    assert code == 1
    assert f"  WRONG at {problem}" in out
    assert out.endswith(f"\n1 of 1 files are damaged: {SEGMENT}.log\n")


def test_records_that_are_none_under_a_right_crc(dump):
    content = bytearray(batch(10, 2, compression=Compression.GZIP))
    content[70:80] = bytes(10)
    built = RecordBatch(content)
    built.set_max_timestamp(built.timestamp_type, T + 3)
    code, out = dump(f"{SEGMENT}.log", bytes(content), "--records")
    assert code == 1
    assert "WRONG at byte 0: " in out
    assert "CRC" not in out


def test_a_descending_leader_epoch(dump):
    content = bytearray(LOG)
    RecordBatch(memoryview(content)[AT[1] :]).set_partition_leader_epoch(2)
    code, out = dump(f"{SEGMENT}.log", bytes(content))
    assert (code, out.count("WRONG")) == (1, 1)
    assert f"WRONG at byte {AT[1]}: leader epoch 2 after 3: epochs can't descend" in out


def test_empty_files(dump):
    for suffix, said in (("log", "  empty"), ("index", "  0 entries"), ("timeindex", "  0 entries")):
        code, out = dump(f"{SEGMENT}.{suffix}", b"")
        assert code == 0
        assert said in out


# --- Indexes ---


def offsets(*entries):
    return b"".join(struct.pack(">ii", offset - 10, position) for offset, position in entries)


def times(*entries):
    return b"".join(struct.pack(">qi", time, offset - 10) for time, offset in entries)


def test_indexes_beside_their_log(dump, tmp_path):
    (tmp_path / f"{SEGMENT}.log").write_bytes(LOG)
    code, out = dump(f"{SEGMENT}.index", offsets((12, AT[1]), (15, AT[2])))
    assert code == 0
    assert out.splitlines()[1:] == [f"  offset 12 -> byte {AT[1]}", f"  offset 15 -> byte {AT[2]}", "  2 entries"]
    code, out = dump(f"{SEGMENT}.timeindex", times((T + 1, 11), (T + 100, 12)) + bytes(48))
    assert code == 0
    assert out.splitlines()[1:] == [
        "  2020-09-13 12:26:40.001 (1600000000001) -> offset 11",
        "  2020-09-13 12:26:40.100 (1600000000100) -> offset 12",
        "  2 entries and room for 4",
    ]


@pytest.mark.parametrize(
    ("suffix", "content", "problem"),
    [
        ("index", offsets((12, AT[1] + 1)), f"byte 0: offset 12 -> byte {AT[1] + 1}: no batch begins at {AT[1] + 1}"),
        ("index", offsets((12, 99_999)), "byte 0: offset 12 -> byte 99999: position 99999 is past the end of the log"),
        ("index", offsets((12, AT[1]), (13, AT[1])), f"byte 8: position {AT[1]} after {AT[1]}: positions have"),
        ("index", offsets((12, AT[1]), (12, AT[2])), "byte 8: offset 12 after 12: offsets have to ascend"),
        ("index", offsets((12, AT[2])), f"byte 0: offset 12 -> byte {AT[2]}: the batch at {AT[2]} begins at offset 13"),
        ("index", offsets((11, 0), (99, AT[1])), f"byte 8: offset 99 -> byte {AT[1]}: the log ends at offset 15"),
        ("index", offsets((12, AT[1])) + b"\0\0\0", "byte 8: 11 bytes are not a multiple of 8"),
        (
            "timeindex",
            times((T + 2, 11)),
            "the largest timestamp of the batch with offset 11 is 2020-09-13 12:26:40.001",
        ),
        ("timeindex", times((T + 52, 15)), "there is a later one, 2020-09-13 12:26:40.100, up to that offset"),
        (
            "timeindex",
            times((T + 100, 12), (T + 52, 15)),
            "byte 12: 2020-09-13 12:26:40.052 after 2020-09-13 12:26:40.1",
        ),
        ("timeindex", times((T + 100, 99)), "the log ends at offset 15"),
        ("timeindex", times((T + 1, 11)) + b"\0", "byte 12: 13 bytes are not a multiple of 12"),
    ],
)
def test_a_damaged_index(dump, tmp_path, suffix, content, problem):
    (tmp_path / f"{SEGMENT}.log").write_bytes(LOG)
    code, out = dump(f"{SEGMENT}.{suffix}", content)
    assert code == 1
    assert "WRONG at byte" in out
    assert problem in out


def test_an_index_without_its_log(dump):
    code, out = dump(f"{SEGMENT}.index", offsets((12, 70)))
    assert code == 0
    assert "there is no .log beside it" in out


# --- Small files ---


def test_a_producer_snapshot(dump):
    producer = ProducerStateEntry(7, 1, last_timestamp=T)
    producer.batches.append(BatchMetadata(8, 15, 2, T))
    content = encode_snapshot([producer, ProducerStateEntry(8, 0, last_timestamp=T, current_txn_first_offset=12)])
    code, out = dump(f"{SEGMENT}.snapshot", content)
    assert code == 0
    assert out.splitlines()[1:] == [
        "  producer  epoch  last sequence  last offset  last time                open transaction from",
        "         7      1              8           15  2020-09-13 12:26:40.000  -",
        "         8      0             -1           -1  2020-09-13 12:26:40.000  12",
    ]
    code, out = dump(f"{SEGMENT}.snapshot", with_byte(content, 20, 9))
    assert code == 1
    assert "WRONG at byte 0: a producer snapshot's CRC or size doesn't fit its content" in out


def test_aborted_transactions(dump):
    content = struct.pack(">hqqqq", 0, 7, 10, 15, 16)
    code, out = dump(f"{SEGMENT}.txnindex", content)
    assert code == 0
    assert out.splitlines()[2].split() == ["7", "10", "15", "16"]
    code, out = dump(f"{SEGMENT}.txnindex", content[:-1] + content)
    assert code == 1


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("leader-epoch-checkpoint", "0\n2\n0 0\n3 10\n", None),
        ("leader-epoch-checkpoint", "0\n0\n", None),
        ("leader-epoch-checkpoint", "", "line 1: the file is empty"),
        ("leader-epoch-checkpoint", "1\n0\n", "line 1: the format's version should be 0, not '1'"),
        ("leader-epoch-checkpoint", "0\n3\n0 0\n3 10\n", "line 2: '3' entries are declared, 2 are present"),
        ("leader-epoch-checkpoint", "0\n2\n0 0\nx 10\n", "line 4: 'x 10' is not leader epoch, start offset"),
        ("leader-epoch-checkpoint", "0\n2\n3 10\n2 12\n", "line 4: epoch 2 from 12 after epoch 3 from 10: both have"),
        ("recovery-point-offset-checkpoint", "0\n1\nmy-topic 0 12\n", None),
        ("replication-offset-checkpoint", "0\n1\nmy-topic 0\n", "line 3: 'my-topic 0' is not topic, partition, high"),
    ],
)
def test_checkpoints(dump, name, content, problem):
    code, out = dump(name, content.encode())
    assert code == (problem is not None)
    if problem is not None:
        assert f"WRONG at {problem}" in out
    else:
        assert "WRONG" not in out


def test_a_file_of_no_kind_is_no_log_and_not_a_damaged_one(tmp_path, capsys):
    notes, log = tmp_path / "notes.txt", tmp_path / f"{SEGMENT}.log"
    notes.write_bytes(b"hello")
    log.write_bytes(LOG)
    assert main(["dump-log", str(log), str(notes)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"headrace dump-log: {notes} is not a log file; those are named 0000")


def test_directories_are_read_through_and_only_what_is_wrong_is_told(tmp_path, capsys):
    for partition in range(2):
        folder = tmp_path / f"t-{partition}"
        folder.mkdir()
        (folder / f"{SEGMENT}.log").write_bytes(LOG[: len(LOG) - partition])
        (folder / f"{SEGMENT}.index").write_bytes(offsets((12, AT[1])))
        (folder / "something-else").write_bytes(b"x")
    assert main(["dump-log", "--quiet", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()
    assert lines == [
        f"t-0/{SEGMENT}.log ({len(LOG)} B)",
        "  3 batches, 6 records, offsets 10 to 15",
        f"t-0/{SEGMENT}.index (8 B)",
        "  1 entries",
        f"t-1/{SEGMENT}.log ({len(LOG) - 1} B)",
        f"  WRONG at byte {AT[2]}: the file ends within a batch of {len(BATCHES[2])} bytes: "
        f"only {len(BATCHES[2]) - 1} are present",
        "  2 batches, 3 records, offsets 10 to 12",
        f"t-1/{SEGMENT}.index (8 B)",
        "  1 entries",
        "",
        f"1 of 4 files are damaged: t-1/{SEGMENT}.log",
    ]


def test_nothing_to_read(tmp_path, capsys):
    assert main(["dump-log", str(tmp_path / "missing.log")]) == 2
    assert "can't read" in capsys.readouterr().err
    assert main(["dump-log", str(tmp_path)]) == 2
    assert "has no files of a log" in capsys.readouterr().err
