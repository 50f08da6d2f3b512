"""Client telemetry of a cluster, for tests: subscriptions, and what clients pushed (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..controller.controller import Controller
from ..metadata import CLIENT_METRICS
from ..telemetry.push import TelemetryPush


class ClusterTelemetry:
    """The subscriptions of a cluster and the pushes that its brokers received. Any thread.

    Brokers serve telemetry while there is a subscription, and a client learns that when it connects: subscribe before
    the client starts.
    """

    def __init__(
        self,
        controller: Callable[[], Controller],
        await_brokers: Callable[[], None],
        pushes: Callable[[], Iterable[TelemetryPush]],
    ) -> None:
        """`controller`: returns the cluster's. `await_brokers`: waits until the brokers have its latest image.
        `pushes`: returns what the brokers received."""
        self._controller = controller
        self._await_brokers = await_brokers
        self._pushes = pushes

    def subscribe(
        self,
        name: str = "all",
        *,
        metrics: Iterable[str] = ("*",),
        interval_ms: int = 300_000,
        match: Iterable[str] = (),
    ) -> None:
        """Add a subscription, or replace the one with this name.

        metrics: prefixes of names, such as `org.apache.kafka.producer.`; `*` for all. interval_ms: how often clients
        push, 100 to 3600000. match: which clients push, such as `client_software_name=headrace`; by default all.

        It is in effect on all running brokers when this returns. Raises InvalidRequestError,
        InvalidConfigurationError.
        """
        configs = {"metrics": ",".join(metrics), "interval.ms": str(interval_ms), "match": ",".join(match)}
        self._set(name, {key: text for key, text in configs.items() if text})

    def unsubscribe(self, name: str = "all") -> None:
        """Remove a subscription; ignored if there is none with this name."""
        self._set(name, {})

    def _set(self, name: str, configs: dict[str, str]) -> None:
        self._controller().set_resource_configs(CLIENT_METRICS, name, configs)
        self._await_brokers()

    @property
    def subscriptions(self) -> dict[str, dict[str, str]]:
        """The configuration of each subscription, by name."""
        configs = self._controller().image.configs
        return {name: dict(of) for (kind, name), of in configs.items() if kind == CLIENT_METRICS}

    @property
    def pushes(self) -> list[TelemetryPush]:
        """What clients pushed, in the order of arrival per broker: the last thousand pushes of each running broker."""
        return list(self._pushes())
