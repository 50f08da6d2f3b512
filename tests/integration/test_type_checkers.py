"""mypy and pyright over users' programs in tests/types: what they accept, and the lines that they reject."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "types"
ACCEPTED = ("keywords_accepted.py", "users_program.py")
REJECTED = "keywords_rejected.py"

pytestmark = pytest.mark.skipif(
    "HEADRACE_PURE" in os.environ, reason="type checkers read the same sources in the other run"
)


def checked_by_mypy(folder: Path) -> dict[str, set[int]]:
    """The lines with errors by file."""
    names = [str(PROGRAMS / name) for name in (*ACCEPTED, REJECTED)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={folder}", *names],
        env={**os.environ, "MYPYPATH": str(ROOT / "build" / "include")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1].startswith("Found"), done.stdout + done.stderr
    found: dict[str, set[int]] = {}
    for path, line in re.findall(r"^(.*?):(\d+): error:", done.stdout, re.MULTILINE):
        found.setdefault(Path(path).name, set()).add(int(line))
    return found


def checked_by_pyright(_: Path) -> dict[str, set[int]]:
    """The lines with errors by file."""
    # files on the command line replace those of the configuration, and the rest of it applies
    project = PROGRAMS / "pyrightconfig.json"
    names = [str(PROGRAMS / name) for name in (*ACCEPTED, REJECTED)]
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(project), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(names)
    found: dict[str, set[int]] = {}
    for each in report["generalDiagnostics"]:
        if each["severity"] == "error":
            found.setdefault(Path(each["file"]).name, set()).add(each["range"]["start"]["line"] + 1)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("check", [checked_by_mypy, checked_by_pyright], ids=["mypy", "pyright"])
def test_type_checkers_reject_wrong_keywords_and_nothing_else(check: object, tmp_path: Path) -> None:
    assert callable(check)
    lines = (PROGRAMS / REJECTED).read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# rejected")}
    assert len(wrong) > 15
    assert check(tmp_path) == {REJECTED: wrong}
