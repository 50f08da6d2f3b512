"""Loading of plugins (serializers, partitioners, interceptors, reporters): from a configured value to an object."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ...network.protocol.errors import KafkaConfigurationError

_log = logging.getLogger(__name__)


def resolve_plugin(value: Any, key: str, built_in: Mapping[str, type], methods: tuple[str, ...]) -> Any:
    """Return the object that `value` of the configuration key `key` stands for. The thread that creates the producer.

    A string is the name of a built-in or an import path, `package.module:Name` or `package.module.Name`. A class with
    one of `methods` is instantiated without arguments. Any other value is used unchanged.
    Raises KafkaConfigurationError if a name is unknown, an import fails or the class can't be instantiated.
    """
    named = f"{key}={value!r}" if isinstance(value, str) else key
    if isinstance(value, str):
        value = built_in.get(value.lower()) or _load(value, named, built_in)
    if isinstance(value, type) and any(hasattr(value, method) for method in methods):
        try:
            return value()
        except KafkaConfigurationError:
            raise
        except Exception as error:
            raise KafkaConfigurationError(
                f"{named}: creating a {value.__qualname__} without arguments failed ({type(error).__name__}: {error}); "
                "give an instance instead"
            ) from error
    return value


def accepts(function: Callable[..., Any], parameters: int) -> bool:
    """Whether `function` can be called with `parameters` positional arguments."""
    import inspect  # noqa: PLC0415 - only programs with callables as plugins need it

    if isinstance(inspect.getattr_static(type(function), "__call__", None), (classmethod, staticmethod)):
        # `inspect` takes the first parameter of such a __call__ for self; kafka-python 2 has a partitioner like that
        function = function.__call__
    try:
        inspect.signature(function).bind(*(None,) * parameters)
    except TypeError:
        return False
    except ValueError:
        # a compiled function without a signature
        return True
    return True


def takes_context(function: Callable[..., Any]) -> bool:
    """Whether `function` is a serializer of confluent-kafka's shape: (data, context), where the context is optional.

    An optional second parameter counts only if its name or its annotation says that it is a context.
    """
    import inspect  # noqa: PLC0415 - as above

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    required = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    if len(positional) < 2 or len([each for each in required if each.kind is not each.VAR_POSITIONAL]) > 2:
        return False
    if any(each.kind is each.VAR_POSITIONAL for each in parameters) or any(each not in positional for each in required):
        return False
    second = positional[1]
    is_context = second.name in ("ctx", "context") or "SerializationContext" in str(second.annotation)
    return is_context or second.default is second.empty


def close_plugin(plugin: Any) -> None:
    """Call a plugin's `close`, if it has one. An error is logged, so that the next plugin is closed, too."""
    close = getattr(plugin, "close", None)
    if callable(close):
        try:
            close()
        except Exception:
            # the program's code, which may raise anything
            _log.warning("%s failed", name_of(close), exc_info=True)


def name_of(thing: Any) -> str:
    """The name of a user's function or instance, for messages."""
    return getattr(thing, "__qualname__", type(thing).__name__)


def _load(path: str, named: str, built_in: Mapping[str, type]) -> Any:
    module_name, colon, attributes = path.partition(":")
    if not colon:
        module_name, _, attributes = path.rpartition(".")
    if not module_name or not attributes:
        names = f"neither one of the built-in {', '.join(built_in)} nor" if built_in else "not"
        import difflib  # noqa: PLC0415 - only for the message of an error

        nearest = difflib.get_close_matches(path.lower(), built_in, n=1)
        meant = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise KafkaConfigurationError(f"{named} is {names} an import path like package.module:Name{meant}")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except Exception as error:
        if module_name.startswith("org.apache.kafka."):
            names = f"; the built-in ones are {', '.join(built_in)}" if built_in else ""
            raise KafkaConfigurationError(
                f"{named} is a class of the Java client, which needs the JVM{names}"
            ) from None
        # importing runs the module's code, which may raise anything
        raise KafkaConfigurationError(
            f"{named} can't be imported ({type(error).__name__}: {error}); check the path and that this process sees "
            "the module"
        ) from error
    return found
