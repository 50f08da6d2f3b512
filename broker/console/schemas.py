"""Schemas of a registry, for decoding what its serializers wrote. Read-only, and by the REST API alone."""

from __future__ import annotations

import base64
import io
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections import OrderedDict
from typing import Any

from ...network.clock import SYSTEM_CLOCK
from .readable import Undecodable

_TIMEOUT_S = 2.0
_MAX_SCHEMA_BYTES = 4 * 2**20
_MAX_KEPT = 500
_MAX_REFERENCES = 50
#: How long a failed lookup is remembered, so that a list of records asks a silent registry once.
_FAILURE_MS = 5_000.0


class Schemas:
    """Looks up schemas by id or GUID and decodes data with them. Any thread; a lookup blocks for 2 s at most."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._lock = threading.Lock()
        self._known: OrderedDict[int | str, dict[str, Any]] = OrderedDict()
        self._failures: OrderedDict[int | str, tuple[float, str]] = OrderedDict()

    def decode(self, schema: int | str, data: bytes) -> tuple[str, Any]:
        """The format and the value of data without its prefix. Raises Undecodable."""
        found = self._schema(schema)
        kind = found.get("schemaType", "AVRO")
        try:
            if kind == "AVRO":
                return "avro", self._avro(found, data)
            if kind == "PROTOBUF":
                return "protobuf", self._protobuf(found, data)
            if kind == "JSON":
                return "json", json.loads(data)
        except ImportError as missing:
            raise Undecodable(f"{kind} needs the package {missing.name}; install headrace[registry]") from missing
        except Undecodable:
            raise
        except Exception as wrong:
            # the libraries raise what they come across in data that doesn't fit
            raise Undecodable(f"it doesn't fit its {kind} schema ({type(wrong).__name__}: {wrong})") from wrong
        raise Undecodable(f"its schema has the type {kind}, which the console doesn't know")

    def _schema(self, schema: int | str) -> dict[str, Any]:
        now_ms = SYSTEM_CLOCK.now_ms()
        with self._lock:
            if schema in self._known:
                self._known.move_to_end(schema)
                return self._known[schema]
            failed_ms, reason = self._failures.get(schema, (-_FAILURE_MS, ""))
            if reason and now_ms - failed_ms < _FAILURE_MS:
                raise Undecodable(reason)
        try:
            found = self._get(f"/schemas/guids/{schema}" if isinstance(schema, str) else f"/schemas/ids/{schema}")
            if found.get("schemaType") == "PROTOBUF":
                by = f"guids/{schema}" if isinstance(schema, str) else f"ids/{schema}"
                found["serialized"] = self._get(f"/schemas/{by}?format=serialized")["schema"]
            found["referred"] = self._references(found, {})
        except Undecodable as failed:
            with self._lock:
                _keep(self._failures, schema, (now_ms, str(failed)))
            raise
        with self._lock:
            _keep(self._known, schema, found)
        return found

    def _references(self, schema: dict[str, Any], found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """The schemas that a schema refers to, by name, the innermost first."""
        for each in schema.get("references") or ():
            if each["name"] in found:
                continue
            if len(found) >= _MAX_REFERENCES:
                raise Undecodable(f"its schema refers to more than {_MAX_REFERENCES} others")
            path = f"/subjects/{urllib.parse.quote(each['subject'], safe='')}/versions/{each['version']}"
            referred = self._get(path)
            if referred.get("schemaType") == "PROTOBUF":
                referred["serialized"] = self._get(f"{path}?format=serialized")["schema"]
            self._references(referred, found)
            found[each["name"]] = referred
        return found

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with self._opener.open(self._url + path, timeout=_TIMEOUT_S) as answer:
                content = answer.read(_MAX_SCHEMA_BYTES + 1)
            body = json.loads(content) if len(content) <= _MAX_SCHEMA_BYTES else None
        except urllib.error.HTTPError as refused:
            with refused:
                raise Undecodable(f"the schema registry has no such schema (status {refused.code})") from refused
        except (OSError, ValueError) as failed:
            raise Undecodable(f"the schema registry doesn't answer ({failed})") from failed
        if not isinstance(body, dict):
            raise Undecodable("the schema registry's answer is not a schema")
        return body

    @staticmethod
    def _avro(schema: dict[str, Any], data: bytes) -> Any:
        import fastavro  # noqa: PLC0415 - optional

        if "parsed" not in schema:
            named: dict[str, Any] = {}
            for each in schema["referred"].values():
                fastavro.parse_schema(json.loads(each["schema"]), named_schemas=named)
            text = schema["schema"]
            raw = json.loads(text) if text[:1] in '{["' else text
            schema["parsed"] = fastavro.parse_schema(raw, named_schemas=named)
        return fastavro.schemaless_reader(io.BytesIO(data), schema["parsed"], None)

    @staticmethod
    def _protobuf(schema: dict[str, Any], data: bytes) -> Any:
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory  # noqa: PLC0415

        if "file" not in schema:
            pool = descriptor_pool.DescriptorPool()
            _add_well_known(pool)
            for name, each in schema["referred"].items():
                file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(each["serialized"]))
                file.name = name
                pool.Add(file)  # pyright: ignore[reportAttributeAccessIssue]
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema["serialized"]))
            file.name = f"headrace-{uuid.uuid4()}.proto"
            pool.Add(file)  # pyright: ignore[reportAttributeAccessIssue]
            schema["pool"], schema["file"] = pool, pool.FindFileByName(file.name)
        indexes, at = _indexes(data)
        found = list(schema["file"].message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            found = found.nested_types[index]
        message = message_factory.GetMessageClass(found).FromString(data[at:])
        return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _keep(table: OrderedDict[int | str, Any], key: int | str, value: Any) -> None:
    table[key] = value
    while len(table) > _MAX_KEPT:
        table.popitem(last=False)


def _add_well_known(pool: Any) -> None:
    """Google's own types, which schemas import without a reference."""
    from google.protobuf import (  # noqa: PLC0415
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    modules = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    for module in modules:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)


def _indexes(data: bytes) -> tuple[list[int], int]:
    """The position of the message in its file, and the number of bytes that it took. Raises Undecodable."""
    count, at = _varint(data, 0)
    if not count:
        return [0], at
    if not 0 < count <= _MAX_REFERENCES:
        raise Undecodable(f"its message has {count} indexes")
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    return indexes, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it. Raises Undecodable."""
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise Undecodable("its message indexes are cut off")
