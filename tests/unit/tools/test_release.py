"""What a release needs: notes of its version, and workflows whose commands exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.fixture
def release_notes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / "tools" / "release_notes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "network").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "network" / "_build.py").write_text('VERSION = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 1.2.0 (2026-11-23)\n\n- New.\n\n## 1.1.0 (2026-01-01)\n\n- Old.\n"
    )
    return tmp_path


def test_the_notes_are_the_section_of_the_version(release_notes: ModuleType, project: Path) -> None:
    assert release_notes.notes_of("1.2.0", project) == "- New.\n"


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("network/_build.py", 'VERSION = "1.1.0"\n', "network/_build.py says 1.1.0"),
        ("pyproject.toml", 'version = "2.0"\n', "pyproject.toml says 2.0"),
        ("CHANGELOG.md", "## 1.2.0 (not released)\n", "put the date there"),
        ("CHANGELOG.md", "# Changelog\n", "no section 1.2.0"),
    ],
)
def test_a_release_that_is_not_ready_is_an_error(
    release_notes: ModuleType, project: Path, file: str, text: str, problem: str
) -> None:
    (project / file).write_text(text)
    with pytest.raises(ValueError, match=re.escape(problem)):
        release_notes.notes_of("1.2.0", project)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_commands_of_a_workflow_exist(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        if (called := job.get("uses", "")).startswith("./"):
            assert (ROOT / called).exists()
        for step in job.get("steps", ()):
            assert "uses" in step or "run" in step
            command = step.get("run", "")
            for target in re.findall(r"^make ([a-z-]+)", command, re.MULTILINE):
                assert target in targets
            for script in re.findall(r"(?:^|\s)(?:\.\./)?((?:tools|\.ci)/[\w.-]+)", command):
                assert (ROOT / script).exists()
            # what an attacker could choose never becomes part of a command
            assert "github.event" not in command
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@(v[\d.]+|release/v\d+)", step["uses"]), step["uses"]


def test_there_is_a_workflow_for_each_purpose() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "test", "wheels"]
