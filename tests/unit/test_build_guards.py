"""Assumptions of the build and the layout, checked against the files."""

from __future__ import annotations

import ast
import importlib
import re
from importlib import metadata
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.network import _build

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("network", "registry", "producer", "broker", "cli")
# About 600: a few more don't justify a split.
LINES = 620

# Module -> its limit, and why it is not split.
LARGER = {
    "broker/controller/controller.py": (640, "one lock and one image: everything that changes it"),
    "broker/config/broker_config.py": (720, "the table of keys: a statement each, nothing to follow"),
    "network/config.py": (660, "one idiom: the table, its sources and the error that lists all problems"),
    "network/sockets/selector_cy.py": (660, "one state machine: what a poll does to connections of both ends"),
    "network/client/network_client_cy.py": (
        770,
        "one state machine: connections, requests and what a poll does to both",
    ),
    "producer/accumulator/accumulator_cy.py": (660, "one class, whose methods call each other without Python calls"),
    "producer/accumulator/batch_cy.py": (690, "a batch and its records' futures, which complete together"),
    "producer/sender/sender_cy.py": (655, "one class, whose methods call each other without Python calls"),
    "producer/columns/avro_cy.py": (660, "one tree: a class per Avro type, which call each other without the GIL"),
}


def modules() -> list[Path]:
    return [path.relative_to(ROOT) for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))]


def test_the_list_of_hot_modules_is_the_files():
    files = {"headrace." + ".".join(path.with_suffix("").parts) for path in modules() if path.stem.endswith("_cy")}
    assert set(_build.HOT_MODULES) == files
    assert list(_build.HOT_MODULES) == sorted(files)


@pytest.mark.parametrize("name", _build.HOT_MODULES)
def test_a_hot_module_has_the_same_names_compiled_and_interpreted(name: str):
    used, interpreted = importlib.import_module(name), _build.interpreted(name)
    assert interpreted.__file__ is not None
    assert interpreted.__file__.endswith("_cy.py")
    public = [each for each in vars(interpreted) if not each.startswith("_") and each not in ("annotations", "cython")]
    own = [each for each in public if getattr(vars(interpreted)[each], "__module__", None) == name]
    # functions that only compiled code calls (cfunc) have no Python name in a compiled module
    c_functions = c_only(ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py"))
    assert [each for each in own if each not in c_functions and not hasattr(used, each)] == []


def c_only(source: Path) -> set[str]:
    """The names of a module's functions that are decorated with cfunc."""
    return {
        node.name
        for node in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and any("cfunc" in ast.unparse(each) for each in node.decorator_list)
    }


def test_every_folder_with_modules_is_a_package():
    """setup.py finds packages by their __init__.py: a folder without one would not be installed."""
    folders = {path.parent for path in modules()}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_every_part_says_that_it_is_typed():
    assert [part for part in PARTS if not (ROOT / part / "py.typed").is_file()] == []


def test_modules_stay_small_enough_to_be_read():
    lines = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in modules()}
    too_long = {path: count for path, count in lines.items() if count > LARGER.get(path, (LINES, ""))[0]}
    assert too_long == {}, "split them by responsibility (DESIGN.md)"
    assert [path for path in LARGER if lines.get(path, 0) <= LINES] == [], "these no longer need an exception"


def test_sections_begin_in_one_way():
    """Only headings, `# --- Heading ---`, are comments that stand alone between blank lines (CONTRIBUTING.md)."""
    wrong = []
    folders = (*PARTS, "tests", "examples", "benchmarks", "docs", "tools")
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        lines = ["", *path.read_text(encoding="utf-8").splitlines(), ""]
        for number, (before, line, after) in enumerate(zip(lines, lines[1:], lines[2:], strict=False), 1):
            stands_alone = not before.strip() and not after.strip() and re.match(r"\s*# ", line) is not None
            is_rule = re.match(r"\s*# ?-{2}", line) is not None
            if (stands_alone or is_rule) and not (stands_alone and re.fullmatch(r" *# --- \S.* ---", line)):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert wrong == []


def test_the_version_says_which_modules_run(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"headrace {metadata.version('headrace')} ({_build.describe()})\n"


@pytest.mark.parametrize(
    ("files", "pure", "said"),
    [
        (["a.so", "b.so"], False, "compiled"),
        (["a.py", "b.py"], True, "interpreted (HEADRACE_PURE)"),
        (["a.py", "b.py"], False, "interpreted (no compiled modules are installed)"),
        (["a.so", "b.py"], False, "mixed: headrace.a compiled, headrace.b interpreted"),
    ],
)
def test_a_mixture_is_told_as_one(monkeypatch: pytest.MonkeyPatch, files: list[str], pure: bool, said: str):
    states = dict(zip(("headrace.a", "headrace.b"), (file.endswith(".so") for file in files), strict=True))
    monkeypatch.setattr(_build, "compiled_modules", lambda: states)
    monkeypatch.setattr(_build, "PURE", pure)
    assert _build.describe() == said
