"""`headrace perf` against an embedded cluster: what it counts, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser

import confluent_kafka
import pytest
from support.processes import child

from headrace.broker import EmbeddedCluster, Fault
from headrace.cli import main
from headrace.network.protocol.api import ApiKey
from headrace.network.protocol.errors import NotLeaderForPartitionError

HEADRACE = [sys.executable, "-m", "headrace.cli"]
#: Kafka's format of the last line, which scripts parse.
FINAL = re.compile(
    r"(\d+) records sent, (\d+\.\d) records/sec \((\d+\.\d\d) MB/sec\), (\d+\.\d\d) ms avg latency, "
    r"(\d+\.\d\d) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th\."
)


@pytest.fixture
def cluster():
    with EmbeddedCluster() as started:
        yield started


def perf(cluster, *arguments) -> list[str]:
    return ["perf", "--bootstrap-server", cluster.bootstrap_servers, "--topic", "load", *map(str, arguments)]


def log_size(cluster) -> int:
    """The number of records in the only partition of the topic."""
    return cluster.records("load", 0)[-1].offset + 1


def test_it_counts_what_an_independent_reader_finds(cluster, capsys, tmp_path):
    written = tmp_path / "result.json"
    arguments = perf(cluster, "--num-records", 20_000, "--record-size", 50, "--partitions", 3, "--json", written)
    assert main([*arguments, "--warmup-records", "100", "--keys", "7", "--headers", "2"]) == 0
    final = FINAL.fullmatch(capsys.readouterr().out.splitlines()[-1])
    assert final is not None
    assert final[1] == "20000"
    records = [record for part in range(3) for record in cluster.records("load", part)]
    assert len(records) == 20_100
    assert {record.key for record in records} == {b"%d" % number for number in range(7)}
    assert {len(record.value) for record in records} == {50}
    assert {len(record.headers) for record in records} == {2}
    result = json.loads(written.read_text())
    assert (result["records"], result["failed"], result["bytes"]) == (20_000, 0, 1_000_000)
    assert sum(window["records"] for window in result["windows"]) == 20_000
    assert result["latency_ms"]["p50"] <= result["latency_ms"]["p99"] <= result["latency_ms"]["max"]


def test_values_come_from_a_file_or_a_counter(cluster, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\nthree\n")
    assert main(perf(cluster, "--num-records", 300, "--payload-file", lines)) == 0
    assert {record.value for record in cluster.records("load", 0)} == {b"one", b"two", b"three"}
    counting = [*perf(cluster, "--num-records", 3, "--payload-monotonic"), "--topic", "counted"]
    assert main(counting) == 0
    assert [record.value for record in cluster.records("counted", 0)] == [b"0", b"1", b"2"]


def committed_values(cluster) -> int:
    """The number of records that a reader of committed transactions sees."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("load", 0, 0)])
    seen = 0
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        seen += 1
    consumer.close()
    return seen


@pytest.mark.parametrize(
    "options",
    [
        ["--transaction-duration-ms", "20"],
        ["--transactional-id", "till", "--transaction-duration-ms", "20"],
        ["--command-property", "transactional.id=till", "--transaction-duration-ms", "20"],
    ],
)
def test_records_in_transactions(cluster, tmp_path, options):
    written = tmp_path / "result.json"
    cluster.create_topic("load")
    arguments = perf(cluster, "--num-records", 300, "--record-size", 10, "--throughput", 1000, "--json", written)
    assert main([*arguments, "--warmup-records", "50", *options]) == 0
    result = json.loads(written.read_text())
    assert (result["records"], result["failed"]) == (300, 0)
    assert result["transactions"] > 1
    assert committed_values(cluster) == 350
    (id_,) = cluster.transactions()
    assert id_ == "till" if "till" in " ".join(options) else id_.startswith("performance-producer-")


def test_a_transactional_id_alone_commits_by_kafkas_default(cluster, tmp_path):
    written = tmp_path / "result.json"
    cluster.create_topic("load")
    arguments = perf(cluster, "--num-records", 10, "--record-size", 10, "--transactional-id", "till", "--json", written)
    assert main(arguments) == 0
    assert json.loads(written.read_text())["transactions"] == 1
    assert committed_values(cluster) == 10


