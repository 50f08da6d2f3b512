"""Avro: data of any schema comes back, by fastavro, and by the rules of compatibility of the embedded registry."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from headrace.registry import AvroSerializer, MessageField, SerializationContext
from headrace.registry.client import SchemaRegistryClient
from headrace.registry.embedded.api import Api
from headrace.registry.embedded.store import FORMATS, SchemaStore

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
}
_DEFAULTS = {"null": None, "boolean": False, "int": 0, "long": 0, "double": 0.0, "bytes": "", "string": ""}


@st.composite
def schemas_and_data(draw: st.DrawFn, depth: int = 2, name: str = "R") -> tuple[Any, Any]:
    """A schema and data that fit it; the names of its records begin with `name`."""
    kind = draw(st.sampled_from((*_PRIMITIVES, "array", "map", "record", "union") if depth else tuple(_PRIMITIVES)))
    if kind in _PRIMITIVES:
        return kind, draw(_PRIMITIVES[kind])
    if kind == "union":
        inner = draw(st.sampled_from([name for name in _PRIMITIVES if name != "null"]))
        return ["null", inner], draw(st.none() | _PRIMITIVES[inner])
    inner, data = draw(schemas_and_data(depth=depth - 1, name=f"{name}a"))
    if kind == "array":
        return {"type": "array", "items": inner}, [data] * draw(st.integers(0, 3))
    if kind == "map":
        return {"type": "map", "values": inner}, {key: data for key in draw(st.sets(_PRIMITIVES["string"], max_size=3))}
    other, more = draw(schemas_and_data(depth=depth - 1, name=f"{name}b"))
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": other}]
    return {"type": "record", "name": name, "fields": fields}, {"a": data, "b": more}


class _Direct:
    """A REST client that calls the embedded registry's routes without a socket."""

    def __init__(self) -> None:
        self._api = Api(SchemaStore())

    def request(self, method: str, path: str, purpose: Any, query: Any = None, body: Any = None) -> Any:
        status, answer = self._api.serve(method, f"/{path}", json.dumps(body).encode())
        assert status == 200, answer
        return answer


@given(schemas_and_data())
def test_the_bytes_are_those_of_fastavro(pair: tuple[Any, Any]):
    schema, data = pair
    client = SchemaRegistryClient({"url": "http://localhost"})
    client._rest = _Direct()  # type: ignore[assignment]
    written = AvroSerializer(client, json.dumps(schema))(data, SerializationContext("t", MessageField.VALUE))
    if data is None:
        assert written is None
        return
    assert written is not None
    assert written[:5] == b"\0\0\0\0\1"
    if schema == "bytes":
        assert written[5:] == data
        return
    expected = io.BytesIO()
    fastavro.schemaless_writer(expected, fastavro.parse_schema(schema), data)
    assert written[5:] == expected.getvalue()
    assert fastavro.schemaless_reader(io.BytesIO(written[5:]), fastavro.parse_schema(schema)) == data


@given(schemas_and_data(), st.data())
def test_compatible_schemas_read_each_others_data(pair: tuple[Any, Any], more: st.DataObject):
    schema, data = pair
    record = {"type": "record", "name": "Top", "fields": [{"name": "x", "type": schema}]}
    fields: list[Any] = list(record["fields"])
    change = more.draw(st.sampled_from(("add", "remove", "type", "none")))
    if change == "add":
        kind = more.draw(st.sampled_from(list(_DEFAULTS)))
        fields.append({"name": "y", "type": kind, "default": _DEFAULTS[kind]})
    elif change == "remove":
        fields = []
    elif change == "type":
        fields = [{"name": "x", "type": more.draw(schemas_and_data())[0]}]
    changed = {"type": "record", "name": "Top", "fields": fields}
    form = FORMATS["AVRO"]
    models = [form.parse(json.dumps(each), {}, False).model for each in (changed, record)]
    output = io.BytesIO()
    fastavro.schemaless_writer(output, fastavro.parse_schema(record), {"x": data})
    if form.problems(*models) == []:
        read = fastavro.schemaless_reader(
            io.BytesIO(output.getvalue()),
            fastavro.parse_schema(record),
            fastavro.parse_schema(changed),
            # bytes may be read as a string, though not all of them are UTF-8
            handle_unicode_errors="replace",
        )
        assert set(read) == {field["name"] for field in fields}
    else:
        assert change == "type"
