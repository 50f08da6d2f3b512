"""Protobuf schemas: descriptors in base64, or .proto text that protoc (grpcio-tools) compiles; compatibility by fields.

What is compared, message by message: removed messages, the kind and the label of a field that keeps its number, added
and removed required fields (proto2), several fields that move into one oneof, and fields removed from a oneof. Enums
and services are not compared.

Source: io.confluent.kafka.schemaregistry.protobuf.diff.
"""

from __future__ import annotations

import base64
import binascii
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import invalid_schema
from .formats import Parsed

_NAME = "schema.proto"
#: Confluent's Java serializer writes a map as the repeated message that it is encoded as, with this option. protoc
#: rejects that, so the option is replaced by a reserved number, the highest there is, and set in the descriptor.
_MAP_ENTRY = re.compile(r"option\s+map_entry\s*=\s*true\s*;")
_MAP_ENTRY_NUMBER = 2**29 - 1
#: Types whose encodings can be read as each other (Protobuf's language guide, "Updating A Message Type").
_INTERCHANGEABLE = (
    frozenset(("INT32", "UINT32", "INT64", "UINT64", "BOOL", "ENUM")),
    frozenset(("SINT32", "SINT64")),
    frozenset(("STRING", "BYTES")),
    frozenset(("FIXED32", "SFIXED32")),
    frozenset(("FIXED64", "SFIXED64")),
)


class ProtobufFormat:
    """Protobuf. Implements Format."""

    def parse(self, text: str, references: Mapping[str, Any], normalize: bool) -> Parsed:
        from google.protobuf import descriptor_pb2  # noqa: PLC0415  (optional)

        file = _decoded(text)
        if file is None:
            file = _compiled(text, references)
        else:
            _check_links(file, references)
        canonical = descriptor_pb2.FileDescriptorProto()
        canonical.CopyFrom(file)
        canonical.ClearField("source_code_info")
        canonical.name = _NAME
        if normalize:
            parts: list[Any] = [canonical.message_type, canonical.enum_type, canonical.service]
            for part in parts:
                part.sort(key=lambda each: each.name)
        _without_json_names(canonical.message_type)
        identity = base64.b64encode(canonical.SerializeToString(deterministic=True)).decode()
        return Parsed(text, identity, file)

    def problems(self, reader: Any, writer: Any) -> list[str]:
        found: list[str] = []
        if reader.package != writer.package:
            found.append(f"PACKAGE_CHANGED: from {writer.package} to {reader.package}")
        _compare_messages(reader.message_type, writer.message_type, "", found)
        return found

    def serialized(self, model: Any) -> str:
        """The descriptor in base64: the output format "serialized"."""
        return base64.b64encode(model.SerializeToString()).decode()


def _decoded(text: str) -> Any:
    """The descriptor from base64; None if the text is not that."""
    from google.protobuf import descriptor_pb2  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file if file.message_type or file.enum_type or file.service else None


def _check_links(file: Any, references: Mapping[str, Any]) -> None:
    """Check that a descriptor's types exist. Raises RestError."""
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    default = descriptor_pool.Default()
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(each: Any, name: str) -> None:
        for dependency in each.dependency:
            if dependency in added:
                continue
            added.add(dependency)
            text = references.get(dependency)
            if text is not None:
                inner = _decoded(text) or _compiled(text, references)
                inner.name = dependency
                add(inner, dependency)
                continue
            known = _well_known(default, dependency)
            if known is not None:
                add(known, dependency)
        copied = type(each)()
        copied.CopyFrom(each)
        copied.name = name
        pool.Add(copied)

    try:
        add(file, file.name or _NAME)
        pool.FindFileByName(file.name or _NAME)
    except (TypeError, KeyError, ValueError) as wrong:
        raise invalid_schema(f"the Protobuf descriptor can't be linked ({wrong})") from wrong


