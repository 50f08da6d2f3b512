"""The programs, tests, commands and configuration files in the README and the pages of docs/ run.

Programs and commands run unchanged except for the broker's address. The blocks of new pages are found automatically;
see `support.pages` for how to mark a block that can't run. Spark programs run in
`tests/integration/spark/test_page_programs.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from support.pages import (
    ADDRESS,
    BLOCKS,
    ROOT,
    Block,
    blocks_in,
    blocks_of,
    cases,
    free_names,
    is_program,
    is_test,
    pages,
    program_of,
)
from support.processes import child

from headrace.broker import EmbeddedCluster
from headrace.cli.main import COMMANDS
from headrace.network.config_files import read_config_file
from headrace.producer import ProducerConfig

SHELLS = ("sh", "bash", "shell")
FILES = ("properties", "toml", "json")
OUTPUT = ("", "text")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


def run(arguments: list[str], directory: Path, **environment: str) -> str:
    """The output of a program, which must succeed without warnings."""
    answer = subprocess.run(
        arguments,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stdout
    return answer.stdout


def program(block: Block, cluster: EmbeddedCluster, directory: Path) -> str:
    return run([sys.executable, "-c", program_of(block, cluster.bootstrap_servers)], directory)


def test_how_a_page_is_read() -> None:
    page = """\
Text.

```python
first = undefined
```

- <!-- not run: a cluster of YARN -->
  ```sh
  spark-submit
  ```

  <!-- not run: it needs a cluster -->
  ```sh
  yarn
  ```

