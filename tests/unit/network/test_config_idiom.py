from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from headrace.network.config import Config, Draft, Rule, key
from headrace.network.protocol.errors import KafkaConfigurationError


def low_before_high(draft: Draft) -> None:
    """`low.ms` is at most
    `high.ms`."""
    if draft["low_ms"] > draft["high_ms"]:
        if draft.is_explicit("high_ms"):
            draft.problem("lower low.ms")
        else:
            draft.adjust("high_ms", draft["low_ms"], "raised to low.ms")


class Table(
    Config,
    env_prefix="TABLE_",
    rules=(Rule(("low_ms", "high_ms"), low_before_high),),
    left_out={"jmx.port": "needs the JVM", "tls.*": "TLS is not supported yet"},
    without_effect={"old.key": "nothing is left to set"},
    carried_along={"tls.port": lambda given: given == 443, "old.key": lambda given: given == 1},
):
    low_ms: int = key(default=5, at_least=0, importance="low", doc="Low.")
    high_ms: int = key(default=10, at_least=1, at_most=100, doc="High.")
    enabled: bool = key(default=True, doc="On or off.")
    name: str = key(default="", none_means="", doc="A name.")
    optional_name: str | None = key(default=None, doc="Perhaps a name.")
    codec_type: str = key(default="none", choices=("none", "gzip"), doc="One of two.")
    parts: tuple[str, ...] = key(default=(), aliases=("things.list",), doc="Several.")
    even: int = key(default=0, check=lambda number: "is odd" if number % 2 else None, doc="Even.")
    password: str = key(default="", secret=True, doc="Shown to nobody.")


def resolve(mapping: Any = None, /, environ: dict[str, str] | None = None, **keywords: Any) -> Table:
    return Table.resolve_from(mapping, keywords, environ or {})


def refusal(mapping: Any = None, /, environ: dict[str, str] | None = None, **keywords: Any) -> str:
    with pytest.raises(KafkaConfigurationError) as caught:
        resolve(mapping, environ, **keywords)
    return str(caught.value)


# --- Values ---


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("low_ms", 7, 7),
        ("low_ms", "7", 7),
        ("low_ms", " +7 ", 7),
        ("low_ms", 7.0, 7),
        ("high_ms", "100", 100),
        ("enabled", False, False),
        ("enabled", "false", False),
        ("enabled", " TRUE ", True),
        ("name", "x", "x"),
        ("name", None, ""),
        ("optional_name", None, None),
        ("optional_name", "x", "x"),
        ("codec_type", "GZIP", "gzip"),
        ("parts", "a, b,,c ", ("a", "b", "c")),
        ("parts", ["a", "b"], ("a", "b")),
        ("parts", (), ()),
        ("parts", "", ()),
        ("even", "4", 4),
    ],
)
def test_a_value_is_parsed_to_its_type(name: str, given: object, expected: object) -> None:
    value = getattr(resolve(**{name: given}), name)
    assert value == expected
    assert type(value) is type(expected)


