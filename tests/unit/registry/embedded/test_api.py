"""The REST API of the embedded schema registry, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.registry.embedded.api import Api
from headrace.registry.embedded.store import SchemaStore


class Caller:
    """Calls an Api and remembers nothing."""

    def __init__(self) -> None:
        self._api = Api(SchemaStore())

    def __call__(self, method: str, target: str, body: Any = None) -> Any:
        status, answer = self._api.serve(method, target, b"" if body is None else json.dumps(body).encode())
        return answer if status == 200 else (status, answer["error_code"])

    def register(self, subject: str, schema: Any, query: str = "", **others: Any) -> Any:
        answer = self("POST", f"/subjects/{subject}/versions{query}", {"schema": json.dumps(schema), **others})
        return answer["id"] if isinstance(answer, dict) else answer


@pytest.fixture
def call() -> Caller:
    return Caller()


def record(*names: str, kind: Any = "int") -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind, "default": 0} for name in names]}


def test_a_schema_has_one_id_and_guid_in_every_subject(call: Caller):
    assert (call.register("a", record("x")), call.register("b", record("x"))) == (1, 1)
    assert call.register("a", record("x", "y")) == 2
    assert call.register("a", record("x")) == 1
    assert call("GET", "/subjects") == ["a", "b"]
    assert call("GET", "/subjects/a/versions") == [1, 2]
    assert call("GET", "/schemas/ids/1/subjects") == ["a", "b"]
    assert call("GET", "/schemas/ids/2/versions") == [{"subject": "a", "version": 2}]
    guid = call("GET", "/schemas/ids/1")["guid"]
    assert call("GET", f"/schemas/guids/{guid}")["id"] == 1
    assert call("GET", "/schemas/ids/1/schema") == record("x")
    assert call("GET", "/subjects/a/versions/2/schema") == record("x", "y")
    latest = call("GET", "/subjects/a/versions/latest")
    assert (latest["subject"], latest["version"], latest["id"], latest["schemaType"]) == ("a", 2, 2, "AVRO")
    assert call("GET", "/subjects/a/versions/-1") == latest


@pytest.mark.parametrize(
    ("method", "target", "body", "expected"),
    [
        ("GET", "/subjects/no/versions", None, (404, 40401)),
        ("GET", "/subjects/s/versions/9", None, (404, 40402)),
        ("GET", "/subjects/s/versions/zero", None, (422, 42202)),
        ("GET", "/schemas/ids/9", None, (404, 40403)),
        ("GET", "/schemas/ids/1?format=strange", None, (422, 422)),
        ("GET", "/schemas/guids/no", None, (404, 40403)),
        ("POST", "/subjects/s", {"schema": '"string"'}, (404, 40403)),
        ("POST", "/subjects/s/versions", {"schema": "no"}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": ""}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "schemaType": "XML"}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "references": [{}]}, (422, 42201)),
        ("POST", "/subjects/s/versions", {"schema": '"int"', "id": 5}, (422, 42205)),
        ("POST", "/subjects/s/versions", [1], (422, 422)),
        ("POST", "/subjects/s/versions", {"schema": '"string"'}, (409, 409)),
        ("PUT", "/config", {"compatibility": "SOMETIMES"}, (422, 42203)),
        ("PUT", "/config", {"compatibilityGroup": "x"}, (422, 422)),
        ("GET", "/config/s", None, (404, 40408)),
        ("PUT", "/mode", {"mode": "ODD"}, (422, 42204)),
        ("PUT", "/mode", {"mode": "IMPORT"}, (422, 42205)),
        ("GET", "/mode/s", None, (404, 40409)),
        ("DELETE", "/subjects/s?permanent=true", None, (404, 40405)),
        ("DELETE", "/subjects/s/versions/1?permanent=true", None, (404, 40407)),
        ("GET", "/nowhere", None, (404, 404)),
        ("PUT", "/subjects", None, (405, 405)),
    ],
)
def test_errors_have_the_codes_of_the_registry(call: Caller, method: str, target: str, body: Any, expected: Any):
    call.register("s", record("x"))
    assert call(method, target, body) == expected


def test_soft_and_hard_deletion(call: Caller):
    call.register("s", record("x"))
    call.register("s", record("x", "y"))
    assert call("DELETE", "/subjects/s/versions/1") == 1
    assert call("DELETE", "/subjects/s/versions/1") == (404, 40406)
    assert (call("GET", "/subjects/s/versions"), call("GET", "/subjects/s/versions?deleted=true")) == ([2], [1, 2])
    assert call("GET", "/subjects/s/versions?deletedOnly=true") == [1]
    assert call("DELETE", "/subjects/s") == [2]
    assert call("DELETE", "/subjects/s") == (404, 40404)
    assert (call("GET", "/subjects"), call("GET", "/subjects?deleted=true")) == ([], ["s"])
    # what was deleted keeps its id, and a new version gets the next number
    assert call.register("s", record("x")) == 1
    assert call("GET", "/subjects/s/versions") == [3]
    call("DELETE", "/subjects/s")
    assert call("DELETE", "/subjects/s?permanent=true") == [1, 2, 3]
    assert call("GET", "/subjects?deleted=true") == []
    assert call("GET", "/schemas/ids/1")["schema"] == json.dumps(record("x"), separators=(",", ":"))


def test_the_level_decides_on_what_is_compared(call: Caller):
    call.register("s", record("x"))
    call("PUT", "/config", {"compatibility": "NONE"})
    call.register("s", record("x", kind="string") | {"fields": [{"name": "x", "type": "string"}]})
    third = record("x", kind="long")
    for level, is_compatible in (
        ("BACKWARD", False),
        ("BACKWARD_TRANSITIVE", False),
        ("FORWARD", False),
        ("NONE", True),
    ):
        assert call("PUT", "/config/s", {"compatibility": level}) == {"compatibility": level}
        assert call("GET", "/config/s") == {"compatibilityLevel": level}
        answer = call("POST", "/compatibility/subjects/s/versions?verbose=true", {"schema": json.dumps(third)})
        assert answer["is_compatible"] is is_compatible
        assert bool(answer["messages"]) is not is_compatible
    call("PUT", "/config/s", {"compatibility": "BACKWARD"})
    answer = call("POST", "/compatibility/subjects/s/versions/1", {"schema": json.dumps(third)})
    assert answer == {"is_compatible": True}
    assert call("DELETE", "/config/s") == {"compatibilityLevel": "BACKWARD"}
    assert call("GET", "/config/s?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}


def test_full_compares_in_both_directions(call: Caller):
    call("PUT", "/config", {"compatibility": "FULL"})
    call.register("s", record("x"))
    assert call.register("s", record("x", kind="long")) == (409, 409)
    assert call.register("s", record("x", "y")) == 2


def test_modes(call: Caller):
    call("PUT", "/mode/s", {"mode": "READONLY"})
    assert call.register("s", record("x")) == (422, 42205)
    assert call("GET", "/mode/s") == {"mode": "READONLY"}
    assert call("GET", "/mode") == {"mode": "READWRITE"}
    assert call("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert call("PUT", "/mode/i", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    assert call.register("i", record("x")) == (422, 42205)
    assert call.register("i", record("x"), id=77, version=3) == 77
    assert call.register("i", record("x", "y"), id=77, version=4) == (422, 42205)
    assert call("GET", "/subjects/i/versions") == [3]
    assert call.register("s", record("z")) == 78


def test_references_are_resolved_and_protect_what_they_refer_to(call: Caller):
    call.register("money", {"type": "record", "name": "shop.Money", "fields": []})
    order = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": "shop.Money"}]}
    reference = [{"name": "shop.Money", "subject": "money", "version": 1}]
    assert call.register("order", order) == (422, 42201)
    assert call.register("order", order, references=reference) == 2
    assert call("GET", "/schemas/ids/2")["references"] == reference
    assert call("GET", "/subjects/money/versions/1/referencedby") == [2]
    assert call("DELETE", "/subjects/money") == (422, 42206)
    assert call("DELETE", "/subjects/money/versions/1") == (422, 42206)
    call("DELETE", "/subjects/order")
    assert call("DELETE", "/subjects/money") == [1]


def test_metadata_select_a_version(call: Caller):
    call.register("s", record("x"), metadata={"properties": {"major": "1"}})
    call.register("s", record("x", "y"), metadata={"properties": {"major": "2"}})
    assert call("GET", "/subjects/s/metadata?key=major&value=1")["version"] == 1
    assert call("GET", "/subjects/s/metadata?key=major&value=3") == (404, 40401)


def test_lists_come_in_pages(call: Caller):
    for name in "abc":
        call.register(name, record("x"))
    assert call("GET", "/subjects?offset=1&limit=1") == ["b"]
    assert call("GET", "/subjects?subjectPrefix=c") == ["c"]
    assert call("GET", "/subjects?offset=x") == (400, 400)
