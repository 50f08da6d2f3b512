"""An interpreter without the GIL stays without it: the compiled modules declare that they don't need it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"),
    reason="needs a free-threaded interpreter, such as python3.13t or python3.14t",
)


def without_the_gil(program: str) -> str:
    """Run a program in an interpreter whose GIL no environment variable keeps off or on; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_every_compiled_module_leaves_the_gil_off() -> None:
    program = """
        import importlib, sys
        import headrace.broker, headrace.producer
        from headrace.network import _build
        for name in _build.HOT_MODULES:
            importlib.import_module(name)
        assert not sys._is_gil_enabled()
        print(_build.describe())
    """
    assert without_the_gil(program) in ("compiled", "interpreted (HEADRACE_PURE)")


def test_sending_to_an_embedded_broker_leaves_the_gil_off() -> None:
    program = """
        import sys
        from headrace.broker import EmbeddedCluster
        from headrace.producer import KafkaProducer
        with EmbeddedCluster(brokers=1) as cluster:
            with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                print(producer.send("t", b"v", key=b"k", headers=[("h", b"v")]).get(60).offset)
        assert not sys._is_gil_enabled()
    """
    assert without_the_gil(program) == "0"
