"""The list of packages and the compilation of the hot modules. pyproject.toml declares everything else.

Every module named ``*_cy.py`` is plain Python that Cython also compiles (pure-Python mode). With a C compiler the
build compiles these modules, and a failed compilation is an error. Without a C compiler the build prints a note and
installs the interpreted modules; ``HEADRACE_REQUIRE_COMPILED=1`` makes that an error, too.
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
PARTS = ("network", "registry", "producer", "broker", "cli")
#: The only package outside `headrace`: PySpark looks for data sources in top-level modules named `pyspark_*`.
FOR_PYSPARK = "pyspark_headrace"
#: Code and read-only data in one segment: two mappings less per module, a fifth of the time to load it.
LINK_ARGS = ["-Wl,-z,noseparate-code"] if sys.platform == "linux" else []
REQUIRED = os.environ.get("HEADRACE_REQUIRE_COMPILED") == "1"


def compiler_problem() -> str | None:
    """The reason why C extensions for this Python can't be built here; None if they can."""
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
    """One extension per hot module, with its Python source; none if they can't be compiled."""
    problem = compiler_problem()
    if problem is not None:
        if REQUIRED:
            raise SystemExit(f"HEADRACE_REQUIRE_COMPILED=1, but {problem}")
        print(f"headrace: {problem}; the interpreted modules are installed instead", file=sys.stderr)
        return []
    sources = sorted(source.relative_to(ROOT) for part in PARTS for source in (ROOT / part).rglob("*_cy.py"))
    return [
        # -O2: as fast as -O3 in the benchmarks, and compiled in four fifths of the time; -g0: the debug symbols of the
        # generated C code would be 90 % of the installed size; GCC 14 rejects incompatible pointers by default
        Extension(
            "headrace." + ".".join(source.with_suffix("").parts),
            [str(source)],
            extra_compile_args=["-O2", "-g0", "-Werror=incompatible-pointer-types"],
            extra_link_args=LINK_ARGS,
        )
        for source in sources
    ]


def link_packages() -> Path:
    """Create the folder in which ``headrace/network`` and the other packages are links to their sources.

    Cython looks up declarations (``*.pxd``), and a type checker the imports of the tests, by paths that correspond to
    the import names.
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
    """Translates the hot modules to C before they are compiled, and only then, so that reading metadata stays fast."""

    def run(self) -> None:
        include = link_packages()
        if not self.extensions:
            return
        from Cython.Build import cythonize  # noqa: PLC0415 - only needed to compile

        self.parallel = self.parallel or os.cpu_count()
        translated = cythonize(
            self.extensions,
            nthreads=min(self.parallel or 1, len(self.extensions)),
            build_dir="build/cython",
            include_path=[str(include)],
            language_level="3",
            compiler_directives={"embedsignature": True},
        )
        for extension, as_c in zip(self.extensions, translated, strict=True):
            extension.sources = as_c.sources
            extension.depends = as_c.depends
        # largest first, so that no thread is left with a large one at the end
        self.extensions.sort(key=lambda extension: -Path(extension.sources[0]).stat().st_size)
        super().run()


# Where processes are spawned, translating in parallel imports this file again.
if __name__ == "__main__":
    setup(
        packages=[
            FOR_PYSPARK,
            *(
                "headrace." + name
                for part in PARTS
                for name in (part, *(f"{part}.{sub}" for sub in find_packages(part)))
            ),
        ],
        package_dir={FOR_PYSPARK: FOR_PYSPARK, **{"headrace." + part: part for part in PARTS}},
        ext_modules=hot_modules(),
        cmdclass={"build_ext": CompileHotModules},
    )
