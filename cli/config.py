"""`headrace config`: explain, check, compare and convert configurations of the producer.

Files are Java properties, or TOML if their name ends in .toml. The exit code of `validate` is 1 if the file has a
problem, that of `diff` if the files differ, and that of `from` if a setting can't be converted.

Examples:
  headrace config explain linger.ms acks
  headrace config validate producer.properties
  headrace config diff staging.properties production.properties
  headrace config from librdkafka kcat.conf > producer.properties
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable

from ..network.config import Config, Item, Key, dotted
from ..network.config_files import read_config_file
from ..network.protocol.errors import KafkaConfigurationError
from ..network.text import table
from ..producer.config import ProducerConfig
from ..producer.peer_keys import DIFFERING_DEFAULTS, OTHER_HASH_NOTE, Converted, convert

_WIDTH = 100
_DEFAULT = "default"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    explaining = actions.add_parser("explain", help="say what keys do; without a key, list them all")
    explaining.add_argument("keys", nargs="*", metavar="KEY", help="a key in either spelling: linger.ms or linger_ms")
    validating = actions.add_parser("validate", help="check a file and show the settings that differ from the defaults")
    validating.add_argument("file", metavar="FILE")
    comparing = actions.add_parser("diff", help="show the settings in which two files differ, with their defaults")
    comparing.add_argument("first", metavar="FILE")
    comparing.add_argument("second", metavar="FILE")
    converting = actions.add_parser(
        "from", help="convert another client's file to a properties file on standard output"
    )
    converting.add_argument("client", choices=tuple(DIFFERING_DEFAULTS), help="whose configuration it is")
    converting.add_argument("file", metavar="FILE")


def run(options: argparse.Namespace) -> int:
    """Run one of the actions. Raises KafkaConfigurationError."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "explain": _explain,
        "validate": _validate,
        "diff": _diff,
        "from": _from,
    }
    return actions[options.action](options)


# --- explain ---


def _explain(options: argparse.Namespace) -> int:
    if not options.keys:
        rows = [(each.name, _default_text(each), each.importance) for each in ProducerConfig.entries]
        print(table(("key", _DEFAULT, "importance"), rows))
        return 0
    found = [_explanation(name) for name in options.keys]
    print("\n\n".join(found))
    return 0


def _explanation(name: str) -> str:
    entry = ProducerConfig.find(name)
    if entry is None:
        key_name = dotted(name)
        reason = ProducerConfig.why_without_effect(key_name)
        if reason is not None:
            return _wrapped(f"{key_name} has no effect: {reason}.")
        reason = ProducerConfig.why_left_out(key_name)
        if reason is not None:
            return _wrapped(f"{key_name} is not supported: {reason}.")
        nearest = ProducerConfig.nearest(key_name)
        hint = f"did you mean {nearest}?" if nearest else "`headrace config explain` lists the keys"
        raise KafkaConfigurationError(f"{name} is not a configuration key; {hint}")
    facts = [
        ("keyword", entry.attribute),
        *(("alias", alias) for alias in entry.aliases),
        (_DEFAULT, _default_text(entry)),
        ("allowed", entry.allowed_text),
        ("importance", entry.importance),
    ]
    width = max(len(label) for label, _ in facts) + 2
    lines = [f"  {label.ljust(width)}{text}" for label, text in facts]
    return "\n".join([entry.name, *lines, "", textwrap.indent(_wrapped(entry.doc), "  ")])


def _default_text(entry: Key) -> str:
    return entry.default_text.replace("`", "") or _plain(entry.text(entry.default))


def _plain(text: str) -> str:
    """Text without the quotes that Python puts around it, as in a properties file."""
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "'" else text


def _wrapped(text: str) -> str:
    return textwrap.fill(text.replace("`", ""), _WIDTH, break_on_hyphens=False, break_long_words=False)


# --- validate, diff ---


def _validate(options: argparse.Namespace) -> int:
    config = _read(options.file)
    rows = [(name, value) for name, value, is_default in _settings(config) if not is_default]
    print(f"{options.file} is valid; it sets:")
    print("\n".join(f"  {name}={value}" for name, value in rows) or "  nothing")
    return 0


def _diff(options: argparse.Namespace) -> int:
    first, second = (list(_settings(_read(path))) for path in (options.first, options.second))
    rows = [
        (name, _with_origin(one, one_is_default), _with_origin(other, other_is_default))
        for (name, one, one_is_default), (_, other, other_is_default) in zip(first, second, strict=True)
        if one != other
    ]
    if not rows:
        print("the settings are equal")
        return 0
    print(table(("key", options.first, options.second), rows))
    return 1


def _with_origin(value: str, is_default: bool) -> str:
    return f"{value} ({_DEFAULT})" if is_default else value


def _settings(config: Config) -> Iterable[tuple[str, str, bool]]:
    """The name, the value as text, and whether it is the default, of each key but `config.file`."""
    for entry in config.entries:
        if entry.attribute != "config_file":
            is_default = not config.is_explicit(entry.name)
            # a default in words, such as that of client.id, may stand for another value in each process
            text = _default_text(entry) if is_default and entry.default_text else _plain(entry.text(config[entry.name]))
            yield entry.name, text, is_default


def _read(path: str) -> ProducerConfig:
    """The configuration of a file alone: environment variables don't count."""
    return ProducerConfig.resolve_from({"config.file": path}, {}, {})


# --- from ---


def _from(options: argparse.Namespace) -> int:
    items = [Item(*each) for each in read_config_file(options.file)]
    converted = convert(items, options.client, ProducerConfig)
    print(f"# Converted from {options.file}, a configuration of {options.client}, by `headrace config from`.")
    for each in converted:
        print(_line(each))
    if options.client == "librdkafka" and all(each.item.name != "partitioner" for each in converted):
        print(f"# The file names no partitioner, and {OTHER_HASH_NOTE}.")
    given = {each.name for each in converted if each.name}
    kept = {name: value for name, value in DIFFERING_DEFAULTS[options.client].items() if name not in given}
    if kept:
        print(f"\n# The file leaves these at {options.client}'s defaults, which differ from those here.")
        print("# Remove the # to keep the old behavior.")
        for name, value in kept.items():
            print(f"#{name}={value}")
    lost = [each for each in converted if each.is_lost]
    for each in lost:
        print(f"headrace config: {each.item}: {each.note}", file=sys.stderr)
    return 1 if lost else 0


def _line(each: Converted) -> str:
    if not each.name:
        return f"# {each.item.name}: {each.note}"
    return f"{each.name}={_escaped(each.value)}"


def _escaped(value: str) -> str:
    """A value as a properties file has it: what a reader would change is escaped."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{text}" if text.startswith(" ") else text
