"""Which modules run: the compiled ones, or the same sources interpreted.

Modules on the per-record path are named ``*_cy.py``. They are plain Python, and Cython compiles them in pure-Python
mode. Python prefers a compiled neighbour (``name_cy.*.so``) to ``name_cy.py`` by itself; ``HEADRACE_PURE=1`` in the
environment turns that around for the whole process.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

#: Every module that is compiled when a C compiler is there. A test holds this list against the files.
HOT_MODULES: tuple[str, ...] = (
    "headrace.network.records.builder_cy",
    "headrace.network.records.reader_cy",
    "headrace.producer.accumulator_cy",
    "headrace.producer.batch_cy",
    "headrace.producer.columns_cy",
    "headrace.producer.murmur2_cy",
    "headrace.producer.send_path_cy",
)

PURE = os.environ.get("HEADRACE_PURE", "") not in ("", "0")


class _InterpretedFinder:
    """Finds ``headrace.*_cy`` by its source, passing over a compiled neighbour."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None):
        if not (name.startswith("headrace.") and name.endswith("_cy")):
            return None
        for folder in path or ():
            source = os.path.join(folder, name.rpartition(".")[2] + ".py")
            if os.path.exists(source):
                loader = importlib.machinery.SourceFileLoader(name, source)
                return importlib.util.spec_from_file_location(name, source, loader=loader)
        return None


def install() -> None:
    """Make this process run the interpreted modules if ``HEADRACE_PURE`` asks for it. Called once, on first import."""
    if PURE and not any(finder is _InterpretedFinder for finder in sys.meta_path):
        sys.meta_path.insert(0, _InterpretedFinder)  # type: ignore[arg-type]


def interpreted(name: str) -> ModuleType:
    """Load a second, interpreted copy of a hot module, so that one process can hold both against each other.

    The copy is not put into ``sys.modules``; its own imports are the process's normal ones.
    """
    compiled = importlib.import_module(name)
    folder = os.path.dirname(compiled.__file__ or "")
    source = os.path.join(folder, name.rpartition(".")[2] + ".py")
    loader = importlib.machinery.SourceFileLoader(name, source)
    spec = importlib.util.spec_from_file_location(name, source, loader=loader)
    if spec is None:
        raise ImportError(f"{name} has no source at {source}")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def compiled_modules() -> dict[str, bool]:
    """Name of each hot module -> whether this process runs it compiled."""
    return {name: not importlib.import_module(name).__file__.endswith(".py") for name in HOT_MODULES}  # type: ignore[union-attr]


def describe() -> str:
    """``compiled``, ``interpreted`` (and why), or which modules are which: for ``headrace --version`` and test headers."""
    states = compiled_modules()
    if all(states.values()):
        return "compiled"
    if not any(states.values()):
        return "interpreted (HEADRACE_PURE)" if PURE else "interpreted (no compiled modules are installed)"
    return "mixed: " + ", ".join(f"{name} {'compiled' if yes else 'interpreted'}" for name, yes in states.items())
