"""Selects the compiled or the interpreted form of the hot modules.

Modules on the per-record path are named ``*_cy.py``. They are plain Python, and Cython compiles them in pure-Python
mode. Python prefers a compiled neighbour (``name_cy.*.so``) to ``name_cy.py``. ``HEADRACE_PURE=1`` in the environment
reverses that for the whole process.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder, SourceFileLoader
from types import ModuleType

#: The version of the project, as in pyproject.toml. Reading the installed metadata would import the email package.
VERSION = "0.1.0"

#: Every module that is compiled if a C compiler is available. A test compares this list with the files.
HOT_MODULES: tuple[str, ...] = (
    "headrace.network.client.client_metrics_cy",
    "headrace.network.client.connection_states_cy",
    "headrace.network.client.in_flight_cy",
    "headrace.network.client.network_client_cy",
    "headrace.network.client.request_cy",
    "headrace.network.latch_cy",
    "headrace.network.protocol.produce_cy",
    "headrace.network.records.builder_cy",
    "headrace.network.records.columns_cy",
    "headrace.network.records.headers_cy",
    "headrace.network.records.reader_cy",
    "headrace.network.sensor_cy",
    "headrace.network.sockets.channel_cy",
    "headrace.network.sockets.plaintext_transport_cy",
    "headrace.network.sockets.poller_cy",
    "headrace.network.sockets.selector_base_cy",
    "headrace.network.sockets.selector_cy",
    "headrace.network.sockets.tls_transport_cy",
    "headrace.network.time_cy",
    "headrace.producer.accumulator.accumulator_cy",
    "headrace.producer.accumulator.batch_cy",
    "headrace.producer.accumulator.batch_memory_cy",
    "headrace.producer.accumulator.buffer_pool_cy",
    "headrace.producer.accumulator.compression_estimate_cy",
    "headrace.producer.accumulator.drain_cy",
    "headrace.producer.accumulator.listeners_cy",
    "headrace.producer.accumulator.murmur2_cy",
    "headrace.producer.accumulator.queues_cy",
    "headrace.producer.accumulator.record_metadata_cy",
    "headrace.producer.accumulator.send_path_cy",
    "headrace.producer.accumulator.serializing_cy",
    "headrace.producer.aio.futures_cy",
    "headrace.producer.aio.sends_cy",
    "headrace.producer.columns.avro_cy",
    "headrace.producer.columns.lists_cy",
    "headrace.producer.columns.rows_cy",
    "headrace.producer.plugins.json_cy",
    "headrace.producer.sender.answer_times_cy",
    "headrace.producer.sender.outcomes_cy",
    "headrace.producer.sender.sender_cy",
    "headrace.producer.sender.transaction_manager_cy",
    "headrace.producer.sent_metrics_cy",
)

PURE = os.environ.get("HEADRACE_PURE", "") not in ("", "0")

_copies: dict[str, ModuleType] = {}


class _InterpretedFinder:
    """Finds the source of ``headrace.*_cy`` and ignores a compiled neighbour."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None):
        if not (name.startswith("headrace.") and name.endswith("_cy")):
            return None
        import importlib.util  # noqa: PLC0415 - only interpreted hot modules need it

        for folder in path or ():
            source = os.path.join(folder, name.rpartition(".")[2] + ".py")
            if os.path.exists(source):
                loader = SourceFileLoader(name, source)
                return importlib.util.spec_from_file_location(name, source, loader=loader)
        return None


def _refuse_second_interpreter() -> None:
    """Raise ImportError outside the process's main interpreter: compiled modules and codecs load into one only.

    They raise it themselves, but interpreted modules and codecs imported on first use would do so too late.
    """
    try:
        import _interpreters as interpreters  # noqa: PLC0415  # pyright: ignore[reportMissingImports]  since 3.13
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
        except ImportError:
            return
    if interpreters.get_current() != interpreters.get_main():
        raise ImportError("headrace supports one interpreter per process: import it in the main interpreter only")


def install() -> None:
    """Make this process run the interpreted modules if ``HEADRACE_PURE`` is set. Called once, on first import."""
    _refuse_second_interpreter()
    if PURE and not any(finder is _InterpretedFinder for finder in sys.meta_path):
        sys.meta_path.insert(0, _InterpretedFinder)  # type: ignore[arg-type]


def interpreted(name: str) -> ModuleType:
    """A second, interpreted copy of a hot module, so that one process can compare both forms.

    The hot modules that it imports are interpreted copies too, the same ones on each call. All other modules are those
    of the process. `sys.modules` is restored on return. For tests only: no other thread may import meanwhile.
    """
    if name not in _copies:
        # import all of them first, so that only hot modules are loaded below
        kept = {hot: importlib.import_module(hot) for hot in HOT_MODULES}
        for hot in HOT_MODULES:
            del sys.modules[hot]
        sys.modules.update(_copies)
        sys.meta_path.insert(0, _InterpretedFinder)  # type: ignore[arg-type]
        try:
            importlib.import_module(name)
            _copies.update({hot: sys.modules[hot] for hot in HOT_MODULES if hot in sys.modules})
        finally:
            sys.meta_path.remove(_InterpretedFinder)  # type: ignore[arg-type]
            for hot, module in kept.items():
                sys.modules[hot] = module
                package, _, attribute = hot.rpartition(".")
                setattr(sys.modules[package], attribute, module)
    return _copies[name]


def compiled_modules() -> dict[str, bool]:
    """Whether this process runs each hot module compiled, by name. Imports none of them."""
    return {name: not _file_of(name).endswith(".py") for name in HOT_MODULES}


def _file_of(name: str) -> str:
    """The file of a hot module, or the file that its import would use."""
    if name in sys.modules:
        return sys.modules[name].__file__ or ""
    _, *packages, _ = name.split(".")
    folder = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *packages)]
    spec = (_InterpretedFinder if PURE else PathFinder).find_spec(name, folder)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{name} is not in {folder[0]}; install headrace again", name=name)
    return spec.origin


def describe() -> str:
    """``compiled``, ``interpreted`` with the reason, or a mixed list: for ``headrace --version`` and test headers."""
    states = compiled_modules()
    if all(states.values()):
        return "compiled"
    if not any(states.values()):
        return "interpreted (HEADRACE_PURE)" if PURE else "interpreted (no compiled modules are installed)"
    return "mixed: " + ", ".join(f"{name} {'compiled' if yes else 'interpreted'}" for name, yes in states.items())
