"""The dead-code check finds names that only tests use, and none that a program, a page or an interface needs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "dead_code.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dead_code", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FILES = {
    "producer/__init__.py": "from .engine import Public\n__all__ = ['Public']\n",
    "producer/engine.py": """\
import threading

USED, UNUSED = 1, 2


def called():
    return USED


def recursive(depth):
    return recursive(depth - 1)


def tested():
    return called()


def shown_in_a_page():
    pass


class Public:
    def anything(self):
        self._read, self._written = 1, 2
        return self._read, Worker

    def _private(self):
        pass


class Worker(threading.Thread):
    def run(self):
        pass


class Table:
    def looked_up(self):
        return getattr(self, "by_name") or Table

    def by_name(self):
        pass

    def __repr__(self):
        return ""
""",
    "examples/program.py": "from headrace.producer.engine import Table\nTable().looked_up()\n",
    "docs/page.md": "Call `shown_in_a_page()`, and tested is only prose.\n",
    "tests/support/fake.py": "def used_by_a_test():\n    pass\n\n\ndef used_by_nobody():\n    pass\n",
    "tests/unit/test_engine.py": "tested(), used_by_a_test()\n",
}


def test_what_tests_alone_use_is_found_and_nothing_else(tool: ModuleType, tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert {str(each) for each in tool.find(tmp_path)} == {
        "producer/engine.py:UNUSED",
        "producer/engine.py:recursive",
        "producer/engine.py:tested",
        "producer/engine.py:Public._written",
        "producer/engine.py:Public._private",
        "tests/support/fake.py:used_by_nobody",
    }


def test_an_entry_that_is_not_needed_is_an_error(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "allowed.txt").write_text("# the reason\ncli/main.py:gone  # more\ncli/main.py:dead\n")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "ALLOWED", "allowed.txt")
    monkeypatch.setattr(tool, "find", lambda: [tool.Definition("cli/main.py", "dead", "dead", 1, 2)])
    assert tool.main() == 1
    assert capsys.readouterr().out == "allowed.txt: cli/main.py:gone is used, or does not exist: remove the entry\n"
    (tmp_path / "allowed.txt").write_text("cli/main.py:dead\n")
    assert tool.main() == 0
