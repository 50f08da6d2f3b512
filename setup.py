"""Build of the compiled modules. Everything else about the package is declared in pyproject.toml.

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

from setuptools import setup

ROOT = Path(__file__).resolve().parent
PACKAGES = ("network", "producer", "broker")
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
        except FileNotFoundError:
            return f"there is no C compiler ({command[0]})"
        except subprocess.CalledProcessError as failed:
            return f"the C compiler can't build against this Python: {failed.stderr.decode(errors='replace').strip()}"
    return None


def extensions() -> list:
    problem = compiler_problem() if sys.platform != "win32" else None
    if problem is not None:
        if REQUIRED:
            raise SystemExit(f"HEADRACE_REQUIRE_COMPILED=1, but {problem}")
        print(f"headrace: {problem}; the interpreted modules are installed instead", file=sys.stderr)
        return []
    from Cython.Build import cythonize
    from setuptools import Extension

    modules = []
    for source in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*_cy.py")):
        relative = source.relative_to(ROOT)
        name = "headrace." + ".".join(relative.with_suffix("").parts)
        modules.append(Extension(name, [str(relative)], extra_compile_args=["-O3"]))
    # A compiled module finds another's declarations (*.pxd) as headrace.<package>.<module>: a link gives it that path.
    package = ROOT / "build" / "include" / "headrace"
    package.parent.mkdir(parents=True, exist_ok=True)
    if not package.is_symlink():
        package.symlink_to(ROOT, target_is_directory=True)
    return cythonize(
        modules,
        build_dir="build/cython",
        include_path=[str(package.parent)],
        language_level="3",
        compiler_directives={"embedsignature": True},
    )


setup(ext_modules=extensions())
