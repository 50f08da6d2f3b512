from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from headrace.network.config_files import read_config_file
from headrace.network.protocol.errors import KafkaConfigurationError

needs_toml = pytest.mark.skipif(importlib.util.find_spec("tomllib") is None, reason="Python 3.10 has no tomllib")


def properties(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "client.properties"
    path.write_bytes(text.encode())
    return {key: value for key, value, _ in read_config_file(str(path))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linger.ms=5", {"linger.ms": "5"}),
        ("linger.ms = 5", {"linger.ms": "5"}),
        ("linger.ms: 5", {"linger.ms": "5"}),
        ("linger.ms 5", {"linger.ms": "5"}),
        ("   linger.ms\t=\t5", {"linger.ms": "5"}),
        ("\ufefflinger.ms=5", {"linger.ms": "5"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n! b=2\n\n   \n  # c=3\n", {}),
        ("servers=a:1,\\\n    b:2,\\\n  c:3\nacks=all", {"servers": "a:1,b:2,c:3", "acks": "all"}),
        ("path=C\\:\\\\temp\\\\", {"path": "C:\\temp\\"}),
        ("key\\ with\\=odd\\:marks=x", {"key with=odd:marks": "x"}),
        ("name=\\u00fc\\t\\ud83d\\ude00\\q", {"name": "ü\t😀q"}),
        ("empty=\nalso.empty", {"empty": "", "also.empty": ""}),
        ("trailing=a  ", {"trailing": "a  "}),
        ("url=a=b:c", {"url": "a=b:c"}),
        ("last=\\", {"last": ""}),
    ],
)
def test_properties_are_read_as_java_reads_them(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    assert properties(tmp_path, text) == expected


def test_an_item_says_which_line_it_starts_on(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# first\na=1,\\\n  2\nb=3\n")
    assert [(key, origin) for key, _, origin in read_config_file(str(path))] == [
        ("a", f"file {path} line 2"),
        ("b", f"file {path} line 4"),
    ]


def test_a_line_without_a_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigurationError, match="line 2 has no key"):
        properties(tmp_path, "a=1\n=2\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigurationError, match=r"nowhere\.properties can't be read \(No such file"):
        read_config_file(str(tmp_path / "nowhere.properties"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(KafkaConfigurationError, match="can't be read"):
        read_config_file(str(tmp_path))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"a=\xff")
    with pytest.raises(KafkaConfigurationError, match="is not UTF-8 text"):
        read_config_file(str(path))


def test_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k.properties").write_text("a=1")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_config_file("~/k.properties") == [("a", "1", f"file {tmp_path}/k.properties line 1")]


@needs_toml
def test_toml_tables_are_dotted_keys(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text('acks = "all"\nlinger.ms = 5\nbatch_size = 100\n[retry.backoff]\nms = 1\nmax.ms = 2\n')
    assert {key: value for key, value, _ in read_config_file(str(path))} == {
        "acks": "all",
        "linger.ms": 5,
        "batch_size": 100,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 2,
    }


@needs_toml
def test_broken_toml_says_where(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text("linger.ms = \n")
    with pytest.raises(KafkaConfigurationError, match=r"is not TOML: .*line 1"):
        read_config_file(str(path))


def test_toml_without_a_reader_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomllib", None)
    path = tmp_path / "client.toml"
    path.write_text("linger.ms = 5\n")
    with pytest.raises(KafkaConfigurationError, match=r"which this Python \(before 3\.11\) can't read; write it as a"):
        read_config_file(str(path))
