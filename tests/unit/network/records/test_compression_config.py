"""The compression keys of producers and topics follow the table of codecs."""

from __future__ import annotations

import pytest

from headrace.broker.config.topic_config import TopicConfig
from headrace.network.config import Config
from headrace.network.records import compression_config
from headrace.network.records.compression import CODECS, Compression
from headrace.network.records.compression_config import configured_level, level_attribute, level_key
from headrace.producer import KafkaProducer
from headrace.producer.config import ProducerConfig
from headrace.producer.errors import KafkaConfigurationError

TABLES: list[type[Config]] = [ProducerConfig, TopicConfig]
WITH_LEVELS = [codec for codec in Compression if codec.levels is not None]


def resolve(table: type[Config], **values: object) -> Config:
    required = {"bootstrap_servers": "localhost:1"} if table is ProducerConfig else {}
    return table.resolve({**required, **values})


def test_the_table_has_every_codec_under_its_own_label():
    assert list(CODECS) == list(Compression)
    assert [Compression.labelled(codec.label) for codec in Compression] == list(Compression)


@pytest.mark.parametrize("table", TABLES)
def test_every_codec_has_its_keys(table: type[Config]):
    keys = {entry.attribute: entry for entry in table.entries}
    named = set(keys["compression_type"].choices) - {"none", "uncompressed", "producer"}
    assert named == {codec.label for codec in Compression if codec is not Compression.NONE}
    declared = {name for name in keys if name.startswith("compression_") and name.endswith("_level")}
    assert declared == {level_attribute(codec) for codec in WITH_LEVELS}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("codec", WITH_LEVELS)
def test_a_level_key_takes_what_the_codec_takes(table: type[Config], codec: Compression):
    levels = codec.levels
    assert levels is not None
    for level in (levels.minimum, levels.maximum, levels.default):
        assert configured_level(resolve(table, **{level_attribute(codec): level}), codec) == level
    for level in (levels.minimum - 1, levels.maximum + 1):
        if level not in levels:
            with pytest.raises(KafkaConfigurationError, match=f"{level_attribute(codec)}.* {level} is "):
                resolve(table, **{level_attribute(codec): level})


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_a_codec_without_levels_has_no_key(codec: Compression):
    assert configured_level(resolve(TopicConfig), codec) is None
    with pytest.raises(TypeError, match=f"{codec.label} has no levels"):
        level_key(codec, doc="none")


def make(**keywords: object) -> None:
    KafkaProducer(bootstrap_servers="localhost:1", **keywords).close(0)


def test_an_lz4_level_that_the_codec_here_lacks_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compression_config, "has_lz4_levels", lambda: False)
    with pytest.raises(KafkaConfigurationError, match=r"compression\.lz4\.level needs cramjam 2\.14"):
        make(compression_type="lz4", compression_lz4_level=12)
    with pytest.raises(KafkaConfigurationError, match=r"compression\.lz4\.level needs cramjam 2\.14"):
        resolve(TopicConfig, compression_type="lz4", compression_lz4_level=12)
    make(compression_type="lz4")
    make(compression_type="zstd", compression_lz4_level=12)


def test_where_the_codec_has_levels_they_are_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compression_config, "has_lz4_levels", lambda: True)
    make(compression_type="lz4", compression_lz4_level=12)
