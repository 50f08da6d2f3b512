"""The plugins of a configuration. Most name none, so the module of each kind is imported when one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..config import ProducerConfig

if TYPE_CHECKING:
    from ..accumulator.serializing_cy import SerializeFunction
    from .interceptors import ProducerInterceptors
    from .partitioners import PartitionFunction
    from .serializers import Serializer


class Plugins:
    """A producer's serializers, partitioner, interceptors and reporters. None or empty: the configuration names none.

    The thread that creates the producer loads and closes them. `adds_headers`: whether a serializer may append to a
    record's headers.
    """

    def __init__(self, config: ProducerConfig) -> None:
        """Load all but the reporters. Raises KafkaConfigurationError for a plugin that can't be loaded."""
        self._config = config
        self._to_close: list[Any] = []
        self.serializers: tuple[Serializer | None, Serializer | None] = (None, None)
        self.serialize_key: SerializeFunction | None = None
        self.serialize_value: SerializeFunction | None = None
        self.adds_headers = False
        self.partition: PartitionFunction | None = None
        self.interceptors: ProducerInterceptors | None = None
        if config.key_serializer is not None or config.value_serializer is not None:
            self._load_serializers()
        if config.partitioner_class is not None:
            self._load_partitioner()
        if config.interceptor_classes:
            from .interceptors import ProducerInterceptors  # noqa: PLC0415

            self.interceptors = ProducerInterceptors.resolve(config.interceptor_classes)

    def _load_serializers(self) -> None:
        from .serializers import compile_serializer, may_add_headers, resolve_serializer  # noqa: PLC0415

        key = resolve_serializer(self._config.key_serializer, "key.serializer")
        value = resolve_serializer(self._config.value_serializer, "value.serializer")
        self.serializers = key, value
        self._to_close += (each for each in (key, value) if each is not None)
        self.serialize_key = compile_serializer(key, "key")
        self.serialize_value = compile_serializer(value, "value")
        self.adds_headers = may_add_headers(key) or may_add_headers(value)

    def reject_async(self) -> None:
        """Raise KafkaConfigurationError if a serializer has to be awaited."""
        if any(each is not None for each in self.serializers):
            from .serializers import reject_async  # noqa: PLC0415

            reject_async(*self.serializers)

    def _load_partitioner(self) -> None:
        from .partitioners import compile_partitioner, resolve_partitioner  # noqa: PLC0415

        partitioner = resolve_partitioner(self._config.partitioner_class)
        if partitioner is not None:
            self._to_close.append(partitioner)
        self.partition = compile_partitioner(partitioner)

    def load_reporters(self) -> tuple[Any, ...]:
        """Load the metrics reporters. They may open resources. If they fail, call `close`."""
        if not self._config.metric_reporters:
            return ()
        from .reporters import resolve_reporters  # noqa: PLC0415

        return resolve_reporters(self._config.metric_reporters)

    def column_form(self, serializer: Serializer) -> Any:
        """`serializers.column_form` of one of the serializers."""
        from .serializers import column_form  # noqa: PLC0415

        return column_form(serializer)

    def close(self) -> None:
        """Close interceptors, serializers and partitioner; log one that fails and continue with the others."""
        if self.interceptors is not None:
            self.interceptors.close()
        for plugin in self._to_close:
            from .loading import close_plugin  # noqa: PLC0415

            close_plugin(plugin)
