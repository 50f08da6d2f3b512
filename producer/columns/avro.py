"""Arrow columns as Avro: checks the types against the schema and builds the tree that `avro_cy` encodes by.

What a column becomes is decided by its type and the schema, once per column, not by its values. In a union with
several branches, that is the first branch that can hold every value of the type, else the first that may hold them.
"""

from __future__ import annotations

import contextlib
import io
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from ...network.protocol.errors import EncodeError, SerializationError
from ...network.records.columns_cy import ListColumn
from ..record_errors import row_error
from .arrow_buffers import bytes_column, is_binary, is_of, is_string, longs
from .avro_cy import (
    MAX_BRANCH,
    PROBLEMS,
    BooleanNode,
    BytesNode,
    CheckedNode,
    DecimalNode,
    ListNode,
    LongNode,
    Node,
    RecordNode,
    UuidNode,
    WidthNode,
    encode,
)

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TIMES = {
    "timestamp-millis": 10**3,
    "timestamp-micros": 10**6,
    "timestamp-nanos": 10**9,
    "time-millis": 10**3,
    "time-micros": 10**6,
}
_INT = -(2**31), 2**31 - 1
_LONG = -(2**63), 2**63 - 1
_MS_PER_DAY = 86_400_000


def avro_column(column: Any, schema: Any, prefix: bytes, name: str, base_row: int, strict: str = "") -> Any:
    """Encode an Arrow array by a schema; return a large_binary array. A null stays null.

    `schema`: as fastavro's `parse_schema` returns it, without references to types that it does not define.
    `prefix`: bytes that precede each value. `name`: that of the column, empty for a whole row; for messages.
    `base_row`: the number of the first row, for messages. `strict`: "all" if each field needs a column and each column
    a field, "defaults" if a field with a default needs none; empty if columns may be left out and nulls be missing.

    Raises SerializationError for a column that does not fit the schema, and RowDeliveryError for a value that doesn't.
    """
    names: dict[str, Any] = {}
    _collect(schema, names)
    tree = _Tree(names, strict)
    with _as_damaged(name):
        if isinstance(schema, dict) and schema.get("type") == "bytes" and "logicalType" not in schema:
            # bytes alone have no length before them: their end is the record's
            root: Node = tree.raw(column, name)
        else:
            root = tree.node(column, schema, name)
    return _encoded(tree, root, column, prefix, base_row)


def prefixed_column(column: Any, prefix: bytes, name: str) -> Any:
    """Put a prefix before each value of a binary column; return a large_binary array. A null stays null.

    Raises SerializationError for another type.
    """
    tree = _Tree({}, "")
    with _as_damaged(name):
        root = tree.raw(column, name)
    return _encoded(tree, root, column, prefix, 0)


def _encoded(tree: _Tree, root: Node, column: Any, prefix: bytes, base_row: int) -> Any:
    import pyarrow as pa  # noqa: PLC0415  (needed only with Arrow data)

    data, offsets, row = encode(root, len(column), prefix)
    if row >= 0:
        wrong = next(node for node in tree.nodes if node.problem)
        # without the value, which may be confidential
        cause = SerializationError(
            f"the column {wrong.path!r} {PROBLEMS[wrong.problem]} the Avro type {wrong.avro_type}"
        )
        raise row_error(base_row + row, None, -1, cause) from cause
    validity = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(
        pa.large_binary(), len(column), [validity, pa.py_buffer(offsets), pa.py_buffer(data)], column.null_count
    )


class _UnfitError(SerializationError):
    """The type of a column that does not fit the schema."""


