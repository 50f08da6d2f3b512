"""The throw-away authority: what it writes, and who may read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.broker.security.certificates import ThrowAwayAuthority
from headrace.network.protocol.errors import KafkaConfigurationError


def test_what_is_written(tmp_path: Path) -> None:
    authority = ThrowAwayAuthority(tmp_path)
    server = authority.issue_server(["broker.test"])
    client = authority.issue_client("alice")
    assert authority.ca_path.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert {each.name for each in tmp_path.iterdir()} == {
        *("ca.pem", "server.pem", "server.key.pem", "alice.pem", "alice.key.pem"),
    }
    for path in (server, client):
        text = path.read_text()
        # PKCS8, the only format that Java reads
        assert text.startswith("-----BEGIN PRIVATE KEY-----")
        assert "-----BEGIN CERTIFICATE-----" in text
        key = authority.key_path(path)
        assert text.startswith(key.read_text())
        assert path.stat().st_mode & 0o077 == key.stat().st_mode & 0o077 == 0
    assert "PRIVATE KEY" not in authority.ca_path.read_text()


def test_without_trustme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "trustme", None)
    with pytest.raises(KafkaConfigurationError, match=r"pip install 'headrace\[testing\]'"):
        ThrowAwayAuthority(tmp_path)
