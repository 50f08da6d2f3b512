"""Tests the warning of an executor that runs interpreted modules."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.network import _build
from headrace.producer.spark import interpreted
from headrace.producer.spark.interpreted import warn_if_interpreted

HOT = "headrace.network.records.builder_cy"


@pytest.fixture(autouse=True)
def not_warned_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_build, "PURE", False)
    monkeypatch.setattr(_build, "compiled_modules", lambda: {HOT: False})
    warn_if_interpreted.cache_clear()
    yield
    warn_if_interpreted.cache_clear()


def loaded_from(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setitem(interpreted.sys.modules, HOT, SimpleNamespace(__file__=str(file)))  # type: ignore[arg-type]


def test_modules_out_of_a_zip(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path):
    archive = tmp_path / "headrace.zip"
    archive.touch()
    loaded_from(monkeypatch, archive / "headrace" / "network" / "records" / "builder_cy.py")
    for _ in range(3):
        warn_if_interpreted()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"it is imported from {archive}, and compiled modules can't be loaded from an archive" in record.message
    assert "--archives" in record.message


def test_modules_that_were_built_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    folder = tmp_path / "headrace" / "network" / "records"
    folder.mkdir(parents=True)
    (folder / "builder_cy.py").touch()
    loaded_from(monkeypatch, folder / "builder_cy.py")
    warn_if_interpreted()
    (record,) = caplog.records
    assert f"no compiled modules are installed at {tmp_path / 'headrace'}" in record.message


@pytest.mark.parametrize("quiet", ["compiled", "pure"])
def test_nothing_is_said_of_what_is_compiled_or_wanted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, quiet: str
):
    if quiet == "compiled":
        monkeypatch.setattr(_build, "compiled_modules", lambda: {HOT: True})
    else:
        monkeypatch.setattr(_build, "PURE", True)
    warn_if_interpreted()
    assert caplog.records == []


def test_the_workers_of_an_executor_say_it_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    loaded_from(monkeypatch, tmp_path / "a.zip" / "builder_cy.py")
    task = SimpleNamespace(get=lambda: "a task")
    executor = SimpleNamespace(getRootDirectory=lambda: str(tmp_path))
    monkeypatch.setitem(
        interpreted.sys.modules,
        "pyspark",
        SimpleNamespace(TaskContext=task, SparkFiles=executor),  # type: ignore[arg-type]
    )
    for _ in range(3):
        # each worker is a separate process
        warn_if_interpreted.cache_clear()
        warn_if_interpreted()
    assert len(caplog.records) == 1
    # without a shared directory each worker logs it
    executor.getRootDirectory = lambda: str(tmp_path / "none")
    for _ in range(2):
        warn_if_interpreted.cache_clear()
        warn_if_interpreted()
    assert len(caplog.records) == 3
