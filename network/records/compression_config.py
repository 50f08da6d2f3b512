"""The compression keys shared by the producer's configuration and the broker's topic configuration.

A codec with levels has the key ``compression.<codec>.level`` (KIP-390). Everything derives from `compression.CODECS`.
"""

from __future__ import annotations

from typing import Any

from ..config import Config, Draft, Importance, Rule, dotted, key
from .compression import Compression, has_lz4_levels


def level_attribute(codec: Compression) -> str:
    """The attribute of a Config that holds the codec's level."""
    return f"compression_{codec.label}_level"


def level_key(codec: Compression, *, doc: str, importance: Importance = "medium") -> Any:
    """Declare the key for a codec's level in a Config. The attribute must be named `level_attribute(codec)`.

    Raises TypeError for a codec without levels.
    """
    levels = codec.levels
    if levels is None:
        raise TypeError(f"{codec.label} has no levels")
    has_default_inside = levels.minimum <= levels.default <= levels.maximum
    return key(
        default=levels.default,
        at_least=min(levels.minimum, levels.default),
        at_most=levels.maximum,
        importance=importance,
        allowed="" if has_default_inside else str(levels),
        check=lambda level: None if level in levels else f"is not a level of {codec.label}",
        doc=doc,
    )


def configured_level(config: Config, codec: Compression) -> int | None:
    """The level that `config` sets for the codec; None if the codec has no levels."""
    return None if codec.levels is None else getattr(config, level_attribute(codec))


def level_key_names() -> str:
    """The keys of all codecs with levels, separated by commas."""
    return ", ".join(dotted(level_attribute(codec)) for codec in Compression if codec.levels is not None)


_LZ4_LEVEL = level_attribute(Compression.LZ4)


def _lz4_levels_need_a_new_cramjam(draft: Draft) -> None:
    """With `compression.type=lz4`, a `compression.lz4.level` other than the default needs cramjam 2.14 or newer, which
    needs Python 3.11."""
    levels = Compression.LZ4.levels
    assert levels is not None
    if draft["compression_type"] != Compression.LZ4.label or draft[_LZ4_LEVEL] == levels.default or has_lz4_levels():
        return
    draft.problem(f"{dotted(_LZ4_LEVEL)} needs cramjam 2.14 or newer, and that needs Python 3.11: leave the level out")


#: For the `rules` of a Config with a `compression.type` and the levels.
COMPRESSION_RULE = Rule(("compression_type", _LZ4_LEVEL), _lz4_levels_need_a_new_cramjam)
