"""One broker, assembled: sockets, request handlers and services (Kafka's `BrokerServer`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...network.clock import Clock
from ..config.broker_config import BrokerConfig
from ..config.listeners import Listener, inter_broker_name
from ..config.sasl_keys import sasl_listeners
from ..controller.controller_api import ControllerApi
from ..metadata import BrokerEndpoint, advertised_host
from ..replica.connection import Links
from ..requests.control import Control
from ..security.mechanisms import BrokerCredentials
from ..server import BrokerServer
from ..services.services import BrokerServices


class Broker(BrokerServices):
    """A broker of a cluster.

    The constructor loads the logs and binds the ports, and `start` serves. `close` stops the broker cleanly, `kill` as
    kill -9 would. These four are for the cluster's thread; the rest may be used from any thread.
    """

    def __init__(
        self,
        node_id: int,
        directories: Sequence[Path],
        *,
        config: BrokerConfig,
        clock: Clock,
        controller: ControllerApi,
        control: Control,
        links: Links,
        listeners: Sequence[Listener],
        advertised: Mapping[str, tuple[str, int]],
        rack: str | None = None,
    ) -> None:
        """Load the logs and bind the ports.

        node_id: the broker's id. directories: its log directories. config: its configuration. clock: the source of
        time for logs, timers and jobs. controller: the cluster's controller. control: the faults that tests inject.
        links: the network between brokers, which tests can cut. listeners: where it listens. advertised: the address
        that clients receive, by listener, if it differs. rack: its rack; by default `broker.rack`.

        Raises KafkaStorageError, KafkaConnectionError.
        """
        between = inter_broker_name(listeners, config)
        sasl = sasl_listeners(config, listeners).get(between)
        credentials = None
        if sasl is not None:
            mechanism = config.sasl_mechanism_inter_broker_protocol
            credentials = BrokerCredentials(mechanism, sasl, lambda: controller.image.users)
        super().__init__(
            node_id,
            directories,
            config=config,
            clock=clock,
            controller=controller,
            control=control,
            links=links,
            rack=rack,
            listener=between,
            credentials=credentials,
        )
        try:
            self.server = BrokerServer(self, listeners)
        except BaseException:
            self.stop_threads()
            self.logs.release()
            raise
        self._advertised = advertised

    @property
    def endpoint(self) -> BrokerEndpoint:
        """The addresses of this broker for other brokers and for clients."""
        told = []
        for each in self.server.listeners:
            host, port = self._advertised.get(each.name) or (advertised_host(each.host), each.port)
            told.append(Listener(each.name, host, port))
        name = inter_broker_name(self.server.listeners, self.config)
        own = next(each for each in told if each.name == name)
        return BrokerEndpoint(self.node_id, own.host, own.port, self.rack, tuple(told))

    def start(self) -> None:
        """Serve. The broker is registered by now, so even its first client finds it in the metadata."""
        self.start_jobs()
        self.server.start()

    def close(self) -> None:
        """Stop serving, close the logs and write the clean-shutdown marker. Blocks until all threads have ended."""
        self._stop_serving()
        try:
            self.replicas.close()
        finally:
            self.logs.release()

    def kill(self) -> None:
        """Stop serving and leave the logs as they are, without flush, checkpoint or marker; the next start recovers."""
        self._stop_serving()
        self.logs.release()

    def _stop_serving(self) -> None:
        self.server.close()
        self.stop_threads()
