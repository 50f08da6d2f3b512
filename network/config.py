"""Configuration as a table: the class body declares the keys, and everything else is derived from it.

    class ProducerConfig(Config, env_prefix="HEADRACE_"):
        linger_ms: int = key(default=5, at_least=0, importance="medium", doc="...")

`linger_ms` is the attribute, and `linger.ms` is Kafka's name of the key. Users may write either.
`ProducerConfig.resolve({"linger.ms": "10"}, acks="all")` gathers the values from every source, parses and checks them,
applies the rules across keys and returns a frozen instance. Values may be text, because files, environment variables
and Spark options provide nothing else. One KafkaConfigurationError lists all problems.
"""

from __future__ import annotations

import logging
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeVar

from .config_values import MASK, PARSERS, parse_path, shown
from .protocol.errors import KafkaConfigurationError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DEFAULT = "default"
_KEYWORD = "keyword"
_MAPPING = "dict"

Importance = Literal["high", "medium", "low"]

_log = logging.getLogger(__name__)


class Item:
    """One value from a source, before its key is looked up."""

    __slots__ = ("name", "origin", "value")

    def __init__(self, name: str, value: Any, origin: str) -> None:
        self.name = name
        self.value = value
        self.origin = origin

    def __str__(self) -> str:
        """The name for messages, with the source unless that is the caller's code."""
        return str(self.name) if self.origin in (_KEYWORD, _MAPPING) else f"{self.name} ({self.origin})"


class Key:
    """One declared key; see `key`. `attribute`, `name` and `type_name` come from the class that declares it."""

    default: Any
    doc: str
    importance: Importance
    at_least: int | None
    at_most: int | None
    choices: tuple[str, ...]
    parse: Callable[[Any], Any] | None
    allowed: str
    check: Callable[[Any], str | None] | None
    none_means: Any
    aliases: tuple[str, ...]
    prefixes: tuple[str, ...]
    secret: bool
    show: Callable[[Any], str]
    default_text: str
    accepts: str
    attribute: str = ""
    name: str = ""
    type_name: str = ""
    nullable: bool = False

    def __init__(self, **declared: Any) -> None:
        """Store the arguments of `key` as the attributes of the same names."""
        vars(self).update(declared)

    def read(self, value: Any) -> Any:
        """The parsed, checked value. Raises ValueError; its message continues a sentence that starts with the value."""
        if value is None:
            if self.none_means is not _UNSET:
                return self.none_means
            if self.nullable:
                return None
            raise ValueError("is not a value")
        if self.parse is None:
            raise TypeError(f"{self.name} has no parser")
        parsed: Any = self.parse(value)
        if self.choices:
            wanted = parsed.strip().lower()
            parsed = next((choice for choice in self.choices if choice.lower() == wanted), None)
            if parsed is None:
                raise ValueError("is not a valid value")
        if self.at_least is not None and parsed < self.at_least:
            raise ValueError("is too small")
        if self.at_most is not None and parsed > self.at_most:
            raise ValueError("is too large")
        problem = self.check(parsed) if self.check is not None else None
        if problem is not None:
            raise ValueError(problem)
        return parsed

    def text(self, value: Any) -> str:
        """`value` as shown in messages and listings; a secret is masked."""
        if self.secret:
            return MASK if value is not None else "None"
        return self.show(value)

    @property
    def range_text(self) -> str:
        """The allowed range in words; empty if the type alone decides."""
        if self.allowed:
            return self.allowed
        if self.choices:
            return ", ".join(self.choices)
        least = self.at_least
        most = self.at_most if self.at_most not in (INT32_MAX, INT64_MAX) else None
        if least is not None and most is not None:
            return f"{least} to {most}"
        if least is not None:
            return f"at least {least}"
        return f"at most {most}" if most is not None else ""

    @property
    def allowed_text(self) -> str:
        """The type and range in words."""
        if self.allowed:
            return self.allowed
        if self.choices:
            return f"one of {self.range_text}"
        return f"{self.type_name}, {self.range_text}" if self.range_text else self.type_name


