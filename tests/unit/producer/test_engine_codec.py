"""What this machine's codec can't do is said at construction, not when the sender compresses the first batch."""

from __future__ import annotations

import pytest

from headrace.producer import KafkaProducer, engine
from headrace.producer.errors import KafkaConfigurationError


def make(**keywords: object) -> None:
    KafkaProducer(bootstrap_servers="localhost:1", **keywords).close(0)


def test_an_lz4_level_that_the_codec_here_lacks_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "has_lz4_levels", lambda: False)
    with pytest.raises(KafkaConfigurationError, match=r"compression\.lz4\.level needs cramjam 2\.14"):
        make(compression_type="lz4", compression_lz4_level=12)
    make(compression_type="lz4")
    make(compression_type="zstd", compression_lz4_level=12)


def test_where_the_codec_has_levels_they_are_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "has_lz4_levels", lambda: True)
    make(compression_type="lz4", compression_lz4_level=12)
