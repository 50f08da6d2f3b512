"""Find definitions that are unused or only used by tests: `python tools/dead_code.py`, a part of `make check`.

A definition is a function, class, method, constant or attribute of the packages. It is used if its name is read
outside its own body: anywhere in the packages, in the examples, in the generator of the docs, or in the code of a page.
A definition of tests/support is used if a test reads it.

The check compares names only, so two things with the same name hide each other. A reported definition is either dead or
used in a way that the source doesn't show. The latter go into `dead_code_allowed.txt` with a reason. An entry there
that is no longer needed is an error, too.

Exempt are the public members of classes in the `__all__` of a public module, methods that a base class of another
library calls, and the tables of messages and errors.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = "tools/dead_code_allowed.txt"
PACKAGES = ("network", "registry", "producer", "broker", "cli")
#: Programs that use the packages as a user does. Uses in tests and benchmarks don't count.
USERS = ("examples", "docs/generate.py", "setup.py")
#: The modules that tests share, and the files whose uses count for them.
SUPPORT = ("tests/support",)
TESTS = ("tests/unit", "tests/property", "tests/integration", "tests/interop", "tests/conftest.py", "benchmarks")
TABLES = (
    "network/protocol/messages/",
    "network/protocol/errors.py",
    "network/protocol/other_errors.py",
    "network/protocol/api_keys.py",
)
#: The modules that users import from.
PUBLIC = (
    "producer/__init__.py",
    "producer/spark/__init__.py",
    "broker/__init__.py",
    "registry/__init__.py",
    "producer/*.py",
)
#: Modules of the standard library whose base classes call no methods of their subclasses by name.
SILENT_BASES = ("abc", "collections", "dataclasses", "enum", "typing")


class Definition(NamedTuple):
    """A name and the lines of its definition, in which uses of the name don't count."""

    path: str
    name: str
    qualified: str
    first_line: int
    last_line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.qualified}"


class Module:
    """A source file: its definitions, and the names that it reads, each with its lines."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._tree = ast.parse(text, path)
        self.exported: set[str] = set()
        self.reads: dict[str, set[int]] = {}
        self._from_outside: set[str] = set()
        for node in ast.walk(self._tree):
            for name in self._reads_of(node):
                self.reads.setdefault(name, set()).add(getattr(node, "lineno", 0))

    def _reads_of(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("getattr", "hasattr", "attrgetter"):
            yield from _texts(node.args)
        elif isinstance(node, ast.Dict):
            # a table from one name to another
            yield from _texts(each for each in (*node.keys, *node.values) if each is not None)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            outside = isinstance(node, ast.Import) or (node.level == 0 and not module.startswith("headrace"))
            if outside and module.split(".")[0] not in SILENT_BASES:
                self._from_outside.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign) and "__all__" in _assigned(node):
            self.exported.update(_texts(ast.walk(node.value)))

    def definitions(self, public: set[str]) -> Iterator[Definition]:
        """The definitions of the module, without the public members of `public` classes."""
        yield from self._in_body(self._tree.body, "", public)

    def _in_body(self, body: list[ast.stmt], prefix: str, public: set[str]) -> Iterator[Definition]:
        for node in body:
            first, last = node.lineno, node.end_lineno or node.lineno
            if isinstance(node, ast.ClassDef):
                yield Definition(self.path, node.name, prefix + node.name, first, last)
                skips_public = node.name in public or self._is_called_from_outside(node)
                for each in self._in_body(node.body, f"{prefix}{node.name}.", public):
                    if each.name.startswith("_") or not skips_public:
                        yield each
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield Definition(self.path, node.name, prefix + node.name, first, last)
                if prefix:
                    for name, line in _set_on_self(node):
                        # no own lines: a read in the same line is of a value set elsewhere
                        yield Definition(self.path, name, prefix + name, line, line - 1)
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                for part in ("body", "orelse", "finalbody"):
                    yield from self._in_body(getattr(node, part, []), prefix, public)
            else:
                for name in _assigned(node):
                    yield Definition(self.path, name, prefix + name, first, last)

    def _is_called_from_outside(self, node: ast.ClassDef) -> bool:
        names = (each.id for base in node.bases for each in ast.walk(base) if isinstance(each, ast.Name))
        return any(name in self._from_outside for name in names)


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = (each for target in targets for each in ast.walk(target))
    return {each.id for each in names if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _set_on_self(function: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _last_name(node.value) == "self":
            yield node.attr, node.lineno


def names_in_code(page: str) -> set[str]:
    """The names in the code blocks and spans of a page."""
    code = re.findall(r"```.*?```|`[^`\n]+`", page, re.DOTALL)
    return {name for each in code for name in re.findall(r"[A-Za-z_]\w*", each)}


def find(root: Path = ROOT) -> list[Definition]:
    """The unused definitions below `root`."""
    packages, support = _modules(root, PACKAGES), _modules(root, SUPPORT)
    shown: set[str] = set()
    for page in (*root.glob("*.md"), *root.glob("docs/*.md")):
        shown |= names_in_code(page.read_text(encoding="utf-8"))
    public = {
        name for each in packages if any(Path(each.path).match(pattern) for pattern in PUBLIC) for name in each.exported
    }
    shown |= public
    return [
        *_unused(
            [each for each in packages if not each.path.startswith(TABLES)],
            packages + _modules(root, USERS),
            public,
            shown,
        ),
        *_unused(support, packages + support + _modules(root, TESTS), set(), set()),
    ]


def _modules(root: Path, parts: Iterable[str]) -> list[Module]:
    paths = (
        path for part in parts for path in ([root / part] if part.endswith(".py") else (root / part).rglob("*.py"))
    )
    return [
        Module(str(path.relative_to(root)), path.read_text(encoding="utf-8")) for path in sorted(paths) if path.exists()
    ]


def _unused(defining: list[Module], reading: list[Module], public: set[str], shown: set[str]) -> list[Definition]:
    return [
        each
        for module in defining
        for each in module.definitions(public)
        if each.name not in shown and not _is_special(each.name) and not _is_used(each, reading)
    ]


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_used(definition: Definition, modules: list[Module]) -> bool:
    own_lines = range(definition.first_line, definition.last_line + 1)
    return any(
        module.path != definition.path or any(line not in own_lines for line in lines)
        for module in modules
        if (lines := module.reads.get(definition.name))
    )


def main() -> int:
    """Print dead definitions that are not allowed, and allowed ones that are not dead. Returns the exit code."""
    dead = {str(each): each for each in find()}
    lines = (ROOT / ALLOWED).read_text(encoding="utf-8").splitlines()
    allowed = {name for line in lines if (name := line.partition("#")[0].strip())}
    for each in (dead[name] for name in dead if name not in allowed):
        print(f"{each.path}:{each.first_line}: {each.qualified} is used by tests only, or not at all: remove it")
    for name in sorted(allowed - dead.keys()):
        print(f"{ALLOWED}: {name} is used, or does not exist: remove the entry")
    return int(dead.keys() != allowed)


if __name__ == "__main__":
    sys.exit(main())
