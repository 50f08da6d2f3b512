"""What a new process imports: a module that a command or a producer does not need costs every start."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

#: Imported by none of the programs below. Each of them takes 1 to 20 ms, most with what they import themselves.
HEAVY = {
    "argparse",
    "asyncio",
    "crc32c",  # its extension module is enough
    "cramjam",
    "dataclasses",
    "decimal",
    "difflib",
    "email",
    "fractions",
    "importlib.metadata",
    "inspect",
    "json",
    "mmh3",
    "msgpack",
    "opentelemetry",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "ssl",
    "statistics",
}
#: Imported on first use: most producers need none of these.
ON_FIRST_USE = {
    "concurrent.futures",
    "encodings.idna",
    "headrace.network.client.connection_snapshot",
    "headrace.network.client.request",  # for type checkers only
    "headrace.network.config_files",
    "headrace.network.protocol.other_errors",
    "headrace.network.records.legacy",
    "headrace.network.security.mechanism",  # for type checkers only
    "headrace.producer.accumulator.concurrent_future",
    *(
        f"headrace.producer.plugins.{name}"
        for name in ("interceptors", "loading", "partitioners", "reporters", "serializers")
    ),
    "headrace.registry",
    "random",
    "zlib",
}
#: The messages a producer sends.
MESSAGES = {"api_versions", "records.init_producer_id", "records.produce", "topics.metadata"}
_MESSAGES = "headrace.network.protocol.messages."

_REPORT = """
import sys
before = set(sys.modules)
{program}
import json
print(json.dumps(sorted(set(sys.modules) - before - {{"json", "json.decoder", "json.encoder", "json.scanner"}})))
"""


def imported_by(program: str) -> set[str]:
    """The modules that a program imports. `json` itself is not among them unless the program's modules import it."""
    # a lookup in sys.modules comes before the import of json for the report
    report = _REPORT.format(program=f"{program}\nuses_json = 'json' in sys.modules")
    report += "print(int(uses_json))\n"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    modules, uses_json = done.stdout.splitlines()
    return {*json.loads(modules), *(["json"] if uses_json == "1" else [])}


PRODUCER = """
from headrace.producer import KafkaProducer
producer = KafkaProducer(bootstrap_servers="127.0.0.1:1", {arguments})
producer.close(0)
"""


@pytest.mark.parametrize("program", ["import headrace.producer", PRODUCER.format(arguments="")], ids=["import", "new"])
def test_a_producer_imports_what_it_needs(program: str) -> None:
    imported = imported_by(program)
    assert "headrace.producer.kafka_producer" in imported
    # a variable that begins like those of the configuration is compared with its keys
    assert imported & HEAVY <= ({"difflib"} if "HEADRACE_PURE" in os.environ else set())
    assert imported & ON_FIRST_USE == set()
    assert {name for name in imported if name.startswith("headrace.producer.columns")} == set()
    assert {name for name in imported if name.startswith(("headrace.broker", "headrace.cli"))} == set()
    messages = {name.removeprefix(_MESSAGES) for name in imported if name.startswith(_MESSAGES)}
    assert {name for name in messages if "." in name or name == "api_versions"} == MESSAGES


def test_a_start_compiles_nothing() -> None:
    """The first call of `compile` creates the classes of the `ast` module; annotations as text cause such calls."""
    program = f"""
import builtins
compile = builtins.compile
def compiling(source, *arguments, **options):
    # interpreted modules may lack their bytecode
    assert isinstance(source, bytes), f"compiles {{source!r}}"
    return compile(source, *arguments, **options)
builtins.compile = compiling
{PRODUCER.format(arguments="")}"""
    assert "headrace.producer.kafka_producer" in imported_by(program)


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        ("compression_type='gzip'", "zlib"),
        ("compression_type='snappy'", "cramjam"),
        ("compression_type='lz4'", "cramjam"),
        ("compression_type='zstd'", "cramjam"),
        ("enable_idempotence=False", "headrace.network.records.legacy"),
        ("enable_idempotence=False", "zlib"),
    ],
)
def test_a_producer_imports_what_it_writes_with_before_its_thread_starts(arguments: str, module: str) -> None:
    """An import on the sender thread can fail while the interpreter exits."""
    assert module in imported_by(PRODUCER.format(arguments=arguments))


@pytest.mark.parametrize(
    ("arguments", "module"),
    [
        ("value_serializer='string'", "serializers"),
        ("partitioner_class='round_robin'", "partitioners"),
        ("interceptor_classes=[Interceptor()]", "interceptors"),
        ("metric_reporters=[Reporter()]", "reporters"),
    ],
)
def test_a_plugin_imports_the_plugins_of_its_kind(arguments: str, module: str) -> None:
    program = f"""
class Interceptor:
    def on_send(self, record):
        return record
class Reporter:
    def init(self, metrics):
        pass
{PRODUCER.format(arguments=arguments)}"""
    kinds = {"serializers", "partitioners", "interceptors", "reporters"}
    imported = imported_by(program)
    assert {kind for kind in kinds if f"headrace.producer.plugins.{kind}" in imported} == {module}


def test_public_names_that_are_imported_late() -> None:
    program = """
import headrace.producer, pickle
listed = dir(headrace.producer)
assert not any(name.startswith("headrace.producer.columns") for name in sys.modules)
for name in headrace.producer.__all__:
    assert name in listed, name
    assert getattr(headrace.producer, name).__name__.rpartition(".")[2] == name
from headrace.producer import RowsMetadata
assert pickle.loads(pickle.dumps(RowsMetadata)) is RowsMetadata
assert not hasattr(headrace.producer, "Rows")
"""
    assert "headrace.producer.columns.rows_future" in imported_by(program)


def test_the_version_imports_neither_producer_nor_broker() -> None:
    program = """
from headrace.cli import main
try:
    main(["--version"])
except SystemExit:
    pass
"""
    imported = imported_by(
        f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):{_indented(program)}"
    )
    assert imported & (HEAVY - {"argparse"}) == set()
    assert {name for name in imported if name.startswith(("headrace.producer", "headrace.broker"))} == set()


def test_a_cluster_without_a_console_imports_none() -> None:
    program = """
from headrace.broker import EmbeddedCluster, ProcessCluster
with EmbeddedCluster():
    pass
"""
    imported = imported_by(program)
    assert "headrace.broker.cluster.processes" in imported
    of_consoles = ("headrace.broker.console", "headrace.broker.services.observation", "http.server")
    assert {name for name in imported if name.startswith(of_consoles)} == set()


def test_the_extension_of_crc32c_is_the_package_s() -> None:
    """A program that imports crc32c later gets the same function, and one that has done so already works too."""
    late = "from headrace.network.records.crc import crc32c\nimport crc32c as whole\nassert whole.crc32c is crc32c"
    early = "import crc32c as whole\nfrom headrace.network.records.crc import crc32c\nassert whole.crc32c is crc32c"
    for program in (late, early):
        assert "crc32c" in imported_by(program + "\nassert crc32c(b'123456789') == 0xE3069283")


def _indented(program: str) -> str:
    return "".join(f"\n    {line}" for line in program.strip().splitlines())
