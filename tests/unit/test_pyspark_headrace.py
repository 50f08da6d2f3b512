"""Tests `pyspark_headrace`: PySpark imports it in every driver that searches for data sources, so it must not raise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource

import pyspark_headrace
from headrace.network.protocol.errors import KafkaConfigurationError
from headrace.producer.spark.datasource import HeadraceDataSource

FOLDER = Path(pyspark_headrace.__file__).parent


def in_a_process(program: str, path: Path) -> str:
    """The output of a program that can import the module and everything in `path`."""
    (path / FOLDER.name).symlink_to(FOLDER, target_is_directory=True)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", dedent(program)],
        env={"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_it_is_what_register_registers():
    source = pyspark_headrace.DefaultSource
    assert issubclass(source, DataSource)
    assert source.name() == HeadraceDataSource.name() == "headrace"
    # everything public there is defined here too, and delegates to it
    public = {name for name in vars(HeadraceDataSource) if not name.startswith("_")}
    assert public == {name for name in vars(source) if not name.startswith("_")}


def test_spark_pickles_it_by_its_name():
    pickled = cloudpickle.dumps(pyspark_headrace.DefaultSource)
    assert len(pickled) < 100
    assert cloudpickle.loads(pickled) is pyspark_headrace.DefaultSource


def test_its_errors_are_those_of_the_sink():
    source = pyspark_headrace.DefaultSource({"topik": "t"})
    for write in (source.writer, source.streamWriter):
        with pytest.raises(KafkaConfigurationError, match="did you mean topic"):
            write(None, False)  # type: ignore[arg-type]


def test_importing_it_imports_nothing_that_pyspark_has_not_loaded(tmp_path: Path):
    program = """
        import json, sys, warnings
        # ignore PySpark's warnings about other packages
        warnings.simplefilter("ignore")
        import pyspark.sql.datasource
        before = set(sys.modules)
        import pyspark_headrace
        assert pyspark_headrace.DefaultSource({}).name() == "headrace"
        print(json.dumps(sorted(set(sys.modules) - before)))
    """
    assert json.loads(in_a_process(program, tmp_path)) == ["pyspark_headrace"]


@pytest.mark.parametrize(
    ("module", "content"),
    [
        # no PySpark: the folder has an empty pyspark of its own
        ("pyspark/__init__.py", ""),
        ("pyspark/sql/__init__.py", ""),
        ("pyspark/sql/datasource.py", "class SomethingElse: pass"),
        ("pyspark/sql/datasource.py", "raise RuntimeError('broken')"),
        ("pyspark/sql/datasource.py", "import no_such_module"),
        ("pyspark/sql/datasource.py", "this is not Python"),
    ],
)
def test_importing_it_never_fails(tmp_path: Path, module: str, content: str):
    for package in ("pyspark", "pyspark/sql"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / module).write_text(content)
    program = "import pyspark, pyspark_headrace; print(pyspark.__file__, hasattr(pyspark_headrace, 'DefaultSource'))"
    assert in_a_process(program, tmp_path) == f"{tmp_path / 'pyspark' / '__init__.py'} False\n"


def test_without_headrace_the_error_comes_when_it_is_used(tmp_path: Path):
    (tmp_path / "headrace").mkdir()
    (tmp_path / "headrace" / "__init__.py").write_text("raise ImportError('headrace is broken here')")
    program = """
        import warnings
        warnings.simplefilter("ignore")
        import pyspark_headrace
        try:
            pyspark_headrace.DefaultSource({}).writer(None, False)
        except ImportError as error:
            print(error)
    """
    assert in_a_process(program, tmp_path) == "headrace is broken here\n"
