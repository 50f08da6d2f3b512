"""`headrace produce` against an embedded cluster: every format, templates, bad rows, and going on after an end."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timezone

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from headrace.broker import EmbeddedCluster, Fault
from headrace.cli import main
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import InvalidRecordError

HEADRACE = [sys.executable, "-m", "headrace.cli"]
ROWS = [{"id": 1, "city": "Zürich", "note": None}, {"id": 2, "city": "Oslo", "note": "x"}]
AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


@pytest.fixture
def cluster():
    with EmbeddedCluster() as started:
        yield started


@pytest.fixture
def produce(cluster):
    def run(*arguments) -> int:
        return main(["produce", "-b", cluster.bootstrap_servers, "--topic", "t", *map(str, arguments)])

    return run


def values(cluster, topic="t") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, 0)]


def write_jsonl(path):
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def write_avro(path):
    with path.open("wb") as file:
        fastavro.writer(file, AVRO, ROWS)


def write_parquet(path):
    pq.write_table(pa.Table.from_pylist(ROWS), path)


def write_arrow_file(path):
    with pa.ipc.new_file(path, pa.Table.from_pylist(ROWS).schema) as writer:
        writer.write_table(pa.Table.from_pylist(ROWS))


def write_arrow_stream(path):
    with pa.ipc.new_stream(path, pa.Table.from_pylist(ROWS).schema) as writer:
        writer.write_table(pa.Table.from_pylist(ROWS))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rows.jsonl", write_jsonl),
        ("rows.avro", write_avro),
        ("rows.parquet", write_parquet),
        ("rows.arrow", write_arrow_file),
        ("rows.feather", write_arrow_stream),
    ],
)
def test_the_rows_of_each_format(cluster, produce, tmp_path, name, write):
    write(tmp_path / name)
    assert produce("--key", "{id}", "--header", "city={city}", "--header", "note={note}", tmp_path / name) == 0
    records = cluster.records("t", 0)
    assert [json.loads(record.value or b"") for record in records] == ROWS
    assert [record.key for record in records] == [b"1", b"2"]
    assert [list(record.headers) for record in records] == [
        [("city", "Zürich".encode()), ("note", None)],
        [("city", b"Oslo"), ("note", b"x")],
    ]


def test_csv_has_a_header_and_text_in_its_cells(cluster, produce, tmp_path):
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], ["1", 'two\n"lines"'], ["2", ""]])
    assert produce(tmp_path / "rows.csv") == 0
    assert [json.loads(value or b"") for value in values(cluster)] == [
        {"id": "1", "text": 'two\n"lines"'},
        {"id": "2", "text": ""},
    ]


def test_lines_are_sent_as_they_are(cluster, produce, tmp_path):
    (tmp_path / "lines").write_bytes(b"one\n\ntw\xff\r\nlast")
    assert produce("--key", "k-{line}", tmp_path / "lines") == 0
    assert values(cluster) == [b"one", b"", b"tw\xff", b"last"]
    assert cluster.records("t", 0)[0].key == b"k-one"


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_files_are_decompressed(cluster, produce, tmp_path, ending, compress):
    (tmp_path / f"rows.jsonl{ending}").write_bytes(compress(b'{"a": 1}\n{"a": 2}\n'))
    assert produce("--value", "{a}", tmp_path / f"rows.jsonl{ending}") == 0
    assert values(cluster) == [b"1", b"2"]


def test_a_pattern_takes_all_its_files_in_order(cluster, produce, tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
    assert produce(tmp_path / "*.txt") == 0
    assert values(cluster) == [b"0", b"1", b"2"]


def test_topic_partition_and_timestamp_come_from_columns(cluster, tmp_path):
    rows = tmp_path / "rows.jsonl"
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    rows.write_text(
        json.dumps({"where": "a", "part": 1, "at": 1234})
        + "\n"
        + json.dumps({"where": "b", "part": 0, "at": "2026-01-02T03:04:05Z"})
    )
    cluster.create_topic("in-a", 2)
    arguments = ["--topic", "in-{where}", "--partition", "{part}", "--timestamp", "{at}", str(rows)]
    assert main(["produce", "-b", cluster.bootstrap_servers, *arguments]) == 0
    assert [record.timestamp for record in cluster.records("in-a", 1)] == [1234]
    assert [record.timestamp for record in cluster.records("in-b", 0)] == [int(at.timestamp() * 1000)]


def test_standard_input(cluster):
    arguments = [*HEADRACE, "produce", "-b", cluster.bootstrap_servers, "--topic", "t"]
    done = subprocess.run(arguments, input=b"one\ntwo\n", capture_output=True, timeout=60, check=True)
    assert values(cluster) == [b"one", b"two"]
    assert done.stdout == b"2 records acknowledged, 0 bad rows\n"
    assert done.stderr == b""


def test_defaults_do_not_count_as_chosen(cluster, produce, tmp_path, monkeypatch):
    """Nobody has set enable.metrics.push, so nothing warns that a package for it is missing."""
    checks: list[None] = []
    monkeypatch.setattr("headrace.producer.engine._check_for_telemetry", lambda: checks.append(None))
    (tmp_path / "rows.txt").write_text("one\n")
    assert produce(tmp_path / "rows.txt") == 0
    assert checks == []
    assert produce("--command-property", "enable.metrics.push=true", tmp_path / "rows.txt") == 0
    assert checks == [None]


BAD = '{"id": 1}\nno json\n{"other": 2}\n[3]\n{"id": 4}\n'


def test_the_first_bad_row_ends_it_after_the_rows_before_it(cluster, produce, tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(BAD)
    assert produce("--key", "{id}", tmp_path / "rows.jsonl") == 1
    assert values(cluster) == [b'{"id": 1}']
    assert f"{tmp_path}/rows.jsonl:2: not JSON: " in capsys.readouterr().err


def test_bad_rows_are_left_out_and_counted(cluster, produce, tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(BAD)
    assert produce("--key", "{id}", "--on-error", "skip", tmp_path / "rows.jsonl") == 0
    assert values(cluster) == [b'{"id": 1}', b'{"id": 4}']
    out, err = capsys.readouterr()
    assert out == "2 records acknowledged, 3 bad rows\n"
    assert "rows.jsonl:2: not JSON" in err


def test_bad_rows_are_written_aside_with_their_place_and_reason(cluster, produce, tmp_path):
    (tmp_path / "rows.jsonl").write_text(BAD)
    aside = tmp_path / "bad.jsonl"
    assert produce("--key", "{id}", "--on-error", aside, tmp_path / "rows.jsonl") == 0
    written = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(line["row"], line["content"]) for line in written] == [
        (2, {"line": "no json"}),
        (3, {"other": 2}),
        (4, {"line": "[3]"}),
    ]
    assert "needs the column 'id'; the row has: other" in written[1]["reason"]
    assert values(cluster) == [b'{"id": 1}', b'{"id": 4}']


def test_a_record_that_is_too_large_is_a_bad_row(cluster, produce, tmp_path):
    (tmp_path / "lines").write_bytes(b"small\n" + b"x" * 2_000_000 + b"\nlast\n")
    aside = tmp_path / "bad.jsonl"
    assert produce("--on-error", aside, tmp_path / "lines") == 0
    assert values(cluster) == [b"small", b"last"]
    (line,) = [json.loads(each) for each in aside.read_text().splitlines()]
    assert line["row"] == 2
    assert "max.request.size" in line["reason"]


def test_rows_of_csv_with_other_columns_or_bytes_are_bad(cluster, produce, tmp_path):
    (tmp_path / "rows.csv").write_bytes(b"a,b\n1,2\n1\n1,2,3\n1,\xff\n3,4\n")
    assert produce("--on-error", "skip", "--value", "{a}", tmp_path / "rows.csv") == 0
    assert values(cluster) == [b"1", b"3"]


def test_it_goes_on_where_it_was(cluster, produce, tmp_path):
    state, lines = tmp_path / "state.json", tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(5000)))
    assert produce("--resume", state, lines) == 0
    with lines.open("a") as file:
        file.write("5000\n")
    assert produce("--resume", state, lines) == 0
    assert values(cluster) == [b"%d" % number for number in range(5001)]


def test_after_a_failure_nothing_is_lost(cluster, produce, tmp_path, capsys):
    state, lines = tmp_path / "state.json", tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(5000)))
    cluster.create_topic("t")
    cluster.inject(ApiKey.PRODUCE, Fault(error=InvalidRecordError), times=1)
    keys = ("--command-property", "batch.size=0", "--command-property", "max.in.flight.requests.per.connection=1")
    assert produce("--resume", state, *keys, lines) == 1
    assert f"{lines}:" in capsys.readouterr().err
    assert produce("--resume", state, lines) == 0
    assert set(values(cluster)) == {b"%d" % number for number in range(5000)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/does/not/exist"], "/does/not/exist: No such file or directory"),
        (["/does/not/exist*"], "no file matches '/does/not/exist*'"),
        (["--key", "{a", "x"], "--key '{a': expected '}' before end of string"),
        (["--key", "{a:5}", "x"], "may only have the names of columns in braces"),
        (["--header", "x", "x"], "--header takes NAME=TEMPLATE, not 'x'"),
        (["--resume", "x"], "--resume needs files"),
        (["--on-error", "/does/not/exist", "x"], "--on-error /does/not/exist: No such file or directory"),
        (["--format", "parquet", __file__], "can't be read as parquet: "),
        (["--format", "avro", __file__], "can't be read as avro: "),
    ],
)
def test_what_can_not_be_done_is_one_line(produce, arguments, said, capsys):
    assert produce(*arguments) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_ctrl_c_ends_it(cluster):
    arguments = [*HEADRACE, "produce", "-b", cluster.bootstrap_servers, "--topic", "t"]
    running = subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)
    assert running.stdin is not None
    running.stdin.write(b"one\n" * 5000)
    running.stdin.flush()
    while all(seen.api_key is not ApiKey.PRODUCE for seen in cluster.requests):
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert b"Traceback" not in err
