"""Checks of a cluster's arguments, from tests or the command line: none is accepted and then silently ignored."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...network.config import INT32_MAX, dotted
from ...network.protocol.api import ApiKey, requests
from ...network.protocol.errors import IllegalArgumentError, KafkaConfigurationError
from ..api.registry import apis
from ..config.broker_config import BrokerConfig
from ..config.listeners import PLAINTEXT, SASL_PLAINTEXT, Listener, of_clients
from ..metadata import FEATURES
from ..requests.control import names_topics
from ..requests.faults import Fault

_MAX_PORT = 65_535
_PORTS = f"a whole number from 0 (any free port) to {_MAX_PORT}"


def check_hook(api_key: object, times: object, node_id: object, node_ids: Collection[int]) -> None:
    """Check the arguments that `inject` and `on_request` share. Raises IllegalArgumentError."""
    if api_key is not None and not isinstance(api_key, ApiKey):
        known = isinstance(api_key, str) and api_key.upper() in ApiKey.__members__
        what = (
            f"ApiKey.{str(api_key).upper()}" if known else "a member of headrace.broker.ApiKey, or None for every API"
        )
        raise IllegalArgumentError(f"the API is {api_key!r} ({type(api_key).__name__}); give {what}")
    if api_key is not None and api_key not in apis:
        raise IllegalArgumentError(f"the embedded broker doesn't serve {api_key.name}, so no request would match")
    if times is not None and whole_number(times) < 1:
        raise IllegalArgumentError(
            f"times is {times!r}; give a whole number of at least 1, or None for every request until it is removed"
        )
    if node_id is not None and whole_number(node_id) not in node_ids:
        raise IllegalArgumentError(f"there is no broker {node_id!r}; the cluster has {sorted(node_ids)}")


def check_fault(api_key: ApiKey | None, fault: object) -> None:
    """Raises IllegalArgumentError if this is not a `Fault`, or not one that requests of this API can have."""
    if not isinstance(fault, Fault):
        raise IllegalArgumentError(f"the fault is {fault!r} ({type(fault).__name__}); give a headrace.broker.Fault")
    if fault.response is not None and fault.response.api_key is not api_key:
        wanted = fault.response.api_key
        raise IllegalArgumentError(
            f"the response is for {wanted.name}, but {'any request' if api_key is None else api_key.name} would get "
            f"it; inject it for ApiKey.{wanted.name}"
        )
    if api_key is None:
        return
    request = requests[api_key]
    if fault.topic is not None and not names_topics(request):
        raise IllegalArgumentError(
            f"requests of {api_key.name} name no topic, so none would match topic={fault.topic!r}"
        )
    if fault.throttle_ms and not hasattr(request.response_class, "throttle_time_ms"):
        raise IllegalArgumentError(f"answers to {api_key.name} have no throttle time, so throttle_ms would do nothing")


def resolve_node_ids(brokers: object, node_ids: object, configured: int | None, default: int) -> tuple[int, ...]:
    """The ids of a cluster's brokers: the given ones, `node.id` for a single broker, or 1, 2, ... Raises
    KafkaConfigurationError."""
    if brokers is not None and whole_number(brokers) < 1:
        raise KafkaConfigurationError(
            f"brokers is {brokers!r} ({type(brokers).__name__}); give how many there are, a whole number of at least 1"
        )
    if node_ids is not None:
        return _given_node_ids(brokers, node_ids, configured)
    count: Any = brokers
    if count is None:
        count = default if configured is None else 1
    if configured is None:
        return tuple(range(1, count + 1))
    if count > 1:
        raise KafkaConfigurationError(
            f"node.id is {configured}, but the cluster has {count} brokers; give node_ids (--node-ids), one for each"
        )
    return (configured,)


def _given_node_ids(brokers: Any, node_ids: Any, configured: int | None) -> tuple[int, ...]:
    if isinstance(node_ids, str) or not isinstance(node_ids, Iterable):
        raise KafkaConfigurationError(
            f"node_ids is {node_ids!r} ({type(node_ids).__name__}); give a list of whole numbers, such as [0, 1, 2]"
        )
    ids = tuple(node_ids)
    wrong = [each for each in ids if not 0 <= whole_number(each) <= INT32_MAX]
    if wrong or not ids:
        raise KafkaConfigurationError(
            f"node_ids is {list(ids)!r}; give at least one whole number from 0 to {INT32_MAX}, one for each broker"
        )
    if len(set(ids)) < len(ids):
        raise KafkaConfigurationError(f"node_ids is {list(ids)!r}, which has a number twice; give each broker its own")
    if brokers is not None and brokers != len(ids):
        raise KafkaConfigurationError(f"brokers is {brokers}, but there are {len(ids)} node_ids; give one of the two")
    if configured is not None and ids != (configured,):
        raise KafkaConfigurationError(f"node.id is {configured}, but node_ids is {list(ids)!r}; give one of the two")
    return ids


def check_address(
    host: object, port: object, config: BrokerConfig, count: int, security: str | None
) -> tuple[Listener, ...]:
    """The listeners of the first broker: `listeners` from the configuration, or one on `host` and `port`, with this
    `security`, or with SASL if there are users. Raises KafkaConfigurationError."""
    if "listeners" in config.given:
        if security is not None:
            raise KafkaConfigurationError("listeners and security exclude each other; give one of them")
        if host is not None or port is not None:
            raise KafkaConfigurationError("listeners and host or port exclude each other; give one of them")
        listeners = of_clients(config.listeners, config.controller_listener_names)
        for each in listeners:
            _check_port(each.port, count)
        return listeners
    number = 0 if port is None else whole_number(port)
    if host is not None and not isinstance(host, str):
        raise KafkaConfigurationError(f"host is {host!r} ({type(host).__name__}); give a name or an address as text")
    if number < 0:
        raise KafkaConfigurationError(f"port is {port!r} ({type(port).__name__}); give {_PORTS}")
    _check_port(number, count)
    name = security or (SASL_PLAINTEXT if config.users else PLAINTEXT)
    return (Listener(name, "127.0.0.1" if host is None else host, number),)


def _check_port(port: int, count: int) -> None:
    if port > _MAX_PORT:
        raise KafkaConfigurationError(f"port is {port}; give {_PORTS}")
    if port and port + count - 1 > _MAX_PORT:
        raise KafkaConfigurationError(
            f"port is {port}, and {count} brokers take consecutive ports from there; the last would exceed {_MAX_PORT}"
        )


def check_directories(data_dir: object, config: BrokerConfig) -> tuple[Path, ...]:
    """The directories for the cluster's logs; none stands for a temporary one. Raises KafkaConfigurationError."""
    if data_dir is not None and config.log_dirs:
        raise KafkaConfigurationError("data_dir and log.dirs exclude each other; give one of them")
    if data_dir is None:
        return tuple(map(Path, config.log_dirs or ()))
    if not isinstance(data_dir, (str, os.PathLike)) or not os.fspath(data_dir):
        raise KafkaConfigurationError(f"data_dir is {data_dir!r} ({type(data_dir).__name__}); give a path")
    return (Path(data_dir),)


