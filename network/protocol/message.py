"""Declarations of messages: the class body is the table of fields, and the codec is derived from it.

    @request(api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+")
    class ProduceRequest(Request):
        transactional_id: String | None = field(nullable="0+", default=None)
        acks: Int16

One class represents all versions of a message. A field that a version lacks is not written, and gets its default when
read. If its value is not the default, encoding raises `EncodeError`, unless the field is `ignorable`. Names and
versions are those of Apache Kafka's schema files (`clients/src/main/resources/common/message`). `codec` encodes and
decodes messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from .api_keys import ApiKey
from .types import WireType
from .versions import NEWEST, Versions

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda decorator: decorator


_MISSING: Any = object()

_ALL = Versions(0, NEWEST)
_NONE = Versions(NEWEST + 1, NEWEST)


class Message:
    """A request or a response."""

    __slots__ = ()
    api_key: ClassVar[ApiKey]
    versions: ClassVar[Versions]
    flexible: ClassVar[Versions]


class Response(Message):
    """A broker's response."""

    __slots__ = ()
    #: The versions in which a broker responds at once and the client waits for the throttle time (KIP-219). In earlier
    #: versions the broker delays the response instead.
    client_throttles: ClassVar[Versions]


class Request(Message):
    """A request from a client to a broker."""

    __slots__ = ()
    response_class: ClassVar[type[Response]]


declared_requests: dict[ApiKey, type[Request]] = {}
"""The request class of each API whose module has been imported. `api.requests` imports the others when needed."""

_RequestT = TypeVar("_RequestT", bound=type[Request])
_ResponseT = TypeVar("_ResponseT", bound=type[Response])
_T = TypeVar("_T", bound=type)


def field(
    *,
    versions: str = "0+",
    nullable: str | None = None,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    repr: bool = True,
) -> Any:
    """Declare a field that is not a plain one in all versions.

    versions: the versions that have it.
    nullable: the versions in which it may be None.
    default, default_factory: the value in versions that lack it.
    tag, tagged: its number, and the versions in which it is a tagged field (KIP-482).
    ignorable: whether its value is dropped silently in versions that lack it.
    repr: False if it is too large to be shown.
    """
    return _Declared(
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable) if nullable else _NONE,
        tag=tag,
        tagged=Versions.parse(tagged) if tagged else _NONE,
        ignorable=ignorable,
        default=default,
        default_factory=default_factory,
        repr=repr,
    )


class _Declared:
    """What a class body says about a field, beside its type."""

    __slots__ = ("default", "default_factory", "ignorable", "nullable", "repr", "tag", "tagged", "versions")

    def __init__(
        self,
        *,
        versions: Versions = _ALL,
        nullable: Versions = _NONE,
        tag: int | None = None,
        tagged: Versions = _NONE,
        ignorable: bool = False,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        repr: bool = True,
    ) -> None:
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.tagged = tagged
        self.ignorable = ignorable
        self.default = default
        self.default_factory = default_factory
        self.repr = repr


class FieldSpec:
    """The declaration of one field.

    `type` is a WireType, a struct class, or a list of one of them. `make_default` is None if there is no default.
    """

    __slots__ = ("ignorable", "make_default", "name", "nullable", "tag", "tagged", "type", "versions")

    def __init__(self, name: str, type_: Any, declared: _Declared, make_default: Callable[[], Any] | None) -> None:
        self.name = name
        self.type = type_
        self.versions = declared.versions
        self.nullable = declared.nullable
        self.tag = declared.tag
        self.tagged = declared.tagged
        self.ignorable = declared.ignorable
        self.make_default = make_default

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.tagged


def _declare(cls: Any) -> Any:
    """The class with slots for its annotated fields, and the methods that all messages share.

    A dataclass would do, but generates the source of its methods and compiles it: for the messages of a producer that
    takes longer than importing everything else in this package.
    """
    declared: dict[str, _Declared] = {}
    namespace = dict(vars(cls))
    for name, annotation in cls.__annotations__.items():
        if not annotation.startswith("ClassVar"):
            value = namespace.pop(name, _MISSING)
            declared[name] = value if isinstance(value, _Declared) else _Declared(default=value)
    for unwanted in ("__dict__", "__weakref__"):
        namespace.pop(unwanted, None)
    methods = {"__init__": _initializer(cls.__name__, declared), "__eq__": _equal, "__repr__": _shown, "__hash__": None}
    slotted = type(cls)(
        cls.__name__,
        cls.__bases__,
        {**namespace, **methods, "__slots__": tuple(declared), "__fields__": declared, "__codecs__": {}},
    )
    slotted.__qualname__ = cls.__qualname__
    return slotted


