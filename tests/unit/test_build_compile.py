"""setup.py with and without a C compiler, on a project of one hot module: what it builds, prints, and fails on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("Cython", reason="the build requirements of setup.py are not installed: make test installs them")

ROOT = Path(__file__).resolve().parents[2]
HOT = """\
# cython: language_level=3
from typing import TYPE_CHECKING

from . import _cython as cython

if not TYPE_CHECKING and cython.compiled:
    import cython


def twice(number: cython.int) -> int:
    return 2 * number


def is_compiled() -> bool:
    return cython.compiled
"""
NO_COMPILER = "/nowhere/cc"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project's set-up with a single module, headrace.network.toy_cy."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for part in ("network", "registry", "producer", "broker", "cli", "pyspark_headrace"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "__init__.py").touch()
    shutil.copy(ROOT / "network" / "_cython.py", tmp_path / "network")
    (tmp_path / "network" / "toy_cy.py").write_text(HOT)
    return tmp_path


def build(project: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=project,
        env={**os.environ, "HEADRACE_REQUIRE_COMPILED": "", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def compiled_files(project: Path) -> list[str]:
    return [str(path.relative_to(project)) for path in project.rglob("*.so") if "build" not in path.parts]


def run_toy(project: Path) -> str:
    """The output of the built module, imported under its installed name."""
    code = "from headrace.network import toy_cy; print(toy_cy.twice(21), toy_cy.is_compiled())"
    package = project / "path" / "headrace"
    package.mkdir(parents=True)
    (package / "network").symlink_to(project / "network", target_is_directory=True)
    answer = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()


def has_compiler() -> bool:
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(command) is not None and Path(sysconfig.get_paths()["include"], "Python.h").exists()


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C compiler for this Python")


@needs_compiler
def test_with_a_compiler_the_module_is_compiled_beside_its_source(project: Path):
    answer = build(project, HEADRACE_REQUIRE_COMPILED="1")
    assert answer.returncode == 0, answer.stderr
    assert compiled_files(project) == [f"network/toy_cy{sysconfig.get_config_var('EXT_SUFFIX')}"]
    assert run_toy(project) == "42 True"


def test_without_a_compiler_the_interpreted_module_is_left_and_the_build_says_why(project: Path):
    answer = build(project, CC=NO_COMPILER)
    assert answer.returncode == 0, answer.stderr
    assert (
        f"headrace: there is no C compiler ({NO_COMPILER}); the interpreted modules are installed instead"
        in answer.stderr
    )
    assert compiled_files(project) == []
    assert run_toy(project) == "42 False"


def test_a_compiler_that_lacks_pythons_headers_is_told_apart_from_none(project: Path):
    broken = project / "cc"
    broken.write_text("#!/bin/sh\necho 'fatal error: Python.h: No such file' >&2\nexit 1\n")
    broken.chmod(0o755)
    answer = build(project, CC=str(broken))
    assert answer.returncode == 0, answer.stderr
    assert "the C compiler can't build against this Python: fatal error: Python.h" in answer.stderr
    assert compiled_files(project) == []


def test_where_compiled_modules_are_required_no_compiler_is_an_error(project: Path):
    answer = build(project, CC=NO_COMPILER, HEADRACE_REQUIRE_COMPILED="1")
    assert answer.returncode != 0
    assert f"HEADRACE_REQUIRE_COMPILED=1, but there is no C compiler ({NO_COMPILER})" in answer.stderr


@needs_compiler
def test_a_module_that_does_not_compile_is_an_error_not_a_fallback(project: Path):
    (project / "network" / "toy_cy.py").write_text(HOT + "\ndef broken(:\n")
    answer = build(project)
    assert answer.returncode != 0
    assert "toy_cy.py" in answer.stdout + answer.stderr
    assert "installed instead" not in answer.stderr
    assert compiled_files(project) == []


@needs_compiler
def test_a_changed_module_is_compiled_anew(project: Path):
    assert build(project).returncode == 0
    source = project / "network" / "toy_cy.py"
    source.write_text(HOT.replace("2 * number", "3 * number"))
    # newer than everything built, however long the build took
    newest = max(path.stat().st_mtime for path in project.rglob("*"))
    os.utime(source, (newest + 10, newest + 10))
    assert build(project).returncode == 0
    assert run_toy(project) == "63 True"
