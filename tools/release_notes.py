"""Print the notes of a version from CHANGELOG.md: `python tools/release_notes.py 0.1.0`.

Fails unless the version is the one of pyproject.toml and of network/_build.py, and has a section with a date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def notes_of(version: str, root: Path = ROOT) -> str:
    """The section of a version. Raises ValueError."""
    stated = {
        "pyproject.toml": r'^version = "(.*)"$',
        "network/_build.py": r'^VERSION = "(.*)"$',
    }
    for name, pattern in stated.items():
        found = re.search(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if found is None or found[1] != version:
            raise ValueError(f"the version is {version}, but {name} says {found[1] if found else 'nothing'}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## {re.escape(version)} \(([^)\n]*)\)\n"
    section = re.search(rf"{heading}(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None:
        raise ValueError(f"CHANGELOG.md has no section {version}")
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", section[1]) is None:
        raise ValueError(f"the section {version} of CHANGELOG.md says ({section[1]}); put the date there")
    return section[2].strip() + "\n"


def main(arguments: list[str]) -> int:
    """Print the notes; returns the exit code."""
    try:
        print(notes_of(arguments[0]), end="")
    except (IndexError, ValueError) as wrong:
        print(f"release_notes: {wrong or 'name the version'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