def test_ctrl_c_aborts_the_open_transaction(cluster):
    cluster.create_topic("load")
    arguments = perf(cluster, "--num-records", 10**9, "--record-size", 10, "--throughput", 1000)
    command = [*HEADRACE, *arguments, "--reporting-interval", "200", "--transaction-duration-ms", "3600000"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    while "records sent" not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert (running.returncode, err) == (130, "")
    assert committed_values(cluster) == 0


def test_a_byte_limit_ends_the_run(cluster):
    assert main(perf(cluster, "--num-records", 1000, "--record-size", 100, "--byte-limit", 5000)) == 0
    assert log_size(cluster) == 50


def test_each_reporting_interval_is_a_line_of_kafkas(cluster, capsys):
    arguments = perf(cluster, "--num-records", 700, "--record-size", 10, "--throughput", 1000)
    assert main([*arguments, "--reporting-interval", "200"]) == 0
    lines = capsys.readouterr().out.splitlines()
    between = [
        re.fullmatch(r"(\d+) records sent, .* ms avg latency, .* ms max latency\.", line) for line in lines[1:-1]
    ]
    assert len(between) >= 2
    assert all(between)


def test_a_failed_record_is_counted_and_named(cluster, capsys):
    cluster.create_topic("load")
    cluster.inject(ApiKey.PRODUCE, Fault(error=NotLeaderForPartitionError), times=None)
    arguments = perf(cluster, "--num-records", 5, "--record-size", 10)
    keys = ["delivery.timeout.ms=600", "request.timeout.ms=500", "linger.ms=0"]
    assert main([*arguments, *(part for each in keys for part in ("--command-property", each))]) == 1
    err = capsys.readouterr().err
    assert "headrace perf: 5 records failed, the first with: " in err
    assert "Traceback" not in err


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if value and name in {"src", "href"}]


def test_the_page_needs_nothing_else_and_masks_what_is_secret(cluster, tmp_path):
    page = tmp_path / "page.html"
    assert main(perf(cluster, "--num-records", 1000, "--record-size", 10, "--html", page)) == 0
    content = page.read_text()
    parsed = _Page()
    parsed.feed(content)
    assert parsed.tags.count("svg") == 3
    assert "script" not in parsed.tags
    assert parsed.links == []
    assert "records acknowledged" in content


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--payload-file", "/does/not/exist"], "--payload-file /does/not/exist: No such file or directory"),
        (["--record-size", "10", "--command-property", "lingr=1"], "lingr is not a configuration key"),
        (["--record-size", "10", "--command-property", "linger"], "--command-property takes KEY=VALUE, not 'linger'"),
    ],
)
def test_a_wrong_option_is_one_line(cluster, arguments, said, capsys):
    assert main(perf(cluster, "--num-records", 1, *arguments)) == 1
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_it_asks_before_it_writes_elsewhere(capsys, monkeypatch):
    arguments = ["perf", "-b", "192.0.2.1:9092", "--topic", "t", "--num-records", "1", "--record-size", "1"]
    assert main(arguments) == 1
    assert "192.0.2.1:9092 is not on this machine; add --yes to write there" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert main(arguments) == 1
    assert "nothing was written" in capsys.readouterr().err


def test_ctrl_c_reports_what_is_known(cluster):
    arguments = [*HEADRACE, *perf(cluster, "--num-records", 10**9, "--record-size", 100, "--reporting-interval", 200)]
    running = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stdout is not None
    while "records sent" not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert err == ""
    final = FINAL.fullmatch(out.splitlines()[-1])
    assert final is not None
    assert 0 < int(final[1]) <= log_size(cluster)


def test_a_terminal_shows_a_table_and_a_pipe_no_escape_codes(cluster):
    arguments = [*HEADRACE, *perf(cluster, "--num-records", 3000, "--record-size", 10, "--throughput", 2000)]
    piped = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
    assert "\x1b" not in piped.stdout + piped.stderr
    terminal, inner = pty.openpty()
    with child(arguments, stdout=inner, stderr=inner, env={**os.environ, "TERM": "xterm"}) as running:
        os.close(inner)
        shown = b""
        # the terminal ends with an error when the last process that has it open ends
        try:
            while part := os.read(terminal, 65536):
                shown += part
        except OSError:
            pass
    os.close(terminal)
    assert running.returncode == 0
    assert b"requests in flight" in shown
    assert FINAL.search(shown.decode()) is not None


def test_without_the_extra_it_says_what_to_install(cluster, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    assert main(perf(cluster, "--num-records", 1, "--record-size", 1)) == 1
    assert "pip install 'headrace[cli]'" in capsys.readouterr().err
