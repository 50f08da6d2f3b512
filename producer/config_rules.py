"""Parsers for the producer's configuration values, and the rules across its keys."""

from __future__ import annotations

import itertools
import logging
from typing import Any

from ..network.addresses import DEFAULT_PORT, Address, parse_address
from ..network.config import INT32_MAX, Draft, Rule
from ..network.config_values import parse_int
from ..network.records.compression_config import COMPRESSION_RULE

_log = logging.getLogger(__name__)

INT16_MAX = 2**15 - 1
_MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5
_client_numbers = itertools.count(1)


# --- Parsers ---


def parse_bootstrap_servers(value: Any) -> tuple[Address, ...]:
    given = value
    if isinstance(value, str):
        # A password may contain commas, so this is rejected as a whole.
        value = [value] if "@" in value else value.split(",")
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise ValueError("is not a list of addresses")
    addresses: dict[Address, None] = {}
    for item in value:
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            host, port = item
            item = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
        if not isinstance(item, str):
            raise ValueError(f"has {item!r} in it, which is not text")
        if item.strip():
            try:
                addresses[parse_address(item, DEFAULT_PORT)] = None
            except ValueError as error:
                repeated = f"{item!r} " if given == item else ""
                problem = str(error)
                if repeated and problem.startswith(repeated):
                    raise ValueError(problem.removeprefix(repeated)) from None
                raise ValueError(f"can't be used: {problem}") from None
    return tuple(addresses)


def show_addresses(addresses: tuple[Address, ...]) -> str:
    return repr(",".join(str(address) for address in addresses))


def parse_acks(value: Any) -> int:
    if isinstance(value, str) and value.strip().lower() == "all":
        return -1
    acks = parse_int(value)
    if acks not in (-1, 0, 1):
        raise ValueError("is not a valid number of acknowledgements")
    return acks


def show_acks(acks: int) -> str:
    return "'all'" if acks == -1 else str(acks)


def parse_retries(value: Any) -> int:
    return INT32_MAX if value == float("inf") else parse_int(value)


def check_client_id(client_id: str) -> str | None:
    """Return the problem of a client id: request headers carry it as UTF-8, with a length of 16 bits."""
    try:
        return None if len(client_id.encode()) <= INT16_MAX else "is longer than 32767 bytes of UTF-8"
    except UnicodeEncodeError:
        return "has characters that UTF-8 can't encode"


def check_transactional_id(transactional_id: str | None) -> str | None:
    """Return the problem of a transactional id, which requests carry like a client id."""
    if transactional_id is None:
        return None
    return check_client_id(transactional_id) if transactional_id else "is empty; leave it out for no transactions"


def parse_pluggable(value: Any) -> Any:
    # Rejects only what can't be valid. The compile_ functions of serializers.py and partitioners.py resolve names and
    # check objects.
    if isinstance(value, (str, bytes)):
        # str and bytes also have a method `partition`
        fits = isinstance(value, str) and bool(value.strip())
    else:
        fits = callable(value) or hasattr(value, "serialize") or hasattr(value, "partition")
    if fits:
        return value.strip() if isinstance(value, str) else value
    raise ValueError("is neither a name nor a class, an instance or a callable")


def parse_plugins(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


# --- Rules across keys ---


def _need_bootstrap_servers(draft: Draft) -> None:
    """`bootstrap.servers` must name at least one broker."""
    if not draft["bootstrap_servers"]:
        draft.problem("bootstrap.servers is empty; name at least one broker, as in bootstrap_servers='localhost:9092'")


def _decide_idempotence(draft: Draft) -> None:
    """Idempotence requires `acks=all`, `retries` above 0 and `max.in.flight.requests.per.connection` of at most 5.

    If one of these keys conflicts, idempotence is disabled with a warning. If `enable.idempotence=true` was set
    explicitly, or `transactional.id` is set, the conflict is an error. `transactional.id` also contradicts
    `enable.idempotence=false`.
    """
    transactional = draft["transactional_id"] is not None
    if not draft["enable_idempotence"]:
        if transactional:
            draft.problem(
                "transactional.id contradicts enable.idempotence=false: transactions need idempotence; leave one out"
            )
        return
    conflicts: list[tuple[str, str]] = []
    if draft["acks"] != -1:
        conflicts.append((f"acks={draft['acks']}", "acks=all"))
    if draft["retries"] == 0:
        conflicts.append(("retries=0", "retries of at least 1"))
    in_flight = draft["max_in_flight_requests_per_connection"]
    if in_flight > _MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
        name = "max.in.flight.requests.per.connection"
        conflicts.append((f"{name}={in_flight}", f"{name} of at most {_MAX_IN_FLIGHT_FOR_IDEMPOTENCE}"))
    if not conflicts:
        return
    given = " and ".join(conflict for conflict, _ in conflicts)
    needed = " and ".join(need for _, need in conflicts)
    if transactional:
        draft.problem(f"transactional.id contradicts {given}; it needs {needed}")
    elif draft.is_explicit("enable_idempotence"):
        draft.problem(
            f"enable.idempotence=true contradicts {given}; it needs {needed}, or set enable.idempotence=false"
        )
    else:
        _log.warning("Idempotence is off because of %s: retries may write a record twice. It needs %s", given, needed)
        draft.adjust("enable_idempotence", False, f"off because of {given}")


def _fit_delivery_timeout(draft: Draft) -> None:
    """`delivery.timeout.ms` must be at least `linger.ms` + `request.timeout.ms`.

    A smaller default is raised to the sum; a smaller explicit value is an error.
    """
    least = min(draft["linger_ms"] + draft["request_timeout_ms"], INT32_MAX)
    if draft["delivery_timeout_ms"] >= least:
        return
    if draft.is_explicit("delivery_timeout_ms"):
        draft.problem(
            f"delivery.timeout.ms={draft['delivery_timeout_ms']} is shorter than linger.ms={draft['linger_ms']} + "
            f"request.timeout.ms={draft['request_timeout_ms']}; set it to at least {least} or lower these"
        )
    else:
        _log.info("delivery.timeout.ms is raised to %d, the sum of linger.ms and request.timeout.ms", least)
        draft.adjust("delivery_timeout_ms", least, "raised to linger.ms + request.timeout.ms")


def _fit_batch_size(draft: Draft) -> None:
    """`batch.size` must not exceed `buffer.memory`.

    A larger default is lowered to `buffer.memory`; a larger explicit value is an error.
    """
    if draft["batch_size"] <= draft["buffer_memory"]:
        return
    if draft.is_explicit("batch_size"):
        draft.problem(
            f"batch.size={draft['batch_size']} doesn't fit into buffer.memory={draft['buffer_memory']}; "
            "lower batch.size or raise buffer.memory"
        )
    else:
        _log.info("batch.size is lowered to %d, the size of buffer.memory", draft["buffer_memory"])
        draft.adjust("batch_size", draft["buffer_memory"], "lowered to buffer.memory")


def _need_rack(draft: Draft) -> None:
    """`partitioner.rack.aware=true` requires `client.rack`; without it, the constructor raises an error."""
    if draft["partitioner_rack_aware"] and not draft["client_rack"].strip():
        draft.problem("partitioner.rack.aware=true needs client.rack: name the rack as in the brokers' broker.rack")


def _fit_reconnect_backoff(draft: Draft) -> None:
    """If only `reconnect.backoff.ms` is set, `reconnect.backoff.max.ms` takes its value, so the backoff is constant."""
    if draft.is_explicit("reconnect_backoff_ms") and not draft.is_explicit("reconnect_backoff_max_ms"):
        draft.adjust("reconnect_backoff_max_ms", draft["reconnect_backoff_ms"], "set to reconnect.backoff.ms")


def _cap_first_waits(draft: Draft) -> None:
    """An initial value above its maximum is lowered to the maximum, with a warning, and is then constant.

    This applies to `retry.backoff.ms` (`retry.backoff.max.ms`), `reconnect.backoff.ms` (`reconnect.backoff.max.ms`) and
    `socket.connection.setup.timeout.ms` (`socket.connection.setup.timeout.max.ms`).
    """
    for first, most in (
        ("retry_backoff_ms", "retry_backoff_max_ms"),
        ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    ):
        if draft[first] > draft[most]:
            _log.warning("%s=%d is above %s=%d and is lowered to it", first, draft[first], most, draft[most])
            draft.adjust(first, draft[most], f"lowered to {most.replace('_', '.')}")


def _number_client(draft: Draft) -> None:
    """Producers without a `client.id` are numbered per process: `producer-1`, `producer-2`, ..."""
    if not draft["client_id"]:
        draft.adjust("client_id", f"producer-{next(_client_numbers)}", "numbered")


RULES = (
    Rule(("bootstrap_servers",), _need_bootstrap_servers),
    Rule(
        ("enable_idempotence", "acks", "retries", "max_in_flight_requests_per_connection", "transactional_id"),
        _decide_idempotence,
    ),
    Rule(("delivery_timeout_ms", "linger_ms", "request_timeout_ms"), _fit_delivery_timeout),
    Rule(("batch_size", "buffer_memory"), _fit_batch_size),
    COMPRESSION_RULE,
    Rule(("reconnect_backoff_ms", "reconnect_backoff_max_ms"), _fit_reconnect_backoff),
    Rule(
        (
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "reconnect_backoff_ms",
            "reconnect_backoff_max_ms",
            "socket_connection_setup_timeout_ms",
            "socket_connection_setup_timeout_max_ms",
        ),
        _cap_first_waits,
    ),
    Rule(("partitioner_rack_aware", "client_rack"), _need_rack),
    Rule(("client_id",), _number_client),
)