def check_racks(racks: object, node_ids: Collection[int]) -> dict[int, str]:
    """The rack of each broker that has one. Raises KafkaConfigurationError."""
    if racks is None:
        return {}
    if not isinstance(racks, Mapping):
        raise KafkaConfigurationError(
            f"racks is {racks!r} ({type(racks).__name__}); give a dict such as {{1: 'a', 2: 'b'}}"
        )
    for node_id, rack in racks.items():
        if node_id not in node_ids:
            raise KafkaConfigurationError(f"racks names broker {node_id!r}; the cluster has {sorted(node_ids)}")
        if not isinstance(rack, str) or not rack:
            raise KafkaConfigurationError(f"the rack of broker {node_id} is {rack!r}; give its name as text")
    return dict(racks)


def check_features(features: object) -> dict[str, int]:
    """The levels of features. Raises KafkaConfigurationError."""
    if features is None:
        return {}
    supported = ", ".join(f"{name!r} from 0 to {highest}" for name, highest in FEATURES.items())
    if not isinstance(features, Mapping):
        raise KafkaConfigurationError(f"features is {features!r} ({type(features).__name__}); give a dict: {supported}")
    for name, level in features.items():
        if name not in FEATURES or not 0 <= whole_number(level) <= FEATURES[name]:
            raise KafkaConfigurationError(f"features has {name!r}: {level!r}; the brokers support {supported}")
    return dict(features)


def check_console(console: object) -> int | None:
    """The port of the console, 0 for any; None for no console. Raises KafkaConfigurationError."""
    if isinstance(console, bool):
        return 0 if console else None
    if not 1 <= whole_number(console) <= _MAX_PORT:
        raise KafkaConfigurationError(
            f"console is {console!r} ({type(console).__name__}); give True, or the port of its page from 1 to "
            f"{_MAX_PORT}"
        )
    return whole_number(console)


def check_schema_registry(url: object, console_port: int | None) -> str | None:
    """The address of the schema registry whose schemas the console decodes with. Raises KafkaConfigurationError."""
    if url is None:
        return None
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise KafkaConfigurationError(f"schema_registry is {url!r}; give an address such as 'http://127.0.0.1:8081'")
    if console_port is None:
        raise KafkaConfigurationError("only the console uses schema_registry; give console=True (--console), too")
    return url


def whole_number(value: object) -> int:
    """An int unchanged; -1 for anything else, including True and False."""
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def topic_keys(configs: Mapping[str, Any] | None) -> dict[str, Any]:
    """A topic's keys as clients send them: dotted names and text, from either spelling, numbers and booleans."""
    return {
        dotted(name): str(value).lower() if isinstance(value, (bool, int, float)) else value
        for name, value in (configs or {}).items()
    }
