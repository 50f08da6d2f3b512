"""What the README shows works: each of its programs is run as it stands there, but for the broker's address."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.broker import EmbeddedCluster

README = Path(__file__).resolve().parents[3] / "README.md"
PROGRAMS = [
    program
    for program in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    if "df." not in program  # the demo runs that one
]


@pytest.fixture
def cluster():
    with EmbeddedCluster() as cluster:
        yield cluster


def run(program: str) -> str:
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout


def test_there_are_programs_to_run():
    assert len(PROGRAMS) == 3


def test_the_producer_of_the_readme(cluster: EmbeddedCluster):
    said = run(PROGRAMS[0].replace("localhost:9092", cluster.bootstrap_servers))
    assert "greetings-0 has it at offset 1" in said
    assert "RecordMetadata(topic='greetings', partition=0, offset=0" in said
    assert [(record.key, record.value) for record in cluster.records("greetings", 0)] == [
        (b"en", b'{"text":"hello"}'),
        (b"de", b'{"text":"hallo"}'),
    ]


def test_the_columns_of_the_readme(cluster: EmbeddedCluster):
    said = run(PROGRAMS[1].replace("localhost:9092", cluster.bootstrap_servers))
    assert "RowsMetadata(rows=2, bytes=35, batches=1" in said
    assert "TopicPartition(topic='flights', partition=0): OffsetRange(first=0, last=1, records=2)" in said
    assert [record.key for record in cluster.records("flights", 0)] == [b"UA", b"DL"]


def test_the_programs_about_futures(cluster: EmbeddedCluster):
    page = (README.parent / "docs" / "futures.md").read_text(encoding="utf-8")
    asyncio, executors = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert run(asyncio.replace("localhost:9092", cluster.bootstrap_servers)) == "0 100\n100\n"
    assert run(executors.replace("localhost:9092", cluster.bootstrap_servers)) == "101 0\n300\n"


def test_the_embedded_broker_of_the_readme():
    assert run(PROGRAMS[2]) == f"{[b'%d' % number for number in range(10)]}\n"