class _Tree:
    """Builds the nodes. `narrowed` counts the conversions that a value may not fit."""

    def __init__(self, names: Mapping[str, Any], strict: str) -> None:
        self.nodes: list[Node] = []
        self.narrowed = 0
        self._names = names
        self._strict = strict

    def raw(self, column: Any, name: str) -> Node:
        """The node of a column of bytes that are written as they are."""
        column = _plain(column)
        if not is_binary(column.type):
            raise SerializationError(f"the column {name!r} is of type {column.type}; it has to be binary")
        return self._done(BytesNode(name, "bytes", bytes_column(column, name), has_length=False), column)

    def node(self, column: Any, schema: Any, path: str) -> Node:
        """The node of a column for a type of the schema."""
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return self._union(column, schema, path)
        if is_of(column.type, "null"):
            node = Node(path, _label(schema))
            if schema["type"] == "null":
                node.take_null()
            return self._all_null(node, len(column))
        column = _plain(column, is_enum=schema["type"] == "enum")
        return self._done(self._value(column, schema, path), column)

    def _resolved(self, schema: Any) -> Any:
        """A union as a list, another type as a dict."""
        while True:
            if isinstance(schema, str):
                schema = self._names.get(schema, {"type": schema})
            elif isinstance(schema, dict) and not isinstance(schema["type"], str):
                schema = schema["type"]
            elif isinstance(schema, dict) and schema["type"] in self._names:
                schema = self._names[schema["type"]]
            else:
                return schema

    def _done(self, node: Node, column: Any) -> Node:
        """A finished node with the nulls of its column."""
        if column.null_count:
            node.set_validity(column.buffers()[0], column.offset, len(column))
        self.nodes.append(node)
        return node

    def _all_null(self, node: Node, length: int) -> Node:
        node.set_validity(bytes((length + 7) // 8), 0, length)
        self.nodes.append(node)
        return node

    # --- Unions ---

    def _union(self, column: Any, union: list[Any], path: str) -> Node:
        branches = [self._resolved(branch) for branch in union]
        null_branch = next((index for index, each in enumerate(branches) if each["type"] == "null"), -1)
        if len(branches) > MAX_BRANCH + 1:
            raise SerializationError(f"the column {path!r} has an Avro union of more than {MAX_BRANCH + 1} branches")
        if is_of(column.type, "null"):
            node = self._all_null(Node(path, _label(union)), len(column))
            chosen = max(null_branch, 0)
        else:
            chosen, node = self._chosen(column, branches, path)
        node.set_union(null_branch, chosen)
        return node

    def _chosen(self, column: Any, branches: list[Any], path: str) -> tuple[int, Node]:
        """The branch for a column, and its node."""
        candidates = [index for index, each in enumerate(branches) if each["type"] != "null"]
        if len(candidates) == 1:
            return candidates[0], self.node(column, branches[candidates[0]], path)
        if is_of(column.type, "struct"):
            # the record that has most of the fields, as in fastavro
            fields = {column.type.field(index).name for index in range(column.type.num_fields)}
            candidates.sort(
                key=lambda index: -len(fields & {each["name"] for each in branches[index].get("fields", ())})
            )
        has_double = any(each["type"] == "double" for each in branches)
        narrow: tuple[int, Node] | None = None
        for index in candidates:
            if has_double and branches[index]["type"] == "float":
                continue
            built, narrowed = len(self.nodes), self.narrowed
            try:
                node = self.node(column, branches[index], path)
            except _UnfitError:
                del self.nodes[built:]
                continue
            if self.narrowed == narrowed:
                return index, node
            self.narrowed = narrowed
            narrow = narrow or (index, node)
        if narrow is None:
            raise _unfit(path, column.type, branches)
        return narrow

    # --- Values, by the type of the schema ---

    def _value(self, column: Any, schema: dict[str, Any], path: str) -> Node:
        build = _BUILDERS.get(schema["type"])
        node = None if build is None else build(self, column, schema, path)
        if node is None:
            raise _unfit(path, column.type, schema)
        return node

    def _boolean(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        if not is_of(column.type, "boolean"):
            return None
        return BooleanNode(path, column.buffers()[1] or b"", column.offset, len(column))

    def _int(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        return self._whole(column, schema, path, *_INT)

    def _long(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        return self._whole(column, schema, path, *_LONG)

    def _whole(self, column: Any, schema: dict[str, Any], path: str, least: int, most: int) -> Node | None:
        """An int or a long, which may be a date or a time."""
        import pyarrow as pa  # noqa: PLC0415

        kind, logical = column.type, schema.get("logicalType", "")
        factor = divisor = 1
        if is_of(kind, "integer"):
            if is_of(kind, "uint64"):
                numbers = longs(column.view(pa.int64()))
                least = 0
            else:
                numbers = longs(column)
            bits = kind.bit_width + (1 if is_of(kind, "unsigned_integer") else 0)
            self.narrowed += 1 if bits > (32 if most == _INT[1] else 64) else 0
            _check_length(numbers, len(column), path)
            return LongNode(path, _label(schema), numbers, least=least, most=most)
        if is_of(kind, "date") and logical == "date":
            is_ms = is_of(kind, "date64")
            numbers = longs(column.view(pa.int64() if is_ms else pa.int32()))
            divisor = _MS_PER_DAY if is_ms else 1
        elif (is_of(kind, "time") and logical.startswith("time-")) or (
            is_of(kind, "timestamp") and logical.startswith("timestamp-" if kind.tz is not None else "local-timestamp-")
        ):
            numbers = longs(column.view(pa.int32() if is_of(kind, "time32") else pa.int64()))
            wanted, given = _TIMES.get(logical.removeprefix("local-"), 0), _PER_SECOND[kind.unit]
            if not wanted:
                return None
            factor, divisor = max(wanted // given, 1), max(given // wanted, 1)
            self.narrowed += 1 if wanted < given else 0
        else:
            return None
        # the limits of what is written, as limits of what is read
        least = max(-(-least // factor) * divisor, _LONG[0])
        most = min(most // factor * divisor + divisor - 1, _LONG[1])
        _check_length(numbers, len(column), path)
        return LongNode(path, _label(schema), numbers, factor, divisor, least, most)

    def _float(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute  # noqa: PLC0415

        node = self._floating(column, pa.float32(), path, "float")
        if node is not None and not (is_of(column.type, "float16") or is_of(column.type, "float32")):
            self.narrowed += 1
            pc: Any = pyarrow.compute
            lost = pc.and_(pc.is_inf(column.cast(pa.float32(), safe=False)), pc.is_finite(column))
            if pc.any(lost).as_py():
                return CheckedNode(node, pc.fill_null(lost, False).buffers()[1])
        return node

    def _double(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        import pyarrow as pa  # noqa: PLC0415

        return self._floating(column, pa.float64(), path, "double")

    def _floating(self, column: Any, wanted: Any, path: str, label: str) -> Node | None:
        if not (is_of(column.type, "floating") or is_of(column.type, "integer")):
            return None
        if column.type != wanted:
            column = column.cast(wanted, safe=False)
        return self._width(column, wanted.bit_width // 8, path, label)

    @staticmethod
    def _width(column: Any, width: int, path: str, label: str) -> Node:
        return WidthNode(path, label, column.buffers()[1] or b"", width, column.offset, len(column))

    def _string(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        if schema.get("logicalType") == "uuid" and is_of(column.type, "fixed_size_binary"):
            if column.type.byte_width != 16:
                return None
            return UuidNode(path, column.buffers()[1] or b"", column.offset, len(column))
        if not is_string(column.type):
            return None
        return BytesNode(path, _label(schema), bytes_column(column, path))

    def _bytes(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        if schema.get("logicalType") == "decimal" and is_of(column.type, "decimal"):
            return self._decimal(column, schema, path, -1)
        if not is_binary(column.type):
            return None
        return BytesNode(path, _label(schema), bytes_column(column, path))

    def _fixed(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        size = schema["size"]
        if schema.get("logicalType") == "decimal" and is_of(column.type, "decimal"):
            return self._decimal(column, schema, path, size)
        if is_of(column.type, "fixed_size_binary"):
            return self._width(column, size, path, _label(schema)) if column.type.byte_width == size else None
        if not is_binary(column.type):
            return None
        self.narrowed += 1
        return BytesNode(path, _label(schema), bytes_column(column, path), has_length=False, exact=size)

    def _decimal(self, column: Any, schema: dict[str, Any], path: str, fixed: int) -> Node | None:
        import pyarrow as pa  # noqa: PLC0415

        kind, precision, scale = column.type, schema["precision"], schema.get("scale", 0)
        if kind.scale > scale:
            raise _UnfitError(
                f"the column {path!r} is of type {kind}, which has more decimal places than the Avro type "
                f"{_label(schema)}: round it"
            )
        if kind.precision - kind.scale > precision - scale:
            self.narrowed += 1
        elif kind.scale == scale and kind.bit_width >= 128:
            return self._decimal_node(column, schema, path, fixed)
        wanted = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(min(precision, 76), scale)
        try:
            return self._decimal_node(column.cast(wanted), schema, path, fixed)
        except pa.ArrowInvalid:
            # a value is too large, but it may be of a row that is null
            limit, numbers = 10 ** (precision - scale), column.to_pylist()
            lost = pa.array([each is not None and abs(each) >= limit for each in numbers])
            fitting = pa.array(
                [None if each else number for each, number in zip(lost.to_pylist(), numbers, strict=True)], kind
            )
            return CheckedNode(self._decimal_node(fitting.cast(wanted), schema, path, fixed), lost.buffers()[1] or b"")

    def _decimal_node(self, column: Any, schema: dict[str, Any], path: str, fixed: int) -> Node:
        width, data = column.type.bit_width // 8, column.buffers()[1] or b""
        return DecimalNode(path, _label(schema), data, width, fixed, column.offset, len(column))

    def _enum(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        import pyarrow as pa  # noqa: PLC0415

        if not (is_of(column.type, "dictionary") and is_string(column.type.value_type)):
            return None
        self.narrowed += 1
        places = {symbol: place for place, symbol in enumerate(schema["symbols"])}
        numbers = pa.array([places.get(each, -1) for each in column.dictionary.to_pylist()], pa.int64())
        symbols = longs(numbers.take(column.indices))
        return LongNode(path, _label(schema), symbols, least=0, no_symbol=True)

    # --- Nested types ---

    def _record(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        kind = column.type
        if not is_of(kind, "struct"):
            return None
        places: dict[str, int] = {}
        for index in range(kind.num_fields):
            name = kind.field(index).name
            if name in places:
                raise SerializationError(f"there are two columns {_inner(path, name)!r}; rename one of them")
            places[name] = index
        if self._strict:
            extra = sorted(places.keys() - {field["name"] for field in schema["fields"]})
            if extra:
                raise _UnfitError(
                    f"the column {_inner(path, extra[0])!r} is not a field of the Avro type {_label(schema)}, which "
                    f"validate.strict does not permit: remove it"
                )
        fields: list[Node] = []
        for field in schema["fields"]:
            inner = _inner(path, field["name"])
            if field["name"] in places:
                child = column.field(places[field["name"]])
                _check_length(child, len(column), inner)
                fields.append(self.node(child, field["type"], inner))
            else:
                fields.append(self._missing(field, inner, schema))
        middle = len(fields) // 2
        return RecordNode(_group(fields[:middle]), _group(fields[middle:]), path, _label(schema))

    def _missing(self, field: dict[str, Any], path: str, record: dict[str, Any]) -> Node:
        """The default of a field without a column."""
        resolved = self._resolved(field["type"])
        takes_null = (
            any(self._resolved(each)["type"] == "null" for each in resolved)
            if isinstance(resolved, list)
            else resolved["type"] == "null"
        )
        has_default = "default" in field
        if self._strict == "all" or (not has_default and (self._strict or not takes_null)):
            raise _UnfitError(
                f"there is no column {path!r}, and the field of the Avro type {_label(record)} "
                + ("has no default" if not has_default else "needs one with validate.strict")
            )
        data = _default(self._inlined(field["type"], set()), resolved, field.get("default"), path)
        return WidthNode(path, _label(resolved), data, len(data), 0, -1)

    def _inlined(self, schema: Any, known: set[str]) -> Any:
        """A schema that defines the types that it names."""
        if isinstance(schema, str):
            if schema not in self._names or schema in known:
                return schema
            schema = self._names[schema]
        if isinstance(schema, list):
            return [self._inlined(each, known) for each in schema]
        if "name" in schema:
            known.add(schema["name"])
        made = {key: value for key, value in schema.items() if not key.startswith("__")}
        for key in ("items", "values"):
            if key in made:
                made[key] = self._inlined(made[key], known)
        if not isinstance(made["type"], str) or made["type"] in self._names:
            made["type"] = self._inlined(made["type"], known)
        if "fields" in made:
            made["fields"] = [{**each, "type": self._inlined(each["type"], known)} for each in made["fields"]]
        return made

    def _array(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        kind = column.type
        if is_of(kind, "fixed_size_list"):
            start, size = column.offset, kind.list_size
            bounds: Any = memoryview(array("q", [size * row for row in range(start, start + len(column) + 1)]))
        elif is_of(kind, "list") or is_of(kind, "large_list"):
            bounds = longs(column.offsets)
        else:
            return None
        items = self.node(column.values, schema["items"], f"{path}[]")
        _check_length(bounds, len(column) + 1, path)
        return ListNode(path, ListColumn(bounds, None, 0, len(column.values)), items)

    def _map(self, column: Any, schema: dict[str, Any], path: str) -> Node | None:
        kind = column.type
        if not (is_of(kind, "map") and is_string(kind.key_type)):
            return None
        keys = self.node(column.keys, {"type": "string"}, f"{path}.key")
        items = self.node(column.items, schema["values"], f"{path}[]")
        bounds = longs(column.offsets)
        _check_length(bounds, len(column) + 1, path)
        _check_length(column.items, len(column.keys), path)
        return ListNode(path, ListColumn(bounds, None, 0, len(column.keys)), RecordNode(keys, items))


def _plain(column: Any, is_enum: bool = False) -> Any:
    """A column without extension types and views; of dictionaries only where an enum is wanted."""
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if is_of(column.type, "dictionary"):
        if is_enum and not column.dictionary.null_count:
            return column
        # pyarrow looks up nulls, too, for which an empty dictionary has no value
        empty = not len(column.dictionary)
        column = pa.nulls(len(column), column.type.value_type) if empty else column.dictionary_decode()
    if is_of(column.type, "string_view"):
        column = column.cast(pa.large_string())
    elif is_of(column.type, "binary_view"):
        column = column.cast(pa.large_binary())
    if is_enum and is_string(column.type):
        return column.dictionary_encode()
    return column


def _group(nodes: list[Node]) -> Node:
    """Fields as a balanced tree, whose depth is the logarithm of their number."""
    if len(nodes) < 2:
        return nodes[0] if nodes else Node("", "")
    middle = len(nodes) // 2
    return RecordNode(_group(nodes[:middle]), _group(nodes[middle:]))


def _default(schema: Any, resolved: Any, default: Any, path: str) -> bytes:
    """The encoded default of a field."""
    import fastavro  # noqa: PLC0415  (optional; the serializer with the schema has it)

    first = resolved[0] if isinstance(resolved, list) and resolved else resolved
    if isinstance(default, str) and isinstance(first, dict) and first["type"] in ("bytes", "fixed"):
        # in a schema, bytes are text of the code points 0 to 255
        default = default.encode("latin-1")
    output = io.BytesIO()
    try:
        fastavro.schemaless_writer(output, cast(Any, schema), default)
    except Exception as wrong:
        raise SerializationError(
            f"there is no column {path!r}, and the default of the field can't be encoded "
            f"({type(wrong).__name__}: {wrong})"
        ) from wrong
    return output.getvalue()


def _collect(schema: Any, names: dict[str, Any]) -> None:
    """Gather the named types of a parsed schema, whose names are complete."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, names)
    elif isinstance(schema, dict):
        if "name" in schema:
            names[schema["name"]] = schema
        for key in ("type", "items", "values"):
            _collect(schema.get(key), names)
        for field in schema.get("fields", ()):
            _collect(field["type"], names)


def _inner(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _label(schema: Any) -> str:
    """A few words for a type of a schema."""
    if isinstance(schema, list):
        return "union of " + ", ".join(_label(each) for each in schema)
    if isinstance(schema, str):
        return schema
    name = schema.get("name") or (schema["type"] if isinstance(schema["type"], str) else _label(schema["type"]))
    logical = schema.get("logicalType")
    if logical == "decimal":
        return f"{name} (decimal with precision {schema['precision']} and scale {schema.get('scale', 0)})"
    if schema["type"] in ("enum", "fixed"):
        return f"{schema['type']} {name}"
    return f"{name} ({logical})" if logical else name


def _unfit(path: str, kind: Any, schema: Any) -> _UnfitError:
    hint = "cast it"
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if is_of(kind, "timestamp") and "timestamp-" in logical:
        has_zone = kind.tz is not None
        hint = (
            "a local time has no zone: cast it to a timestamp without one"
            if has_zone
            else "a point in time has a zone: cast it with pyarrow.compute.assume_timezone, or use local-" + logical
        )
    return _UnfitError(
        f"the column {path!r} is of type {kind}, which does not fit the Avro type {_label(schema)}: {hint}"
    )


@contextlib.contextmanager
def _as_damaged(name: str) -> Iterator[None]:
    """Raise a SerializationError for buffers that are too short, and for what pyarrow finds wrong with an array."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        yield
    except (EncodeError, pa.ArrowException) as error:
        raise SerializationError(f"the column {name!r} is not valid Arrow data: {error}") from error


def _check_length(values: Any, length: int, path: str) -> None:
    """Raises EncodeError if an array is shorter than what it belongs to."""
    if len(values) < length:
        raise EncodeError(f"{path!r} has {len(values)} values instead of {length}")


_BUILDERS: dict[str, Callable[..., Node | None]] = {
    "boolean": _Tree._boolean,
    "int": _Tree._int,
    "long": _Tree._long,
    "float": _Tree._float,
    "double": _Tree._double,
    "string": _Tree._string,
    "bytes": _Tree._bytes,
    "fixed": _Tree._fixed,
    "enum": _Tree._enum,
    "record": _Tree._record,
    "error": _Tree._record,
    "array": _Tree._array,
    "map": _Tree._map,
}
