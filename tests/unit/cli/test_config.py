"""`headrace config`: explanations, checks, differences and conversions."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import main
from headrace.producer.config import ProducerConfig

LIBRDKAFKA = """\
metadata.broker.list=a:1,b:2
queue.buffering.max.ms=0.5
queue.buffering.max.kbytes=1024
message.timeout.ms=40000
compression.codec=lz4
compression.level=3
partitioner=murmur2_random
debug=all
acks=all
"""


@pytest.fixture
def write(tmp_path):
    def write_file(text: str, name: str = "client.properties") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write_file


def test_explain_shows_every_name_the_default_the_range_and_the_description(capsys):
    assert main(["config", "explain", "linger_ms", "partitioner"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("linger.ms\n  keyword     linger_ms\n  default     5\n")
    assert "alias       partitioner\n" in out
    assert "The time a batch waits for more records" in out


def test_explain_lists_all_keys(capsys):
    assert main(["config", "explain"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == [entry.name for entry in ProducerConfig.entries]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("queue.buffering.max.ms", 0, "that is librdkafka's name; Kafka's is linger.ms"),
        ("api_version", 0, "has no effect: versions are negotiated"),
        ("lnger.ms", 1, "did you mean linger.ms?"),
        ("zzz", 1, "`headrace config explain` lists the keys"),
    ],
)
def test_explain_says_what_became_of_other_names(name, code, said, capsys):
    assert main(["config", "explain", name]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


def test_validate_shows_what_the_file_sets_and_no_environment_variable(write, capsys, monkeypatch):
    monkeypatch.setenv("HEADRACE_ACKS", "1")
    path = write("bootstrap.servers=a:1\nlinger.ms=20\n")
    assert main(["config", "validate", path]) == 0
    assert capsys.readouterr().out == f"{path} is valid; it sets:\n  bootstrap.servers=a:1\n  linger.ms=20\n"


def test_validate_reports_all_problems_at_once(write, capsys):
    assert main(["config", "validate", write("bootstrap.servers=a:1\nlinger.ms=x\nacks=7\nlingr=1\n")]) == 1
    err = capsys.readouterr().err
    assert "3 problems in the configuration" in err
    assert all(each in err for each in ("linger.ms", "line 2", "acks", "line 3", "lingr", "line 4"))


def test_diff_shows_the_settings_that_differ(write, capsys):
    first = write("bootstrap.servers=a:1\nlinger.ms=20\n", "1.properties")
    second = write("bootstrap.servers=a:1\nacks=1\nenable.idempotence=false\n", "2.properties")
    assert main(["config", "diff", first, second]) == 1
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines[1:]] == ["acks", "enable.idempotence", "linger.ms"]
    assert lines[3][-1].strip() == "5 (default)"


def test_diff_of_equal_settings_ends_with_0(write, capsys):
    first = write("bootstrap.servers=a:1\n", "1.properties")
    second = write("bootstrap.servers = a:1\nlinger.ms=5\n", "2.properties")
    assert main(["config", "diff", first, second]) == 0
    assert capsys.readouterr().out == "the settings are equal\n"


def test_a_file_of_librdkafka_becomes_one_that_the_producer_accepts(write, capsys):
    assert main(["config", "from", "librdkafka", write(LIBRDKAFKA)]) == 0
    converted = write(capsys.readouterr().out, "converted.properties")
    config = ProducerConfig.resolve_from({"config.file": converted}, {}, {})
    assert [str(each) for each in config.bootstrap_servers] == ["a:1", "b:2"]
    assert (config.linger_ms, config.buffer_memory, config.delivery_timeout_ms) == (1, 1024 * 1024, 40_000)
    assert (config.compression_type, config.compression_lz4_level, config.acks) == ("lz4", 3, -1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("partitioner=consistent_random", "another hash"),
        ("partitioner=mine", "'mine' is not a partitioner of librdkafka"),
        ("lingr.ms=3", "the closest one is linger.ms"),
        ("queue.buffering.max.ms=soon", "'soon' is not a number"),
        ("security.providers=x", "not supported"),
    ],
)
def test_what_can_not_be_converted_is_named_with_its_line(line, said, write, capsys):
    assert main(["config", "from", "librdkafka", write(f"bootstrap.servers=a:1\n{line}\n")]) == 1
    out, err = capsys.readouterr()
    assert said in err
    assert "line 2" in err
    assert "bootstrap.servers=a:1" in out


def test_a_conversion_names_the_defaults_that_differ(write, capsys):
    main(["config", "from", "kafka-python", write("bootstrap_servers=a:1\nlinger_ms=3\nvalue_serializer=\n")])
    out = capsys.readouterr().out
    assert "\nlinger.ms=3\n" in out
    assert "#reconnect.backoff.max.ms=30000" in out
    assert "#linger.ms" not in out
    main(["config", "from", "librdkafka", write("bootstrap.servers=a:1\n")])
    assert "names no partitioner, and librdkafka's default places keys by another hash" in capsys.readouterr().out


def test_values_survive_the_properties_format(write, capsys):
    value = r"C:\\keys\\new"
    main(["config", "from", "librdkafka", write(f"bootstrap.servers=a:1\nclient.id=\\ {value}\n")])
    converted = Path(write(capsys.readouterr().out, "converted.properties"))
    config = ProducerConfig.resolve_from({"config.file": str(converted)}, {}, {})
    assert config.client_id == r" C:\keys\new"
