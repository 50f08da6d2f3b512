"""The contents of a wheel and a source distribution of this tree. Built without a compiler, which takes seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools.build_meta", reason="the build requirements are not installed: make test installs them")

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("network", "registry", "producer", "broker", "cli")
#: PySpark finds the data source by this name; nothing else is outside `headrace`.
FOR_PYSPARK = "pyspark_headrace"
PROJECT = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "Makefile")
COPIED = (*PROJECT, *PARTS, FOR_PYSPARK, "tests", "tools")


def copy_of_the_project(target: Path) -> Path:
    """Copy the sources as in a fresh clone, so that nothing is built in this one."""
    target.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    return target


def build(project: Path, kind: str) -> Path:
    code = f"from setuptools.build_meta import build_{kind} as build; print('built', build('dist'))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, "CC": "/nowhere/cc", "HEADRACE_REQUIRE_COMPILED": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return project / "dist" / answer.stdout.rpartition("built ")[2].strip()


def sources(suffix: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for part in PARTS for path in (ROOT / part).rglob(f"*{suffix}")}


def test_the_wheel_has_every_module_under_its_import_name_and_nothing_else(tmp_path: Path):
    with zipfile.ZipFile(build(copy_of_the_project(tmp_path / "copy"), "wheel")) as wheel:
        names = set(wheel.namelist())
        console = wheel.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    installed = {name for name in names if ".dist-info/" not in name}
    expected = {f"headrace/{path}" for path in sources(".py")} | {f"headrace/{part}/py.typed" for part in PARTS}
    expected |= {f"headrace/broker/console/page.{suffix}" for suffix in ("html", "css", "js")}
    assert installed == expected | {f"{FOR_PYSPARK}/__init__.py"}
    assert "headrace = headrace.cli:main" in console


def test_the_source_distribution_has_what_a_build_needs(tmp_path: Path):
    archive = build(copy_of_the_project(tmp_path / "copy"), "sdist")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    page = sources(".html") | sources(".css") | sources(".js")
    assert page
    assert sources(".py") | sources(".pxd") | page | {f"{FOR_PYSPARK}/__init__.py"} | set(PROJECT) <= names
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []
