"""What has a configuration, for the three APIs that tell and change it."""

from __future__ import annotations

from collections.abc import Mapping

from ....network.config import INT32_MAX, Key
from ....network.protocol.errors import InvalidConfigurationError, InvalidRequestError, UnknownTopicOrPartitionError
from ...metadata import TopicState
from ...services.services import BrokerServices

TOPIC = 2
BROKER = 4

_INT = 3
_LONG = 5
_DOUBLE = 6
_LIST = 7
_TYPES = {"true or false": 1, "text": 2, "a whole number": _LONG, "a list, or text separated by commas": 7}


def find_topic(broker: BrokerServices, name: str) -> TopicState:
    """Raises UnknownTopicOrPartitionError."""
    state = broker.image.topics.get(name)
    if state is None:
        raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
    return state


def check_broker(broker: BrokerServices, name: str) -> None:
    """Raises InvalidRequestError unless the name is this broker's id, or empty for what holds for all."""
    if name not in ("", str(broker.node_id)):
        raise InvalidRequestError(f"this is broker {broker.node_id}; ask broker {name} about its configuration")


def refuse_type(resource_type: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"topics (2) and brokers (4) have configurations here, not resources of type {resource_type}"
    )


def set_configs(
    broker: BrokerServices, resource_type: int, name: str, configs: Mapping[str, str], *, validate_only: bool
) -> None:
    """Replace what a topic overrides. Raises UnknownTopicOrPartitionError, InvalidConfigurationError,
    InvalidRequestError."""
    if resource_type == BROKER:
        raise InvalidConfigurationError("a broker's configuration is decided when it starts; restart it with another")
    if resource_type != TOPIC:
        raise refuse_type(resource_type)
    broker.controller.set_topic_configs(name, configs, validate_only=validate_only)


def type_of(entry: Key) -> int:
    """The type of a key as DescribeConfigs tells it."""
    if isinstance(entry.default, float):
        return _DOUBLE
    if isinstance(entry.default, tuple):
        return _LIST
    told = _TYPES.get(entry.type_name, 2)
    is_short = entry.at_most is not None and entry.at_most <= INT32_MAX
    return _INT if told == _LONG and is_short else told
