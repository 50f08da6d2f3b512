"""The resources that have a configuration, for the APIs that describe and change it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ....network.config import INT32_MAX, Key
from ....network.protocol.errors import AuthorizationError, InvalidRequestError, UnknownTopicOrPartitionError
from ...metadata import BROKER, CLIENT_METRICS, GROUP, TopicState
from ...requests.request import RequestContext
from ...security.acls import AclOperation, ResourceType
from ...services.services import BrokerServices

_log = logging.getLogger(__name__)

TOPIC = 2

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
    """Raises InvalidRequestError unless the name is this broker's id, or empty for the defaults of all brokers."""
    if name not in ("", str(broker.node_id)):
        raise InvalidRequestError(f"this is broker {broker.node_id}; ask broker {name} about its configuration")


def refuse_type(resource_type: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"topics (2), brokers (4), client metrics (16) and groups (32) have configurations here, not resources of type "
        f"{resource_type}"
    )


def set_configs(
    broker: BrokerServices, resource_type: int, name: str, configs: Mapping[str, str], *, validate_only: bool
) -> None:
    """Replace the overrides of a topic, a group or a telemetry subscription, or the dynamic configuration of this
    broker or all brokers. Raises UnknownTopicOrPartitionError, InvalidConfigurationError, InvalidRequestError."""
    check_resource(broker, resource_type, name)
    if resource_type == TOPIC:
        broker.controller.set_topic_configs(name, configs, validate_only=validate_only)
        return
    broker.controller.set_resource_configs(resource_type, name, configs, validate_only=validate_only)
    if resource_type == GROUP and configs and not validate_only:
        _log.warning("The configuration of the group %r has no effect: groups follow the classic protocol", name)


def refusal_for_configs(
    context: RequestContext, operation: AclOperation, resource_type: int, name: str
) -> AuthorizationError | None:
    """The error if the client may not do this with the configuration. Those of brokers belong to the cluster."""
    if resource_type == TOPIC:
        return context.refusal(operation, ResourceType.TOPIC, name)
    if resource_type == GROUP:
        return context.refusal(operation, ResourceType.GROUP, name)
    return context.refusal(operation, ResourceType.CLUSTER)


def check_resource(broker: BrokerServices, resource_type: int, name: str) -> None:
    """Raises InvalidRequestError unless this broker may describe and change the configuration."""
    if resource_type == BROKER:
        check_broker(broker, name)
    elif resource_type == GROUP and not name:
        raise InvalidRequestError("groups have no configuration in common; name one")
    elif resource_type == CLIENT_METRICS and not name:
        raise InvalidRequestError("a telemetry subscription has a name")
    elif resource_type not in (TOPIC, CLIENT_METRICS, GROUP):
        raise refuse_type(resource_type)


def overrides_of(broker: BrokerServices, resource_type: int, name: str) -> Mapping[str, str]:
    """The current overrides of a resource. Raises UnknownTopicOrPartitionError."""
    if resource_type == TOPIC:
        return find_topic(broker, name).configs
    return broker.image.configs.get((resource_type, name), {})


def type_of(entry: Key) -> int:
    """The code that DescribeConfigs has for the type of a key."""
    if isinstance(entry.default, float):
        return _DOUBLE
    if isinstance(entry.default, tuple):
        return _LIST
    told = _TYPES.get(entry.type_name, 2)
    is_short = entry.at_most is not None and entry.at_most <= INT32_MAX
    return _INT if told == _LONG and is_short else told
