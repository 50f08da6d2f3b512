"""Where the packages are, and how the hot modules are compiled. Everything else is declared in pyproject.toml.

Every module named ``*_cy.py`` is plain Python that Cython also compiles (pure-Python mode). With a C compiler the
build compiles them, and a compilation that fails is an error. Without a C compiler the interpreted modules are
installed, and the build says so; ``HEADRACE_REQUIRE_COMPILED=1`` makes that case an error too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PARTS = ("network", "producer", "broker", "cli")
#: The one name outside `headrace`: PySpark finds data sources in top-level modules that are called so.
FOR_PYSPARK = "pyspark_headrace"
REQUIRED = os.environ.get("HEADRACE_REQUIRE_COMPILED") == "1"


def compiler_problem() -> str | None:
    """Say why C extensions for this Python can't be built here, or None where they can."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text("#include <Python.h>\nint probe(void) { return PY_VERSION_HEX; }\n")
        include = "-I" + sysconfig.get_paths()["include"]
        try:
            subprocess.run(
                [*command, "-fPIC", include, "-c", str(probe), "-o", str(probe.with_suffix(".o"))],
                check=True,
                capture_output=True,
            )
        except OSError:
            return f"there is no C compiler ({command[0]})"
        except subprocess.CalledProcessError as failed:
            said = failed.stderr.decode(errors="replace").strip().splitlines()
            return f"the C compiler can't build against this Python: {said[0] if said else command[0]}"
    return None


def hot_modules() -> list[Extension]:
    """An extension for each hot module, still with its Python source; none where they can't be compiled."""
    problem = compiler_problem()
    if problem is not None:
        if REQUIRED:
            raise SystemExit(f"HEADRACE_REQUIRE_COMPILED=1, but {problem}")
        print(f"headrace: {problem}; the interpreted modules are installed instead", file=sys.stderr)
        return []
    sources = sorted(source.relative_to(ROOT) for part in PARTS for source in (ROOT / part).rglob("*_cy.py"))
    return [
        # -g0: the symbols of the generated C code would be nine tenths of what is installed
        Extension(
            "headrace." + ".".join(source.with_suffix("").parts), [str(source)], extra_compile_args=["-O3", "-g0"]
        )
        for source in sources
    ]


def link_packages() -> Path:
    """The folder in which ``headrace/network`` and the others are links to the packages' sources.

    A compiled module finds another's declarations (``*.pxd``), and a type checker what the tests import, by a path
    that says what the import says.
    """
    include = ROOT / "build" / "include"
    package = include / "headrace"
    if package.is_symlink():
        package.unlink()
    package.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if not (package / part).is_symlink():
            (package / part).symlink_to(Path("..", "..", "..", part), target_is_directory=True)
    return include


class CompileHotModules(build_ext):
    """Turns the hot modules into C before they are compiled; only then, so that reading metadata stays quick."""

    def run(self) -> None:
        include = link_packages()
        if not self.extensions:
            return
        from Cython.Build import cythonize  # noqa: PLC0415 - needed only where something is compiled

        translated = cythonize(
            self.extensions,
            build_dir="build/cython",
            include_path=[str(include)],
            language_level="3",
            compiler_directives={"embedsignature": True},
        )
        for extension, as_c in zip(self.extensions, translated, strict=True):
            extension.sources = as_c.sources
            extension.depends = as_c.depends
        self.parallel = self.parallel or os.cpu_count()
        super().run()


setup(
    packages=[
        FOR_PYSPARK,
        *("headrace." + name for part in PARTS for name in (part, *(f"{part}.{sub}" for sub in find_packages(part)))),
    ],
    package_dir={FOR_PYSPARK: FOR_PYSPARK, **{"headrace." + part: part for part in PARTS}},
    ext_modules=hot_modules(),
    cmdclass={"build_ext": CompileHotModules},
)
