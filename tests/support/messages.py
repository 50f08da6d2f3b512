"""Protobuf messages for tests, made at run time: no generated module has to be kept."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto


def make_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """shop/money.proto, and shop/order.proto, which imports it and whose first message is another one."""
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    amount = money.message_type.add(name="Money")
    amount.field.add(name="cents", number=1, type=_Field.TYPE_INT64, label=_Field.LABEL_OPTIONAL)
    order = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/money.proto"]
    )
    order.message_type.add(name="First")
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=_Field.TYPE_INT64, label=_Field.LABEL_OPTIONAL)
    message.field.add(
        name="price", number=2, type=_Field.TYPE_MESSAGE, type_name=".shop.Money", label=_Field.LABEL_OPTIONAL
    )
    message.nested_type.add(name="Nothing")
    line = message.nested_type.add(name="Line")
    line.field.add(name="what", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    return [money, order]


def make_classes() -> dict[str, Any]:
    """The message classes of `make_files` by their full names."""
    pool = descriptor_pool.DescriptorPool()
    for file in make_files():
        pool.Add(file)
    names = ("shop.Money", "shop.First", "shop.Order", "shop.Order.Line")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}
