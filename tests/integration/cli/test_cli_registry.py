"""`headrace registry`: it serves clients, and ends by a signal without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support.processes import child

from headrace.registry import Schema, SchemaRegistryClient


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "headrace.cli", "registry", "--port", "0"]
    with child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name, _, url = process.stdout.readline().strip().partition("=")
        assert name == "schema.registry.url"
        with SchemaRegistryClient({"url": url}) as client:
            assert client.register_schema("s", Schema('"string"')) == 1
            # the connection stays open: it must not keep the command from ending
            os.kill(process.pid, number)
            output, complaints = process.communicate(timeout=60)
    assert (process.returncode, output, complaints) == (0, "", "")


def test_a_port_that_is_taken_is_an_error() -> None:
    command = [sys.executable, "-m", "headrace.cli", "registry", "--port"]
    with child([*command, "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip().rpartition(":")[2]
        second = subprocess.run([*command, port], capture_output=True, text=True, timeout=60, check=False)
        process.terminate()
        process.wait(60)
    assert second.returncode == 1
    assert "Address already in use" in second.stderr
    assert "Traceback" not in second.stderr
