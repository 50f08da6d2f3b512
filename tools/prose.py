"""Check the English of docstrings, comments, messages and pages: `python tools/prose.py [FILE...]`, or `make prose`.

The rules are in `prose_rules.txt`; codespell checks the spelling. Prints `file:line: "found": what to write`, and how
often each rule was broken. The exit code is 1 if any was.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "tools" / "prose_rules.txt"
FOLDERS = ("network", "registry", "producer", "broker", "cli", "tests", "examples", "benchmarks", "docs", "tools")
PROGRAMS = (".py", ".pxd")
#: Not checked, because it has examples of what not to write.
EXAMPLES = ROOT / "tests" / "unit" / "tools" / "test_prose.py"
_ARROW = " -> "
#: The text between two words of a phrase: white space, and the beginning of a comment's next line.
_GAP = r"(?:\s|#:?)+"
_CODE = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_QUOTES = re.compile(r"""\A[a-z]{0,2}("{3}|'{3}|"|')|("{3}|'{3}|"|')\Z""", re.IGNORECASE)
_LAYOUT = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
#: Since Python 3.12 a formatted string is several tokens.
_FSTRING_START = getattr(tokenize, "FSTRING_START", -1)
_FSTRING_MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", -1)
_FSTRING_END = getattr(tokenize, "FSTRING_END", -1)


class Rule(NamedTuple):
    """What not to write, and what to write instead."""

    text: str
    pattern: re.Pattern[str]
    advice: str


class Piece:
    """A run of prose that is checked as one text, and its lines in the source."""

    def __init__(self) -> None:
        self.text = ""
        self._starts: list[int] = []
        self._lines: list[int] = []

    def add(self, text: str, line: int) -> None:
        """Append text that begins at `line` of the source."""
        self._starts.append(len(self.text))
        self._lines.append(line)
        self.text += text + " "

    def line_at(self, position: int) -> int:
        """The line in the source for a position in the text."""
        at = bisect_right(self._starts, position) - 1
        return self._lines[at] + self.text.count("\n", self._starts[at], position)


class Finding(NamedTuple):
    """A violation of a rule."""

    path: str
    line: int
    found: str
    rule: Rule

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.found}": {self.rule.advice}'


def read_rules(text: str) -> list[Rule]:
    """Parse the rules. Raises ValueError for a line without advice."""
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, arrow, advice = line.partition(_ARROW)
        if not arrow or not advice.strip():
            raise ValueError(f"line {number} has no advice after {_ARROW!r}")
        rules.append(Rule(pattern, re.compile(pattern.replace(" ", _GAP), re.IGNORECASE), advice.strip()))
    return rules


def prose_of(path: str, text: str) -> Iterator[Piece]:
    """The prose of a file: a whole page, or the comments and strings of a program. Of a test only the comments and
    docstrings, because its strings are data."""
    if path.endswith(PROGRAMS):
        yield from _of_program(text, only_docstrings=path.startswith("tests/"))
        return
    page = Piece()
    page.add(text, 1)
    yield page


def _of_program(text: str, only_docstrings: bool) -> Iterator[Piece]:
    piece, kind, formatted, begins_statement = Piece(), 0, 0, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        formatted += (token.type == _FSTRING_START) - (token.type == _FSTRING_END)
        is_text = token.type in (tokenize.COMMENT, tokenize.STRING, _FSTRING_MIDDLE)
        is_data = is_text and token.type != tokenize.COMMENT and not begins_statement
        begins_statement = token.type == tokenize.NEWLINE or (
            begins_statement and token.type in (*_LAYOUT, tokenize.COMMENT)
        )
        if only_docstrings and is_data:
            continue
        if token.type in _LAYOUT or (formatted and not is_text) or token.type == _FSTRING_END:
            continue
        # comments continue on the next line, and messages in the adjacent string
        if piece.text and (not is_text or (kind == tokenize.COMMENT) != (token.type == tokenize.COMMENT)):
            yield piece
            piece = Piece()
        if is_text:
            kind = token.type
            prose = (
                token.string
                if kind == tokenize.COMMENT
                else _PLACEHOLDER.sub(_blank, _QUOTES.sub(_blank, token.string))
            )
            piece.add(prose, token.start[0])
    if piece.text:
        yield piece


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def check(path: str, text: str, rules: list[Rule]) -> Iterator[Finding]:
    """The violations in a file."""
    for piece in prose_of(path, text):
        prose = _CODE.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), piece.text)
        for rule in rules:
            for match in rule.pattern.finditer(prose):
                yield Finding(path, piece.line_at(match.start()), " ".join(match[0].split()), rule)


def files() -> Iterator[Path]:
    """Every page and program in the repository."""
    yield from ROOT.glob("*.md")
    yield ROOT / "setup.py"
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (*PROGRAMS, ".md") and path != EXAMPLES:
                yield path


def main(arguments: list[str]) -> int:
    """Print the violations. Returns the exit code."""
    rules = read_rules(RULES.read_text(encoding="utf-8"))
    broken: Counter[str] = Counter()
    for path in sorted(map(Path, arguments) if arguments else files()):
        name = str(path.resolve().relative_to(ROOT))
        for finding in sorted(check(name, path.read_text(encoding="utf-8"), rules), key=lambda each: each.line):
            print(finding)
            broken[finding.rule.text] += 1
    for rule, count in broken.most_common():
        print(f"{count:6} times {rule}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
