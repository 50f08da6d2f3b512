"""The command line itself: rejected arguments, and output that can't be written."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headrace.cli import main

HEADRACE = [sys.executable, "-m", "headrace.cli"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["broker", "--port", "65536"], "argument --port: 65536, where 0 to 65535 is allowed"),
        (["broker", "--port", "http"], "argument --port: 'http' is not a whole number"),
        (["broker", "--brokers", "0"], "argument --brokers: 0, where at least 1 is allowed"),
        (["consume", "t", "--max", "-1"], "argument --max/-n: -1, where at least 0 is allowed"),
        (["broker", "--prot", "9092"], "usage: headrace broker "),
        (["nothing"], "invalid choice: 'nothing' (choose from "),
    ],
)
def test_what_an_option_can_not_be_is_said_with_the_usage(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--config", "num.partitions"], "--config takes KEY=VALUE, not 'num.partitions'"),
        (["--config", "=3"], "--config takes KEY=VALUE, not '=3'"),
        (["--config", "num.partitions=x"], "num.partitions: 'x' is not a whole number; allowed is a whole number, at"),
        (
            ["--config", "num.partitions=1", "--config", "num.partitions=2"],
            "--config names num.partitions twice, as '1' and '2'; keep one",
        ),
    ],
)
def test_a_brokers_configuration_is_refused_in_a_line(arguments, told, capsys):
    assert main(["broker", *arguments]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"headrace broker: {told}")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["consume", "--help"], []])
def test_a_reader_that_is_gone_is_no_error(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([*HEADRACE, *arguments], stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_disk_is_said_in_a_line():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*HEADRACE, "--version"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"headrace: [Errno 28] No space left on device\n"
