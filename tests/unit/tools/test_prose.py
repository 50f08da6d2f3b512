"""The prose check finds the words of its list in comments, strings and pages, wherever a line ends, and not in code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "prose.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(tool: ModuleType, path: str, text: str) -> list[tuple[int, str]]:
    rules = tool.read_rules(tool.RULES.read_text(encoding="utf-8"))
    return sorted((each.line, each.found) for each in tool.check(path, text, rules))


BAD = [
    "An unknown configuration key (the nearest name is told)",
    "What a batch fails with whose time is over, whether it waited, was on the way or was refused just now",
    "A write's figures reach Spark's UI",
    "one lock acquisition a batch",
    "Waits that have no bound of the user's",
    "TLS and SASL are not there yet.",
    "A topic was asked for in vain, and is asked for anew.",
]
GOOD = [
    "An unknown configuration key (the error suggests the closest one)",
    "The error for a batch past `delivery.timeout.ms`, whether queued, in flight or just rejected.",
    "Spark's UI shows write metrics through a Catalyst expression",
    "one lock acquisition per batch; one line per key; one file per API",
    "TLS and SASL are not supported yet.",
    "The peer answered with ECONNREFUSED (connection refused); one of a few, 2 of a kind.",
]


@pytest.mark.parametrize("sentence", BAD)
def test_a_sentence_that_breaks_a_rule(tool: ModuleType, sentence: str) -> None:
    assert found(tool, "page.md", sentence)


@pytest.mark.parametrize("sentence", GOOD)
def test_a_sentence_that_breaks_none(tool: ModuleType, sentence: str) -> None:
    assert found(tool, "page.md", sentence) == []


def test_where_it_looks_in_a_program(tool: ModuleType) -> None:
    program = '''\
"""A docstring with a batch on the
way, and `on the way` in code."""

told = 1  # a comment goes on at the next line, and is not there
# yet what it will be


def anew(name):
    raise ValueError(f"{told} an error message of {name} is read as one, whose "
                     "time is over; in" f" vain")
'''
    assert found(tool, "program.py", program) == [
        (1, "on the way"),
        (4, "is not there # yet"),
        (4, "not there # yet"),
        (9, "whose time"),
        (9, "whose time is over"),
        (10, "in vain"),
    ]


def test_a_page_is_read_without_its_code(tool: ModuleType) -> None:
    page = "One line.\n\n```python\ntold = anew\n```\n\nWhat was `told`, and what was\ntold.\n"
    assert found(tool, "page.md", page) == [(8, "told")]


def test_a_rule_without_advice_is_an_error(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="line 2 has no advice"):
        tool.read_rules("# words\n\\btold\\b\n")
    assert [rule.advice for rule in tool.read_rules("a -> b\n\n# c -> d\n")] == ["b"]


def test_the_exit_code_says_whether_anything_was_found(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("It was told.")
    assert tool.main([str(page)]) == 1
    assert capsys.readouterr().out.startswith('page.md:1: "told": reported')
    page.write_text("It was reported.")
    assert tool.main([str(page)]) == 0


def test_of_a_test_only_comments_and_docstrings_are_prose(tool: ModuleType) -> None:
    text = '''# asked in vain
"""It was asked in vain."""
DATA = "asked in vain"
PROGRAM = """asked in vain"""
def test() -> None:
    """Asked in vain."""
    assert f"asked in vain {DATA}"
'''
    assert [line for line, _ in found(tool, "tests/unit/test_it.py", text)] == [1, 2, 6]
    assert len(found(tool, "network/it.py", text)) == 6