def test_numbers_of_other_libraries_are_whole_numbers() -> None:
    class Whole:
        def __index__(self) -> int:
            return 7

    assert resolve(low_ms=Whole()).low_ms == 7


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("low_ms", "seven", "'seven' is not a whole number; allowed is a whole number, at least 0 (default 5)"),
        ("low_ms", "", "'' is not a whole number"),
        ("low_ms", "1_000", "is not a whole number"),
        ("low_ms", "٧", "is not a whole number"),
        ("low_ms", 7.5, "7.5 is not a whole number"),
        ("low_ms", float("inf"), "inf is not a whole number"),
        ("low_ms", float("nan"), "nan is not a whole number"),
        ("low_ms", True, "True is not a whole number"),
        ("low_ms", None, "None is not a value"),
        ("low_ms", [7], "[7] is not a whole number"),
        ("low_ms", -1, "-1 is too small"),
        ("low_ms", 2**63, "is too large"),
        ("high_ms", 101, "101 is too large; allowed is a whole number, 1 to 100 (default 10)"),
        ("enabled", 1, "1 is neither true nor false; allowed is true or false (default True)"),
        ("enabled", "yes", "'yes' is neither true nor false"),
        ("name", 5, "5 is not text"),
        ("name", b"x", "b'x' is not text"),
        ("codec_type", "brotli", "'brotli' is not a valid value; allowed is one of none, gzip (default 'none')"),
        ("codec_type", 1, "1 is not text"),
        ("parts", 5, "5 is not a list of texts"),
        ("parts", ["a", 5], "is not a list of texts"),
        ("even", 3, "3 is odd"),
        ("config_file", 5, "5 is not the path of a file"),
        ("config_file", " ", "' ' is not the path of a file"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(name: str, given: object, says: str) -> None:
    message = refusal(**{name: given})
    assert message.startswith(f"{name}: ")
    assert says in message


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(refusal(low_ms="x" * 10_000)) < 400


# --- Names ---


def test_both_spellings_and_aliases_name_a_key() -> None:
    assert resolve({"low.ms": 1, "high_ms": 2}, things_list="a") == resolve(low_ms=1, high_ms=2, parts=["a"])


def test_keywords_may_be_dotted_too() -> None:
    assert resolve(**{"low.ms": 1}).low_ms == 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lo_ms", "lo_ms is not a configuration key; did you mean low.ms?"),
        ("ENABLED", "did you mean enabled?"),
        ("thing_list", "did you mean parts?"),
        ("qqqqq", f"qqqqq is not a configuration key; {__name__}.Table lists the keys"),
        ("jmx_port", "jmx_port is not supported: needs the JVM"),
        ("tls_key_file", "tls_key_file is not supported: TLS is not supported yet"),
    ],
)
def test_an_unknown_name_is_refused_with_help(name: str, says: str) -> None:
    assert says in refusal(**{name: "1"})


def test_a_name_that_is_no_text_is_refused() -> None:
    assert "the key 5 is not text" in refusal({5: "1"})


def test_a_left_out_key_may_be_none() -> None:
    assert resolve(tls_key_file=None, jmx_port=None) == resolve()


def test_a_default_of_another_client_is_neither_refused_nor_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve(tls_port=443, old_key=1) == resolve(old_key=None) == resolve()
    assert not caplog.records
    assert refusal(tls_port=444) == "tls_port is not supported: TLS is not supported yet"


def test_a_key_without_effect_is_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve(old_key=3) == resolve()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "old_key has no effect: nothing is left to set" in caplog.text


def test_a_key_given_twice_in_one_place_is_refused() -> None:
    assert "low.ms is given twice, as low.ms and low_ms" in refusal({"low.ms": 1, "low_ms": 1})


def test_a_configuration_that_is_no_dict_is_refused() -> None:
    assert "the configuration is of type str; give a dict" in refusal("low.ms=1")


def test_all_problems_come_at_once() -> None:
    message = refusal({"low.ms": "x"}, enabled="y", nme="z")
    assert message.startswith("3 problems in the configuration:\n")
    assert all(name in message for name in ("\n  - low.ms: ", "\n  - enabled: ", "\n  - nme is"))


def test_the_error_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="lo_ms"):
        resolve(lo_ms=1)


# --- Sources ---


def test_the_stronger_source_wins_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "table.properties"
    path.write_text("low.ms=3\nhigh.ms=30\nname=from the file\n")
    environ = {"TABLE_LOW_MS": "4", "TABLE_HIGH_MS": "40", "TABLE_NAME": "from outside", "TABLE_EVEN": "4"}
    config = resolve({"low.ms": 2, "high.ms": 20, "config.file": path}, environ, low_ms=1)
    assert (config.low_ms, config.high_ms, config.name, config.even, config.enabled) == (
        1,
        20,
        "from the file",
        4,
        True,
    )
    assert dict(config.origins) | {"config.file": "", "name": ""} == {
        "low.ms": "keyword",
        "high.ms": "dict",
        "enabled": "default",
        "name": "",
        "optional.name": "default",
        "codec.type": "default",
        "parts": "default",
        "even": "environment TABLE_EVEN",
        "password": "default",
        "config.file": "",
    }
    assert config.origins["name"] == f"file {path} line 3"
    assert config.config_file == str(path)


def test_a_bad_value_that_a_stronger_source_replaces_does_no_harm() -> None:
    assert resolve({"low.ms": "x"}, {"TABLE_LOW_MS": "y"}, low_ms=1).low_ms == 1