_UNSET: Any = object()


def key(
    *,
    default: Any,
    doc: str,
    importance: Importance = "medium",
    at_least: int | None = None,
    at_most: int | None = None,
    choices: tuple[str, ...] = (),
    parse: Callable[[Any], Any] | None = None,
    allowed: str = "",
    check: Callable[[Any], str | None] | None = None,
    none_means: Any = _UNSET,
    aliases: tuple[str, ...] = (),
    prefixes: tuple[str, ...] = (),
    secret: bool = False,
    show: Callable[[Any], str] = repr,
    default_text: str = "",
    accepts: str = "",
) -> Any:
    """Declare a key of a Config.

    default: the typed value if no source has one.
    doc: the description.
    importance: Kafka's importance.
    at_least, at_most: the bounds, both inclusive.
    choices: the allowed texts, case-insensitive.
    parse: converts any value to the typed value or raises ValueError. The default follows the annotation: bool, int,
    str or tuple[str, ...].
    allowed: describes the values that `parse` accepts.
    check: returns the problem with a typed value, or None.
    none_means: the value that None stands for. Without it None is rejected unless the annotation allows it.
    aliases: other names of the key, dotted.
    prefixes: every name that begins with one of these is an entry of this key's mapping, for names that a user makes
    up, such as those of listeners. `parse` converts such a mapping. All sources are merged.
    secret: whether the value is masked everywhere.
    show: converts a typed value to text.
    default_text: the default in words, if the value itself says nothing.
    accepts: the type of keyword arguments for type checkers, as the text of an annotation, if the annotation of the
    attribute does not show what `parse` takes. docs/keyword_tables.py reads it.
    """
    return Key(
        default=default,
        doc=doc,
        importance=importance,
        at_least=at_least,
        at_most=at_most,
        choices=choices,
        parse=parse,
        allowed=allowed,
        check=check,
        none_means=none_means,
        aliases=aliases,
        prefixes=prefixes,
        secret=secret,
        show=show,
        default_text=default_text,
        accepts=accepts,
    )


def dotted(name: str) -> str:
    """Kafka's spelling of a key's name."""
    return name.replace("_", ".")


# --- Rules across keys ---


class Draft:
    """The values of an unfinished configuration by attribute. The rules across keys read and adjust them."""

    def __init__(self, values: dict[str, Any], origins: dict[str, str], defaults: Mapping[str, Any]) -> None:
        self.values = values
        self.origins = origins
        self.defaults = defaults
        self.problems: list[str] = []

    def __getitem__(self, attribute: str) -> Any:
        return self.values[attribute]

    def is_explicit(self, attribute: str) -> bool:
        """Whether the value comes from a source and not from a default."""
        return not self.origins[dotted(attribute)].startswith(DEFAULT)

    def asks_for(self, attribute: str) -> bool:
        """Whether a source asks for something with this key: for another value than the default, and not None."""
        value = self[attribute]
        return self.is_explicit(attribute) and value is not None and value != self.defaults[attribute]

    def adjust(self, attribute: str, value: Any, why: str) -> None:
        """Replace a value; `why` is added to its origin."""
        self.values[attribute] = value
        self.origins[dotted(attribute)] += f", {why}"

    def problem(self, text: str) -> None:
        """Reject the configuration; `text` says what to do."""
        self.problems.append(text)


class Rule:
    """A rule across keys. It runs only if each of its `keys` (attributes) has a valid value."""

    __slots__ = ("apply", "keys")

    def __init__(self, keys: tuple[str, ...], apply: Callable[[Draft], None]) -> None:
        self.keys = keys
        self.apply = apply

    @property
    def doc(self) -> str:
        """The rule in words: the function's docstring."""
        return " ".join((self.apply.__doc__ or "").split())


# --- The table ---