def _well_known(pool: Any, name: str) -> Any:
    from google.protobuf import descriptor_pb2  # noqa: PLC0415

    if not name.startswith("google/protobuf/"):
        return None
    from importlib import import_module  # noqa: PLC0415

    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        return None
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def _compiled(text: str, references: Mapping[str, Any]) -> Any:
    """The descriptor of a .proto text, which may refer to texts and descriptors.

    Raises RestError (42201), also if there is no protoc.
    """
    from google.protobuf import descriptor_pb2  # noqa: PLC0415

    try:
        import grpc_tools  # noqa: PLC0415  (optional)
        from grpc_tools import protoc  # noqa: PLC0415
    except ImportError:
        raise invalid_schema(
            "the text is not a descriptor in base64, and compiling .proto text needs protoc: pip install "
            "'headrace[registry-embedded]'"
        ) from None
    with tempfile.TemporaryDirectory(prefix="headrace-proto-") as folder:
        descriptors = descriptor_pb2.FileDescriptorSet()
        for name, content in {**references, _NAME: text}.items():
            path = Path(folder, name)
            if not path.resolve().is_relative_to(Path(folder).resolve()):
                raise invalid_schema(f"the name of the reference {name!r} leads out of the schema's folder")
            descriptor = _decoded(content) if name != _NAME else None
            if descriptor is not None:
                descriptor.name = name
                descriptors.file.append(descriptor)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_MAP_ENTRY.sub(f"reserved {_MAP_ENTRY_NUMBER};", content), encoding="utf-8")
        output = Path(folder, "output.pb")
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        command = ["protoc", f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={output}", _NAME]
        if descriptors.file:
            referred = Path(folder, "referred.pb")
            referred.write_bytes(descriptors.SerializeToString())
            command.insert(1, f"--descriptor_set_in={referred}")
        if protoc.main(command) != 0 or not output.is_file():
            raise invalid_schema("protoc can't compile the text (its messages are on the standard error output)")
        files = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes())
    _set_map_entries(files.file[0].message_type)
    return files.file[0]


def _set_map_entries(messages: Any) -> None:
    for message in messages:
        for index, each in enumerate(message.reserved_range):
            if each.start == _MAP_ENTRY_NUMBER:
                del message.reserved_range[index]
                message.options.map_entry = True
                break
        _set_map_entries(message.nested_type)


def _without_json_names(messages: Any) -> None:
    """protoc adds the JSON name of each field, other writers of descriptors don't."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        _without_json_names(message.nested_type)


def _compare_messages(reader: Any, writer: Any, path: str, found: list[str]) -> None:
    mine = {message.name: message for message in reader}
    for message in writer:
        where = f"{path}/{message.name}"
        if message.name not in mine:
            found.append(f"MESSAGE_REMOVED at {where}")
            continue
        _compare_fields(mine[message.name], message, where, found)
        _compare_messages(mine[message.name].nested_type, message.nested_type, where, found)


def _compare_fields(reader: Any, writer: Any, path: str, found: list[str]) -> None:
    mine = {field.number: field for field in reader.field}
    written = {field.number: field for field in writer.field}
    for number, field in written.items():
        where = f"{path}/{number}"
        other = mine.get(number)
        if other is None:
            if field.label == field.LABEL_REQUIRED:
                found.append(f"REQUIRED_FIELD_REMOVED at {where}: {field.name}")
        elif not _is_readable(other, field):
            found.append(f"FIELD_KIND_CHANGED at {where}: {field.name}")
        elif (
            field.label != other.label
            and field.LABEL_REPEATED in (field.label, other.label)
            # of strings, bytes and messages the last element is read
            and _kind(field) not in ("STRING", "BYTES", "MESSAGE")
        ):
            found.append(f"FIELD_NUMERIC_LABEL_CHANGED at {where}: {field.name}")
    for number, field in mine.items():
        if number not in written and field.label == field.LABEL_REQUIRED:
            found.append(f"REQUIRED_FIELD_ADDED at {path}/{number}: {field.name}")
    for index, group in enumerate(reader.oneof_decl):
        members = [
            field.number for field in reader.field if field.HasField("oneof_index") and field.oneof_index == index
        ]
        outside = [number for number in members if number in written and not written[number].HasField("oneof_index")]
        if len(outside) > 1:
            found.append(f"MULTIPLE_FIELDS_MOVED_TO_ONEOF at {path}/{group.name}")
    for group in range(len(writer.oneof_decl)):
        fields = [field for field in writer.field if field.HasField("oneof_index") and field.oneof_index == group]
        gone = [field.name for field in fields if field.number not in mine]
        # the oneof that stands for an optional field of proto3 has that one only
        if gone and not fields[0].proto3_optional:
            found.append(f"ONEOF_FIELD_REMOVED at {path}: {', '.join(gone)}")


def _is_readable(reader: Any, writer: Any) -> bool:
    mine, other = _kind(reader), _kind(writer)
    if mine == other:
        return mine not in ("MESSAGE", "GROUP") or reader.type_name == writer.type_name
    return any(mine in group and other in group for group in _INTERCHANGEABLE)


def _kind(field: Any) -> str:
    return field.Type.Name(field.type).removeprefix("TYPE_")