def test_a_bad_value_is_not_replaced_by_a_weaker_source() -> None:
    assert "low_ms: 'x'" in refusal({"low.ms": 1}, low_ms="x")


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "table.properties"
    path.write_text("low.ms=3")
    assert resolve(environ={"TABLE_CONFIG_FILE": str(path)}).low_ms == 3


def test_a_problem_in_a_file_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "table.properties"
    path.write_text("\nlow.ms=x\nlw.ms=1\nlow.ms=2\nconfig.file=other\n")
    message = refusal(config_file=path)
    assert f"low.ms (file {path} line 2): 'x' is not a whole number" in message
    assert f"lw.ms (file {path} line 3) is not a configuration key" in message
    assert f"low.ms (file {path} line 4) is given twice, first in file {path} line 2" in message
    assert f"config.file (file {path} line 5): a configuration file can't name another one" in message


def test_resolve_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLE_LOW_MS", "9")
    assert Table.resolve().low_ms == 9


def test_an_empty_variable_is_not_set() -> None:
    assert resolve(environ={"TABLE_LOW_MS": ""}).origins["low.ms"] == "default"


def test_a_variable_of_somebody_else_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve(environ={"TABLE_SERVICE_HOST": "10.0.0.1", "OTHER_LOW_MS": "1", "TABLE_": "1"}) == resolve()
    assert not caplog.records


def test_a_misspelt_variable_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve(environ={"TABLE_OPTIONAL_NAMES": "x"}).optional_name is None
    assert "TABLE_OPTIONAL_NAMES matches no key and is ignored; did you mean TABLE_OPTIONAL_NAME?" in caplog.text


def test_a_left_out_variable_is_refused() -> None:
    message = refusal(environ={"TABLE_TLS_KEY_FILE": "/key"})
    assert message == "tls.key.file (environment TABLE_TLS_KEY_FILE) is not supported: TLS is not supported yet"


# --- Rules ---


def test_a_rule_adjusts_a_default_and_says_so() -> None:
    config = resolve(low_ms=20)
    assert config.high_ms == 20
    assert config.origins["high.ms"] == "default, raised to low.ms"


def test_a_rule_refuses_what_was_given() -> None:
    assert refusal(low_ms=20, high_ms=19) == "lower low.ms"


def test_a_rule_is_silent_where_one_of_its_keys_is_unsound() -> None:
    assert refusal(low_ms=20, high_ms="x").startswith("high_ms: ")


def test_a_rules_doc_is_one_line() -> None:
    assert Table.rules[0].doc == "`low.ms` is at most `high.ms`."


# --- Instances ---


def test_an_instance_is_frozen() -> None:
    config = resolve()
    with pytest.raises(AttributeError, match="frozen"):
        config.low_ms = 1
    with pytest.raises(AttributeError, match="frozen"):
        del config.low_ms
    with pytest.raises(TypeError):
        config.origins["low.ms"] = "x"  # type: ignore[index]


def test_an_instance_is_made_by_resolve_only() -> None:
    with pytest.raises(TypeError, match=r"Table\.resolve"):
        Table()


def test_a_value_is_found_by_any_name() -> None:
    config = resolve(parts="a,b")
    assert config["parts"] == config["things.list"] == config["things_list"] == ("a", "b")
    with pytest.raises(KeyError, match=r"^'nothing'$"):
        config["nothing"]
    with pytest.raises(KeyError, match=r"^5$"):
        config[5]  # type: ignore[index]


def test_a_lookup_of_a_key_that_is_not_supported_says_why() -> None:
    with pytest.raises(KeyError, match="jmx_port has no value: needs the JVM"):
        resolve()["jmx_port"]
    with pytest.raises(KeyError, match=r"old\.key has no value: nothing is left to set"):
        resolve()["old.key"]


def test_an_instance_is_a_mapping_whose_keys_pass_as_keywords() -> None:
    config = resolve(low_ms=1, parts="a,b")
    assert (config.get("low.ms"), config.get("jmx_port"), config.get("nothing", 7)) == (1, None, 7)
    assert "low.ms" in config
    assert "low_ms" in config
    assert "jmx_port" not in config
    assert 5 not in config
    assert list(config) == [entry.attribute for entry in Table.entries]
    assert dict(config)["parts"] == ("a", "b")
    assert len(config) == len(Table.entries)
    assert resolve(**config) == config


def test_a_resolved_configuration_is_no_dict_to_start_from() -> None:
    assert "the configuration is of type Table" in refusal(resolve())