```
output
```
"""
    assert blocks_in("page.md", page) == [
        Block("page.md", 3, "python", "first = undefined\n", None),
        Block("page.md", 8, "sh", "spark-submit\n", None),
        Block("page.md", 13, "sh", "yarn\n", "it needs a cluster"),
        Block("page.md", 17, "", "output\n", None),
    ]
    assert free_names("import os\nfor each in given:\n    print(os, each, other(each))") == {"given", "other"}


def test_every_block_is_run_or_says_why_not() -> None:
    languages = {"python", *SHELLS, *FILES, *OUTPUT}
    assert [str(block) for block in BLOCKS if block.not_run is None and block.language not in languages] == []
    assert [str(block) for block in BLOCKS if block.not_run is not None and len(block.not_run.split()) < 3] == []


def test_no_block_is_missed() -> None:
    for page in pages():
        fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(blocks_of(page)), page


@pytest.mark.parametrize("block", cases(is_program))
def test_a_program(block: Block, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    (tmp_path / "producer.properties").write_text(f"bootstrap.servers={cluster.bootstrap_servers}\n")
    program(block, cluster, tmp_path)


@pytest.mark.parametrize("block", cases(is_test))
def test_a_test(block: Block, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    fixtures = ("pytest",)
    text = "import pytest\n" + program_of(block, cluster.bootstrap_servers, fixtures)
    (tmp_path / "test_page.py").write_text(text, encoding="utf-8")
    said = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"], tmp_path)
    assert re.search(rf"^{len(re.findall(r'^def test_', text, re.MULTILINE))} passed", said, re.MULTILINE), said


@pytest.mark.parametrize("block", cases(lambda block: block.language in SHELLS))
def test_commands(block: Block, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    subprocess.run(["sh", "-n"], input=block.text, text=True, check=True)
    for line in re.sub(r"\\\n", " ", block.text).splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"\w+=.*", words[0]):
            words.pop(0)
        if words:
            command(words, cluster, tmp_path)


def command(words: list[str], cluster: EmbeddedCluster, directory: Path) -> None:
    """Run a Headrace command; for others, check that the targets or files they name exist. Unknown commands fail."""
    if words[0] == "headrace":
        our_command([word.replace(ADDRESS, cluster.bootstrap_servers) for word in words[1:]], cluster, directory)
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)
    elif words[:2] == ["pip", "install"]:
        extras = re.findall(r"\[([\w,]+)\]", " ".join(words))
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        declared = re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE)
        assert {each for extra in extras for each in extra.split(",")} <= set(declared)
    elif "pytest" in words[:3]:
        assert [word for word in words if word.endswith(".py") and not (ROOT / word).is_file()] == []
    else:
        pytest.fail(f"{words[0]}: mark the block with <!-- not run: the reason -->, or teach this test to run it")


def our_command(words: list[str], cluster: EmbeddedCluster, directory: Path) -> None:
    headrace = [sys.executable, "-m", "headrace.cli", *words]
    if words[0] == "broker":
        run_broker([re.sub(r"^9092$", "0", word) for word in headrace])
        return
    if words[0] in ("consume", "topics") and "create" not in words:
        for topic in words[1:]:
            if re.fullmatch(r"[a-z][a-z0-9._-]*", topic) and topic not in ("list", "describe", "delete"):
                cluster.create_topic(topic, 1)
    if words[0] in ("consume", "topics") and not {"-b", "--bootstrap-server"} & set(words):
        headrace += ["-b", cluster.bootstrap_servers]
    run(headrace, directory)


def run_broker(arguments: list[str]) -> None:
    """Start it, and stop it once it serves."""
    with child(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("bootstrap.servers=")
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


@pytest.mark.parametrize("block", cases(lambda block: block.language in FILES))
def test_a_file(block: Block, tmp_path: Path) -> None:
    if block.language == "json":
        json.loads(block.text)
        return
    if block.language == "toml" and sys.version_info < (3, 11):
        pytest.skip("TOML files need Python 3.11")
    path = tmp_path / f"page.{block.language}"
    path.write_text(block.text, encoding="utf-8")
    names = [name.replace("_", ".") for name, _, _ in read_config_file(str(path))]
    assert names
    if not any(name.startswith("spark.") for name in names):
        given = {} if "bootstrap.servers" in names else {"bootstrap.servers": ADDRESS}
        ProducerConfig.resolve_from(given, {"config_file": str(path)}, {})


def spans() -> Iterator[object]:
    """The commands within the text, as parameters named by page."""
    for page in pages():
        for span in re.findall(r"`headrace ([a-z-][^`\n]*)`", page.read_text(encoding="utf-8")):
            yield pytest.param(shlex.split(span), id=f"{page.name}: {span}")


@pytest.mark.parametrize("words", list(spans()))
def test_a_command_in_the_text_has_these_options(words: list[str]) -> None:
    if words == ["--version"]:
        return
    assert words[0] in COMMANDS
    if len(words) > 1:
        module = import_module(f"headrace.cli.{words[0].replace('-', '_')}")
        parser = ArgumentParser()
        module.add_arguments(parser)
        parser.parse_args(words[1:])


# --- The output of the README's programs ---


README = [block for block in blocks_of(ROOT / "README.md") if is_program(block)]


def test_the_producer_of_the_readme(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    said = program(README[0], cluster, tmp_path)
    assert "greetings-0 has it at offset 1" in said
    assert "RecordMetadata(topic='greetings', partition=0, offset=0" in said
    assert [(record.key, record.value) for record in cluster.records("greetings", 0)] == [
        (b"en", b'{"text":"hello"}'),
        (b"de", b'{"text":"hallo"}'),
    ]


def test_the_columns_of_the_readme(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    said = program(README[1], cluster, tmp_path)
    assert "RowsMetadata(rows=2, bytes=35, batches=1" in said
    assert "TopicPartition(topic='flights', partition=0): OffsetRange(first=0, last=1, records=2)" in said
    assert [record.key for record in cluster.records("flights", 0)] == [b"UA", b"DL"]


def test_the_embedded_broker_of_the_readme(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    assert program(README[2], cluster, tmp_path) == f"{[b'%d' % number for number in range(10)]}\n"