class Config(Mapping[str, Any]):
    """Base class of configurations.

    An instance is frozen, may be used on any thread, compares by value and pickles if its values do. A lambda among
    them needs cloudpickle. `origins` maps each key to the source of its value.

    An instance is also a read-only mapping. Iteration yields the attribute names, so that ``**config`` passes keywords.
    Lookups accept any spelling.

    Sources, in order of precedence: keywords, the mapping, the file named by `config.file`, environment variables,
    defaults. A source must not name a key twice or name an unknown key. Unknown environment variables are ignored,
    because those of other programs may start with the same prefix.
    """

    entries: ClassVar[tuple[Key, ...]] = ()
    rules: ClassVar[tuple[Rule, ...]] = ()
    left_out: ClassVar[Mapping[str, str]] = {}
    without_effect: ClassVar[Mapping[str, str]] = {}
    fixed: ClassVar[Mapping[str, tuple[str, str]]] = {}
    carried_along: ClassVar[Mapping[str, Callable[[Any], bool]]] = {}
    env_prefix: ClassVar[str] = ""
    listed_in: ClassVar[str] = ""
    _names: ClassVar[Mapping[str, Key]] = {}

    config_file: str | None = key(
        default=None,
        importance="low",
        parse=parse_path,
        allowed="the path of a file",
        doc="A file with more keys: TOML when its name ends in `.toml`, otherwise Java properties. A file can't name "
        "another file.",
    )

    origins: Mapping[str, str]

    def __init_subclass__(
        cls,
        env_prefix: str = "",
        listed_in: str = "",
        rules: tuple[Rule, ...] = (),
        left_out: Mapping[str, str] | None = None,
        without_effect: Mapping[str, str] | None = None,
        fixed: Mapping[str, tuple[str, str]] | None = None,
        carried_along: Mapping[str, Callable[[Any], bool]] | None = None,
    ) -> None:
        """Read the declarations. Those of base classes are inherited.

        env_prefix: the prefix of environment variables; without one none are read.
        listed_in: where users find all keys; by default the class itself.
        rules: the rules across keys, added to the inherited ones.
        left_out: keys (or `prefix.*`) of other clients or brokers that are rejected here, with the reason.
        without_effect: keys (or `prefix.*`) that are accepted for compatibility and have no effect, with the reason.
        fixed: keys of other clients or brokers with only one allowed value here (as text), with the reason.
        carried_along: for names in `left_out` and `without_effect`, whether a value is another client's default. Such a
        value is neither rejected nor logged.

        Raises TypeError for a contradictory declaration.
        """
        super().__init_subclass__()
        declared: dict[str, Key] = {}
        for base in reversed(cls.__mro__):
            own = {name: value for name, value in vars(base).items() if isinstance(value, Key)}
            if not all(entry.name for entry in own.values()):
                annotations = base.__annotations__
                for attribute, entry in own.items():
                    _complete(entry, attribute, annotations[attribute])
            declared.update(own)
        names: dict[str, Key] = {}
        for entry in declared.values():
            for name in (entry.name, *entry.aliases):
                if names.setdefault(name, entry) is not entry:
                    raise TypeError(f"{cls.__name__} declares {name} twice")
        bases = [base for base in reversed(cls.__mro__[1:]) if issubclass(base, Config)]
        # the base class's own key goes last, as the least interesting
        cls.entries = tuple(sorted(declared.values(), key=lambda entry: entry.attribute in vars(Config)))
        cls._names = names
        cls.rules = (*dict.fromkeys(rule for base in bases for rule in base.rules), *rules)
        cls.env_prefix = env_prefix or cls.env_prefix
        cls.listed_in = listed_in or f"{cls.__module__}.{cls.__qualname__}"
        cls.left_out = {**_union(bases, "left_out"), **(left_out or {})}
        cls.without_effect = {**_union(bases, "without_effect"), **(without_effect or {})}
        cls.fixed = {**_union(bases, "fixed"), **(fixed or {})}
        cls.carried_along = {**_union(bases, "carried_along"), **(carried_along or {})}

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} has no constructor; use {type(self).__name__}.resolve(...)")

    @classmethod
    def resolve(cls: type[C], mapping: Mapping[str, Any] | None = None, /, **keywords: Any) -> C:
        """Gather, parse and check the values of all sources, including `os.environ`.

        Raises one KafkaConfigurationError that lists all problems. Blocks only for reading `config.file`.
        """
        return cls.resolve_from(mapping, keywords, os.environ)

    @classmethod
    def resolve_from(
        cls: type[C],
        mapping: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> C:
        """`resolve` with the given environment."""
        return cls._resolve_over({}, DEFAULT, mapping, keywords, environ)

    @classmethod
    def _resolve_over(
        cls: type[C],
        defaults: Mapping[str, Any],
        defaults_origin: str,
        mapping: Mapping[str, Any] | None,
        keywords: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> C:
        """`resolve_from`, with `defaults` in place of some of the declared ones."""
        if mapping is not None and (not isinstance(mapping, Mapping) or isinstance(mapping, Config)):
            raise KafkaConfigurationError(
                f"the configuration is of type {type(mapping).__name__}; give a dict of keys, or keyword arguments"
            )
        from_keywords = [Item(name, value, _KEYWORD) for name, value in keywords.items()]
        from_mapping = [Item(name, value, _MAPPING) for name, value in (mapping or {}).items()]
        from_environ = list(cls._from_environ(environ))
        gathering = _Gathering(cls)
        gathering.add(from_keywords)
        gathering.add(from_mapping)
        path = gathering.values.get("config_file")
        if path is None:
            path = next((item.value for item in from_environ if cls._names.get(item.name) is cls._config_file()), None)
        if path is not None:
            from .config_files import read_config_file  # noqa: PLC0415 - most programs have no such file

            gathering.add([Item(*item) for item in read_config_file(path)], is_file=True)
        gathering.add(from_environ)
        gathering.add([Item(name, value, defaults_origin) for name, value in defaults.items()])
        return gathering.finish()

    @classmethod
    def _config_file(cls) -> Key:
        return cls._names["config.file"]

    @classmethod
    def _from_environ(cls, environ: Mapping[str, str]) -> Iterator[Item]:
        if not cls.env_prefix:
            return
        for variable, value in environ.items():
            # shells and compose files use an empty variable for "not set"
            if variable.startswith(cls.env_prefix) and value:
                name = dotted(variable[len(cls.env_prefix) :].lower())
                if name in cls._names or cls.why_left_out(name) is not None:
                    yield Item(name, value, f"environment {variable}")
                elif (nearest := cls.nearest(name, cutoff=0.85)) is not None:
                    meant = cls.env_prefix + nearest.upper().replace(".", "_")
                    _log.warning(
                        "The environment variable %s matches no key and is ignored; did you mean %s?", variable, meant
                    )

    @classmethod
    def why_left_out(cls, name: str) -> str | None:
        """The reason why a key of other clients or brokers is rejected here; None for any other name."""
        return _by_name_or_prefix(cls.left_out, name)

    @classmethod
    def why_without_effect(cls, name: str) -> str | None:
        """The reason why a key of other clients or brokers has no effect here; None for any other name."""
        return _by_name_or_prefix(cls.without_effect, name)

    @classmethod
    def find(cls, name: str) -> Key | None:
        """The key with this name or alias, in either spelling; None if there is none."""
        return cls._names.get(dotted(name))

    @classmethod
    def nearest(cls, name: str, cutoff: float = 0.6) -> str | None:
        """The key closest to `name`, if its similarity is at least `cutoff` (0 to 1); else None."""
        import difflib  # noqa: PLC0415 - only for the message of an error

        found = difflib.get_close_matches(name.lower(), cls._names, n=1, cutoff=cutoff)
        return cls._names[found[0]].name if found else None

    def __getitem__(self, name: str) -> Any:
        """The value of a key by any of its names. Raises KeyError, with the reason if the key is not supported."""
        key_name = dotted(name) if isinstance(name, str) else ""
        entry = self._names.get(key_name)
        if entry is None:
            reason = self.why_without_effect(key_name) or self.why_left_out(key_name)
            raise KeyError(f"{name} has no value: {reason}" if reason else name)
        return getattr(self, entry.attribute)

    def __iter__(self) -> Iterator[str]:
        return (entry.attribute for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def is_explicit(self, name: str) -> bool:
        """Whether the value of a key, named in either spelling, comes from a source and not from a default."""
        return not self.origins[dotted(name)].startswith(DEFAULT)

    def _replaced(self: C, values: Mapping[str, Any], origins: Mapping[str, str]) -> C:
        """A copy with other values (by attribute, parsed and checked) and origins (by name) for some keys."""
        return _restore(type(self), {**self._values(), **values}, {**self.origins, **origins})

    def describe(self) -> str:
        """Every key with its value and origin, one line per key. Secrets are masked."""
        return "\n".join(
            f"{entry.name} = {entry.text(getattr(self, entry.attribute))}  ({self.origins[entry.name]})"
            for entry in self.entries
        )

    def __repr__(self) -> str:
        given = (
            f"{entry.attribute}={entry.text(getattr(self, entry.attribute))}"
            for entry in self.entries
            if self.origins[entry.name] != DEFAULT
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: set {name} in {type(self).__name__}.resolve(...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} can't be deleted")

    def _values(self) -> dict[str, Any]:
        return {entry.attribute: getattr(self, entry.attribute) for entry in self.entries}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # a serializer among the values need not be hashable

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._values(), dict(self.origins))


def _union(bases: Iterable[type[Config]], table: str) -> dict[str, Any]:
    """A table of all base classes together."""
    return {name: entry for base in bases for name, entry in getattr(base, table).items()}


def _by_name_or_prefix(reasons: Mapping[str, str], name: str) -> str | None:
    if name in reasons:
        return reasons[name]
    prefixes = (pattern for pattern in reasons if pattern.endswith("*"))
    return next((reasons[pattern] for pattern in prefixes if name.startswith(pattern[:-1])), None)


#: After the class: a bound given as text would be compiled at once.
C = TypeVar("C", bound=Config)


def _restore(cls: type[C], values: dict[str, Any], origins: dict[str, str]) -> C:
    config = object.__new__(cls)
    vars(config).update(values, origins=types.MappingProxyType(origins))
    return config


def _complete(entry: Key, attribute: str, annotation: Any) -> None:
    """Fill in a key's attribute, name and type from its class, and check the declaration.

    The annotation is read as text: to evaluate all of them would take half of what a table takes to import.
    """
    name = dotted(attribute)
    if not isinstance(annotation, str):
        raise TypeError(f"{name} is annotated {annotation!r}, not by text; import annotations from __future__")
    if hasattr(Mapping, attribute):
        raise TypeError(f"{attribute} is a method of a mapping, and can't be a key")
    entry.attribute, entry.name = attribute, name
    plain = annotation.removesuffix(" | None")
    entry.nullable = plain != annotation
    if entry.parse is None:
        if plain not in PARSERS:
            raise TypeError(f"{name} is annotated {annotation}, so it has to say how it is parsed")
        entry.type_name, entry.parse = PARSERS[plain]
    elif not (entry.allowed or entry.choices):
        raise TypeError(f"{name} has a parser, so it has to say in words what is allowed")
    if plain == "int" and entry.at_most is None:
        entry.at_most = INT64_MAX
    if entry.default is not None or not entry.nullable:
        try:
            same = entry.read(entry.default) == entry.default
        except ValueError as error:
            raise TypeError(f"the default {entry.default!r} of {name} {error}") from None
        if not same:
            raise TypeError(f"the default {entry.default!r} of {name} is not in the form that its parser returns")


class _Gathering:
    """Collects values and their problems from sources, in order of precedence."""

    def __init__(self, table: type[Config]) -> None:
        self.table = table
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []
        self.unsound: set[str] = set()

    def add(self, items: list[Item], is_file: bool = False) -> None:
        seen: dict[str, Item] = {}
        for item in items:
            entry = self._find(item)
            if entry is None:
                continue
            if entry.prefixes and dotted(item.name) != entry.name:
                self._collect(entry, item)
                continue
            if is_file and entry.attribute == "config_file":
                self.problems.append(f"{item}: a configuration file can't name another one")
                continue
            earlier = seen.setdefault(entry.name, item)
            if earlier is not item:
                where = (
                    f"as {earlier.name} and {item.name}" if earlier.name != item.name else f"first in {earlier.origin}"
                )
                self.problems.append(f"{Item(entry.name, item.value, item.origin)} is given twice, {where}; keep one")
            elif entry.attribute not in self.values and entry.attribute not in self.unsound:
                self._take(entry, item)

    def _find(self, item: Item) -> Key | None:
        if not isinstance(item.name, str):
            self.problems.append(f"the key {item.name!r} is not text")
            return None
        name = dotted(item.name)
        entry = self.table._names.get(name)
        if entry is not None:
            return entry
        for each in self.table.entries:
            if each.prefixes and item.name.lower().startswith(each.prefixes):
                return each
        if name in self.table.fixed:
            self._check_fixed(item, *self.table.fixed[name])
            return None
        # settings written for another client often include its defaults
        is_default = self.table.carried_along.get(name)
        asks_for_nothing = item.value is None or (is_default is not None and is_default(item.value))
        reason = self.table.why_without_effect(name)
        if reason is not None:
            if not asks_for_nothing:
                _log.warning("The configuration key %s has no effect: %s", item, reason)
            return None
        reason = self.table.why_left_out(name)
        if reason is not None:
            if not asks_for_nothing:
                self.problems.append(f"{item} is not supported: {reason}")
            return None
        nearest = self.table.nearest(name)
        hint = f"did you mean {nearest}?" if nearest else f"{self.table.listed_in} lists the keys"
        self.problems.append(f"{item} is not a configuration key; {hint}")
        return None

    def _collect(self, entry: Key, item: Item) -> None:
        """Add an entry to the mapping of a key with prefixes; an earlier source keeps its own."""
        try:
            parsed = entry.read({item.name: item.value})
        except ValueError as error:
            self.unsound.add(entry.attribute)
            self.problems.append(f"{item} {error}; allowed is {entry.allowed_text}")
            return
        self.values[entry.attribute] = {**parsed, **self.values.get(entry.attribute, {})}
        self.origins.setdefault(entry.name, item.origin)

    def _check_fixed(self, item: Item, only: str, reason: str) -> None:
        value = item.value
        if value is not None and str(value).strip().lower() != only.lower():
            self.problems.append(
                f"{item}: {shown(value)} is not supported: {reason}; leave the key out, or give {only!r}"
            )

    def _take(self, entry: Key, item: Item) -> None:
        try:
            self.values[entry.attribute] = entry.read(item.value)
        except ValueError as error:
            self.unsound.add(entry.attribute)
            given = MASK if entry.secret else shown(item.value)
            self.problems.append(
                f"{item}: {given} {error}; allowed is {entry.allowed_text}"
                + ("" if entry.secret else f" (default {entry.default_text or entry.text(entry.default)})")
            )
        else:
            self.origins[entry.name] = item.origin

    def finish(self) -> Any:
        for entry in self.table.entries:
            if entry.attribute not in self.values:
                self.values[entry.attribute] = entry.default
                self.origins[entry.name] = DEFAULT
        draft = Draft(self.values, self.origins, {entry.attribute: entry.default for entry in self.table.entries})
        for rule in self.table.rules:
            if self.unsound.isdisjoint(rule.keys):
                rule.apply(draft)
        problems = self.problems + draft.problems
        if len(problems) == 1:
            raise KafkaConfigurationError(problems[0])
        if problems:
            listing = "".join(f"\n  - {problem}" for problem in problems)
            raise KafkaConfigurationError(f"{len(problems)} problems in the configuration:{listing}")
        return _restore(self.table, self.values, self.origins)
