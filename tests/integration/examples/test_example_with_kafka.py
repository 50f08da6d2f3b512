"""The example of tests with a broker runs, and the guide beside it is correct."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

from headrace.broker import EmbeddedCluster, Fault

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")


def test_the_example_passes():
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_with_kafka.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
    assert re.search(r"^8 passed", answer.stdout, re.MULTILINE)


def test_the_guide_names_every_fault_and_no_other():
    named = set(re.findall(r"(\w+)=", " ".join(re.findall(r"^\| `(?:Fault\()?(\w+=.*?)` \|", GUIDE, re.MULTILINE))))
    fields = {field.name for field in dataclasses.fields(Fault)}
    assert fields - {"topic", "partition"} <= named <= fields | {"topic", "partition"}


def test_what_the_guide_calls_is_there():
    called = set(re.findall(r"kafka_cluster\.(\w+)", GUIDE)) | set(re.findall(r"^\| `(\w+)\(", GUIDE, re.MULTILINE))
    called -= {"Fault"}
    assert {"records", "inject", "kill_broker", "act_as", "waiting"} <= called
    for name in called:
        assert hasattr(EmbeddedCluster, name), name
