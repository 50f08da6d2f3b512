"""How `headrace broker` ends: by Ctrl-C or SIGTERM, for itself or for its whole process group, without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import child

PATIENCE_S = 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("whole_group", [True, False], ids=["group", "process"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_a_signal_ends_it_cleanly(number: signal.Signals, whole_group: bool, brokers: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace.cli", "broker", "--brokers", str(brokers)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with child(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("bootstrap.servers=")
        assert process.stdout.readline().startswith("profile=")
        (os.killpg if whole_group else os.kill)(process.pid, number)
        _, complaints = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "Error" not in complaints
    assert "Traceback" not in complaints
    assert list(tmp_path.iterdir()) == []