def _initializer(class_name: str, declared: dict[str, _Declared]) -> Callable[..., None]:
    names = tuple(declared)
    constants = {name: each.default for name, each in declared.items() if each.default is not _MISSING}
    factories = [
        (name, each.default_factory) for name, each in declared.items() if each.default_factory is not _MISSING
    ]

    def __init__(self: Any, **values: Any) -> None:
        if len(values) < len(names):
            for name, make in factories:
                if name not in values:
                    values[name] = make()
            values = {**constants, **values}
        try:
            for name in names:
                setattr(self, name, values[name])
        except KeyError:
            missing = [name for name in names if name not in values]
            raise TypeError(f"{class_name} needs values for {', '.join(missing)}") from None
        if len(values) > len(names):
            unknown = [name for name in values if name not in declared]
            raise TypeError(f"{class_name} has no fields {', '.join(unknown)}")

    return __init__


def _equal(self: Any, other: object) -> bool:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, name) == getattr(other, name) for name in self.__fields__)


def _shown(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, each in self.__fields__.items() if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: _T) -> _T:
    """Declare a part of a message: an array element or a field with fields of its own."""
    return _declare(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def request(*, api_key: ApiKey, versions: str, flexible: str | None = None) -> Callable[[_RequestT], _RequestT]:
    """Declare the request of an API in the supported versions. `flexible` are those with the compact encoding."""

    def declare(cls: _RequestT) -> _RequestT:
        cls = _declare(cls)
        cls.api_key, cls.versions = api_key, Versions.parse(versions)
        cls.flexible = Versions.parse(flexible) if flexible else _NONE
        if declared_requests.setdefault(api_key, cls) is not cls:
            raise TypeError(f"{api_key.name} already has the request {declared_requests[api_key].__name__}")
        return cls

    return declare


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def response(*, of: type[Request], client_throttles: str = "0+") -> Callable[[_ResponseT], _ResponseT]:
    """Declare the response to a request, with the same versions.

    `client_throttles` are the versions in which the client waits for `throttle_time_ms`. The default is all versions,
    as in every API newer than KIP-219.
    """

    def declare(cls: _ResponseT) -> _ResponseT:
        cls = _declare(cls)
        cls.api_key, cls.versions, cls.flexible = of.api_key, of.versions, of.flexible
        cls.client_throttles = Versions.parse(client_throttles)
        of.response_class = cls
        return cls

    return declare


def fields_of(cls: type) -> list[FieldSpec]:
    """The fields of a message or struct, in wire order. Raises TypeError for a contradictory declaration."""
    hints = get_type_hints(cls, include_extras=True)
    specs = []
    for name, each in cls.__fields__.items():  # pyright: ignore[reportAttributeAccessIssue] - `_declare` sets it
        where = f"{cls.__name__}.{name}"
        type_, may_be_none = _wire_type(where, hints[name])
        if each.default is not _MISSING:
            make_default = _constant(each.default)
        else:
            make_default = None if each.default_factory is _MISSING else each.default_factory
        spec = FieldSpec(name, type_, each, make_default)
        if may_be_none != (spec.nullable is not _NONE):
            raise TypeError(f"{where}: `| None` in the annotation and `nullable` go together")
        if make_default is None and (spec.versions != _ALL or spec.tag is not None):
            raise TypeError(f"{where}: a field that is not in every version needs a default")
        specs.append(spec)
    return specs


def first_version_with(cls: type, field_name: str) -> int:
    """The first version in which a message or struct has the field. Raises TypeError if none has."""
    declared = cls.__fields__.get(field_name)  # pyright: ignore[reportAttributeAccessIssue] - `_declare` sets it
    if declared is None:
        raise TypeError(f"{cls.__name__} has no field {field_name}")
    return declared.versions.min


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _wire_type(where: str, hint: Any) -> tuple[Any, bool]:
    """The wire type of an annotation, and whether the annotation allows None."""
    may_be_none = False
    arguments = get_args(hint)
    if get_origin(hint) is Union or type(None) in arguments:
        may_be_none = True
        (hint,) = (argument for argument in arguments if argument is not type(None))
    if get_origin(hint) is list:
        element, element_may_be_none = _wire_type(where, get_args(hint)[0])
        if element_may_be_none:
            raise TypeError(f"{where}: the elements of an array cannot be None")
        return [element], may_be_none
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, WireType):
            return extra, may_be_none
    if hasattr(hint, "__fields__"):
        return hint, may_be_none
    raise TypeError(f"{where}: {hint!r} is not a type of the wire protocol")
