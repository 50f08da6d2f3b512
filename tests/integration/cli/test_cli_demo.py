"""`headrace demo`: in a pipe, on a terminal, and ended early."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "headrace.cli", "demo"]


def test_in_a_pipe_it_prints_lines_and_ends_by_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--seconds", "3"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert re.search(r"^[\d,]+ records/s, [\d.]+ MB/s, latency ", done.stdout, re.MULTILINE)
    sent = re.search(r"^([\d,]+) records in", done.stdout, re.MULTILINE)
    assert sent is not None
    assert f"The log has {sent[1]} records: none is missing, none is there twice." in done.stdout
    assert int(sent[1].replace(",", "")) > 1000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_it_redraws_until_it_is_interrupted(number: signal.Signals) -> None:
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*COMMAND, "--seconds", "3600"], stdout=theirs, stderr=theirs, stdin=theirs, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    try:
        while b"\x1b[6A" not in shown:
            assert select.select([ours], [], [], 60)[0], shown
            shown += os.read(ours, 65536)
        if number == signal.SIGINT:
            # as from the keyboard: every process of the group gets it
            os.killpg(running.pid, number)
        else:
            running.terminate()
        with contextlib.suppress(OSError):  # what Linux answers once the other side is closed
            while data := os.read(ours, 65536):
                shown += data
        assert running.wait(60) == 130
    finally:
        running.kill()
        running.wait()
        os.close(ours)
    text = shown.decode()
    assert "records/s" in text
    assert "Interrupted" in text
    assert "Traceback" not in text


def test_a_reader_that_goes_away_ends_it() -> None:
    running = subprocess.Popen([*COMMAND, "--seconds", "3600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stderr is not None
    try:
        assert running.stdout.readline().startswith(b"Headrace ")
        running.stdout.close()
        assert running.wait(60) == 0
        assert running.stderr.read() == b""
    finally:
        running.kill()
        running.wait()
        running.stderr.close()


@pytest.mark.parametrize("seconds", ["0", "soon", "100000000"])
def test_a_wrong_time_is_an_error(seconds: str) -> None:
    done = subprocess.run([*COMMAND, "--seconds", seconds], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--seconds" in done.stderr