def test_instances_compare_by_value() -> None:
    assert resolve(low_ms=1) == resolve({"low.ms": "1"})
    assert resolve(low_ms=1) != resolve(low_ms=2)
    assert resolve() != object()


def test_an_instance_pickles_with_its_origins() -> None:
    config = resolve({"low.ms": 1}, password="hush")
    copied = pickle.loads(pickle.dumps(config))
    assert copied == config
    assert copied.origins == config.origins
    with pytest.raises(AttributeError):
        copied.low_ms = 2


def test_repr_shows_what_was_given() -> None:
    assert repr(resolve(low_ms=1, name="x")) == "Table(low_ms=1, name='x')"


def test_describe_lists_every_key() -> None:
    lines = resolve(low_ms=1).describe().splitlines()
    assert lines[0] == "low.ms = 1  (keyword)"
    assert len(lines) == len(Table.entries)


def test_a_secret_is_shown_nowhere() -> None:
    config = resolve(password="hush")
    assert config.password == "hush"
    assert "hush" not in repr(config) + config.describe()
    assert "password = ******  (keyword)" in config.describe()
    assert "hush" not in refusal(password=["hush"])
    assert "hush" not in refusal(pasword="hush")
    assert "hush" not in refusal(tls_password="hush")


# --- Declarations ---


def test_declarations_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(TypeError, match="the default -1 of low is too small"):
        type("Bad", (Config,), {"__annotations__": {"low": "int"}, "low": key(default=-1, at_least=0, doc="")})
    with pytest.raises(TypeError, match="the default '1' of low is not in the form"):
        type("Bad", (Config,), {"__annotations__": {"low": "int"}, "low": key(default="1", doc="")})
    with pytest.raises(TypeError, match="has to say how it is parsed"):
        type("Bad", (Config,), {"__annotations__": {"low": "complex"}, "low": key(default=1j, doc="")})
    with pytest.raises(TypeError, match="has to say in words what is allowed"):
        type("Bad", (Config,), {"__annotations__": {"low": "Any"}, "low": key(default=1, parse=abs, doc="")})
    with pytest.raises(TypeError, match="items is a method of a mapping"):
        type("Bad", (Config,), {"__annotations__": {"items": "int"}, "items": key(default=1, doc="")})
    with pytest.raises(TypeError, match=r"declares a\.b twice"):
        type(
            "Bad",
            (Config,),
            {
                "__annotations__": {"a_b": "int", "c": "int"},
                "a_b": key(default=1, doc=""),
                "c": key(default=1, aliases=("a.b",), doc=""),
            },
        )


def test_a_table_may_extend_another() -> None:
    class Longer(Table, env_prefix="LONGER_"):
        extra: int = key(default=1, doc="More.")

    config = Longer.resolve_from({"low.ms": 2}, {"extra": 3}, {"LONGER_EVEN": "4"})
    assert (config.low_ms, config.extra, config.even) == (2, 3, 4)
    assert Longer.resolve_from({"low.ms": 20}, {"jmx.port": None}, {}).high_ms == 20
    assert Longer.entries[0].name == "low.ms"
    assert "extra" not in {entry.name for entry in Table.entries}


# --- Names that users make up ---


def _parse_colors(value: Any) -> dict[str, str]:
    for name, color in value.items():
        if color not in ("red", "blue"):
            raise ValueError(f"is no color of {name}")
    return {name.lower(): color for name, color in value.items()}


class Painted(Config, env_prefix=""):
    colors: dict[str, str] = key(
        default={}, parse=_parse_colors, prefixes=("wall.",), allowed="red or blue", doc="The color of each wall."
    )


def test_names_with_a_prefix_are_collected_from_all_sources(tmp_path: Path) -> None:
    path = tmp_path / "painted.properties"
    path.write_text("wall.North_1=red\nwall.east=red\n")
    config = Painted.resolve({"config.file": str(path), "wall.east": "blue", "wall.South": "red"})
    assert config.colors == {"wall.north_1": "red", "wall.east": "blue", "wall.south": "red"}


def test_a_bad_value_under_a_prefix_names_its_key() -> None:
    with pytest.raises(KafkaConfigurationError, match=r"wall\.east is no color of wall\.east; allowed is red or blue"):
        Painted.resolve({"wall.east": "green"})
