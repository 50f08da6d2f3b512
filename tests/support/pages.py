"""The code blocks of the README and of docs/*.md, so that a test runs every one of them.

A block's language says how it runs: see `tests/integration/examples/test_pages.py`, and for Spark programs
`tests/integration/spark/test_page_programs.py`. A block without a language is output or a drawing. A block that can't
run has, on the line above it,

    <!-- not run: the reason -->

A program may use names that an earlier block of its page defines, and those of `PROVIDED`.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "localhost:9092"

_FENCE = re.compile(
    r"(?:^[ ]*<!-- not run: (?P<reason>[^\n]*?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>[\w+-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)

#: Names that the programs of pages use without defining them: a few lines of Python each.
PROVIDED = {
    "KafkaProducer": "from headrace.producer import KafkaProducer",
    "producer": """\
        from headrace.producer import KafkaProducer
        producer = KafkaProducer(bootstrap_servers="localhost:9092")
        producer.send("greetings", b"hello").get(10)""",
    "bootstrap_servers": """\
        import atexit
        from headrace.broker import EmbeddedCluster
        cluster = EmbeddedCluster(users={"alice": "secret"})
        cluster.start()
        atexit.register(cluster.close)
        bootstrap_servers = cluster.bootstrap_servers""",
    "prometheus_client": "import prometheus_client",
    "handler": """\
        import logging
        handler = logging.StreamHandler()""",
    "kafka_cluster": """\
        import atexit
        from headrace.broker import EmbeddedCluster
        kafka_cluster = EmbeddedCluster()
        kafka_cluster.start()
        atexit.register(kafka_cluster.close)""",
    # the code under test
    "place_order": """\
        from headrace.producer import KafkaProducer
        def place_order(servers, topic, what):
            with KafkaProducer(bootstrap_servers=servers) as producer:
                producer.send(topic, what.encode())""",
}

#: Names that a Spark session provides.
SPARK = ("spark", "df", "events")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    #: Why it can't run; None if it runs.
    not_run: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").glob("*.md"))


def blocks_in(page: str, text: str) -> list[Block]:
    """The blocks of a page's text, in order."""
    return [
        Block(
            page,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"],
            textwrap.dedent(match["text"]),
            match["reason"],
        )
        for match in _FENCE.finditer(text)
    ]


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    return blocks_in(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))


BLOCKS = [block for page in pages() for block in blocks_of(page)]


def cases(wanted: Callable[[Block], bool]) -> list[object]:
    """The blocks to run, as test parameters named by page and line."""
    return [pytest.param(block, id=str(block)) for block in BLOCKS if block.not_run is None and wanted(block)]


def is_spark(block: Block) -> bool:
    """Whether it is a program that needs a Spark session."""
    if block.language != "python":
        return False
    imports_it = re.search(r"\bpyspark\b|producer\.spark\b", block.text) is not None
    return imports_it or not free_names(block.text).isdisjoint(SPARK)


def is_test(block: Block) -> bool:
    """Whether it contains tests for pytest."""
    return block.language == "python" and re.search(r"^def test_", block.text, re.MULTILINE) is not None


def is_program(block: Block) -> bool:
    """Whether it is a program that runs by itself."""
    return block.language == "python" and not is_spark(block) and not is_test(block)


def free_names(program: str) -> set[str]:
    """The names that a program reads and doesn't define."""
    nodes = list(ast.walk(ast.parse(program)))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)} - {
        *_bound(nodes),
        *dir(builtins),
    }


def _bound(nodes: list[ast.AST]) -> set[str]:
    bound: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return bound


def program_of(block: Block, servers: str, given: tuple[str, ...] = ()) -> str:
    """A complete program for these servers: what the block needs from earlier blocks and `PROVIDED`, then the block.

    `given` has the names that the test defines. A name that nothing defines fails the test.
    """
    parts = [block.text]
    earlier = [each for each in BLOCKS if each.page == block.page and each.line < block.line and _is_part(each, block)]
    while missing := free_names("\n".join(parts)) - set(given):
        definer = next((each for each in reversed(earlier) if missing & _defined_by(each)), None)
        if definer is not None:
            earlier.remove(definer)
            parts.insert(0, definer.text)
        elif unknown := missing - PROVIDED.keys():
            pytest.fail(f"{block} uses {', '.join(sorted(unknown))}, which nothing defines", pytrace=False)
        else:
            parts.insert(0, "\n".join(textwrap.dedent(PROVIDED[name]) for name in sorted(missing)))
    text = "\n".join(parts).replace(ADDRESS, servers)
    # any free port will do
    return re.sub(r"\(9400\)", "(0)", text)


def _is_part(earlier: Block, block: Block) -> bool:
    return is_program(earlier) or (is_spark(earlier) and is_spark(block))


def _defined_by(block: Block) -> set[str]:
    """The names that a program defines at its top level."""
    defined: set[str] = set()
    for node in ast.parse(block.text).body:
        is_named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        defined |= {node.name} if is_named else _bound(list(ast.walk(node)))
    return defined
