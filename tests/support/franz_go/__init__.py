"""franz-go as a test fixture: a program of main.go, compiled once with the machine's own Go.

The program is kept in the user's cache, in a folder named after the hash of its sources. Go downloads franz-go with its
own settings, and checks it against go.sum.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

_SOURCES = Path(__file__).parent
_BUILD_TIMEOUT_S = 500.0
_RUN_TIMEOUT_S = 90.0


def program_or_skip() -> Path:
    """The compiled program. Skips the test, and names what is missing, if it can't be compiled."""
    content = b"".join((_SOURCES / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "headrace")
    program = cache / f"franz-go-{hashlib.sha256(content).hexdigest()[:16]}"
    if program.is_file():
        return program
    go = shutil.which("go")
    if go is None:
        pytest.skip("franz-go is not available: there is no go on the PATH")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as scratch:
        built = Path(scratch, "program")
        answer = subprocess.run(
            [go, "build", "-o", built, "."],
            cwd=_SOURCES,
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_TIMEOUT_S,
        )
        if answer.returncode != 0:
            pytest.skip(f"franz-go is not available: go build says {answer.stderr[-500:]}")
        built.rename(program)
    return program


def run(program: Path, config: Mapping[str, Any]) -> list[bytes]:
    """Run it with this configuration (`config` in main.go). Returns the values it read.

    Raises RuntimeError with its message if it fails.
    """
    answer = subprocess.run(
        [program], input=json.dumps(config).encode(), capture_output=True, check=False, timeout=_RUN_TIMEOUT_S
    )
    if answer.returncode != 0:
        raise RuntimeError(f"franz-go failed: {answer.stderr.decode(errors='replace')}")
    return answer.stdout.split(b"\n")[:-1]
