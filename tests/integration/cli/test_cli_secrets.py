"""A planted password in `--command-config` is in no output, log, report or file of the commands."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from headrace.broker import EmbeddedCluster
from headrace.cli import main

SECRET = "pl4nted-s3cret"
WRONG = f"{SECRET}-wrong"
CONNECTED = {
    "produce": ("produce", "--topic", "t", "{folder}/rows.jsonl"),
    "perf": (
        *("perf", "--topic", "t", "--num-records", "20", "--record-size", "10", "--print-metrics"),
        *("--json", "{folder}/perf.json", "--html", "{folder}/perf.html"),
    ),
    "tune": (
        *("tune", "--record-size", "10", "--seconds", "5", "--byte-limit", "100000", "--yes"),
        *("--output", "{folder}/tuned.properties", "--picture", "{folder}/tuned.html"),
    ),
    "list": ("topics", "list"),
    "describe": ("topics", "describe", "t"),
    "consume": ("consume", "t"),
    "consume as a member": ("consume", "t", "--group", "g"),
}


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(security="SASL_SSL", users={"alice": SECRET}) as started:
        started.create_topic("t")
        yield started


@pytest.fixture
def folder(cluster, tmp_path):
    """A folder with a row to send, and with the configuration as a file, whose password a test may change."""
    config = cluster.client_config()
    del config["bootstrap.servers"]
    (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"value": "v"}) + "\n")
    return tmp_path


def written(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.iterdir() if path.name != "client.properties")


@pytest.mark.parametrize("password", [SECRET, WRONG], ids=["right", "wrong"])
@pytest.mark.parametrize("command", CONNECTED)
def test_a_command_that_connects(cluster, folder, capfd, caplog, command, password):
    caplog.set_level(logging.DEBUG)
    file = folder / "client.properties"
    file.write_text(file.read_text().replace(SECRET, password))
    arguments = [each.format(folder=folder) for each in CONNECTED[command]]
    code = main([*arguments, "--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(file)])
    output = capfd.readouterr()
    assert code == (0 if password == SECRET else 1), output
    assert SECRET not in output.out + output.err + caplog.text + written(folder)


@pytest.mark.parametrize("bad", ["", "sasl.mechanism=NOTHING\n", "ssl.keystore.key=" + SECRET + "\n"])
@pytest.mark.parametrize("action", ["validate", "diff"])
def test_a_command_about_the_configuration(folder, capfd, action, bad):
    file, other = folder / "client.properties", folder / "other.properties"
    file.write_text(f"bootstrap.servers=a:1\n{file.read_text()}{bad}")
    other.write_text("bootstrap.servers=a:1\n")
    main(["config", action, str(file), *([str(other)] if action == "diff" else [])])
    output = capfd.readouterr()
    assert "sasl" in output.out + output.err or bad
    assert SECRET not in output.out + output.err
